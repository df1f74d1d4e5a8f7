//! The loopback interface.

use std::os::fd::AsRawFd;

use rustix::{
    io::Errno,
    net::{AddressFamily, SocketType, socket},
};

use super::check;

/// Brings `lo` up in the current network namespace.
pub fn bring_loopback_up() -> Result<(), Errno> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *slot = libc::c_char::from_ne_bytes([*byte]);
    }
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_UP).or(Err(Errno::INVAL))?;
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`, which `request` is.
    let returned =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    check(returned.into()).map(drop)
}
