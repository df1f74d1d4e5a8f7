//! The synthetic files of `/proc`, which every slot and sandbox has: what the machine is, without what it is doing.

use std::{fmt::Write as _, fs};

/// Returns the content of a synthetic entry.
pub(super) fn synthetic(name: &str) -> String {
    let real = fs::read_to_string(format!("/proc/{name}")).unwrap_or_default();
    match name {
        "cpuinfo" => real,
        "meminfo" => memory(&real),
        "stat" => statistics(&real),
        _ => "0.00 0.00 0.00 1/1 1\n".to_owned(),
    }
}

/// All memory of the machine, of which nothing is used.
fn memory(real: &str) -> String {
    let total = real.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or(" 0 kB");
    let mut text = String::new();
    for name in ["MemTotal", "MemFree", "MemAvailable"] {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name}:{total}");
    }
    for name in ["Buffers", "Cached", "SwapCached", "Active", "Inactive", "SwapTotal", "SwapFree"] {
        let _ = writeln!(text, "{name}: 0 kB");
    }
    for name in ["Dirty", "Shmem", "Slab", "SReclaimable", "SUnreclaim"] {
        let _ = writeln!(text, "{name}: 0 kB");
    }
    text
}

/// As many processors as there are, which have done nothing, and when the machine was started: programs such as `ps`
/// count from there, and a clock shows it anyway.
fn statistics(real: &str) -> String {
    let mut text = String::new();
    for line in real.lines() {
        let name = line.split(' ').next().unwrap_or_default();
        let _ = match name {
            "btime" => writeln!(text, "{line}"),
            "procs_running" => writeln!(text, "procs_running 1"),
            _ if name.starts_with("cpu") => writeln!(text, "{name} 0 0 0 0 0 0 0 0 0 0"),
            _ => writeln!(text, "{name} 0"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synthetic_entries_show_what_the_machine_is_and_not_what_it_does() {
        let real = "cpu  10 2 3\ncpu0 5 1 1\ncpu1 5 1 2\nintr 99 1 2\nctxt 7\nbtime 1700000000\n\
                    processes 12\nprocs_running 3\nprocs_blocked 1\nsoftirq 5 1\n";
        let expected = "cpu 0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n\
                        cpu1 0 0 0 0 0 0 0 0 0 0\nintr 0\nctxt 0\nbtime 1700000000\n\
                        processes 0\nprocs_running 1\nprocs_blocked 0\nsoftirq 0\n";
        assert_eq!(statistics(real), expected);
        let text = memory("MemTotal:       100 kB\nMemFree:   3 kB\nCached: 9 kB\n");
        assert!(text.starts_with("MemTotal:       100 kB\nMemFree:       100 kB\n"), "{text}");
        assert!(!text.contains(" 9 kB") && !text.contains(" 3 kB"), "{text}");
    }
}
