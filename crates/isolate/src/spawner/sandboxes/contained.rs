//! Sandboxes in containers: others make their processes, and the spawner tells these what they are.

use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
        sockopt::socket_peercred,
    },
};

use super::files;
use crate::{
    plan::{Broken, Identity, Rights, Rlimits, Step},
    sandbox::{ContainedPlan, ContainedSpec, SandboxAnswer, is_good_name},
    socket::PacketSocket,
    spawner::Spawner,
    wire::{self, Command},
};

type Answered = Result<(SandboxAnswer, Vec<OwnedFd>), Broken>;

impl Spawner {
    /// Gives a sandbox its folder, and tells an init in a container that it supervises it.
    pub(super) fn contain(&self, spec: &ContainedSpec, init: Option<OwnedFd>) -> Answered {
        let at = Broken::at(Step::Plan);
        let sandboxes = self.sandboxes.as_ref().ok_or_else(|| at(Errno::NOSYS))?;
        if !is_good_name(&spec.sandbox) {
            return Err(at(Errno::INVAL));
        }
        if sandboxes.living.contains_key(&spec.sandbox) {
            return Err(at(Errno::EXIST));
        }
        let init = init.ok_or_else(|| at(Errno::BADF))?;
        let owners = files::Owners {
            supervisor: self.owner_of(&init).map_err(&at)?,
            daemon: sandboxes.daemon,
        };
        let parts = sandboxes.folder.make(&spec.sandbox, owners);
        let parts = parts.map_err(Broken::at(Step::Writable))?;
        let plan = ContainedPlan {
            sandbox: spec.sandbox.clone(),
            secret: spec.secret.clone(),
            rights: Rights {
                limits: Rlimits {
                    open_files: spec.max_open_files.into(),
                    // The container has its own limit. This one would be for its user in all of them.
                    processes: u64::MAX,
                },
                // Whoever is root in a container can be anybody in it, whatever this server can.
                identity: Identity::Apart,
                filter: self.user_filter.clone(),
            },
            filter: sandboxes.filter.clone(),
        };
        let command = Command::Contained(Box::new(plan));
        let packet = wire::encode(&command).map_err(|_too_large| at(Errno::BADMSG))?;
        let fds = [&parts.outputs, &parts.journal, &parts.socket].map(AsFd::as_fd);
        PacketSocket::from_fd(init).send(&packet, &fds, SendFlags::DONTWAIT).map_err(at)?;
        Ok((SandboxAnswer::Done, Vec::new()))
    }

    /// Returns who the root of a container is on this machine, if that can be said of others here.
    fn owner_of(&self, init: &OwnedFd) -> Result<Option<u32>, Errno> {
        match self.identity() {
            Identity::Apart => Ok(Some(socket_peercred(init)?.uid.as_raw())),
            Identity::Shared => Ok(None),
        }
    }

    /// Connects to the engine of containers. A socket of this machine lets somebody in at once, or not.
    pub(super) fn connect_engine(&self) -> Answered {
        let at = Broken::at(Step::Plan);
        let sandboxes = self.sandboxes.as_ref().ok_or_else(|| at(Errno::NOSYS))?;
        let path = sandboxes.engine.as_ref().ok_or_else(|| at(Errno::NOSYS))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let engine =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(&at)?;
        let address = SocketAddrUnix::new(path.as_path()).map_err(&at)?;
        connect(&engine, &address).map_err(at)?;
        Ok((SandboxAnswer::Connected, vec![engine]))
    }
}
