//! Which kind of volumes this machine gets: the first that is seen to hold a limit.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::{
    fs::{OFlags, fsync},
    io::{Errno, write},
    thread::{CapabilitySet, capabilities, set_capabilities},
};

use super::{
    DiskError, DiskKind, DiskLimit, Kind, LEAST, Refused,
    btrfs::Pool,
    directory::Directories,
    ground::{Ground, failed, open},
    image::Images,
    quota::Projects,
    tmpfs::Memory,
    whole,
};

type Chosen = (DiskKind, Box<dyn Kind>, Vec<Refused>);

/// No name of a volume: it is not among those that are listed.
const PROBE: &str = "probe-";

pub(super) fn choose(ground: &Ground) -> Result<Chosen, DiskError> {
    if let Some(kind) = ground.kind()? {
        match begin(ground, kind) {
            Ok(held) if is_allowed(ground, kind) => return Ok((kind, held, better_than(kind))),
            // Without volumes, the choice is free again.
            Ok(held) if held.names(ground)?.is_empty() => held.close(ground)?,
            Ok(_) => {
                let source = Box::new(DiskError::NotAllowed);
                return Err(DiskError::KindLost { kind, source });
            }
            Err(_) if !may_have_volumes(ground, kind)? => {}
            Err(source) => return Err(DiskError::KindLost { kind, source: Box::new(source) }),
        }
    }
    let mut refused = Vec::new();
    for kind in DiskKind::ALL {
        let begun =
            if is_allowed(ground, kind) { begin(ground, kind) } else { Err(DiskError::NotAllowed) };
        match begun {
            Ok(held) => {
                ground.note_kind(kind)?;
                return Ok((kind, held, refused));
            }
            Err(error) => refused.push(Refused { kind, why: whole(&error) }),
        }
    }
    Err(DiskError::NoKind { tried: refused })
}

/// Those before the kind that was taken once. They are not tried again.
fn better_than(kind: DiskKind) -> Vec<Refused> {
    let better = DiskKind::ALL.into_iter().take_while(|better| *better != kind);
    let why = format!("at the first start there was {kind}, and that is kept");
    better.map(|kind| Refused { kind, why: why.clone() }).collect()
}

fn is_allowed(ground: &Ground, kind: DiskKind) -> bool {
    let settings = &ground.settings;
    let by_name = match kind {
        DiskKind::Quota | DiskKind::Btrfs | DiskKind::Image => true,
        DiskKind::Tmpfs => settings.allow_tmpfs,
        DiskKind::Unlimited => settings.allow_unlimited_disk,
    };
    by_name && settings.only.is_none_or(|only| only == kind)
}

fn may_have_volumes(ground: &Ground, kind: DiskKind) -> Result<bool, DiskError> {
    match kind {
        DiskKind::Quota | DiskKind::Unlimited => Directories::are_there(ground),
        DiskKind::Btrfs => Pool::is_there(ground),
        DiskKind::Image => Images::are_there(ground),
        DiskKind::Tmpfs => Ok(false),
    }
}

/// Opens the volumes of a kind and tries whether a limit holds.
fn begin(ground: &Ground, kind: DiskKind) -> Result<Box<dyn Kind>, DiskError> {
    let held: Box<dyn Kind> = match kind {
        DiskKind::Quota => Box::new(Projects::open(ground)?),
        DiskKind::Btrfs => Box::new(Pool::open(ground)?),
        DiskKind::Image => Box::new(Images::open(ground)?),
        DiskKind::Tmpfs => Box::new(Memory::open(ground)?),
        DiskKind::Unlimited => return Ok(Box::new(Directories::open(ground)?)),
    };
    match probe(ground, held.as_ref()) {
        Ok(()) => Ok(held),
        Err(error) => {
            held.close(ground)?;
            Err(error)
        }
    }
}

fn probe(ground: &Ground, held: &dyn Kind) -> Result<(), DiskError> {
    // A probe that a crash has left.
    held.remove(ground, PROBE)?;
    let volume = held.make(ground, PROBE, DiskLimit::Promised(LEAST))?;
    let is_held = held.way_out(&volume).and_then(|way_out| {
        let is_closed = way_out.as_ref().map_or(Ok(true), holds)?;
        Ok(is_closed && holds(&volume)?)
    });
    drop(volume);
    held.remove(ground, PROBE)?;
    if is_held? { Ok(()) } else { Err(DiskError::NotHeld) }
}

/// Whether a write beyond the limit fails.
fn holds(volume: &OwnedFd) -> Result<bool, DiskError> {
    // With this right one may go beyond quotas. No sandbox has it, nor may the probe.
    let before = capabilities(None).map_err(failed("read", "our capabilities"))?;
    let mut without = before;
    without.effective.remove(CapabilitySet::SYS_RESOURCE);
    set_capabilities(None, without).map_err(failed("set", "our capabilities"))?;
    let filled = fill(volume);
    set_capabilities(None, before).map_err(failed("set", "our capabilities"))?;
    match filled {
        Ok(()) => Ok(false),
        Err(Errno::DQUOT | Errno::NOSPC) => Ok(true),
        Err(errno) => Err(failed("write to", "a volume")(errno)),
    }
}

fn fill(volume: &OwnedFd) -> Result<(), Errno> {
    let chunk = vec![b'x'; 1 << 20];
    let flags = OFlags::WRONLY | OFlags::CREATE;
    let file = open(volume.as_fd(), "probe", flags)?;
    let mut left = LEAST.0 + LEAST.0 / 2;
    while left > 0 {
        let wrote = write(&file, &chunk)?;
        left = left.saturating_sub(wrote as u64);
    }
    fsync(&file)
}
