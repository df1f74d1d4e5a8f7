//! A socket that carries whole packets and descriptors.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, sendmsg,
        socketpair,
    },
};

use crate::wire::{MAX_FDS, MAX_PACKET};

/// Asks how long the next packet is, and leaves it where it is.
const PEEK_AT_LENGTH: RecvFlags = RecvFlags::PEEK.union(RecvFlags::TRUNC);

/// One end of a SEQPACKET pair.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
}

/// A packet and the descriptors that came with it.
#[derive(Debug)]
pub struct Packet {
    pub bytes: Vec<u8>,
    pub fds: Vec<OwnedFd>,
}

impl PacketSocket {
    /// Makes two connected sockets, both closed on exec.
    pub fn pair() -> Result<(Self, Self), Errno> {
        let (a, b) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self { fd: a }, Self { fd: b }))
    }

    pub fn from_fd(fd: OwnedFd) -> Self {
        Self { fd }
    }

    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Sends one packet. With `DONTWAIT` a full socket answers `AGAIN`.
    pub fn send(
        &self,
        bytes: &[u8],
        fds: &[BorrowedFd<'_>],
        flags: SendFlags,
    ) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Errno::TOOBIG);
        }
        let flags = flags | SendFlags::NOSIGNAL;
        retry(|| sendmsg(&self.fd, &[IoSlice::new(bytes)], &mut ancillary, flags)).map(drop)
    }

    /// Receives one packet; `None` when the other end is closed.
    pub fn receive(&self, flags: RecvFlags) -> Result<Option<Packet>, Errno> {
        let length = match retry(|| recv(&self.fd, &mut [0_u8; 0], flags | PEEK_AT_LENGTH)) {
            // A peer that died with packets of ours unread resets the connection.
            Err(Errno::CONNRESET) => return Ok(None),
            other => other?.1,
        };
        // Every page of a buffer costs a new process a fault: it is as large as it must be.
        let mut bytes = vec![0; length.min(MAX_PACKET)];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = flags | RecvFlags::CMSG_CLOEXEC;
        let message =
            retry(|| recvmsg(&self.fd, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags));
        let message = match message {
            Err(Errno::CONNRESET) => return Ok(None),
            other => other?,
        };
        let fds = ancillary
            .drain()
            .flat_map(|message| match message {
                RecvAncillaryMessage::ScmRights(rights) => rights.collect::<Vec<_>>(),
                _ => Vec::new(),
            })
            .collect();
        if message.bytes == 0 {
            return Ok(None);
        }
        bytes.truncate(message.bytes);
        Ok(Some(Packet { bytes, fds }))
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_travel_with_their_packet() {
        let (a, b) = PacketSocket::pair().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        a.send(b"hello", &[write.as_fd()], SendFlags::empty()).unwrap();
        let packet = b.receive(RecvFlags::empty()).unwrap().unwrap();
        assert_eq!((packet.bytes.as_slice(), packet.fds.len()), (b"hello".as_slice(), 1));
        rustix::io::write(&packet.fds[0], b"x").unwrap();
        let mut byte = [0];
        assert_eq!(rustix::io::read(&read, &mut byte), Ok(1));
    }

    #[test]
    fn a_closed_peer_reads_as_the_end() {
        let (a, b) = PacketSocket::pair().unwrap();
        a.send(b"last", &[], SendFlags::empty()).unwrap();
        drop(a);
        assert_eq!(b.receive(RecvFlags::empty()).unwrap().unwrap().bytes, b"last");
        assert!(b.receive(RecvFlags::empty()).unwrap().is_none());
    }
}
