//! Paths of the machine that the sandbox was given: copies are made, mounts attached. The root is
//! the sandbox's own by now and nothing runs in it yet, so nothing is exchanged meanwhile; links that
//! are in the way lead where they lead inside.

use std::os::fd::OwnedFd;

use rustix::{
    fs::{
        AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, fstat, mkdirat, openat,
        openat2,
    },
    io::Errno,
    mount::{MoveMountFlags, move_mount},
};

use super::{copies, image::inside};
use crate::{
    paths::{Attach, BringIn, Kind, NoPath, Problem},
    plan::Identity,
};

/// Makes the copies, then attaches the mounts: what is copied never gets into a mount.
pub(super) fn bring_in(
    copies: Vec<(&BringIn, OwnedFd)>,
    mounts: Vec<(&Attach, OwnedFd)>,
    identity: Identity,
) -> Result<(), NoPath> {
    for (copy, source) in copies {
        let copied = place(&copy.target, copy.kind)
            .map_err(Problem::from)
            .and_then(|target| copies::copy(copy, &source, &target, identity));
        copied.map_err(|problem| NoPath { path: copy.target.clone(), problem })?;
    }
    let mut mounts = mounts;
    // One below another comes after it.
    mounts.sort_by(|(one, _), (other, _)| one.target.cmp(&other.target));
    for (mount, tree) in mounts {
        let attached = place(&mount.target, mount.kind).and_then(|target| {
            let whole = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            move_mount(&tree, "", &target, "", whole | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH)
        });
        attached.map_err(|errno| NoPath { path: mount.target.clone(), problem: errno.into() })?;
    }
    Ok(())
}

/// Opens the place of a path inside. What is missing of it is made, and belongs to who owns what it
/// is made in.
fn place(target: &str, kind: Kind) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, "/", flags, Mode::empty())?;
    let names: Vec<&str> = target.split('/').filter(|name| !name.is_empty()).collect();
    let (name, parents) = names.split_last().ok_or(Errno::INVAL)?;
    let mut folder = inside(&root, ".")?;
    let mut path = String::new();
    for parent in parents {
        path = format!("{path}/{parent}");
        folder = open_or_make(&root, &folder, &path, parent)?;
    }
    path = format!("{path}/{name}");
    match kind {
        Kind::Folder => open_or_make(&root, &folder, &path, name),
        Kind::File => {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            match openat2(&root, path.as_str(), flags, Mode::empty(), resolve) {
                Err(Errno::NOENT) => make_file(&folder, name),
                other => other,
            }
        }
    }
}

fn open_or_make(
    root: &OwnedFd,
    parent: &OwnedFd,
    path: &str,
    name: &str,
) -> Result<OwnedFd, Errno> {
    match inside(root, path) {
        Err(Errno::NOENT) => {}
        other => return other,
    }
    mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
    give_as(parent, name)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

fn make_file(parent: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(parent, name, flags, Mode::from_raw_mode(0o644))?;
    give_as(parent, name)?;
    Ok(file)
}

fn give_as(parent: &OwnedFd, name: &str) -> Result<(), Errno> {
    let stat = fstat(parent)?;
    let (user, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    chownat(parent, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)
}
