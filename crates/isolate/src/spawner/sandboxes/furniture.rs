//! The folders that a sandbox can write to, made once for its whole life.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::{
    fs::{AtFlags, Gid, Mode, Uid, chmodat, chownat, openat, renameat, statat},
    io::Errno,
};

use super::files::{DIRECTORY, make_folder};
use crate::{
    disk::tree,
    plan::INSIDE_USER,
    sandbox::{Image, UPPER, WORK, WRITABLE, folder},
};

const IN_VAR: [&str; 3] = ["var/cache", "var/lib", "var/log"];

/// Makes the folders that the sandbox can write to in its volume, and opens the one that all of them
/// are in. A sandbox that is resumed finds its own again.
pub(in crate::spawner) fn furnish(
    volume: &OwnedFd,
    image: &Image,
    on_disk: Option<u32>,
) -> Result<OwnedFd, Errno> {
    const NEW: &str = "files.new";
    match openat(volume, folder::FILES, DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT) => {}
        Err(other) => return Err(other),
        Ok(files) => {
            add_overlay(&files, on_disk)?;
            return Ok(files);
        }
    }
    tree::remove(volume.as_fd(), NEW)?;
    make_folder(volume, NEW, 0o755)?;
    let new = openat(volume, NEW, DIRECTORY, Mode::empty())?;
    if *image == Image::Host {
        furnish_host(&new, on_disk)?;
    }
    furnish_overlay(&new, on_disk)?;
    give_at(&new, "", on_disk)?;
    // In one step: a sandbox has either all of them or none.
    renameat(volume, NEW, volume, folder::FILES)?;
    Ok(new)
}

/// Adds the folders of the overlay that is the root to files that are there: older sandboxes of the machine's
/// own image have none. Without room for them its root is read-only, as it was.
pub(super) fn add_overlay(files: &OwnedFd, on_disk: Option<u32>) -> Result<(), Errno> {
    match furnish_overlay(files, on_disk) {
        Err(Errno::NOSPC | Errno::DQUOT) => Ok(()),
        other => other,
    }
}

fn furnish_overlay(files: &OwnedFd, on_disk: Option<u32>) -> Result<(), Errno> {
    for name in [UPPER, WORK] {
        make_folder(files, name, 0o755)?;
        // Once it is the sandbox's, root inside may have given it to another user.
        let owner = statat(files, name, AtFlags::SYMLINK_NOFOLLOW)?.st_uid;
        if owner == rustix::process::geteuid().as_raw() {
            give_at(files, name, on_disk)?;
        }
    }
    Ok(())
}

/// Makes the folders that a sandbox of the host's image has beside its root.
fn furnish_host(new: &OwnedFd, on_disk: Option<u32>) -> Result<(), Errno> {
    let plain = WRITABLE.into_iter().chain(IN_VAR).map(|name| (name, 0o755));
    for (name, mode) in plain.chain([("tmp", 0o1777), ("var/tmp", 0o1777)]) {
        make_folder(new, name, mode)?;
        give_at(new, name, on_disk)?;
    }
    make_folder(new, "home/agbox", 0o755)?;
    chmodat(new, "root", Mode::from_raw_mode(0o700), AtFlags::empty())?;
    for name in ["home/agbox", "workspace"] {
        give_at(new, name, on_disk.map(|root| root + INSIDE_USER))?;
    }
    Ok(())
}

fn give_at(folder: &OwnedFd, name: &str, to: Option<u32>) -> Result<(), Errno> {
    let Some(to) = to else { return Ok(()) };
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    chownat(folder, name, Some(Uid::from_raw(to)), Some(Gid::from_raw(to)), flags)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_sandbox_finds_its_files_again() {
        let place = tempfile::tempdir().unwrap();
        let volume: OwnedFd = fs::File::open(place.path()).unwrap().into();
        // What a killed server has left half made.
        fs::create_dir_all(place.path().join("files.new/home/other")).unwrap();
        drop(furnish(&volume, &Image::Host, None).unwrap());
        let home = place.path().join("files/home");
        assert_eq!(fs::read_dir(&home).unwrap().count(), 1);
        fs::write(home.join("agbox/note"), "kept").unwrap();
        drop(furnish(&volume, &Image::Host, None).unwrap());
        assert_eq!(fs::read_to_string(home.join("agbox/note")).unwrap(), "kept");
    }
}
