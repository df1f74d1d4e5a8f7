//! The process that images are unpacked in. It reads what strangers packed and talks to registries,
//! so it has as little as that takes: users of its own, who own nothing but the files of images;
//! one folder to write to; the machine's programs, to read. It has no network: the daemon hands it
//! connected sockets.

use std::{
    ffi::CString,
    fs,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, Gid, Mode, OFlags, Uid, fchmod, fchown, fstat, mkdirat, openat},
    io::Errno,
    mount::{
        MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, move_mount, open_tree,
        unmount,
    },
    net::SendFlags,
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Signal, chdir, fchdir, pidfd_send_signal, pivot_root, setsid},
};

use super::{IdRange, Spawner, make};
use crate::{
    identity::{map_ids, take_inside_identity},
    init::privileges,
    oom::Priority,
    plan::{Broken, Identity, Step},
    socket::PacketSocket,
    sys::{
        self,
        process::{ALL_NAMESPACES, CStrings, Fork},
    },
    wire::{self, Notice, Report},
};

/// Where the worker finds the folder of images.
pub const IMAGE_FOLDER: &str = "/var";

/// The number at which it finds its socket to the daemon.
pub const WORKER_SOCKET: i32 = 3;

/// What the spawner needs to know of images at its start.
#[derive(Clone, Debug)]
pub struct ImageSettings {
    /// The folder of images. It is made when the first worker is.
    pub folder: PathBuf,
    /// What the server's own program is told, by which it becomes the worker.
    pub arguments: Vec<String>,
}

/// The worker as the spawner knows it: there is one at most.
#[derive(Debug)]
pub(super) struct ImageWorker {
    settings: ImageSettings,
    filter: Vec<u8>,
    running: Option<(Pid, OwnedFd)>,
    /// Who wants a new one as soon as the present one is gone.
    waiting: Option<u64>,
}

impl ImageWorker {
    pub(super) fn new(settings: &ImageSettings) -> Self {
        let filter = crate::seccomp::for_image_worker();
        Self { settings: settings.clone(), filter, running: None, waiting: None }
    }

    /// Ends it. Returns a descriptor by which its end can be waited for.
    pub(super) fn end(&mut self) -> Option<OwnedFd> {
        let (_, pidfd) = self.running.take()?;
        // It may be gone already.
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        Some(pidfd)
    }
}

/// What the child has before it is the worker.
struct Parts {
    root: OwnedFd,
    images: OwnedFd,
    socket: PacketSocket,
    program: OwnedFd,
}

impl Spawner {
    /// Starts a worker. Two would be in each other's way, and one of which the daemon wants no more
    /// may hold what the next one needs: so it is gone first.
    pub(super) fn start_image_worker(&mut self, ticket: u64) {
        let Some(worker) = &mut self.image_worker else {
            let broken = Broken::at(Step::Plan)(Errno::NOSYS);
            return self.answer_about_worker(ticket, Err(broken));
        };
        if let Some((_, pidfd)) = &worker.running {
            let _ = pidfd_send_signal(pidfd, Signal::KILL);
            if let Some(earlier) = worker.waiting.replace(ticket) {
                let broken = Broken::at(Step::Plan)(Errno::CANCELED);
                self.answer_about_worker(earlier, Err(broken));
            }
            return;
        }
        let started = self.fork_worker();
        self.answer_about_worker(ticket, started);
    }

    fn answer_about_worker(&mut self, ticket: u64, started: Result<OwnedFd, Broken>) {
        let (started, fds) = match started {
            Ok(socket) => (Ok(()), vec![socket]),
            Err(broken) => (Err(broken), Vec::new()),
        };
        self.post(&Notice::ImageWorker { ticket, started }, fds);
    }

    /// Notes the end of the worker, if it was that.
    pub(super) fn image_worker_ended(&mut self, pid: Pid) {
        let Some(worker) = &mut self.image_worker else { return };
        if worker.running.as_ref().is_some_and(|(running, _)| *running == pid) {
            worker.running = None;
            if let Some(ticket) = worker.waiting.take() {
                self.start_image_worker(ticket);
            }
        }
    }

    fn fork_worker(&mut self) -> Result<OwnedFd, Broken> {
        let at = Broken::at(Step::Plan);
        let identity = self.identity();
        let worker = self.image_worker.as_ref().ok_or_else(|| at(Errno::NOSYS))?;
        let folder =
            open_folder(&worker.settings.folder, identity).map_err(Broken::at(Step::Writable))?;
        let (ours, theirs) = PacketSocket::pair().map_err(&at)?;
        let (wait, go) = pipe_with(PipeFlags::CLOEXEC).map_err(&at)?;
        let parts = Parts {
            root: self.template.new_root().map_err(Broken::at(Step::Root))?,
            images: writable_tree(&folder).map_err(Broken::at(Step::Writable))?,
            socket: theirs,
            program: own_program().map_err(Broken::at(Step::Exec))?,
        };
        let at = Broken::at(Step::Fork);
        match sys::process::fork(ALL_NAMESPACES).map_err(&at)? {
            Fork::Child => {
                // Else neither would see that nobody is at the other end any more.
                sys::process::let_go(ours.as_fd());
                sys::process::let_go(go.as_fd());
                let broken = self.become_worker(&parts, &wait);
                if let Ok(packet) = wire::encode(&Report::Broken(broken)) {
                    let _ = parts.socket.send(&packet, &[], SendFlags::DONTWAIT);
                }
                sys::process::exit_now(1)
            }
            Fork::Parent { child, pidfd } => {
                let mapped = Priority::ImageWorker
                    .set_of(child)
                    .and_then(|()| map_ids(child, &users(identity)));
                if let Err(errno) = mapped.and_then(|()| rustix::io::write(&go, b"g").map(drop)) {
                    let _ = pidfd_send_signal(&pidfd, Signal::KILL);
                    return Err(at(errno));
                }
                if let Some(worker) = &mut self.image_worker {
                    worker.running = Some((child, pidfd));
                }
                Ok(ours.into_fd())
            }
        }
    }

    /// In the new namespaces: becomes the worker. Returns only what kept it from that.
    fn become_worker(&self, parts: &Parts, wait: &OwnedFd) -> Broken {
        match self.prepare_worker(parts, wait) {
            Ok((argv, envp)) => {
                let errno = sys::process::exec_fd(parts.program.as_fd(), &argv, &envp);
                Broken::at(Step::Exec)(errno)
            }
            Err(broken) => broken,
        }
    }

    /// The order is the security argument: each step may need a right that a later one gives up.
    fn prepare_worker(
        &self,
        parts: &Parts,
        wait: &OwnedFd,
    ) -> Result<(CStrings, CStrings), Broken> {
        let at = Broken::at(Step::Plan);
        let worker = self.image_worker.as_ref().ok_or_else(|| at(Errno::NOSYS))?;
        let arguments: Result<Vec<CString>, _> =
            worker.settings.arguments.iter().map(|it| CString::new(it.as_str())).collect();
        let argv = CStrings::new(arguments.or(Err(at(Errno::INVAL)))?);
        if rustix::io::read(wait, &mut [0; 1]).map_err(&at)? == 0 {
            return Err(at(Errno::PIPE));
        }
        if self.identity() == Identity::Apart {
            take_inside_identity(Identity::Apart).map_err(Broken::at(Step::Privileges))?;
        }
        setsid().map_err(&at)?;
        build_root(parts)?;
        limits(self.identity()).map_err(Broken::at(Step::Limits))?;
        let socket = make::out_of_the_way(&parts.socket).map_err(&at)?;
        for standard in 0..=2 {
            sys::process::place(self.null.as_fd(), standard).map_err(&at)?;
        }
        sys::process::close_on_exec_from(WORKER_SOCKET.unsigned_abs()).map_err(&at)?;
        sys::process::place(socket.as_fd(), WORKER_SOCKET).map_err(&at)?;
        privileges::of_image_worker(&worker.filter)?;
        Ok((argv, CStrings::default()))
    }
}

/// The users inside: those that files of images have on disk, or the one who runs the server.
fn users(identity: Identity) -> String {
    let IdRange { first, count } = IdRange::ON_DISK;
    match identity {
        Identity::Apart => format!("0 {first} {count}\n"),
        Identity::Shared => "0 0 1\n".to_owned(),
    }
}

/// Opens the folder of images, which is made if it is not there. The data directory around it is
/// the daemon's, who could have put something else in its place: no link is followed, and what
/// belongs to somebody else is refused.
fn open_folder(path: &Path, identity: Identity) -> Result<OwnedFd, Errno> {
    let mode = Mode::from_raw_mode(0o755);
    match mkdirat(CWD, path, mode) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(other) => return Err(other),
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let folder = openat(CWD, path, flags, Mode::empty())?;
    let own = rustix::process::geteuid().as_raw();
    let owner = match identity {
        Identity::Apart => IdRange::ON_DISK.first,
        Identity::Shared => own,
    };
    let found = fstat(&folder)?.st_uid;
    if found != own && found != owner {
        return Err(Errno::PERM);
    }
    if found != owner {
        fchown(&folder, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))?;
    }
    // Whatever the umask is.
    fchmod(&folder, mode)?;
    Ok(folder)
}

/// The folder as a mount of its own: nothing in it can be run, and its devices are none.
fn writable_tree(folder: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(folder, "", flags)?;
    let attributes = sys::mount::NOSUID | sys::mount::NODEV | sys::mount::NOEXEC;
    sys::mount::set_attributes(tree.as_fd(), attributes)?;
    Ok(tree)
}

/// Opens the server's own program, wherever it is by now.
fn own_program() -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    make::out_of_the_way(openat(CWD, "/proc/self/exe", flags, Mode::empty())?)
}

/// What starting the program takes of the machine's `/etc`: the loader finds libraries by it.
const LOADER_CACHE: &str = "ld.so.cache";

/// Everything of the machine that slots see, read-only, without `/proc`; and the folder of images.
fn build_root(parts: &Parts) -> Result<(), Broken> {
    let cache = fs::read(Path::new("/etc").join(LOADER_CACHE)).unwrap_or_default();
    let root = Broken::at(Step::Root);
    let whole = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(parts.root.as_fd(), "", CWD, "/", whole).map_err(&root)?;
    fchdir(&parts.root).map_err(&root)?;
    let writable = Broken::at(Step::Writable);
    move_mount(parts.images.as_fd(), "", CWD, relative(IMAGE_FOLDER), whole).map_err(&writable)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("tmpfs", "etc", "tmpfs", flags, c"mode=0755,size=16m").map_err(&root)?;
    if !cache.is_empty() {
        write_etc(LOADER_CACHE, &cache).map_err(&root)?;
    }
    sys::mount::set_attributes_recursively(CWD.as_fd(), c"etc", sys::mount::RDONLY)
        .map_err(&root)?;
    leave_old_root().map_err(Broken::at(Step::Pivot))
}

fn relative(path: &str) -> &str {
    path.trim_start_matches('/')
}

fn write_etc(name: &str, content: &[u8]) -> Result<(), Errno> {
    let written = fs::write(Path::new("etc").join(name), content);
    written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

fn leave_old_root() -> Result<(), Errno> {
    pivot_root(".", ".")?;
    // The old root is now mounted over the new one.
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")
}

/// Far more than a worker needs, and far less than would hurt.
fn limits(identity: Identity) -> Result<(), Errno> {
    let limit = sys::process::limit;
    limit(libc::RLIMIT_CORE, 0)?;
    limit(libc::RLIMIT_NOFILE, 1024)?;
    limit(libc::RLIMIT_MEMLOCK, 64 * 1024)?;
    limit(libc::RLIMIT_DATA, 2 << 30)?;
    match identity {
        Identity::Apart => limit(libc::RLIMIT_NPROC, 128),
        // Those of the one user are counted together, whatever they are for.
        Identity::Shared => Ok(()),
    }
}
