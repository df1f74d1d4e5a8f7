//! The volumes of sandboxes, as the spawner's loop sees them: wishes to a process of its own, and
//! what that tells.

pub(super) mod keeper;

use std::{
    collections::{HashMap, VecDeque},
    os::fd::{AsFd as _, OwnedFd},
    path::PathBuf,
};

use rustix::{
    event::epoll::{self, EventFlags},
    io::Errno,
    net::{RecvFlags, SendFlags},
    process::{Signal, pidfd_send_signal},
};

use super::{About, Spawner};
use crate::{
    disk::{DiskKind, DiskSettings, Reason, VolumeName},
    posture::Volumes as Posture,
    socket::PacketSocket,
    sys::{self, process::Fork},
    wire::{self, Notice},
};
use keeper::{Told, Wish};

/// How many wishes are carried out at once. Each is a process, and most of them wait for one lock.
const AT_ONCE: usize = 16;

/// Where the files of sandboxes are.
#[derive(Clone, Debug)]
pub struct VolumeSettings {
    /// The data directory. In it is a folder for them.
    pub data: PathBuf,
    pub disks: DiskSettings,
}

/// What is wanted of the volumes. There is at most one wish for a sandbox.
#[derive(Debug)]
pub(super) struct Volumes {
    settings: VolumeSettings,
    keeper: Option<Keeper>,
    /// What the keeper was not told yet.
    waiting: VecDeque<Wish>,
    under_way: HashMap<VolumeName, Wish>,
}

/// The process that works on them.
#[derive(Debug)]
struct Keeper {
    socket: PacketSocket,
    pidfd: OwnedFd,
    /// What it said of them. Nothing: it is still looking.
    said: Option<Posture>,
}

/// What came of a wish.
#[derive(Debug)]
pub(super) enum Granted {
    Files(OwnedFd),
    Removed,
}

/// Why a wish was not granted.
#[derive(Debug)]
pub(super) struct Denied {
    pub(super) reason: Reason,
    pub(super) said: String,
}

impl Volumes {
    pub(super) fn new(settings: &VolumeSettings) -> Self {
        let (waiting, under_way) = (VecDeque::new(), HashMap::new());
        Self { settings: settings.clone(), keeper: None, waiting, under_way }
    }

    /// Ends the keeper as a crash would, which it is made for. Returns what to wait for.
    pub(super) fn end(&mut self) -> Option<OwnedFd> {
        let keeper = self.keeper.take()?;
        let _ = pidfd_send_signal(&keeper.pidfd, Signal::KILL);
        Some(keeper.pidfd)
    }

    fn fork_keeper(&self) -> Result<Keeper, Errno> {
        let (ours, theirs) = PacketSocket::pair()?;
        match sys::process::fork(0)? {
            Fork::Child => {
                // With the ends of others it would keep them from seeing that the spawner is gone.
                let kept = sys::process::keep_only(theirs.as_fd()).map(PacketSocket::from_fd);
                let VolumeSettings { data, disks } = &self.settings;
                let kept = kept.and_then(|kept| keeper::keep(data, disks, &kept));
                sys::process::exit_now(i32::from(kept.is_err()))
            }
            Fork::Parent { child: _, pidfd } => Ok(Keeper { socket: ours, pidfd, said: None }),
        }
    }

    /// Tells the keeper what it may begin with.
    fn tell(&mut self) {
        let Some(Keeper { socket, said: Some(Posture::Held { .. }), .. }) = &self.keeper else {
            return;
        };
        while self.under_way.len() < AT_ONCE
            && let Some(wish) = self.waiting.pop_front()
        {
            let sent = wire::encode(&wish).or(Err(Errno::BADMSG));
            let sent = sent.and_then(|packet| socket.send(&packet, &[], SendFlags::DONTWAIT));
            let name = wish.name().clone();
            self.under_way.insert(name, wish);
            if sent.is_err() {
                // So few and small packets always have room: it is gone, and its socket says so.
                return;
            }
        }
    }
}

impl Spawner {
    /// Starts the process that works on volumes, unless there is one.
    pub(super) fn start_keeper(&mut self) {
        let Some(volumes) = &mut self.volumes else { return };
        if volumes.keeper.is_some() {
            return;
        }
        let started = volumes.fork_keeper().and_then(|keeper| {
            epoll::add(&self.events, &keeper.socket, About::Keeper.data(), EventFlags::IN)?;
            Ok(keeper)
        });
        match started {
            Ok(keeper) => volumes.keeper = Some(keeper),
            Err(errno) => {
                let why = format!("cannot start the process that works on volumes: {errno}");
                self.lose_keeper(Posture::Broken { why });
            }
        }
    }

    /// Whether volumes share what there is, so that one more takes nothing from others.
    pub(super) fn shares_volumes(&self) -> bool {
        let keeper = self.volumes.as_ref().and_then(|volumes| volumes.keeper.as_ref());
        let kind = keeper.and_then(|keeper| match &keeper.said {
            Some(Posture::Held { kind, .. }) => Some(*kind),
            _ => None,
        });
        matches!(kind, Some(DiskKind::Btrfs | DiskKind::Unlimited))
    }

    /// Has something done about the volume of a sandbox.
    pub(super) fn wish(&mut self, wish: Wish) {
        let Some(volumes) = &mut self.volumes else {
            let said = "this server has no volumes".to_owned();
            let denied = Denied { reason: Reason::Other, said };
            return self.volume_settled(wish.name(), Err(denied));
        };
        volumes.waiting.push_back(wish);
        self.start_keeper();
        if let Some(volumes) = &mut self.volumes {
            volumes.tell();
        }
    }

    pub(super) fn hear_keeper(&mut self) {
        while let Some(volumes) = &mut self.volumes
            && let Some(keeper) = &mut volumes.keeper
        {
            let packet = match keeper.socket.receive(RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => return,
                Err(_) | Ok(None) => {
                    let why = "the process that works on volumes died".to_owned();
                    let said = keeper.said.take().filter(|said| !is_held(said));
                    return self.lose_keeper(said.unwrap_or(Posture::Broken { why }));
                }
                Ok(Some(packet)) => packet,
            };
            // It is of this very build.
            let Ok(told) = wire::decode(&packet.bytes) else { continue };
            let (name, granted) = match told {
                Told::Opened(posture) => {
                    keeper.said = Some(posture.clone());
                    volumes.tell();
                    self.post(&Notice::Volumes { posture }, Vec::new());
                    continue;
                }
                Told::Provided { name } => {
                    let files = packet.fds.into_iter().next().map(Granted::Files);
                    let said = "the files of the sandbox did not come along".to_owned();
                    (name, files.ok_or(Denied { reason: Reason::Other, said }))
                }
                Told::Removed { name } => (name, Ok(Granted::Removed)),
                Told::Failed { name, reason, said } => (name, Err(Denied { reason, said })),
            };
            volumes.under_way.remove(&name);
            volumes.tell();
            self.volume_settled(&name, granted);
        }
    }

    /// The keeper is gone: whoever waits for it is told why. The next wish starts another.
    fn lose_keeper(&mut self, said: Posture) {
        let Some(volumes) = &mut self.volumes else { return };
        volumes.keeper = None;
        let lost = volumes.under_way.drain().map(|(_, wish)| wish);
        let lost: Vec<Wish> = lost.chain(volumes.waiting.drain(..)).collect();
        for wish in lost {
            let granted = match (&said, &wish) {
                // Where there can be no volumes, there is none to remove.
                (Posture::None { .. }, Wish::Remove { .. }) => Ok(Granted::Removed),
                (Posture::None { why } | Posture::Broken { why }, _) => {
                    Err(Denied { reason: Reason::Other, said: why.clone() })
                }
                (Posture::Held { .. }, _) => {
                    Err(Denied { reason: Reason::Other, said: String::new() })
                }
            };
            self.volume_settled(wish.name(), granted);
        }
        if let Posture::Broken { .. } = said {
            self.post(&Notice::Volumes { posture: said }, Vec::new());
        }
    }
}

fn is_held(posture: &Posture) -> bool {
    matches!(posture, Posture::Held { .. })
}
