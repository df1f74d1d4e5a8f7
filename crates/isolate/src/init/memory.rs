//! Looking after the memory of a slot that has no cgroup.
//!
//! Weaker than the kernel's own limit: a program that grows fast passes it between two looks. It
//! is used only where the operator allowed soft limits by name.

use rustix::{
    fs::{CWD, Dir, Mode, OFlags, openat},
    io::Errno,
    time::Timespec,
};

/// How long between two looks.
pub(super) const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The memory that all processes of the slot use together.
#[derive(Debug)]
pub(super) struct MemoryWatch {
    limit: u64,
    peak: u64,
}

impl MemoryWatch {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, peak: 0 }
    }

    /// Looks at every process. Returns whether they use more than they may.
    pub(super) fn look(&mut self) -> bool {
        let used = used_by_all().unwrap_or_default();
        self.peak = self.peak.max(used);
        used > self.limit
    }

    pub(super) fn peak(&self) -> u64 {
        self.peak
    }
}

fn used_by_all() -> Result<u64, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let proc = openat(CWD, "/proc", flags, Mode::empty())?;
    let mut used = 0;
    for entry in Dir::read_from(&proc)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let is_other_process = name != b"1" && name.iter().all(u8::is_ascii_digit);
        if is_other_process && let Ok(name) = entry.file_name().to_str() {
            // One that ended in the meantime uses nothing.
            used += proportional_share(name).unwrap_or_default();
        }
    }
    Ok(used)
}

/// Shared pages count to each process by its share, so that the sum is right.
fn proportional_share(pid: &str) -> Result<u64, Errno> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let file = openat(CWD, path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = [0; 2048];
    let length = rustix::io::read(&file, &mut bytes)?;
    let text = String::from_utf8_lossy(bytes.get(..length).unwrap_or_default()).into_owned();
    Ok(kibibytes_after("Pss:", &text) * 1024)
}

fn kibibytes_after(name: &str, text: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proportional_share_is_read_by_its_whole_name() {
        let text = "00400000-7fff [rollup]\nRss: 900 kB\nPss:  123 kB\nPss_Anon: 7 kB\n";
        assert_eq!((kibibytes_after("Pss:", text), kibibytes_after("Swap:", text)), (123, 0));
    }
}
