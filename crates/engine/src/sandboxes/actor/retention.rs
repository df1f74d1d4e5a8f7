//! How much of its own history a sandbox keeps.

use model::event::first_kept;

use super::Actor;

impl Actor {
    /// Deletes the oldest events once there are a hundredth more than are kept. What fails is tried again with the
    /// next event.
    pub(super) async fn trim_events(&mut self) {
        let (latest, kept) = (self.sandbox.life.sequence, self.shared.settings.defaults.events);
        let Some(first) = first_kept(self.earliest, latest, kept) else { return };
        match self.shared.store.trim_events(&self.sandbox.id, first).await {
            Ok(()) => self.earliest = first,
            Err(error) => {
                tracing::warn!(sandbox = %self.sandbox.id, %error, "cannot delete old events");
            }
        }
    }
}
