//! In a process of its own: takes on the rights of who asks, and opens paths with them.
//!
//! Opening may wait for a slow or hostile file system, so the spawner's loop does not. Between
//! looking and having there is nothing that could be exchanged: what was opened is what is cloned.

use std::{
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{
        Access as Asked, AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, accessat,
        fstat, openat, openat2,
    },
    io::Errno,
    mount::{OpenTreeFlags, open_tree},
    process::{DumpableBehavior, Pid, WaitOptions, set_dumpable_behavior, waitpid},
    thread::{
        LinkNameSpaceType, move_into_link_name_space, set_thread_groups, set_thread_res_gid,
        set_thread_res_uid,
    },
};
use serde::{Deserialize, Serialize};

use super::record::{Person, Rights};
use crate::{
    identity::{SANDBOX_USERS, map_users_and_groups},
    paths::{Access, HostCopy, HostMount, Kind, Need, NoPath, Paths, Problem},
    sys::{self, process::Fork},
};

/// What is to be opened.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// Every path as a mount of its own that is attached nowhere, that of the root last.
    Trees { paths: Paths, copies: bool, owner: Option<u32> },
    /// A file or folder, for reading.
    One(String),
}

/// What came of it. Trees come along in the order of the kinds that are there, or the one path does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Outcome {
    Trees { mounts: Vec<Option<Kind>>, copies: Vec<Kind> },
    One,
    NoPath(NoPath),
}

/// Longer than any file system takes that works.
const AT_MOST_SECONDS: u32 = 20;

/// Opens what is asked for. `machine` is the mount namespace in which paths are looked up, as who asks
/// sees them; without it they are looked up in the spawner's own.
pub(super) fn work(
    machine: Option<&OwnedFd>,
    rights: &Rights,
    what: &What,
) -> (Outcome, Vec<OwnedFd>) {
    sys::peer::end_after(AT_MOST_SECONDS);
    let at = |path: &str| {
        let path = path.to_owned();
        move |problem: Problem| NoPath { path, problem }
    };
    let opened =
        prepare(machine).map_err(|errno| at("/")(errno.into())).and_then(|()| match what {
            What::Trees { paths, copies, owner } => open_trees(rights, paths, *copies, *owner),
            What::One(path) => {
                let one = as_person(rights, || open_one(rights, path)).map_err(at(path))?;
                Ok((Outcome::One, vec![one]))
            }
        });
    opened.unwrap_or_else(|no_path| (Outcome::NoPath(no_path), Vec::new()))
}

fn prepare(machine: Option<&OwnedFd>) -> Result<(), Errno> {
    // Whoever has the same user for a moment must not get at what is in this process.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let Some(machine) = machine else { return Ok(()) };
    move_into_link_name_space(machine.as_fd(), Some(LinkNameSpaceType::Mount))
}

fn open_trees(
    rights: &Rights,
    paths: &Paths,
    copies: bool,
    owner: Option<u32>,
) -> Result<(Outcome, Vec<OwnedFd>), NoPath> {
    let in_general = |errno: Errno| NoPath { path: "/".to_owned(), problem: errno.into() };
    let users = match (&rights.person, owner) {
        (Some(person), Some(owner)) => {
            let (users, child) = users_of(&Owned::by(person, owner)).map_err(in_general)?;
            waitpid(Some(child), WaitOptions::empty()).map_err(in_general)?;
            Some(users)
        }
        _ => None,
    };
    let users = users.as_ref().map(AsFd::as_fd);
    let mut trees = Vec::new();
    let mut kinds = Vec::new();
    for mount in &paths.mounts {
        let at = |problem| NoPath { path: mount.source.clone(), problem };
        match open_mount(rights, mount, users) {
            Ok((kind, tree)) => {
                kinds.push(Some(kind));
                trees.push(tree);
            }
            Err(Problem::System(libc::ENOENT | libc::ENOTDIR)) if mount.need == Need::Optional => {
                kinds.push(None);
            }
            Err(problem) => return Err(at(problem)),
        }
    }
    for path in &paths.images {
        let opened = as_person(rights, || open_one(rights, path));
        opened.map_err(|problem| NoPath { path: path.clone(), problem })?;
    }
    let mut of_copies = Vec::new();
    for copy in paths.copies.iter().filter(|_| copies) {
        let at = |problem| NoPath { path: copy.source.clone(), problem };
        let (kind, tree) = open_copy(rights, copy, users).map_err(at)?;
        of_copies.push(kind);
        trees.push(tree);
    }
    if let Some(path) = &paths.root {
        let at = |problem| NoPath { path: path.clone(), problem };
        trees.push(open_root(rights, path, users).map_err(at)?);
    }
    Ok((Outcome::Trees { mounts: kinds, copies: of_copies }, trees))
}

fn open_mount(
    rights: &Rights,
    mount: &HostMount,
    users: Option<BorrowedFd<'_>>,
) -> Result<(Kind, OwnedFd), Problem> {
    let mut asked = Asked::READ_OK;
    asked.set(Asked::WRITE_OK, mount.access == Access::Writable);
    let (kind, source) = as_person(rights, || {
        let (kind, source) = find(rights, &mount.source)?;
        let asked = match kind {
            FileType::Directory => asked | Asked::EXEC_OK,
            // Whoever can write to a socket can connect to it.
            FileType::Socket => Asked::WRITE_OK,
            _ => asked,
        };
        check_access(&source, asked)?;
        Ok((kind, source))
    })?;
    let attributes = match mount.access {
        Access::ReadOnly => sys::mount::RDONLY,
        Access::Writable => 0,
    };
    let kind = if kind == FileType::Directory { Kind::Folder } else { Kind::File };
    Ok((kind, clone(&source, attributes, users)?))
}

fn open_copy(
    rights: &Rights,
    copy: &HostCopy,
    users: Option<BorrowedFd<'_>>,
) -> Result<(Kind, OwnedFd), Problem> {
    let (kind, source) = as_person(rights, || {
        let (kind, source) = find(rights, &copy.source)?;
        let (kind, asked) = match kind {
            FileType::Directory => (Kind::Folder, Asked::READ_OK | Asked::EXEC_OK),
            FileType::RegularFile => (Kind::File, Asked::READ_OK),
            _ => return Err(Problem::NotCopied),
        };
        check_access(&source, asked)?;
        Ok((kind, source))
    })?;
    Ok((kind, clone(&source, sys::mount::RDONLY | sys::mount::NOEXEC, users)?))
}

/// Opens the folder that a root is made of.
fn open_root(
    rights: &Rights,
    path: &str,
    users: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd, Problem> {
    let source = as_person(rights, || {
        let (kind, source) = find(rights, path)?;
        if kind != FileType::Directory {
            return Err(Problem::NoFolder);
        }
        check_access(&source, Asked::READ_OK | Asked::EXEC_OK)?;
        Ok(source)
    })?;
    clone(&source, sys::mount::RDONLY, users)
}

/// Opens a file or folder for reading.
fn open_one(rights: &Rights, path: &str) -> Result<OwnedFd, Problem> {
    let (kind, found) = find(rights, path)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match kind {
        FileType::Directory => Ok(openat(&found, ".", flags | OFlags::DIRECTORY, Mode::empty())?),
        FileType::RegularFile => Ok(openat(CWD, again(&found), flags, Mode::empty())?),
        _ => Err(Problem::Kind),
    }
}

/// Finds what a path names. Folders on the way may be links, which lead where they lead who asks;
/// the last part may not.
fn find(rights: &Rights, path: &str) -> Result<(FileType, OwnedFd), Problem> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = match &rights.beneath {
        None => openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)?,
        Some(folders) => {
            let path = Path::new(path);
            let mut beneath =
                folders.iter().filter_map(|it| Some((it, path.strip_prefix(it).ok()?)));
            let (folder, rest) = beneath.next().ok_or(Problem::NotAllowed)?;
            let folder = openat(
                CWD,
                folder.as_str(),
                OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            let rest = if rest.as_os_str().is_empty() { Path::new(".") } else { rest };
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
            openat2(&folder, rest, flags, Mode::empty(), resolve).map_err(|errno| match errno {
                Errno::XDEV => Problem::NotAllowed,
                other => other.into(),
            })?
        }
    };
    match FileType::from_raw_mode(fstat(&found)?.st_mode) {
        FileType::Symlink => Err(Problem::Link),
        kind @ (FileType::Directory | FileType::RegularFile | FileType::Socket) => {
            Ok((kind, found))
        }
        _ => Err(Problem::Kind),
    }
}

/// A path names what can be seen; whether it can be used is asked here.
fn check_access(found: &OwnedFd, asked: Asked) -> Result<(), Errno> {
    accessat(CWD, again(found), asked, AtFlags::EACCESS)
}

fn again(found: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", found.as_raw_fd())
}

/// Makes a mount of its own of what was opened, and of what is mounted below it. Nothing that is
/// mounted later shows in it, its programs give no rights, its devices are none, and who asked owns
/// in it what he owns, as the sandbox's user; nobody else owns anything.
fn clone(
    source: &OwnedFd,
    attributes: u64,
    users: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd, Problem> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(source, "", flags)?;
    let attributes = attributes | sys::mount::NOSUID | sys::mount::NODEV;
    sys::mount::make_private(tree.as_fd(), attributes)?;
    if let Some(users) = users {
        sys::mount::map_users_recursively(tree.as_fd(), users).map_err(|errno| match errno {
            Errno::INVAL | Errno::PERM | Errno::OPNOTSUPP => Problem::Unmapped,
            other => other.into(),
        })?;
    }
    Ok(tree)
}

/// Does something with the rights of a person and no others, and takes its own back.
fn as_person<T>(rights: &Rights, act: impl FnOnce() -> Result<T, Problem>) -> Result<T, Problem> {
    let Some(Person { user, group, groups }) = &rights.person else { return act() };
    let (user, group) = (Uid::from_raw(*user), Gid::from_raw(*group));
    let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
    set_thread_groups(&groups)?;
    set_thread_res_gid(Gid::ROOT, group, Gid::ROOT)?;
    // With its effective user this process loses every capability until it is root again.
    set_thread_res_uid(Uid::ROOT, user, Uid::ROOT)?;
    let acted = act();
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
    set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
    set_thread_groups(&[])?;
    acted
}

/// Who owns files that are shown to a sandbox: lines of the maps of a user namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    users: String,
    groups: String,
}

impl Owned {
    /// What a person owns is another's, and nobody else owns anything.
    pub(super) fn by(person: &Person, owner: u32) -> Self {
        let line = |number: u32| format!("{number} {owner} 1\n");
        Self { users: line(person.user), groups: line(person.group) }
    }

    /// What a person owns is root's in a sandbox whose users begin with this one. Root may have
    /// everything, so that with him everybody owns there what he owns.
    pub(super) fn as_root(person: &Person, first: u32) -> Self {
        if person.user != 0 {
            return Self::by(person, first);
        }
        let line = format!("0 {first} {SANDBOX_USERS}\n");
        Self { users: line.clone(), groups: line }
    }
}

/// Makes a user namespace that only says who owns what. The process that it is made with ends by
/// itself, and is to be reaped.
pub(super) fn users_of(owned: &Owned) -> Result<(OwnedFd, Pid), Errno> {
    // Its other end is closed when this returns.
    let (wait, _go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match sys::process::fork(sys::process::USER_NAMESPACE)? {
        Fork::Child => {
            // It is only there to be looked at.
            if let Ok(wait) = sys::process::keep_only(wait.as_fd()) {
                let _ = rustix::io::read(&wait, &mut [0; 1]);
            }
            sys::process::exit_now(0)
        }
        Fork::Parent { child, pidfd: _ } => {
            let path = format!("/proc/{}/ns/user", child.as_raw_nonzero());
            map_users_and_groups(child, &owned.users, &owned.groups)?;
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            Ok((openat(CWD, path, flags, Mode::empty())?, child))
        }
    }
}
