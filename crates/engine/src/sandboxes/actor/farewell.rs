//! Asking processes to end by themselves: when the sandbox is stopped, and when its time is over.

use std::time::Duration;

use isolate::supervisor::wire::Ask as Say;
use model::life::{EndCause, Phase};
use tokio::time::Instant;

use super::{Actor, GRACE, LAST_WAIT, Presence};

/// How long commands have to end by themselves in a sandbox whose time is over.
const LAST_GRACE: Duration = Duration::from_secs(5);
/// How long those who watch may read what commands have written before it is removed with the sandbox.
const READ_OUT: Duration = Duration::from_secs(1);

/// How far the end of a sandbox is whose commands are given a while for theirs (F69). A server that takes
/// over in between does not begin it anew: nobody has more time than there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Farewell {
    #[default]
    NotSaid,
    /// Commands were asked to end, and are killed by then.
    Said(Instant),
    /// None runs any more.
    ReadOut(Instant),
    Over,
}

impl Farewell {
    pub(super) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Said(until) | Self::ReadOut(until) => Some(until),
            Self::NotSaid | Self::Over => None,
        }
    }
}

impl Actor {
    pub(super) async fn ask_to_stop(&mut self) {
        if self.stop_until.is_none() {
            self.stop_until = Some(Instant::now() + GRACE + LAST_WAIT);
            self.ask_to_end(GRACE).await;
        }
    }

    /// Lets commands end by themselves in a sandbox whose time is over. Returns whether that goes on, so that
    /// nothing is removed yet.
    pub(super) async fn says_farewell(&mut self) -> bool {
        let is_by_time = self.sandbox.life.end.as_ref().is_some_and(EndCause::is_by_time);
        if self.phase() != Phase::Deleting || !is_by_time {
            return false;
        }
        let is_running = !self.sandbox.life.running.is_empty();
        let can_be_asked = matches!(self.presence, Presence::Link(_));
        match self.farewell {
            Farewell::NotSaid if is_running && can_be_asked => {
                self.farewell = Farewell::Said(Instant::now() + LAST_GRACE + LAST_WAIT);
                self.ask_to_end(LAST_GRACE).await;
                true
            }
            Farewell::Said(_) if !is_running => {
                self.farewell = Farewell::ReadOut(Instant::now() + READ_OUT);
                true
            }
            // Nobody says any more how they ended.
            Farewell::Said(_) => can_be_asked,
            Farewell::ReadOut(_) => true,
            Farewell::NotSaid | Farewell::Over => false,
        }
    }

    /// Tells whether a command that is killed now is so because the time of its sandbox is over.
    pub(super) fn is_time_over(&self) -> bool {
        matches!(self.farewell, Farewell::Said(_))
    }

    async fn ask_to_end(&mut self, grace: Duration) {
        // What stands still could not even end.
        if let Err(error) = self.thaw_bodies().await {
            tracing::debug!(sandbox = %self.sandbox.id, %error, "cannot thaw");
        }
        // A supervisor that is gone is seen as such by the next read.
        self.say(&Say::Stop { grace }).await;
    }
}
