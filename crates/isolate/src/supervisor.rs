//! PID 1 of a long-lived sandbox: it owns what must survive the daemon.
//!
//! It starts commands, waits for them, keeps their output in files and how they ended in a journal,
//! and tells all that to whoever knows the sandbox's secret. It knows no business rules, opens no
//! path that a user names, and ends when it is told to stop.

mod bud;
mod command;
pub mod connection;
mod exec;
mod groups;
pub mod journal;
mod kept;
pub mod large;
mod orders;
mod output;
mod port;
mod serve;
mod stem;
mod terminal;
pub mod wire;

use std::os::fd::OwnedFd;

use rustix::{io::Errno, net::listen};

use crate::plan::Rights;
pub use groups::{Groups, join};
use serve::Supervisor;
pub use stem::Stem;
use wire::Secret;

/// What a supervisor has of its sandbox.
#[derive(Debug)]
pub struct Place {
    pub sandbox: String,
    pub secret: Secret,
    /// What is left to commands.
    pub rights: Rights,
    /// The filter for the supervisor itself, and for the process that commands are forked from.
    pub filter: Vec<u8>,
    /// The folder where output is kept.
    pub outputs: OwnedFd,
    pub journal: OwnedFd,
    pub groups: Groups,
}

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4;

/// A supervisor that listens, and has nothing to do yet.
#[derive(Debug)]
pub struct Supervision(Supervisor);

impl Supervision {
    /// Begins to listen. The socket is bound, and not listening yet: whoever calls listen is who
    /// others see behind it.
    pub fn begin(place: Place, stem: Stem, socket: OwnedFd) -> Result<Self, Errno> {
        listen(&socket, BACKLOG)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        stem.begin(&place.rights, &place.filter)?;
        Ok(Self(Supervisor::new(place, stem, socket)?))
    }

    /// Has the process of the first command made before anybody asks for it.
    pub fn have_bud(&mut self) {
        self.0.have_bud();
    }

    /// Supervises until it is told to stop.
    pub fn run(&mut self) -> Result<(), Errno> {
        self.0.run()
    }
}
