//! The root of the `host` image: the machine's own `/usr`, read-only, with an `/etc` of our own.
//!
//! The template is built once, when the spawner starts. Every slot and sandbox gets read-only overlays of
//! its own over it: file locks and inotify belong to an inode of one file system, so with shared inodes
//! tenants could observe and signal each other. Never the host's `/etc`, `/root`, `/home`, `/var`, nor
//! any socket.

mod proc_files;
mod programs;

use std::{
    ffi::CString,
    fs,
    io::{self, Write as _},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{DirBuilderExt, MetadataExt as _, PermissionsExt as _, lchown, symlink},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, chmod, makedev, mkdirat, mknodat, openat},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags,
        UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount, mount_bind,
        move_mount, open_tree, unmount,
    },
};

use crate::{posture::SystemFiles, procfs, sys};
use programs::Programs;

/// What the roots of slots and sandboxes are made of.
#[derive(Debug)]
pub struct Template {
    at: PathBuf,
    /// The same file system, where it can still be written to.
    writable: OwnedFd,
    programs: Programs,
    devices: Devices,
    system_files: SystemFiles,
}

/// Where the devices of a root come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Devices {
    /// Nodes in the template: each overlay has inodes of its own for them.
    Nodes,
    /// The host's nodes, bound: an ordinary user cannot make any.
    Bound,
}

/// The template could not be built.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    #[error("cannot make {path} for the root of slots")]
    Make {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot mount {path} for the root of slots")]
    Mount {
        path: PathBuf,
        #[source]
        errno: Errno,
    },
}

/// Devices that every program may have, with their numbers.
const DEVICES: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

/// The folders of the template. The root of slots and sandboxes, without what is mounted in it.
const BASE: &str = "base";
/// What every `/usr` has beside the machine's files.
const ADDED: &str = "added";
/// The upper layer of overlays that add nothing: an overlay needs two.
const EMPTY: &str = "empty";
/// Where a root is put together before its slot gets it.
const ASSEMBLY: &str = "assembly";

/// Files and directories of `/etc` that carry no secrets and that programs need. Everything else
/// in it is ours.
const ETC: [&str; 10] = [
    "alternatives",
    "ca-certificates.conf",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "protocols",
    "services",
    "ssl/certs",
];

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n\
    agbox:x:1000:1000::/home/agbox:/bin/sh\n\
    nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nagbox:x:1000:\nnogroup:x:65534:\n";
const HOSTS: &str = "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n";
const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files\nservices: files\n\
    protocols: files\n";

impl Template {
    /// Builds the template at this empty directory. The caller has a mount namespace of its own. With an
    /// owner, the files and directories of the template itself belong to that user of the machine, never
    /// those of the machine that are mounted over it.
    pub fn build(at: &Path, owner: Option<u32>) -> Result<Self, RootError> {
        mount("tmpfs", at, "tmpfs", MountFlags::NOSUID, c"mode=0755")
            .map_err(|errno| RootError::Mount { path: at.to_owned(), errno })?;
        let fail = |errno| RootError::Mount { path: at.to_owned(), errno };
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let mut template = Self {
            at: at.to_owned(),
            writable: open_tree(CWD, at, flags).map_err(fail)?,
            programs: Programs::find(),
            devices: Devices::Bound,
            system_files: SystemFiles::Private,
        };
        for folder in [BASE, ADDED, EMPTY, ASSEMBLY] {
            make_folder(&at.join(folder))?;
        }
        for dir in ["dev", "dev/pts", "dev/shm", "etc", "home", "home/agbox", "proc", "root"] {
            template.dir(dir)?;
        }
        for dir in ["run", "tmp", "var", "var/tmp", "workspace"] {
            template.dir(dir)?;
        }
        template.link(Path::new("workspace"), "work")?;
        template.etc()?;
        template.add_proc_files()?;
        template.add_programs()?;
        template.add_devices()?;
        if let Some(owner) = owner {
            give_all(at, owner)
                .map_err(|source| RootError::Make { path: at.to_owned(), source })?;
        }
        template.try_assembly()?;
        template.seal()?;
        Ok(template)
    }

    /// Returns whether roots share inodes of the machine's programs.
    pub fn system_files(&self) -> SystemFiles {
        self.system_files
    }

    /// Makes a root for one slot or sandbox: a detached tree of mounts, read-only.
    pub fn new_root(&self) -> Result<OwnedFd, Errno> {
        let at = self.at.join(ASSEMBLY);
        let root = self.assemble(&at);
        // Detached even if a mount in it failed, so that the next one starts anew.
        match (root, unmount(&at, UnmountFlags::DETACH)) {
            (Ok(root), Ok(())) => Ok(root),
            (Err(errno), _) | (Ok(_), Err(errno)) => Err(errno),
        }
    }

    /// Mounts a root at this directory and returns a detached copy of it. Only since Linux 6.15 can mounts be
    /// added to a tree that is detached already.
    fn assemble(&self, at: &Path) -> Result<OwnedFd, Errno> {
        match self.system_files {
            SystemFiles::Private => put(&overlay(&[&self.at.join(EMPTY), &self.base()])?, at)?,
            SystemFiles::Shared => put(&self.clone_base()?, at)?,
        }
        self.programs.mount(at, &self.at, self.system_files)?;
        if self.devices == Devices::Bound {
            for (name, _, _) in DEVICES {
                mount_bind(Path::new("/dev").join(name), at.join("dev").join(name))?;
            }
        }
        let path = c_path(at)?;
        let attributes = sys::mount::RDONLY | sys::mount::NOSUID;
        sys::mount::set_attributes_recursively(CWD.as_fd(), &path, attributes)?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::AT_RECURSIVE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        open_tree(CWD, at, flags)
    }

    /// Makes a root once, to learn whether the kernel has overlays over this machine's file systems.
    fn try_assembly(&mut self) -> Result<(), RootError> {
        if self.new_root().is_ok() {
            return Ok(());
        }
        self.system_files = SystemFiles::Shared;
        let at = self.at.join(ASSEMBLY);
        self.new_root().map(drop).map_err(|errno| RootError::Mount { path: at, errno })
    }

    /// Clones the template without what is mounted over it: the lowest layer of a root that can be written to.
    pub fn clone_base(&self) -> Result<OwnedFd, Errno> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        open_tree(CWD, self.base(), flags)
    }

    fn base(&self) -> PathBuf {
        self.at.join(BASE)
    }

    /// Adds a file below `/run`, for all slots that are made from now on.
    pub fn add_file(&self, path: &str, content: &[u8]) -> Result<(), RootError> {
        let fail =
            |errno: Errno| RootError::Make { path: path.into(), source: io::Error::from(errno) };
        let is_plain = |part: &str| !matches!(part, "" | "." | "..");
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let ["run", folders @ .., name] = parts.as_slice() else { return Err(fail(Errno::INVAL)) };
        if !parts.iter().all(|part| is_plain(part)) {
            return Err(fail(Errno::INVAL));
        }
        let base = open_folder(self.writable.as_fd(), BASE).map_err(fail)?;
        let mut dir = open_folder(base.as_fd(), "run").map_err(fail)?;
        for folder in folders {
            match mkdirat(&dir, *folder, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(fail(errno)),
            }
            dir = open_folder(dir.as_fd(), folder).map_err(fail)?;
        }
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&dir, *name, flags, Mode::from_raw_mode(0o644)).map_err(fail)?;
        fs::File::from(file)
            .write_all(content)
            .map_err(|source| RootError::Make { path: path.into(), source })
    }

    /// Adds the links and mount points of the machine's programs, and the program `python` where the machine has
    /// only a `python3`: many programs and agents call it so.
    fn add_programs(&self) -> Result<(), RootError> {
        for (name, target) in self.programs.links() {
            self.link(target, name)?;
        }
        for name in self.programs.folders() {
            self.dir(name)?;
        }
        let bin = self.at.join(ADDED).join("local/bin");
        make_folder(&bin)?;
        match programs::python_to_add(&programs::PATH.map(PathBuf::from)) {
            Some(target) => make_link(&target, &bin.join("python")),
            None => Ok(()),
        }
    }

    fn etc(&self) -> Result<(), RootError> {
        for (name, text) in
            [("passwd", PASSWD), ("group", GROUP), ("hosts", HOSTS), ("nsswitch.conf", NSSWITCH)]
        {
            self.file(&format!("etc/{name}"), text.as_bytes())?;
        }
        self.file("etc/hostname", b"sandbox\n")?;
        for name in ETC {
            self.copy(&Path::new("/etc").join(name), &format!("etc/{name}"))?;
        }
        // Debian keeps a part of each Python's start-up files here: `python3`, `python3.11`, ...
        for entry in fs::read_dir("/etc").into_iter().flatten().filter_map(Result::ok) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("python3") {
                self.copy(&entry.path(), &format!("etc/{name}"))?;
            }
        }
        Ok(())
    }

    fn add_proc_files(&self) -> Result<(), RootError> {
        self.dir(procfs::SYNTHETIC_FOLDER)?;
        for name in procfs::SYNTHETIC {
            let text = proc_files::synthetic(name);
            self.file(&format!("{}/{name}", procfs::SYNTHETIC_FOLDER), text.as_bytes())?;
        }
        Ok(())
    }

    fn add_devices(&mut self) -> Result<(), RootError> {
        self.devices =
            if self.add_device_nodes().is_ok() { Devices::Nodes } else { Devices::Bound };
        if self.devices == Devices::Bound {
            for (name, _, _) in DEVICES {
                self.file(&format!("dev/{name}"), b"")?;
            }
        }
        for (name, target) in [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
            ("ptmx", "pts/ptmx"),
        ] {
            self.link(Path::new(target), &format!("dev/{name}"))?;
        }
        Ok(())
    }

    fn add_device_nodes(&self) -> Result<(), Errno> {
        for (name, major, minor) in DEVICES {
            let path = self.base().join("dev").join(name);
            let mode = Mode::from_raw_mode(0o666);
            mknodat(CWD, &path, FileType::CharacterDevice, mode, makedev(major, minor))?;
            // mknod is subject to the umask; chmod is not.
            chmod(&path, mode)?;
        }
        Ok(())
    }

    /// Makes everything read-only, here and in every mount below.
    fn seal(&self) -> Result<(), RootError> {
        let fail = |errno| RootError::Mount { path: self.at.clone(), errno };
        let path = c_path(&self.at).map_err(fail)?;
        let attributes = sys::mount::RDONLY | sys::mount::NOSUID;
        sys::mount::set_attributes_recursively(CWD.as_fd(), &path, attributes).map_err(fail)
    }

    fn dir(&self, name: &str) -> Result<(), RootError> {
        make_folder(&self.base().join(name))
    }

    fn file(&self, name: &str, content: &[u8]) -> Result<(), RootError> {
        let path = self.base().join(name);
        fs::write(&path, content).map_err(|source| RootError::Make { path, source })
    }

    fn mode(&self, name: &str, mode: u32) -> Result<(), RootError> {
        let path = self.base().join(name);
        let set = fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o777));
        set.map_err(|source| RootError::Make { path, source })
    }

    fn link(&self, target: &Path, name: &str) -> Result<(), RootError> {
        make_link(target, &self.base().join(name))
    }

    /// Copies a file, link or directory of the host, if it is there and every user of the host may read it: this process may
    /// read what they may not.
    fn copy(&self, host: &Path, name: &str) -> Result<(), RootError> {
        let Ok(meta) = fs::symlink_metadata(host) else { return Ok(()) };
        let wanted = if meta.is_dir() { 0o005 } else { 0o004 };
        if meta.mode() & wanted != wanted {
            return Ok(());
        }
        if meta.is_dir() {
            self.dir(name)?;
            let Ok(entries) = fs::read_dir(host) else { return Ok(()) };
            for entry in entries.filter_map(Result::ok) {
                let inside = format!("{name}/{}", entry.file_name().to_string_lossy());
                self.copy(&entry.path(), &inside)?;
            }
            return Ok(());
        }
        if let Some((dir, _)) = name.rsplit_once('/') {
            self.dir(dir)?;
        }
        if meta.is_symlink() {
            let Ok(target) = fs::read_link(host) else { return Ok(()) };
            return self.link(&target, name);
        }
        if !meta.is_file() {
            return Ok(());
        }
        match fs::read(host) {
            Ok(content) => self.file(name, &content).and_then(|()| self.mode(name, meta.mode())),
            Err(_) => Ok(()),
        }
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        // The mount namespace goes with the spawner; this is for tests that build several.
        let _ = unmount(&self.at, UnmountFlags::DETACH);
    }
}

fn make_folder(path: &Path) -> Result<(), RootError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
    made.map_err(|source| RootError::Make { path: path.to_owned(), source })
}

fn make_link(target: &Path, path: &Path) -> Result<(), RootError> {
    symlink(target, path).map_err(|source| RootError::Make { path: path.to_owned(), source })
}

/// Makes a read-only mount of these folders over each other, the first uppermost.
fn overlay(folders: &[&Path]) -> Result<OwnedFd, Errno> {
    let escaped = |folder: &&Path| {
        let text = folder.to_str().ok_or(Errno::INVAL)?;
        Ok(text.replace('\\', "\\\\").replace(':', "\\:"))
    };
    let lower: Vec<String> = folders.iter().map(escaped).collect::<Result<_, Errno>>()?;
    let new = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&new, "lowerdir", lower.join(":"))?;
    fsconfig_create(&new)?;
    fsmount(&new, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NOSUID)
}

/// Attaches a mount at this directory.
fn put(mount: &OwnedFd, at: &Path) -> Result<(), Errno> {
    move_mount(mount, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Gives a directory and everything in it to a user. Links are not followed.
fn give_all(path: &Path, owner: u32) -> io::Result<()> {
    lchown(path, Some(owner), Some(owner))?;
    if !fs::symlink_metadata(path)?.is_dir() {
        return Ok(());
    }
    fs::read_dir(path)?.try_for_each(|entry| give_all(&entry?.path(), owner))
}

fn open_folder(at: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    openat(at, name, flags, Mode::empty())
}

fn c_path(path: &Path) -> Result<CString, Errno> {
    use std::os::unix::ffi::OsStrExt as _;
    CString::new(path.as_os_str().as_bytes()).or(Err(Errno::INVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_every_user_of_the_host_may_read_is_copied_and_modes_stay() {
        let (host, inside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = inside.path().to_owned();
        let writable = OwnedFd::from(fs::File::open(&at).unwrap());
        let template = Template {
            at,
            writable,
            programs: Programs::default(),
            devices: Devices::Bound,
            system_files: SystemFiles::Shared,
        };
        make_folder(&template.base()).unwrap();
        let certs = host.path().join("certs");
        fs::create_dir_all(certs.join("private")).unwrap();
        for (name, mode) in [
            ("public", 0o644),
            ("program", 0o755),
            ("key", 0o600),
            ("group", 0o640),
            ("private/key", 0o644),
        ] {
            fs::write(certs.join(name), name).unwrap();
            fs::set_permissions(certs.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let private = fs::Permissions::from_mode(0o700);
        fs::set_permissions(certs.join("private"), private).unwrap();
        symlink("public", certs.join("link")).unwrap();
        template.copy(&certs, "certs").unwrap();
        let copies = inside.path().join(BASE).join("certs");
        let mut names: Vec<_> =
            fs::read_dir(&copies).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["link", "program", "public"]);
        let mode = |name| fs::metadata(copies.join(name)).unwrap().mode() & 0o777;
        assert_eq!((mode("public"), mode("program")), (0o644, 0o755));
    }
}
