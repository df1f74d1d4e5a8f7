//! The supervisor's end of its connection to the daemon.
//!
//! Both ends read whenever something has arrived, also while they have messages of their own to send. If an
//! end stopped reading until its own messages were sent, two full queues would block each other for ever.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    event::PollFlags,
    io::Errno,
    net::{RecvFlags, SendFlags},
};

use super::{
    large,
    wire::{self, Ask, Tell, WireError},
};
use crate::socket::{Packet, PacketSocket};

/// The most messages that wait for room in the socket. Each answers a request of the daemon's, which reads
/// whenever it waits itself, so a daemon that lets this many pile up has stopped reading.
pub const MAX_UNSENT: usize = 4_096;

/// A connection whose other end has proved that it knows the sandbox's secret.
#[derive(Debug)]
pub struct Connection {
    socket: PacketSocket,
    unsent: VecDeque<(Tell, Option<OwnedFd>)>,
}

/// What arrived.
#[derive(Debug)]
pub enum Received {
    Ask(Ask),
    /// Nothing more for now.
    Nothing,
    /// The daemon is gone, or sends what this supervisor cannot read.
    Closed,
}

impl Connection {
    /// Takes over a non-blocking socket.
    pub fn new(socket: PacketSocket) -> Self {
        Self { socket, unsent: VecDeque::new() }
    }

    /// Returns what to poll the socket for.
    pub fn interest(&self) -> PollFlags {
        if self.is_flushed() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT }
    }

    /// Whether every message was handed to the kernel.
    pub fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Sends a message, as soon as there is room for it. Fails when the daemon is gone or has stopped reading.
    pub fn send(&mut self, tell: Tell, fd: Option<OwnedFd>) -> Result<(), Errno> {
        if self.unsent.len() >= MAX_UNSENT {
            return Err(Errno::NOBUFS);
        }
        self.unsent.push_back((tell, fd));
        self.flush()
    }

    /// Sends what there is room for.
    pub fn flush(&mut self) -> Result<(), Errno> {
        while let Some((tell, fd)) = self.unsent.front() {
            let packet = wire::encode(tell).or(Err(Errno::MSGSIZE))?;
            let fds: Vec<_> = fd.iter().map(AsFd::as_fd).collect();
            match self.socket.send(&packet, &fds, SendFlags::empty()) {
                Ok(()) => drop(self.unsent.pop_front()),
                Err(Errno::AGAIN) => return Ok(()),
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Sends everything, and waits for room if there is none.
    pub fn flush_blocking(&mut self) -> Result<(), Errno> {
        rustix::io::ioctl_fionbio(&self.socket, false)?;
        self.flush()
    }

    /// Returns the next request that has arrived.
    pub fn receive(&self) -> Received {
        match self.socket.receive(RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => Received::Nothing,
            Ok(Some(packet)) => decode(&packet).map_or(Received::Closed, Received::Ask),
            Ok(None) | Err(_) => Received::Closed,
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Decodes a request from its packet, or from the file that came with the packet.
fn decode(packet: &Packet) -> Result<Ask, WireError> {
    match (wire::decode(&packet.bytes)?, packet.fds.first()) {
        (Ask::InFile, Some(file)) => {
            wire::decode(&large::unpack(file).map_err(|_unreadable| WireError::Empty)?)
        }
        (ask, _) => Ok(ask),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(exec: usize) -> Tell {
        Tell::Refused { exec: exec.to_string(), why: wire::Refusal::NoSuchExec }
    }

    fn pair() -> (Connection, PacketSocket) {
        let (ours, theirs) = PacketSocket::pair().unwrap();
        rustix::io::ioctl_fionbio(&ours, true).unwrap();
        (Connection::new(ours), theirs)
    }

    #[test]
    fn requests_are_read_while_answers_wait_for_room() {
        let (mut connection, daemon) = pair();
        let mut sent = 0;
        while connection.is_flushed() {
            connection.send(refused(sent), None).unwrap();
            sent += 1;
        }
        assert_eq!(connection.interest(), PollFlags::IN | PollFlags::OUT);
        let ask = wire::encode(&Ask::CloseInput { exec: "x".to_owned() }).unwrap();
        daemon.send(&ask, &[], SendFlags::empty()).unwrap();
        let received = connection.receive();
        assert!(
            matches!(&received, Received::Ask(Ask::CloseInput { exec }) if exec == "x"),
            "{received:?}"
        );
        for number in 0..sent {
            connection.flush().unwrap();
            let packet = daemon.receive(RecvFlags::empty()).unwrap().unwrap();
            assert_eq!(wire::decode::<Tell>(&packet.bytes).unwrap(), refused(number));
        }
        assert_eq!(connection.interest(), PollFlags::IN);
    }

    #[test]
    fn a_daemon_that_stops_reading_costs_a_bounded_amount() {
        let (mut connection, _daemon) = pair();
        let failed = (0..100_000).find_map(|number| connection.send(refused(number), None).err());
        assert_eq!(failed, Some(Errno::NOBUFS));
        assert_eq!(connection.unsent.len(), MAX_UNSENT);
    }
}
