//! The one process with privileges: makes slots, reaps them, and sees no user bytes.
//!
//! It has one thread and one loop, which never waits for anything but the next event.

mod ids;
mod make;
mod posture;
mod process;

pub use ids::IdRange;
pub use process::{Daemon, enter_user_namespace};

use std::{
    collections::{HashMap, VecDeque},
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{RecvFlags, SendFlags},
    process::{Pid, Signal, WaitOptions, WaitStatus, pidfd_send_signal, wait},
};

use crate::{
    cgroup::{CgroupError, Cgroups, Group},
    plan::{Exit, SlotSpec},
    posture::Posture,
    root::{RootError, Template},
    seccomp::SeccompError,
    socket::PacketSocket,
    sys,
    wire::{self, Notice, Order},
};
use ids::Ids;

/// What the spawner needs to know at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// An empty directory where the root of slots is put together, in a mount namespace of our
    /// own: on the host it stays empty.
    pub scratch: PathBuf,
    /// The host users that slots may have. `None`: the one user who runs the server.
    pub ids: Option<IdRange>,
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
    #[error("no system call filter for slots")]
    Seccomp(#[from] SeccompError),
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
    init: OwnedFd,
    null: OwnedFd,
    user_filters: Vec<Vec<u8>>,
    init_filter: Vec<u8>,
    slots: HashMap<Pid, Slot>,
    outbox: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
}

/// A slot from its making until nothing is left of it.
#[derive(Debug)]
struct Slot {
    number: u64,
    pidfd: OwnedFd,
    group: Option<Group>,
    id: u32,
}

/// The events that the loop waits for.
struct Happened {
    order: bool,
    signal: bool,
}

impl Spawner {
    /// Prepares what all slots share. Whoever comes here without cgroups has chosen to: slots
    /// then have soft limits.
    pub fn new(
        settings: &Settings,
        cgroups: Result<Cgroups, CgroupError>,
    ) -> Result<Self, SpawnerError> {
        sys::process::unshare_mounts().map_err(doing("make a mount namespace"))?;
        let private = rustix::mount::MountPropagationFlags::PRIVATE
            | rustix::mount::MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private).map_err(doing("make mounts private"))?;
        let posture = posture::of(&cgroups, settings.ids);
        Ok(Self {
            posture,
            cgroups: cgroups.ok(),
            template: Template::build(&settings.scratch)?,
            ids: Ids::new(settings.ids),
            init: make::sealed_program(init_image::INIT)
                .map_err(doing("store the init program"))?,
            null: make::open_null().map_err(doing("open /dev/null"))?,
            user_filters: crate::seccomp::for_user_code()?,
            init_filter: crate::seccomp::for_init()?,
            slots: HashMap::new(),
            outbox: VecDeque::new(),
        })
    }

    /// Takes orders until the daemon is gone, then ends every slot. Returns how the daemon ended.
    pub fn run(
        mut self,
        socket: &PacketSocket,
        mut daemon: Option<Daemon>,
    ) -> Result<Option<Exit>, SpawnerError> {
        let signals = sys::signal::as_descriptor(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT])
            .map_err(doing("watch signals"))?;
        self.post(&Notice::Hello { posture: self.posture.clone() }, Vec::new());
        self.flush(socket)?;
        loop {
            let happened = self.wait(socket, &signals)?;
            self.flush(socket)?;
            if happened.signal {
                while let Some(signal) =
                    sys::signal::next(&signals).map_err(doing("read a signal"))?
                {
                    if signal != libc::SIGCHLD
                        && let Some(daemon) = &daemon
                    {
                        daemon.forward(signal);
                    }
                }
                self.reap(&mut daemon)?;
            }
            if happened.order && !self.obey_all(socket)? {
                return self.end(daemon);
            }
        }
    }

    fn wait(&self, socket: &PacketSocket, signals: &OwnedFd) -> Result<Happened, SpawnerError> {
        let mut interest = PollFlags::IN;
        interest.set(PollFlags::OUT, !self.outbox.is_empty());
        let mut watched = [PollFd::new(socket, interest), PollFd::new(signals, PollFlags::IN)];
        match poll(&mut watched, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(doing("wait for events")(errno)),
        }
        let order = watched[0].revents().intersects(PollFlags::IN | PollFlags::HUP);
        Ok(Happened { order, signal: !watched[1].revents().is_empty() })
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
                    Ok(order) => self.obey(order, socket)?,
                    Err(_) => return Ok(false),
                },
            }
        }
    }

    fn obey(&mut self, order: Order, socket: &PacketSocket) -> Result<(), SpawnerError> {
        match order {
            Order::Make { slot, spec } => self.make(slot, &spec),
            Order::Destroy { slot } => {
                if let Some(slot) = self.slots.values().find(|known| known.number == slot) {
                    kill(slot);
                }
            }
        }
        self.flush(socket)
    }

    fn make(&mut self, number: u64, spec: &SlotSpec) {
        match make::slot(self, number, spec) {
            Ok(made) => {
                self.slots.insert(made.pid, made.slot);
                let notice = Notice::Made { slot: number, cgroup: made.cgroup };
                self.post(&notice, made.fds);
            }
            Err(broken) => self.post(&Notice::Failed { slot: number, broken }, Vec::new()),
        }
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
            if let Some(daemon) = daemon.as_mut() {
                daemon.note(pid, status);
            }
            self.clear_away(pid)?;
        }
        Ok(())
    }

    /// With the last process of a pid namespace all others in it are gone, so its cgroup is empty.
    fn clear_away(&mut self, pid: Pid) -> Result<(), SpawnerError> {
        let Some(slot) = self.slots.remove(&pid) else { return Ok(()) };
        if let (Some(cgroups), Some(group)) = (&self.cgroups, &slot.group) {
            cgroups.remove(group).map_err(doing("remove a cgroup"))?;
        }
        self.ids.give_back(slot.id);
        self.post(&Notice::Gone { slot: slot.number }, Vec::new());
        Ok(())
    }

    /// Ends every slot and waits until nothing is left of any. Returns how the daemon ended.
    fn end(mut self, mut daemon: Option<Daemon>) -> Result<Option<Exit>, SpawnerError> {
        self.slots.values().for_each(kill);
        let is_daemon_there =
            |daemon: &Option<Daemon>| daemon.as_ref().is_some_and(|daemon| daemon.exit().is_none());
        while !self.slots.is_empty() || is_daemon_there(&daemon) {
            let Some((pid, status)) = reaped(WaitOptions::empty())? else { break };
            if let Some(daemon) = daemon.as_mut() {
                daemon.note(pid, status);
            }
            self.clear_away(pid)?;
        }
        Ok(daemon.and_then(|daemon| daemon.exit()))
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
}
