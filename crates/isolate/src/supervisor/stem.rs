//! The process that commands are forked from.
//!
//! To move a process into a control group the kernel waits until every processor has seen that nobody
//! forks, which takes ten milliseconds and more. The stem has been in the groups of commands since before
//! there was any, so what is forked from it is there from its first moment. It holds nothing but
//! its socket, and like its commands it is a child of the supervisor, who hears of its end.

use std::{
    convert::Infallible,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::Mode,
    io::Errno,
    net::{RecvFlags, SendFlags},
    process::Pid,
};
use serde::{Deserialize, Serialize};

use super::{
    Place,
    command::{self, Streams},
    large,
    wire::{self, Start, User},
};
use crate::{
    files,
    init::{privileges, word::Word},
    plan::{Broken, Rights, Step},
    socket::PacketSocket,
    sys::{self, process::Fork},
    wire::MAX_PACKET,
};

/// What a stem is told. The first is always `Begin`.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    /// What is left to commands, and the filter that the stem itself is under like the supervisor.
    Begin { rights: Rights, filter: Vec<u8> },
    /// With it come the streams of a command, and its group if it has one of its own.
    Start(Start),
    /// Another order, too long for a packet, is in the file that comes along before all else.
    InFile,
    /// With it comes the socket of a process that works on files.
    Files(User),
}

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
        let mut fds = [PollFd::new(&self.socket, PollFlags::empty())];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|gone| gone > 0)
    }

    /// Tells it what is left to commands.
    pub(super) fn begin(&self, rights: &Rights, filter: &[u8]) -> Result<(), Errno> {
        let order = Order::Begin { rights: rights.clone(), filter: filter.to_vec() };
        self.send(&order, &[])
    }

    /// Has it fork a process that becomes this command. The process itself says so in its words.
    pub(super) fn start(
        &self,
        start: &Start,
        streams: &Streams,
        group: Option<&OwnedFd>,
    ) -> Result<(), Errno> {
        let Streams { stdin, stdout, stderr, tell } = streams;
        let fds = [stdin, stdout, stderr, tell].into_iter().chain(group);
        self.send(&Order::Start(start.clone()), &fds.map(AsFd::as_fd).collect::<Vec<_>>())
    }

    /// Has it fork a process that works on files, as this user, for whoever has the other end.
    pub(super) fn start_files(&self, user: User, socket: &PacketSocket) -> Result<(), Errno> {
        self.send(&Order::Files(user), &[socket.as_fd()])
    }

    fn send(&self, order: &Order, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let packet = wire::encode(order).or(Err(Errno::MSGSIZE))?;
        // One that stands still is not waited for.
        if packet.len() <= MAX_PACKET {
            return self.socket.send(&packet, fds, SendFlags::DONTWAIT);
        }
        let file = large::pack(&packet)?;
        let fds: Vec<_> = [file.as_fd()].into_iter().chain(fds.iter().copied()).collect();
        let packet = wire::encode(&Order::InFile).or(Err(Errno::MSGSIZE))?;
        self.socket.send(&packet, &fds, SendFlags::DONTWAIT)
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

/// Forks commands until nobody asks any more.
fn serve(socket: &PacketSocket) -> Result<Infallible, Errno> {
    sys::signal::block_all()?;
    let socket = PacketSocket::from_fd(sys::process::keep_only(socket.as_fd())?);
    let Order::Begin { rights, filter } = next(&socket)?.0 else { return Err(Errno::BADMSG) };
    privileges::of_supervisor(&filter).map_err(|broken| Errno::from_raw_os_error(broken.errno))?;
    loop {
        match next(&socket)? {
            (Order::Start(start), fds) => bear(&rights, &start, fds)?,
            (Order::Files(user), fds) => bear_files(&rights, user, fds)?,
            (Order::Begin { .. } | Order::InFile, _) => return Err(Errno::BADMSG),
        }
    }
}

fn next(socket: &PacketSocket) -> Result<(Order, Vec<OwnedFd>), Errno> {
    let mut packet = socket.receive(RecvFlags::empty())?.ok_or(Errno::PIPE)?;
    let order = wire::decode(&packet.bytes).or(Err(Errno::BADMSG))?;
    if !matches!(order, Order::InFile) || packet.fds.is_empty() {
        return Ok((order, packet.fds));
    }
    let order = large::unpack(&packet.fds.remove(0))?;
    Ok((wire::decode(&order).or(Err(Errno::BADMSG))?, packet.fds))
}

/// Forks the process that becomes a command.
fn bear(rights: &Rights, start: &Start, fds: Vec<OwnedFd>) -> Result<(), Errno> {
    let mut fds = fds.into_iter();
    let mut next = || fds.next().ok_or(Errno::BADF);
    let streams = Streams { stdin: next()?, stdout: next()?, stderr: next()?, tell: next()? };
    let group = fds.next();
    match sys::process::fork_sibling(group.as_ref().map(AsFd::as_fd)) {
        Ok(Fork::Child) => command::become_command(rights, start, &streams),
        Ok(Fork::Parent { .. }) => {}
        Err(errno) => {
            let word = Word::Error(Broken::at(Step::Fork)(errno));
            // If the supervisor cannot be told it sees words without a process.
            let _ = rustix::io::write(&streams.tell, &word.to_bytes());
        }
    }
    Ok(())
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
    privileges::of_command(rights, user)?;
    files::serve(&PacketSocket::from_fd(socket));
    Ok(())
}
