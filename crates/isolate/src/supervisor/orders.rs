//! What the supervisor tells the stem and the buds that come from it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{RecvFlags, SendFlags},
};
use serde::{Deserialize, Serialize};

use super::{
    large,
    wire::{self, Start, User},
};
use crate::{plan::Rights, socket::PacketSocket, wire::MAX_PACKET};

/// One thing to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// To a stem, first of all: what is left to commands, and the filter that the stem itself is under like
    /// the supervisor.
    Begin { rights: Rights, filter: Vec<u8> },
    /// To a stem: with it come the socket of a bud, what it speaks to, and its group if it has one.
    Bud,
    /// To a stem: with it comes the socket of a process that works on files.
    Files(User),
    /// To a bud: with it come the streams of a command. It does everything but become it.
    Start(Start),
    /// Another order, too long for a packet, is in the file that comes along before all else.
    InFile,
    /// To a bud that knows what it is to be: now.
    Go,
}

/// Whether nobody is at the other end any more.
pub(super) fn is_gone(socket: &PacketSocket) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|gone| gone > 0)
}

/// Sends an order. One who stands still is not waited for.
pub(super) fn send(
    socket: &PacketSocket,
    order: &Order,
    fds: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let packet = wire::encode(order).or(Err(Errno::MSGSIZE))?;
    if packet.len() <= MAX_PACKET {
        return socket.send(&packet, fds, SendFlags::DONTWAIT);
    }
    let file = large::pack(&packet)?;
    let fds: Vec<_> = [file.as_fd()].into_iter().chain(fds.iter().copied()).collect();
    let packet = wire::encode(&Order::InFile).or(Err(Errno::MSGSIZE))?;
    socket.send(&packet, &fds, SendFlags::DONTWAIT)
}

/// Waits for the next order.
pub(super) fn next(socket: &PacketSocket) -> Result<(Order, Vec<OwnedFd>), Errno> {
    let mut packet = socket.receive(RecvFlags::empty())?.ok_or(Errno::PIPE)?;
    let order = wire::decode(&packet.bytes).or(Err(Errno::BADMSG))?;
    if !matches!(order, Order::InFile) || packet.fds.is_empty() {
        return Ok((order, packet.fds));
    }
    let order = large::unpack(&packet.fds.remove(0))?;
    Ok((wire::decode(&order).or(Err(Errno::BADMSG))?, packet.fds))
}
