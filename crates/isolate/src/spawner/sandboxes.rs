//! Long-lived sandboxes, as the spawner knows them. They outlive it: what it needs to know of them
//! is in their folders and in the kernel, and a new spawner finds it there.

mod contained;
mod files;
pub(super) mod furniture;
mod identity;
mod make;
mod under_way;
mod waiting;

use std::{
    collections::{BTreeSet, HashMap},
    os::fd::OwnedFd,
    path::PathBuf,
};

use rustix::{
    event::epoll::{self, EventFlags},
    io::Errno,
    process::{Pid, Signal, pidfd_send_signal},
};

use super::{About, Door, Spawner, SpawnerError, doing, ids::Blocks, paths::Opening};
use crate::{
    cgroup::{Cgroups, Places},
    failpoint,
    plan::{Broken, Step},
    sandbox::{SandboxAnswer, SandboxOrder, is_good_name},
    supervisor::wire::is_good_id,
    wire::Notice,
};
use files::Folder;
use identity::{Identified, Marks};
use make::{Begin, Body};
use under_way::{UnderWay, What};

/// What the spawner needs to know of sandboxes at its start.
#[derive(Clone, Debug)]
pub struct SandboxSettings {
    /// The folder in which each sandbox has its own.
    pub folder: PathBuf,
    /// The folder in which each layer of images has its own.
    pub layers: PathBuf,
    /// The user who talks to supervisors. `None`: the one user who runs the server.
    pub daemon: Option<u32>,
    /// Where callers of this machine connect. Without it nobody's rights but the daemon's count.
    pub door: Option<Door>,
    /// The socket of an engine of containers. The daemon may talk to that one, and has no other way to.
    pub engine: Option<PathBuf>,
}

/// Every sandbox that has a supervisor.
#[derive(Debug)]
pub(super) struct Sandboxes {
    folder: Folder,
    layers: PathBuf,
    pub(super) daemon: Option<u32>,
    /// Where new ones get their control groups.
    /// Whether no other server was here since the machine was started.
    is_first_of_boot: bool,
    cgroups: Option<Cgroups>,
    blocks: Blocks,
    filter: Vec<u8>,
    living: HashMap<String, Living>,
    /// Those of the living that wait for their sandbox.
    waiting: HashMap<String, Body>,
    /// Names of the living, by the number that their events have.
    numbers: HashMap<u64, String>,
    next_number: u64,
    /// What takes longer than a turn of the loop, and the orders that wait for it.
    under_way: HashMap<String, UnderWay>,
    /// Processes that remove folders, and whose.
    workers: HashMap<Pid, String>,
    /// Processes that open paths of the machine.
    pub(super) opening: HashMap<Pid, Opening>,
    /// Where these paths are looked up, if not in the spawner's own mounts.
    pub(super) machine: Option<OwnedFd>,
    pub(super) door: Option<Door>,
    engine: Option<PathBuf>,
}

/// A sandbox whose supervisor lives, or is about to be cleared away.
#[derive(Debug)]
struct Living {
    pidfd: OwnedFd,
    places: Option<Places>,
    /// The first of its users. `None`: all sandboxes share one.
    block: Option<u32>,
}

/// What becomes of a sandbox whose processes are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Keep,
    Remove,
}

impl Sandboxes {
    /// Opens the folder of sandboxes and finds those that live.
    pub(super) fn open(
        settings: &SandboxSettings,
        cgroups: Option<&Cgroups>,
        machine: Option<OwnedFd>,
    ) -> Result<Self, SpawnerError> {
        let folder = Folder::open(&settings.folder, settings.daemon)
            .map_err(doing("open the sandboxes' folder"))?;
        let name = folder.lasting_name().map_err(doing("name the sandboxes' cgroups"))?;
        let cgroups = cgroups.map(|cgroups| cgroups.beside(&name)).transpose();
        let is_first = identity::is_first_of_boot(&folder).map_err(doing("note the boot"))?;
        Ok(Self {
            folder,
            is_first_of_boot: is_first,
            layers: settings.layers.clone(),
            daemon: settings.daemon,
            cgroups: cgroups.map_err(doing("make the sandboxes' cgroups"))?,
            blocks: Blocks::default(),
            filter: crate::seccomp::for_supervisor(),
            living: HashMap::new(),
            waiting: HashMap::new(),
            numbers: HashMap::new(),
            next_number: 0,
            under_way: HashMap::new(),
            workers: HashMap::new(),
            opening: HashMap::new(),
            machine,
            door: settings.door,
            engine: settings.engine.clone(),
        })
    }

    pub(super) fn folder_of(&self, sandbox: &str) -> Result<OwnedFd, Errno> {
        self.folder.sandbox(sandbox)
    }

    /// Opens the folder of a sandbox, which is made if it is not there.
    pub(super) fn make_folder_of(&self, sandbox: &str) -> Result<OwnedFd, Errno> {
        self.folder.begin(sandbox)
    }

    /// Removes the control groups of a sandbox without processes. Where none are known, a server that was killed may
    /// have left some in the group of any tenant.
    fn remove_groups(&self, name: &str, mut known: Vec<Places>) -> Result<(), Errno> {
        if known.is_empty() {
            known.extend(self.cgroups.iter().flat_map(Cgroups::places_of_all));
        }
        known.iter().try_for_each(|places| places.remove(name))
    }

    fn names(&self) -> Vec<String> {
        let mut names: BTreeSet<String> = self.folder.names().into_iter().collect();
        let groups = self.cgroups.iter().flat_map(Cgroups::places_of_all);
        names.extend(groups.flat_map(|places| places.names()));
        let is_sandbox = |name: &String| is_good_name(name) && !self.waiting.contains_key(name);
        names.into_iter().filter(is_sandbox).collect()
    }
}

impl Spawner {
    /// Finds every sandbox that lives: its users are taken, and its end is to be seen.
    pub(super) fn adopt_sandboxes(&mut self) -> Result<(), SpawnerError> {
        let waited = self.clear_waiting().map_err(doing("clear away what waited for sandboxes"))?;
        for name in &waited {
            self.clear_after_crash(name);
        }
        let Some(sandboxes) = &self.sandboxes else { return Ok(()) };
        for name in sandboxes.names() {
            let Some(sandboxes) = &mut self.sandboxes else { return Ok(()) };
            let Identified::Alive { pidfd, marks, block } =
                identity::find(&sandboxes.folder, &name)
            else {
                continue;
            };
            if let Some(block) = block {
                sandboxes.blocks.take_this(block);
            }
            self.add_sandbox(&name, pidfd, marks.places, block)?;
        }
        Ok(())
    }

    fn add_sandbox(
        &mut self,
        name: &str,
        pidfd: OwnedFd,
        places: Option<Places>,
        block: Option<u32>,
    ) -> Result<(), SpawnerError> {
        let Some(sandboxes) = &mut self.sandboxes else { return Ok(()) };
        sandboxes.next_number += 1;
        let number = sandboxes.next_number;
        epoll::add(&self.events, &pidfd, About::Sandbox(number).data(), EventFlags::IN)
            .map_err(doing("watch a sandbox"))?;
        sandboxes.numbers.insert(number, name.to_owned());
        sandboxes.living.insert(name.to_owned(), Living { pidfd, places, block });
        Ok(())
    }

    pub(super) fn obey_about_sandbox(
        &mut self,
        ticket: u64,
        order: SandboxOrder,
        fds: Vec<OwnedFd>,
    ) {
        let Some(order) = self.let_wait(ticket, order) else { return };
        let connection = fds.into_iter().next();
        let at_once = match order {
            SandboxOrder::Make(spec) => return self.begin_making(ticket, spec),
            SandboxOrder::Prepare { sandbox, tenant, max_processes } => {
                let begin = Begin { name: &sandbox, tenant, max_processes, beside: None };
                return self.prepare_body(ticket, begin);
            }
            SandboxOrder::PrepareWhole(spec) => return self.prepare_whole(ticket, spec),
            SandboxOrder::Grant { sandbox, with, paths } => {
                return self.grant(ticket, sandbox, with, paths, connection);
            }
            SandboxOrder::OpenGranted { sandbox, path } => {
                return self.open_granted(ticket, &sandbox, path);
            }
            SandboxOrder::OpenPath { with, path } => {
                return self.open_path(ticket, with, path, connection);
            }
            SandboxOrder::Contain(spec) => self.contain(&spec, connection),
            SandboxOrder::ConnectEngine => self.connect_engine(),
            SandboxOrder::Open { sandbox } => self.open_sandbox(&sandbox),
            SandboxOrder::End { sandbox } => return self.end_sandbox(&sandbox, ticket, Then::Keep),
            SandboxOrder::Remove { sandbox } => {
                return self.end_sandbox(&sandbox, ticket, Then::Remove);
            }
            SandboxOrder::Clear { sandbox, exec } => self.clear_output(&sandbox, &exec),
            SandboxOrder::List => {
                let sandboxes = self.sandboxes.as_ref().map(Sandboxes::names).unwrap_or_default();
                Ok((SandboxAnswer::List { sandboxes }, Vec::new()))
            }
        };
        self.answer(ticket, at_once);
    }

    pub(super) fn answer(
        &mut self,
        ticket: u64,
        answer: Result<(SandboxAnswer, Vec<OwnedFd>), Broken>,
    ) {
        match answer {
            Ok((answer, fds)) => self.post(&Notice::Sandbox { ticket, answer }, fds),
            Err(broken) => self.refuse_about_sandbox(ticket, broken),
        }
    }

    fn answer_about_sandbox(&mut self, ticket: u64, answer: SandboxAnswer) {
        self.post(&Notice::Sandbox { ticket, answer }, Vec::new());
    }

    pub(super) fn refuse_about_sandbox(&mut self, ticket: u64, broken: Broken) {
        self.answer_about_sandbox(ticket, SandboxAnswer::Failed { broken });
    }

    fn open_sandbox(&mut self, name: &str) -> Result<(SandboxAnswer, Vec<OwnedFd>), Broken> {
        let at = Broken::at(Step::Plan);
        let sandboxes = self.sandboxes.as_ref().ok_or_else(|| at(Errno::NOSYS))?;
        // What waits has nothing of a sandbox yet.
        let living = sandboxes.living.get(name).filter(|_| !sandboxes.waiting.contains_key(name));
        let Some(living) = living else {
            let is_first = sandboxes.is_first_of_boot;
            let rebooted = is_good_name(name)
                && identity::is_of_another_boot(&sandboxes.folder, name, is_first);
            return Ok((SandboxAnswer::NoBody { rebooted }, Vec::new()));
        };
        let files = match &living.places {
            Some(places) => places.open(name).and_then(|group| group.files()).map_err(at)?,
            None => Vec::new(),
        };
        let (cgroup, fds) = files.into_iter().unzip();
        Ok((SandboxAnswer::Body { cgroup }, fds))
    }

    fn clear_output(
        &self,
        name: &str,
        exec: &str,
    ) -> Result<(SandboxAnswer, Vec<OwnedFd>), Broken> {
        let at = Broken::at(Step::Plan);
        let sandboxes = self.sandboxes.as_ref().ok_or_else(|| at(Errno::NOSYS))?;
        if !is_good_name(name) || !is_good_id(exec) {
            return Err(at(Errno::INVAL));
        }
        sandboxes.folder.remove_output(name, exec).map_err(at)?;
        Ok((SandboxAnswer::Done, Vec::new()))
    }

    /// Ends every process of a sandbox. What comes then is done when they are gone.
    fn end_sandbox(&mut self, name: &str, ticket: u64, then: Then) {
        let Some(sandboxes) = self.sandboxes.as_mut().filter(|_| is_good_name(name)) else {
            let broken = Broken { step: Step::Plan, errno: libc::EINVAL };
            return self.refuse_about_sandbox(ticket, broken);
        };
        sandboxes.begin(name, ticket, What::Ending(then));
        match sandboxes.living.get(name) {
            Some(living) => {
                kill(name, living);
                failpoint::pass("d.killed");
            }
            None => self.clear_sandbox(name, None, then),
        }
    }

    /// The supervisor has ended, and with it every process of the sandbox.
    pub(super) fn sandbox_ended(&mut self, number: u64) {
        let Some(sandboxes) = &mut self.sandboxes else { return };
        let Some(name) = sandboxes.numbers.remove(&number) else { return };
        let Some(living) = sandboxes.living.remove(&name) else { return };
        if let Some(block) = living.block {
            sandboxes.blocks.give_back(block);
        }
        let waited = sandboxes.waiting.remove(&name).is_some();
        if let Some(places) = living.places.as_ref().filter(|_| waited) {
            // If this fails, the next server does it.
            let _ = places.remove(&name);
        }
        match sandboxes.under_way.get(&name).map(|under_way| &under_way.what) {
            Some(What::Ending(then)) => {
                let then = *then;
                self.clear_sandbox(&name, living.places.as_ref(), then);
            }
            Some(What::Failing(broken)) => {
                let broken = *broken;
                // What is noted of it is nobody's any more.
                let _ = sandboxes.folder.forget_waiting(&name);
                self.settle(&name, SandboxAnswer::Failed { broken });
            }
            None if waited => self.clear_files(&name),
            // Without an order it is cleared away when one comes; its groups are empty until then.
            Some(What::Preparing(_) | What::Clearing | What::Making(_) | What::Removing) | None => {
            }
        }
    }

    /// Removes the control groups of a sandbox without processes, and its files if that is wanted.
    fn clear_sandbox(&mut self, name: &str, places: Option<&Places>, then: Then) {
        let Some(sandboxes) = &mut self.sandboxes else { return };
        let written = Marks::read(&sandboxes.folder, name).and_then(|marks| marks.places);
        let known: Vec<Places> = places.cloned().into_iter().chain(written).collect();
        if let Err(errno) = sandboxes.remove_groups(name, known) {
            let broken = Broken::at(Step::Cgroup)(errno);
            return self.settle(name, SandboxAnswer::Failed { broken });
        }
        // It may have been asked for before anything was made of what waited for it.
        let _ = sandboxes.folder.forget_waiting(name);
        failpoint::pass("d.cgroup_removed");
        match then {
            Then::Keep => self.settle(name, SandboxAnswer::Done),
            Then::Remove => self.remove_files(name),
        }
    }
}

fn kill(name: &str, living: &Living) {
    // Init's end takes the rest along; whoever is gone already needs no killing.
    let _ = pidfd_send_signal(&living.pidfd, Signal::KILL);
    if let Some(Ok(group)) = living.places.as_ref().map(|places| places.open(name)) {
        let _ = group.kill();
    }
}
