//! A sandbox that could not be created: how long its failure answers for its session, so that polling does
//! not fetch the image again with each request.

use std::time::Duration;

use crate::{
    life::{Failure, FailureCause, Life},
    units::Timestamp,
};

/// A cause that only another image or another setting removes.
const FINAL: Duration = Duration::from_mins(1);
/// A cause that may pass.
const PASSING: Duration = Duration::from_secs(5);

impl FailureCause {
    /// Returns for how long a failed creation is not attempted again with the same image.
    const fn back_off(self) -> Duration {
        match self {
            Self::ImageNotFound | Self::ImageNotAllowed | Self::ImageUnusable => FINAL,
            Self::ImageFailed => PASSING,
            Self::CreateFailed
            | Self::DiskFull
            | Self::ResumeFailed
            | Self::MainProcessCrashed
            | Self::SupervisorLost
            | Self::HostRebooted
            | Self::ProviderLost => Duration::ZERO,
        }
    }

    /// Tells whether the sandbox never came into being.
    const fn is_of_creation(self) -> bool {
        match self {
            Self::CreateFailed
            | Self::ImageFailed
            | Self::ImageNotFound
            | Self::ImageNotAllowed
            | Self::ImageUnusable
            | Self::DiskFull => true,
            Self::ResumeFailed
            | Self::MainProcessCrashed
            | Self::SupervisorLost
            | Self::HostRebooted
            | Self::ProviderLost => false,
        }
    }
}

impl Life {
    /// Returns why it could not be created, if that is what became of it. Its session shows this until it ends
    /// or is replaced.
    pub fn failed_creation(&self) -> Option<&Failure> {
        self.broken_by().filter(|failure| failure.cause.is_of_creation())
    }

    /// Returns the failure that answers a request for its session now, instead of another attempt.
    pub fn recent_failure(&self, now: Timestamp) -> Option<&Failure> {
        let failed_at = self.phase_since;
        self.failed_creation().filter(|failure| now < failed_at.plus(failure.cause.back_off()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::Phase;

    #[test]
    fn a_failed_creation_answers_for_as_long_as_its_cause_is_expected_to_last() {
        use FailureCause::{
            CreateFailed, DiskFull, HostRebooted, ImageFailed, ImageNotAllowed, ImageNotFound,
            ImageUnusable, MainProcessCrashed, ProviderLost, ResumeFailed, SupervisorLost,
        };
        // Cause, whether its session shows it, and for how many seconds no other attempt is made.
        let rows = [
            (ImageNotFound, true, 60),
            (ImageNotAllowed, true, 60),
            (ImageUnusable, true, 60),
            (ImageFailed, true, 5),
            (CreateFailed, true, 0),
            (DiskFull, true, 0),
            (ProviderLost, false, 0),
            (ResumeFailed, false, 0),
            (MainProcessCrashed, false, 0),
            (SupervisorLost, false, 0),
            (HostRebooted, false, 0),
        ];
        for (cause, is_shown, seconds) in rows {
            let failed_at = Timestamp::from_millis(1_000_000);
            let mut life = Life::accepted(failed_at);
            life.phase = Phase::Failed;
            life.failure = Some(Failure { cause, message: "why".to_owned() });
            assert_eq!(life.failed_creation().is_some(), is_shown, "{cause:?}");
            let answers = |after: i64| {
                life.recent_failure(Timestamp::from_millis(1_000_000 + after)).is_some()
            };
            assert!(seconds == 0 || answers(seconds * 1000 - 1), "{cause:?}");
            assert!(!answers(seconds * 1000), "{cause:?}");
        }
    }

    #[test]
    fn a_deleted_sandbox_answers_with_no_failure() {
        let mut life = Life::accepted(Timestamp::from_millis(0));
        life.failure =
            Some(Failure { cause: FailureCause::ImageNotFound, message: "why".to_owned() });
        for phase in Phase::ALL.into_iter().filter(|phase| *phase != Phase::Failed) {
            life.phase = phase;
            assert_eq!(life.recent_failure(Timestamp::from_millis(0)), None, "{phase:?}");
        }
    }
}
