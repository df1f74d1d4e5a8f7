//! Which processes the kernel ends first when the whole machine runs out of memory.

use std::{fs, io};

use rustix::{io::Errno, process::Pid};

/// The order, as the kernel's adjustment of a process's score: what has the highest ends first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i16)]
pub enum Priority {
    Spawner = -1000,
    Daemon = -900,
    ImageWorker = 200,
    /// Commands in it have 500.
    Sandbox = 300,
    Execution = 800,
}

impl Priority {
    /// Sets the score of this process, as far as it may: an ordinary user cannot lower one.
    pub fn set_own(self) {
        let _ = self.set("self");
    }

    /// Sets the score of another process. What it starts inherits it, and nothing without rights on the host can
    /// set a lower one. Fails for a process that would keep a score at which the kernel never ends it.
    pub fn set_of(self, pid: Pid) -> Result<(), Errno> {
        match self.set(&pid.as_raw_nonzero().to_string()) {
            Ok(()) => Ok(()),
            Err(error) if is_own_the_lowest() => {
                Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
            }
            Err(_) => Ok(()),
        }
    }

    fn set(self, process: &str) -> io::Result<()> {
        fs::write(format!("/proc/{process}/oom_score_adj"), (self as i16).to_string())
    }
}

fn is_own_the_lowest() -> bool {
    let own = fs::read_to_string("/proc/self/oom_score_adj");
    own.map_or(true, |own| own.trim() == (Priority::Spawner as i16).to_string())
}

#[cfg(test)]
mod tests {
    use super::Priority::{Daemon, Execution, ImageWorker, Sandbox, Spawner};

    #[test]
    fn executions_end_first_and_the_spawner_never() {
        let mut order = [Spawner, Execution, Daemon, Sandbox, ImageWorker];
        order.sort_by_key(|priority| std::cmp::Reverse(*priority as i16));
        assert_eq!(order, [Execution, Sandbox, ImageWorker, Daemon, Spawner]);
        assert_eq!(Spawner as i16, -1000, "which the kernel never ends");
    }
}
