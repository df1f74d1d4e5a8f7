//! The process that works on volumes. It is forked from the spawner, whose loop never waits for a
//! disk, and dies with it. Its mounts are in a namespace of its own, so that no slot gets a copy of
//! them, and each wish is carried out by a process below it.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    mount::{OpenTreeFlags, open_tree},
    net::{RecvFlags, SendFlags},
    process::{Signal, WaitOptions, set_parent_process_death_signal, waitpid},
};
use serde::{Deserialize, Serialize};

use crate::{
    disk::{
        DiskError, DiskKind, DiskLimit, DiskSettings, Disks, Reason, VolumeName, wait_until_free,
        whole,
        work::{Outcome, Work},
    },
    lockdown,
    posture::Volumes,
    sandbox::Image,
    socket::PacketSocket,
    spawner::sandboxes::furniture,
    sys, wire,
};

/// What is asked of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::spawner) enum Wish {
    /// Ends with the sandbox's files as a detached mount.
    Provide(Provision),
    Remove {
        name: VolumeName,
    },
}

/// The files of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::spawner) struct Provision {
    pub(in crate::spawner) name: VolumeName,
    pub(in crate::spawner) limit: DiskLimit,
    /// Whether it had its files before: then others would not be its own.
    pub(in crate::spawner) had_files: bool,
    pub(in crate::spawner) image: Image,
    /// The owner on disk of what is user 0's inside.
    pub(in crate::spawner) on_disk: Option<u32>,
}

impl Wish {
    pub(in crate::spawner) fn name(&self) -> &VolumeName {
        match self {
            Self::Provide(Provision { name, .. }) | Self::Remove { name } => name,
        }
    }
}

/// What it tells.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::spawner) enum Told {
    /// The first word. Unless volumes are held, it is also the last.
    Opened(Volumes),
    /// The files come along.
    Provided {
        name: VolumeName,
    },
    Removed {
        name: VolumeName,
    },
    Failed {
        name: VolumeName,
        reason: Reason,
        said: String,
    },
}

/// How long a server that was killed may take to let go of the folder. Its workers are killed with it,
/// but end only when the disk lets them.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Works until nobody is at the other end of the socket.
pub(super) fn keep(
    data: &Path,
    settings: &DiskSettings,
    socket: &PacketSocket,
) -> Result<(), Errno> {
    // If the spawner is gone already, so is the other end.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    sys::process::unshare_mounts()?;
    lockdown::of_keeper()?;
    let disks = match open(data, settings) {
        Ok(disks) => disks,
        Err(error) => return tell(socket, &Told::Opened(refused(&error)), None),
    };
    let held = Volumes::Held { kind: disks.kind(), refused: disks.refused().to_vec() };
    tell(socket, &Told::Opened(held), None)?;
    let mut under_way = Vec::new();
    loop {
        let ready = wait(socket, &under_way)?;
        if ready.wish {
            match socket.receive(RecvFlags::empty())? {
                None => return Ok(()),
                Some(packet) => {
                    let wish = wire::decode(&packet.bytes).or(Err(Errno::BADMSG))?;
                    begin(&disks, wish, socket, &mut under_way)?;
                }
            }
        }
        // From the end, so that those before keep their places.
        for index in ready.works.into_iter().rev() {
            let (wish, work): (Wish, Work) = under_way.swap_remove(index);
            let pid = work.pid;
            let outcome = work.finish();
            // It has said its word and ends.
            let _ = waitpid(Some(pid), WaitOptions::empty());
            tell_of(socket, &wish, outcome)?;
        }
    }
}

fn open(data: &Path, settings: &DiskSettings) -> Result<Disks, DiskError> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let data =
        openat(CWD, data, flags, Mode::empty()).map_err(failed("open", "the data folder"))?;
    match Disks::open(data.as_fd(), settings) {
        Err(DiskError::InUse) => {
            wait_until_free(data.as_fd(), &PATIENCE)?;
            Disks::open(data.as_fd(), settings)
        }
        other => other,
    }
}

fn refused(error: &DiskError) -> Volumes {
    let why = whole(error);
    match error {
        DiskError::NoKind { .. } => Volumes::None { why },
        _ => Volumes::Broken { why },
    }
}

/// What there is to do.
struct Ready {
    wish: bool,
    works: Vec<usize>,
}

fn wait(socket: &PacketSocket, under_way: &[(Wish, Work)]) -> Result<Ready, Errno> {
    let works = under_way.iter().map(|(_, work)| PollFd::new(work, PollFlags::IN));
    let mut fds: Vec<PollFd<'_>> =
        std::iter::once(PollFd::new(socket, PollFlags::IN)).chain(works).collect();
    loop {
        match poll(&mut fds, None) {
            Err(Errno::INTR) => {}
            other => {
                other?;
                break;
            }
        }
    }
    let mut is_ready = fds.iter().map(|fd| !fd.revents().is_empty());
    let wish = is_ready.next().unwrap_or_default();
    let works = is_ready.enumerate().filter(|(_, is_ready)| *is_ready).map(|(index, _)| index);
    Ok(Ready { wish, works: works.collect() })
}

fn begin(
    disks: &Disks,
    wish: Wish,
    socket: &PacketSocket,
    under_way: &mut Vec<(Wish, Work)>,
) -> Result<(), Errno> {
    match Work::begin_with(|| carry_out(disks, &wish)) {
        Ok(work) => {
            under_way.push((wish, work));
            Ok(())
        }
        Err(error) => tell_of(socket, &wish, Err(error)),
    }
}

/// In a process of its own.
fn carry_out(disks: &Disks, wish: &Wish) -> Result<Outcome, DiskError> {
    match wish {
        Wish::Provide(provision) => provide(disks, provision).map(Outcome::Volume),
        Wish::Remove { name } => disks.remove(name).map(|()| Outcome::Done),
    }
}

fn provide(disks: &Disks, wanted: &Provision) -> Result<OwnedFd, DiskError> {
    let name = &wanted.name;
    // What was in memory is lost, as the operator allowed.
    let may_be_new = !wanted.had_files || disks.kind() == DiskKind::Tmpfs;
    let volume = match disks.open_volume(name) {
        Err(DiskError::Missing { .. }) if may_be_new => disks.make(name, wanted.limit)?,
        other => other?,
    };
    let files = furniture::furnish(&volume, &wanted.image, wanted.on_disk)
        .map_err(failed("furnish", name.as_str()))?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(&files, "", flags).map_err(failed("hand over", name.as_str()))
}

fn failed(doing: &'static str, what: &str) -> impl Fn(Errno) -> DiskError {
    move |errno| DiskError::System { doing, what: what.to_owned(), errno }
}

fn tell_of(
    socket: &PacketSocket,
    wish: &Wish,
    outcome: Result<Outcome, DiskError>,
) -> Result<(), Errno> {
    let name = wish.name().clone();
    match outcome {
        Ok(Outcome::Volume(files)) => tell(socket, &Told::Provided { name }, Some(&files)),
        Ok(Outcome::Done | Outcome::Usage(_)) => tell(socket, &Told::Removed { name }, None),
        Err(error) => {
            let (reason, said) = (error.reason(), whole(&error));
            tell(socket, &Told::Failed { name, reason, said }, None)
        }
    }
}

fn tell(socket: &PacketSocket, told: &Told, files: Option<&OwnedFd>) -> Result<(), Errno> {
    let packet = wire::encode(told).or(Err(Errno::BADMSG))?;
    let files: Vec<_> = files.into_iter().map(|files| files.as_fd()).collect();
    socket.send(&packet, &files, SendFlags::empty())
}
