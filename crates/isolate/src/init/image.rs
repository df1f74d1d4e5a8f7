//! The root of a sandbox made of an image: an overlay of what the sandbox has written over the
//! layers of the image, which it shares with others.
//!
//! The image is a stranger's. Until the old root is left, every path in it is resolved by the kernel
//! as if the image were the root already: a link in it leads nowhere else.

use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, fchmod, fstat,
        mkdirat, openat, openat2, statat,
    },
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
        fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
        open_tree, unmount,
    },
    process::{chdir, fchdir},
};

use super::root::{add_terminals, cover_proc, fill_sandbox, leave_old_root};
use crate::{
    plan::{Broken, INSIDE_USER, Identity, Step},
    procfs::SYNTHETIC_FOLDER,
    sandbox::{RootPlan, SYSTEM, UPPER, WORK, WRITABLE},
};

/// Puts the root together and leaves the old one for good. `tree` is the root of the host's image,
/// whose devices every sandbox has; layers come lowest first.
pub(super) fn build(
    plan: &RootPlan,
    tree: &OwnedFd,
    files: &OwnedFd,
    layers: &[OwnedFd],
) -> Result<(), Broken> {
    let stage = stage(tree, files, layers).map_err(Broken::at(Step::Root))?;
    let root = overlay(&stage, layers.len()).map_err(Broken::at(Step::Writable))?;
    let written = inside(&stage, &format!("files/{UPPER}")).map_err(Broken::at(Step::Writable))?;
    furnish(&root, plan.identity, Some(&written)).map_err(Broken::at(Step::Writable))?;
    finish(plan, &stage, &root)
}

/// Puts the root of a sandbox of the machine's own image together: an overlay over the tree of the image, with
/// the machine's programs and the sandbox's own folders mounted in it. Where the kernel has no such overlay
/// (it cannot map the owners of its layers before Linux 5.19) the root is read-only.
pub(super) fn build_machine(
    plan: &RootPlan,
    tree: &OwnedFd,
    files: &OwnedFd,
    base: &[OwnedFd],
) -> Result<(), Broken> {
    let stage = stage(tree, files, base).map_err(Broken::at(Step::Root))?;
    let Ok(root) = overlay(&stage, base.len()) else {
        fchdir(tree).map_err(Broken::at(Step::Root))?;
        fill_sandbox(plan, files)?;
        return leave_stage();
    };
    add_programs(&stage, &root).map_err(Broken::at(Step::Root))?;
    for name in WRITABLE.into_iter().chain(["tmp"]) {
        let folder = clone_of(&stage, &format!("files/{name}"), OpenTreeFlags::empty());
        folder.and_then(|it| put(&it, &root, name)).map_err(Broken::at(Step::Writable))?;
    }
    finish(plan, &stage, &root)
}

/// Mounts the machine's programs in the root. Those that are links are in its lowest layer.
fn add_programs(stage: &OwnedFd, root: &OwnedFd) -> Result<(), Errno> {
    for name in SYSTEM {
        let path = format!("tree/{name}");
        match statat(stage, path.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                put(&clone_of(stage, &path, OpenTreeFlags::AT_RECURSIVE)?, root, name)?;
            }
            Ok(_) | Err(Errno::NOENT) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

/// Adds what is the same with every image, and leaves the old root for good.
fn finish(plan: &RootPlan, stage: &OwnedFd, root: &OwnedFd) -> Result<(), Broken> {
    add_devices(stage, root).map_err(Broken::at(Step::Devices))?;
    fchdir(root).map_err(Broken::at(Step::Root))?;
    put(&new_proc().map_err(Broken::at(Step::Proc))?, root, "proc")
        .map_err(Broken::at(Step::Proc))?;
    let synthetic = format!("../tree/{SYNTHETIC_FOLDER}");
    cover_proc("../nothing", "../nothing.d", &synthetic).map_err(Broken::at(Step::Proc))?;
    add_terminals(plan.namespace.terminals).map_err(Broken::at(Step::Devices))?;
    leave_stage()
}

/// Leaves the old root, with the stage that stands on it.
fn leave_stage() -> Result<(), Broken> {
    leave_old_root().map_err(Broken::at(Step::Pivot))?;
    // What was unmounted is the stage, which stood on the old root.
    unmount("/", UnmountFlags::DETACH).map_err(Broken::at(Step::Pivot))?;
    chdir("/").map_err(Broken::at(Step::Pivot))
}

const EMPTY_PATH: MoveMountFlags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;

/// Makes a small file system over the old root, with everything in it that the new one is made of.
/// It goes with the old root.
fn stage(tree: &OwnedFd, files: &OwnedFd, layers: &[OwnedFd]) -> Result<OwnedFd, Errno> {
    let stage = new("tmpfs", &[("mode", "0755"), ("size", "1m")], MountAttrFlags::empty())?;
    move_mount(&stage, "", CWD, "/", EMPTY_PATH)?;
    for name in ["tree", "files", "root", "nothing.d"] {
        mkdirat(&stage, name, Mode::from_raw_mode(0o755))?;
    }
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    drop(openat(&stage, "nothing", flags, Mode::from_raw_mode(0o444))?);
    move_mount(tree, "", &stage, "tree", EMPTY_PATH)?;
    move_mount(files, "", &stage, "files", EMPTY_PATH)?;
    for (number, layer) in layers.iter().enumerate() {
        let name = number.to_string();
        mkdirat(&stage, name.as_str(), Mode::from_raw_mode(0o755))?;
        move_mount(layer, "", &stage, name.as_str(), EMPTY_PATH)?;
    }
    Ok(stage)
}

/// Mounts the overlay and returns its top folder.
fn overlay(stage: &OwnedFd, layers: usize) -> Result<OwnedFd, Errno> {
    // Its paths are looked up from here.
    fchdir(stage)?;
    // The first is the uppermost.
    let lower: Vec<String> = (0..layers).rev().map(|number| number.to_string()).collect();
    let lower = lower.join(":");
    let (upper, work) = (format!("files/{UPPER}"), format!("files/{WORK}"));
    let options = [
        ("lowerdir", lower.as_str()),
        ("upperdir", upper.as_str()),
        ("workdir", work.as_str()),
        // Else its notes could be made by the sandbox itself.
        ("userxattr", ""),
    ];
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let overlay = new("overlay", &options, attributes)?;
    move_mount(&overlay, "", stage, "root", EMPTY_PATH)?;
    Ok(overlay)
}

fn new(kind: &str, options: &[(&str, &str)], more: MountAttrFlags) -> Result<OwnedFd, Errno> {
    let new = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        if value.is_empty() {
            fsconfig_set_flag(&new, *name)?;
        } else {
            fsconfig_set_string(&new, *name, *value)?;
        }
    }
    fsconfig_create(&new)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | more;
    fsmount(&new, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

fn new_proc() -> Result<OwnedFd, Errno> {
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    new("proc", &[("hidepid", "invisible")], attributes)
}

/// Makes the folders that a sandbox has whatever its image has. Its default user owns its home and workspace, also
/// if the image gives them to root; what the sandbox has changed of them since (`written`) stays.
pub(super) fn furnish(
    root: &OwnedFd,
    identity: Identity,
    written: Option<&OwnedFd>,
) -> Result<(), Errno> {
    for name in ["dev", "home", "proc", "root", "run"] {
        folder(root, "", name, 0o755)?;
    }
    folder(root, "", "tmp", 0o1777)?;
    for (parent, name) in [("home", "agbox"), ("", "workspace")] {
        let path = if parent.is_empty() { name.to_owned() } else { format!("{parent}/{name}") };
        let is_changed = match written {
            Some(written) => real_folder(written, &path)?.is_some(),
            None => false,
        };
        let is_new = folder(root, parent, name, 0o755)?;
        match identity {
            Identity::Shared => {}
            // What is new is where the image's own links lead.
            Identity::Apart if is_new => {
                give(&inside(root, parent)?, name, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Identity::Apart if is_changed => {}
            Identity::Apart => give_to_user(root, &path)?,
        }
    }
    Ok(())
}

/// Gives a folder of root's to the default user. What a link leads to is left alone, and so is what is in the folder.
fn give_to_user(root: &OwnedFd, path: &str) -> Result<(), Errno> {
    let Some(folder) = real_folder(root, path)? else { return Ok(()) };
    if fstat(&folder)?.st_uid != 0 {
        return Ok(());
    }
    give(&folder, "", AtFlags::EMPTY_PATH)
}

/// Gives what is at this name to the default user.
fn give(folder: &OwnedFd, name: &str, flags: AtFlags) -> Result<(), Errno> {
    let (user, group) = (Uid::from_raw(INSIDE_USER), Gid::from_raw(INSIDE_USER));
    chownat(folder, name, Some(user), Some(group), flags)
}

/// Opens a folder without following links. Returns `None` if it is missing.
fn real_folder(below: &OwnedFd, path: &str) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match openat2(below, path, flags, Mode::empty(), resolve) {
        Ok(folder) => Ok(Some(folder)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Makes a folder, unless the image has something of that name. Returns whether it is new.
fn folder(root: &OwnedFd, parent: &str, name: &str, mode: u32) -> Result<bool, Errno> {
    let parent = inside(root, parent)?;
    match mkdirat(&parent, name, Mode::from_raw_mode(mode)) {
        Err(Errno::EXIST) => return Ok(false),
        other => other?,
    }
    // mkdir is subject to the umask; chmod is not.
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fchmod(openat(&parent, name, flags, Mode::empty())?, Mode::from_raw_mode(mode))?;
    Ok(true)
}

/// Opens a folder of the image. Its links lead where they will lead when it is the root.
pub(super) fn inside(root: &OwnedFd, path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    let path = if path.is_empty() { "." } else { path };
    openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
}

/// Attaches a mount at a folder of the image.
fn put(mount: &OwnedFd, root: &OwnedFd, path: &str) -> Result<(), Errno> {
    let at = inside(root, path)?;
    move_mount(mount, "", &at, "", EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH)
}

/// Clones a mount of the stage, to be attached elsewhere.
fn clone_of(stage: &OwnedFd, path: &str, more: OpenTreeFlags) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | more;
    open_tree(stage.as_fd(), path, flags)
}

/// The devices are those of every slot; shared memory is the sandbox's own.
fn add_devices(stage: &OwnedFd, root: &OwnedFd) -> Result<(), Errno> {
    put(&clone_of(stage, "tree/dev", OpenTreeFlags::AT_RECURSIVE)?, root, "dev")?;
    let shared = new("tmpfs", &[("mode", "1777"), ("size", "50%")], MountAttrFlags::empty())?;
    put(&shared, root, "dev/shm")
}
