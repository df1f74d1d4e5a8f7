//! Supervisors that say nothing, or something that this server does not understand: they may be
//! those of a newer one. Their sandboxes are left alone until a server comes that they know.

use std::io;

use isolate::supervisor::wire::{VERSION, WireError};
use model::{life::Phase, sandbox::Request};

use super::{Actor, Execs, MainProcess, Presence};
use crate::sandboxes::SandboxError;

/// How often a supervisor may hang up before it has said anything. One that dies does so, and is
/// not found again after that.
const HANG_UPS: u32 = 3;

impl Actor {
    /// The supervisor says nothing more. If it lives, it is talked to again.
    pub(super) fn lose_supervisor(&mut self, gone: io::Result<()>) {
        let foreign = gone.as_ref().err().and_then(version_of);
        if let Err(error) = gone {
            tracing::warn!(sandbox = %self.sandbox.id, %error, "cannot hear its supervisor");
        }
        if matches!(self.phase(), Phase::Stopping | Phase::Deleting) {
            return self.let_go(Presence::Remains);
        }
        self.hang_ups += 1;
        let report = match foreign {
            Some(found) => format!(
                "its supervisor speaks version {found} of the protocol and this server version \
                 {VERSION}: start the server that made it, or remove it"
            ),
            None if self.hang_ups > HANG_UPS => {
                "its supervisor lives and does not talk to this server: start the server that made \
                 it, or remove it"
                    .to_owned()
            }
            None => return self.let_go(Presence::Unknown),
        };
        tracing::error!(sandbox = %self.sandbox.id, report, "the sandbox is left alone");
        self.let_go(Presence::Foreign { report });
    }

    /// Talks to the supervisor no more. What it has told is not to be relied on then.
    pub(super) fn let_go(&mut self, presence: Presence) {
        self.presence = presence;
        self.execs = Execs::default();
        self.inputs.clear();
        self.main = MainProcess::default();
        self.beside.ready_at = None;
    }

    /// Refuses what a supervisor would have to do that is not understood, or that nobody can reach.
    pub(super) fn check_understood(&self, request: &Request) -> Result<(), SandboxError> {
        match (&self.presence, request) {
            (
                Presence::Foreign { report },
                Request::StartExec { .. } | Request::CancelExec(_) | Request::Use(_),
            ) => Err(SandboxError::Unavailable(report.clone())),
            (
                Presence::Unknown,
                Request::StartExec { .. } | Request::CancelExec(_) | Request::Use(_),
            ) => match &self.out_of_reach {
                Some(why) => Err(SandboxError::Provider(why.clone())),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

/// Returns the version in which something was said, if that is why it was not understood.
fn version_of(error: &io::Error) -> Option<u8> {
    match error.get_ref()?.downcast_ref::<WireError>()? {
        WireError::Version { found } => Some(*found),
        WireError::Malformed(_) | WireError::Empty => None,
    }
}
