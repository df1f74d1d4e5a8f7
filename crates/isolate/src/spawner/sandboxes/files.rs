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
        fstat, mkdirat, openat, openat2, renameat, unlinkat,
    },
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with},
};

use crate::{
    disk::tree,
    plan::INSIDE_USER,
    sandbox::{Image, UPPER, WORK, WRITABLE, folder},
    sys,
};

/// The folder in which each sandbox has its own.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

/// What a sandbox is made of on disk, open.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) outputs: OwnedFd,
    pub(super) journal: OwnedFd,
    pub(super) socket: OwnedFd,
    pub(super) files: OwnedFd,
}

/// Who things belong to. Without a range of ids everything is the one user's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owners {
    pub(super) supervisor: Option<u32>,
    /// The owner on disk of what is user 0's inside.
    pub(super) on_disk: Option<u32>,
    pub(super) daemon: Option<u32>,
}

const DIRECTORY: OFlags =
    OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);

impl Folder {
    /// Opens the folder, which is made if it is not there.
    pub(super) fn open(path: &Path) -> Result<Self, Errno> {
        match mkdirat(CWD, path, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(other) => return Err(other),
        }
        let folder = openat(CWD, path, DIRECTORY, Mode::empty())?;
        check_owner(&folder)?;
        // Whatever the umask is: the daemon looks in here.
        fchmod(&folder, Mode::from_raw_mode(0o755))?;
        Ok(Self(folder))
    }

    /// Returns a name for control groups that is the same whenever this folder is used, and that
    /// no other server on the machine has.
    pub(super) fn lasting_name(&self) -> Result<String, Errno> {
        let stat = fstat(&self.0)?;
        Ok(format!("ringfence-sandboxes-{:x}-{:x}", stat.st_dev, stat.st_ino))
    }

    pub(super) fn names(&self) -> Vec<String> {
        let entries = Dir::read_from(&self.0).into_iter().flatten().filter_map(Result::ok);
        let names = entries.filter_map(|entry| entry.file_name().to_str().map(str::to_owned).ok());
        names.filter(|name| !name.starts_with('.')).collect()
    }

    /// Opens the folder of a sandbox.
    pub(super) fn sandbox(&self, name: &str) -> Result<OwnedFd, Errno> {
        let folder = openat(&self.0, name, DIRECTORY, Mode::empty())?;
        check_owner(&folder)?;
        Ok(folder)
    }

    /// Opens the folder of a sandbox, which is made if it is not there.
    pub(super) fn make_sandbox(&self, name: &str) -> Result<OwnedFd, Errno> {
        make_folder(&self.0, name, 0o755)?;
        self.sandbox(name)
    }

    /// Makes what is missing of a sandbox, and opens it. The journal is empty and the socket new.
    pub(super) fn make(&self, name: &str, image: &Image, owners: Owners) -> Result<Parts, Errno> {
        let sandbox = self.make_sandbox(name)?;
        make_folder(&sandbox, folder::OUTPUTS, 0o755)?;
        let outputs = openat(&sandbox, folder::OUTPUTS, DIRECTORY, Mode::empty())?;
        give(&outputs, owners.supervisor)?;
        let journal = make_journal(&sandbox)?;
        give(&journal, owners.supervisor)?;
        let socket = make_socket(&sandbox, owners.daemon)?;
        let files = make_files(&sandbox, image, owners.on_disk)?;
        Ok(Parts { outputs, journal, socket, files })
    }

    /// In a forked child: the folder, and no other descriptor.
    pub(super) fn alone(&self) -> Result<Self, Errno> {
        sys::process::keep_only(self.0.as_fd()).map(Self)
    }

    /// Removes a sandbox with everything in it. It may be gone already.
    pub(super) fn remove(&self, name: &str) -> Result<(), Errno> {
        tree::remove(self.0.as_fd(), name)
    }
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

fn make_folder(at: &OwnedFd, name: &str, mode: u32) -> Result<(), Errno> {
    match mkdirat(at, name, Mode::from_raw_mode(mode)) {
        // mkdir is subject to the umask; chmod is not.
        Ok(()) => chmodat(at, name, Mode::from_raw_mode(mode), AtFlags::empty()),
        Err(Errno::EXIST) => Ok(()),
        Err(other) => Err(other),
    }
}

fn give(file: &OwnedFd, to: Option<u32>) -> Result<(), Errno> {
    match to {
        Some(user) => fchown(file, Some(Uid::from_raw(user)), Some(Gid::from_raw(user))),
        None => Ok(()),
    }
}

fn make_journal(sandbox: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::APPEND;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let journal = openat(sandbox, folder::JOURNAL, flags, Mode::from_raw_mode(0o644))?;
    fchmod(&journal, Mode::from_raw_mode(0o644))?;
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

/// Makes the folders that the sandbox can write to. A sandbox that is resumed finds its own again.
fn make_files(sandbox: &OwnedFd, image: &Image, on_disk: Option<u32>) -> Result<OwnedFd, Errno> {
    const NEW: &str = "files.new";
    match openat(sandbox, folder::FILES, DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT) => {}
        other => return other,
    }
    tree::remove(sandbox.as_fd(), NEW)?;
    make_folder(sandbox, NEW, 0o755)?;
    let new = openat(sandbox, NEW, DIRECTORY, Mode::empty())?;
    match image {
        Image::Host => furnish(&new, on_disk)?,
        Image::Layers(_) => {
            for name in [UPPER, WORK] {
                make_folder(&new, name, 0o755)?;
                give_at(&new, name, on_disk)?;
            }
        }
    }
    give_at(&new, "", on_disk)?;
    // In one step: a sandbox has either all of them or none.
    renameat(sandbox, NEW, sandbox, folder::FILES)?;
    Ok(new)
}

/// Makes the folders that a sandbox of the host's image can write to.
fn furnish(new: &OwnedFd, on_disk: Option<u32>) -> Result<(), Errno> {
    let plain = WRITABLE.into_iter().chain(IN_VAR).map(|name| (name, 0o755));
    for (name, mode) in plain.chain([("tmp", 0o1777), ("var/tmp", 0o1777)]) {
        make_folder(new, name, mode)?;
        give_at(new, name, on_disk)?;
    }
    make_folder(new, "home/agbox", 0o755)?;
    chmodat(new, "root", Mode::from_raw_mode(0o700), AtFlags::empty())?;
    for name in ["home/agbox", "workspace"] {
        give_at(new, name, on_disk.map(|root| root + INSIDE_USER))?;
    }
    Ok(())
}

const IN_VAR: [&str; 3] = ["var/cache", "var/lib", "var/log"];

fn give_at(folder: &OwnedFd, name: &str, to: Option<u32>) -> Result<(), Errno> {
    let Some(to) = to else { return Ok(()) };
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    chownat(folder, name, Some(Uid::from_raw(to)), Some(Gid::from_raw(to)), flags)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folder() -> (tempfile::TempDir, Folder) {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(&place.path().join("sandboxes")).unwrap();
        (place, folder)
    }

    const NOBODY: Owners = Owners { supervisor: None, on_disk: None, daemon: None };

    #[test]
    fn a_sandbox_finds_its_files_again() {
        let (place, folder) = folder();
        drop(folder.make("sb_1", &Image::Host, NOBODY).unwrap());
        let home = place.path().join("sandboxes/sb_1/files/home/agbox");
        fs::write(home.join("note"), "kept").unwrap();
        drop(folder.make("sb_1", &Image::Host, NOBODY).unwrap());
        assert_eq!(fs::read_to_string(home.join("note")).unwrap(), "kept");
        assert_eq!(folder.names(), ["sb_1"]);
    }

    #[test]
    fn removing_follows_no_link_and_leaves_nothing() {
        let (place, folder) = folder();
        drop(folder.make("sb_1", &Image::Host, NOBODY).unwrap());
        let outside = place.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "").unwrap();
        let files = place.path().join("sandboxes/sb_1/files");
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
        drop(folder.make("sb_1", &Image::Host, NOBODY).unwrap());
        let deep = place.path().join("sandboxes/sb_1/files");
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
        assert!(folder.make("sb_1", &Image::Host, NOBODY).is_err());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        folder.remove("sb_1").unwrap();
        assert!(outside.exists());
    }
}
