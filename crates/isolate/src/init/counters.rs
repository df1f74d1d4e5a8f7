//! Settings of the kernel for the namespaces of a slot or sandbox.

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
};

use crate::plan::NamespaceLimits;

/// Lets every user of the calling process's network listen on every port: the network is the sandbox's own.
pub(super) fn open_low_ports() -> Result<(), Errno> {
    write("net/ipv4/ip_unprivileged_port_start", "0")
}

/// Sets the limits of the calling process's user namespace. It needs every capability there, and a `/proc` that can be
/// written to: that of the old root.
pub(super) fn set(limits: NamespaceLimits) -> Result<(), Errno> {
    limits
        .settings()
        .into_iter()
        .try_for_each(|(name, value)| write(&format!("user/{name}"), &value.to_string()))
}

fn write(setting: &str, value: &str) -> Result<(), Errno> {
    let path = format!("/proc/sys/{setting}");
    match openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        // The kernel is older than this setting.
        Err(Errno::NOENT) => Ok(()),
        file => rustix::io::write(&file?, value.as_bytes()).map(drop),
    }
}
