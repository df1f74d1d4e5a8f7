//! The file system of a slot: the image's root read-only, one sized writable layer, `/proc` with
//! the host's matters hidden, terminals of its own.

use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{CWD, Dir, FileType, Gid, Mode, OFlags, Uid},
    io::Errno,
    mount::{MountFlags, MoveMountFlags, UnmountFlags, mount, mount_bind, move_mount, unmount},
    process::{chdir, fchdir, pivot_root},
};

use crate::{
    plan::{Broken, Disk, INSIDE_USER, Identity, Launch, Plan, Step},
    procfs::{self, SYNTHETIC_FOLDER},
    sandbox::{RootPlan, WRITABLE},
    sys,
};

/// Puts the root together and leaves the old one for good.
pub(super) fn build(plan: &Plan, tree: &OwnedFd) -> Result<(), Broken> {
    attach(tree).map_err(Broken::at(Step::Root))?;
    add_writable_layer(plan.disk, plan.rights.identity).map_err(Broken::at(Step::Writable))?;
    if matches!(plan.launch, Launch::Zygote { .. }) {
        // The kernel lets slots mount theirs only where a whole one is in sight.
        mount_proc(MountFlags::empty(), None).map_err(Broken::at(Step::Proc))?;
    } else {
        add_proc().map_err(Broken::at(Step::Proc))?;
    }
    add_terminals(plan.namespace.terminals).map_err(Broken::at(Step::Devices))?;
    // Last of the writable layer: its own `/tmp` covers the directory it is mounted on.
    mount_bind("tmp/tmp", "tmp").map_err(Broken::at(Step::Writable))?;
    leave_old_root().map_err(Broken::at(Step::Pivot))
}

/// Puts the read-only root of a sandbox together: as that of a slot, but what is written stays. `files` has
/// a folder for each of [`WRITABLE`].
pub(super) fn build_sandbox(
    plan: &RootPlan,
    tree: &OwnedFd,
    files: &OwnedFd,
) -> Result<(), Broken> {
    attach(tree).map_err(Broken::at(Step::Root))?;
    fill_sandbox(plan, files)?;
    leave_old_root().map_err(Broken::at(Step::Pivot))
}

/// Fills the root of a sandbox, which is the current directory.
pub(super) fn fill_sandbox(plan: &RootPlan, files: &OwnedFd) -> Result<(), Broken> {
    let writable = Broken::at(Step::Writable);
    move_mount(files.as_fd(), "", CWD, "tmp", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(&writable)?;
    for name in WRITABLE {
        mount_bind(format!("tmp/{name}"), name).map_err(&writable)?;
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", "dev/shm", "tmpfs", flags, c"size=50%,mode=1777").map_err(&writable)?;
    add_proc().map_err(Broken::at(Step::Proc))?;
    add_terminals(plan.namespace.terminals).map_err(Broken::at(Step::Devices))?;
    // Last, because it covers what the others are bound from.
    mount_bind("tmp/tmp", "tmp").map_err(&writable)
}

/// Attaches the image's tree and makes it the current directory. Every path below is relative
/// to it.
fn attach(tree: &OwnedFd) -> Result<(), Errno> {
    move_mount(tree.as_fd(), "", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    fchdir(tree)
}

/// One file system of a fixed size backs everything that user code can write to.
fn add_writable_layer(disk: Disk, identity: Identity) -> Result<(), Errno> {
    let options = format!("size={},nr_inodes={},mode=0755", disk.bytes, disk.inodes);
    let options = CString::new(options).or(Err(Errno::INVAL))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", "tmp", "tmpfs", flags, options.as_c_str())?;
    for (name, mode) in [("tmp", 0o1777), ("shm", 0o1777), ("home", 0o755), ("workspace", 0o755)] {
        let path = format!("tmp/{name}");
        rustix::fs::mkdir(path.as_str(), Mode::from_raw_mode(mode))?;
        // mkdir is subject to the umask; chmod is not.
        rustix::fs::chmod(path.as_str(), Mode::from_raw_mode(mode))?;
    }
    if identity == Identity::Apart {
        let (user, group) = (Uid::from_raw(INSIDE_USER), Gid::from_raw(INSIDE_USER));
        for path in ["tmp/home", "tmp/workspace"] {
            rustix::fs::chown(path, Some(user), Some(group))?;
        }
    }
    mount_bind("tmp/home", "home/agbox")?;
    mount_bind("tmp/workspace", "workspace")?;
    mount_bind("tmp/shm", "dev/shm")
}

/// Mounts `/proc` of the new pid namespace, read-only, and covers what tells of the host.
fn add_proc() -> Result<(), Errno> {
    mount_proc(MountFlags::RDONLY, Some(c"hidepid=invisible"))?;
    make_folder("tmp/nothing.d", 0o555)?;
    let nothing = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    drop(rustix::fs::open("tmp/nothing", nothing, Mode::from_raw_mode(0o444))?);
    cover_proc("tmp/nothing", "tmp/nothing.d", SYNTHETIC_FOLDER)
}

/// Covers what `/proc` is not to show by an empty file or folder, and puts made-up files in the place of some entries.
pub(super) fn cover_proc(file: &str, folder: &str, synthetic: &str) -> Result<(), Errno> {
    // Root inside could else write there.
    for source in [file, folder] {
        mount_bind(source, source)?;
        make_read_only(source)?;
    }
    for (name, is_folder) in hidden_in_proc()? {
        let source = if is_folder { folder } else { file };
        match mount_bind(source, format!("proc/{name}")) {
            // Which entries there are depends on how the kernel was built.
            Err(Errno::NOENT | Errno::NOTDIR) | Ok(()) => {}
            Err(other) => return Err(other),
        }
    }
    for name in procfs::SYNTHETIC {
        mount_bind(format!("{synthetic}/{name}"), format!("proc/{name}"))?;
    }
    Ok(())
}

/// Names what is to be hidden in the folder `proc`, and whether each is a folder.
fn hidden_in_proc() -> Result<Vec<(String, bool)>, Errno> {
    let below = procfs::HIDDEN_BELOW.map(|name| (name.to_owned(), name.ends_with('/')));
    let mut hidden = Vec::from(below);
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    for entry in Dir::read_from(rustix::fs::open("proc", flags, Mode::empty())?)? {
        let entry = entry?;
        let name = entry.file_name().to_str().or(Err(Errno::INVAL))?;
        let is_process = name.starts_with(|first: char| first.is_ascii_digit());
        let is_shown = is_process || matches!(name, "." | "..") || procfs::VISIBLE.contains(&name);
        if !is_shown {
            hidden.push((name.to_owned(), entry.file_type() == FileType::Directory));
        }
    }
    Ok(hidden)
}

/// A mount that is bound elsewhere is read-only there too.
pub(super) fn make_read_only(path: &str) -> Result<(), Errno> {
    let path = CString::new(path).or(Err(Errno::INVAL))?;
    sys::mount::set_attributes_recursively(CWD.as_fd(), &path, sys::mount::RDONLY)
}

fn mount_proc(more: MountFlags, options: Option<&CStr>) -> Result<(), Errno> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | more;
    mount("proc", "proc", "proc", flags, options)
}

/// A sandbox that is resumed has it already.
fn make_folder(path: &str, mode: u32) -> Result<(), Errno> {
    match rustix::fs::mkdir(path, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(other) => Err(other),
    }
}

/// Mounts an instance of the file system of terminals, which can have this many pairs.
pub(super) fn add_terminals(most: u32) -> Result<(), Errno> {
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let options = format!("newinstance,ptmxmode=0666,mode=0620,max={most}");
    let options = CString::new(options).or(Err(Errno::INVAL))?;
    mount("devpts", "dev/pts", "devpts", flags, options.as_c_str())
}

pub(super) fn leave_old_root() -> Result<(), Errno> {
    pivot_root(".", ".")?;
    // The old root is now mounted over the new one.
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")
}
