//! Opens what a caller names, beneath what an operator allows.

use std::{fs::File, io, os::fd::OwnedFd, path::Path};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

/// Opens a file or a directory for reading. Symbolic links may lead anywhere beneath the prefix and
/// nowhere else, so that what is opened is what the prefix allows. It never waits, as for a pipe.
pub fn open(prefix: &Path, path: &Path) -> io::Result<OwnedFd> {
    let Ok(rest) = path.strip_prefix(prefix) else {
        return Err(io::ErrorKind::PermissionDenied.into());
    };
    let rest = if rest.as_os_str().is_empty() { Path::new(".") } else { rest };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let rooted = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(File::open(prefix)?, rest, flags, Mode::empty(), rooted)?)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn links_lead_nowhere_but_beneath_the_prefix() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("allowed");
        fs::create_dir(&prefix).unwrap();
        fs::write(prefix.join("image"), "x").unwrap();
        fs::write(folder.path().join("secret"), "x").unwrap();
        symlink("image", prefix.join("inside")).unwrap();
        symlink("../secret", prefix.join("up")).unwrap();
        symlink(folder.path().join("secret"), prefix.join("absolute")).unwrap();
        symlink("/proc/self/root", prefix.join("magic")).unwrap();
        let rows = [
            ("allowed", true),
            ("allowed/image", true),
            ("allowed/inside", true),
            ("allowed/up", false),
            ("allowed/absolute", false),
            ("allowed/magic", false),
            ("secret", false),
            ("allowed/missing", false),
        ];
        for (path, expected) in rows {
            assert_eq!(open(&prefix, &folder.path().join(path)).is_ok(), expected, "{path}");
        }
    }
}
