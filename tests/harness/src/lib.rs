//! For tests alone: a real spawner beside the test, as a child process.
//!
//! The spawner must have one thread, and a test process has several. So the test's own program is
//! started again, and becomes a spawner before its `main` runs.

pub mod disks;
pub mod imaging;
pub mod load;
pub mod needs;
pub mod packing;
pub mod ports;
mod probe;
pub mod registry;
pub mod supervisor;

use std::{
    os::fd::{AsFd, AsRawFd as _},
    path::{Path, PathBuf},
    process::{Child, Command},
};

use isolate::{
    cgroup::{CgroupError, Cgroups, TotalLimits},
    plan::Identity,
    sandbox::{SandboxAnswer, SandboxOrder},
    socket::PacketSocket,
    spawner::{
        Door, IdRange, ImageSettings, SandboxSettings, Settings, Spawner, SpawnerError,
        VolumeSettings, enter_user_namespace,
    },
    sys,
    volume::DiskKind,
    wire::{self, Notice, Order},
};
use rustix::{
    mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount},
    net::{RecvFlags, SendFlags},
};

/// Names the scratch directory, and so says that this process is to be a spawner.
const ROLE: &str = "RINGFENCE_TEST_SPAWNER";

/// Names the folder of sandboxes, if there are to be any.
const SANDBOXES: &str = "RINGFENCE_TEST_SANDBOXES";

/// The number of the socket that callers connect to, if there is one.
const DOOR: &str = "RINGFENCE_TEST_DOOR";

/// Names the folder of images, if there are to be any.
const IMAGES: &str = "RINGFENCE_TEST_IMAGES";

/// By this argument the test's own program is the worker that unpacks images.
const IMAGE_WORKER: &str = "--be-the-image-worker-of-a-test";

/// By this argument it tries what such a worker can do.
const IMAGE_PROBE: &str = "--be-the-image-probe-of-a-test";

/// Names which of the two it is.
const IMAGE_ROLE: &str = "RINGFENCE_TEST_IMAGE_ROLE";

/// The number of its socket.
const SOCKET: &str = "RINGFENCE_TEST_SPAWNER_SOCKET";

#[ctor::ctor(unsafe)]
fn become_what_is_asked() {
    let role = |name| std::env::var_os(name);
    let ended = if let Some(scratch) = role(ROLE) {
        be_spawner(Path::new(&scratch)).map_err(|error| complain(&error))
    } else if let Some(directory) = role(supervisor::ROLE) {
        supervisor::be_supervisor(Path::new(&directory)).map_err(|error| complain(&error))
    } else if let Some(data) = role(disks::ROLE) {
        disks::be_worker(Path::new(&data)).map_err(|error| complain(&*error))
    } else {
        match std::env::args().nth(1).as_deref() {
            Some(IMAGE_WORKER) => images::worker::run().map_err(|error| complain(&error)),
            Some(IMAGE_PROBE) => probe::be_probe().map_err(|error| complain(&error)),
            _ => return,
        }
    };
    sys::process::exit_now(i32::from(ended.is_err()));
}

/// A cgroup that was delegated to these tests, where they are not alone in their own: every
/// spawner gets one below it, as a service manager would give it.
const CGROUP: &str = "RINGFENCE_TEST_CGROUP";

fn enter_own_cgroup() {
    if let Some(delegated) = std::env::var_os(CGROUP) {
        let own = Path::new(&delegated).join(format!("spawner-{}", std::process::id()));
        // If this fails the spawner finds no cgroup of its own, and says so.
        let _ = std::fs::create_dir(&own);
        let _ = std::fs::write(own.join("cgroup.procs"), "0");
    }
}

/// Says that the spawner is not to see the cgroups of v2.
const WITHOUT_V2: &str = "RINGFENCE_TEST_WITHOUT_V2";

/// Says that the spawner is to have no cgroups, as on a machine that gives it none.
const WITHOUT_CGROUPS: &str = "RINGFENCE_TEST_WITHOUT_CGROUPS";

/// How much memory all slots may use together.
const TOTAL_MEMORY: &str = "RINGFENCE_TEST_TOTAL_MEMORY";

/// Takes the cgroups of v2 out of this process's sight.
fn hide_v2() -> Result<(), SpawnerError> {
    let fail = |errno| SpawnerError::System { doing: "hide the cgroups of v2", errno };
    sys::process::unshare_mounts().map_err(fail)?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(fail)?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for mount in mounts.lines().filter(|line| line.contains(" - cgroup2 ")) {
        let mount_point = mount.split(' ').nth(4).unwrap_or_default();
        unmount(mount_point, UnmountFlags::DETACH).map_err(fail)?;
    }
    Ok(())
}

fn be_spawner(scratch: &Path) -> Result<(), SpawnerError> {
    enter_own_cgroup();
    let is_root = rustix::process::getuid().is_root();
    if is_root && std::env::var_os(WITHOUT_V2).is_some() {
        hide_v2()?;
    }
    // Named as a server, so that what a killed one leaves is cleared away by the next.
    let instance = format!("ringfence-{}", std::process::id());
    let mut cgroups = match std::env::var_os(WITHOUT_CGROUPS) {
        Some(_) => Err(CgroupError::NoController("memory")),
        None => Cgroups::open(&instance),
    };
    if let Ok(cgroups) = &mut cgroups
        && let Ok(memory) = std::env::var(TOTAL_MEMORY)
    {
        let memory = memory.parse().expect("a number of bytes");
        let fail = |errno| SpawnerError::System { doing: "limit all slots together", errno };
        cgroups.limit_total(TotalLimits::with_memory(memory)).map_err(fail)?;
    }
    let (ids, sandbox_users) = if is_root {
        (Some(IdRange::DEFAULT), Identity::Apart)
    } else {
        (enter_user_namespace()?, Identity::Shared)
    };
    let sandboxes = std::env::var_os(SANDBOXES).map(PathBuf::from).map(|folder| SandboxSettings {
        layers: folder.with_file_name("images").join("layers"),
        folder,
        daemon: None,
        door: inherited_door(),
        engine: None,
    });
    let volumes = sandboxes.as_ref().and_then(|sandboxes| {
        let data = sandboxes.folder.parent()?.to_owned();
        Some(VolumeSettings { data, disks: disks::spawner_settings() })
    });
    let images = std::env::var_os(IMAGES).map(|folder| ImageSettings {
        folder: folder.into(),
        arguments: vec![
            "ringfence".to_owned(),
            std::env::var(IMAGE_ROLE).unwrap_or(IMAGE_WORKER.to_owned()),
        ],
    });
    let scratch = scratch.to_owned();
    let settings = Settings { scratch, ids, sandbox_users, sandboxes, volumes, images };
    let number = std::env::var(SOCKET).ok().and_then(|number| number.parse().ok());
    let socket = sys::process::inherited(number.unwrap_or(-1))
        .map_err(|errno| SpawnerError::System { doing: "find the socket", errno })?;
    Spawner::new(&settings, cgroups)?.run(&PacketSocket::from_fd(socket), None).map(drop)
}

/// The socket that callers connect to, if the test has one.
fn inherited_door() -> Option<Door> {
    let number = std::env::var(DOOR).ok()?.parse().ok()?;
    Door::of(sys::process::inherited(number).ok()?).ok()
}

#[expect(clippy::print_stderr, reason = "a test's child process has no log")]
fn complain(error: &dyn std::error::Error) {
    let mut next = Some(error);
    while let Some(error) = next {
        eprintln!("test process: {error}");
        next = error.source();
    }
}

/// A running spawner. It ends, with every slot, when the other end of its socket is closed.
#[derive(Debug)]
pub struct SpawnerProcess {
    child: Child,
    _scratch: tempfile::TempDir,
}

/// Starts a spawner and returns the daemon's end of its socket.
pub fn start_spawner() -> std::io::Result<(PacketSocket, SpawnerProcess)> {
    start(Command::new(std::env::current_exe()?))
}

/// Starts a spawner that also makes sandboxes, in this folder.
pub fn start_spawner_of_sandboxes(
    folder: &Path,
) -> std::io::Result<(PacketSocket, SpawnerProcess)> {
    start_spawner_on_disks(folder, None)
}

/// Starts a spawner that also makes sandboxes, on volumes of this kind or the best that there is.
pub fn start_spawner_on_disks(
    folder: &Path,
    kind: Option<DiskKind>,
) -> std::io::Result<(PacketSocket, SpawnerProcess)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(SANDBOXES, folder).env(IMAGES, folder.with_file_name("images"));
    if let Some(kind) = kind {
        command.env(disks::ONLY, kind.name());
    }
    start(command)
}

/// Starts a spawner that has no cgroups to limit or freeze slots with.
pub fn start_spawner_with_soft_limits() -> std::io::Result<(PacketSocket, SpawnerProcess)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(WITHOUT_CGROUPS, "1");
    start(command)
}

/// Starts a spawner that also makes sandboxes, and has no cgroups to limit or freeze them with.
pub fn start_spawner_without_cgroups(
    folder: &Path,
) -> std::io::Result<(PacketSocket, SpawnerProcess)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(SANDBOXES, folder).env(IMAGES, folder.with_file_name("images"));
    command.env(WITHOUT_CGROUPS, "1");
    start(command)
}

/// Starts a spawner that also makes sandboxes, for callers who connect to this socket.
pub fn start_spawner_behind(
    folder: &Path,
    door: &impl AsFd,
) -> std::io::Result<(PacketSocket, SpawnerProcess)> {
    // The child has a copy of its own, which stays open when it becomes the spawner.
    let copy = rustix::io::dup(door)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.env(SANDBOXES, folder).env(IMAGES, folder.with_file_name("images"));
    command.env(DOOR, copy.as_raw_fd().to_string());
    start(command)
}

/// Starts a spawner that also starts workers for images, over this folder.
pub fn start_spawner_of_images(folder: &Path) -> std::io::Result<(PacketSocket, SpawnerProcess)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(IMAGES, folder);
    start(command)
}

/// Starts a spawner whose workers for images only try what they can do.
pub fn start_spawner_of_probes(folder: &Path) -> std::io::Result<(PacketSocket, SpawnerProcess)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(IMAGES, folder).env(IMAGE_ROLE, IMAGE_PROBE);
    start(command)
}

/// Starts a spawner that has the cgroups of v1 alone, if any. Hiding the others needs root: an
/// ordinary user gets a spawner like any other.
pub fn start_spawner_without_v2() -> std::io::Result<(PacketSocket, SpawnerProcess)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(WITHOUT_V2, "1");
    start(command)
}

/// Starts a spawner whose slots may use this many bytes of memory together.
pub fn start_spawner_with_total_memory(
    bytes: u64,
) -> std::io::Result<(PacketSocket, SpawnerProcess)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(TOTAL_MEMORY, bytes.to_string());
    start(command)
}

fn start(mut command: Command) -> std::io::Result<(PacketSocket, SpawnerProcess)> {
    let (ours, theirs) = PacketSocket::pair()?;
    let scratch = tempfile::tempdir()?;
    let number = theirs.as_raw_fd();
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())?;
    let child = command.env(ROLE, scratch.path()).env(SOCKET, number.to_string()).spawn()?;
    Ok((ours, SpawnerProcess { child, _scratch: scratch }))
}

impl SpawnerProcess {
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as hard as can be.
    pub fn kill(&mut self) -> std::io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Waits for its end, which must be a good one.
    pub fn wait(&mut self) -> std::io::Result<()> {
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(std::io::Error::other(status.to_string())) }
    }
}

/// Removes every sandbox in this folder, with its processes: they go on when their spawner ends.
pub fn remove_sandboxes(folder: &Path) -> std::io::Result<()> {
    let (socket, mut spawner) = start_spawner_of_sandboxes(folder)?;
    let mut ticket = 0;
    let mut ask = |order| -> std::io::Result<SandboxAnswer> {
        ticket += 1;
        let packet =
            wire::encode(&Order::Sandbox { ticket, order }).map_err(std::io::Error::other)?;
        socket.send(&packet, &[], SendFlags::empty())?;
        loop {
            let packet = socket.receive(RecvFlags::empty())?;
            let packet = packet.ok_or(std::io::ErrorKind::UnexpectedEof)?;
            if let Notice::Sandbox { answer, .. } =
                wire::decode(&packet.bytes).map_err(std::io::Error::other)?
            {
                return Ok(answer);
            }
        }
    };
    if let SandboxAnswer::List { sandboxes } = ask(SandboxOrder::List)? {
        for sandbox in sandboxes {
            match ask(SandboxOrder::Remove { sandbox })? {
                SandboxAnswer::Done => {}
                other => return Err(std::io::Error::other(format!("{other:?}"))),
            }
        }
    }
    drop(socket);
    spawner.wait()
}
