//! Sandboxes in containers of a Docker engine on this machine.
//!
//! A container is made of an image that the engine has, and the one process that is started in it is our
//! init, which is put there from outside. It comes to a door that the daemon has opened for it, is told
//! there which sandbox it supervises, and listens in the sandbox's folder like every other supervisor.
//! From then on the engine is needed only to freeze, stop and remove: commands, files and ports go on
//! when it is down, for as long as it lets its containers live.

mod calls;
mod container;
mod door;

use std::{io, os::fd::AsFd as _, path::Path, sync::Arc, time::Duration};

use bollard::models::ContainerCreateBody;
use isolate::sandbox::{ContainedSpec, SandboxAnswer, SandboxOrder};
use model::{
    ids::NodeId,
    image::{UsedImage, UsedImages},
    life::Phase,
    sandbox::Sandbox,
    spec::SandboxSpec,
};
use tokio::time::{sleep, timeout};

use super::{
    Defaults, SandboxError,
    link::Link,
    machine::{Found, Machine, MachineError, READY_WITHIN, settle},
    materials::{self, Materials},
    provider::{Doing, Provider},
    stock::Kind,
};
use crate::{
    images::{ImageError, Images, Kind as ImageKind, Listener, Reference},
    tasks::Tasks,
};
use calls::{CallError, Calls, Standing};
use door::Doors;

const NO_ROOT: &str = "sandboxes of the provider docker have no root: without a user namespace it would \
    be that of the machine";

/// How often something is tried while the engine is still at what it was asked before, and how soon.
const TRIES: u32 = 50;
const IN_BETWEEN: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Docker {
    calls: Calls,
    doors: Doors,
    machine: Arc<Machine>,
    node: NodeId,
}

impl Docker {
    /// Prepares the folder in which supervisors are met. The engine need not answer yet.
    pub(super) fn open(
        machine: Arc<Machine>,
        folder: &Path,
        node: &NodeId,
        tasks: &Tasks,
    ) -> io::Result<Self> {
        let doors = Doors::open(folder, isolate::spawner::init_program())?;
        let calls = Calls::new(machine.spawner().clone(), tasks.clone());
        Ok(Self { calls, doors, machine, node: node.clone() })
    }

    /// Refuses what a container cannot be, and anything while the engine does not answer.
    async fn check(&self, spec: &SandboxSpec) -> Result<(), SandboxError> {
        check_kind(spec)?;
        Ok(self.calls.ping().await.map_err(|down| down.while_doing("answer"))?)
    }

    /// Looks up the image. The engine has it, or it cannot be had: nothing is pulled.
    async fn gather(&self, sandbox: &Sandbox) -> Result<Materials, ImageError> {
        let name = &sandbox.spec.image;
        let image: Reference = name.parse()?;
        let found = self.calls.image(&image.to_string()).await.map_err(|error| match error {
            CallError::Answered { status: 404 } => {
                let message = "the Docker engine does not have it".to_owned();
                ImageError::NotFound { image: name.clone(), message }
            }
            CallError::Answered { status } => {
                let message = format!("the Docker engine answered {status}");
                ImageError::Refused { image: name.clone(), message }
            }
            CallError::Down { why } => ImageError::Unreachable { message: why },
            CallError::OurOwnEnd => ImageError::SpawnerGone,
        })?;
        let config = found.config.unwrap_or_default();
        let (entrypoint, command) =
            (config.entrypoint.unwrap_or_default(), config.cmd.unwrap_or_default());
        let used = UsedImage {
            id: found.id.unwrap_or_default(),
            layers: Vec::new(),
            env: materials::variables(name, &config.env.unwrap_or_default())?,
            command: entrypoint.iter().chain(&command).cloned().collect(),
            entrypoint,
            user: config.user.unwrap_or_default(),
            working_directory: config.working_dir.unwrap_or_default(),
        };
        Ok(Materials { used: UsedImages::from([(name.clone(), used)]), pins: Vec::new() })
    }

    /// Starts the container of a sandbox, and makes its init the supervisor.
    async fn make(&self, sandbox: &Sandbox, defaults: Defaults) -> Result<Link, MachineError> {
        let (name, container) = (sandbox.id.as_str(), container::name(sandbox.id.as_str()));
        let folder = self.doors.furnish(name).map_err(MachineError::Link)?;
        if sandbox.life.phase == Phase::Resuming {
            // It has files: another in its place would not be it.
            self.stop(&container).await?;
        } else {
            let body = container::body(sandbox, &self.node, defaults, &folder)
                .ok_or_else(|| MachineError::NoImage { image: sandbox.spec.image.clone() })?;
            self.begin(&container, &body).await?;
        }
        let door = self.doors.stand_open(name).map_err(MachineError::Link)?;
        match self.calls.start(&container).await {
            Ok(()) => {}
            Err(CallError::Answered { status: 404 }) => return Err(MachineError::Gone),
            Err(error) => return Err(error.while_doing("start the container")),
        }
        let init = match timeout(READY_WITHIN, door.next()).await {
            Ok(init) => init.map_err(MachineError::Link)?,
            Err(_elapsed) => return Err(MachineError::NotInTime(READY_WITHIN)),
        };
        drop(door);
        let spec = ContainedSpec {
            sandbox: name.to_owned(),
            secret: self.machine.secret(name),
            max_open_files: defaults.open_files,
        };
        let order = SandboxOrder::Contain(Box::new(spec));
        let (answer, _) = self.machine.spawner().sandbox_with(order, &[init.as_fd()]).await?;
        match settle(answer)? {
            SandboxAnswer::Done => self.machine.connect_when_ready(name, init, READY_WITHIN).await,
            _ => Err(MachineError::Confused),
        }
    }

    /// Makes a container that nothing was ever done in. A server that was killed may have left one half
    /// made, and the engine may still be at it: then the two are in each other's way for a moment.
    async fn begin(&self, container: &str, body: &ContainerCreateBody) -> Result<(), MachineError> {
        let mut tries = 0;
        loop {
            let removed = already(self.calls.remove(container).await, &[404]);
            let made = match removed {
                Ok(()) => self.calls.create(container, body.clone()).await,
                other => other,
            };
            match made {
                Ok(()) => return Ok(()),
                Err(CallError::Answered { status: 409 }) if tries < TRIES => {
                    tries += 1;
                    sleep(IN_BETWEEN).await;
                }
                Err(error) => return Err(error.while_doing("make a container")),
            }
        }
    }

    /// Whoever listens in its folder lives, whatever the engine has to say.
    async fn find(&self, sandbox: &Sandbox) -> Result<Found, MachineError> {
        let name = sandbox.id.as_str();
        if let Ok(link) = self.machine.connect(name) {
            if sandbox.life.phase != Phase::Frozen {
                // A server that was killed may have frozen it and told nobody.
                let _ = self.thaw(sandbox).await;
            }
            return Ok(Found::Link(link));
        }
        let container = container::name(name);
        let mut standing = self.standing(&container).await?;
        if standing == Standing::Running {
            // Its init is about to end, or was never told what it is.
            self.stop(&container).await?;
            standing = self.standing(&container).await?;
        }
        Ok(match standing {
            Standing::Running => Found::Nothing { rebooted: false },
            Standing::Ended => Found::Stopped,
            Standing::Gone => Found::Gone,
        })
    }

    async fn standing(&self, container: &str) -> Result<Standing, MachineError> {
        let found = self.calls.standing(container).await;
        found.map_err(|error| error.while_doing("find the container"))
    }

    async fn freeze(&self, sandbox: &Sandbox) -> Result<(), MachineError> {
        let frozen = self.calls.pause(&container::name(sandbox.id.as_str())).await;
        already(frozen, &[409]).map_err(|error| error.while_doing("pause the container"))
    }

    async fn thaw(&self, sandbox: &Sandbox) -> Result<(), MachineError> {
        let container = container::name(sandbox.id.as_str());
        // An engine says of one that is not paused that it has failed.
        if !self.calls.is_paused(&container).await.map_err(|it| it.while_doing("look at it"))? {
            return Ok(());
        }
        let thawed = self.calls.unpause(&container).await;
        thawed.map_err(|error| error.while_doing("let the container go on"))
    }

    /// Ends every process of a container. One that is not there, or not any more, has none.
    async fn stop(&self, container: &str) -> Result<(), MachineError> {
        let stopped = self.calls.stop(container).await;
        already(stopped, &[304, 404]).map_err(|error| error.while_doing("stop the container"))
    }

    async fn remove(&self, name: &str) -> Result<(), MachineError> {
        let removed = self.calls.remove(&container::name(name)).await;
        already(removed, &[404]).map_err(|error| error.while_doing("remove the container"))?;
        self.doors.close(name).map_err(MachineError::Link)?;
        self.machine.remove(name).await
    }

    async fn list(&self) -> Result<Vec<String>, MachineError> {
        let labels = self.calls.labels(&container::label_of_node(&self.node)).await;
        let labels = labels.map_err(|error| error.while_doing("list containers"))?;
        Ok(labels.into_iter().filter_map(|mut all| all.remove(container::SANDBOX)).collect())
    }
}

/// What an engine answers to a call for something that is so already is no failure.
fn already(called: Result<(), CallError>, so: &[u16]) -> Result<(), CallError> {
    match called {
        Err(CallError::Answered { status }) if so.contains(&status) => Ok(()),
        other => other,
    }
}

/// Refuses what a container of ours never is.
fn check_kind(spec: &SandboxSpec) -> Result<(), SandboxError> {
    let refuse = |what: &str| Err(SandboxError::Invalid(what.to_owned()));
    let image: Reference = spec.image.parse().map_err(ImageError::from)?;
    if image.kind() != ImageKind::Registry {
        return refuse(
            "a sandbox of the provider docker is made of an image that the Docker engine has: name it as \
             in a registry",
        );
    }
    if !spec.mounts.is_empty() || !spec.copies.is_empty() {
        return refuse("sandboxes of the provider docker have no paths of the machine");
    }
    if !spec.companions.is_empty() {
        return refuse("sandboxes of the provider docker have no companions");
    }
    if spec.resources.disk.is_some() {
        return refuse("the provider docker holds no limits of disk space: leave disk_limit out");
    }
    Ok(())
}

impl Provider for Docker {
    fn check<'a>(&'a self, spec: &'a SandboxSpec) -> Doing<'a, Result<(), SandboxError>> {
        Box::pin(Self::check(self, spec))
    }

    fn health(&self) -> Doing<'_, Result<(), MachineError>> {
        Box::pin(async { self.calls.ping().await.map_err(|down| down.while_doing("answer")) })
    }

    fn no_root(&self) -> Option<&'static str> {
        Some(NO_ROOT)
    }

    fn prepared(&self, _: &SandboxSpec) -> Option<Kind> {
        None
    }

    fn gather<'a>(
        &'a self,
        _: &'a Images,
        sandbox: &'a Sandbox,
        _: &'a Listener,
    ) -> Doing<'a, Result<Materials, ImageError>> {
        Box::pin(Self::gather(self, sandbox))
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
        _: Defaults,
    ) -> Doing<'a, Result<Found, MachineError>> {
        Box::pin(Self::find(self, sandbox))
    }

    fn freeze<'a>(&'a self, sandbox: &'a Sandbox) -> Doing<'a, Result<(), MachineError>> {
        Box::pin(Self::freeze(self, sandbox))
    }

    fn thaw<'a>(&'a self, sandbox: &'a Sandbox) -> Doing<'a, Result<(), MachineError>> {
        Box::pin(Self::thaw(self, sandbox))
    }

    fn cpu_time<'a>(
        &'a self,
        sandbox: &'a Sandbox,
    ) -> Doing<'a, Result<Option<Duration>, MachineError>> {
        Box::pin(async move {
            let used = self.calls.cpu_time(&container::name(sandbox.id.as_str())).await;
            used.map_err(|error| error.while_doing("read the processor time"))
        })
    }

    fn end<'a>(&'a self, sandbox: &'a Sandbox) -> Doing<'a, Result<(), MachineError>> {
        Box::pin(async move { self.stop(&container::name(sandbox.id.as_str())).await })
    }

    fn remove<'a>(&'a self, sandbox: &'a Sandbox) -> Doing<'a, Result<(), MachineError>> {
        Box::pin(Self::remove(self, sandbox.id.as_str()))
    }

    fn list(&self) -> Doing<'_, Result<Vec<String>, MachineError>> {
        Box::pin(Self::list(self))
    }

    fn remove_unknown<'a>(&'a self, name: &'a str) -> Doing<'a, Result<(), MachineError>> {
        Box::pin(Self::remove(self, name))
    }
}

#[cfg(test)]
mod tests {
    use model::{
        spec::{Companion, Resources},
        units::ByteSize,
    };

    use super::*;

    #[test]
    fn what_no_container_can_be_is_refused() {
        let spec = |image: &str| SandboxSpec { image: image.to_owned(), ..SandboxSpec::default() };
        check_kind(&spec("python:3.12")).unwrap();
        for image in ["host", "dir:/srv/root", "tar:/srv/root.tar", "oci:/srv/layout"] {
            assert!(matches!(check_kind(&spec(image)), Err(SandboxError::Invalid(_))), "{image}");
        }
        assert!(matches!(check_kind(&spec("")), Err(SandboxError::Image(_))));
        let companions = vec![Companion::default()];
        let disk = Some(ByteSize::mib(64));
        let more = [
            SandboxSpec { companions, ..spec("python") },
            SandboxSpec { resources: Resources { disk, ..Resources::default() }, ..spec("python") },
        ];
        for spec in more {
            assert!(matches!(check_kind(&spec), Err(SandboxError::Invalid(_))), "{spec:?}");
        }
    }
}
