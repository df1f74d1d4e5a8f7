//! What this spawner makes slots of.

use super::IdRange;
use crate::{
    cgroup::{CgroupError, Cgroups},
    plan::Identity,
    posture::{Limits, Posture, SystemFiles},
};

pub(super) fn of(
    cgroups: &Result<Cgroups, CgroupError>,
    ids: Option<IdRange>,
    system_files: SystemFiles,
) -> Posture {
    let limits = match cgroups {
        Ok(cgroups) => Limits::Cgroups { version: cgroups.version(), has_kill: cgroups.has_kill() },
        Err(error) => Limits::Soft { why: error.to_string() },
    };
    let identity = if ids.is_some() { Identity::Apart } else { Identity::Shared };
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    Posture { kernel, identity, limits, system_files }
}
