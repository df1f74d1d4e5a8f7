//! Where sandboxes run. Whatever makes their bodies, each has a supervisor of ours that listens in its
//! folder: commands, shells, files and ports are the same everywhere, and no provider knows of them.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use model::{
    sandbox::Sandbox,
    spec::{Provider as Name, SandboxSpec},
};

use super::{
    Defaults, SandboxError, Settings, Shared,
    link::Link,
    machine::{Found, Machine, MachineError},
    materials::{self, Materials},
    stock::Kind,
};
use crate::{
    images::{ImageError, Images, Listener},
    tasks::Tasks,
};

/// What a provider does about one sandbox.
pub(super) type Doing<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Makes and ends the bodies of sandboxes. What is asked for twice is done once, and what is gone is
/// ended: whoever takes over after a crash does not know what was done already.
pub(super) trait Provider: fmt::Debug + Send + Sync {
    /// Refuses what cannot be made here, now or ever.
    fn check<'a>(&'a self, spec: &'a SandboxSpec) -> Doing<'a, Result<(), SandboxError>>;

    /// Says whether a body could be made or found at all.
    fn health(&self) -> Doing<'_, Result<(), MachineError>>;

    /// Says why no command can be root, if none can.
    fn no_root(&self) -> Option<&'static str>;

    /// Returns which body that was made in advance a sandbox can have, if one.
    fn prepared(&self, spec: &SandboxSpec) -> Option<Kind>;

    /// Says that the operator has not enabled it.
    fn disabled(&self) -> Option<&'static str> {
        None
    }

    /// Brings everything here that a sandbox is made from.
    fn gather<'a>(
        &'a self,
        images: &'a Images,
        sandbox: &'a Sandbox,
        listener: &'a Listener,
    ) -> Doing<'a, Result<Materials, ImageError>>;

    /// Starts the supervisor of a sandbox, over the files that are there or new ones, and connects.
    fn make<'a>(
        &'a self,
        sandbox: &'a Sandbox,
        defaults: Defaults,
    ) -> Doing<'a, Result<Link, MachineError>>;

    /// Finds what a daemon before this one has left.
    fn find<'a>(
        &'a self,
        sandbox: &'a Sandbox,
        defaults: Defaults,
    ) -> Doing<'a, Result<Found, MachineError>>;

    /// Has every process stand still, or none.
    fn freeze<'a>(&'a self, sandbox: &'a Sandbox) -> Doing<'a, Result<(), MachineError>>;

    fn thaw<'a>(&'a self, sandbox: &'a Sandbox) -> Doing<'a, Result<(), MachineError>>;

    /// Returns the processor time that its processes have used; nothing if that cannot be known here.
    fn cpu_time<'a>(
        &'a self,
        _sandbox: &'a Sandbox,
    ) -> Doing<'a, Result<Option<Duration>, MachineError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Ends every process, and keeps the files.
    fn end<'a>(&'a self, sandbox: &'a Sandbox) -> Doing<'a, Result<(), MachineError>>;

    /// Ends every process, and removes the files.
    fn remove<'a>(&'a self, sandbox: &'a Sandbox) -> Doing<'a, Result<(), MachineError>>;

    /// Names the sandboxes that it has anything of, beside the folders of this machine.
    fn list(&self) -> Doing<'_, Result<Vec<String>, MachineError>>;

    /// Removes what it has of a sandbox that no record knows of.
    fn remove_unknown<'a>(&'a self, name: &'a str) -> Doing<'a, Result<(), MachineError>>;
}

impl Shared {
    /// Returns where a sandbox runs.
    pub(super) fn provider(&self, spec: &SandboxSpec) -> &dyn Provider {
        self.provider_named(spec.provider)
    }

    pub(super) fn provider_named(&self, name: Name) -> &dyn Provider {
        match name {
            Name::Local => &*self.machine,
            Name::Docker => &*self.docker,
        }
    }
}

/// Returns what makes containers.
#[cfg(feature = "docker")]
pub(super) fn docker(
    machine: &Arc<Machine>,
    settings: &Settings,
    tasks: &Tasks,
) -> Box<dyn Provider> {
    let Some(folder) = &settings.docker else { return Box::new(Missing::NOT_ENABLED) };
    match super::docker::Docker::open(Arc::clone(machine), folder, &settings.node, tasks) {
        Ok(docker) => Box::new(docker),
        Err(error) => {
            tracing::error!(%error, "the provider docker cannot be used: look at its folder");
            Box::new(Missing::BROKEN)
        }
    }
}

#[cfg(not(feature = "docker"))]
pub(super) fn docker(_: &Arc<Machine>, _: &Settings, _: &Tasks) -> Box<dyn Provider> {
    Box::new(Missing::NOT_ENABLED)
}

/// The built-in engine.
impl Provider for Machine {
    fn check<'a>(&'a self, spec: &'a SandboxSpec) -> Doing<'a, Result<(), SandboxError>> {
        Box::pin(Self::check(self, spec))
    }

    fn health(&self) -> Doing<'_, Result<(), MachineError>> {
        // It is this server itself.
        Box::pin(std::future::ready(Ok(())))
    }

    fn no_root(&self) -> Option<&'static str> {
        Self::no_root(self)
    }

    fn prepared(&self, spec: &SandboxSpec) -> Option<Kind> {
        Some(Kind::of(spec))
    }

    fn gather<'a>(
        &'a self,
        images: &'a Images,
        sandbox: &'a Sandbox,
        listener: &'a Listener,
    ) -> Doing<'a, Result<Materials, ImageError>> {
        Box::pin(materials::gather(images, self, sandbox, listener))
    }

    fn make<'a>(
        &'a self,
        sandbox: &'a Sandbox,
        defaults: Defaults,
    ) -> Doing<'a, Result<Link, MachineError>> {
        Box::pin(Self::make(self, sandbox, defaults))
    }

    fn find<'a>(
        &'a self,
        sandbox: &'a Sandbox,
        defaults: Defaults,
    ) -> Doing<'a, Result<Found, MachineError>> {
        Box::pin(self.open(sandbox.id.as_str(), &sandbox.spec.resources, defaults))
    }

    fn freeze<'a>(&'a self, sandbox: &'a Sandbox) -> Doing<'a, Result<(), MachineError>> {
        Box::pin(self.freeze_all(sandbox))
    }

    fn thaw<'a>(&'a self, sandbox: &'a Sandbox) -> Doing<'a, Result<(), MachineError>> {
        Box::pin(self.thaw_all(sandbox))
    }

    fn cpu_time<'a>(
        &'a self,
        sandbox: &'a Sandbox,
    ) -> Doing<'a, Result<Option<Duration>, MachineError>> {
        Box::pin(Self::cpu_time(self, sandbox))
    }

    fn end<'a>(&'a self, sandbox: &'a Sandbox) -> Doing<'a, Result<(), MachineError>> {
        Box::pin(self.end_all(sandbox))
    }

    fn remove<'a>(&'a self, sandbox: &'a Sandbox) -> Doing<'a, Result<(), MachineError>> {
        Box::pin(self.remove_all(sandbox))
    }

    fn list(&self) -> Doing<'_, Result<Vec<String>, MachineError>> {
        Box::pin(Self::list(self))
    }

    fn remove_unknown<'a>(&'a self, name: &'a str) -> Doing<'a, Result<(), MachineError>> {
        Box::pin(Self::remove(self, name))
    }
}

/// A provider that this server does not have. Its sandboxes are left as they are until there is one.
#[derive(Debug)]
pub(super) struct Missing {
    why: &'static str,
    /// Whether the operator has not enabled it: then trying again is of no use.
    is_disabled: bool,
}

impl Missing {
    const NOT_ENABLED: Self =
        Self { why: "the provider docker is not enabled on this server", is_disabled: true };
    #[cfg(feature = "docker")]
    const BROKEN: Self =
        Self { why: "the provider docker cannot be used on this server", is_disabled: false };

    fn refuse<T: Send + 'static>(&self) -> Doing<'_, Result<T, MachineError>> {
        let why = self.why.to_owned();
        Box::pin(std::future::ready(Err(MachineError::Provider { why })))
    }
}

impl Provider for Missing {
    fn check<'a>(&'a self, _: &'a SandboxSpec) -> Doing<'a, Result<(), SandboxError>> {
        let why = self.why.to_owned();
        let refused = if self.is_disabled {
            SandboxError::ProviderDisabled(why)
        } else {
            SandboxError::Provider(why)
        };
        Box::pin(std::future::ready(Err(refused)))
    }

    fn disabled(&self) -> Option<&'static str> {
        self.is_disabled.then_some(self.why)
    }

    fn health(&self) -> Doing<'_, Result<(), MachineError>> {
        self.refuse()
    }

    fn no_root(&self) -> Option<&'static str> {
        Some(self.why)
    }

    fn prepared(&self, _: &SandboxSpec) -> Option<Kind> {
        None
    }

    fn gather<'a>(
        &'a self,
        _: &'a Images,
        _: &'a Sandbox,
        _: &'a Listener,
    ) -> Doing<'a, Result<Materials, ImageError>> {
        let refused = ImageError::Unreachable { message: self.why.to_owned() };
        Box::pin(std::future::ready(Err(refused)))
    }

    fn make<'a>(&'a self, _: &'a Sandbox, _: Defaults) -> Doing<'a, Result<Link, MachineError>> {
        self.refuse()
    }

    fn find<'a>(&'a self, _: &'a Sandbox, _: Defaults) -> Doing<'a, Result<Found, MachineError>> {
        self.refuse()
    }

    fn freeze<'a>(&'a self, _: &'a Sandbox) -> Doing<'a, Result<(), MachineError>> {
        self.refuse()
    }

    fn thaw<'a>(&'a self, _: &'a Sandbox) -> Doing<'a, Result<(), MachineError>> {
        self.refuse()
    }

    fn end<'a>(&'a self, _: &'a Sandbox) -> Doing<'a, Result<(), MachineError>> {
        self.refuse()
    }

    fn remove<'a>(&'a self, _: &'a Sandbox) -> Doing<'a, Result<(), MachineError>> {
        self.refuse()
    }

    fn list(&self) -> Doing<'_, Result<Vec<String>, MachineError>> {
        // It has nothing, as far as anybody here can know.
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn remove_unknown<'a>(&'a self, _: &'a str) -> Doing<'a, Result<(), MachineError>> {
        self.refuse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_from_before_there_were_providers_is_of_the_local_one() {
        let spec = SandboxSpec { image: "host".to_owned(), ..SandboxSpec::default() };
        let text = serde_json::to_string(&spec).unwrap();
        assert!(!text.contains("provider"), "{text}");
        let docker = SandboxSpec { provider: Name::Docker, ..spec.clone() };
        for spec in [spec, docker] {
            let text = serde_json::to_string(&spec).unwrap();
            assert_eq!(serde_json::from_str::<SandboxSpec>(&text).unwrap(), spec);
        }
    }
}
