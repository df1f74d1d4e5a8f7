//! The process that commands come from.
//!
//! To move a process into a control group the kernel waits until every processor has seen that nobody
//! forks, which takes ten milliseconds and more. The stem has been in the groups of commands since before
//! there was any, so what is forked from it is there from its first moment. It holds nothing but
//! its socket, and like its commands it is a child of the supervisor, who hears of its end.

use std::{
    convert::Infallible,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    process::Pid,
};

use super::{
    Place, bud,
    orders::{self, Order},
    wire::User,
};
use crate::{
    files,
    init::privileges,
    plan::{Broken, Rights, Step},
    socket::PacketSocket,
    sys::{self, process::Fork},
};

/// A stem, as the supervisor holds it. It ends when this is dropped.
#[derive(Debug)]
pub struct Stem {
    pid: Pid,
    socket: PacketSocket,
}

impl Stem {
    /// Forks a stem, which does this first: it has to be in the groups of commands then.
    pub fn fork(first: impl FnOnce() -> Result<(), Errno>) -> Result<Self, Errno> {
        let (socket, theirs) = PacketSocket::pair()?;
        match sys::process::fork(0)? {
            Fork::Parent { child, pidfd: _ } => Ok(Self { pid: child, socket }),
            Fork::Child => {
                let served = first().and_then(|()| serve(&theirs));
                // Whoever waits for a command of it sees that it will not come.
                sys::process::exit_now(served.err().map_or(0, Errno::raw_os_error))
            }
        }
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether nobody is at the other end any more.
    pub(super) fn is_gone(&self) -> bool {
        orders::is_gone(&self.socket)
    }

    /// Tells it what is left to commands.
    pub(super) fn begin(&self, rights: &Rights, filter: &[u8]) -> Result<(), Errno> {
        let order = Order::Begin { rights: rights.clone(), filter: filter.to_vec() };
        orders::send(&self.socket, &order, &[])
    }

    /// Has it fork a bud, which listens at this socket, and says who it is.
    pub(super) fn fork_bud(
        &self,
        socket: &PacketSocket,
        tell: &OwnedFd,
        group: Option<&OwnedFd>,
    ) -> Result<(), Errno> {
        let fds = [socket.as_fd(), tell.as_fd()].into_iter().chain(group.map(AsFd::as_fd));
        orders::send(&self.socket, &Order::Bud, &fds.collect::<Vec<_>>())
    }

    /// Has it fork a process that works on files, as this user, for whoever has the other end.
    pub(super) fn start_files(&self, user: User, socket: &PacketSocket) -> Result<(), Errno> {
        orders::send(&self.socket, &Order::Files(user), &[socket.as_fd()])
    }
}

impl Place {
    /// Forks a stem in the place of one that was ended.
    pub(super) fn new_stem(&self) -> Result<Stem, Errno> {
        let stem = Stem::fork(|| self.groups.join())?;
        stem.begin(&self.rights, &self.filter)?;
        Ok(stem)
    }
}

/// Forks buds until nobody asks any more.
fn serve(socket: &PacketSocket) -> Result<Infallible, Errno> {
    sys::signal::block_all()?;
    be_expendable();
    let socket = PacketSocket::from_fd(sys::process::keep_only(socket.as_fd())?);
    let Order::Begin { rights, filter } = orders::next(&socket)?.0 else {
        return Err(Errno::BADMSG);
    };
    privileges::of_supervisor(rights.identity, &filter)
        .map_err(|broken| Errno::from_raw_os_error(broken.errno))?;
    loop {
        match orders::next(&socket)? {
            (Order::Bud, fds) => bud::bear(&rights, fds)?,
            (Order::Files(user), fds) => bear_files(&rights, user, fds)?,
            (Order::Begin { .. } | Order::Start(_) | Order::Go | Order::InFile, _) => {
                return Err(Errno::BADMSG);
            }
        }
    }
}

/// When memory runs out, commands go before their supervisor. That matters in a container, where all are in one
/// group; elsewhere it may be that it cannot be said.
fn be_expendable() {
    const HOW_MUCH: &str = "/proc/self/oom_score_adj";
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    if let Ok(file) = openat(CWD, HOW_MUCH, flags, Mode::empty()) {
        let _ = rustix::io::write(&file, b"500");
    }
}

/// Forks the process that works on files. If it cannot be, its socket is closed, and that is seen.
fn bear_files(rights: &Rights, user: User, fds: Vec<OwnedFd>) -> Result<(), Errno> {
    let socket = fds.into_iter().next().ok_or(Errno::BADF)?;
    if let Ok(Fork::Child) = sys::process::fork_sibling(None) {
        let served = become_files(rights, user, &socket);
        sys::process::exit_now(served.err().map_or(0, |broken| broken.errno));
    }
    Ok(())
}

/// Gives up what a command has to give up, and works on files until nobody asks any more.
fn become_files(rights: &Rights, user: User, socket: &OwnedFd) -> Result<(), Broken> {
    let fork = Broken::at(Step::Fork);
    let socket = sys::process::keep_only(socket.as_fd()).map_err(&fork)?;
    sys::signal::restore_defaults().map_err(&fork)?;
    rustix::process::setsid().map_err(&fork)?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    privileges::of_file_agent(rights, user)?;
    files::serve(&PacketSocket::from_fd(socket));
    Ok(())
}
