//! Loading seccomp filters.

use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

use rustix::io::Errno;

use super::check;

/// Loads one filter, given as the raw bytes of its `sock_filter` array. It cannot be taken off
/// again; `no_new_privs` must be set.
pub fn load(filter: &[u8]) -> Result<(), Errno> {
    load_with(filter, 0).map(drop)
}

/// Loads one filter as [`load`] does, and returns its listener, which hangs up when no task has the
/// filter any more. `None` where the kernel gives none: it does not know listeners, or somebody
/// around us listens already.
pub fn load_with_listener(filter: &[u8]) -> Result<Option<OwnedFd>, Errno> {
    match load_with(filter, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER) {
        Ok(listener) => {
            let listener = RawFd::try_from(listener).or(Err(Errno::BADF))?;
            // SAFETY: with this flag the call returns a new descriptor, which nobody else owns.
            Ok(Some(unsafe { OwnedFd::from_raw_fd(listener) }))
        }
        Err(Errno::BUSY | Errno::INVAL) => load(filter).map(|()| None),
        Err(other) => Err(other),
    }
}

fn load_with(filter: &[u8], flags: libc::c_ulong) -> Result<libc::c_long, Errno> {
    let instructions: Vec<libc::sock_filter> = filter
        .chunks_exact(size_of::<libc::sock_filter>())
        .map(|raw| libc::sock_filter {
            code: u16::from_ne_bytes([raw[0], raw[1]]),
            jt: raw[2],
            jf: raw[3],
            k: u32::from_ne_bytes([raw[4], raw[5], raw[6], raw[7]]),
        })
        .collect();
    let len = u16::try_from(instructions.len()).or(Err(Errno::TOOBIG))?;
    let program = libc::sock_fprog { len, filter: instructions.as_ptr().cast_mut() };
    // SAFETY: `program` points at `len` live instructions; the kernel copies and checks them.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    })
}
