//! The one process with privileges: makes slots, reaps them, and sees no user bytes.
//!
//! It has one thread and one loop, which never waits for anything but the next event.

mod ids;
mod image_worker;
mod make;
mod paths;
mod posture;
mod process;
mod sandboxes;
mod subids;
mod volumes;
mod zygote;

pub use ids::IdRange;
pub use image_worker::{IMAGE_FOLDER, ImageSettings, WORKER_SOCKET};
pub use paths::Door;
pub use process::{Daemon, enter_user_namespace};
pub use sandboxes::SandboxSettings;
pub use volumes::VolumeSettings;

use std::{
    collections::{HashMap, VecDeque},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
};

use rustix::{
    event::{
        PollFd, PollFlags,
        epoll::{self, Event, EventData, EventFlags},
        poll,
    },
    io::Errno,
    net::{RecvFlags, SendFlags},
    process::{Pid, Signal, WaitOptions, WaitStatus, pidfd_send_signal, wait},
};

use crate::{
    cgroup::{CgroupError, Cgroups, Group},
    plan::{Broken, Exit, Identity, Launch, Program, SlotSpec, Step},
    posture::Posture,
    root::{RootError, Template},
    seccomp::MemoryBound::{Cgroup, Watcher},
    socket::PacketSocket,
    sys,
    wire::{self, Notice, Order},
};
use ids::Ids;
use image_worker::ImageWorker;
use make::Parts;
use sandboxes::Sandboxes;
use volumes::Volumes;
use zygote::{Answer, Zygote};

/// Where a zygote finds the library that makes slots of it.
pub const ZYGOTE_LIBRARY: &str = "/run/ringfence/zygote.so";

/// What the spawner needs to know at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// An empty directory where the root of slots is put together, in a mount namespace of our
    /// own: on the host it stays empty.
    pub scratch: PathBuf,
    /// The users that slots may have, as this process knows them. `None`: the one user who runs the server.
    pub ids: Option<IdRange>,
    /// Whether sandboxes and images have users of their own too, which takes far more of them.
    pub sandbox_users: Identity,
    /// Without them there are only slots.
    pub sandboxes: Option<SandboxSettings>,
    /// Where the files of sandboxes are. Without it there are none.
    pub volumes: Option<VolumeSettings>,
    /// Without them there are no images but the machine's own.
    pub images: Option<ImageSettings>,
}

/// The spawner cannot start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SpawnerError {
    #[error("cannot {doing}")]
    System {
        doing: &'static str,
        #[source]
        errno: Errno,
    },
    #[error("no root for slots")]
    Root(#[from] RootError),
}

fn doing(doing: &'static str) -> impl Fn(Errno) -> SpawnerError {
    move |errno| SpawnerError::System { doing, errno }
}

/// The spawner, ready to take orders.
#[derive(Debug)]
pub struct Spawner {
    posture: Posture,
    cgroups: Option<Cgroups>,
    template: Template,
    ids: Ids,
    sandbox_users: Identity,
    init: OwnedFd,
    null: OwnedFd,
    user_filter: Vec<u8>,
    init_filter: Vec<u8>,
    slots: HashMap<u64, Slot>,
    zygotes: HashMap<u64, Zygote>,
    sandboxes: Option<Sandboxes>,
    volumes: Option<Volumes>,
    image_worker: Option<ImageWorker>,
    /// Slots that never came to be, but whose processes are not all gone.
    dying: Vec<(u32, Option<Group>)>,
    events: OwnedFd,
    outbox: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
}

/// A slot from its making until nothing is left of it.
#[derive(Debug)]
struct Slot {
    /// If init is our own child, to be reaped. Else its zygote does that.
    pid: Option<Pid>,
    pidfd: OwnedFd,
    group: Option<Group>,
    id: u32,
    /// Its zygote, if it has one. It lives in a pid namespace below that one's, and dies with it.
    zygote: Option<u64>,
}

/// Who made a slot's processes.
#[derive(Clone, Copy, Debug)]
enum Origin {
    Fork(Pid),
    Zygote(u64),
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    Daemon,
    Signal,
    Zygote(u64),
    Slot(u64),
    Sandbox(u64),
    /// The process that works on volumes.
    Keeper,
}

impl About {
    const DAEMON: u64 = 0;
    const SIGNAL: u64 = 1;
    const KEEPER: u64 = 2;
    const ZYGOTE: u64 = 1 << 62;
    const SLOT: u64 = 1 << 63;

    fn data(self) -> EventData {
        EventData::new_u64(match self {
            Self::Daemon => Self::DAEMON,
            Self::Signal => Self::SIGNAL,
            Self::Keeper => Self::KEEPER,
            Self::Zygote(number) => Self::ZYGOTE | number,
            Self::Slot(number) => Self::SLOT | number,
            Self::Sandbox(number) => Self::SLOT | Self::ZYGOTE | number,
        })
    }

    fn of(data: EventData) -> Self {
        let data = data.u64();
        let number = data & !(Self::ZYGOTE | Self::SLOT);
        match (data & Self::SLOT, data & Self::ZYGOTE, number) {
            (1.., 1.., number) => Self::Sandbox(number),
            (1.., 0, number) => Self::Slot(number),
            (0, 1.., number) => Self::Zygote(number),
            (0, 0, Self::DAEMON) => Self::Daemon,
            (0, 0, Self::KEEPER) => Self::Keeper,
            (0, 0, _) => Self::Signal,
        }
    }
}

/// Returns the init program, for containers that others make.
pub fn init_program() -> &'static [u8] {
    init_image::INIT
}

impl Spawner {
    /// Prepares what all slots share. Whoever comes here without cgroups has chosen to: slots
    /// then have soft limits.
    pub fn new(
        settings: &Settings,
        cgroups: Result<Cgroups, CgroupError>,
    ) -> Result<Self, SpawnerError> {
        let machine =
            paths::machine_mounts(settings).map_err(doing("find the machine's mounts"))?;
        sys::process::unshare_mounts().map_err(doing("make a mount namespace"))?;
        let private = rustix::mount::MountPropagationFlags::PRIVATE
            | rustix::mount::MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private).map_err(doing("make mounts private"))?;
        let sandboxes = settings.sandboxes.as_ref();
        let sandboxes =
            sandboxes.map(|s| Sandboxes::open(s, cgroups.as_ref().ok(), machine)).transpose()?;
        // As the files of sandboxes on disk, so that they can be shown as root's in each sandbox.
        let is_apart = settings.sandbox_users == Identity::Apart;
        let owner = is_apart.then_some(IdRange::ON_DISK.first);
        let template = Template::build(&settings.scratch, owner)?;
        template.add_file(ZYGOTE_LIBRARY, init_image::ZYGOTE)?;
        let posture = posture::of(&cgroups, settings, template.system_files());
        let memory = if posture.has_soft_limits() { Watcher } else { Cgroup };
        Ok(Self {
            posture,
            cgroups: cgroups.ok(),
            template,
            ids: Ids::new(settings.ids),
            sandbox_users: settings.sandbox_users,
            init: make::sealed_program(init_image::INIT)
                .map_err(doing("store the init program"))?,
            null: make::open_null().map_err(doing("open /dev/null"))?,
            user_filter: crate::seccomp::for_user_code(memory),
            init_filter: crate::seccomp::for_init(),
            slots: HashMap::new(),
            zygotes: HashMap::new(),
            sandboxes,
            volumes: settings.volumes.as_ref().map(Volumes::new),
            image_worker: settings.images.as_ref().map(ImageWorker::new),
            dying: Vec::new(),
            events: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(doing("watch events"))?,
            outbox: VecDeque::new(),
        })
    }

    /// Takes orders until the daemon is gone, then ends every slot. Returns how the daemon ended.
    pub fn run(
        mut self,
        socket: &PacketSocket,
        mut daemon: Option<Daemon>,
    ) -> Result<Option<Exit>, SpawnerError> {
        let heard = [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
        let signals = sys::signal::as_descriptor(&heard).map_err(doing("watch signals"))?;
        let watch = |fd: BorrowedFd<'_>, about: About, flags| {
            epoll::add(&self.events, fd, about.data(), flags).map_err(doing("watch events"))
        };
        // The daemon's socket by edges: its outbox may be full for a while.
        let both = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
        watch(socket.as_fd(), About::Daemon, both)?;
        watch(signals.as_fd(), About::Signal, EventFlags::IN)?;
        self.adopt_sandboxes()?;
        self.post(&Notice::Hello { posture: self.posture.clone() }, Vec::new());
        self.start_keeper();
        loop {
            self.flush(socket)?;
            for about in self.wait()? {
                match about {
                    About::Daemon => {
                        if !self.obey_all(socket)? {
                            return self.end(daemon);
                        }
                    }
                    About::Signal => self.handle_signals(&signals, &mut daemon)?,
                    About::Zygote(number) => self.hear_zygote(number),
                    About::Slot(number) => self.clear_away(number)?,
                    About::Sandbox(number) => self.sandbox_ended(number),
                    About::Keeper => self.hear_keeper(),
                }
            }
        }
    }

    fn wait(&self) -> Result<Vec<About>, SpawnerError> {
        let mut events = Vec::with_capacity(64);
        match epoll::wait(&self.events, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(doing("wait for events")(errno)),
        }
        Ok(events.iter().map(|event: &Event| About::of(event.data)).collect())
    }

    fn handle_signals(
        &mut self,
        signals: &OwnedFd,
        daemon: &mut Option<Daemon>,
    ) -> Result<(), SpawnerError> {
        while let Some(signal) = sys::signal::next(signals).map_err(doing("read a signal"))? {
            if signal != libc::SIGCHLD
                && let Some(daemon) = daemon
            {
                daemon.forward(signal);
            }
        }
        self.reap(daemon)
    }

    /// Carries out every order that is there. `false` when the daemon is gone.
    fn obey_all(&mut self, socket: &PacketSocket) -> Result<bool, SpawnerError> {
        loop {
            match socket.receive(RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => return Ok(true),
                Err(errno) => return Err(doing("read an order")(errno)),
                Ok(None) => return Ok(false),
                // The daemon is of this very build; an order that cannot be read means that it
                // was taken over, and then it gets nothing more.
                Ok(Some(packet)) => match wire::decode(&packet.bytes) {
                    Ok(order) => self.obey(order, packet.fds)?,
                    Err(_) => return Ok(false),
                },
            }
            self.flush(socket)?;
        }
    }

    fn obey(&mut self, order: Order, fds: Vec<OwnedFd>) -> Result<(), SpawnerError> {
        match order {
            Order::AddFile { path, content } => Ok(self.template.add_file(&path, &content)?),
            Order::StartZygote { zygote, program } => self.start_zygote(zygote, program),
            Order::EndZygote { zygote } => {
                if let Some(zygote) = self.zygotes.get_mut(&zygote) {
                    zygote.retire();
                }
                self.end_if_unused(zygote);
                Ok(())
            }
            Order::Make { slot, spec } => {
                match self.make(slot, &spec) {
                    Ok(()) => {}
                    Err(broken) => self.post(&Notice::Failed { slot, broken }, Vec::new()),
                }
                Ok(())
            }
            Order::Sandbox { ticket, order } => {
                self.obey_about_sandbox(ticket, order, fds);
                Ok(())
            }
            Order::StartImageWorker { ticket } => {
                self.start_image_worker(ticket);
                Ok(())
            }
            Order::Destroy { slot } => {
                if let Some(slot) = self.slots.get(&slot) {
                    kill(slot);
                }
                Ok(())
            }
        }
    }

    fn make(&mut self, number: u64, spec: &SlotSpec) -> Result<(), Broken> {
        let parts = Parts::gather(self, number, spec)?;
        if let Launch::Fork { zygote, .. } = spec.launch {
            return self.ask_zygote(zygote, parts, spec);
        }
        match make::fork_init(self, &parts, spec) {
            Ok((pid, pidfd)) => {
                self.add(parts, Origin::Fork(pid), pidfd);
                Ok(())
            }
            Err(broken) => {
                // Init has not been let in yet, so the group is empty; it ends with its socket.
                self.forget(parts.id, parts.group);
                Err(broken)
            }
        }
    }

    fn ask_zygote(&mut self, zygote: u64, parts: Parts, spec: &SlotSpec) -> Result<(), Broken> {
        let Some(mut found) = self.zygotes.remove(&zygote) else {
            self.forget(parts.id, parts.group);
            return Err(Broken { step: Step::Fork, errno: libc::ESRCH });
        };
        let asked = found.ask(self, parts, spec);
        self.zygotes.insert(zygote, found);
        asked.map_err(|failed| {
            let (parts, broken) = *failed;
            self.forget(parts.id, parts.group);
            broken
        })
    }

    /// Puts a slot that has its processes on the list, and hands the daemon its ends.
    fn add(&mut self, parts: Parts, origin: Origin, pidfd: OwnedFd) {
        let number = parts.number;
        let (slot, ends) = parts.into_slot(origin, pidfd);
        if slot.pid.is_none() {
            // It is not our child, so no signal tells of its end.
            let about = About::Slot(number).data();
            let _ = epoll::add(&self.events, &slot.pidfd, about, EventFlags::IN);
        }
        self.slots.insert(number, slot);
        self.post(&Notice::Made { slot: number, cgroup: ends.cgroup }, ends.fds);
    }

    fn start_zygote(&mut self, number: u64, program: Program) -> Result<(), SpawnerError> {
        let id = self.ids.take();
        if let Some(zygote) = id.and_then(|id| Zygote::start(self, program, id)) {
            epoll::add(&self.events, &zygote, About::Zygote(number).data(), EventFlags::IN)
                .map_err(doing("watch a zygote"))?;
            self.zygotes.insert(number, zygote);
        } else {
            if let Some(id) = id {
                self.ids.give_back(id);
            }
            self.post(&Notice::ZygoteGone { zygote: number }, Vec::new());
        }
        Ok(())
    }

    fn hear_zygote(&mut self, number: u64) {
        while let Some(answer) = self.zygotes.get_mut(&number).and_then(Zygote::answer) {
            match answer {
                Answer::Forked { parts, pidfd } => {
                    self.add(parts, Origin::Zygote(number), pidfd);
                }
                Answer::Failed { parts, broken } => self.fail(parts, broken),
                Answer::Gone => self.lose_zygote(number),
            }
        }
    }

    /// Ends a zygote that is to make no more slots, once those it made are gone.
    fn end_if_unused(&mut self, number: u64) {
        let is_retired = self.zygotes.get(&number).is_some_and(Zygote::is_retired);
        let is_used = self.slots.values().any(|slot| slot.zygote == Some(number));
        if is_retired && !is_used {
            self.lose_zygote(number);
        }
    }

    fn lose_zygote(&mut self, number: u64) {
        let Some(zygote) = self.zygotes.remove(&number) else { return };
        self.ids.give_back(zygote.id());
        for parts in zygote.end() {
            self.fail(parts, Broken { step: Step::Fork, errno: libc::ESRCH });
        }
        self.post(&Notice::ZygoteGone { zygote: number }, Vec::new());
    }

    fn fail(&mut self, parts: Parts, broken: Broken) {
        let slot = parts.number;
        self.forget(parts.id, parts.group);
        self.post(&Notice::Failed { slot, broken }, Vec::new());
    }

    /// Gives back what a slot had that never came to be.
    fn forget(&mut self, id: u32, group: Option<Group>) {
        let removed = match (&self.cgroups, &group) {
            (Some(cgroups), Some(group)) => cgroups.remove(group),
            _ => Ok(()),
        };
        match removed {
            Ok(()) => self.ids.give_back(id),
            // Its zygote has let processes into it and died; they are about to.
            Err(_) => self.dying.push((id, group)),
        }
    }

    /// Tries again for those that still had processes the last time.
    fn forget_the_dying(&mut self) {
        for (id, group) in std::mem::take(&mut self.dying) {
            self.forget(id, group);
        }
    }

    /// Returns the user of the host that creates the user namespace of a slot which has this pair of users.
    fn creator(&self, id: u32) -> Option<u32> {
        self.ids.range().map(|_| id)
    }

    /// Returns which users sandboxes and images have.
    fn identity(&self) -> Identity {
        self.sandbox_users
    }

    /// Returns which users slots have.
    fn slot_identity(&self) -> Identity {
        ids::identity_in(self.ids.range())
    }

    fn post(&mut self, notice: &Notice, fds: Vec<OwnedFd>) {
        if let Ok(packet) = wire::encode(notice) {
            self.outbox.push_back((packet, fds));
        }
    }

    fn flush(&mut self, socket: &PacketSocket) -> Result<(), SpawnerError> {
        while let Some((packet, fds)) = self.outbox.front() {
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            match socket.send(packet, &fds, SendFlags::DONTWAIT) {
                Ok(()) => drop(self.outbox.pop_front()),
                // The loop goes on when there is room, or ends when the daemon is gone.
                Err(Errno::AGAIN | Errno::PIPE | Errno::CONNRESET) => break,
                Err(errno) => return Err(doing("tell the daemon")(errno)),
            }
        }
        Ok(())
    }

    /// Clears away every slot whose init has ended.
    fn reap(&mut self, daemon: &mut Option<Daemon>) -> Result<(), SpawnerError> {
        while let Some((pid, status)) = reaped(WaitOptions::NOHANG)? {
            self.note_end(pid, status, daemon)?;
        }
        self.forget_the_dying();
        Ok(())
    }

    fn note_end(
        &mut self,
        pid: Pid,
        status: WaitStatus,
        daemon: &mut Option<Daemon>,
    ) -> Result<(), SpawnerError> {
        if let Some(daemon) = daemon {
            daemon.note(pid, status);
        }
        self.worker_ended(pid, status);
        self.opener_ended(pid);
        self.image_worker_ended(pid);
        let slot = self.slots.iter().find(|(_, slot)| slot.pid == Some(pid));
        match slot.map(|(number, _)| *number) {
            Some(number) => self.clear_away(number),
            None => Ok(()),
        }
    }

    /// With the last process of a pid namespace all others in it are gone, so its cgroup is empty.
    fn clear_away(&mut self, number: u64) -> Result<(), SpawnerError> {
        let Some(slot) = self.slots.remove(&number) else { return Ok(()) };
        if let (Some(cgroups), Some(group)) = (&self.cgroups, &slot.group) {
            cgroups.remove(group).map_err(doing("remove a cgroup"))?;
        }
        self.ids.give_back(slot.id);
        self.post(&Notice::Gone { slot: number }, Vec::new());
        if let Some(zygote) = slot.zygote {
            self.end_if_unused(zygote);
        }
        Ok(())
    }

    /// Ends every slot and waits until nothing is left of any. Returns how the daemon ended.
    fn end(mut self, mut daemon: Option<Daemon>) -> Result<Option<Exit>, SpawnerError> {
        self.slots.values().for_each(kill);
        // What cannot be removed now is removed by the next server.
        let _ = self.clear_waiting();
        // Those that are not our children first: they are reaped while their zygotes live.
        let others: Vec<u64> =
            self.slots.iter().filter(|(_, slot)| slot.pid.is_none()).map(|(n, _)| *n).collect();
        for number in others {
            if let Some(slot) = self.slots.get(&number) {
                wait_for(&slot.pidfd).map_err(doing("wait for a slot"))?;
            }
            self.clear_away(number)?;
        }
        let zygotes: Vec<u64> = self.zygotes.keys().copied().collect();
        let mut ended: Vec<OwnedFd> =
            self.image_worker.as_mut().and_then(ImageWorker::end).into_iter().collect();
        ended.extend(self.volumes.as_mut().and_then(Volumes::end));
        for number in zygotes {
            ended.extend(self.zygotes.get(&number).and_then(Zygote::process));
            self.lose_zygote(number);
        }
        let is_there = |daemon: Option<Daemon>| daemon.is_some_and(|d| d.exit().is_none());
        while !self.slots.is_empty() || is_there(daemon) {
            let Some((pid, status)) = reaped(WaitOptions::empty())? else { break };
            self.note_end(pid, status, &mut daemon)?;
        }
        // Not for every child: sandboxes go on.
        for process in ended {
            wait_for(&process).map_err(doing("wait for a process"))?;
        }
        while reaped(WaitOptions::NOHANG)?.is_some() {}
        self.forget_the_dying();
        Ok(daemon.and_then(Daemon::exit))
    }
}

fn wait_for(pidfd: &OwnedFd) -> Result<(), Errno> {
    loop {
        match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], None) {
            Err(Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}

/// Reaps one child, if there is any to reap.
fn reaped(options: WaitOptions) -> Result<Option<(Pid, WaitStatus)>, SpawnerError> {
    loop {
        match wait(options) {
            Ok(reaped) => return Ok(reaped),
            Err(Errno::CHILD) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(doing("reap")(errno)),
        }
    }
}

fn kill(slot: &Slot) {
    // Whoever is gone already needs no killing, and init's end takes the rest along.
    let _ = slot.group.as_ref().map(Group::kill);
    let _ = pidfd_send_signal(&slot.pidfd, Signal::KILL);
    let _ = slot.group.as_ref().map(Group::let_die);
}
