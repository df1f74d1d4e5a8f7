//! Users that the system grants to an ordinary user: ranges in `/etc/subuid` and `/etc/subgid`, which the programs
//! `newuidmap` and `newgidmap` let that user's processes have.

use std::{
    fs,
    os::fd::OwnedFd,
    process::{Command, Stdio},
};

use rustix::{
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{Pid, WaitOptions, waitpid},
};

use super::IdRange;
use crate::sys::process::{Fork, exit_now, fork};

/// Fewer are no use: every slot takes two.
const LEAST: u32 = 1024;

/// What is granted to one user: as many users as groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Granted {
    user: u32,
    group: u32,
    first_user: u32,
    first_group: u32,
    count: u32,
}

impl Granted {
    /// Looks for what is granted to this user.
    pub(super) fn find(user: u32, group: u32) -> Option<Self> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let name = name_of(user, &read("/etc/passwd"));
        let (first_user, users) = largest(&read("/etc/subuid"), user, name.as_deref())?;
        let (first_group, groups) = largest(&read("/etc/subgid"), user, name.as_deref())?;
        let count = users.min(groups);
        (count >= LEAST).then_some(Self { user, group, first_user, first_group, count })
    }

    /// Returns the users that the namespace has beside its root.
    pub(super) fn inside(&self) -> IdRange {
        IdRange { first: 1, count: self.count }
    }

    /// Maps the users of another process, which is root in a user namespace that has none yet.
    fn map(&self, process: u32) -> bool {
        let run = |program: &str, own: u32, first: u32| {
            let numbers = [process, 0, own, 1, 1, first, self.count].map(|it| it.to_string());
            let mut command = Command::new(program);
            command.args(numbers).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        run("newuidmap", self.user, self.first_user)
            && run("newgidmap", self.group, self.first_group)
    }
}

/// A process that stays outside the user namespace, to map its users.
#[derive(Debug)]
pub(super) struct Mapper {
    child: Pid,
    go: OwnedFd,
}

impl Mapper {
    pub(super) fn start(granted: Granted) -> Result<Self, Errno> {
        let (wait, go) = pipe_with(PipeFlags::CLOEXEC)?;
        let process = std::process::id();
        match fork(0)? {
            Fork::Child => {
                drop(go);
                let is_told = rustix::io::read(&wait, &mut [0; 1]) == Ok(1);
                exit_now(i32::from(!(is_told && granted.map(process))))
            }
            Fork::Parent { child, pidfd: _ } => Ok(Self { child, go }),
        }
    }

    /// Has the users mapped. Returns whether they are.
    pub(super) fn map(self) -> bool {
        let told = rustix::io::write(&self.go, b"g").is_ok();
        drop(self.go);
        let ended = waitpid(Some(self.child), WaitOptions::empty());
        told && matches!(ended, Ok(Some((_, status))) if status.exit_status() == Some(0))
    }
}

fn name_of(user: u32, passwd: &str) -> Option<String> {
    let number = user.to_string();
    let mut lines = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let line = lines.find(|fields| fields.get(2) == Some(&number.as_str()))?;
    line.first().map(ToString::to_string)
}

/// Returns the largest range of a user, who is named or numbered.
fn largest(text: &str, user: u32, name: Option<&str>) -> Option<(u32, u32)> {
    let number = user.to_string();
    let ranges = text.lines().filter_map(|line| {
        let mut fields = line.trim().split(':');
        let owner = fields.next()?;
        let (first, count) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        (owner == number || Some(owner) == name).then_some((first, count))
    });
    ranges.max_by_key(|(_, count)| *count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_range_of_a_user_is_found_by_name_or_number() {
        let text = "root:1:2\nada:100000:65536\n1000:300000:131072\nadam:5:6\nada:x:1\n";
        assert_eq!(largest(text, 1000, Some("ada")), Some((300_000, 131_072)));
        assert_eq!(largest(text, 7, Some("ada")), Some((100_000, 65_536)));
        assert_eq!(largest(text, 7, None), None);
    }

    #[test]
    fn a_user_is_named_by_the_third_field() {
        let passwd =
            "root:x:0:0::/:/bin/sh\nada:x:1000:1000::/:/bin/sh\nbob:x:10:1000::/:/bin/sh\n";
        assert_eq!(name_of(1000, passwd).as_deref(), Some("ada"));
        assert_eq!(name_of(1, passwd), None);
    }
}
