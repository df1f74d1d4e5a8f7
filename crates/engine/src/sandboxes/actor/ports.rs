//! The ports of a sandbox: open while it is ready. Published ones are the machine's again after that,
//! and whoever is connected to any of them is cut off.

use model::life::Phase;

use super::{Actor, Presence};
use crate::sandboxes::{
    machine::MachineError,
    ports::{Bound, Open},
};

/// How the ports of a sandbox stand.
#[derive(Debug, Default)]
pub(super) enum Ports {
    #[default]
    Closed,
    /// Nobody else can have them. Whoever connects waits until the sandbox is ready.
    Taken(Bound),
    Open(Open),
}

impl Actor {
    /// Takes the ports before anything is made: without them there is to be no sandbox.
    pub(super) fn take_ports(&mut self) -> Result<(), MachineError> {
        if !self.sandbox.spec.ports.is_empty() && matches!(self.ports, Ports::Closed) {
            self.ports = Ports::Taken(Bound::take(&self.sandbox.spec.ports)?);
        }
        Ok(())
    }

    /// Has them as the phase wants them.
    pub(super) fn tend_ports(&mut self) {
        match (&self.presence, self.phase()) {
            (_, Phase::Provisioning | Phase::Resuming) => {}
            (Presence::Link(_), Phase::Active | Phase::Frozen) => self.open_ports(),
            // Whether it lives is being found out.
            (Presence::Unknown, Phase::Active | Phase::Frozen) => {}
            // What is being answered may be answered to its end.
            (Presence::Link(_), Phase::Stopping) => {
                if let Ports::Open(open) = &mut self.ports {
                    open.close();
                }
            }
            (
                Presence::None
                | Presence::Remains
                | Presence::Unknown
                | Presence::Foreign { .. }
                | Presence::Link(_),
                _,
            ) => {
                self.ports = Ports::Closed;
                self.door.way.cut();
            }
        }
    }

    fn open_ports(&mut self) {
        if self.sandbox.spec.ports.is_empty() {
            return;
        }
        let bound = match std::mem::take(&mut self.ports) {
            Ports::Open(open) => return self.ports = Ports::Open(open),
            Ports::Taken(bound) => bound,
            // A server before this one had them.
            Ports::Closed => Bound::take_free(&self.sandbox.spec.ports),
        };
        self.ports = Ports::Open(Open::begin(&self.shared.tasks, &self.door.way, bound));
    }
}
