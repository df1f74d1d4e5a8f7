//! The machine that figures are from.

use std::{fs, thread::available_parallelism};

use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) time: String,
    pub(crate) processors: usize,
    pub(crate) model: String,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: String,
    pub(crate) user: String,
    /// The load when the run began: others may use the machine too.
    pub(crate) load: String,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let load = read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" ");
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let memory = memory.trim_end_matches(" kB").parse().map_or(0, |kib: u64| kib / 1024);
        let is_root = rustix::process::geteuid().is_root();
        Self {
            time: format!("{:.0}", jiff::Timestamp::now()),
            processors: available_parallelism().map_or(1, std::num::NonZero::get),
            model: field(&read("/proc/cpuinfo"), "model name"),
            memory_mib: memory,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            user: if is_root { "root" } else { "an ordinary user" }.to_owned(),
            load,
        }
    }
}

/// Returns what stands after the colon in the first line of that name.
fn field(text: &str, name: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_once(':').map_or("", |(_, value)| value).trim().to_owned()
}
