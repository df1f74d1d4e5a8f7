//! How much of its own history a sandbox keeps.

use model::event::Sequence;

use super::Actor;

impl Actor {
    /// Forgets the oldest events once there are a hundredth more than are kept.
    pub(super) async fn trim_events(&mut self) {
        let (latest, kept) = (self.sandbox.life.sequence.0, self.shared.settings.defaults.events);
        let earliest = latest.saturating_sub(kept).saturating_add(1);
        if earliest.saturating_sub(self.earliest) < (kept / 100).max(1) {
            return;
        }
        self.earliest = earliest;
        let trimmed = self.shared.store.trim_events(&self.sandbox.id, Sequence(earliest)).await;
        if let Err(error) = trimmed {
            tracing::warn!(sandbox = %self.sandbox.id, %error, "cannot forget old events");
        }
    }
}
