//! Landlock: a process gives up rights to files, for good and for all its children.

use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rustix::io::Errno;

use super::check;

/// Rights to files, as the kernel numbers them.
pub const EXECUTE: u64 = 1 << 0;
pub const WRITE_FILE: u64 = 1 << 1;
const REMOVE_DIR: u64 = 1 << 4;
const REMOVE_FILE: u64 = 1 << 5;
/// All of `MAKE_CHAR` to `MAKE_SYM`.
const MAKE: u64 = 0b111_1111 << 6;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;

/// The call's flag that asks for the version, and the kind of a rule about files beneath a folder.
const VERSION: libc::c_uint = 1;
const PATH_BENEATH: libc::c_uint = 1;

#[repr(C)]
struct RulesetAttributes {
    handled_access_fs: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: RawFd,
}

/// Returns every right to change files that this kernel can take away; nothing if it has no Landlock.
pub fn rights_to_change() -> Option<u64> {
    // SAFETY: with this flag the call reads no memory and returns a number.
    let version = check(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION)
    })
    .ok()?;
    let base = WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE;
    Some(match version {
        ..=1 => base,
        2 => base | REFER,
        _ => base | REFER | TRUNCATE,
    })
}

/// Makes a set of rules, by which nothing that it handles is allowed yet.
pub fn new_ruleset(handled: u64) -> Result<OwnedFd, Errno> {
    let attributes = RulesetAttributes { handled_access_fs: handled };
    let size = size_of::<RulesetAttributes>();
    // SAFETY: the kernel reads `size` bytes of the structure, which outlives the call.
    let fd = check(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attributes, size, 0)
    })?;
    let fd = RawFd::try_from(fd).or(Err(Errno::BADF))?;
    // SAFETY: the call returned a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Allows these rights for a file, or for everything beneath a folder.
pub fn allow(ruleset: &OwnedFd, path: BorrowedFd<'_>, rights: u64) -> Result<(), Errno> {
    let rule = PathBeneath { allowed_access: rights, parent_fd: path.as_raw_fd() };
    // SAFETY: the kernel reads the structure of this kind, which outlives the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            PATH_BENEATH,
            &raw const rule,
            0,
        )
    })
    .map(drop)
}

/// Puts the rules in force for this thread and all that it starts. `no_new_privs` must be set.
pub fn restrict_self(ruleset: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: the call reads no memory of ours.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })
        .map(drop)
}
