//! Settings of the audit log.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::units;
use crate::audit::SealSettings;

/// The shortest time between two seals.
const MIN_SEAL_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditConfig {
    /// Time between two seals of the log.
    #[serde(with = "units::duration")]
    pub seal_interval: Duration,
    /// A file to which the checkpoint of each seal is appended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<PathBuf>,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self { seal_interval: Duration::from_mins(5), checkpoints: None }
    }
}

impl AuditConfig {
    pub(crate) fn settings(&self) -> SealSettings {
        SealSettings { interval: self.seal_interval, checkpoints: self.checkpoints.clone() }
    }

    pub(super) fn problem(&self) -> Option<String> {
        if self.seal_interval < MIN_SEAL_INTERVAL {
            return Some("audit.seal_interval must be at least 1s".into());
        }
        let is_relative = self.checkpoints.as_ref().is_some_and(|path| !path.is_absolute());
        is_relative.then(|| "audit.checkpoints must be an absolute path".into())
    }
}
