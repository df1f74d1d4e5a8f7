//! Slots that are forked from a program which has started already.
//!
//! The zygote makes the namespaces and the two processes of a slot; init, which one of them
//! becomes, does the rest as ever. What is asked and answered is described in the zygote's own
//! file. It asks for nothing and sees no request.

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
    plan::{Broken, INSIDE_USER, Identity, Program, Rlimits, SlotSpec, Step},
    socket::PacketSocket,
    sys::process::ALL_NAMESPACES,
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
    is_retired: bool,
}

/// What a zygote answered.
pub(super) enum Answer {
    Forked { parts: Parts, pidfd: OwnedFd },
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

    fn try_ask(&self, spawner: &Spawner, parts: &Parts, spec: &SlotSpec) -> Result<(), Errno> {
        parts.send_plan(spawner, spec)?;
        let procs = parts.group.as_ref().map_or(Ok(Vec::new()), Group::procs)?;
        let order = order(spawner, parts.id, spec, procs.len());
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
        let errno =
            packet.bytes.first_chunk().map_or(libc::EBADMSG, |raw| i32::from_le_bytes(*raw));
        Some(match (errno, packet.fds.into_iter().next()) {
            (0, Some(pidfd)) => Answer::Forked { parts, pidfd },
            (0, None) => Answer::Failed { parts, broken: Broken::at(Step::Fork)(Errno::BADF) },
            (errno, _) => Answer::Failed { parts, broken: Broken { step: Step::Fork, errno } },
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

/// Writes one order: how to clone, who to be, what to give up.
fn order(spawner: &Spawner, id: u32, spec: &SlotSpec, cgroups: usize) -> Vec<u8> {
    let identity = spawner.identity();
    let map = process::forked_map(identity, id, spawner.ids.range());
    let limits =
        Rlimits { open_files: spec.max_open_files.into(), processes: spec.max_processes.into() };
    let limits: Vec<u8> = limits
        .all()
        .into_iter()
        .flat_map(|(kind, value)| {
            let (value, kind) = (value.to_le_bytes(), kind.to_le_bytes());
            [kind.as_slice(), &value, &value].concat()
        })
        .collect();
    let filters = [&length(spawner.user_filter.len()), spawner.user_filter.as_slice()].concat();
    let mut order = ALL_NAMESPACES.to_le_bytes().to_vec();
    order.extend(INSIDE_USER.to_le_bytes());
    order.extend(u32::from(identity == Identity::Shared).to_le_bytes());
    order.extend(length(cgroups));
    for part in [map.as_bytes(), map.as_bytes(), b"init", &limits, &filters] {
        order.extend(length(part.len()));
        order.extend_from_slice(part);
    }
    order
}

fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes()
}
