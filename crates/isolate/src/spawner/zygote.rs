//! Slots that are forked from a program which has started already.
//!
//! The zygote makes the namespaces and the two processes of a slot; init, which one of them
//! becomes, does the rest as ever. This is the spawner's side of it; the other one is
//! [`crate::zygote`].

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags},
    process::{Signal, pidfd_send_signal},
};

use super::{
    Spawner,
    make::{self, Parts},
    process,
};
use crate::{
    cgroup::Group,
    plan::{Broken, Launch, Program, SlotSpec, Step},
    socket::PacketSocket,
    wire::{self, Birth, Born},
};

/// A running zygote.
#[derive(Debug)]
pub(super) struct Zygote {
    /// The pair of users, of which the first has created its user namespace.
    id: u32,
    pidfd: OwnedFd,
    socket: PacketSocket,
    /// Keeps its init from ending.
    _control: PacketSocket,
    _pipes: Vec<OwnedFd>,
    /// The slots that it has been asked for, in order.
    asked: VecDeque<Parts>,
    is_retired: bool,
}

/// What a zygote answered.
pub(super) enum Answer {
    Forked { parts: Parts, pidfd: OwnedFd },
    Failed { parts: Parts, broken: Broken },
    Gone,
}

impl Zygote {
    pub(super) fn start(spawner: &Spawner, program: Program, id: u32) -> Option<Self> {
        let parts = make::zygote(spawner, program, id).ok()?;
        Some(Self {
            id,
            pidfd: parts.pidfd,
            socket: parts.socket,
            _control: parts.control,
            _pipes: parts.pipes,
            asked: VecDeque::new(),
            is_retired: false,
        })
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Asks for a slot. The answer comes later.
    pub(super) fn ask(
        &mut self,
        spawner: &Spawner,
        parts: Parts,
        spec: &SlotSpec,
    ) -> Result<(), Box<(Parts, Broken)>> {
        match self.try_ask(spawner, &parts, spec) {
            Ok(()) => {
                self.asked.push_back(parts);
                Ok(())
            }
            Err(errno) => Err(Box::new((parts, Broken::at(Step::Fork)(errno)))),
        }
    }

    fn try_ask(&mut self, spawner: &Spawner, parts: &Parts, spec: &SlotSpec) -> Result<(), Errno> {
        parts.send_plan(spawner, spec)?;
        let procs = parts.group.as_ref().map_or(Ok(Vec::new()), Group::procs)?;
        let birth = Birth {
            map: process::forked_map(spawner.slot_identity(), parts.id, spawner.ids.range()),
            creator: spawner.ids.range().map(|range| parts.id - range.first),
            rights: make::rights(spawner, spec),
            hurried: matches!(spec.launch, Launch::Fork { hurried: true, .. }),
        };
        let order = wire::encode(&birth).or(Err(Errno::BADMSG))?;
        let mut fds: Vec<BorrowedFd<'_>> = vec![spawner.init.as_fd(), parts.for_init.as_fd()];
        fds.extend(parts.pipes.theirs.iter().chain(&procs).map(AsFd::as_fd));
        self.socket.send(&order, &fds, SendFlags::DONTWAIT)
    }

    /// Reads the next answer, if there is one.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        let packet = match self.socket.receive(RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => return None,
            Ok(Some(packet)) => packet,
            Ok(None) | Err(_) => return Some(Answer::Gone),
        };
        let Some(parts) = self.asked.pop_front() else { return Some(Answer::Gone) };
        let broken = |errno| Broken::at(Step::Fork)(errno);
        Some(match (wire::decode(&packet.bytes), packet.fds.into_iter().next()) {
            (Ok(Born::Alive), Some(pidfd)) => Answer::Forked { parts, pidfd },
            (Ok(Born::Alive), None) => Answer::Failed { parts, broken: broken(Errno::BADF) },
            (Ok(Born::Failed(broken)), _) => Answer::Failed { parts, broken },
            (Err(_), _) => Answer::Failed { parts, broken: broken(Errno::BADMSG) },
        })
    }

    /// Says that it is asked for no more.
    pub(super) fn retire(&mut self) {
        self.is_retired = true;
    }

    /// Whether it has made everything that it was ever to make.
    pub(super) fn is_retired(&self) -> bool {
        self.is_retired && self.asked.is_empty()
    }

    /// Returns a descriptor of its process, by which its end can be waited for.
    pub(super) fn process(&self) -> Option<OwnedFd> {
        self.pidfd.try_clone().ok()
    }

    /// Ends it, and every slot that it has made; returns those that it has not.
    pub(super) fn end(self) -> VecDeque<Parts> {
        // It may be gone already.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        self.asked
    }
}

impl AsFd for Zygote {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
