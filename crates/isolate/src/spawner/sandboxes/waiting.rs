//! Bodies that wait for their sandbox.
//!
//! To put a process into new namespaces and into its control groups takes longer than all else that
//! the making of a sandbox takes, and is the same for every sandbox but for its name. So it is done before
//! anybody asks, for a name that the next sandbox gets. Where files are promised to nobody, a sandbox of the
//! usual kind is made as a whole: it has its files, its root and its first command's process, its
//! supervisor listens and has given up its rights. To make it somebody's is one word.

use std::os::fd::OwnedFd;

use rustix::{
    io::Errno,
    process::{Signal, pidfd_send_signal},
};

use super::{
    identity::Marks,
    kill,
    make::Begin,
    under_way::{What, volume_of},
};
use crate::{
    disk::{DiskLimit, VolumeName},
    plan::{Broken, Identity, Step},
    sandbox::{BodySpec, HostPaths, Image, MAX_WAITING, SandboxAnswer, is_good_name, sandbox_of},
    spawner::{
        IdRange, Spawner,
        volumes::{
            Granted,
            keeper::{Provision, Wish},
        },
        wait_for,
    },
};

/// Says what is to be in a volume.
pub(super) fn provide(
    name: VolumeName,
    limit: DiskLimit,
    image: Image,
    had_files: bool,
    identity: Identity,
) -> Wish {
    Wish::Provide(Provision { name, limit, had_files, image, on_disk: on_disk(identity) })
}

/// Returns the user of the machine that root inside is on disk, if the sandbox has a root.
pub(super) fn on_disk(identity: Identity) -> Option<u32> {
    match identity {
        Identity::Apart => Some(IdRange::ON_DISK.first),
        Identity::Shared => None,
    }
}

/// Whether all that a sandbox has is its own.
fn is_plain(spec: &BodySpec) -> bool {
    spec.image == Image::Host && spec.paths == HostPaths::None && spec.beside.is_none()
}

impl Spawner {
    /// Starts a body for a sandbox of this name, which nobody has asked for yet. It is answered when it
    /// has what it gets.
    pub(super) fn prepare_body(&mut self, ticket: u64, begin: Begin<'_>) {
        match self.begin_waiting(begin) {
            Ok(()) => self.answer_about_sandbox(ticket, SandboxAnswer::Done),
            Err(broken) => self.refuse_about_sandbox(ticket, broken),
        }
    }

    /// Starts such a body, and has it become the whole sandbox, if that takes nothing from others.
    pub(super) fn prepare_whole(&mut self, ticket: u64, spec: Box<BodySpec>) {
        let volume = volume_of(&spec.sandbox).filter(|_| self.shares_volumes() && is_plain(&spec));
        let Some(volume) = volume else {
            return self.prepare_body(ticket, Begin::of(&spec));
        };
        if let Err(broken) = self.begin_waiting(Begin::of(&spec)) {
            return self.refuse_about_sandbox(ticket, broken);
        }
        let wish = provide(volume, spec.disk, Image::Host, false, self.identity());
        if let Some(sandboxes) = &mut self.sandboxes {
            let name = spec.sandbox.clone();
            sandboxes.begin(&name, ticket, What::Preparing(spec));
        }
        self.wish(wish);
    }

    fn begin_waiting(&mut self, begin: Begin<'_>) -> Result<(), Broken> {
        let name = begin.name;
        let at = Broken::at(Step::Plan);
        let sandboxes = self.sandboxes.as_ref().ok_or_else(|| at(Errno::NOSYS))?;
        if !is_good_name(name) || sandbox_of(name) != name {
            return Err(at(Errno::INVAL));
        }
        if sandboxes.living.contains_key(name) {
            return Err(at(Errno::EXIST));
        }
        if sandboxes.waiting.len() >= MAX_WAITING {
            return Err(at(Errno::BUSY));
        }
        let mut body = self.fork_body(begin)?;
        let sandboxes = self.sandboxes.as_mut().ok_or_else(|| at(Errno::NOSYS))?;
        // Without them it has them made when it is a sandbox's.
        body.parts = sandboxes.folder.make_waiting(name, body.owners(sandboxes.daemon)).ok();
        sandboxes.waiting.insert(name.to_owned(), body);
        Ok(())
    }

    /// The files of a body that waits are there, or will not be: then its sandbox gets others, or is
    /// told why not.
    pub(super) fn prepared(&mut self, spec: BodySpec, granted: Option<Granted>) {
        let name = spec.sandbox.clone();
        let made = match granted {
            Some(Granted::Files(files)) => self.complete(spec, &files).map(Some),
            Some(Granted::Removed) | None => Ok(None),
        };
        match made {
            Ok(Some(control)) => self.settle_with(&name, SandboxAnswer::Whole, vec![control]),
            Ok(None) => self.settle(&name, SandboxAnswer::Done),
            Err(broken) => {
                self.settle(&name, SandboxAnswer::Failed { broken });
                self.clear_files(&name);
            }
        }
    }

    /// Makes a body that waits a whole sandbox, and returns where it will say that it is. One that cannot
    /// be has ended, or does so now.
    fn complete(&mut self, spec: BodySpec, files: &OwnedFd) -> Result<OwnedFd, Broken> {
        let at = Broken::at(Step::Fork);
        let name = spec.sandbox.clone();
        let body = self.sandboxes.as_ref().and_then(|all| all.waiting.get(&name));
        let body = body.ok_or_else(|| at(Errno::SRCH))?;
        let control = body.control().map_err(&at);
        let made = self.make_whole(spec, body, files).and_then(|whole| Ok((whole, control?)));
        let sandboxes = self.sandboxes.as_mut().ok_or_else(|| at(Errno::NOSYS))?;
        match made {
            Ok((whole, control)) => {
                if let Some(body) = sandboxes.waiting.get_mut(&name) {
                    body.whole = Some(whole);
                }
                Ok(control)
            }
            Err(broken) => {
                sandboxes.living.get(&name).into_iter().for_each(|living| kill(&name, living));
                Err(broken)
            }
        }
    }

    /// Removes what a killed server has left of a body that waited. One that was about to be that of a
    /// sandbox again has left files that are the sandbox's. After a loss of power one that seems to wait may be a
    /// sandbox's already, because the rename that made it one was not on disk: it is left to the daemon, which
    /// knows all sandboxes and has the others removed.
    pub(super) fn clear_after_crash(&mut self, name: &str) {
        let Some(sandboxes) = &self.sandboxes else { return };
        let folder = &sandboxes.folder;
        let is_of_this_boot =
            Marks::read_waiting(folder, name).is_some_and(|marks| marks.is_of_this_boot());
        match folder.had_body(name) {
            Err(Errno::NOENT) if !is_of_this_boot => drop(folder.take_waiting(name)),
            Ok(false) if !is_of_this_boot => drop(folder.forget_waiting(name)),
            Ok(false) | Err(Errno::NOENT) => self.clear_files(name),
            Ok(true) => drop(folder.forget_waiting(name)),
            Err(_) => {}
        }
    }

    /// Removes the files of a body that waited and has ended. It is noted until they are gone.
    pub(super) fn clear_files(&mut self, name: &str) {
        let Some(sandboxes) = &mut self.sandboxes else { return };
        let Some(volume) = volume_of(name).filter(|_| !sandboxes.under_way.contains_key(name))
        else {
            return;
        };
        // Nobody waits for an answer.
        sandboxes.begin(name, 0, What::Clearing);
        self.wish(Wish::Remove { name: volume });
    }

    /// The files of a body that waited are gone. If not, the next server sees to it.
    pub(super) fn cleared(&mut self, name: &str, is_gone: bool) {
        if let Some(sandboxes) = self.sandboxes.as_ref().filter(|_| is_gone) {
            let _ = sandboxes.folder.forget_waiting(name);
        }
        self.go_on(name);
    }

    /// Ends every body that waits, and removes its groups. Those of another server may be among them,
    /// which was killed: they end with it by themselves, if they have had the time. Returns their
    /// names: their files may be there.
    pub(in crate::spawner) fn clear_waiting(&mut self) -> Result<Vec<String>, Errno> {
        let Some(sandboxes) = &mut self.sandboxes else { return Ok(Vec::new()) };
        sandboxes.waiting.clear();
        let mut names = sandboxes.folder.waiting();
        names.retain(|name| is_good_name(name));
        for name in &names {
            let marks = Marks::read_waiting(&sandboxes.folder, name);
            if let Some(process) = marks.as_ref().and_then(Marks::process) {
                let _ = pidfd_send_signal(&process, Signal::KILL);
                wait_for(&process)?;
            }
            let known = marks.and_then(|marks| marks.places).into_iter().collect();
            sandboxes.remove_groups(name, known)?;
        }
        Ok(names)
    }
}
