//! What the kernel says of the other end of a Unix socket, and an end for who waits too long.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use super::check;

/// The most groups that a process can have.
const MAX_GROUPS: usize = 65_536;

/// Returns the groups of whoever connected, as they were then.
pub fn groups(socket: BorrowedFd<'_>) -> Result<Vec<u32>, Errno> {
    let mut groups = vec![0_u32; MAX_GROUPS];
    let bytes = size_of_val(groups.as_slice());
    let mut length = libc::socklen_t::try_from(bytes).or(Err(Errno::INVAL))?;
    let (socket, option) = (socket.as_raw_fd(), libc::SO_PEERGROUPS);
    let (level, buffer) = (libc::SOL_SOCKET, groups.as_mut_ptr().cast());
    // SAFETY: the buffer is live and of the length passed, which the call lessens to what it wrote.
    let returned = unsafe { libc::getsockopt(socket, level, option, buffer, &raw mut length) };
    check(returned.into())?;
    groups.truncate(usize::try_from(length).or(Err(Errno::INVAL))? / size_of::<u32>());
    Ok(groups)
}

/// Has the kernel end this process after so many seconds.
pub fn end_after(seconds: u32) {
    // SAFETY: alarm touches no memory.
    unsafe { libc::alarm(seconds) };
}
