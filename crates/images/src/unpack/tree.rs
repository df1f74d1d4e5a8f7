//! A directory tree that is only ever reached through one descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, XattrFlags, fchmod, fsetxattr, linkat,
        mkdirat, mknodat, openat, openat2, statat, symlinkat, unlinkat,
    },
    io::Errno,
};

use super::{
    Whiteouts,
    error::{UnpackError, cannot_write, shown},
    names::Place,
};

/// Beneath the root, through no link, and never onto another file system.
const ROOTED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The mode of directories that no entry describes.
const IMPLIED: Mode = Mode::from_raw_mode(0o755);

#[derive(Debug)]
pub(super) struct Tree<'fd> {
    root: BorrowedFd<'fd>,
    whiteouts: Whiteouts,
    /// The directory that was used last. The next entry is most often in the same one.
    last: Option<(Vec<u8>, OwnedFd)>,
}

impl<'fd> Tree<'fd> {
    pub(super) fn new(root: BorrowedFd<'fd>, whiteouts: Whiteouts) -> Self {
        Self { root, whiteouts, last: None }
    }

    /// Opens a directory, and makes it and those above it where they are missing. Returns how many.
    pub(super) fn make_way(&mut self, components: &[&[u8]]) -> Result<u64, UnpackError> {
        let path = components.join(&b'/');
        if self.last.as_ref().is_some_and(|(last, _)| *last == path) {
            return Ok(0);
        }
        let (directory, made) = match open_directory(self.root, &path) {
            Ok(directory) => (directory, 0),
            Err(_) => self.walk(components, &path)?,
        };
        self.last = Some((path, directory));
        Ok(made)
    }

    /// The directory that [`Self::make_way`] opened last.
    pub(super) fn way(&self) -> BorrowedFd<'_> {
        self.last.as_ref().map_or(self.root, |(_, directory)| directory.as_fd())
    }

    fn walk(&self, components: &[&[u8]], path: &[u8]) -> Result<(OwnedFd, u64), UnpackError> {
        let mut made = 0;
        let mut at = open_directory(self.root, b"").map_err(cannot_write(path))?;
        for component in components {
            at = match open_directory(at.as_fd(), component) {
                Ok(next) => next,
                Err(errno) => {
                    let is_whiteout = is_whiteout(at.as_fd(), component);
                    if errno != Errno::NOENT && !is_whiteout {
                        return Err(UnpackError::InTheWay(shown(path)));
                    }
                    made += 1;
                    self.make_directory(at.as_fd(), component).map_err(cannot_write(path))?;
                    let next = open_directory(at.as_fd(), component);
                    let next = next.map_err(cannot_write(path))?;
                    // The caller's mask may have taken bits away.
                    fchmod(&next, IMPLIED).map_err(cannot_write(path))?;
                    next
                }
            };
        }
        Ok((at, made))
    }

    /// Makes a directory where there is none. One that stands where the layers below were hidden
    /// hides them still.
    fn make_directory(&self, parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
        if is_whiteout(parent, name) {
            unlinkat(parent, name, AtFlags::empty())?;
            mkdirat(parent, name, IMPLIED)?;
            return self.hide_below(open_directory(parent, name)?.as_fd());
        }
        mkdirat(parent, name, IMPLIED)
    }

    /// Returns the directory at a place, which may be there already.
    pub(super) fn add_directory(&mut self, place: &Place<'_>) -> Result<OwnedFd, UnpackError> {
        let failed = |errno| place.cannot_write(errno);
        let parent = self.way();
        let is_directory = match kind_of(parent, place.last) {
            Some(FileType::Directory) => true,
            Some(_) if !is_whiteout(parent, place.last) => {
                unlinkat(parent, place.last, AtFlags::empty()).map_err(failed)?;
                false
            }
            _ => false,
        };
        if !is_directory {
            self.make_directory(parent, place.last).map_err(failed)?;
        }
        open_directory(parent, place.last).map_err(failed)
    }

    pub(super) fn add_file(&mut self, place: &Place<'_>) -> Result<OwnedFd, UnpackError> {
        const NEW: OFlags = OFlags::WRONLY
            .union(OFlags::CREATE)
            .union(OFlags::EXCL)
            .union(OFlags::NOFOLLOW)
            .union(OFlags::CLOEXEC);
        let mode = Mode::from_raw_mode(0o600);
        self.replacing(place, |parent| openat(parent, place.last, NEW, mode))
    }

    pub(super) fn add_symbolic_link(
        &mut self,
        place: &Place<'_>,
        target: &[u8],
    ) -> Result<(), UnpackError> {
        self.replacing(place, |parent| symlinkat(target, parent, place.last))
    }

    /// Links to a file of the same layer, never to one that a symbolic link leads to.
    pub(super) fn add_hard_link(
        &mut self,
        place: &Place<'_>,
        target: &Place<'_>,
    ) -> Result<(), UnpackError> {
        let no_file = || UnpackError::HardLink(shown(&place.path()));
        let from =
            open_directory(self.root, &target.parent.join(&b'/')).map_err(|_errno| no_file())?;
        match kind_of(from.as_fd(), target.last) {
            Some(FileType::RegularFile | FileType::Symlink) => {}
            _ => return Err(no_file()),
        }
        if place == target {
            return Ok(());
        }
        self.replacing(place, |parent| {
            linkat(&from, target.last, parent, place.last, AtFlags::empty())
        })
    }

    /// Hides what the layers below have at a place.
    pub(super) fn add_whiteout(&mut self, place: &Place<'_>) -> Result<(), UnpackError> {
        let failed = |errno| place.cannot_write(errno);
        let parent = self.way();
        match kind_of(parent, place.last) {
            // What the layer itself has here stays: a deletion is about the layers below.
            Some(FileType::Directory) => {
                let directory = open_directory(parent, place.last);
                directory.and_then(|it| self.hide_below(it.as_fd())).map_err(failed)
            }
            Some(_) => Ok(()),
            // The kernel lets anybody make this one device.
            None => mknodat(parent, place.last, FileType::CharacterDevice, Mode::empty(), 0)
                .map_err(failed),
        }
    }

    /// Hides what the layers below have in a directory.
    pub(super) fn hide_below(&self, directory: BorrowedFd<'_>) -> Result<(), Errno> {
        let name = match self.whiteouts {
            Whiteouts::Trusted => "trusted.overlay.opaque",
            Whiteouts::User => "user.overlay.opaque",
        };
        fsetxattr(directory, name, b"y", XattrFlags::empty())
    }

    pub(super) fn open_directory(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        open_directory(self.root, path)
    }

    /// Makes something new at a place, after what stands there. The later entry wins, but it never
    /// takes a whole directory with it.
    fn replacing<T>(
        &mut self,
        place: &Place<'_>,
        make: impl Fn(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Result<T, UnpackError> {
        match make(self.way()) {
            Err(Errno::EXIST) => {}
            made => return made.map_err(|errno| place.cannot_write(errno)),
        }
        let removed = match unlinkat(self.way(), place.last, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => unlinkat(self.way(), place.last, AtFlags::REMOVEDIR),
            removed => removed,
        };
        match removed {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                return Err(UnpackError::Replaced(shown(&place.path())));
            }
            removed => removed.map_err(|errno| place.cannot_write(errno))?,
        }
        make(self.way()).map_err(|errno| place.cannot_write(errno))
    }
}

fn open_directory(at: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    openat2(at, path, DIRECTORY, Mode::empty(), ROOTED)
}

fn stat(parent: BorrowedFd<'_>, name: &[u8]) -> Option<Stat> {
    statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).ok()
}

fn kind_of(parent: BorrowedFd<'_>, name: &[u8]) -> Option<FileType> {
    stat(parent, name).map(|it| FileType::from_raw_mode(it.st_mode))
}

/// The only devices in the tree are those that were made here.
fn is_whiteout(parent: BorrowedFd<'_>, name: &[u8]) -> bool {
    kind_of(parent, name) == Some(FileType::CharacterDevice)
}
