//! What a record waits for before it is kept.

use tokio::sync::oneshot;

use crate::StoreError;

/// Something that is expected to be true by the time that a record is written down, and without which
/// nothing of it is kept ([`StoreError::Unmet`]). Others may wait meanwhile whose records are kept together with it:
/// whoever has the other end sees to it that it is not for long.
#[derive(Debug)]
pub struct Condition(oneshot::Receiver<()>);

/// The other end of a condition. If it is dropped, that will never be true.
#[derive(Debug)]
pub struct Met(oneshot::Sender<()>);

impl Condition {
    pub fn new() -> (Met, Self) {
        let (sender, receiver) = oneshot::channel();
        (Met(sender), Self(receiver))
    }

    /// Waits in a thread that may.
    pub(crate) fn wait(self) -> Result<(), StoreError> {
        self.0.blocking_recv().map_err(|_dropped| StoreError::Unmet)
    }

    pub(crate) async fn until_met(self) -> Result<(), StoreError> {
        self.0.await.map_err(|_dropped| StoreError::Unmet)
    }
}

impl Met {
    /// Says that it is true. A record that nobody waits for needs no word.
    pub fn now(self) {
        let _ = self.0.send(());
    }
}
