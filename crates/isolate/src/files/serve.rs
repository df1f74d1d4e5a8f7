//! The loop of an agent.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{RecvFlags, SendFlags},
};

use super::{
    list, resolve, search, tree, watch,
    wire::{self, Answer, Ask, Entry, Fault, Match},
    write::Writing,
};
use crate::socket::PacketSocket;

/// How often a long work looks whether anybody still wants it.
const OFTEN: u32 = 256;

/// How much is told in one packet, about.
const PACKET: usize = 16 << 10;

/// Does what it is asked until nobody asks any more. What was begun and not put in its place goes.
pub fn serve(socket: &PacketSocket) {
    let mut writing = None;
    while let Ok(Some(packet)) = socket.receive(RecvFlags::empty()) {
        let Ok(ask) = wire::decode(&packet.bytes) else { return };
        let mut hearing = Hearing::new(socket);
        let answered = match answer(ask, &mut writing, &mut hearing) {
            Ok((answer, fd)) => {
                hearing.tell_rest().and_then(|()| hearing.tell(&answer, fd.as_ref()))
            }
            Err(fault) => hearing.tell(&Answer::Failed(fault), None),
        };
        if answered.is_err() {
            return;
        }
    }
}

fn answer(
    ask: Ask,
    writing: &mut Option<Writing>,
    hearing: &mut Hearing<'_>,
) -> Result<(Answer, Option<OwnedFd>), Fault> {
    let answer = match ask {
        Ask::Open { at } => {
            let (file, stat) = resolve::open_file(&at)?;
            return Ok((Answer::Opened(stat), Some(file)));
        }
        Ask::Stat { at, follow } => Answer::Stat(resolve::look_up(&at, follow)?.1),
        Ask::List { at, after, limit } => list::list(&at, after.as_deref(), limit, hearing)?,
        Ask::Begin { at, condition, parents } => {
            *writing = None;
            let (begun, there) = Writing::begin(at, condition, parents.into())?;
            let file = begun.file().try_clone().or(Err(Errno::MFILE))?;
            *writing = Some(begun);
            return Ok((Answer::Begun(there), Some(file)));
        }
        Ask::Commit { mode } => {
            let written = writing.take().ok_or(Errno::BADF)?;
            Answer::Done(Some(written.commit(mode)?))
        }
        Ask::Abandon => {
            *writing = None;
            Answer::Done(None)
        }
        Ask::MakeDirectory { at, parents, mode } => {
            Answer::Done(Some(tree::make_directory(&at, parents.into(), mode)?))
        }
        Ask::Move { from, to, condition, replace } => {
            Answer::Done(Some(tree::rename(&from, &to, &condition, replace)?))
        }
        Ask::Remove { at, recursive, condition } => {
            tree::remove(&at, recursive, &condition, hearing)?;
            Answer::Done(None)
        }
        Ask::Glob { at, patterns, limit } => search::glob(&at, &patterns, limit, hearing)?,
        Ask::Grep { at, text, patterns, limit } => {
            search::grep(&at, &text, &patterns, limit, hearing)?
        }
        Ask::Watch { at, recursive } => watch::watch(at, recursive, hearing)?,
    };
    Ok((answer, None))
}

/// Whoever asks, and what is not told yet.
#[derive(Debug)]
pub(super) struct Hearing<'socket> {
    pub(super) socket: &'socket PacketSocket,
    entries: Vec<Entry>,
    matches: Vec<Match>,
    size: usize,
    steps: u32,
}

impl<'socket> Hearing<'socket> {
    fn new(socket: &'socket PacketSocket) -> Self {
        Self { socket, entries: Vec::new(), matches: Vec::new(), size: 0, steps: 0 }
    }

    /// Fails when nobody wants to know any more.
    pub(super) fn is_asked_to_go_on(&mut self) -> Result<(), Fault> {
        self.steps = self.steps.wrapping_add(1);
        if !self.steps.is_multiple_of(OFTEN) {
            return Ok(());
        }
        let mut fds = [PollFd::new(self.socket, PollFlags::empty())];
        poll(&mut fds, Some(&Timespec::default()))?;
        let [fd] = fds;
        if fd.revents().contains(PollFlags::HUP) { Err(Errno::PIPE.into()) } else { Ok(()) }
    }

    pub(super) fn tell_entry(&mut self, entry: Entry) -> Result<(), Fault> {
        self.size += entry.path.len() + size_of::<Entry>();
        self.entries.push(entry);
        self.tell_if_enough()
    }

    pub(super) fn tell_match(&mut self, found: Match) -> Result<(), Fault> {
        self.size += found.path.len() + found.text.len() + size_of::<Match>();
        self.matches.push(found);
        self.tell_if_enough()
    }

    fn tell_if_enough(&mut self) -> Result<(), Fault> {
        if self.size >= PACKET { Ok(self.tell_rest()?) } else { Ok(()) }
    }

    fn tell_rest(&mut self) -> Result<(), Errno> {
        self.size = 0;
        if !self.entries.is_empty() {
            let entries = std::mem::take(&mut self.entries);
            self.tell(&Answer::Entries(entries), None)?;
        }
        if !self.matches.is_empty() {
            let matches = std::mem::take(&mut self.matches);
            self.tell(&Answer::Matches(matches), None)?;
        }
        Ok(())
    }

    pub(super) fn tell(&self, answer: &Answer, fd: Option<&OwnedFd>) -> Result<(), Errno> {
        let packet = wire::encode(answer).or(Err(Errno::MSGSIZE))?;
        let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
        self.socket.send(&packet, &fds, SendFlags::empty())
    }
}
