//! Paths of the machine that sandboxes are given: who asks for them, opening them with his rights,
//! and remembering that. The daemon only hands on; it cannot make anybody's rights up.

mod open;
mod peer;
mod record;

pub use peer::Door;

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    net::{RecvFlags, SendFlags},
    process::Pid,
};

use super::{Settings, Spawner};
use crate::{
    paths::{Attach, BringIn, Kind, MAX_PATHS, NoPath, Paths, Problem, With},
    plan::{Broken, INSIDE_USER, Identity, Step},
    sandbox::{BodySpec, HostPaths, SandboxAnswer, is_good_name},
    socket::PacketSocket,
    sys::{self, process::Fork},
    wire,
};
use open::{Outcome, Owned, What};
use record::{Grant, Person, Rights};

/// Processes that open paths at once: each may wait for a file system that does not answer.
const MAX_OPENING: usize = 32;

/// Mounts and sources of copies, open, with where they are to go.
#[derive(Debug, Default)]
pub(super) struct Brought {
    person: Option<Person>,
    pub(super) mounts: Vec<(Attach, OwnedFd)>,
    pub(super) copies: Vec<(BringIn, OwnedFd)>,
    /// What its root is made of, if that is a folder of the machine.
    pub(super) root: Option<OwnedFd>,
}

/// A process that opens paths, and what for.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) ticket: u64,
    /// Where it says what came of it before it ends.
    socket: PacketSocket,
    then: Then,
}

/// What is to be done with paths that are open.
#[derive(Debug)]
enum Then {
    Grant { sandbox: String, grant: Grant },
    Make { spec: Box<BodySpec>, files: Option<OwnedFd>, paths: Paths, person: Option<Person> },
    HandOver,
}

impl Opening {
    /// The sandbox that it is for.
    pub(super) fn sandbox(&self) -> Option<&str> {
        match &self.then {
            Then::Grant { sandbox, .. } => Some(sandbox),
            Then::Make { spec, .. } => Some(&spec.sandbox),
            Then::HandOver => None,
        }
    }
}

/// Opens the mount namespace that the server was started in, where paths are looked up. The spawner's
/// own does not have what is mounted later. An ordinary user cannot go back there.
pub(super) fn machine_mounts(settings: &Settings) -> Result<Option<OwnedFd>, Errno> {
    if settings.ids.is_none() {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    openat(CWD, "/proc/self/ns/mnt", flags, Mode::empty()).map(Some)
}

impl Spawner {
    /// Opens paths to see whether they can be had, and writes down that they may.
    pub(super) fn grant(
        &mut self,
        ticket: u64,
        sandbox: String,
        with: With,
        paths: Paths,
        connection: Option<OwnedFd>,
    ) {
        let at = Broken::at(Step::HostPath);
        if !is_good_name(&sandbox) || paths.count() > MAX_PATHS {
            return self.refuse_about_sandbox(ticket, at(Errno::INVAL));
        }
        match self.rights(with, connection) {
            Ok(rights) => {
                let owner = rights.person.as_ref().map(|person| person.user);
                let what = What::Trees { paths: paths.clone(), copies: true, owner };
                let grant = Grant { rights: rights.clone(), paths };
                self.open_paths(ticket, &rights, &what, Then::Grant { sandbox, grant });
            }
            Err(errno) => self.refuse_about_sandbox(ticket, at(errno)),
        }
    }

    /// Opens one path for who asks.
    pub(super) fn open_path(
        &mut self,
        ticket: u64,
        with: With,
        path: String,
        connection: Option<OwnedFd>,
    ) {
        match self.rights(with, connection) {
            Ok(rights) => self.open_paths(ticket, &rights, &What::One(path), Then::HandOver),
            Err(errno) => {
                self.refuse_about_sandbox(ticket, Broken::at(Step::HostPath)(errno));
            }
        }
    }

    /// Opens a place of images that a sandbox was granted.
    pub(super) fn open_granted(&mut self, ticket: u64, sandbox: &str, path: String) {
        match self.granted(sandbox) {
            Ok(Grant { rights, paths }) if paths.images.contains(&path) => {
                self.open_paths(ticket, &rights, &What::One(path), Then::HandOver);
            }
            Ok(_) | Err(Errno::NOENT) => {
                let no_path = NoPath { path, problem: Problem::NotAllowed };
                self.answer(ticket, Ok((SandboxAnswer::NoPath(no_path), Vec::new())));
            }
            Err(errno) => self.refuse_about_sandbox(ticket, Broken::at(Step::HostPath)(errno)),
        }
    }

    /// Makes a sandbox over its files, after the paths that it was granted are open.
    pub(super) fn make_with_paths(
        &mut self,
        ticket: u64,
        spec: Box<BodySpec>,
        files: Option<OwnedFd>,
    ) {
        match self.granted(&spec.sandbox) {
            Ok(Grant { rights, paths }) => {
                // Its images are here by now.
                let paths = Paths { images: Vec::new(), ..paths };
                // The sandbox has no users yet: owners are mapped when it has.
                let copies = spec.paths == HostPaths::New;
                let what = What::Trees { paths: paths.clone(), copies, owner: None };
                let person = rights.person.clone();
                let then = Then::Make { spec, files, paths, person };
                self.open_paths(ticket, &rights, &what, then);
            }
            Err(errno) => {
                let broken = Broken::at(Step::HostPath)(errno);
                self.finish_making(ticket, &spec.sandbox, Err(broken));
            }
        }
    }

    fn granted(&self, sandbox: &str) -> Result<Grant, Errno> {
        let sandboxes = self.sandboxes.as_ref().ok_or(Errno::NOSYS)?;
        if !is_good_name(sandbox) {
            return Err(Errno::INVAL);
        }
        Grant::read(&sandboxes.folder_of(sandbox)?)
    }

    /// Finds out whose rights count. Where the whole server is one user's, those are his.
    fn rights(&self, with: With, connection: Option<OwnedFd>) -> Result<Rights, Errno> {
        let sandboxes = self.sandboxes.as_ref().ok_or(Errno::NOSYS)?;
        let is_apart = self.identity() == Identity::Apart;
        match with {
            With::Peer if is_apart => {
                let door = sandboxes.door.ok_or(Errno::PERM)?;
                let person = door.caller(connection.ok_or(Errno::BADF)?)?;
                Ok(Rights { person: Some(person), beneath: None })
            }
            With::Peer => Ok(Rights { person: None, beneath: None }),
            With::Daemon { beneath } => {
                let own = rustix::process::geteuid().as_raw();
                let user = sandboxes.daemon.unwrap_or(own);
                let person = Person { user, group: user, groups: Vec::new() };
                Ok(Rights { person: is_apart.then_some(person), beneath: Some(beneath) })
            }
        }
    }

    fn open_paths(&mut self, ticket: u64, rights: &Rights, what: &What, then: Then) {
        let at = Broken::at(Step::HostPath);
        let Some(sandboxes) = &mut self.sandboxes else {
            return self.opened(ticket, &then, Err(at(Errno::NOSYS)));
        };
        if sandboxes.opening.len() >= MAX_OPENING {
            return self.opened(ticket, &then, Err(at(Errno::AGAIN)));
        }
        match fork_opener(sandboxes.machine.as_ref(), rights, what) {
            Ok((pid, socket)) => {
                sandboxes.opening.insert(pid, Opening { ticket, socket, then });
            }
            Err(errno) => self.opened(ticket, &then, Err(at(errno))),
        }
    }

    /// Says what came of the paths, and of what they were for.
    fn opened(
        &mut self,
        ticket: u64,
        then: &Then,
        answer: Result<(SandboxAnswer, Vec<OwnedFd>), Broken>,
    ) {
        match then {
            Then::Make { spec, .. } => self.finish_making(ticket, &spec.sandbox, answer),
            Then::Grant { .. } | Then::HandOver => self.answer(ticket, answer),
        }
    }

    /// Nobody wants the paths of a sandbox any more that is ended or removed.
    pub(super) fn forget_opening(&mut self, sandbox: &str) {
        let Some(sandboxes) = &mut self.sandboxes else { return };
        let is_for_it = |opening: &Opening| opening.sandbox() == Some(sandbox);
        let forgotten: Vec<Opening> = sandboxes
            .opening
            .extract_if(|_, opening| is_for_it(opening))
            .map(|(_, it)| it)
            .collect();
        for opening in forgotten {
            let broken = Broken::at(Step::HostPath)(Errno::CANCELED);
            self.opened(opening.ticket, &opening.then, Err(broken));
        }
    }

    /// Goes on with paths that are open, if that was what the process was for.
    pub(super) fn opener_ended(&mut self, pid: Pid) {
        let opening = self.sandboxes.as_mut().and_then(|sandboxes| sandboxes.opening.remove(&pid));
        let Some(Opening { ticket, socket, then }) = opening else { return };
        let (outcome, fds) = match heard(&socket) {
            Ok(heard) => heard,
            Err(errno) => {
                let broken = Broken::at(Step::HostPath)(errno);
                return self.opened(ticket, &then, Err(broken));
            }
        };
        let at = Broken::at(Step::HostPath);
        let answer = match (outcome, &then) {
            (Outcome::NoPath(no_path), _) => Ok((SandboxAnswer::NoPath(no_path), Vec::new())),
            (Outcome::One, Then::HandOver) => Ok((SandboxAnswer::Path, fds)),
            (Outcome::Trees { mounts, .. }, Then::Grant { sandbox, grant }) => {
                let missing = mounts.iter().enumerate().filter(|(_, kind)| kind.is_none());
                let missing = missing.map(|(place, _)| place).collect();
                let kept = self.keep_grant(sandbox, grant).map_err(at);
                kept.map(|()| (SandboxAnswer::Granted { missing }, Vec::new()))
            }
            (Outcome::Trees { mounts, copies }, Then::Make { spec, files, paths, person }) => {
                let brought = Brought::of(person.clone(), paths, &mounts, &copies, fds);
                self.make_sandbox(spec, files.as_ref(), brought)
            }
            (Outcome::One | Outcome::Trees { .. }, _) => Err(at(Errno::BADMSG)),
        };
        self.opened(ticket, &then, answer);
    }

    fn keep_grant(&self, sandbox: &str, grant: &Grant) -> Result<(), Errno> {
        let sandboxes = self.sandboxes.as_ref().ok_or(Errno::NOSYS)?;
        grant.write(&sandboxes.make_folder_of(sandbox)?)
    }
}

impl Brought {
    fn of(
        person: Option<Person>,
        paths: &Paths,
        mounts: &[Option<Kind>],
        copies: &[Kind],
        fds: Vec<OwnedFd>,
    ) -> Self {
        let mut fds = fds.into_iter();
        let there = paths.mounts.iter().zip(mounts).filter_map(|(it, kind)| Some((it, (*kind)?)));
        let attached = there.map(|(it, kind)| Attach { target: it.target.clone(), kind });
        let mounts = attached.zip(fds.by_ref()).collect();
        let bring_in = paths.copies.iter().zip(copies).map(|(it, kind)| BringIn {
            target: it.target.clone(),
            kind: *kind,
            exclude: it.exclude.clone(),
        });
        let copies = bring_in.zip(fds.by_ref()).collect();
        Self { person, mounts, copies, root: paths.root.as_ref().and_then(|_| fds.next()) }
    }

    /// Has what belongs to who asked belong to the user of a sandbox whose users begin with this one.
    pub(super) fn map_owner(&self, first: u32) -> Result<(), Errno> {
        if self.mounts.is_empty() && self.copies.is_empty() && self.root.is_none() {
            return Ok(());
        }
        // What was granted by a server of one user's says nothing here.
        let person = self.person.as_ref().ok_or(Errno::PERM)?;
        if let Some(root) = &self.root {
            let (users, _child) = open::users_of(&Owned::as_root(person, first))?;
            sys::mount::map_users_recursively(root.as_fd(), users.as_fd())?;
        }
        let (users, _child) = open::users_of(&Owned::by(person, first + INSIDE_USER))?;
        let trees = self.mounts.iter().map(|(_, tree)| tree);
        for tree in trees.chain(self.copies.iter().map(|(_, tree)| tree)) {
            sys::mount::map_users_recursively(tree.as_fd(), users.as_fd())?;
        }
        Ok(())
    }
}

fn fork_opener(
    machine: Option<&OwnedFd>,
    rights: &Rights,
    what: &What,
) -> Result<(Pid, PacketSocket), Errno> {
    let (ours, theirs) = PacketSocket::pair()?;
    match sys::process::fork(0)? {
        Fork::Child => {
            let code = open_and_tell(machine, &theirs, rights, what);
            sys::process::exit_now(code.map_or_else(Errno::raw_os_error, |()| 0))
        }
        Fork::Parent { child, pidfd: _ } => Ok((child, ours)),
    }
}

/// In the child: lets go of everything of the spawner's, opens, and tells.
fn open_and_tell(
    machine: Option<&OwnedFd>,
    socket: &PacketSocket,
    rights: &Rights,
    what: &What,
) -> Result<(), Errno> {
    let kept: Vec<_> = std::iter::once(socket.as_fd()).chain(machine.map(|m| m.as_fd())).collect();
    sys::process::place_all(&kept, 3)?;
    let socket = PacketSocket::from_fd(sys::process::inherited(3)?);
    let machine = machine.map(|_| sys::process::inherited(4)).transpose()?;
    let (outcome, fds) = open::work(machine.as_ref(), rights, what);
    let packet = wire::encode(&outcome).or(Err(Errno::BADMSG))?;
    let fds: Vec<_> = fds.iter().map(OwnedFd::as_fd).collect();
    socket.send(&packet, &fds, SendFlags::DONTWAIT)
}

fn heard(socket: &PacketSocket) -> Result<(Outcome, Vec<OwnedFd>), Errno> {
    // One that was ended because it took too long has said nothing.
    let packet = socket.receive(RecvFlags::DONTWAIT)?.ok_or(Errno::TIMEDOUT)?;
    let outcome = wire::decode(&packet.bytes).or(Err(Errno::BADMSG))?;
    Ok((outcome, packet.fds))
}
