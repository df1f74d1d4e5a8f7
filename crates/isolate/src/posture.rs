//! What stands between a slot and this machine, as data.

use serde::{Deserialize, Serialize};

use crate::{
    plan::Identity,
    volume::{DiskKind, Refused},
};

/// Which layers of isolation are active here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posture {
    pub kernel: String,
    /// Whose users sandboxes have.
    pub identity: Identity,
    /// Whose users slots have.
    pub slot_identity: Identity,
    pub limits: Limits,
    pub system_files: SystemFiles,
}

/// Whether file locks and file events of the machine's programs and of `/etc` belong to one slot or sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SystemFiles {
    /// Each has read-only overlays of its own.
    Private,
    /// The kernel has no overlays over this machine's file systems: programs that know of each other can
    /// exchange signals by locks on the same file.
    Shared,
}

/// What holds the limits of a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limits {
    /// The kernel's control groups. `has_kill`: a slot ends by one write.
    Cgroups { version: CgroupVersion, has_kill: bool },
    /// Resource limits of each process, and init looking at the memory now and then.
    Soft { why: String },
}

/// What holds the limits of sandboxes' files. It is found out beside everything else, and told when
/// it is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Volumes {
    /// Kinds that are better were refused, each for its reason.
    Held { kind: DiskKind, refused: Vec<Refused> },
    /// Nothing that the operator allows: there can be no sandboxes.
    None { why: String },
    /// Something went wrong that may not go wrong again.
    Broken { why: String },
}

/// Which kind of controllers hold the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupVersion {
    V1,
    V2,
}

impl Posture {
    /// Whether memory is limited by the kernel, or only watched.
    pub fn has_soft_limits(&self) -> bool {
        matches!(self.limits, Limits::Soft { .. })
    }
}
