//! Work on volumes in a process of its own, so that a loop need not wait for the disk.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::{
    net::{RecvFlags, SendFlags},
    process::{Pid, Signal, set_parent_process_death_signal},
};
use serde::{Deserialize, Serialize};

use super::{
    ByteCount, DiskError, DiskLimit, Disks, Reason, Usage, VolumeName, ground::failed, whole,
};
use crate::{
    socket::PacketSocket,
    sys::process::{Fork, exit_now, fork},
    wire,
};

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// Ends with the volume, open.
    Make {
        name: VolumeName,
        limit: DiskLimit,
    },
    /// Ends with the volume, open.
    Open {
        name: VolumeName,
    },
    SetLimit {
        name: VolumeName,
        limit: ByteCount,
    },
    Usage {
        name: VolumeName,
    },
    Remove {
        name: VolumeName,
    },
}

/// What has come of it.
#[derive(Debug)]
pub enum Outcome {
    Volume(OwnedFd),
    Usage(Usage),
    Done,
}

/// A process that does one job. Dropping this does not stop it, but the end of its parent does; a
/// job that was cut short is finished or cleared by the next one for the volume, or at the next start.
#[derive(Debug)]
pub struct Work {
    pub pid: Pid,
    socket: PacketSocket,
}

/// What the process says before it ends. A descriptor comes along for a volume.
#[derive(Debug, Serialize, Deserialize)]
enum Word {
    Volume,
    Usage(Usage),
    Done,
    Failed(Reason, String),
}

/// Names of kinds and programs are short; what a program said may not be.
const MOST: usize = 2048;

impl Work {
    /// Begins a job. The caller has one thread, and reaps the process as any child of its own.
    pub fn begin(disks: &Disks, job: &Job) -> Result<Self, DiskError> {
        Self::begin_with(|| carry_out(disks, job))
    }

    /// Begins something that is done by more than one job.
    pub fn begin_with(job: impl FnOnce() -> Result<Outcome, DiskError>) -> Result<Self, DiskError> {
        let (ours, theirs) = PacketSocket::pair().map_err(failed("make", "a socket"))?;
        match fork(0).map_err(failed("fork", "a worker"))? {
            Fork::Parent { child, .. } => Ok(Self { pid: child, socket: ours }),
            Fork::Child => {
                // If the parent is gone already, the socket is too, and nobody hears the word.
                let _ = set_parent_process_death_signal(Some(Signal::KILL));
                exit_now(i32::from(tell(job(), &theirs).is_err()))
            }
        }
    }

    /// Returns what has come of the job. This waits for it, unless the descriptor is ready to read.
    pub fn finish(self) -> Result<Outcome, DiskError> {
        let died = || {
            let said = "the process that worked on a volume died".to_owned();
            DiskError::Worker { reason: Reason::Other, said }
        };
        let packet = self.socket.receive(RecvFlags::empty()).ok().flatten().ok_or_else(died)?;
        match wire::decode(&packet.bytes) {
            Ok(Word::Volume) => packet.fds.into_iter().next().map(Outcome::Volume).ok_or_else(died),
            Ok(Word::Usage(usage)) => Ok(Outcome::Usage(usage)),
            Ok(Word::Done) => Ok(Outcome::Done),
            Ok(Word::Failed(reason, said)) => Err(DiskError::Worker { reason, said }),
            Err(_) => Err(died()),
        }
    }
}

/// Ready to read when the job is done.
impl AsFd for Work {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn tell(outcome: Result<Outcome, DiskError>, socket: &PacketSocket) -> std::io::Result<()> {
    let (word, volume) = match outcome {
        Ok(Outcome::Volume(volume)) => (Word::Volume, Some(volume)),
        Ok(Outcome::Usage(usage)) => (Word::Usage(usage), None),
        Ok(Outcome::Done) => (Word::Done, None),
        Err(error) => {
            let said = whole(&error).chars().take(MOST).collect();
            (Word::Failed(error.reason(), said), None)
        }
    };
    let volume: Vec<BorrowedFd<'_>> = volume.iter().map(AsFd::as_fd).collect();
    let bytes = wire::encode(&word).map_err(std::io::Error::other)?;
    socket.send(&bytes, &volume, SendFlags::empty())?;
    Ok(())
}

/// Does a job here and now.
pub fn carry_out(disks: &Disks, job: &Job) -> Result<Outcome, DiskError> {
    match job {
        Job::Make { name, limit } => disks.make(name, *limit).map(Outcome::Volume),
        Job::Open { name } => disks.open_volume(name).map(Outcome::Volume),
        Job::SetLimit { name, limit } => disks.set_limit(name, *limit).map(|()| Outcome::Done),
        Job::Usage { name } => disks.usage(name).map(Outcome::Usage),
        Job::Remove { name } => disks.remove(name).map(|()| Outcome::Done),
    }
}
