//! What waits for the disk, or for processes to end: the making, ending and removing of a sandbox.
//! Other orders about it wait until that is done, so that orders about one sandbox are carried out one
//! after the other.

use std::{collections::VecDeque, os::fd::OwnedFd};

use rustix::{
    io::Errno,
    process::{Pid, WaitStatus},
};

use super::{
    Sandboxes, Then, furniture, kill,
    make::detached,
    waiting::{on_disk, provide},
};
use crate::{
    disk::VolumeName,
    failpoint,
    init::exit_of,
    plan::{Broken, Exit, Identity, Step},
    sandbox::{BodySpec, HostPaths, SandboxAnswer, SandboxOrder, is_good_name, sandbox_of},
    spawner::{
        Spawner,
        paths::Brought,
        volumes::{Denied, Granted, keeper::Wish},
    },
    sys::{self, process::Fork},
};

/// How many orders may wait for one sandbox. The daemon gives one after the other, unless what it
/// wanted has no purpose any more.
const MOST: usize = 16;

/// An order that is being carried out, and those about the same sandbox that came after it.
#[derive(Debug)]
pub(super) struct UnderWay {
    ticket: u64,
    pub(super) what: What,
    orders: VecDeque<(u64, SandboxOrder)>,
}

#[derive(Debug)]
pub(super) enum What {
    /// Files are being made for a sandbox that nobody has asked for yet.
    Preparing(Box<BodySpec>),
    /// What waited for it is being removed. Nobody has ordered that.
    Clearing,
    /// Its files are being made or found.
    Making(Box<BodySpec>),
    /// It could not be made, and what there was of it is ending.
    Failing(Broken),
    /// Its processes are ending.
    Ending(Then),
    /// Its files are being removed.
    Removing,
}

/// In a volume's name, what stands for the hyphen before the number of a companion.
const HYPHEN: &str = "__";

/// Returns the name of a body's volume. None: no body can have such a name.
pub(super) fn volume_of(body: &str) -> Option<VolumeName> {
    if body.contains(HYPHEN) {
        return None;
    }
    VolumeName::new(&body.replace('-', HYPHEN)).ok()
}

fn body_of(volume: &VolumeName) -> String {
    volume.as_str().replace(HYPHEN, "-")
}

impl Sandboxes {
    pub(super) fn begin(&mut self, name: &str, ticket: u64, what: What) {
        let under_way = UnderWay { ticket, what, orders: VecDeque::new() };
        self.under_way.insert(name.to_owned(), under_way);
    }

    /// Looks for files that are there, and else says what there is to wait for.
    fn files_of(&self, spec: &BodySpec, identity: Identity) -> Result<Begin, Broken> {
        let at = Broken::at(Step::Plan);
        let name = volume_of(&spec.sandbox).ok_or_else(|| at(Errno::INVAL))?;
        let is_companion = sandbox_of(&spec.sandbox) != spec.sandbox;
        if !is_good_name(&spec.sandbox) || is_companion != spec.beside.is_some() {
            return Err(at(Errno::INVAL));
        }
        if self.living.contains_key(&spec.sandbox) && !self.waiting.contains_key(&spec.sandbox) {
            return Err(at(Errno::EXIST));
        }
        let at = Broken::at(Step::Writable);
        let waiting = self.waiting.get(&spec.sandbox);
        if let Some(whole) = waiting.and_then(|body| body.whole.as_ref()) {
            return if whole.spec == *spec { Ok(Begin::With(None)) } else { Err(at(Errno::INVAL)) };
        }
        self.folder.begin(&spec.sandbox).map_err(&at)?;
        if let Some(old) = self.folder.old_files(&spec.sandbox).map_err(&at)? {
            furniture::add_overlay(&old, on_disk(identity)).map_err(&at)?;
            return detached(&old).map(|files| Begin::With(Some(files))).map_err(&at);
        }
        let had_files = self.folder.had_body(&spec.sandbox).map_err(&at)?;
        let wish = provide(name, spec.disk, spec.image.clone(), had_files, identity);
        Ok(Begin::After(wish))
    }
}

/// How the making of a sandbox begins.
enum Begin {
    /// With these files, or those that it stands on already.
    With(Option<OwnedFd>),
    After(Wish),
}

impl Spawner {
    /// Puts an order off until another about the same sandbox is carried out. Returns any other.
    pub(super) fn let_wait(&mut self, ticket: u64, order: SandboxOrder) -> Option<SandboxOrder> {
        if let SandboxOrder::End { sandbox } | SandboxOrder::Remove { sandbox } = &order {
            // Whoever makes it may wait long for paths that nobody wants any more.
            self.forget_opening(sandbox);
        }
        let under_way = self.sandboxes.as_mut().zip(order.sandbox());
        let under_way = under_way.and_then(|(all, name)| all.under_way.get_mut(name));
        let Some(UnderWay { orders, .. }) = under_way else { return Some(order) };
        if orders.len() < MOST {
            orders.push_back((ticket, order));
        } else {
            self.refuse_about_sandbox(ticket, Broken::at(Step::Plan)(Errno::BUSY));
        }
        None
    }

    /// Has the files of a sandbox made or found. It is made when they are there.
    pub(super) fn begin_making(&mut self, ticket: u64, spec: Box<BodySpec>) {
        let identity = self.identity();
        let Some(sandboxes) = &mut self.sandboxes else {
            let broken = Broken::at(Step::Plan)(Errno::NOSYS);
            return self.refuse_about_sandbox(ticket, broken);
        };
        match sandboxes.files_of(&spec, identity) {
            Ok(files) => {
                let name = spec.sandbox.clone();
                sandboxes.begin(&name, ticket, What::Making(spec.clone()));
                match files {
                    Begin::With(files) => self.go_on_making(ticket, spec, files),
                    Begin::After(wish) => {
                        self.wish(wish);
                        failpoint::pass("c.volume_asked");
                    }
                }
            }
            Err(broken) => self.refuse_about_sandbox(ticket, broken),
        }
    }

    /// Makes a sandbox whose files are there, after the paths that it was granted are open.
    fn go_on_making(&mut self, ticket: u64, spec: Box<BodySpec>, files: Option<OwnedFd>) {
        if spec.paths != HostPaths::None {
            return self.make_with_paths(ticket, spec, files);
        }
        let made = self.make_sandbox(&spec, files.as_ref(), Brought::default());
        self.finish_making(ticket, &spec.sandbox, made);
    }

    /// Says what came of the making of a sandbox, and carries out what was put off.
    pub(in crate::spawner) fn finish_making(
        &mut self,
        ticket: u64,
        name: &str,
        made: Result<(SandboxAnswer, Vec<OwnedFd>), Broken>,
    ) {
        if let Err(broken) = made
            && self.is_failing(name, broken)
        {
            return;
        }
        self.answer(ticket, made);
        self.go_on(name);
    }

    /// Ends a body of which no sandbox came. Its failure is told when it is gone. Returns whether
    /// there is one.
    fn is_failing(&mut self, name: &str, broken: Broken) -> bool {
        let Some(sandboxes) = &mut self.sandboxes else { return false };
        match (sandboxes.living.get(name), sandboxes.under_way.get_mut(name)) {
            (Some(living), Some(under_way)) => {
                under_way.what = What::Failing(broken);
                kill(name, living);
                true
            }
            _ => false,
        }
    }

    /// Removes the files of a sandbox, and after them its folder, by which it is known.
    pub(super) fn remove_files(&mut self, name: &str) {
        let Some(sandboxes) = &mut self.sandboxes else { return };
        if let Some(under_way) = sandboxes.under_way.get_mut(name) {
            under_way.what = What::Removing;
        }
        match (sandboxes.folder.old_files(name), volume_of(name)) {
            (Ok(None), Some(name)) => self.wish(Wish::Remove { name }),
            // Whatever is in the place of the folder: it has no volume.
            (Ok(Some(_)) | Err(_), _) | (_, None) => self.remove_folder(name),
        }
    }

    /// What was wished for the volume of a sandbox has come true, or never will.
    pub(in crate::spawner) fn volume_settled(
        &mut self,
        volume: &VolumeName,
        granted: Result<Granted, Denied>,
    ) {
        let name = &body_of(volume);
        let under_way = self.sandboxes.as_ref().and_then(|all| all.under_way.get(name));
        match (granted, under_way.map(|under_way| (under_way.ticket, &under_way.what))) {
            (Ok(Granted::Removed), Some((_, What::Removing))) => {
                failpoint::pass("d.volume_removed");
                self.remove_folder(name);
            }
            (granted, Some((_, What::Preparing(spec)))) => {
                let spec = spec.clone();
                self.prepared(*spec, granted.ok());
            }
            (granted, Some((_, What::Clearing))) => self.cleared(name, granted.is_ok()),
            (Ok(Granted::Files(files)), Some((ticket, What::Making(spec)))) => {
                failpoint::pass("c.volume_made");
                let spec = spec.clone();
                self.go_on_making(ticket, spec, Some(files));
            }
            (Err(Denied { reason, said }), Some(_)) => {
                self.settle(name, SandboxAnswer::NoVolume { reason, said });
            }
            (Ok(_), Some(_)) => {
                let broken = Broken::at(Step::Writable)(Errno::BADMSG);
                self.settle(name, SandboxAnswer::Failed { broken });
            }
            (_, None) => {}
        }
    }

    /// Answers the order that is under way, and carries out those that were put off.
    pub(super) fn settle(&mut self, name: &str, answer: SandboxAnswer) {
        self.settle_with(name, answer, Vec::new());
    }

    pub(super) fn settle_with(&mut self, name: &str, answer: SandboxAnswer, fds: Vec<OwnedFd>) {
        let under_way = self.sandboxes.as_ref().and_then(|all| all.under_way.get(name));
        if let Some(ticket) = under_way.map(|under_way| under_way.ticket) {
            self.answer(ticket, Ok((answer, fds)));
        }
        self.go_on(name);
    }

    /// Carries out what was put off.
    pub(super) fn go_on(&mut self, name: &str) {
        let sandboxes = self.sandboxes.as_mut();
        let under_way = sandboxes.and_then(|sandboxes| sandboxes.under_way.remove(name));
        // Each may have to wait again, and those after it then do.
        for (ticket, order) in under_way.into_iter().flat_map(|under_way| under_way.orders) {
            self.obey_about_sandbox(ticket, order, Vec::new());
        }
    }

    /// Removes the folder of a sandbox in a process of its own: there may be very much in it.
    fn remove_folder(&mut self, name: &str) {
        let Some(sandboxes) = &mut self.sandboxes else { return };
        match sys::process::fork(0) {
            Ok(Fork::Child) => {
                let removed = sandboxes.folder.alone().and_then(|folder| folder.remove(name));
                sys::process::exit_now(removed.err().map_or(0, Errno::raw_os_error))
            }
            Ok(Fork::Parent { child, pidfd: _ }) => {
                sandboxes.workers.insert(child, name.to_owned());
            }
            Err(errno) => {
                let broken = Broken::at(Step::Fork)(errno);
                self.settle(name, SandboxAnswer::Failed { broken });
            }
        }
    }

    /// Notes the end of a process that removed a folder, if it was one.
    pub(in crate::spawner) fn worker_ended(&mut self, pid: Pid, status: WaitStatus) {
        let worker = self.sandboxes.as_mut().and_then(|sandboxes| sandboxes.workers.remove(&pid));
        let Some(name) = worker else { return };
        let failed =
            |errno| SandboxAnswer::Failed { broken: Broken { step: Step::Writable, errno } };
        let answer = match exit_of(status) {
            Some(Exit::Code(0)) => {
                failpoint::pass("d.files_removed");
                SandboxAnswer::Done
            }
            Some(Exit::Code(errno)) => failed(errno),
            Some(Exit::Signal(_)) | None => failed(libc::EINTR),
        };
        self.settle(&name, answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_body_has_a_volume_of_its_own() {
        for body in ["sb_1", "sb_1-0", "sb_1_0", "sb_1-12"] {
            assert_eq!(body_of(&volume_of(body).unwrap()), body);
        }
        assert_eq!(volume_of("sb_1__0"), None);
        assert_eq!(volume_of("../sb"), None);
    }
}
