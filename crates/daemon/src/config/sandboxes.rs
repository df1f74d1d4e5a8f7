//! What sandboxes may write, what holds them to it, and how many are prepared: `[sandboxes]`.

use engine::{posture::DiskKind, sandboxes::Defaults};
use model::units::ByteSize;
use serde::{Deserialize, Serialize};

use super::units;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxesConfig {
    /// What a sandbox may write that was created without a `disk_limit`. It is promised to nobody:
    /// in a pool these may add up to more than there is.
    #[serde(with = "units::size")]
    pub default_disk: ByteSize,
    /// What holds the limits: `quota`, `btrfs`, `image`, `tmpfs` or `unlimited`. Without it, the
    /// first of these that works and is allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskKind>,
    /// How much of the data file system stays free of sandboxes' files.
    #[serde(with = "units::size")]
    pub keep_free: ByteSize,
    /// By how many times limits may together exceed what is free, under `quota` and as `image`.
    pub disk_overcommit: u32,
    /// Whether sandboxes may have their files in memory, where they are lost at a stop.
    pub allow_tmpfs: bool,
    /// Whether sandboxes may write as much as there is.
    pub allow_unlimited_disk: bool,
    /// How many processes wait for a sandbox to be made of them.
    pub prepared: u8,
    /// How much is kept of what commands have written that are over, for each sandbox.
    #[serde(with = "units::size")]
    pub outputs: ByteSize,
}

/// More than that save no time that anybody notices.
const MOST_PREPARED: u8 = 16;

impl Default for SandboxesConfig {
    fn default() -> Self {
        Self {
            default_disk: Defaults::default().disk,
            disk: None,
            keep_free: ByteSize::mib(1024),
            disk_overcommit: 1,
            allow_tmpfs: false,
            allow_unlimited_disk: false,
            prepared: 2,
            outputs: Defaults::default().outputs,
        }
    }
}

impl SandboxesConfig {
    /// Says what makes no sense.
    pub(super) fn problem(&self) -> Option<String> {
        if self.default_disk < engine::sandboxes::LEAST_DISK {
            let least = engine::sandboxes::LEAST_DISK;
            return Some(format!("sandboxes.default_disk must be at least {least}"));
        }
        if self.prepared > MOST_PREPARED {
            return Some(format!("sandboxes.prepared must be at most {MOST_PREPARED}"));
        }
        if self.disk_overcommit == 0 {
            return Some("sandboxes.disk_overcommit must be at least 1".to_owned());
        }
        let must_allow = match self.disk? {
            DiskKind::Tmpfs if !self.allow_tmpfs => "allow_tmpfs",
            DiskKind::Unlimited if !self.allow_unlimited_disk => "allow_unlimited_disk",
            _ => return None,
        };
        Some(format!("sandboxes.disk names what sandboxes.{must_allow} does not allow"))
    }

    /// Returns what a sandbox gets if nobody says otherwise.
    pub fn defaults(&self) -> Defaults {
        Defaults { disk: self.default_disk, outputs: self.outputs, ..Defaults::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_disks_that_is_not_allowed_makes_no_sense() {
        let config = SandboxesConfig { disk: Some(DiskKind::Unlimited), ..Default::default() };
        assert!(config.problem().is_some_and(|it| it.contains("allow_unlimited_disk")));
        let allowed = SandboxesConfig { allow_unlimited_disk: true, ..config };
        assert_eq!(allowed.problem(), None);
        let small = SandboxesConfig { default_disk: ByteSize::mib(1), ..Default::default() };
        assert!(small.problem().is_some());
        let many = SandboxesConfig { prepared: 17, ..Default::default() };
        assert!(many.problem().is_some());
        assert_eq!(SandboxesConfig::default().problem(), None);
    }
}
