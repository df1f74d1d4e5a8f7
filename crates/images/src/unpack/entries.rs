//! Adds the entries of a layer to the tree, one by one, within the limits.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Write as _},
    os::fd::{AsFd, BorrowedFd},
};

use rustix::{
    fs::{
        AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags, chownat, fchmod,
        fchown, fsetxattr, futimens, utimensat,
    },
    io::Errno,
};

use super::{
    LeftOut, Owners, Rules,
    error::{Limit, UnpackError, cannot_write, limit_in, shown},
    names::{self, Asked, Place},
    tree::Tree,
};
use crate::archive::{ArchiveError, Entry, EntryKind, Modified};

const BUFFER: usize = 128 << 10;

/// Where a sandbox mounts file systems of its own. A link here would send them elsewhere.
const MOUNT_POINTS: [&[u8]; 3] = [b"dev", b"proc", b"sys"];

const SET_IDS: u32 = 0o6000;

pub(super) struct Unpacking<'fd> {
    rules: Rules,
    tree: Tree<'fd>,
    entries: u64,
    bytes: u64,
    left_out: LeftOut,
    /// What directories are to be like in the end. Until then they can be written to, and every new
    /// entry would change their times.
    directories: BTreeMap<Vec<u8>, Attributes>,
    directory_bytes: usize,
    buffer: Vec<u8>,
}

struct Attributes {
    owner: Option<(Uid, Gid)>,
    mode: Mode,
    modified: Modified,
}

impl<'fd> Unpacking<'fd> {
    pub(super) fn new(target: BorrowedFd<'fd>, rules: &Rules) -> Self {
        Self {
            rules: *rules,
            tree: Tree::new(target, rules.whiteouts),
            entries: 0,
            bytes: 0,
            left_out: LeftOut::default(),
            directories: BTreeMap::new(),
            directory_bytes: 0,
            buffer: vec![0; BUFFER],
        }
    }

    pub(super) fn add(&mut self, entry: &Entry, data: &mut impl Read) -> Result<(), UnpackError> {
        self.count(1)?;
        self.check_xattrs(entry)?;
        match names::asked(&entry.name, self.rules.limits.depth)? {
            Asked::Nothing => Ok(()),
            Asked::Root => self.add_root(entry),
            Asked::Opaque(directory) => {
                self.make_way(&directory)?;
                self.tree.hide_below(self.tree.way()).map_err(cannot_write(&entry.name))
            }
            Asked::Whiteout(place) => {
                self.make_way(&place.parent)?;
                self.tree.add_whiteout(&place)
            }
            Asked::Entry(place) => self.add_entry(entry, &place, data),
        }
    }

    fn add_root(&mut self, entry: &Entry) -> Result<(), UnpackError> {
        if entry.kind != EntryKind::Directory {
            return Err(UnpackError::Name(shown(&entry.name)));
        }
        self.remember_directory(Vec::new(), entry)
    }

    fn add_entry(
        &mut self,
        entry: &Entry,
        place: &Place<'_>,
        data: &mut impl Read,
    ) -> Result<(), UnpackError> {
        check_kind(entry, place)?;
        if matches!(entry.kind, EntryKind::Fifo) || is_device(entry) {
            self.left_out.special_files += 1;
            return Ok(());
        }
        self.make_way(&place.parent)?;
        match &entry.kind {
            EntryKind::File => self.add_file(entry, place, data),
            EntryKind::Directory => self.add_directory(entry, place),
            EntryKind::SymbolicLink { target } => self.add_symbolic_link(entry, place, target),
            EntryKind::HardLink { target } => self.add_hard_link(place, target),
            EntryKind::CharacterDevice | EntryKind::BlockDevice | EntryKind::Fifo => Ok(()),
        }
    }

    fn add_file(
        &mut self,
        entry: &Entry,
        place: &Place<'_>,
        data: &mut impl Read,
    ) -> Result<(), UnpackError> {
        let owner = self.owner(entry)?;
        let mut file = File::from(self.tree.add_file(place)?);
        self.copy(entry, data, &mut file)?;
        let attributes =
            Attributes { owner, mode: self.file_mode(entry), modified: entry.modified };
        self.set_xattrs(file.as_fd(), entry)?;
        attributes.set(file.as_fd()).map_err(cannot_write(&entry.name))
    }

    fn copy(
        &mut self,
        entry: &Entry,
        data: &mut impl Read,
        file: &mut File,
    ) -> Result<(), UnpackError> {
        loop {
            let count = data.read(&mut self.buffer).map_err(broken)?;
            if count == 0 {
                return Ok(());
            }
            let piece = self.buffer.get(..count).unwrap_or_default();
            file.write_all(piece)
                .map_err(|source| UnpackError::Write { name: shown(&entry.name), source })?;
            self.bytes += count as u64;
        }
    }

    fn add_directory(&mut self, entry: &Entry, place: &Place<'_>) -> Result<(), UnpackError> {
        let directory = self.tree.add_directory(place)?;
        self.set_xattrs(directory.as_fd(), entry)?;
        self.remember_directory(place.path(), entry)
    }

    fn add_symbolic_link(
        &mut self,
        entry: &Entry,
        place: &Place<'_>,
        target: &[u8],
    ) -> Result<(), UnpackError> {
        if target.is_empty() || target.contains(&0) {
            return Err(UnpackError::Name(shown(&entry.name)));
        }
        let owner = self.owner(entry)?;
        self.tree.add_symbolic_link(place, target)?;
        self.left_out.xattrs += entry.xattrs.len() as u64;
        let parent = self.tree.way();
        let set = || {
            let nofollow = AtFlags::SYMLINK_NOFOLLOW;
            if let Some((uid, gid)) = owner {
                chownat(parent, place.last, Some(uid), Some(gid), nofollow)?;
            }
            utimensat(parent, place.last, &times(entry.modified), nofollow)
        };
        set().map_err(cannot_write(&entry.name))
    }

    fn add_hard_link(&mut self, place: &Place<'_>, target: &[u8]) -> Result<(), UnpackError> {
        let Some(target) = names::place(target, self.rules.limits.depth)? else {
            return Err(UnpackError::HardLink(shown(&place.path())));
        };
        self.tree.add_hard_link(place, &target)
    }

    fn make_way(&mut self, components: &[&[u8]]) -> Result<(), UnpackError> {
        let made = self.tree.make_way(components)?;
        self.count(made)
    }

    fn count(&mut self, more: u64) -> Result<(), UnpackError> {
        self.entries += more;
        let limit = self.rules.limits.entries;
        if self.entries > limit {
            return Err(UnpackError::TooLarge(Limit::Entries(limit)));
        }
        Ok(())
    }

    fn remember_directory(&mut self, path: Vec<u8>, entry: &Entry) -> Result<(), UnpackError> {
        let mode = Mode::from_raw_mode(entry.mode & !0o4000);
        let attributes = Attributes { owner: self.owner(entry)?, mode, modified: entry.modified };
        let size = path.len() + size_of::<Attributes>();
        if self.directories.insert(path, attributes).is_none() {
            self.directory_bytes += size;
        }
        let limit = self.rules.limits.directories;
        if self.directory_bytes > limit {
            return Err(UnpackError::TooLarge(Limit::Directories(limit)));
        }
        Ok(())
    }

    fn owner(&self, entry: &Entry) -> Result<Option<(Uid, Gid)>, UnpackError> {
        let below = match self.rules.owners {
            Owners::Caller => return Ok(None),
            Owners::Kept { below } => below,
        };
        let fit = |id: u64| {
            let number = u32::try_from(id).ok().filter(|number| *number < below);
            number.ok_or_else(|| UnpackError::Owner { name: shown(&entry.name), id, below })
        };
        Ok(Some((Uid::from_raw(fit(entry.uid)?), Gid::from_raw(fit(entry.gid)?))))
    }

    /// No sandbox obeys these bits, and nobody outside one should be able to.
    fn file_mode(&mut self, entry: &Entry) -> Mode {
        if entry.mode & SET_IDS != 0 {
            self.left_out.set_id_bits += 1;
        }
        Mode::from_raw_mode(entry.mode & !SET_IDS)
    }

    fn check_xattrs(&self, entry: &Entry) -> Result<(), UnpackError> {
        let size: usize = entry.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
        let limit = self.rules.limits.xattrs;
        if size > limit {
            return Err(UnpackError::TooLarge(Limit::Xattrs(limit)));
        }
        Ok(())
    }

    fn set_xattrs(&mut self, file: BorrowedFd<'_>, entry: &Entry) -> Result<(), UnpackError> {
        for (name, value) in &entry.xattrs {
            let is_kept = name.starts_with(b"user.") && !name.starts_with(b"user.overlay.");
            let set = if is_kept && !name.contains(&0) {
                fsetxattr(file, name.as_slice(), value, XattrFlags::empty())
            } else {
                Err(Errno::NOTSUP)
            };
            match set {
                Err(Errno::NOTSUP) => self.left_out.xattrs += 1,
                set => set.map_err(cannot_write(&entry.name))?,
            }
        }
        Ok(())
    }

    /// Gives directories what was said about them, the inner ones first: an outer one may then no
    /// longer let the caller in.
    pub(super) fn finish(self) -> Result<(u64, u64, LeftOut), UnpackError> {
        for (path, attributes) in self.directories.iter().rev() {
            match self.tree.open_directory(path) {
                Ok(directory) => attributes.set(directory.as_fd()).map_err(cannot_write(path))?,
                // A later entry took its place.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(cannot_write(path)(errno)),
            }
        }
        Ok((self.entries, self.bytes, self.left_out))
    }
}

impl Attributes {
    /// The owner comes first: giving a file away takes bits of its mode.
    fn set(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        if let Some((uid, gid)) = self.owner {
            fchown(file, Some(uid), Some(gid))?;
        }
        fchmod(file, self.mode)?;
        futimens(file, &times(self.modified))
    }
}

fn times(modified: Modified) -> Timestamps {
    let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let modified = Timespec { tv_sec: modified.seconds, tv_nsec: i64::from(modified.nanoseconds) };
    Timestamps { last_access: omitted, last_modification: modified }
}

fn check_kind(entry: &Entry, place: &Place<'_>) -> Result<(), UnpackError> {
    // Archives of whole systems have a `dev`. A sandbox has its own, so that it is no loss.
    if is_device(entry) && place.parent.first() != Some(&&b"dev"[..]) {
        return Err(UnpackError::Device(shown(&entry.name)));
    }
    let is_mount_point = place.parent.is_empty() && MOUNT_POINTS.contains(&place.last);
    if is_mount_point && entry.kind != EntryKind::Directory {
        return Err(UnpackError::MountPoint(shown(&entry.name)));
    }
    Ok(())
}

fn is_device(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::CharacterDevice | EntryKind::BlockDevice)
}

fn broken(error: std::io::Error) -> UnpackError {
    match limit_in(&error) {
        Some(limit) => UnpackError::TooLarge(limit),
        None if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            UnpackError::Archive(ArchiveError::Truncated)
        }
        None => UnpackError::Archive(ArchiveError::Read(error)),
    }
}
