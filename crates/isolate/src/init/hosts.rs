//! The names that a sandbox knows its companions by.

use rustix::{
    fs::{CWD, Mode, OFlags, mkdirat, openat},
    io::Errno,
    mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount},
};

use super::root::make_read_only;

/// What everybody has.
const EVERYBODY: &str = "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n";

/// Covers `/etc/hosts` by one that has these names. All of them are at the loopback, which a sandbox
/// shares with its companions. The root is in its place already, so that a link in a stranger's image
/// leads nowhere but into that image.
pub(super) fn set(names: &[String]) -> Result<(), Errno> {
    const WRITE: OFlags = OFlags::CREATE.union(OFlags::WRONLY).union(OFlags::CLOEXEC);
    if names.is_empty() {
        return Ok(());
    }
    match mkdirat(CWD, "/etc", Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST | Errno::ROFS) => {}
        Err(other) => return Err(other),
    }
    match openat(CWD, "/etc/hosts", WRITE | OFlags::EXCL, Mode::from_raw_mode(0o644)) {
        Ok(_) | Err(Errno::EXIST | Errno::ROFS) => {}
        Err(other) => return Err(other),
    }
    // Nothing runs yet that could miss its `/tmp` for this moment.
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("tmpfs", "/tmp", "tmpfs", flags, c"size=64k,mode=0755")?;
    let file = openat(CWD, "/tmp/hosts", WRITE, Mode::from_raw_mode(0o644))?;
    let text = format!("{EVERYBODY}127.0.0.1 {}\n", names.join(" "));
    if rustix::io::write(&file, text.as_bytes())? != text.len() {
        return Err(Errno::NOSPC);
    }
    drop(file);
    mount_bind("/tmp/hosts", "/etc/hosts")?;
    make_read_only("/etc/hosts")?;
    unmount("/tmp", UnmountFlags::DETACH)
}
