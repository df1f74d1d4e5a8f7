//! Loop devices: block devices over a file.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use rustix::io::Errno;

use super::check;

/// Which file a device is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backing {
    pub device: u64,
    pub inode: u64,
}

/// `struct loop_info64`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Status {
    device: u64,
    inode: u64,
    own_device: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encryption: u32,
    key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Config {
    fd: RawFd,
    block_size: u32,
    status: Status,
    reserved: [u64; 8],
}

const GET_STATUS: libc::Ioctl = 0x4c05;
const SET_CAPACITY: libc::Ioctl = 0x4c07;
const CONFIGURE: libc::Ioctl = 0x4c0a;
const GET_FREE: libc::Ioctl = 0x4c82;

/// The device goes when its last user does.
const AUTOCLEAR: u32 = 4;
/// The file's pages are not kept in memory a second time, where its file system can do without.
const DIRECT_IO: u32 = 16;

const EMPTY: Status = Status {
    device: 0,
    inode: 0,
    own_device: 0,
    offset: 0,
    size_limit: 0,
    number: 0,
    encryption: 0,
    key_size: 0,
    flags: 0,
    file_name: [0; 64],
    crypt_name: [0; 64],
    key: [0; 32],
    init: [0; 2],
};

/// Returns the number of a device that nobody has; another may take it meanwhile.
pub fn free_number(control: BorrowedFd<'_>) -> Result<libc::c_long, Errno> {
    // SAFETY: the request has no argument.
    check(unsafe { libc::ioctl(control.as_raw_fd(), GET_FREE) }.into())
}

/// Puts a device over a file, for as long as somebody has the device open or mounted.
pub fn configure(device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Result<(), Errno> {
    let status = Status { flags: AUTOCLEAR | DIRECT_IO, ..EMPTY };
    let config = Config { fd: file.as_raw_fd(), block_size: 0, status, reserved: [0; 8] };
    // SAFETY: the request reads one `loop_config`, which `config` is.
    check(unsafe { libc::ioctl(device.as_raw_fd(), CONFIGURE, &raw const config) }.into()).map(drop)
}

/// Returns the file that a device is over.
pub fn backing(device: BorrowedFd<'_>) -> Result<Backing, Errno> {
    let mut status = EMPTY;
    // SAFETY: the request fills in one `loop_info64`, which `status` is.
    check(unsafe { libc::ioctl(device.as_raw_fd(), GET_STATUS, &raw mut status) }.into())?;
    Ok(Backing { device: status.device, inode: status.inode })
}

/// Lets the device be as large as its file has become.
pub fn take_size_of_file(device: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the request has no argument.
    check(unsafe { libc::ioctl(device.as_raw_fd(), SET_CAPACITY, 0) }.into()).map(drop)
}

/// Writes a device's number as `loop_info64` has it.
pub fn encode_device(device: rustix::fs::Dev) -> u64 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    u64::from(minor & 0xff | major << 8 | (minor & !0xff) << 12)
}
