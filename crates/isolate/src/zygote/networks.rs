//! The network of each slot: a namespace with a loopback device and nothing else.
//!
//! Making one and taking it down costs more than all other namespaces of a slot together, and most
//! programs never send a byte. A slot therefore gets the network of an earlier one, if all its
//! processes are gone and the kernel has counted nothing in it: no socket that is left, no packet,
//! not even one that found no way. What a program could tell such a network from a new one by is
//! its number. At any time one slot has it, and nobody in the slot has a right over it.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

use crate::sys;

/// What tells of everything that was ever done in a network. Of the first, only its first line,
/// how many sockets there are: the others count for the whole machine.
const SOCKETS: &str = "/proc/self/net/sockstat";
const COUNTERS: [&str; 2] = ["/proc/self/net/snmp", "/proc/self/net/snmp6"];

/// Makes networks, and knows what a new one looks like.
#[derive(Debug, Default)]
pub(super) struct Networks {
    new: Vec<u8>,
    seen: Vec<u8>,
}

impl Networks {
    /// Moves this process, and with it the next slot, into a network that nothing was done in:
    /// the one that an earlier slot had, or else a new one. Returns it.
    pub(super) fn enter(&mut self, used: Option<OwnedFd>) -> Result<OwnedFd, Errno> {
        if let Some(used) = used
            && self.is_like_new(&used)
        {
            return Ok(used);
        }
        sys::process::unshare_network()?;
        sys::net::bring_loopback_up()?;
        if self.new.is_empty() {
            look(&mut self.new)?;
        }
        openat(CWD, "/proc/self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    }

    /// Enters it and looks around.
    fn is_like_new(&mut self, network: &OwnedFd) -> bool {
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).is_ok()
            && look(&mut self.seen).is_ok()
            && self.seen == self.new
    }
}

fn look(into: &mut Vec<u8>) -> Result<(), Errno> {
    into.clear();
    append(into, SOCKETS)?;
    let line = into.iter().position(|byte| *byte == b'\n');
    into.truncate(line.unwrap_or_default());
    COUNTERS.iter().try_for_each(|path| append(into, path))
}

fn append(text: &mut Vec<u8>, path: &str) -> Result<(), Errno> {
    let file = match openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        // A kernel without the newer protocol.
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    loop {
        text.reserve(4096);
        match rustix::io::read(&file, rustix::buffer::spare_capacity(text)) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(other) => return Err(other),
        }
    }
}
