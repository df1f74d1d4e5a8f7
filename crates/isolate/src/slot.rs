//! A slot as the daemon holds it.

use std::os::fd::OwnedFd;

use crate::{cgroup::handles::Handles, socket::PacketSocket, wire::CgroupFile};

/// The daemon's ends of a slot. Letting go of `control` ends the slot.
#[derive(Debug)]
pub struct SlotEnds {
    pub control: PacketSocket,
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    /// The request goes in here, in the form that [`request`] gives it.
    pub code: OwnedFd,
    pub cgroup: Handles,
}

impl SlotEnds {
    /// Takes the descriptors that came with a `Made` notice; `None` if some are missing.
    pub fn new(kinds: Vec<CgroupFile>, fds: Vec<OwnedFd>) -> Option<Self> {
        let mut fds = fds.into_iter();
        let mut next = || fds.next();
        let (control, stdin, stdout) = (next()?, next()?, next()?);
        let (stderr, code) = (next()?, next()?);
        let files: Vec<OwnedFd> = fds.collect();
        if files.len() != kinds.len() {
            return None;
        }
        let cgroup = Handles::new(kinds.into_iter().zip(files).collect());
        Some(Self { control: PacketSocket::from_fd(control), stdin, stdout, stderr, code, cgroup })
    }
}

/// Puts a request into the form in which a waiting program reads it: `KEY=VALUE` records, each
/// ended by a zero byte, an empty record, then the code up to the end.
pub fn request<'a>(env: impl IntoIterator<Item = (&'a str, &'a str)>, code: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(code.len() + 64);
    for (key, value) in env {
        for part in [key.as_bytes(), b"=", value.as_bytes(), b"\0"] {
            bytes.extend_from_slice(part);
        }
    }
    bytes.push(0);
    bytes.extend_from_slice(code);
    bytes
}
