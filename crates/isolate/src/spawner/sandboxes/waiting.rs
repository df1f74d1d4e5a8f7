//! Bodies that wait for their sandbox.
//!
//! To put a process into new namespaces and into its control groups takes longer than all else that
//! the making of a sandbox takes, and is the same for every sandbox but for its name. So it is done before
//! anybody asks, for a name that the next sandbox gets. So are files, for a sandbox of the host's
//! image with the usual limit, where these are promised to nobody.

use std::os::fd::OwnedFd;

use rustix::{
    io::Errno,
    process::{Signal, pidfd_send_signal},
};

use super::{
    identity::Marks,
    under_way::{What, volume_of},
};
use crate::{
    cgroup::Cgroups,
    disk::{DiskLimit, VolumeName},
    plan::{Broken, Identity, Step},
    sandbox::{Image, SandboxAnswer, is_good_name, sandbox_of},
    spawner::{
        IdRange, Spawner,
        volumes::{
            Granted,
            keeper::{Provision, Wish},
        },
        wait_for,
    },
};

/// What a body that waits has of files.
#[derive(Debug, Default)]
pub(super) enum Files {
    #[default]
    None,
    There(DiskLimit, OwnedFd),
}

/// Says what is to be in a volume.
pub(super) fn provide(
    name: VolumeName,
    limit: DiskLimit,
    image: Image,
    had_files: bool,
    identity: Identity,
) -> Wish {
    let on_disk = match identity {
        Identity::Apart => Some(IdRange::ON_DISK.first),
        Identity::Shared => None,
    };
    Wish::Provide(Provision { name, limit, had_files, image, on_disk })
}

/// How many may wait. The daemon wants fewer.
const MOST: usize = 16;

impl Spawner {
    /// Starts a body for a sandbox of this name, which nobody has asked for yet. It is answered when it
    /// has what it gets.
    pub(super) fn prepare_body(
        &mut self,
        ticket: u64,
        name: &str,
        max_processes: u32,
        disk: DiskLimit,
    ) {
        let wish = match self.begin_waiting(name, max_processes) {
            Err(broken) => return self.refuse_about_sandbox(ticket, broken),
            Ok(()) => volume_of(name).filter(|_| self.shares_volumes()),
        };
        let Some(volume) = wish else {
            return self.answer_about_sandbox(ticket, SandboxAnswer::Done);
        };
        if let Some(sandboxes) = &mut self.sandboxes {
            sandboxes.begin(name, ticket, What::Preparing(disk));
        }
        self.wish(provide(volume, disk, Image::Host, false, self.identity()));
    }

    fn begin_waiting(&mut self, name: &str, max_processes: u32) -> Result<(), Broken> {
        let at = Broken::at(Step::Plan);
        let sandboxes = self.sandboxes.as_ref().ok_or_else(|| at(Errno::NOSYS))?;
        if !is_good_name(name) || sandbox_of(name) != name {
            return Err(at(Errno::INVAL));
        }
        if sandboxes.living.contains_key(name) {
            return Err(at(Errno::EXIST));
        }
        if sandboxes.waiting.len() >= MOST {
            return Err(at(Errno::BUSY));
        }
        let body = self.fork_body(name, max_processes, None)?;
        if let Some(sandboxes) = &mut self.sandboxes {
            sandboxes.waiting.insert(name.to_owned(), body);
        }
        Ok(())
    }

    /// The files of a body that waits are there, or will not be: then its sandbox gets others, or is
    /// told why not.
    pub(super) fn prepared(&mut self, name: &str, limit: DiskLimit, granted: Option<Granted>) {
        if let Some(body) = self.sandboxes.as_mut().and_then(|all| all.waiting.get_mut(name)) {
            if let Some(Granted::Files(files)) = granted {
                body.files = Files::There(limit, files);
            }
            return self.settle(name, SandboxAnswer::Done);
        }
        // It has ended meanwhile.
        let broken = Broken::at(Step::Fork)(Errno::SRCH);
        self.settle(name, SandboxAnswer::Failed { broken });
        self.clear_files(name);
    }

    /// Removes what a killed server has left of a body that waited. One that was about to be that of a
    /// sandbox again has left files that are the sandbox's.
    pub(super) fn clear_after_crash(&mut self, name: &str) {
        let Some(sandboxes) = &self.sandboxes else { return };
        match sandboxes.folder.had_body(name) {
            Ok(false) | Err(Errno::NOENT) => self.clear_files(name),
            Ok(true) => drop(sandboxes.folder.forget_waiting(name)),
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
            let places = marks.and_then(|marks| marks.places);
            let ours = sandboxes.cgroups.as_ref().map(Cgroups::places);
            for places in places.iter().chain(&ours) {
                places.remove(name)?;
            }
        }
        Ok(names)
    }
}
