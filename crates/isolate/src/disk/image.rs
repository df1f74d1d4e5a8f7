//! Volumes as an ext4 each, in a file of its own.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::{
    fs::{AtFlags, OFlags, RenameFlags, fstat, fstatvfs, ftruncate, renameat_with, unlinkat},
    io::{Errno, pread},
};

use super::{
    ByteCount, DiskError, DiskKind, DiskLimit, Kind, Usage, VolumeName, exists,
    ground::{
        self, Ground, MAKING, failed, leftovers_in, open, open_folder, remove_file, volumes_in,
    },
    loops::Device,
    missing,
    mounts::{self, Mount},
    programs::{MKFS_EXT4, RESIZE2FS},
};
use crate::sys::ext4::resize;

const FOLDER: &str = "images";
const MOUNTS: &str = "mounts";

const BLOCK: u64 = 4096;
/// The most blocks at the end of a file that may be left out, because a group of them would hold
/// nothing but its own tables.
const REST: u64 = 1024;

/// No space that is kept for root, an inode for each 16 KiB, and nothing written that is zero in a
/// new file anyway.
const ARGUMENTS: [&str; 6] =
    ["-qF", "-b4096", "-m0", "-i16384", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"];

/// The kernel need not clear tables of inodes that lie in a hole. What is deleted is given back.
const OPTIONS: [(&str, &str); 3] =
    [("discard", ""), ("noinit_itable", ""), ("errors", "remount-ro")];

/// The files, and the folder of mount points.
#[derive(Debug)]
pub(super) struct Images {
    files: OwnedFd,
    mounts: OwnedFd,
}

impl Images {
    pub(super) fn open(ground: &Ground) -> Result<Self, DiskError> {
        MKFS_EXT4.find()?;
        let images = Self { files: ground.folder(FOLDER)?, mounts: ground.folder(MOUNTS)? };
        for name in leftovers_in(images.files(), MAKING)? {
            remove_file(images.files(), &name)?;
        }
        // Mount points whose file is gone.
        for name in volumes_in(images.mounts.as_fd())? {
            if !ground::exists(images.files(), name.as_str())? {
                mounts::remove(images.mounts.as_fd(), name.as_str())?;
            }
        }
        Ok(images)
    }

    pub(super) fn are_there(ground: &Ground) -> Result<bool, DiskError> {
        Ok(!volumes_in(ground.folder(FOLDER)?.as_fd())?.is_empty())
    }

    fn files(&self) -> BorrowedFd<'_> {
        self.files.as_fd()
    }

    /// What the files of volumes may still take, and do not yet.
    fn promised(&self) -> Result<u64, DiskError> {
        let mut names = leftovers_in(self.files(), MAKING)?;
        names.extend(volumes_in(self.files())?.iter().map(|name| name.as_str().to_owned()));
        let mut sum = 0_u64;
        for name in names {
            match open(self.files(), name.as_str(), OFlags::PATH).and_then(fstat) {
                Ok(found) => {
                    let taken = found.st_blocks.unsigned_abs().saturating_mul(512);
                    sum = sum.saturating_add(found.st_size.unsigned_abs().saturating_sub(taken));
                }
                // Removed by another worker meanwhile.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed("look at", &name)(errno)),
            }
        }
        Ok(sum)
    }

    fn open_file(&self, name: &str) -> Result<OwnedFd, DiskError> {
        match open(self.files(), name, OFlags::RDWR) {
            Err(Errno::NOENT) => Err(missing(name)),
            other => other.map_err(failed("open", name)),
        }
    }

    /// Makes a file of that size with an ext4 in it, which does not have its name yet.
    fn make_unfinished(
        &self,
        ground: &Ground,
        name: &str,
        limit: ByteCount,
    ) -> Result<OwnedFd, DiskError> {
        remove_file(self.files(), name)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let file = {
            let _lock = ground.lock()?;
            ground.require_room(limit.0, self.promised()?)?;
            let file = open(self.files(), name, flags).map_err(failed("make", name))?;
            ftruncate(&file, limit.0).map_err(failed("enlarge", name))?;
            file
        };
        ground.after("image made");
        MKFS_EXT4.run(&ARGUMENTS, file.as_fd())?;
        ground.after("image formatted");
        Ok(file)
    }

    /// Mounts the file of a volume, unless that was done. It may be mounted elsewhere already.
    fn mount(&self, ground: &Ground, name: &str, file: &OwnedFd) -> Result<OwnedFd, DiskError> {
        // Two workers that find no device would make two.
        let _lock = ground.lock()?;
        if mounts::is_mounted(self.mounts.as_fd(), name)? {
            return open_folder(self.mounts.as_fd(), name).map_err(failed("open", name));
        }
        if is_smaller(file, name)? && Device::existing(file.as_fd())?.is_none() {
            self.enlarge_apart(ground, name, file)?;
        }
        let root = self.mount_as_it_is(ground, name, file)?;
        if is_smaller(file, name)? {
            match enlarge_mounted(&root, file) {
                // It stays as it is until nobody has it mounted.
                Ok(()) | Err(Errno::PERM) => {}
                Err(errno) => return Err(failed("enlarge", name)(errno)),
            }
        }
        Ok(root)
    }

    fn mount_as_it_is(
        &self,
        ground: &Ground,
        name: &str,
        file: &OwnedFd,
    ) -> Result<OwnedFd, DiskError> {
        let device = Device::over(file.as_fd())?;
        ground.after("image attached");
        let mount = Mount { kind: "ext4", source: &device.path, options: &OPTIONS };
        let root = mount.on(self.mounts.as_fd(), name)?;
        ground.after("image mounted");
        Ok(root)
    }

    /// Lets a file system that is mounted nowhere be as large as its file.
    fn enlarge_apart(&self, ground: &Ground, name: &str, file: &OwnedFd) -> Result<(), DiskError> {
        if RESIZE2FS.run(&["-f"], file.as_fd()).is_ok() {
            return Ok(());
        }
        // After a crash its journal must be gone through first, which the kernel does.
        drop(self.mount_as_it_is(ground, name, file)?);
        mounts::detach(self.mounts.as_fd(), name)?;
        RESIZE2FS.run(&["-f"], file.as_fd())
    }
}

fn size_of(file: &OwnedFd, name: &str) -> Result<u64, DiskError> {
    Ok(fstat(file).map_err(failed("look at", name))?.st_size.unsigned_abs())
}

/// Whether the file system has fewer blocks than its file, but for a rest that is too small to be
/// of use to it.
fn is_smaller(file: &OwnedFd, name: &str) -> Result<bool, DiskError> {
    /// Where the superblock is, and the two halves of the number of blocks in it.
    const SUPERBLOCK: u64 = 1024;
    let half = |offset| {
        let mut bytes = [0; 4];
        let read = pread(file, &mut bytes, SUPERBLOCK + offset);
        read.map(|_| u64::from(u32::from_le_bytes(bytes))).map_err(failed("read", name))
    };
    let blocks = half(0x150)? << 32 | half(4)?;
    Ok(blocks + REST < size_of(file, name)? / BLOCK)
}

/// Lets a mounted file system be as large as its file. That needs `CAP_SYS_RESOURCE`.
fn enlarge_mounted(root: &OwnedFd, file: &OwnedFd) -> Result<(), Errno> {
    resize(root.as_fd(), fstat(file)?.st_size.unsigned_abs() / BLOCK)
}

impl Kind for Images {
    fn make(&self, ground: &Ground, name: &str, limit: DiskLimit) -> Result<OwnedFd, DiskError> {
        let unfinished = format!("{MAKING}{name}");
        let file = self.make_unfinished(ground, &unfinished, limit.bytes())?;
        let (from, to) = (unfinished.as_str(), name);
        match renameat_with(self.files(), from, self.files(), to, RenameFlags::NOREPLACE) {
            Ok(()) => ground.after("image named"),
            Err(Errno::EXIST) => {
                remove_file(self.files(), &unfinished)?;
                return Err(exists(name));
            }
            Err(errno) => return Err(failed("name", name)(errno)),
        }
        let mounted = self.mount(ground, name, &file);
        if mounted.is_err() {
            self.remove(ground, name)?;
        }
        let root = mounted?;
        match unlinkat(&root, "lost+found", AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(root),
            Err(errno) => Err(failed("empty", name)(errno)),
        }
    }

    fn open_volume(&self, ground: &Ground, name: &str) -> Result<OwnedFd, DiskError> {
        self.mount(ground, name, &self.open_file(name)?)
    }

    fn set_limit(&self, ground: &Ground, name: &str, limit: ByteCount) -> Result<(), DiskError> {
        let file = self.open_file(name)?;
        let before = {
            let _lock = ground.lock()?;
            let size = size_of(&file, name)?;
            if limit.0 < size {
                return Err(DiskError::CannotShrink { kind: DiskKind::Image });
            }
            ground.require_room(limit.0 - size, self.promised()?)?;
            ftruncate(&file, limit.0).map_err(failed("enlarge", name))?;
            size
        };
        ground.after("image enlarged");
        let Some(device) = Device::existing(file.as_fd())? else {
            // The file system follows when it is mounted.
            return Ok(());
        };
        device.take_size_of_file()?;
        ground.after("image device enlarged");
        let root = self.open_volume(ground, name)?;
        match enlarge_mounted(&root, &file) {
            Err(Errno::PERM) => {}
            other => return other.map_err(failed("enlarge", name)),
        }
        // Without the right for that, it is done while nobody has it mounted.
        drop((root, device));
        mounts::detach(self.mounts.as_fd(), name)?;
        self.mount(ground, name, &file)?;
        if !is_smaller(&file, name)? {
            return Ok(());
        }
        ftruncate(&file, before).map_err(failed("shrink", name))?;
        Device::over(file.as_fd())?;
        Err(DiskError::Busy { name: name.to_owned() })
    }

    fn usage(&self, ground: &Ground, name: &str) -> Result<Usage, DiskError> {
        let root = self.open_volume(ground, name)?;
        let there = fstatvfs(&root).map_err(failed("look at", name))?;
        let size = size_of(&self.open_file(name)?, name)?;
        let used = there.f_blocks.saturating_sub(there.f_bfree).saturating_mul(there.f_frsize);
        Ok(Usage { bytes: ByteCount(used), limit: Some(ByteCount(size)) })
    }

    fn remove(&self, ground: &Ground, name: &str) -> Result<(), DiskError> {
        remove_file(self.files(), &format!("{MAKING}{name}"))?;
        mounts::remove(self.mounts.as_fd(), name)?;
        ground.after("image unmounted");
        remove_file(self.files(), name)
    }

    fn names(&self, _ground: &Ground) -> Result<Vec<VolumeName>, DiskError> {
        volumes_in(self.files())
    }
}
