//! Requests to a btrfs: subvolumes, their groups of quota, its size.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::Errno;

use super::{
    check,
    ioctl::{Request, Way},
};

/// A group of quota: `0/N` is the subvolume `N` itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group(u64);

impl Group {
    pub const fn of_subvolume(id: u64) -> Self {
        Self(id)
    }

    /// The group of that level and number.
    pub const fn new(level: u16, number: u64) -> Self {
        Self((level as u64) << 48 | number)
    }
}

const NAME: usize = 4039;

/// `struct btrfs_ioctl_vol_args_v2`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct NamedSubvolume {
    fd: i64,
    transaction: u64,
    flags: u64,
    unused: [u64; 4],
    name: [u8; NAME + 1],
}

/// `struct btrfs_ioctl_vol_args`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct NamedVolume {
    fd: i64,
    name: [u8; 4088],
}

/// `struct btrfs_ioctl_search_args`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Search {
    tree: u64,
    least_object: u64,
    most_object: u64,
    least_offset: u64,
    most_offset: u64,
    least_transaction: u64,
    most_transaction: u64,
    least_kind: u32,
    most_kind: u32,
    count: u32,
    unused: u32,
    unused_too: [u64; 4],
    found: [u8; 3992],
}

const ROOT_TREE: u64 = 1;
const ROOT_ITEM: u32 = 132;
const ROOT_REF: u32 = 156;

/// The flag by which a subvolume is named by its number.
const BY_ID: u64 = 1 << 4;

const fn btrfs(way: Way, number: u8) -> Request {
    Request { way, family: 0x94, number }
}

fn named(name: &str) -> Result<NamedSubvolume, Errno> {
    let mut argument =
        NamedSubvolume { fd: 0, transaction: 0, flags: 0, unused: [0; 4], name: [0; NAME + 1] };
    let room = argument.name.get_mut(..name.len()).ok_or(Errno::NAMETOOLONG)?;
    room.copy_from_slice(name.as_bytes());
    Ok(argument)
}

/// Makes an empty subvolume in this directory.
pub fn create_subvolume(directory: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    btrfs(Way::Write, 24).call(directory, &mut named(name)?).map(drop)
}

/// Takes a subvolume out of this directory. Its space comes back when nobody uses it any more.
pub fn destroy_subvolume(directory: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    btrfs(Way::Write, 63).call(directory, &mut named(name)?).map(drop)
}

/// Takes a subvolume away that is known by its number, wherever it is.
pub fn destroy_subvolume_by_id(anywhere: BorrowedFd<'_>, id: u64) -> Result<(), Errno> {
    let mut argument = named("")?;
    argument.flags = BY_ID;
    // Here the name's place holds the number.
    for (slot, byte) in argument.name.iter_mut().zip(id.to_ne_bytes()) {
        *slot = byte;
    }
    btrfs(Way::Write, 63).call(anywhere, &mut argument).map(drop)
}

/// Returns the number of the subvolume that this is in.
pub fn subvolume_id(inside: BorrowedFd<'_>) -> Result<u64, Errno> {
    // `struct btrfs_ioctl_get_subvol_info_args`, which begins with the number.
    let mut answer = [0_u64; 63];
    btrfs(Way::Read, 60).call(inside, &mut answer)?;
    Ok(answer[0])
}

/// Whether anything is left of the subvolume with that number. It goes some time after it was
/// taken away.
pub fn subvolume_is_left(anywhere: BorrowedFd<'_>, id: u64) -> Result<bool, Errno> {
    let (count, _) = search(anywhere, id, ROOT_ITEM, 0)?;
    Ok(count > 0)
}

/// Returns the numbers of subvolumes that were made somewhere in this one, from `least` on. There
/// may be more than one answer holds: ask again from the last one on.
pub fn subvolumes_within(anywhere: BorrowedFd<'_>, id: u64, least: u64) -> Result<Vec<u64>, Errno> {
    /// The head of each item: three numbers, then its kind and its length.
    const HEAD: usize = 32;
    let (count, found) = search(anywhere, id, ROOT_REF, least)?;
    let mut ids = Vec::new();
    let mut rest = found.as_slice();
    for _ in 0..count {
        let number = |at: usize| rest.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
        let length = |at: usize| rest.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let (Some(offset), Some(length)) = (number(16), length(28)) else { break };
        ids.push(offset);
        rest = rest.get(HEAD + length as usize..).unwrap_or_default();
    }
    Ok(ids)
}

fn search(
    anywhere: BorrowedFd<'_>,
    object: u64,
    kind: u32,
    least_offset: u64,
) -> Result<(u32, [u8; 3992]), Errno> {
    let mut argument = Search {
        tree: ROOT_TREE,
        least_object: object,
        most_object: object,
        least_offset,
        most_offset: u64::MAX,
        least_transaction: 0,
        most_transaction: u64::MAX,
        least_kind: kind,
        most_kind: kind,
        count: 64,
        unused: 0,
        unused_too: [0; 4],
        found: [0; 3992],
    };
    btrfs(Way::Both, 17).call(anywhere, &mut argument)?;
    Ok((argument.count, argument.found))
}

/// Returns the name of the file system in `/sys/fs/btrfs`.
pub fn id(anywhere: BorrowedFd<'_>) -> Result<String, Errno> {
    // `struct btrfs_ioctl_fs_info_args`, with the name after two numbers.
    let mut answer = [0_u64; 128];
    btrfs(Way::Read, 31).call(anywhere, &mut answer)?;
    let bytes = answer[2..4].iter().flat_map(|part| part.to_ne_bytes());
    let dash = |index| if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
    Ok(bytes.enumerate().map(|(index, byte)| format!("{}{byte:02x}", dash(index))).collect())
}

/// Lets the file system be as large as its device.
pub fn grow(anywhere: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut argument = NamedVolume { fd: 0, name: [0; 4088] };
    for (slot, byte) in argument.name.iter_mut().zip(*b"1:max") {
        *slot = byte;
    }
    btrfs(Way::Write, 3).call(anywhere, &mut argument).map(drop)
}

/// Begins to count, unless this file system counts already. In the simple way: an extent belongs to
/// who made it, and a subvolume made inside another counts for the groups of that one.
pub fn enable_simple_quota(anywhere: BorrowedFd<'_>) -> Result<(), Errno> {
    const ENABLE_SIMPLE: u64 = 4;
    btrfs(Way::Both, 40).call(anywhere, &mut [ENABLE_SIMPLE, 0]).map(drop)
}

/// Writes out what was done, and wakes up who clears what was taken away.
pub fn commit(anywhere: BorrowedFd<'_>) -> Result<(), Errno> {
    without_argument(anywhere, 8)
}

/// Waits until all that was taken away, and is in nobody's use, is cleared (since Linux 6.13).
pub fn wait_for_clearing(anywhere: BorrowedFd<'_>) -> Result<(), Errno> {
    // `struct btrfs_ioctl_subvol_wait`: a number that does not matter here, then what to wait for.
    const ALL_QUEUED: u32 = 1;
    let mut argument = [0_u32, 0, ALL_QUEUED, 0];
    btrfs(Way::Write, 65).call(anywhere, &mut argument).map(drop)
}

fn without_argument(anywhere: BorrowedFd<'_>, number: u8) -> Result<(), Errno> {
    let request = 0x94 << 8 | libc::Ioctl::from(number);
    // SAFETY: a request without an argument touches no memory of ours.
    check(unsafe { libc::ioctl(anywhere.as_raw_fd(), request) }.into()).map(drop)
}

/// Makes a group without members.
pub fn create_group(anywhere: BorrowedFd<'_>, group: Group) -> Result<(), Errno> {
    btrfs(Way::Write, 42).call(anywhere, &mut [1, group.0]).map(drop)
}

/// Removes a group. One that is in use is refused.
pub fn remove_group(anywhere: BorrowedFd<'_>, group: Group) -> Result<(), Errno> {
    btrfs(Way::Write, 42).call(anywhere, &mut [0, group.0]).map(drop)
}

/// Lets what `member` uses count for `group` too.
pub fn join_group(anywhere: BorrowedFd<'_>, member: Group, group: Group) -> Result<(), Errno> {
    btrfs(Way::Write, 41).call(anywhere, &mut [1, member.0, group.0]).map(drop)
}

/// Limits what the members of a group may use together.
pub fn limit_group(anywhere: BorrowedFd<'_>, group: Group, bytes: u64) -> Result<(), Errno> {
    const MAX_REFERENCED: u64 = 1;
    let mut argument = [group.0, MAX_REFERENCED, bytes, 0, 0, 0];
    // The kernel's header says "read", although it is written.
    btrfs(Way::Read, 43).call(anywhere, &mut argument).map(drop)
}
