//! A slot's cgroup as the daemon holds it: open files, no paths and no privileges.

mod freezer;

pub use freezer::FreezeError;

use std::{
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use rustix::io::Errno;

use crate::{
    plan::Usage,
    wire::{CPU_PERIOD, CgroupFile},
};

/// The limits and counters of one slot.
#[derive(Debug, Default)]
pub struct Handles {
    files: Vec<(CgroupFile, OwnedFd)>,
    /// Whether the slot was frozen and not thawed since.
    is_held: AtomicBool,
    /// What was set last: each write takes the kernel longer than looking here takes us.
    memory: AtomicU64,
    shares: AtomicU32,
}

impl Handles {
    pub fn new(files: Vec<(CgroupFile, OwnedFd)>) -> Self {
        let mut handles = Self::default();
        handles.files = files;
        handles
    }

    /// Whether there is no cgroup behind this: limits are soft.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Sets how much memory the slot may use, swap included.
    pub fn limit_memory(&self, bytes: u64) -> Result<(), Errno> {
        let before = self.memory.load(Ordering::Relaxed);
        if before == bytes {
            return Ok(());
        }
        let text = bytes.to_string();
        // v1 counts memory and swap together, and that is never below memory alone.
        let mut files = [CgroupFile::MemoryLimit, CgroupFile::SwapLimitV1];
        if before != 0 && before < bytes {
            files.reverse();
        }
        files.into_iter().try_for_each(|file| self.write(file, &text))?;
        // v2 counts swap alone.
        self.write(CgroupFile::SwapLimitV2, "0")?;
        self.memory.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Sets the slot's weight when processors are short. 1024 is one ordinary process.
    pub fn set_cpu_shares(&self, shares: u32) -> Result<(), Errno> {
        if self.shares.load(Ordering::Relaxed) == shares {
            return Ok(());
        }
        self.write(CgroupFile::CpuShares, &shares.to_string())?;
        self.write(CgroupFile::CpuWeight, &weight_of(shares).to_string())?;
        self.shares.store(shares, Ordering::Relaxed);
        Ok(())
    }

    /// Sets how much processor time there is in every second, in thousandths of one processor.
    pub fn limit_cpu(&self, millicores: u64) -> Result<(), Errno> {
        let period = u64::try_from(CPU_PERIOD.as_micros()).unwrap_or(u64::MAX);
        // The kernel takes no less than a millisecond of each period.
        let quota = (period.saturating_mul(millicores) / 1000).max(1000);
        self.write(CgroupFile::CpuQuotaV1, &quota.to_string())?;
        self.write(CgroupFile::CpuMaxV2, &format!("{quota} {period}"))
    }

    /// Kills every process of the slot but init, where the kernel can do that by one write. Where
    /// it cannot and init is to do it, what is frozen is at least let die.
    pub fn kill(&self) -> Result<(), Errno> {
        self.write(CgroupFile::Kill, "1")?;
        self.let_die()
    }

    /// Reads what the slot has used so far, by the kernel's counters.
    pub fn usage(&self) -> Result<Usage, Errno> {
        let cpu_time = self.cpu_time()?;
        let peak = self.read(CgroupFile::MemoryPeak)?.map(|text| number(&text));
        let oom_kills = self.read(CgroupFile::OomKills)?.map(|text| field(&text, "oom_kill"));
        Ok(Usage {
            peak_memory: peak.unwrap_or_default(),
            cpu_time,
            oom_kills: oom_kills.unwrap_or_default(),
        })
    }

    /// Reads the processor time that the slot has used so far.
    pub fn cpu_time(&self) -> Result<Duration, Errno> {
        let nanos = self.read(CgroupFile::CpuUsageV1)?.map(|text| number(&text));
        let micros = self.read(CgroupFile::CpuUsageV2)?.map(|text| field(&text, "usage_usec"));
        let time = nanos.map(Duration::from_nanos).or(micros.map(Duration::from_micros));
        Ok(time.unwrap_or_default())
    }

    /// A file that this kind of cgroup does not have is passed over.
    fn write(&self, file: CgroupFile, text: &str) -> Result<(), Errno> {
        match self.find(file) {
            Some(fd) => rustix::io::write(fd, text.as_bytes()).map(drop),
            None => Ok(()),
        }
    }

    fn read(&self, file: CgroupFile) -> Result<Option<String>, Errno> {
        let Some(fd) = self.find(file) else { return Ok(None) };
        let mut bytes = [0; 1024];
        let length = rustix::io::pread(fd, &mut bytes, 0)?;
        let text = bytes.get(..length).unwrap_or_default();
        Ok(Some(String::from_utf8_lossy(text).into_owned()))
    }

    fn find(&self, file: CgroupFile) -> Option<&OwnedFd> {
        self.files.iter().find(|(kind, _)| *kind == file).map(|(_, fd)| fd)
    }
}

/// The v2 weight (1 to 10,000) of v1 shares (2 to 262,144), by the usual mapping.
fn weight_of(shares: u32) -> u64 {
    let shares = u64::from(shares.clamp(2, 262_144));
    1 + (shares - 2) * 9999 / 262_142
}

fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or_default()
}

fn field(text: &str, name: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(key, _)| *key == name)
        .map_or(0, |(_, value)| number(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_become_weights_over_the_whole_range() {
        let rows = [(2, 1), (512, 20), (1024, 39), (262_144, 10_000)];
        for (shares, weight) in rows {
            assert_eq!(weight_of(shares), weight, "{shares}");
        }
    }

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let events = "low 0\nhigh 0\nmax 12\noom 1\noom_kill 3\noom_group_kill 1\n";
        assert_eq!(
            (field(events, "oom_kill"), field(events, "oom"), field(events, "x")),
            (3, 1, 0)
        );
    }
}
