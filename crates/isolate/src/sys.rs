//! The system calls that `rustix` does not have. All `unsafe` code of the project is below here:
//! one call per block, each with the reason why it is sound.
#![expect(unsafe_code, reason = "this module is where system calls without a safe wrapper live")]

#[cfg(feature = "spawner")]
pub mod btrfs;
#[cfg(feature = "spawner")]
pub mod ext4;
#[cfg(feature = "spawner")]
mod ioctl;
#[cfg(feature = "spawner")]
pub mod landlock;
pub mod library;
#[cfg(feature = "spawner")]
pub mod loops;
pub mod memory;
pub mod mount;
pub mod net;
#[cfg(feature = "spawner")]
pub mod peer;
pub mod process;
#[cfg(feature = "spawner")]
pub mod quota;
pub mod seccomp;
pub mod signal;
pub mod split;
pub mod unwind;

use rustix::io::Errno;

/// Turns the return value of a raw system call into a result.
fn check(returned: libc::c_long) -> Result<libc::c_long, Errno> {
    if returned >= 0 { Ok(returned) } else { Err(last_errno()) }
}

fn last_errno() -> Errno {
    let code = std::io::Error::last_os_error().raw_os_error();
    Errno::from_raw_os_error(code.unwrap_or(libc::EIO))
}
