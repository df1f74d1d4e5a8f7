//! The two processes of a server. The spawner is the parent: one thread, all the privileges, no
//! user bytes. The daemon is its child: everything else, as a user without rights.

use std::{
    env,
    fs::{self, DirBuilder, File},
    io::{Read as _, Seek as _, Write as _},
    os::{
        fd::{AsFd, AsRawFd as _, OwnedFd},
        unix::{
            fs::{DirBuilderExt as _, PermissionsExt as _, chown},
            process::CommandExt as _,
        },
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, bail};
use daemon::{
    config::{Config, SandboxesConfig},
    grpc::{
        accounts,
        socket::{self, Socket},
    },
    run::{Agbox, Kind},
};
use isolate::{
    cgroup::{Cgroups, TotalLimits},
    disk::DiskSettings,
    oom::Priority,
    plan::{Exit, Identity},
    socket::PacketSocket,
    spawner::{
        Daemon, Door, IdRange, ImageSettings, SandboxSettings, Settings, Spawner, VolumeSettings,
        enter_user_namespace,
    },
    sys,
    volume::ByteCount,
};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::{locks, output::complain, server::default_data};

/// What the daemon is given by the spawner.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) config: Config,
    pub(crate) spawner: OwnedFd,
    pub(crate) agbox: Agbox,
}

/// What the daemon is told, beside the descriptors.
#[derive(Deserialize, Serialize)]
struct Told {
    /// The user who started the server.
    server: u32,
    agbox: ToldOfSocket,
    config: Config,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum ToldOfSocket {
    Open(PathBuf),
    Missing(String),
    Unwanted,
}

/// Starts the daemon beside this process, and becomes the spawner. Returns when both are done.
pub(crate) fn start(config: &Config, kind: Kind) -> anyhow::Result<ExitCode> {
    let is_private = kind != Kind::Lasting;
    raise_descriptor_limit()?;
    make_data_directory(&config.data)?;
    if !is_private && !locks::wait_until_free(&locks::of_data(&config.data))? {
        bail!("{} is in use by another ringfence process", config.data.display());
    }
    let is_root = rustix::process::geteuid().is_root();
    let instance = instance_name();
    // Before the daemon is started: it belongs in the same cgroup as the spawner.
    let mut cgroups = Cgroups::open(&instance);
    if let Ok(cgroups) = &mut cgroups {
        let total = TotalLimits::with_memory(config.total_memory());
        cgroups.limit_total(total).context("cannot limit executions and sandboxes as a whole")?;
    }
    if let Err(error) = &cgroups {
        if !config.allow_soft_limits {
            bail!("{error}: {NO_CGROUPS}");
        }
        complain(&format!("limits are soft: memory is watched, not held ({error})"));
    }
    let scratch = scratch_directory(config, &instance, is_root)?;
    let user = is_root.then(|| daemon_user(config)).transpose()?;
    if let Some(user) = user {
        hand_over(&config.data, user)
            .with_context(|| format!("cannot hand {} to its user", config.data.display()))?;
    }
    let (ours, theirs) = PacketSocket::pair().context("cannot make a socket")?;
    let agbox = open_socket(config, is_private)?;
    let socket = match &agbox {
        Agbox::Open { socket, .. } => Some((socket.path.clone(), socket.lock.try_clone()?)),
        Agbox::Missing { .. } | Agbox::Unwanted => None,
    };
    // Without it nobody's rights but the daemon's own count for paths of the machine.
    let door = match &agbox {
        Agbox::Open { socket, .. } => Door::of(&socket.listener).ok(),
        Agbox::Missing { .. } | Agbox::Unwanted => None,
    };
    let pid = start_daemon(config, theirs.into_fd(), agbox, user, kind)?;
    if is_root {
        protect_from_memory_shortage(pid)?;
    }
    let (ids, sandbox_users) = if is_root {
        (Some(IdRange::DEFAULT), Identity::Apart)
    } else {
        (enter_user_namespace()?, Identity::Shared)
    };
    // A server of somebody's own ends with what it was started for, and keeps nothing.
    let sandboxes = (!is_private).then(|| SandboxSettings {
        folder: config.sandboxes_folder(),
        layers: config.images_folder().join("layers"),
        daemon: user,
        door,
        engine: config.providers.engine(),
    });
    let volumes = (kind != Kind::Private).then(|| VolumeSettings {
        data: config.data.clone(),
        disks: disk_settings(&config.sandboxes),
    });
    let images = (!is_private).then(|| ImageSettings {
        folder: config.images_folder(),
        arguments: ["ringfence", "serve", "--as-image-worker"].map(str::to_owned).to_vec(),
    });
    let settings =
        Settings { scratch: scratch.clone(), ids, sandbox_users, sandboxes, volumes, images };
    let exit = Spawner::new(&settings, cgroups)?.run(&ours, Daemon::new(pid))?;
    // It was only a place to mount on.
    let _ = fs::remove_dir(scratch);
    // Nobody answers there any more. With the lock still held it cannot be the next server's.
    if let Some((path, lock)) = socket {
        let _ = fs::remove_file(path);
        drop(lock);
    }
    Ok(match exit {
        Some(Exit::Code(code)) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Some(Exit::Signal(_)) | None => ExitCode::FAILURE,
    })
}

fn disk_settings(config: &SandboxesConfig) -> DiskSettings {
    DiskSettings {
        only: config.disk,
        allow_tmpfs: config.allow_tmpfs,
        allow_unlimited_disk: config.allow_unlimited_disk,
        keep_free: ByteCount(config.keep_free.as_bytes()),
        overcommit: config.disk_overcommit,
        ..DiskSettings::default()
    }
}

/// A slot has about a dozen descriptors here, and a shell's usual limit is 1024, which fewer
/// executions than may run at once would use up. Programs in slots have a limit of their own, which
/// cannot be above ours.
fn raise_descriptor_limit() -> anyhow::Result<()> {
    let own = getrlimit(Resource::Nofile);
    let enough = own.maximum.map_or(MAX_DESCRIPTORS, |hard| hard.min(MAX_DESCRIPTORS));
    if enough < MIN_DESCRIPTORS {
        bail!(
            "this process may have {enough} open files at most, and the server needs \
             {MIN_DESCRIPTORS}: raise the hard limit (ulimit -Hn {MAX_DESCRIPTORS}, or LimitNOFILE= \
             in its unit)"
        );
    }
    if own.current.is_some_and(|soft| soft < enough) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(enough), ..own })
            .context("cannot raise the limit of open files")?;
    }
    Ok(())
}

/// What programs in slots have.
const MIN_DESCRIPTORS: u64 = 1024;

/// Enough for everything that may run and be connected at once.
const MAX_DESCRIPTORS: u64 = 65_536;

const NO_CGROUPS: &str = "the kernel could not limit what code uses. Run the server as root, or in \
    a cgroup of its own (systemd-run --user --scope -p Delegate=yes ringfence serve), or allow \
    weaker limits by name with --allow-soft-limits";

/// No two servers have the same name, not even two that want the same data directory: only one
/// of them gets it, and the other must not touch what is the first one's.
fn instance_name() -> String {
    format!("ringfence-{}", std::process::id())
}

/// Returns a directory to put the root of slots together on. For root it is not in the data
/// directory, because the daemon could change what is there.
fn scratch_directory(config: &Config, instance: &str, is_root: bool) -> anyhow::Result<PathBuf> {
    let place = if is_root { Path::new("/run/ringfence") } else { config.data.as_path() };
    remove_left_behind(place);
    let scratch = place.join(instance);
    fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    Ok(scratch)
}

/// Removes the directories of servers that were killed. They are empty.
fn remove_left_behind(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().filter_map(Result::ok) {
        let name = entry.file_name();
        if name.to_str().is_some_and(isolate::cgroup::is_of_the_dead) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Opens the socket of the lifecycle protocol here, where the rights to it are: the daemon may have
/// another user, who cannot even see the directory.
fn open_socket(config: &Config, is_private: bool) -> anyhow::Result<Agbox> {
    if is_private {
        return Ok(Agbox::Unwanted);
    }
    let group = match config.agbox.group.as_deref() {
        None => None,
        Some(group) => match accounts::group_number(group) {
            Some(number) => Some(number),
            None => bail!("there is no group {group:?}, which agbox.group names"),
        },
    };
    let server = rustix::process::geteuid().as_raw();
    if let Some(path) = &config.agbox.socket {
        wait_for_socket(path);
        let socket = socket::open(path, group).context("cannot open the agbox socket")?;
        return Ok(Agbox::Open { socket, server });
    }
    let Some(path) = default_socket(config) else {
        let reason = "XDG_RUNTIME_DIR is not set, and neither is agbox.socket".to_owned();
        return Ok(Agbox::Missing { reason });
    };
    wait_for_socket(&path);
    // Nobody asked for this one by name, so that the server is of use without it.
    match socket::open(&path, group) {
        Ok(socket) => Ok(Agbox::Open { socket, server }),
        Err(error) => Ok(Agbox::Missing { reason: format!("{:#}", anyhow::Error::from(error)) }),
    }
}

/// Returns where clients look for the socket: below the runtime directory of the user. Root may have none; then it is
/// below /run, for the server whose data directory is the system's.
fn default_socket(config: &Config) -> Option<PathBuf> {
    if let Some(runtime) = env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()) {
        return Some(Path::new(&runtime).join(socket::BELOW_RUNTIME_DIRECTORY));
    }
    let is_of_the_system = rustix::process::geteuid().is_root()
        && default_data().is_ok_and(|data| data == config.data);
    is_of_the_system.then(|| PathBuf::from(socket::OF_THE_SYSTEM))
}

/// Gives a server that ends the time to let go of its socket. Opening says what is wrong otherwise.
fn wait_for_socket(path: &Path) {
    if let Err(error) = locks::wait_until_free(&locks::of_socket(path)) {
        complain(&format!("{error:#}"));
    }
}

fn start_daemon(
    config: &Config,
    socket: OwnedFd,
    agbox: Agbox,
    user: Option<u32>,
    kind: Kind,
) -> anyhow::Result<u32> {
    let mut told = tempfile::tempfile().context("cannot make a temporary file")?;
    let (agbox, more) = match agbox {
        Agbox::Open { socket, .. } => {
            (ToldOfSocket::Open(socket.path), vec![socket.listener, socket.lock])
        }
        Agbox::Missing { reason } => (ToldOfSocket::Missing(reason), Vec::new()),
        Agbox::Unwanted => (ToldOfSocket::Unwanted, Vec::new()),
    };
    let server = rustix::process::geteuid().as_raw();
    let text = toml::to_string(&Told { server, agbox, config: config.clone() })?;
    told.write_all(text.as_bytes())?;
    told.rewind()?;
    let handed: Vec<_> =
        [socket.as_fd(), told.as_fd()].into_iter().chain(more.iter().map(AsFd::as_fd)).collect();
    for fd in &handed {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
    }
    let numbers: Vec<String> = handed.iter().map(|fd| fd.as_raw_fd().to_string()).collect();
    let numbers = numbers.join(",");
    // By this name the program is found also where the daemon's user may not look.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("ringfence");
    command.args(["serve", "--as-daemon", &numbers]);
    match kind {
        Kind::Lasting => {}
        Kind::Private => drop(command.arg("--private")),
        Kind::Examined => drop(command.args(["--private", "--examined"])),
    }
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let pid = command.spawn().context("cannot start the daemon")?.id();
    // The daemon's end must be the daemon's alone, or its death would not be seen.
    drop(socket);
    Ok(pid)
}

/// Has the kernel end sandboxes and executions before this server.
fn protect_from_memory_shortage(daemon: u32) -> anyhow::Result<()> {
    let daemon = i32::try_from(daemon).ok().and_then(Pid::from_raw).context("no daemon")?;
    // A container may not be allowed to: the order among its other processes holds all the same.
    let _ = Priority::Daemon.set_of(daemon);
    Priority::Spawner.set_own();
    Ok(())
}

/// In the daemon: takes what the spawner handed over, by the numbers that it told.
pub(crate) fn take_over(numbers: &str) -> anyhow::Result<Handed> {
    let numbers: Vec<i32> =
        numbers.split(',').map(str::parse).collect::<Result<_, _>>().context("not numbers")?;
    let (&[socket, told], more) = numbers.split_first_chunk().context("descriptors are missing")?;
    let spawner = take_descriptor(socket)?;
    let mut text = String::new();
    File::from(sys::process::inherited(told)?).read_to_string(&mut text)?;
    let Told { server, agbox, config } = toml::from_str(&text)?;
    let agbox = match (agbox, more) {
        (ToldOfSocket::Open(path), &[listener, lock]) => {
            let (listener, lock) = (take_descriptor(listener)?, take_descriptor(lock)?);
            Agbox::Open { socket: Socket { path, listener, lock }, server }
        }
        (ToldOfSocket::Missing(reason), []) => Agbox::Missing { reason },
        (ToldOfSocket::Unwanted, []) => Agbox::Unwanted,
        _ => bail!("the descriptors of the socket are not there"),
    };
    Ok(Handed { config, spawner, agbox })
}

/// Takes a descriptor that the programs we start are not to have.
fn take_descriptor(number: i32) -> anyhow::Result<OwnedFd> {
    let taken = sys::process::inherited(number)?;
    rustix::io::fcntl_setfd(&taken, rustix::io::FdFlags::CLOEXEC)?;
    Ok(taken)
}

/// Returns the number of the user that the daemon is to have.
fn daemon_user(config: &Config) -> anyhow::Result<u32> {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    match config.user.as_deref() {
        None => Ok(user_number(&passwd, "ringfence").unwrap_or(IdRange::DAEMON)),
        Some(user) => match user.parse().ok().or_else(|| user_number(&passwd, user)) {
            None => bail!("there is no user {user:?}"),
            Some(0) => bail!("the daemon must not be root; set user to another"),
            Some(number) => Ok(number),
        },
    }
}

fn user_number(passwd: &str, name: &str) -> Option<u32> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    })
}

/// Makes the data directory if it is missing, for its owner alone. Refuses one with content that other users of the
/// machine can look into: it holds keys and the output of every command.
fn make_data_directory(data: &Path) -> anyhow::Result<()> {
    let shown = data.display();
    let failed = || format!("cannot make the data directory {shown}");
    // The daemon has another user, who has to get through to it.
    if let Some(parent) = data.parent() {
        fs::create_dir_all(parent).with_context(failed)?;
    }
    DirBuilder::new().recursive(true).mode(0o700).create(data).with_context(failed)?;
    let mode = fs::metadata(data)?.permissions().mode() & 0o777;
    let is_private = mode & 0o700 == mode;
    if is_private {
        return Ok(());
    }
    if fs::read_dir(data).with_context(failed)?.next().is_some() {
        bail!(
            "other users can look into the data directory {shown} (mode {mode:o}): run chmod 700 {shown}"
        );
    }
    // It is empty, so nothing has been read.
    fs::set_permissions(data, fs::Permissions::from_mode(0o700)).with_context(failed)
}

/// Makes the data directory the daemon's own, with what is in it.
fn hand_over(data: &Path, user: u32) -> std::io::Result<()> {
    chown(data, Some(user), Some(user))?;
    for entry in fs::read_dir(data)? {
        let entry = entry?;
        // Not through links: they could lead anywhere.
        if entry.file_type()?.is_file() {
            chown(entry.path(), Some(user), Some(user))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_the_whole_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nringfence:x:998:998::/:/bin/false\n";
        assert_eq!(user_number(passwd, "ringfence"), Some(998));
        assert_eq!(user_number(passwd, "ring"), None);
    }
}
