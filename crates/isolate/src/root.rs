//! The root of the `host` image: the machine's own `/usr`, read-only, with an `/etc` of our own.
//!
//! It is built once, when the spawner starts; every slot gets a clone of the whole tree by one
//! system call. Never the host's `/etc`, `/root`, `/home`, `/var`, nor any socket.

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
    fs::{CWD, Mode, OFlags, mkdirat, openat},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags,
        UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount,
        mount_bind_recursive, move_mount, open_tree,
    },
};

use crate::{sandbox::SYSTEM, sys};

/// The prepared tree that slots get clones of.
#[derive(Debug)]
pub struct Template {
    at: PathBuf,
    /// The same file system, where it can still be written to.
    writable: OwnedFd,
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

/// Devices that every program may have.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

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
    /// Builds the tree at this empty directory. The caller has a mount namespace of its own. With an
    /// owner, the files and directories of the tree itself belong to that user of the machine, never
    /// those of the machine that are mounted in it.
    pub fn build(at: &Path, owner: Option<u32>) -> Result<Self, RootError> {
        mount("tmpfs", at, "tmpfs", MountFlags::NOSUID, c"mode=0755")
            .map_err(|errno| RootError::Mount { path: at.to_owned(), errno })?;
        let fail = |errno| RootError::Mount { path: at.to_owned(), errno };
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let template =
            Self { at: at.to_owned(), writable: open_tree(CWD, at, flags).map_err(fail)? };
        for dir in ["dev", "dev/pts", "dev/shm", "etc", "home", "home/agbox", "proc", "root"] {
            template.dir(dir)?;
        }
        for dir in ["run", "tmp", "var", "var/tmp", "workspace"] {
            template.dir(dir)?;
        }
        template.etc()?;
        if let Some(owner) = owner {
            // Before anything of the machine is mounted below.
            give_all(at, owner)
                .map_err(|source| RootError::Make { path: at.to_owned(), source })?;
        }
        template.system()?;
        template.python()?;
        template.devices()?;
        template.seal()?;
        Ok(template)
    }

    /// Clones the whole tree, for one slot to attach as its root.
    pub fn clone_tree(&self) -> Result<OwnedFd, Errno> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::AT_RECURSIVE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        open_tree(CWD, &self.at, flags)
    }

    /// Clones the tree without what is mounted in it: the lowest layer of a root that can be written to.
    pub fn clone_base(&self) -> Result<OwnedFd, Errno> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        open_tree(CWD, &self.at, flags)
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
        let mut dir = open_folder(self.writable.as_fd(), "run").map_err(fail)?;
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

    fn system(&self) -> Result<(), RootError> {
        for name in SYSTEM {
            let host = Path::new("/").join(name);
            match fs::read_link(&host) {
                // On a machine with a merged /usr: `bin -> usr/bin`.
                Ok(target) => self.link(&target, name)?,
                Err(_) if host.is_dir() => {
                    self.dir(name)?;
                    self.bind(&host, name)?;
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Adds the program `python` where the machine has only a `python3`: many programs and agents call
    /// it so. It is a link in a layer of our own over `/usr/local/bin`; the machine's is as it was.
    fn python(&self) -> Result<(), RootError> {
        const LAYER: &str = "run/ringfence/programs";
        let folders = PROGRAMS.map(PathBuf::from);
        let bin = self.at.join("usr/local/bin");
        let Some(target) = python_to_add(&folders).filter(|_| bin.is_dir()) else { return Ok(()) };
        self.dir(LAYER)?;
        self.link(&target, &format!("{LAYER}/python"))?;
        match overlay(&[&self.at.join(LAYER), &bin]) {
            Ok(both) => move_mount(&both, "", CWD, &bin, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
                .map_err(|errno| RootError::Mount { path: bin, errno }),
            // A kernel without overlays: programs are called as they are on the machine.
            Err(_) => Ok(()),
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

    /// Device nodes are bound from the host: an ordinary user cannot make any.
    fn devices(&self) -> Result<(), RootError> {
        for name in DEVICES {
            let inside = format!("dev/{name}");
            self.file(&inside, b"")?;
            self.bind(&Path::new("/dev").join(name), &inside)?;
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

    /// Makes everything read-only, here and in every mount below.
    fn seal(&self) -> Result<(), RootError> {
        let fail = |errno| RootError::Mount { path: self.at.clone(), errno };
        let path = c_path(&self.at).map_err(fail)?;
        let attributes = sys::mount::RDONLY | sys::mount::NOSUID;
        sys::mount::set_attributes_recursively(CWD.as_fd(), &path, attributes).map_err(fail)
    }

    fn dir(&self, name: &str) -> Result<(), RootError> {
        let path = self.at.join(name);
        let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(&path);
        made.map_err(|source| RootError::Make { path, source })
    }

    fn file(&self, name: &str, content: &[u8]) -> Result<(), RootError> {
        let path = self.at.join(name);
        fs::write(&path, content).map_err(|source| RootError::Make { path, source })
    }

    fn mode(&self, name: &str, mode: u32) -> Result<(), RootError> {
        let path = self.at.join(name);
        let set = fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o777));
        set.map_err(|source| RootError::Make { path, source })
    }

    fn link(&self, target: &Path, name: &str) -> Result<(), RootError> {
        let path = self.at.join(name);
        symlink(target, &path).map_err(|source| RootError::Make { path, source })
    }

    fn bind(&self, host: &Path, name: &str) -> Result<(), RootError> {
        let path = self.at.join(name);
        mount_bind_recursive(host, &path).map_err(|errno| RootError::Mount { path, errno })
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
        let _ = rustix::mount::unmount(&self.at, UnmountFlags::DETACH);
    }
}

/// Where the machine has programs, in the order in which they are looked for.
const PROGRAMS: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// Returns what `python` is to lead to, if these folders have a `python3` and no `python`.
fn python_to_add(folders: &[PathBuf]) -> Option<PathBuf> {
    let find = |name: &str| folders.iter().map(|it| it.join(name)).find(|path| path.is_file());
    if find("python").is_some() {
        return None;
    }
    find("python3")
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
    fsmount(&new, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NODEV)
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
    fn python_is_added_only_where_the_machine_has_python3_and_no_python() {
        let machine = tempfile::tempdir().unwrap();
        let folders = ["local", "bin"].map(|name| machine.path().join(name));
        for folder in &folders {
            fs::create_dir(folder).unwrap();
        }
        assert_eq!(python_to_add(&folders), None);
        fs::write(folders[1].join("python3"), "").unwrap();
        assert_eq!(python_to_add(&folders), Some(folders[1].join("python3")));
        fs::write(folders[0].join("python"), "").unwrap();
        assert_eq!(python_to_add(&folders), None);
    }

    #[test]
    fn only_what_every_user_of_the_host_may_read_is_copied_and_modes_stay() {
        let (host, inside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = inside.path().to_owned();
        let writable = OwnedFd::from(fs::File::open(&at).unwrap());
        let template = Template { at, writable };
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
        let copies = inside.path().join("certs");
        let mut names: Vec<_> =
            fs::read_dir(&copies).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["link", "program", "public"]);
        let mode = |name| fs::metadata(copies.join(name)).unwrap().mode() & 0o777;
        assert_eq!((mode("public"), mode("program")), (0o644, 0o755));
    }
}
