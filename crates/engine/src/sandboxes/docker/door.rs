//! Where the init of a container meets the daemon: a folder of this machine that the container has,
//! with init itself and, while it is waited for, a socket.

use std::{
    fs, io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use isolate::{sandbox::is_good_name, socket::PacketSocket};
use rustix::{
    fs::{Mode, OFlags},
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen,
        socket_with,
    },
};
use tokio::io::{Interest, unix::AsyncFd};

use crate::spawner::register;

/// The name of the init program in the folder of a sandbox.
pub(super) const INIT: &str = "init";

/// The name of the socket beside it.
pub(super) const DOOR: &str = "door";

/// The folder in which each sandbox has its own. Nobody but the daemon and root gets through it; what is
/// in it is open to whoever a container shows it to.
#[derive(Debug)]
pub(super) struct Doors(PathBuf);

/// A door that stands open. It is gone when this is.
#[derive(Debug)]
pub(super) struct Door {
    folder: PathBuf,
    socket: AsyncFd<PacketSocket>,
}

impl Doors {
    /// Makes the folder, and puts init there for the sandboxes that come.
    pub(super) fn open(folder: &Path, init: &[u8]) -> io::Result<Self> {
        // An engine does not know where the server was started.
        let folder = std::path::absolute(folder)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let (new, place) = (folder.join(".init.new"), folder.join(INIT));
        let _ = fs::remove_file(&new);
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(&new)?;
        io::Write::write_all(&mut file, init)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
        drop(file);
        fs::rename(new, place)?;
        Ok(Self(folder))
    }

    /// Makes the folder of a sandbox, for its container to have. There is no door in it.
    pub(super) fn furnish(&self, sandbox: &str) -> io::Result<PathBuf> {
        let folder = self.folder_of(sandbox)?;
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&folder)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
        for name in [INIT, DOOR] {
            gone(fs::remove_file(folder.join(name)))?;
        }
        // One program for all of them; what runs keeps that of its own time.
        fs::hard_link(self.0.join(INIT), folder.join(INIT))?;
        Ok(folder)
    }

    /// Opens the door of a sandbox, whose container is about to be started and has no process yet: whoever
    /// comes is its init.
    pub(super) fn stand_open(&self, sandbox: &str) -> io::Result<Door> {
        let folder = self.folder_of(sandbox)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind_in(&folder, &socket)?;
        // Its user may be anybody's number. Only whoever has the folder gets here.
        fs::set_permissions(folder.join(DOOR), fs::Permissions::from_mode(0o666))?;
        listen(&socket, 1)?;
        let socket = register(PacketSocket::from_fd(socket))?;
        Ok(Door { folder, socket })
    }

    /// Takes the folder of a sandbox away.
    pub(super) fn close(&self, sandbox: &str) -> io::Result<()> {
        gone(fs::remove_dir_all(self.folder_of(sandbox)?))
    }

    fn folder_of(&self, sandbox: &str) -> io::Result<PathBuf> {
        // It becomes a part of a path.
        if !is_good_name(sandbox) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(self.0.join(sandbox))
    }
}

/// The path of a socket is at most 108 bytes long, and that of the data folder may be longer.
fn bind_in(folder: &Path, socket: &OwnedFd) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    let path = format!("/proc/self/fd/{}/{DOOR}", folder.as_raw_fd());
    Ok(bind(socket, &SocketAddrUnix::new(path)?)?)
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

impl Door {
    /// Returns the connection of whoever comes first.
    pub(super) async fn next(&self) -> io::Result<OwnedFd> {
        let accept = |socket: &PacketSocket| Ok(accept_with(socket, SocketFlags::CLOEXEC)?);
        self.socket.async_io(Interest::READABLE, accept).await
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // Commands see this folder: there is nothing for them to knock at.
        let _ = fs::remove_file(self.folder.join(DOOR));
    }
}
