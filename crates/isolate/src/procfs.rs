//! What `/proc` shows inside. Processes and settings are those of the sandbox; most other entries tell of the whole
//! machine, and so of other tenants. What is not listed here is empty.

/// Entries of `/proc` beside processes that programs can see.
pub(crate) const VISIBLE: [&str; 13] = [
    "cpuinfo",
    "filesystems",
    "loadavg",
    "meminfo",
    "mounts",
    "net",
    "self",
    "stat",
    "sys",
    "sysvipc",
    "thread-self",
    "uptime",
    "version",
];

/// Entries below those that tell of the machine all the same. Folders end with a slash.
pub(crate) const HIDDEN_BELOW: [&str; 3] =
    ["sys/fs/", "sys/kernel/pty/", "sys/kernel/random/boot_id"];

/// Entries whose content is made up: what the machine is, without what it is doing.
pub(crate) const SYNTHETIC: [&str; 4] = ["cpuinfo", "loadavg", "meminfo", "stat"];

/// Where every root has the synthetic files.
pub(crate) const SYNTHETIC_FOLDER: &str = "run/ringfence/proc";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_synthetic_entry_is_visible() {
        assert!(SYNTHETIC.iter().all(|name| VISIBLE.contains(name)));
    }
}
