//! Making one sandbox.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    mount::{OpenTreeFlags, open_tree},
    net::SendFlags,
    pipe::{PipeFlags, pipe_with},
    process::{Signal, pidfd_send_signal},
};

use super::{Sandboxes, files, identity::Marks};
use crate::{
    cgroup::Lasting,
    failpoint,
    identity::{disk_map, map_ids, sandbox_map},
    oom::Priority,
    plan::{Broken, Identity, NamespaceLimits, Rights, Rlimits, Step},
    sandbox::{Base, BodySpec, Image, MAX_LAYERS, RootPlan, SandboxAnswer, SandboxPlan},
    socket::PacketSocket,
    spawner::{IdRange, Spawner, make, paths::Brought},
    sys::{self, process::Fork},
    wire::{self, CgroupFile, Command},
};

/// A process that is to become a supervisor, where one is.
#[derive(Debug)]
pub(super) struct Body {
    made: Made,
    control: PacketSocket,
    /// Whose its files on disk are.
    users: Option<OwnedFd>,
    /// Made in advance.
    pub(super) parts: Option<files::Parts>,
    /// The sandbox that it is in all but its being taken, if it is one.
    pub(super) whole: Option<Whole>,
}

/// A sandbox that nobody has asked for yet.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) spec: BodySpec,
    group_files: GroupFiles,
}

/// What has to be known of a sandbox before its process is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begin<'a> {
    pub(super) name: &'a str,
    pub(super) tenant: u64,
    pub(super) max_processes: u32,
    /// The body that this one shares users and network with, if it is a companion's.
    pub(super) beside: Option<&'a str>,
}

impl<'a> Begin<'a> {
    pub(super) fn of(spec: &'a BodySpec) -> Self {
        Self {
            name: &spec.sandbox,
            tenant: spec.tenant,
            max_processes: spec.max_processes,
            beside: spec.beside.as_deref(),
        }
    }
}

/// What the daemon may read and write of a sandbox's groups.
type GroupFiles = Vec<(CgroupFile, OwnedFd)>;

/// What a sandbox has while it is being made. Given back if that does not work.
#[derive(Debug)]
struct Made {
    block: Option<u32>,
    groups: Option<Lasting>,
}

impl Body {
    /// Who its folder belongs to.
    pub(super) fn owners(&self, daemon: Option<u32>) -> files::Owners {
        files::Owners { supervisor: self.made.block, daemon }
    }

    /// Returns another hold of the socket that it says on whether it is ready.
    pub(super) fn control(&self) -> Result<OwnedFd, Errno> {
        rustix::io::fcntl_dupfd_cloexec(&self.control, 0)
    }

    /// Limits what is in its groups.
    fn limit(&self, spec: &BodySpec) -> Result<GroupFiles, Broken> {
        let Some(groups) = &self.made.groups else { return Ok(Vec::new()) };
        let limited = groups.limit_processes(spec.max_processes);
        limited.and_then(|()| groups.files()).map_err(Broken::at(Step::Cgroup))
    }
}

impl Spawner {
    /// Makes a sandbox over its files, which are a detached mount, unless its body stands on them
    /// already, with what it was brought. If that does not work, there may be a body all the same.
    pub(in crate::spawner) fn make_sandbox(
        &mut self,
        spec: &BodySpec,
        files: Option<&OwnedFd>,
        brought: Brought,
    ) -> Result<(SandboxAnswer, Vec<OwnedFd>), Broken> {
        let waiting = self.sandboxes.as_mut().and_then(|all| all.waiting.remove(&spec.sandbox));
        let mut body = match waiting {
            Some(body) => body,
            None => self.fork_body(Begin::of(spec))?,
        };
        let files = match body.whole.take() {
            Some(whole) => self.take_whole(whole, &body)?,
            None => self.hand_over(spec, &mut body, files, brought)?,
        };
        let (cgroup, files): (Vec<_>, Vec<_>) = files.into_iter().unzip();
        let fds = [body.control.into_fd()].into_iter().chain(files).collect();
        Ok((SandboxAnswer::Body { cgroup }, fds))
    }

    /// Forks a process that waits where a supervisor is. From here on the sandbox is known to live.
    pub(super) fn fork_body(&mut self, begin: Begin<'_>) -> Result<Body, Broken> {
        let Begin { name, beside, .. } = begin;
        let at = Broken::at(Step::Plan);
        let identity = self.identity();
        let sandboxes = self.sandboxes.as_mut().ok_or_else(|| at(Errno::NOSYS))?;
        let made = sandboxes.reserve(begin, identity)?;
        failpoint::pass("c.cgroup");
        let users = made.block.map(users_of).transpose().map_err(Broken::at(Step::Fork));
        let forked = users
            .and_then(|users| self.fork_into(name, &made, beside).map(|forked| (forked, users)));
        match forked {
            Ok(((pidfd, control), users)) => {
                let places = made.groups.as_ref().map(|groups| groups.places().clone());
                self.add_sandbox(name, pidfd, places, made.block)
                    .map_err(|_unwatched| at(Errno::NOSPC))?;
                Ok(Body { made, control, users, parts: None, whole: None })
            }
            Err(broken) => {
                if let Some(sandboxes) = &mut self.sandboxes {
                    sandboxes.give_back(&made);
                }
                Err(broken)
            }
        }
    }

    /// Forks init, writes down who it is, and tells it where to go.
    fn fork_into(
        &self,
        name: &str,
        made: &Made,
        beside: Option<&str>,
    ) -> Result<(OwnedFd, PacketSocket), Broken> {
        let at = Broken::at(Step::Plan);
        let sandboxes = self.sandboxes.as_ref().ok_or_else(|| at(Errno::NOSYS))?;
        let (ours, theirs) = PacketSocket::pair().map_err(&at)?;
        let (pid, pidfd) = match beside {
            None => {
                let map = sandbox_map(self.identity(), made.block.unwrap_or_default());
                {
                    let (identity, creator) = (self.identity(), made.block);
                    make::fork(self, &theirs, &ours, make::Users { map: &map, identity, creator })?
                }
            }
            Some(body) => {
                let body = sandboxes.living.get(body).ok_or_else(|| at(Errno::SRCH))?;
                make::fork_beside(self, &theirs, &ours, &body.pidfd)?
            }
        };
        failpoint::pass("c.supervisor_spawned");
        let places = made.groups.as_ref().map(|groups| groups.places().clone());
        // Before it is anywhere: whoever lives can be found.
        let told = Priority::Sandbox
            .set_of(pid)
            .and_then(|()| Marks::of(pid, places))
            .and_then(|marks| marks.write(&sandboxes.folder, name))
            .inspect(|()| failpoint::pass("c.supervisor_recorded"))
            .and_then(|()| send_places(made.groups.as_ref(), &ours));
        match told {
            Ok(()) => Ok((pidfd, ours)),
            Err(errno) => {
                // It may be gone already.
                let _ = pidfd_send_signal(&pidfd, Signal::KILL);
                Err(at(errno))
            }
        }
    }

    /// Makes a body that of a sandbox: gives it its folder and its plan.
    fn hand_over(
        &self,
        spec: &BodySpec,
        body: &mut Body,
        files: Option<&OwnedFd>,
        brought: Brought,
    ) -> Result<GroupFiles, Broken> {
        let at = Broken::at(Step::Plan);
        let sandboxes = self.sandboxes.as_ref().ok_or_else(|| at(Errno::NOSYS))?;
        let files = files.ok_or_else(|| at(Errno::BADF))?;
        let writable = Broken::at(Step::Writable);
        let owners = body.owners(sandboxes.daemon);
        let (folder, name) = (&sandboxes.folder, &spec.sandbox);
        let was_ready = body.parts.is_some();
        let parts = match body.parts.take() {
            Some(parts) => Ok(parts),
            None => folder.make(name, owners).map_err(&writable),
        }?;
        failpoint::pass("c.dirs");
        let taken = if was_ready { folder.take_waiting(name) } else { folder.take_marks(name) };
        taken.map_err(&writable)?;
        if let Some(block) = body.made.block {
            brought.map_owner(block).map_err(Broken::at(Step::HostPath))?;
        }
        self.send_sandbox_plan(spec, body, &parts, files, brought, false).map_err(at)?;
        failpoint::pass("c.plan_sent");
        // It is at work already; nobody starts a command before this is answered.
        body.limit(spec)
    }

    /// Makes a body that waits the sandbox that it may be asked for as, over these files.
    pub(super) fn make_whole(
        &self,
        spec: BodySpec,
        body: &Body,
        files: &OwnedFd,
    ) -> Result<Whole, Broken> {
        let at = Broken::at(Step::Writable);
        let parts = body.parts.as_ref().ok_or_else(|| at(Errno::NOENT))?;
        self.send_sandbox_plan(&spec, body, parts, files, Brought::default(), true).map_err(at)?;
        let group_files = body.limit(&spec)?;
        Ok(Whole { spec, group_files })
    }

    /// Makes what waits as a sandbox one.
    fn take_whole(&self, whole: Whole, body: &Body) -> Result<GroupFiles, Broken> {
        let at = Broken::at(Step::Plan);
        let sandboxes = self.sandboxes.as_ref().ok_or_else(|| at(Errno::NOSYS))?;
        let packet = wire::encode(&Command::Taken).or(Err(at(Errno::BADMSG)))?;
        body.control.send(&packet, &[], SendFlags::DONTWAIT).map_err(at)?;
        failpoint::pass("c.plan_sent");
        // In this order: what has the folder of a sandbox outlives the server.
        let taken = sandboxes.folder.take_waiting(&whole.spec.sandbox);
        taken.map_err(Broken::at(Step::Writable))?;
        failpoint::pass("c.dirs");
        Ok(whole.group_files)
    }

    /// Opens what the writable root of the machine's own image is made over, if there is a root user
    /// that could write to it.
    fn open_base(&self, users: Option<&OwnedFd>) -> Result<Vec<OwnedFd>, Errno> {
        let Some(users) = users else { return Ok(Vec::new()) };
        let base = self.template.clone_base()?;
        match give_to(&base, Some(users)) {
            // Before Linux 6.3 a tmpfs cannot be mapped: what is in it belongs to nobody inside then,
            // and can be hidden and added to, but not changed.
            Ok(()) | Err(Errno::INVAL) => Ok(vec![base]),
            Err(other) => Err(other),
        }
    }

    fn send_sandbox_plan(
        &self,
        spec: &BodySpec,
        body: &Body,
        parts: &files::Parts,
        files: &OwnedFd,
        brought: Brought,
        waits: bool,
    ) -> Result<(), Errno> {
        let sandboxes = self.sandboxes.as_ref().ok_or(Errno::NOSYS)?;
        let layers = match &spec.image {
            Image::Host => self.open_base(body.users.as_ref())?,
            Image::Folder => vec![brought.root.ok_or(Errno::INVAL)?],
            Image::Layers(names) => sandboxes.open_layers(names, body.users.as_ref())?,
        };
        let base = match &spec.image {
            Image::Host if layers.is_empty() => Base::Machine,
            Image::Host => Base::WritableMachine,
            Image::Folder | Image::Layers(_) => Base::Layers(layers.len()),
        };
        give_to(files, body.users.as_ref())?;
        let tree = self.template.new_root()?;
        let (mounts, mounted): (Vec<_>, Vec<_>) = brought.mounts.into_iter().unzip();
        let (copies, copied): (Vec<_>, Vec<_>) = brought.copies.into_iter().unzip();
        let plan = SandboxPlan {
            sandbox: spec.sandbox.clone(),
            secret: spec.secret.clone(),
            hostname: spec.hostname.clone(),
            root: RootPlan {
                identity: self.identity(),
                namespace: match self.identity() {
                    Identity::Apart => NamespaceLimits::SANDBOX,
                    Identity::Shared => NamespaceLimits::SHARED_SANDBOX,
                },
                base,
            },
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
            mounts,
            copies,
            waits,
        };
        let fds: Vec<BorrowedFd<'_>> = [&tree, files]
            .into_iter()
            .chain(&layers)
            .chain(&mounted)
            .chain(&copied)
            .chain([&parts.outputs, &parts.journal, &parts.socket])
            .map(AsFd::as_fd)
            .collect();
        let packet = wire::encode(&Command::Sandbox(Box::new(plan))).or(Err(Errno::BADMSG))?;
        body.control.send(&packet, &fds, SendFlags::DONTWAIT)
    }
}

/// Tells init where the supervisor of a sandbox is to be.
fn send_places(groups: Option<&Lasting>, control: &PacketSocket) -> Result<(), Errno> {
    let [procs, own] = groups.map_or(Ok([Vec::new(), Vec::new()]), Lasting::procs)?;
    let leaves = groups.map_or(Ok(None), Lasting::leaves)?;
    let command = Command::Settle { groups: procs.len(), has_leaves: leaves.is_some() };
    let packet = wire::encode(&command).or(Err(Errno::BADMSG))?;
    let fds = procs.iter().chain(&own).chain(&leaves).map(AsFd::as_fd);
    control.send(&packet, &fds.collect::<Vec<_>>(), SendFlags::DONTWAIT)
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
    fn open_layers(
        &self,
        names: &[String],
        users: Option<&OwnedFd>,
    ) -> Result<Vec<OwnedFd>, Errno> {
        if names.is_empty() || names.len() > MAX_LAYERS {
            return Err(Errno::INVAL);
        }
        names.iter().map(|name| own(&files::open_layer(&self.layers, name)?, users)).collect()
    }

    fn reserve(&mut self, begin: Begin<'_>, identity: Identity) -> Result<Made, Broken> {
        let Begin { name, tenant, max_processes, beside } = begin;
        let block = match (identity, beside) {
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
            cgroups.places_of(tenant).remove(name)?;
            cgroups.make_lasting(tenant, name, max_processes, block)
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
