//! Making one sandbox.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    mount::{OpenTreeFlags, open_tree},
    net::SendFlags,
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Signal, pidfd_send_signal},
};

use super::{Sandboxes, files, identity::Marks};
use crate::{
    cgroup::Lasting,
    failpoint,
    identity::{disk_map, map_ids, sandbox_map},
    plan::{Broken, Identity, Rights, Rlimits, Step},
    sandbox::{BodySpec, Image, MAX_LAYERS, SandboxAnswer, SandboxPlan},
    socket::PacketSocket,
    spawner::{IdRange, Spawner, make, paths::Brought},
    sys::{self, process::Fork},
    wire::{self, Command},
};

/// What a sandbox has while it is being made. Given back if that does not work.
struct Made {
    block: Option<u32>,
    groups: Option<Lasting>,
}

impl Spawner {
    /// Makes a sandbox over its files, which are a detached mount, with what it was brought.
    pub(in crate::spawner) fn make_sandbox(
        &mut self,
        spec: &BodySpec,
        files: &OwnedFd,
        brought: Brought,
    ) -> Result<(SandboxAnswer, Vec<OwnedFd>), Broken> {
        let at = Broken::at(Step::Plan);
        let identity = self.identity();
        let sandboxes = self.sandboxes.as_mut().ok_or_else(|| at(Errno::NOSYS))?;
        let made = sandboxes.reserve(spec, identity)?;
        failpoint::pass("c.cgroup");
        match self.start_supervisor(spec, &made, files, brought) {
            Ok((pidfd, mut fds)) => {
                let files = made.groups.as_ref().map_or(Ok(Vec::new()), Lasting::files);
                let files = files.map_err(Broken::at(Step::Cgroup))?;
                let places = made.groups.as_ref().map(|groups| groups.places().clone());
                self.add_sandbox(&spec.sandbox, pidfd, places, made.block)
                    .map_err(|_unwatched| at(Errno::NOSPC))?;
                let (cgroup, more): (Vec<_>, Vec<_>) = files.into_iter().unzip();
                fds.extend(more);
                Ok((SandboxAnswer::Body { cgroup }, fds))
            }
            Err(broken) => {
                if let Some(sandboxes) = &mut self.sandboxes {
                    sandboxes.give_back(&made);
                }
                Err(broken)
            }
        }
    }

    /// Forks init and hands it the plan. Returns the other end of its first socket.
    fn start_supervisor(
        &self,
        spec: &BodySpec,
        made: &Made,
        files: &OwnedFd,
        brought: Brought,
    ) -> Result<(OwnedFd, Vec<OwnedFd>), Broken> {
        let at = Broken::at(Step::Plan);
        let sandboxes = self.sandboxes.as_ref().ok_or_else(|| at(Errno::NOSYS))?;
        let owners = files::Owners { supervisor: made.block, daemon: sandboxes.daemon };
        let parts =
            sandboxes.folder.make(&spec.sandbox, owners).map_err(Broken::at(Step::Writable))?;
        failpoint::pass("c.dirs");
        if let Some(block) = made.block {
            brought.map_owner(block).map_err(Broken::at(Step::HostPath))?;
        }
        let (ours, theirs) = PacketSocket::pair().map_err(&at)?;
        let (pid, pidfd) = match &spec.beside {
            None => {
                let map = sandbox_map(self.identity(), made.block.unwrap_or_default());
                make::fork(self, &theirs, &ours, &map)?
            }
            Some(body) => {
                let body = sandboxes.living.get(body).ok_or_else(|| at(Errno::SRCH))?;
                make::fork_beside(self, &theirs, &ours, &body.pidfd)?
            }
        };
        failpoint::pass("c.supervisor_spawned");
        let sent = self
            .write_marks(spec, made, pid)
            .inspect(|()| failpoint::pass("c.supervisor_recorded"))
            .and_then(|()| self.send_sandbox_plan(spec, made, &parts, files, brought, &ours));
        failpoint::pass("c.plan_sent");
        match sent {
            Ok(()) => Ok((pidfd, vec![ours.into_fd()])),
            Err(errno) => {
                // It may be gone already.
                let _ = pidfd_send_signal(&pidfd, Signal::KILL);
                Err(at(errno))
            }
        }
    }

    /// Before init has its plan: whoever lives can be found.
    fn write_marks(&self, spec: &BodySpec, made: &Made, pid: Pid) -> Result<(), Errno> {
        let sandboxes = self.sandboxes.as_ref().ok_or(Errno::NOSYS)?;
        let places = made.groups.as_ref().map(|groups| groups.places().clone());
        Marks::of(pid, places)?.write(&sandboxes.folder.sandbox(&spec.sandbox)?)
    }

    fn send_sandbox_plan(
        &self,
        spec: &BodySpec,
        made: &Made,
        parts: &files::Parts,
        files: &OwnedFd,
        brought: Brought,
        control: &PacketSocket,
    ) -> Result<(), Errno> {
        let sandboxes = self.sandboxes.as_ref().ok_or(Errno::NOSYS)?;
        let root = self.template.clone_tree()?;
        let users = made.block.map(users_of).transpose()?;
        give_to(files, users.as_ref())?;
        let layers = match spec.image {
            Image::Folder => vec![brought.root.ok_or(Errno::INVAL)?],
            Image::Host | Image::Layers(_) => sandboxes.open_layers(&spec.image, users.as_ref())?,
        };
        let [groups, own_groups] =
            made.groups.as_ref().map_or(Ok([Vec::new(), Vec::new()]), Lasting::procs)?;
        let leaves = made.groups.as_ref().map_or(Ok(None), Lasting::leaves)?;
        let (mounts, mounted): (Vec<_>, Vec<_>) = brought.mounts.into_iter().unzip();
        let (copies, copied): (Vec<_>, Vec<_>) = brought.copies.into_iter().unzip();
        let plan = SandboxPlan {
            sandbox: spec.sandbox.clone(),
            secret: spec.secret.clone(),
            hostname: spec.hostname.clone(),
            masked: make::masked(),
            hosts: spec.hosts.clone(),
            rights: Rights {
                limits: Rlimits {
                    open_files: spec.max_open_files.into(),
                    processes: spec.max_processes.into(),
                },
                identity: self.identity(),
                filter: self.user_filter.clone(),
            },
            filter: sandboxes.filter.clone(),
            layers: layers.len(),
            mounts,
            copies,
            groups: groups.len(),
            has_leaves: leaves.is_some(),
        };
        let fds: Vec<BorrowedFd<'_>> = [&root, files]
            .into_iter()
            .chain(&layers)
            .chain(&mounted)
            .chain(&copied)
            .chain([&parts.outputs, &parts.journal, &parts.socket])
            .chain(&groups)
            .chain(&own_groups)
            .chain(&leaves)
            .map(AsFd::as_fd)
            .collect();
        let packet = wire::encode(&Command::Sandbox(Box::new(plan))).or(Err(Errno::BADMSG))?;
        control.send(&packet, &fds, SendFlags::DONTWAIT)
    }
}

/// A folder as the sandbox's users see it.
fn own(folder: &OwnedFd, users: Option<&OwnedFd>) -> Result<OwnedFd, Errno> {
    let tree = detached(folder)?;
    give_to(&tree, users)?;
    Ok(tree)
}

/// A folder as a mount that is nowhere yet.
pub(super) fn detached(folder: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(folder, "", flags)
}

/// Lets the sandbox's users have what is in a detached mount.
fn give_to(tree: &OwnedFd, users: Option<&OwnedFd>) -> Result<(), Errno> {
    match users {
        Some(users) => sys::mount::map_users(tree.as_fd(), users.as_fd()),
        None => sys::mount::make_plain(tree.as_fd()),
    }
}

/// Makes a user namespace that only says whose the files on disk are.
fn users_of(block: u32) -> Result<OwnedFd, Errno> {
    // Its other end is closed when this returns.
    let (wait, _go) = pipe_with(PipeFlags::CLOEXEC)?;
    match sys::process::fork(sys::process::USER_NAMESPACE)? {
        Fork::Child => {
            // It is only there to be looked at, and ends when it was, or when nobody will.
            if let Ok(wait) = sys::process::keep_only(wait.as_fd()) {
                let _ = rustix::io::read(&wait, &mut [0; 1]);
            }
            sys::process::exit_now(0)
        }
        Fork::Parent { child, pidfd: _ } => {
            let path = format!("/proc/{}/ns/user", child.as_raw_nonzero());
            map_ids(child, &disk_map(IdRange::ON_DISK.first, block))?;
            openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        }
    }
}

impl Sandboxes {
    /// Opens the layers of an image, lowest first.
    fn open_layers(&self, image: &Image, users: Option<&OwnedFd>) -> Result<Vec<OwnedFd>, Errno> {
        let Image::Layers(names) = image else { return Ok(Vec::new()) };
        if names.is_empty() || names.len() > MAX_LAYERS {
            return Err(Errno::INVAL);
        }
        names.iter().map(|name| own(&files::open_layer(&self.layers, name)?, users)).collect()
    }

    fn reserve(&mut self, spec: &BodySpec, identity: Identity) -> Result<Made, Broken> {
        let block = match (identity, &spec.beside) {
            (Identity::Apart, None) => {
                Some(self.blocks.take().ok_or(Broken { step: Step::Fork, errno: libc::EAGAIN })?)
            }
            (Identity::Apart, Some(body)) => {
                let gone = Broken { step: Step::Fork, errno: libc::ESRCH };
                let block = self.living.get(body).ok_or(gone)?.block;
                block.inspect(|block| self.blocks.take_this(*block))
            }
            (Identity::Shared, _) => None,
        };
        let made = self.cgroups.as_ref().map(|cgroups| {
            // What a server that was killed has left half made is in the way.
            cgroups.places().remove(&spec.sandbox)?;
            cgroups.make_lasting(&spec.sandbox, spec.max_processes, block)
        });
        match made.transpose() {
            Ok(groups) => Ok(Made { block, groups }),
            Err(errno) => {
                self.give_back(&Made { block, groups: None });
                Err(Broken::at(Step::Cgroup)(errno))
            }
        }
    }

    fn give_back(&mut self, made: &Made) {
        if let Some(block) = made.block {
            self.blocks.give_back(block);
        }
        if let Some(groups) = &made.groups {
            // If a process is still in there, the order to end the sandbox finds it.
            let _ = groups.remove();
        }
    }
}
