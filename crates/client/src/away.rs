//! Waiting for a server that is away for a while: restarted, upgraded, or cut off.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::ClientError;

/// How long a server may be away before it is given up.
const PATIENCE: Duration = Duration::from_mins(1);

/// Between the first two attempts to reach a server that is away.
const PAUSE: Duration = Duration::from_millis(50);

/// Between any two attempts, at most.
pub(crate) const LONG_PAUSE: Duration = Duration::from_secs(1);

/// For how long a server has been away.
#[derive(Debug)]
pub(crate) struct Away {
    patience: Duration,
    since: Option<Instant>,
    attempts: u32,
}

impl Default for Away {
    fn default() -> Self {
        Self::bearable_for(PATIENCE)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    Just,
    Still,
}

impl Away {
    pub(crate) fn bearable_for(patience: Duration) -> Self {
        Self { patience, since: None, attempts: 0 }
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.since.is_some()
    }

    /// Gives the error back if it is not for waiting, or was waited for long enough.
    pub(crate) fn bear(&mut self, error: ClientError) -> Result<Gone, ClientError> {
        if !error.is_broken() {
            return Err(error);
        }
        match self.since {
            None => {
                self.since = Some(Instant::now());
                Ok(Gone::Just)
            }
            Some(since) if since.elapsed() < self.patience => Ok(Gone::Still),
            Some(_) => Err(error),
        }
    }

    pub(crate) async fn pause(&mut self) {
        let pause = PAUSE.saturating_mul(1 << self.attempts.min(8)).min(LONG_PAUSE);
        self.attempts += 1;
        sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken() -> ClientError {
        ClientError::Broken { cause: String::new() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_away_is_tried_ever_more_seldom_and_given_up_after_a_minute() {
        let mut away = Away::default();
        let (begun, mut attempts) = (Instant::now(), 0);
        while away.bear(broken()).is_ok() {
            away.pause().await;
            attempts += 1;
        }
        assert!((PATIENCE..PATIENCE * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        assert!((50..80).contains(&attempts), "{attempts}");
    }

    #[test]
    fn a_refusal_is_not_borne() {
        let refused = ClientError::Refused { code: "X".to_owned(), message: String::new() };
        assert!(Away::default().bear(refused).is_err());
    }
}
