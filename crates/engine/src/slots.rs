//! Where executions get their slots.

use isolate::{slot::SlotEnds, wire::Report};

use crate::{
    EngineError,
    languages::Language,
    spawner::{Control, SlotNumber, Spawner},
};

/// The slots of this node.
#[derive(Debug)]
pub(crate) struct Slots {
    spawner: Spawner,
}

/// A slot that waits for its one request. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) number: SlotNumber,
    pub(crate) control: Control,
    pub(crate) ends: Ends,
    pub(crate) cgroup: isolate::cgroup::handles::Handles,
}

/// The pipes of a slot.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) stdin: std::os::fd::OwnedFd,
    pub(crate) stdout: std::os::fd::OwnedFd,
    pub(crate) stderr: std::os::fd::OwnedFd,
    pub(crate) code: std::os::fd::OwnedFd,
}

impl Slots {
    pub(crate) fn new(spawner: Spawner) -> Self {
        Self { spawner }
    }

    /// Returns a slot for this language that is ready to be let go.
    pub(crate) async fn obtain(&self, language: &Language) -> Result<Slot, EngineError> {
        let (number, ends) = self.spawner.make(language.slot_spec()).await?;
        let SlotEnds { control, stdin, stdout, stderr, code, cgroup } = ends;
        let control = Control::new(control)
            .map_err(|source| EngineError::System { doing: "watch a slot", source })?;
        match control.receive().await? {
            Report::Ready => {}
            Report::Broken(broken) => return Err(broken.into()),
            Report::Exited { .. } => return Err(EngineError::InitGone),
        }
        Ok(Slot { number, control, ends: Ends { stdin, stdout, stderr, code }, cgroup })
    }

    pub(crate) async fn spawner_gone(&self) {
        self.spawner.gone().await;
    }

    /// Ends every slot, for good.
    pub(crate) fn close(&self) {
        self.spawner.close();
    }

    /// Has a slot ended whose own init does not answer.
    pub(crate) async fn destroy(&self, slot: SlotNumber) -> Result<(), EngineError> {
        self.spawner.destroy(slot).await
    }
}
