//! Copies a file or folder of the machine into the sandbox. It is read through a mount in which the
//! caller owns what he owns and nobody else owns anything, so with no more rights than his.

use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, chownat,
        fchmod, fchown, fstat, futimens, mkdirat, openat, readlinkat, statat, symlinkat, unlinkat,
    },
    io::Errno,
};

use super::patterns::{Excluded, Ignored};
use crate::{
    paths::{BringIn, Kind, MAX_BYTES, MAX_DEPTH, MAX_ENTRIES, Problem},
    plan::{INSIDE_USER, Identity},
};

/// Copies what `source` is into `target`, which is of the same kind and there.
pub(super) fn copy(
    copy: &BringIn,
    source: &OwnedFd,
    target: &OwnedFd,
    identity: Identity,
) -> Result<(), Problem> {
    let ignore = match copy.kind {
        Kind::Folder => read_ignore(source),
        Kind::File => Vec::new(),
    };
    let mut copying = Copying {
        excluded: Excluded(&copy.exclude),
        ignored: Ignored::read(&ignore),
        identity,
        entries: 0,
        bytes: 0,
    };
    match copy.kind {
        Kind::Folder => {
            let source = openat(source, ".", FOLDER, Mode::empty())?;
            let target = openat(target, ".", FOLDER, Mode::empty())?;
            copying.folder(&source, &target, &mut Vec::new(), 0)?;
            copying.finish(&target, &fstat(&source)?)?;
        }
        Kind::File => {
            let source = openat(CWD, again(source), READ, Mode::empty())?;
            let target = openat(CWD, again(target), WRITE, Mode::empty())?;
            copying.file(&source, &target)?;
        }
    }
    Ok(())
}

const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
const WRITE: OFlags = OFlags::WRONLY.union(OFlags::TRUNC).union(OFlags::CLOEXEC);

fn again(opened: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", opened.as_raw_fd())
}

/// Reads the rules in the folder itself, as far as there are any and they are of a sensible size.
fn read_ignore(source: &OwnedFd) -> Vec<u8> {
    const LONGEST: usize = 1 << 20;
    let mut text = Vec::with_capacity(4096);
    let Ok(file) = openat(source, ".gitignore", READ | OFlags::NOFOLLOW, Mode::empty()) else {
        return text;
    };
    while text.len() < LONGEST
        && matches!(rustix::io::read(&file, rustix::buffer::spare_capacity(&mut text)), Ok(1..))
    {
        text.reserve(4096);
    }
    text
}

struct Copying<'text> {
    excluded: Excluded<'text>,
    ignored: Ignored<'text>,
    identity: Identity,
    entries: u64,
    bytes: u64,
}

impl Copying<'_> {
    /// Copies what is in a folder. `path` is that of the folder, below the source.
    fn folder(
        &mut self,
        source: &OwnedFd,
        target: &OwnedFd,
        path: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), Problem> {
        if depth > MAX_DEPTH {
            return Err(Problem::TooMany);
        }
        let length = path.len();
        for entry in Dir::read_from(source)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if length > 0 {
                path.push(b'/');
            }
            path.extend(name.to_bytes());
            if !self.excluded.has(path) {
                self.entry(source, target, name, path, depth)?;
            }
            path.truncate(length);
        }
        Ok(())
    }

    fn entry(
        &mut self,
        source: &OwnedFd,
        target: &OwnedFd,
        name: &std::ffi::CStr,
        path: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), Problem> {
        self.entries += 1;
        if self.entries > MAX_ENTRIES {
            return Err(Problem::TooMany);
        }
        let at = |errno: Errno| Problem::Inside(shown(path), errno.raw_os_error());
        let stat = statat(source, name, AtFlags::SYMLINK_NOFOLLOW).map_err(at)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let from = openat(source, name, FOLDER, Mode::empty()).map_err(at)?;
                match mkdirat(target, name, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(at(errno)),
                }
                let to = openat(target, name, FOLDER, Mode::empty()).map_err(at)?;
                self.folder(&from, &to, path, depth + 1)?;
                let at = |errno: Errno| Problem::Inside(shown(path), errno.raw_os_error());
                self.finish(&to, &stat).map_err(at)
            }
            FileType::RegularFile => {
                let from = openat(source, name, READ | OFlags::NOFOLLOW, Mode::empty());
                let flags = WRITE | OFlags::CREATE | OFlags::NOFOLLOW;
                let to = openat(target, name, flags, Mode::RUSR | Mode::WUSR).map_err(at)?;
                match self.file(&from.map_err(at)?, &to) {
                    Err(Problem::System(errno)) => Err(Problem::Inside(shown(path), errno)),
                    other => other,
                }
            }
            FileType::Symlink => {
                let leads_to = readlinkat(source, name, Vec::new()).map_err(at)?;
                if !stays_inside(path, leads_to.to_bytes()) {
                    let is_ignored = self.ignored.has(path);
                    return if is_ignored {
                        Ok(())
                    } else {
                        Err(Problem::LinkOutside(shown(path)))
                    };
                }
                match unlinkat(target, name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => return Err(at(errno)),
                }
                symlinkat(leads_to, target, name).map_err(at)?;
                let Some((user, group)) = self.owner() else { return Ok(()) };
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                chownat(target, name, Some(user), Some(group), flags).map_err(at)
            }
            _ => Err(Problem::Special(shown(path))),
        }
    }

    fn file(&mut self, source: &OwnedFd, target: &OwnedFd) -> Result<(), Problem> {
        let stat = fstat(source)?;
        let mut buffer = vec![0; 128 * 1024];
        loop {
            let length = rustix::io::read(source, &mut buffer)?;
            if length == 0 {
                break;
            }
            // A file may grow for as long as it is read.
            self.bytes += length as u64;
            if self.bytes > MAX_BYTES {
                return Err(Problem::TooLarge);
            }
            let mut rest = buffer.get(..length).unwrap_or_default();
            while !rest.is_empty() {
                let written = rustix::io::write(target, rest)?;
                rest = rest.get(written..).unwrap_or_default();
            }
        }
        Ok(self.finish(target, &stat)?)
    }

    /// Gives what was copied its mode, its owner and its time. Programs keep no rights of their own.
    fn finish(&self, target: &OwnedFd, stat: &Stat) -> Result<(), Errno> {
        fchmod(target, Mode::from_raw_mode(stat.st_mode & 0o777))?;
        if let Some((user, group)) = self.owner() {
            fchown(target, Some(user), Some(group))?;
        }
        let time = Timespec {
            tv_sec: stat.st_mtime,
            tv_nsec: i64::try_from(stat.st_mtime_nsec).unwrap_or_default(),
        };
        futimens(target, &Timestamps { last_access: time, last_modification: time })
    }

    fn owner(&self) -> Option<(Uid, Gid)> {
        match self.identity {
            Identity::Apart => Some((Uid::from_raw(INSIDE_USER), Gid::from_raw(INSIDE_USER))),
            Identity::Shared => None,
        }
    }
}

/// Whether a link leads to something below the source, by its text: it is copied and never followed.
fn stays_inside(path: &[u8], leads_to: &[u8]) -> bool {
    if leads_to.starts_with(b"/") {
        return false;
    }
    let mut depth = path.split(|byte| *byte == b'/').count() - 1;
    for part in leads_to.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return false,
            },
            _ => depth += 1,
        }
    }
    true
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_stays_inside_by_its_text() {
        let rows = [
            ("a", "b", true),
            ("a", "./b/../c", true),
            ("a", "..", false),
            ("d/a", "../b", true),
            ("d/a", "../../b", false),
            ("a", "/etc/passwd", false),
            ("d/e/a", "../../x/y", true),
        ];
        for (path, leads_to, expected) in rows {
            let inside = stays_inside(path.as_bytes(), leads_to.as_bytes());
            assert_eq!(inside, expected, "{path} {leads_to}");
        }
    }
}
