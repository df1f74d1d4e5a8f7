//! The programs of others that make file systems and enlarge them.

use std::{
    os::fd::{AsRawFd as _, BorrowedFd},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::DiskError;

/// A program, and the package that has it in Debian and Ubuntu.
#[derive(Clone, Copy, Debug)]
pub(super) struct Maker {
    pub(super) name: &'static str,
    pub(super) package: &'static str,
}

pub(super) const MKFS_BTRFS: Maker = Maker { name: "mkfs.btrfs", package: "btrfs-progs" };
pub(super) const MKFS_EXT4: Maker = Maker { name: "mkfs.ext4", package: "e2fsprogs" };
pub(super) const RESIZE2FS: Maker = Maker { name: "resize2fs", package: "e2fsprogs" };

/// Where a program that is run with all rights may come from, whatever our own `PATH` says.
const PLACES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

impl Maker {
    pub(super) fn find(self) -> Result<PathBuf, DiskError> {
        let found = PLACES.iter().map(|place| Path::new(place).join(self.name));
        found
            .into_iter()
            .find(|path| path.is_file())
            .ok_or(DiskError::NoProgram { name: self.name, package: self.package })
    }

    /// Works on the file system in this file.
    pub(super) fn run(self, arguments: &[&str], file: BorrowedFd<'_>) -> Result<(), DiskError> {
        let failed = |said: String| DiskError::Program { name: self.name, said };
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let output = Command::new(self.find()?)
            .args(arguments)
            .arg(path)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()
            .map_err(|error| failed(error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        Err(failed(format!("{}: {}", output.status, said.join("; "))))
    }
}
