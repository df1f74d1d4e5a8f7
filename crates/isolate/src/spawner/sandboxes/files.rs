//! The folder of sandboxes, and that of each.
//!
//! They belong to the spawner; the daemon can read them and change nothing. It owns the data
//! directory around them, though, and could put something else in their place: so nothing here
//! follows a link, and what belongs to somebody else is refused.

use std::{
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, Gid, Mode, OFlags, ResolveFlags, Uid, chmodat, chownat, fchmod, fchown,
        fstat, mkdirat, openat, openat2, renameat, statat, unlinkat,
    },
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with},
};

use crate::{disk::tree, sandbox::folder, sys};

/// The folder in which each sandbox has its own.
#[derive(Debug)]
pub(super) struct Folder {
    at: OwnedFd,
    /// The group of the daemon. Without a range of ids everything is the one user's.
    daemon: Option<u32>,
}

/// Where those have their folders that wait for a sandbox to be made of them.
const WAITING: &str = ".waiting";

/// Modes of what the supervisor writes and the daemon, whose group it has, reads. Other users of the machine
/// could read the output of every command. Files in the folder of outputs inherit its group.
const FOLDER: u32 = 0o750;
const OUTPUTS: u32 = 0o2750;
const OUTPUT: u32 = 0o640;

/// Which boot of the machine the last server was of.
const BOOT: &str = ".boot";

/// What a sandbox is made of on disk, open.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) outputs: OwnedFd,
    pub(super) journal: OwnedFd,
    pub(super) socket: OwnedFd,
}

/// Who things belong to. Without a range of ids everything is the one user's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owners {
    pub(super) supervisor: Option<u32>,
    pub(super) daemon: Option<u32>,
}

pub(super) const DIRECTORY: OFlags =
    OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);

impl Folder {
    /// Opens the folder, which is made if it is not there.
    pub(super) fn open(path: &Path, daemon: Option<u32>) -> Result<Self, Errno> {
        match mkdirat(CWD, path, Mode::from_raw_mode(FOLDER)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(other) => return Err(other),
        }
        let at = openat(CWD, path, DIRECTORY, Mode::empty())?;
        check_owner(&at)?;
        fchown(&at, None, daemon.map(Gid::from_raw))?;
        // Whatever the umask is: the daemon looks in here.
        fchmod(&at, Mode::from_raw_mode(FOLDER))?;
        let folder = Self { at, daemon };
        folder.make_shared(WAITING)?;
        Ok(folder)
    }

    /// Makes a folder that the daemon can look into, if it is not there.
    fn make_shared(&self, name: &str) -> Result<(), Errno> {
        make_folder(&self.at, name, FOLDER)?;
        let group = self.daemon.map(Gid::from_raw);
        chownat(&self.at, name, None, group, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Writes down which boot of the machine this is. Returns whether another one, or none, was written down.
    pub(super) fn note_boot(&self, boot: &[u8]) -> Result<bool, Errno> {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.at, BOOT, flags, Mode::from_raw_mode(0o600))?;
        let mut before = [0; 64];
        let length = rustix::io::pread(&file, &mut before, 0)?;
        if before.get(..length) == Some(boot) {
            return Ok(false);
        }
        rustix::fs::ftruncate(&file, 0)?;
        rustix::io::pwrite(&file, boot, 0)?;
        Ok(true)
    }

    /// Names those that wait for a sandbox, of whatever server.
    pub(super) fn waiting(&self) -> Vec<String> {
        openat(&self.at, WAITING, DIRECTORY, Mode::empty())
            .map_or_else(|_| Vec::new(), |at| names(&at))
    }

    /// Opens the folder of one that waits, which is made if it is not there.
    pub(super) fn begin_waiting(&self, name: &str) -> Result<OwnedFd, Errno> {
        self.make_shared(&waiting(name))?;
        self.sandbox(&waiting(name))
    }

    /// Opens what is noted of one that waits.
    pub(super) fn open_waiting(&self, name: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(self.sandbox(&waiting(name))?, folder::BODY, flags, Mode::empty())
    }

    /// Makes everything in advance that a sandbox is made of.
    pub(super) fn make_waiting(&self, name: &str, owners: Owners) -> Result<Parts, Errno> {
        make_parts(&self.begin_waiting(name)?, owners)
    }

    /// Makes what one has that waits a sandbox's. A sandbox that has a folder already gets it piece
    /// by piece, and last what it is known to live by.
    pub(super) fn take_waiting(&self, name: &str) -> Result<(), Errno> {
        match renameat(&self.at, waiting(name), &self.at, name) {
            Err(Errno::EXIST | Errno::NOTEMPTY) => {}
            other => return other,
        }
        let (from, to) = (self.begin_waiting(name)?, self.sandbox(name)?);
        for part in [folder::OUTPUTS, folder::JOURNAL, folder::SOCKET, folder::BODY] {
            renameat(&from, part, &to, part)?;
        }
        self.forget_waiting(name)
    }

    /// Makes a process a sandbox's for which nothing was made in advance.
    pub(super) fn take_marks(&self, name: &str) -> Result<(), Errno> {
        let (from, to) = (self.begin_waiting(name)?, self.sandbox(name)?);
        renameat(&from, folder::BODY, &to, folder::BODY)?;
        self.forget_waiting(name)
    }

    pub(super) fn forget_waiting(&self, name: &str) -> Result<(), Errno> {
        tree::remove(self.at.as_fd(), &waiting(name))
    }

    /// Returns a name for control groups that is the same whenever this folder is used, and that
    /// no other server on the machine has.
    pub(super) fn lasting_name(&self) -> Result<String, Errno> {
        let stat = fstat(&self.at)?;
        Ok(format!("ringfence-sandboxes-{:x}-{:x}", stat.st_dev, stat.st_ino))
    }

    pub(super) fn names(&self) -> Vec<String> {
        names(&self.at)
    }

    /// Opens the folder of a sandbox.
    pub(super) fn sandbox(&self, name: &str) -> Result<OwnedFd, Errno> {
        let folder = openat(&self.at, name, DIRECTORY, Mode::empty())?;
        check_owner(&folder)?;
        Ok(folder)
    }

    /// Makes what is missing of a sandbox, and opens it. The journal is empty and the socket new.
    pub(super) fn make(&self, name: &str, owners: Owners) -> Result<Parts, Errno> {
        make_parts(&self.begin(name)?, owners)
    }

    /// Makes the folder of a sandbox if it is not there: whatever else a sandbox has, it is known by
    /// this, from before there is anything until after nothing is left.
    pub(super) fn begin(&self, name: &str) -> Result<OwnedFd, Errno> {
        self.make_shared(name)?;
        self.sandbox(name)
    }

    /// Opens the files of a sandbox that was made when they were kept in here and not in a volume.
    pub(super) fn old_files(&self, name: &str) -> Result<Option<OwnedFd>, Errno> {
        let sandbox = match self.sandbox(name) {
            Err(Errno::NOENT) => return Ok(None),
            other => other?,
        };
        match openat(&sandbox, folder::FILES, DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Whether a supervisor was ever started for it.
    pub(super) fn had_body(&self, name: &str) -> Result<bool, Errno> {
        match statat(&self.sandbox(name)?, folder::BODY, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// In a forked child: the folder, and no other descriptor.
    pub(super) fn alone(&self) -> Result<Self, Errno> {
        let at = sys::process::keep_only(self.at.as_fd())?;
        Ok(Self { at, daemon: self.daemon })
    }

    /// Removes what a command has written. It may be gone already.
    pub(super) fn remove_output(&self, name: &str, exec: &str) -> Result<(), Errno> {
        let outputs = openat(&self.sandbox(name)?, folder::OUTPUTS, DIRECTORY, Mode::empty())?;
        for stream in folder::STREAMS {
            match unlinkat(&outputs, format!("{exec}{stream}"), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Removes a sandbox with everything in it. It may be gone already.
    pub(super) fn remove(&self, name: &str) -> Result<(), Errno> {
        tree::remove(self.at.as_fd(), name)
    }
}

fn waiting(name: &str) -> String {
    format!("{WAITING}/{name}")
}

fn make_parts(sandbox: &OwnedFd, owners: Owners) -> Result<Parts, Errno> {
    make_folder(sandbox, folder::OUTPUTS, FOLDER)?;
    let outputs = openat(sandbox, folder::OUTPUTS, DIRECTORY, Mode::empty())?;
    // In this order: a change of owners takes the mark away by which files inherit the group.
    give(&outputs, owners)?;
    fchmod(&outputs, Mode::from_raw_mode(OUTPUTS))?;
    make_next(&outputs, owners)?;
    let journal = make_journal(sandbox)?;
    give(&journal, owners)?;
    let socket = make_socket(sandbox, owners.daemon)?;
    Ok(Parts { outputs, journal, socket })
}

/// Makes the files for the output of the first command: a sandbox that waits to be used has time for it.
fn make_next(outputs: &OwnedFd, owners: Owners) -> Result<(), Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    for stream in folder::STREAMS {
        let (name, mode) = (format!("{}{stream}", folder::NEXT), Mode::from_raw_mode(OUTPUT));
        match openat(outputs, name, flags | OFlags::NOFOLLOW, mode) {
            Ok(file) => give(&file, owners)?,
            Err(Errno::EXIST) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

fn names(folder: &OwnedFd) -> Vec<String> {
    let entries = Dir::read_from(folder).into_iter().flatten().filter_map(Result::ok);
    let names = entries.filter_map(|entry| entry.file_name().to_str().map(str::to_owned).ok());
    names.filter(|name| !name.starts_with('.')).collect()
}

/// Opens what a layer holds. Layers belong to the process that unpacks images, not to us.
pub(super) fn open_layer(layers: &Path, name: &str) -> Result<OwnedFd, Errno> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || !name.bytes().all(is_plain) {
        return Err(Errno::INVAL);
    }
    let layers = openat(CWD, layers, DIRECTORY, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(&layers, format!("{name}/fs"), DIRECTORY, Mode::empty(), resolve)
}

fn check_owner(folder: &OwnedFd) -> Result<(), Errno> {
    let is_ours = fstat(folder)?.st_uid == rustix::process::geteuid().as_raw();
    if is_ours { Ok(()) } else { Err(Errno::PERM) }
}

pub(super) fn make_folder(at: &OwnedFd, name: &str, mode: u32) -> Result<(), Errno> {
    match mkdirat(at, name, Mode::from_raw_mode(mode)) {
        // mkdir is subject to the umask; chmod is not.
        Ok(()) => chmodat(at, name, Mode::from_raw_mode(mode), AtFlags::empty()),
        Err(Errno::EXIST) => Ok(()),
        Err(other) => Err(other),
    }
}

/// Gives a file to the supervisor, and to the group of the daemon.
fn give(file: &OwnedFd, owners: Owners) -> Result<(), Errno> {
    let group = owners.daemon.or(owners.supervisor);
    fchown(file, owners.supervisor.map(Uid::from_raw), group.map(Gid::from_raw))
}

fn make_journal(sandbox: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::APPEND;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let journal = openat(sandbox, folder::JOURNAL, flags, Mode::from_raw_mode(OUTPUT))?;
    fchmod(&journal, Mode::from_raw_mode(OUTPUT))?;
    Ok(journal)
}

/// Binds a new socket. Whoever calls listen on it is who others see behind it.
fn make_socket(sandbox: &OwnedFd, daemon: Option<u32>) -> Result<OwnedFd, Errno> {
    match unlinkat(sandbox, folder::SOCKET, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(other) => return Err(other),
    }
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // The path of a socket is at most 108 bytes long.
    let path = format!("/proc/self/fd/{}/{}", sandbox.as_raw_fd(), folder::SOCKET);
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    chmodat(sandbox, folder::SOCKET, Mode::from_raw_mode(0o600), AtFlags::empty())?;
    if let Some(user) = daemon {
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(user));
        chownat(sandbox, folder::SOCKET, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    fn folder() -> (tempfile::TempDir, Folder) {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(&place.path().join("sandboxes"), None).unwrap();
        (place, folder)
    }

    const NOBODY: Owners = Owners { supervisor: None, daemon: None };

    #[test]
    fn files_that_were_made_before_there_were_volumes_are_found() {
        let (place, folder) = folder();
        assert!(folder.old_files("sb_1").unwrap().is_none());
        drop(folder.make("sb_1", NOBODY).unwrap());
        assert!(folder.old_files("sb_1").unwrap().is_none());
        fs::create_dir(place.path().join("sandboxes/sb_1/files")).unwrap();
        assert!(folder.old_files("sb_1").unwrap().is_some());
        assert_eq!(folder.names(), ["sb_1"]);
    }

    #[test]
    fn other_users_of_the_machine_can_read_nothing_of_a_sandbox() {
        let (place, folder) = folder();
        drop(folder.make("sb_1", NOBODY).unwrap());
        let sandbox = place.path().join("sandboxes/sb_1");
        let outputs = sandbox.join("out");
        let files = fs::read_dir(&outputs).unwrap().map(|entry| entry.unwrap().path());
        let all = files.chain([sandbox.join("journal"), outputs.clone(), sandbox.clone()]);
        for path in all.chain([place.path().join("sandboxes")]) {
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o007, 0, "{} has mode {mode:o}", path.display());
        }
    }

    #[test]
    fn removing_follows_no_link_and_leaves_nothing() {
        let (place, folder) = folder();
        drop(folder.make("sb_1", NOBODY).unwrap());
        let outside = place.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "").unwrap();
        let files = place.path().join("sandboxes/sb_1/files");
        fs::create_dir(&files).unwrap();
        std::os::unix::fs::symlink(&outside, files.join("link")).unwrap();
        std::os::unix::fs::symlink(outside.join("kept"), files.join("other")).unwrap();
        folder.remove("sb_1").unwrap();
        folder.remove("sb_1").unwrap();
        assert!(outside.join("kept").exists());
        assert!(folder.names().is_empty());
    }

    #[test]
    fn a_tree_deeper_than_there_are_descriptors_is_removed() {
        let (place, folder) = folder();
        drop(folder.make("sb_1", NOBODY).unwrap());
        let deep = place.path().join("sandboxes/sb_1/out");
        let mut at = openat(CWD, &deep, DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..500 {
            mkdirat(&at, "d", Mode::from_raw_mode(0o755)).unwrap();
            at = openat(&at, "d", DIRECTORY, Mode::empty()).unwrap();
        }
        folder.remove("sb_1").unwrap();
        assert!(folder.names().is_empty());
    }

    #[test]
    fn a_link_in_the_place_of_a_sandbox_is_not_followed() {
        let (place, folder) = folder();
        let outside = place.path().join("outside");
        fs::create_dir(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, place.path().join("sandboxes/sb_1")).unwrap();
        assert!(folder.make("sb_1", NOBODY).is_err());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        folder.remove("sb_1").unwrap();
        assert!(outside.exists());
    }
}
