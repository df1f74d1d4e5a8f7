//! The connection to one process that works on the files of a sandbox.

use std::{fs::File, io, os::fd::OwnedFd, time::Duration};

use isolate::{
    files::wire::{self, Answer, Ask},
    socket::PacketSocket,
    supervisor::wire::User,
};
use rustix::{
    fs::{FileType, fstat},
    io::Errno,
    net::{RecvFlags, SendFlags},
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::OwnedSemaphorePermit,
    time::timeout,
};

use super::FileError;
use crate::spawner::register;

/// An agent, with its place among those of its sandbox.
#[derive(Debug)]
pub(super) struct Agent {
    socket: AsyncFd<PacketSocket>,
    user: User,
    _room: OwnedSemaphorePermit,
}

impl Agent {
    pub(super) fn new(socket: OwnedFd, user: User, room: OwnedSemaphorePermit) -> io::Result<Self> {
        Ok(Self { socket: register(PacketSocket::from_fd(socket))?, user, _room: room })
    }

    /// Returns the user that it has inside.
    pub(super) fn user(&self) -> User {
        self.user
    }

    /// Whether it is still there, and has nothing to say that nobody asked for.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.socket.get_ref().receive(RecvFlags::DONTWAIT), Err(Errno::AGAIN))
    }

    pub(super) async fn ask(&self, ask: &Ask) -> Result<(), FileError> {
        let packet = wire::encode(ask).map_err(|_too_large| FileError::InvalidPath)?;
        if packet.len() > isolate::wire::MAX_PACKET {
            return Err(FileError::InvalidPath);
        }
        let send = |socket: &PacketSocket| Ok(socket.send(&packet, &[], SendFlags::DONTWAIT)?);
        self.socket.async_io(Interest::WRITABLE, send).await.map_err(|_gone| FileError::Lost)
    }

    /// Returns what it answers next. A fault is an error.
    pub(super) async fn next(&self) -> Result<(Answer, Option<OwnedFd>), FileError> {
        let receive = |socket: &PacketSocket| Ok(socket.receive(RecvFlags::DONTWAIT)?);
        let received = self.socket.async_io(Interest::READABLE, receive).await;
        let Ok(Some(packet)) = received else { return Err(FileError::Lost) };
        match wire::decode(&packet.bytes) {
            Ok(Answer::Failed(fault)) => Err(fault.into()),
            Ok(answer) => Ok((answer, packet.fds.into_iter().next())),
            Err(error) => {
                tracing::warn!(%error, "an agent for files says what nobody understands");
                Err(FileError::Lost)
            }
        }
    }

    /// Asks, and waits for one answer.
    pub(super) async fn answer(
        &self,
        ask: &Ask,
        within: Duration,
    ) -> Result<(Answer, Option<OwnedFd>), FileError> {
        let answered = async {
            self.ask(ask).await?;
            self.next().await
        };
        timeout(within, answered).await.unwrap_or(Err(FileError::Late))
    }
}

/// Takes a descriptor that came out of the sandbox. It is looked at once more: a process inside is not
/// trusted to say what it is, and anything but a regular file could hold up whoever reads it.
pub(super) fn regular(fd: Option<OwnedFd>) -> Result<File, FileError> {
    let fd = fd.ok_or(FileError::Lost)?;
    let raw = fstat(&fd).map_err(|errno| FileError::Kernel(errno.into()))?;
    match FileType::from_raw_mode(raw.st_mode) {
        FileType::RegularFile => Ok(File::from(fd)),
        _ => Err(FileError::NotRegular),
    }
}
