//! File systems mounted in the namespace of the caller, without going by a path.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::{
    fs::{AtFlags, OFlags, StatxFlags, statx, unlinkat},
    io::{Errno, read},
    mount::{
        FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MoveMountFlags, UnmountFlags,
        fsconfig_create, fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fsmount,
        fsopen, fspick, move_mount, unmount,
    },
};

use super::{
    DiskError,
    ground::{failed, make_folder, open, open_folder},
};

/// A file system and how it is to be mounted. An option without a value is a flag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mount<'a> {
    pub(super) kind: &'a str,
    pub(super) source: &'a str,
    pub(super) options: &'a [(&'a str, &'a str)],
}

impl Mount<'_> {
    /// Mounts on a folder, which is made if it is not there, and opens the root.
    pub(super) fn on(self, at: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, DiskError> {
        make_folder(at, name)?;
        let here = open(at, name, OFlags::PATH | OFlags::DIRECTORY)
            .map_err(failed("open the mount point", name))?;
        let mount = self.make()?;
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&mount, "", &here, "", flags).map_err(failed("mount on", name))?;
        open_folder(at, name).map_err(failed("open the mounted", name))
    }

    fn make(self) -> Result<OwnedFd, DiskError> {
        let context = fsopen(self.kind, FsOpenFlags::FSOPEN_CLOEXEC)
            .map_err(failed("mount a file system of the kind", self.kind))?;
        let configure = || {
            fsconfig_set_string(&context, "source", self.source)?;
            for (key, value) in self.options {
                if value.is_empty() {
                    fsconfig_set_flag(&context, *key)?;
                } else {
                    fsconfig_set_string(&context, *key, *value)?;
                }
            }
            fsconfig_create(&context)?;
            let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
                | MountAttrFlags::MOUNT_ATTR_NOSUID
                | MountAttrFlags::MOUNT_ATTR_NOATIME;
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        };
        configure().map_err(|errno| DiskError::Mount {
            kind: self.kind.to_owned(),
            said: what_was_said(context.as_fd()),
            errno,
        })
    }
}

/// Changes options of the file system whose root this is.
pub(super) fn reconfigure(root: BorrowedFd<'_>, options: &[(&str, &str)]) -> Result<(), Errno> {
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
    let context = fspick(root, "", flags)?;
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value)?;
    }
    fsconfig_reconfigure(&context)
}

/// Reads why the kernel does not want to mount.
fn what_was_said(context: BorrowedFd<'_>) -> String {
    let mut said = Vec::new();
    let mut line = [0; 256];
    while let Ok(length @ 1..) = read(context, &mut line) {
        let line = String::from_utf8_lossy(line.get(..length).unwrap_or_default());
        // Each line begins with its weight: `e `, `w ` or `i `.
        said.push(line.trim().get(2..).unwrap_or_default().to_owned());
        if said.len() == 8 {
            break;
        }
    }
    said.join("; ")
}

/// Whether something is mounted on this folder.
pub(super) fn is_mounted(at: BorrowedFd<'_>, name: &str) -> Result<bool, DiskError> {
    use rustix::fs::StatxAttributes;
    match statx(at, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE) {
        Ok(found) => Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(failed("look at", name)(errno)),
    }
}

/// Takes away whatever is mounted on this folder, and the folder.
pub(super) fn remove(at: BorrowedFd<'_>, name: &str) -> Result<(), DiskError> {
    detach(at, name)?;
    match unlinkat(at, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(failed("remove the mount point", name)(errno)),
    }
}

/// Takes away whatever is mounted on this folder.
pub(super) fn detach(at: BorrowedFd<'_>, name: &str) -> Result<(), DiskError> {
    while is_mounted(at, name)? {
        // There is no call that takes a descriptor; this is the folder that we have open.
        let path = format!("/proc/self/fd/{}/{name}", at.as_raw_fd());
        unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
            .map_err(failed("unmount", name))?;
    }
    Ok(())
}
