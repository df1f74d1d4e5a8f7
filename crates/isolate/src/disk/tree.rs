//! Removing a tree that a stranger has made.

use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd as _, BorrowedFd},
};

use rustix::{
    fs::{AtFlags, Dir, RenameFlags, renameat_with, unlinkat},
    io::Errno,
};

use super::ground::open_folder;

/// Returns what is in a directory.
pub(super) fn names(directory: BorrowedFd<'_>) -> Result<Vec<CString>, Errno> {
    let is_own = |name: &CStr| matches!(name.to_bytes(), b"." | b"..");
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !is_own(entry.file_name()) {
            found.push(entry.file_name().to_owned());
        }
    }
    Ok(found)
}

/// Removes a directory with everything in it, or what stands in its place; it may be gone already.
///
/// It may be deeper than any stack, and than descriptors can be open: so what is below is moved up
/// instead of being gone into. Each directory is moved once.
pub(crate) fn remove(at: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let top = match open_folder(at, name) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => return unlinkat(at, name, AtFlags::empty()),
        Err(errno) => return Err(errno),
    };
    let mut moved = 0_u64;
    loop {
        let found = names(top.as_fd())?;
        if found.is_empty() {
            break;
        }
        for entry in found {
            if !remove_one(top.as_fd(), &entry)? {
                empty(top.as_fd(), &entry, &mut moved)?;
            }
        }
    }
    match unlinkat(at, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Removes a file or an empty directory. `false`: it is a directory with something in it.
fn remove_one(at: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
    match unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    match unlinkat(at, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Empties a directory below `top`: files go, directories that are not empty move up.
fn empty(top: BorrowedFd<'_>, name: &CStr, moved: &mut u64) -> Result<(), Errno> {
    let directory = open_folder(top, name)?;
    for entry in names(directory.as_fd())? {
        if !remove_one(directory.as_fd(), &entry)? {
            move_up(directory.as_fd(), &entry, top, moved)?;
        }
    }
    Ok(())
}

fn move_up(
    from: BorrowedFd<'_>,
    name: &CStr,
    top: BorrowedFd<'_>,
    moved: &mut u64,
) -> Result<(), Errno> {
    loop {
        *moved += 1;
        let free = format!("moved-{moved}");
        match renameat_with(from, name, top, free.as_str(), RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            other => return other,
        }
    }
}
