//! Loading seccomp filters.

use rustix::io::Errno;

use super::check;

/// Loads one filter, given as the raw bytes of its `sock_filter` array. It cannot be taken off
/// again; `no_new_privs` must be set.
pub fn load(filter: &[u8]) -> Result<(), Errno> {
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
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    })
    .map(drop)
}
