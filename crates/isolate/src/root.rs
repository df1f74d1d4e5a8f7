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
        unix::fs::{DirBuilderExt, symlink},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, OFlags, mkdirat, openat},
    io::Errno,
    mount::{MountFlags, OpenTreeFlags, UnmountFlags, mount, mount_bind_recursive, open_tree},
};

use crate::sys;

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

/// Directories of the machine that programs need, where they are there.
const SYSTEM: [&str; 6] = ["usr", "bin", "sbin", "lib", "lib64", "lib32"];

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

const PASSWD: &str = "root:x:0:0:root:/root:/usr/sbin/nologin\n\
    agbox:x:1000:1000::/home/agbox:/bin/sh\n\
    nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nagbox:x:1000:\nnogroup:x:65534:\n";
const HOSTS: &str = "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n";
const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files\nservices: files\n\
    protocols: files\n";

impl Template {
    /// Builds the tree at this empty directory. The caller has a mount namespace of its own.
    pub fn build(at: &Path) -> Result<Self, RootError> {
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
        template.system()?;
        template.etc()?;
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

    fn link(&self, target: &Path, name: &str) -> Result<(), RootError> {
        let path = self.at.join(name);
        symlink(target, &path).map_err(|source| RootError::Make { path, source })
    }

    fn bind(&self, host: &Path, name: &str) -> Result<(), RootError> {
        let path = self.at.join(name);
        mount_bind_recursive(host, &path).map_err(|errno| RootError::Mount { path, errno })
    }

    /// Copies a file, link or directory of the host, if it is there and may be read.
    fn copy(&self, host: &Path, name: &str) -> Result<(), RootError> {
        let Ok(meta) = fs::symlink_metadata(host) else { return Ok(()) };
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
        match fs::read(host) {
            Ok(content) => self.file(name, &content),
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

fn open_folder(at: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    openat(at, name, flags, Mode::empty())
}

fn c_path(path: &Path) -> Result<CString, Errno> {
    use std::os::unix::ffi::OsStrExt as _;
    CString::new(path.as_os_str().as_bytes()).or(Err(Errno::INVAL))
}
