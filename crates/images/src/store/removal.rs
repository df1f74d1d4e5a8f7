//! Deletes trees of any depth with a fixed number of descriptors and no stack.

use std::{
    ffi::CString,
    fs::File,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, RenameFlags, chmodat, openat, renameat_with, unlinkat},
    io::Errno,
};

use super::session::random;

/// How many names are held in memory at once.
const BATCH: usize = 1024;

/// Deletes all that is in a folder. Others may be doing the same.
///
/// A directory inside a directory is moved up into the folder, so that nothing is ever deep.
pub fn empty(folder: &Path) -> io::Result<()> {
    let folder = File::open(folder)?;
    loop {
        let names = batch(folder.as_fd())?;
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            gone(remove(folder.as_fd(), &name))?;
        }
    }
}

fn remove(folder: BorrowedFd<'_>, name: &CString) -> Result<(), Errno> {
    match unlinkat(folder, name.as_c_str(), AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        removed => return removed,
    }
    let directory = open(folder, name)?;
    loop {
        let inner = batch(directory.as_fd())?;
        if inner.is_empty() {
            break;
        }
        for inner in inner {
            gone_errno(remove_or_move_up(directory.as_fd(), &inner, folder))?;
        }
    }
    unlinkat(folder, name.as_c_str(), AtFlags::REMOVEDIR)
}

fn remove_or_move_up(
    directory: BorrowedFd<'_>,
    name: &CString,
    folder: BorrowedFd<'_>,
) -> Result<(), Errno> {
    let name = name.as_c_str();
    match unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        removed => return removed,
    }
    match unlinkat(directory, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        removed => return removed,
    }
    // Moving a directory changes what `..` is in it, so that one must be allowed to write to it.
    chmodat(directory, name, Mode::RWXU, AtFlags::empty())?;
    renameat_with(directory, name, folder, random(), RenameFlags::NOREPLACE)
}

/// Opens a directory so that its entries can be deleted, whatever its mode was.
fn open(folder: BorrowedFd<'_>, name: &CString) -> Result<OwnedFd, Errno> {
    const DIRECTORY: OFlags =
        OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    chmodat(folder, name.as_c_str(), Mode::RWXU, AtFlags::empty())?;
    openat(folder, name.as_c_str(), DIRECTORY, Mode::empty())
}

fn batch(directory: BorrowedFd<'_>) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
        if names.len() >= BATCH {
            break;
        }
    }
    Ok(names)
}

/// What another has deleted meanwhile is as well gone.
fn gone(result: Result<(), Errno>) -> io::Result<()> {
    gone_errno(result).map_err(io::Error::from)
}

fn gone_errno(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn a_tree_deeper_than_any_path_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let mut at: OwnedFd = File::open(folder.path()).unwrap().into();
        for _ in 0..2500 {
            rustix::fs::mkdirat(&at, c"d", Mode::RWXU).unwrap();
            drop(openat(&at, c"file", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap());
            at = openat(&at, c"d", OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
        }
        empty(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn directories_that_let_nobody_in_are_deleted_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (trash, kept) = (folder.path().join("trash"), folder.path().join("kept"));
        fs::create_dir_all(trash.join("a/b/c")).unwrap();
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("precious"), "x").unwrap();
        std::os::unix::fs::symlink(&kept, trash.join("link")).unwrap();
        std::os::unix::fs::symlink(&kept, trash.join("a/b/link")).unwrap();
        for path in ["a/b", "a"] {
            fs::set_permissions(trash.join(path), fs::Permissions::from_mode(0o000)).unwrap();
        }
        empty(&trash).unwrap();
        assert_eq!(fs::read_dir(&trash).unwrap().count(), 0);
        assert!(kept.join("precious").exists());
    }
}
