//! The process that the next command will be.
//!
//! A command would else have to wait for its process: for the fork, for the group that everything is found in
//! which it starts, and for its session. All that is done before anybody asks. A bud
//! has as much right as the stem it comes from, and like the stem it holds nothing but its socket.

use std::{
    convert::Infallible,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    io::Errno,
    pipe::{PipeFlags, pipe_with},
};

use super::{
    Place,
    command::{self, Streams},
    groups::Leaf,
    kept::Unnamed,
    orders::{self, Order},
    stem::Stem,
    wire::Start,
};
use crate::{
    init::word::Word,
    plan::{Broken, Rights, Step},
    socket::PacketSocket,
    sys::{self, process::Fork},
};

/// A bud, as the supervisor holds it. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Bud {
    socket: PacketSocket,
    /// Where it says who it is and which step broke.
    words: OwnedFd,
    leaf: Leaf,
    /// For what its command will write.
    files: Unnamed,
}

/// What is left of a bud that knows which command it is to be.
pub(super) struct Bloom {
    pub(super) words: OwnedFd,
    pub(super) leaf: Leaf,
    pub(super) files: Unnamed,
    pub(super) held: Held,
}

/// A bud that has done everything but become its command. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Held(PacketSocket);

impl Held {
    /// Lets it become the command. If it is gone its words say why.
    pub(super) fn go(self) {
        let _ = orders::send(&self.0, &Order::Go, &[]);
    }
}

impl Bud {
    /// Has the stem fork one. Nobody waits for it: what it is sent before it is there, it finds.
    pub(super) fn grow(place: &Place, stem: &Stem) -> Result<Self, Broken> {
        let fork = Broken::at(Step::Fork);
        let (socket, theirs) = PacketSocket::pair().map_err(&fork)?;
        let (words, tell) = pipe_with(PipeFlags::CLOEXEC).map_err(&fork)?;
        rustix::io::ioctl_fionbio(&words, true).map_err(&fork)?;
        let files = Unnamed::create(place).map_err(Broken::at(Step::Writable))?;
        let (leaf, group) = place.make_leaf().map_err(Broken::at(Step::Cgroup))?;
        let bud = Self { socket, words, leaf, files };
        if let Err(errno) = stem.fork_bud(&theirs, &tell, group.as_ref()) {
            bud.wither(place);
            return Err(fork(errno));
        }
        Ok(bud)
    }

    /// Whether nobody is at the other end any more.
    pub(super) fn is_gone(&self) -> bool {
        orders::is_gone(&self.socket)
    }

    /// Tells it which command it is to be.
    pub(super) fn prepare(
        self,
        place: &Place,
        start: &Start,
        streams: &Streams,
    ) -> Result<Bloom, Errno> {
        let Streams { stdin, stdout, stderr } = streams;
        let fds = [stdin, stdout, stderr].map(AsFd::as_fd);
        match orders::send(&self.socket, &Order::Start(start.clone()), &fds) {
            // It is gone, or never was; its words say why.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {
                let Self { socket, words, leaf, files } = self;
                Ok(Bloom { words, leaf, files, held: Held(socket) })
            }
            Err(errno) => {
                self.wither(place);
                Err(errno)
            }
        }
    }

    /// Gives up one that nobody will use.
    pub(super) fn wither(self, place: &Place) {
        place.leave(self.leaf);
    }
}

/// Forks a bud.
pub(super) fn bear(rights: &Rights, fds: Vec<OwnedFd>) -> Result<(), Errno> {
    let mut fds = fds.into_iter();
    let mut next = || fds.next().ok_or(Errno::BADF);
    let (socket, tell) = (next()?, next()?);
    let group = fds.next();
    match sys::process::fork_sibling(group.as_ref().map(AsFd::as_fd)) {
        Ok(Fork::Child) => {
            let waited = wait(rights, &socket, &tell);
            sys::process::exit_now(waited.err().map_or(0, Errno::raw_os_error))
        }
        Ok(Fork::Parent { .. }) => {}
        // If the supervisor cannot be told it sees words without a process.
        Err(errno) => command::say(&tell, Word::Error(Broken::at(Step::Fork)(errno))),
    }
    Ok(())
}

/// Says who it is, prepares what is the same for every command, and waits to hear which one it is.
fn wait(rights: &Rights, socket: &OwnedFd, tell: &OwnedFd) -> Result<Infallible, Errno> {
    const FIRST: i32 = 3;
    sys::process::place_all(&[socket.as_fd(), tell.as_fd()], FIRST)?;
    let socket = PacketSocket::from_fd(sys::process::inherited(FIRST)?);
    let tell = sys::process::inherited(FIRST + 1)?;
    let number = rustix::process::getpid().as_raw_nonzero().get();
    command::say(&tell, Word::Process(number));
    if let Err(broken) = command::prepare(rights) {
        command::fail(&tell, broken);
    }
    let (Order::Start(start), fds) = orders::next(&socket)? else { return Err(Errno::BADMSG) };
    let mut fds = fds.into_iter();
    let mut next = || fds.next().ok_or(Errno::BADF);
    let streams = Streams { stdin: next()?, stdout: next()?, stderr: next()? };
    command::become_command(rights, &start, &streams, &tell, &socket)
}
