//! Stopping a slot where it stands, and letting it go on.
//!
//! Init is not in the slot's cgroup: it runs on, its deadline too.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::{Handles, field};
use crate::wire::CgroupFile;

/// How long to wait before asking v1 again, which tells nobody of a change.
const PAUSE: Duration = Duration::from_millis(1);

/// A slot cannot be frozen or thawed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FreezeError {
    #[error("no cgroup of the slot can be frozen")]
    NoFreezer,
    #[error("the processes of the slot have not all stopped within {0:?}")]
    NotInTime(Duration),
    #[error("cannot {doing} the slot")]
    System {
        doing: &'static str,
        #[source]
        errno: Errno,
    },
}

fn doing(doing: &'static str) -> impl Fn(Errno) -> FreezeError {
    move |errno| FreezeError::System { doing, errno }
}

/// What can stop a slot.
#[derive(Clone, Copy, Debug)]
enum Freezer {
    V1,
    V2,
}

impl Handles {
    /// Has every process of the slot stopped. They are a moment later: see
    /// [`Handles::wait_until_frozen`].
    pub fn freeze(&self) -> Result<(), FreezeError> {
        let freezer = self.freezer()?;
        // Before it is so: being thawed for nothing does no harm.
        self.is_held.store(true, Ordering::Relaxed);
        let written = match freezer {
            Freezer::V1 => self.write(CgroupFile::FreezerStateV1, "FROZEN"),
            Freezer::V2 => self.write(CgroupFile::FreezeV2, "1"),
        };
        written.map_err(doing("freeze"))
    }

    /// What is frozen stays so when this is let go: somebody else will thaw it.
    pub fn keep_frozen(&self) {
        self.is_held.store(false, Ordering::Relaxed);
    }

    /// Lets the slot go on.
    pub fn thaw(&self) -> Result<(), FreezeError> {
        let written = match self.freezer()? {
            Freezer::V1 => self.write(CgroupFile::FreezerStateV1, "THAWED"),
            Freezer::V2 => self.write(CgroupFile::FreezeV2, "0"),
        };
        written.map_err(doing("thaw"))?;
        self.is_held.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Whether every process of the slot has stopped, by the kernel's word.
    pub fn is_frozen(&self) -> Result<bool, FreezeError> {
        let read =
            |file| Ok(self.read(file).map_err(doing("see the state of"))?.unwrap_or_default());
        match self.freezer()? {
            Freezer::V1 => Ok(read(CgroupFile::FreezerStateV1)?.trim() == "FROZEN"),
            Freezer::V2 => Ok(field(&read(CgroupFile::EventsV2)?, "frozen") == 1),
        }
    }

    /// Blocks this thread until every process of the slot has stopped.
    ///
    /// The freezer of v1 may never say so of a process that waits in vfork, which does not run
    /// either. Whether that will do is for the caller to decide.
    pub fn wait_until_frozen(&self, at_most: Duration) -> Result<(), FreezeError> {
        let freezer = self.freezer()?;
        let begin = Instant::now();
        while !self.is_frozen()? {
            let left = at_most.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Err(FreezeError::NotInTime(at_most));
            }
            self.wait_for_change(freezer, left).map_err(doing("wait for"))?;
        }
        Ok(())
    }

    /// Waits until the state may be another than the one that was read last.
    fn wait_for_change(&self, freezer: Freezer, at_most: Duration) -> Result<(), Errno> {
        let (events, at_most) = match freezer {
            Freezer::V1 => (None, at_most.min(PAUSE)),
            Freezer::V2 => (self.find(CgroupFile::EventsV2), at_most),
        };
        let mut watched: Vec<_> =
            events.into_iter().map(|fd| PollFd::new(fd, PollFlags::PRI)).collect();
        let at_most = Timespec::try_from(at_most).or(Err(Errno::INVAL))?;
        match poll(&mut watched, Some(&at_most)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Thaws where killed processes cannot die before. On v2 they can, and never run again.
    pub(super) fn let_die(&self) -> Result<(), Errno> {
        match self.freezer() {
            Ok(Freezer::V1) if self.is_held.swap(false, Ordering::Relaxed) => {
                self.write(CgroupFile::FreezerStateV1, "THAWED")
            }
            Ok(Freezer::V1 | Freezer::V2) | Err(_) => Ok(()),
        }
    }

    /// Where there are both, v2 it is: what it has frozen can be killed.
    fn freezer(&self) -> Result<Freezer, FreezeError> {
        let has = |file| self.find(file).is_some();
        if has(CgroupFile::FreezeV2) {
            Ok(Freezer::V2)
        } else if has(CgroupFile::FreezerStateV1) {
            Ok(Freezer::V1)
        } else {
            Err(FreezeError::NoFreezer)
        }
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        // Nobody else can thaw it, and it is to end when it is let go. If it is gone, all is well.
        let _ = self.let_die();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_freezer_every_question_is_answered_so() {
        let soft = Handles::default();
        let is_frozen = soft.is_frozen().map(drop);
        let waited = soft.wait_until_frozen(Duration::MAX);
        for answer in [soft.freeze(), is_frozen, waited, soft.thaw()] {
            assert_eq!(answer, Err(FreezeError::NoFreezer));
        }
    }
}
