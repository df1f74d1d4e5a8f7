//! The place of the Unix socket: a closed directory, a lock, and the socket itself. Whoever has the
//! rights to make them does; whoever serves gets the open descriptors.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Read as _, Write as _},
    os::{
        fd::OwnedFd,
        unix::{
            fs::{
                DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
                PermissionsExt as _, chown,
            },
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
    process::geteuid,
};

/// Where clients look for it, below their runtime directory.
pub const BELOW_RUNTIME_DIRECTORY: &str = "agbox/agboxd.sock";

/// Where the socket of the system's server is: the one that root starts without a runtime directory.
pub const OF_THE_SYSTEM: &str = "/run/ringfence/agbox/agboxd.sock";

/// An open socket. The lock is held for as long as any process has it.
#[derive(Debug)]
pub struct Socket {
    pub path: PathBuf,
    pub listener: OwnedFd,
    pub lock: OwnedFd,
}

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("{path} is not the path of a socket in a directory")]
    Path { path: PathBuf },
    #[error("cannot make the directory {path}")]
    Directory { path: PathBuf, source: io::Error },
    #[error(
        "{path} must be a directory of the server's own user, of agbox.group if that is set, and \
         closed to others: give the socket a directory of its own, or chmod {mode:o} this one"
    )]
    Open { path: PathBuf, mode: u32 },
    #[error("another server has {path}{}", .pid.as_ref().map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    Taken { path: PathBuf, pid: Option<String> },
    #[error("{path} is there and is no socket; remove it")]
    NotASocket { path: PathBuf },
    #[error("cannot use {path}")]
    File { path: PathBuf, source: io::Error },
}

/// Opens the socket. What a dead server left there is replaced, what a live one has never is. A
/// group may enter besides the owner, if one is named by its number.
pub fn open(path: &Path, group: Option<u32>) -> Result<Socket, SocketError> {
    let no_path = || SocketError::Path { path: path.to_owned() };
    let directory = path.parent().filter(|_| path.is_absolute()).ok_or_else(no_path)?;
    prepare(directory, group)?;
    let lock_path = path.with_extension("lock");
    let lock = take_lock(path, &lock_path)?;
    remove_left_behind(path)?;
    let failed = |source| SocketError::File { path: path.to_owned(), source };
    let listener = UnixListener::bind(path).map_err(failed)?;
    // Between the two nobody else gets to it: the directory is closed.
    let mode = if group.is_some() { 0o660 } else { 0o600 };
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed)?;
    if group.is_some() {
        chown(path, None, group).map_err(failed)?;
    }
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(Socket { path: path.to_owned(), listener: listener.into(), lock: lock.into() })
}

/// Makes the directory, or checks the one that is there. It is never changed: it may be somebody's.
fn prepare(directory: &Path, group: Option<u32>) -> Result<(), SocketError> {
    let failed = |source| SocketError::Directory { path: directory.to_owned(), source };
    let mode = if group.is_some() { 0o710 } else { 0o700 };
    match fs::symlink_metadata(directory) {
        Ok(found) => {
            let is_ours = found.is_dir() && found.uid() == geteuid().as_raw();
            let of_others = found.mode() & 0o077;
            let is_right = match group {
                None => of_others == 0,
                Some(group) => of_others == 0o010 && found.gid() == group,
            };
            if is_ours && is_right {
                return Ok(());
            }
            Err(SocketError::Open { path: directory.to_owned(), mode })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
            fs::set_permissions(directory, Permissions::from_mode(mode)).map_err(failed)?;
            if group.is_some() {
                chown(directory, None, group).map_err(failed)?;
            }
            Ok(())
        }
        Err(error) => Err(failed(error)),
    }
}

/// The kernel lets go of it when the last process that has it ends, however it ends.
fn take_lock(socket: &Path, path: &Path) -> Result<File, SocketError> {
    let failed = |source| SocketError::File { path: path.to_owned(), source };
    let flags = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)
        .map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            let read = (&file).take(20).read_to_string(&mut pid);
            let pid = Some(pid.trim().to_owned()).filter(|pid| read.is_ok() && !pid.is_empty());
            return Err(SocketError::Taken { path: socket.to_owned(), pid });
        }
        Err(error) => return Err(failed(error.into())),
    }
    file.set_len(0).map_err(failed)?;
    writeln!(file, "{}", std::process::id()).map_err(failed)?;
    Ok(file)
}

fn remove_left_behind(path: &Path) -> Result<(), SocketError> {
    let failed = |source| SocketError::File { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(SocketError::NotASocket { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    // A server that knows of no lock is alive if it can be connected to.
    if UnixStream::connect(path).is_ok() {
        return Err(SocketError::Taken { path: path.to_owned(), pid: None });
    }
    fs::remove_file(path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn place() -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(BELOW_RUNTIME_DIRECTORY);
        (folder, path)
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn the_socket_and_its_directory_are_for_their_owner_alone() {
        let (_folder, path) = place();
        let socket = open(&path, None).unwrap();
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(&path.with_extension("lock")), 0o600);
        assert!(UnixStream::connect(&path).is_ok());
        drop(socket);
    }

    #[test]
    fn a_group_gets_to_the_socket_and_not_further() {
        let (_folder, path) = place();
        let own = rustix::process::getegid().as_raw();
        let socket = open(&path, Some(own)).unwrap();
        assert_eq!(mode(path.parent().unwrap()), 0o710);
        assert_eq!(mode(&path), 0o660);
        drop(socket);
        assert!(open(&path, Some(own)).is_ok());
    }

    #[test]
    fn what_a_dead_server_left_is_replaced() {
        let (_folder, path) = place();
        drop(open(&path, None).unwrap());
        assert!(path.exists());
        let _socket = open(&path, None).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn what_a_live_server_has_is_left_alone() {
        let (_folder, path) = place();
        let first = open(&path, None).unwrap();
        let own = std::process::id().to_string();
        let taken = open(&path, None).unwrap_err();
        assert!(matches!(&taken, SocketError::Taken { pid: Some(pid), .. } if *pid == own));
        assert!(UnixStream::connect(&path).is_ok());
        drop(first);

        // One that takes no lock.
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        assert!(matches!(open(&path, None), Err(SocketError::Taken { pid: None, .. })));
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn what_is_no_socket_and_a_directory_that_is_open_are_refused_and_left_alone() {
        let (folder, path) = place();
        let directory = path.parent().unwrap();
        fs::create_dir(directory).unwrap();
        fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(open(&path, None), Err(SocketError::Open { mode: 0o700, .. })));
        assert_eq!(mode(directory), 0o755);
        fs::set_permissions(directory, Permissions::from_mode(0o700)).unwrap();
        // A group that cannot enter would wonder why.
        let own = rustix::process::getegid().as_raw();
        assert!(matches!(open(&path, Some(own)), Err(SocketError::Open { mode: 0o710, .. })));
        fs::write(&path, "mine").unwrap();
        assert!(matches!(open(&path, None), Err(SocketError::NotASocket { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(directory, &link).unwrap();
        assert!(matches!(open(&link.join("a.sock"), None), Err(SocketError::Open { .. })));
        assert!(matches!(open(Path::new("a.sock"), None), Err(SocketError::Path { .. })));
    }
}
