//! What this spawner makes slots of.

use super::{Settings, ids::identity_in};
use crate::{
    cgroup::{CgroupError, Cgroups},
    posture::{Limits, Posture, SystemFiles},
};

pub(super) fn of(
    cgroups: &Result<Cgroups, CgroupError>,
    settings: &Settings,
    system_files: SystemFiles,
) -> Posture {
    let limits = match cgroups {
        Ok(cgroups) => Limits::Cgroups { version: cgroups.version(), has_kill: cgroups.has_kill() },
        Err(error) => Limits::Soft { why: error.to_string() },
    };
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    Posture {
        kernel,
        identity: settings.sandbox_users,
        slot_identity: identity_in(settings.ids),
        limits,
        system_files,
    }
}
