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
    pidfd: OwnedFd,
    socket: PacketSocket,
    /// Keeps its init from ending.
    _control: PacketSocket,
    _pipes: Vec<OwnedFd>,
    /// The slots that it has been asked for, in order.
    asked: VecDeque<Parts>,
    /// Networks of slots that are gone.
    networks: Vec<OwnedFd>,
    is_retired: bool,
}

/// The most networks that are kept. Each takes about a quarter of a megabyte of the kernel's memory.
const NETWORKS: usize = 16;

/// What a zygote answered.
pub(super) enum Answer {
    Forked { parts: Parts, pidfd: OwnedFd, network: OwnedFd },
    Failed { parts: Parts, broken: Broken },
    Gone,
}

impl Zygote {
    pub(super) fn start(spawner: &Spawner, program: Program) -> Result<Self, Broken> {
        let parts = make::zygote(spawner, program)?;
        Ok(Self {
            pidfd: parts.pidfd,
            socket: parts.socket,
            _control: parts.control,
            _pipes: parts.pipes,
            asked: VecDeque::new(),
            networks: Vec::new(),
            is_retired: false,
        })
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
        let network = self.networks.pop();
        let procs = parts.group.as_ref().map_or(Ok(Vec::new()), Group::procs)?;
        let birth = Birth {
            map: process::forked_map(spawner.identity(), parts.id, spawner.ids.range()),
            rights: make::rights(spawner, spec),
            hurried: matches!(spec.launch, Launch::Fork { hurried: true, .. }),
            has_network: network.is_some(),
        };
        let order = wire::encode(&birth).or(Err(Errno::BADMSG))?;
        let mut fds: Vec<BorrowedFd<'_>> = vec![spawner.init.as_fd(), parts.for_init.as_fd()];
        fds.extend(parts.pipes.theirs.iter().chain(&procs).chain(&network).map(AsFd::as_fd));
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
        let mut fds = packet.fds.into_iter();
        Some(match (wire::decode(&packet.bytes), fds.next().zip(fds.next())) {
            (Ok(Born::Alive), Some((pidfd, network))) => Answer::Forked { parts, pidfd, network },
            (Ok(Born::Alive), None) => Answer::Failed { parts, broken: broken(Errno::BADF) },
            (Ok(Born::Failed(broken)), _) => Answer::Failed { parts, broken },
            (Err(_), _) => Answer::Failed { parts, broken: broken(Errno::BADMSG) },
        })
    }

    /// Keeps the network of a slot of which nothing else is left, for another one to have.
    pub(super) fn keep(&mut self, network: OwnedFd) {
        if self.networks.len() < NETWORKS {
            self.networks.push(network);
        }
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
