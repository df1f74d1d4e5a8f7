//! Project quota: `quotactl_fd(2)`, and the project of a directory.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use super::{
    check,
    ioctl::{Request, Way},
};

/// What a project uses, and what it may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    pub used_bytes: u64,
    pub used_files: u64,
    /// Zero: as much as there is.
    pub most_bytes: u64,
    pub most_files: u64,
}

/// `struct if_dqblk`, with limits of space in KiB.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Block {
    hard_kib: u64,
    soft_kib: u64,
    used_bytes: u64,
    hard_files: u64,
    soft_files: u64,
    used_files: u64,
    grace: u64,
    grace_of_files: u64,
    valid: u32,
}

/// `struct fsxattr`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

const GET: u32 = 0x0080_0007;
const SET: u32 = 0x0080_0008;
const PROJECTS: u32 = 2;
/// The limits of space and of files, and nothing else.
const LIMITS: u32 = 1 | 4;

/// What is made in a directory with this flag has its project, and the flag.
const INHERIT: u32 = 0x200;

const GET_ATTRIBUTES: Request = Request { way: Way::Read, family: b'X', number: 31 };
const SET_ATTRIBUTES: Request = Request { way: Way::Write, family: b'X', number: 32 };

fn control(
    anywhere: BorrowedFd<'_>,
    command: u32,
    project: u32,
    block: &mut Block,
) -> Result<(), Errno> {
    // SAFETY: both commands read or fill in one `if_dqblk`, which `block` is.
    check(unsafe {
        libc::syscall(
            libc::SYS_quotactl_fd,
            anywhere.as_raw_fd(),
            command << 8 | PROJECTS,
            project,
            &raw mut *block,
        )
    })
    .map(drop)
}

/// Returns what a project of this file system uses.
pub fn get(anywhere: BorrowedFd<'_>, project: u32) -> Result<Quota, Errno> {
    let mut block = Block::default();
    control(anywhere, GET, project, &mut block)?;
    Ok(Quota {
        used_bytes: block.used_bytes,
        used_files: block.used_files,
        most_bytes: block.hard_kib.saturating_mul(1024),
        most_files: block.hard_files,
    })
}

/// Limits a project of this file system.
pub fn set(anywhere: BorrowedFd<'_>, project: u32, bytes: u64, files: u64) -> Result<(), Errno> {
    let mut block =
        Block { hard_kib: bytes / 1024, hard_files: files, valid: LIMITS, ..Block::default() };
    control(anywhere, SET, project, &mut block)
}

/// Returns the project of a directory.
pub fn project(directory: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut attributes = Attributes::default();
    GET_ATTRIBUTES.call(directory, &mut attributes)?;
    Ok(attributes.project)
}

/// Puts a directory, and all that will be made in it, into a project.
pub fn set_project(directory: BorrowedFd<'_>, project: u32) -> Result<(), Errno> {
    let mut attributes = Attributes::default();
    GET_ATTRIBUTES.call(directory, &mut attributes)?;
    attributes.project = project;
    attributes.flags |= INHERIT;
    SET_ATTRIBUTES.call(directory, &mut attributes).map(drop)
}
