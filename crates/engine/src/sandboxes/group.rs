//! The control group of a sandbox. Its descriptors are opened when something is to be done and not
//! kept: a thousand sandboxes would have ten thousand of them.

use std::{io, os::fd::OwnedFd, time::Duration};

use isolate::{
    cgroup::handles::{FreezeError, Handles},
    wire::CgroupFile,
};
use model::spec::Resources;

use super::Defaults;
use crate::EngineError;

/// How long processes may take to stop where they stand.
const FROZEN_WITHIN: Duration = Duration::from_secs(5);

/// The control group of all commands of a sandbox.
#[derive(Debug)]
pub(super) struct Group(Handles);

impl Group {
    pub(super) fn new(kinds: Vec<CgroupFile>, fds: Vec<OwnedFd>) -> Result<Self, EngineError> {
        if kinds.len() != fds.len() {
            return Err(EngineError::MissingDescriptors);
        }
        Ok(Self(Handles::new(kinds.into_iter().zip(fds).collect())))
    }

    pub(super) fn limit(&self, asked: &Resources, defaults: Defaults) -> io::Result<()> {
        let memory = asked.memory.unwrap_or(defaults.memory);
        self.0.limit_memory(memory.as_bytes())?;
        if let Some(millicores) = asked.millicores {
            self.0.limit_cpu(millicores)?;
        }
        Ok(())
    }

    /// Stops every process but the supervisor where it stands, for as long as nobody thaws it.
    pub(super) async fn freeze(self) -> Result<(), FreezeError> {
        let freeze = move || {
            self.0.freeze()?;
            self.0.wait_until_frozen(FROZEN_WITHIN)?;
            self.0.keep_frozen();
            Ok(())
        };
        tokio::task::spawn_blocking(freeze).await.unwrap_or(Err(FreezeError::NoFreezer))
    }

    /// Returns the processor time that its processes have used.
    pub(super) fn cpu_time(&self) -> io::Result<Duration> {
        Ok(self.0.usage()?.cpu_time)
    }

    pub(super) fn thaw(&self) -> Result<(), FreezeError> {
        self.0.thaw()
    }
}
