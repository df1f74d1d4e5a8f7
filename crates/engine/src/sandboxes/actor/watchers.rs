//! What those are told who watch the commands of a sandbox, and what they write to them.

use std::os::fd::OwnedFd;

use isolate::supervisor::wire::{Ask as Say, End, Written};
use model::ids::ExecId;
use tokio::sync::oneshot;

use super::{Actor, Presence};
use crate::sandboxes::attach::{Usage, minding};

/// Who waits for the stdin of a command.
pub(super) type Waiter = (ExecId, oneshot::Sender<Option<OwnedFd>>);

/// How many may wait.
const MOST: usize = 256;

impl Actor {
    pub(super) fn tell_watchers(&self, exec: &str, pid: Option<u32>, written: Option<Written>) {
        if let Ok(exec) = exec.parse::<ExecId>() {
            self.door.feeds.tell(&exec, pid, written);
        }
    }

    /// Tells how much a command has written and used in all. That it is over they are told when it
    /// is in the store.
    pub(super) fn tell_last(&self, exec: &ExecId, end: &End) {
        if let End::Exited { usage, written, .. } | End::TimedOut { usage, written } = end {
            let told = Usage { cpu_time: usage.cpu_time, peak_memory: usage.peak_memory };
            self.door.feeds.tell(exec, None, Some(*written));
            self.door.feeds.tell_usage(exec, told);
        }
    }

    /// Has a command be watched that another server has left.
    pub(super) fn mind_again(&self, exec: &ExecId, pid: Option<u32>, written: Written) {
        let feed = self.door.feeds.announce(exec);
        feed.hold();
        self.door.feeds.tell(exec, pid, Some(written));
        minding::begin_again(&self.shared, &self.sandbox.tenant, exec, &feed);
    }

    pub(super) async fn ask_for_input(
        &mut self,
        exec: ExecId,
        answer: oneshot::Sender<Option<OwnedFd>>,
    ) {
        self.inputs.retain(|(_, waiter)| !waiter.is_closed());
        if !matches!(self.presence, Presence::Link(_)) || self.inputs.len() >= MOST {
            let _ = answer.send(None);
            return;
        }
        let say = Say::OpenInput { exec: exec.to_string() };
        self.inputs.push((exec, answer));
        self.say(&say).await;
    }

    /// Gives the stdin of a command to who has waited for it longest.
    pub(super) fn give_input(&mut self, exec: &str, fd: Option<OwnedFd>) {
        let waits = |(id, _): &Waiter| id.as_str() == exec;
        if let Some(index) = self.inputs.iter().position(waits) {
            let (_, answer) = self.inputs.remove(index);
            // It may have gone.
            let _ = answer.send(fd);
        }
    }
}
