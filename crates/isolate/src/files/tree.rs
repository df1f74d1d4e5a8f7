//! Makes, moves and removes names.

use std::os::fd::OwnedFd;

use rustix::{
    fs::{
        AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, chmodat, mkdirat, openat, openat2,
        renameat_with, unlinkat,
    },
    io::Errno,
};

use super::{
    resolve::{JUST_HERE, Parents, Root, Spot, identity, look_up, sync},
    serve::Hearing,
    wire::{At, Condition, Fault, Kind, Stat, Why},
};

/// Makes a directory. With its parents, one that is there already is as good.
pub(super) fn make_directory(at: &At, parents: Parents, mode: Option<u32>) -> Result<Stat, Fault> {
    if at.path.is_empty() {
        return match parents {
            Parents::Make => Ok(look_up(at, true)?.1),
            Parents::Need => Err(Why::Exists.into()),
        };
    }
    let root = Root::open(&at.root)?;
    let spot = root.spot(&at.path, parents)?;
    match mkdirat(&spot.directory, spot.name, Mode::from_raw_mode(0o755)) {
        Ok(()) => {
            if let Some(mode) = mode {
                // What the umask has taken away is given, and nothing but what was asked for.
                chmodat(
                    &spot.directory,
                    spot.name,
                    Mode::from_raw_mode(mode & 0o777),
                    AtFlags::empty(),
                )?;
            }
            sync(&spot.directory);
        }
        Err(Errno::EXIST) if parents == Parents::Make => {
            return match look_up(at, true)?.1 {
                stat @ Stat { kind: Kind::Directory, .. } => Ok(stat),
                _ => Err(Why::Exists.into()),
            };
        }
        Err(other) => return Err(other.into()),
    }
    spot.look()?.ok_or_else(|| Why::Conflict.into())
}

/// Moves a name. Links are moved, and not followed.
pub(super) fn rename(
    from: &At,
    to: &At,
    condition: &Condition,
    replace: bool,
) -> Result<Stat, Fault> {
    let source = Root::open(&from.root)?;
    let source = source.spot(&from.path, Parents::Need)?;
    let there = source.look()?.ok_or(Why::NotFound)?;
    if !condition.holds_for(Some(&there)) {
        return Err(Fault { why: Why::Precondition, there: Some(there) });
    }
    let target = Root::open(&to.root)?;
    let target = target.spot(&to.path, Parents::Need)?;
    if target.look()?.is_some_and(|there| !replace || there.kind == Kind::Directory) {
        return Err(Why::Exists.into());
    }
    let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    let Spot { directory, name } = &target;
    match renameat_with(&source.directory, source.name, directory, *name, flags) {
        Ok(()) => {}
        // Into itself, or onto what is something else.
        Err(Errno::INVAL) => return Err(Why::Conflict.into()),
        Err(Errno::ISDIR | Errno::NOTDIR | Errno::NOTEMPTY) => return Err(Why::Exists.into()),
        Err(other) => return Err(other.into()),
    }
    sync(&source.directory);
    sync(&target.directory);
    target.look()?.ok_or_else(|| Why::Conflict.into())
}

/// Removes a name: a directory with everything in it only if that is asked for.
pub(super) fn remove(
    at: &At,
    recursive: bool,
    condition: &Condition,
    hearing: &mut Hearing<'_>,
) -> Result<(), Fault> {
    let root = Root::open(&at.root)?;
    let spot = root.spot(&at.path, Parents::Need)?;
    let there = spot.look()?;
    if !condition.holds_for(there.as_ref()) {
        return Err(Fault { why: Why::Precondition, there });
    }
    let Spot { directory, name } = &spot;
    match there.ok_or(Why::NotFound)?.kind {
        Kind::Directory => match (unlinkat(directory, *name, AtFlags::REMOVEDIR), recursive) {
            (Err(Errno::NOTEMPTY), true) => {
                empty(directory, name, hearing)?;
                unlinkat(directory, *name, AtFlags::REMOVEDIR)?;
            }
            (removed, _) => removed?,
        },
        _ => unlinkat(directory, *name, AtFlags::empty())?,
    }
    sync(directory);
    Ok(())
}

/// Removes everything in a directory.
///
/// However deep it is, one descriptor is open: the way back is `..`, which is gone only if it leads to
/// where we came from. Of that nothing but its identity is remembered, since a directory that was
/// emptied can be removed when its turn comes again.
fn empty(above: &OwnedFd, name: &[u8], hearing: &mut Hearing<'_>) -> Result<(), Fault> {
    let mut came_from = Vec::new();
    let mut here = enter(above, name)?;
    loop {
        match clear(&here, hearing)? {
            Cleared::All => {
                let Some(back) = came_from.pop() else { return Ok(()) };
                let up = openat(&here, "..", READ, Mode::empty())?;
                if identity(&up)? != back {
                    return Err(Why::Conflict.into());
                }
                here = up;
            }
            Cleared::Until(child) => {
                came_from.push(identity(&here)?);
                here = child;
            }
        }
    }
}

const READ: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// How far a directory was cleared.
enum Cleared {
    All,
    /// This one in it is not empty.
    Until(OwnedFd),
}

fn clear(here: &OwnedFd, hearing: &mut Hearing<'_>) -> Result<Cleared, Fault> {
    for entry in Dir::read_from(here)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        hearing.is_asked_to_go_on()?;
        let removed = if entry.file_type() == FileType::Directory {
            Err(Errno::ISDIR)
        } else {
            unlinkat(here, name, AtFlags::empty())
        };
        match removed {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR) => {}
            Err(other) => return Err(other.into()),
        }
        match unlinkat(here, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY) => return Ok(Cleared::Until(enter(here, name.to_bytes())?)),
            Err(other) => return Err(other.into()),
        }
    }
    Ok(Cleared::All)
}

/// Goes into a directory, and never onto another file system: what is mounted there is not ours to
/// remove.
fn enter(above: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let how = JUST_HERE | rustix::fs::ResolveFlags::NO_XDEV;
    openat2(above, name, READ | OFlags::NOFOLLOW, Mode::empty(), how)
}
