//! From init to the supervisor of a sandbox: makes the sandbox, gives up what it does not need, and
//! lets go of the socket that it was started with.

use std::os::fd::OwnedFd;

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
};

use super::{counters, hosts, image, paths, privileges, read_command, report, root};
use crate::{
    plan::{Broken, Step},
    sandbox::{Base, ContainedPlan, RootPlan, SandboxPlan},
    socket::PacketSocket,
    supervisor::{Groups, Place, Stem, Supervision, join},
    sys,
    wire::{Command, Report},
};

/// The descriptors that come with a plan.
type Fds = std::vec::IntoIter<OwnedFd>;

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::PATH).union(OFlags::CLOEXEC);

/// A process in the groups of a supervisor, with what it has there.
#[derive(Debug)]
pub(super) struct Settled {
    groups: Groups,
    stem: Stem,
}

/// Lets commands see their own groups as the top of all, and nothing of the machine's. The
/// supervisor itself is in another, where what limits them does not limit it.
pub(super) fn settle(
    groups: usize,
    has_leaves: bool,
    fds: Vec<OwnedFd>,
) -> Result<Settled, Broken> {
    let mut fds = fds.into_iter();
    let procs: Vec<OwnedFd> = fds.by_ref().take(groups).collect();
    let own: Vec<OwnedFd> = fds.by_ref().take(groups).collect();
    let groups = Groups { procs, leaves: fds.next().filter(|_| has_leaves), ..Groups::default() };
    let at = Broken::at(Step::Cgroup);
    groups.join().and_then(|()| sys::process::unshare_cgroup()).map_err(&at)?;
    privileges::of_body()?;
    let stem = Stem::fork(|| Ok(())).map_err(Broken::at(Step::Fork))?;
    join(&own).map_err(&at)?;
    Ok(Settled { groups, stem })
}

/// Makes the sandbox. When this returns it listens.
pub(super) fn prepare(
    settled: Settled,
    plan: &SandboxPlan,
    fds: Vec<OwnedFd>,
) -> Result<Supervision, Report> {
    let mut fds = fds.into_iter();
    build(&plan.root, &mut fds).map_err(Report::Broken)?;
    name(plan).map_err(Report::Broken)?;
    let mounts = take(&mut fds, plan.mounts.len()).map_err(Report::Broken)?;
    let copies = take(&mut fds, plan.copies.len()).map_err(Report::Broken)?;
    let mounts = plan.mounts.iter().zip(mounts).collect();
    let copies = plan.copies.iter().zip(copies).collect();
    paths::bring_in(copies, mounts, plan.rights.identity).map_err(Report::NoPath)?;
    begin(settled, plan, &mut fds).map_err(Report::Broken)
}

/// Makes a container the sandbox: whoever made it has given it root, network and limits. When this
/// returns it listens.
pub(super) fn contain(plan: &ContainedPlan, fds: Vec<OwnedFd>) -> Result<Supervision, Broken> {
    let mut fds = fds.into_iter();
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let at = Broken::at(Step::Writable);
    let root = openat(CWD, "/", DIRECTORY, Mode::empty()).map_err(&at)?;
    // No program of a container can give a folder back to root, so there is nothing to respect.
    image::furnish(&root, plan.rights.identity, None).map_err(&at)?;
    drop(root);
    privileges::of_body()?;
    let stem = Stem::fork(|| Ok(())).map_err(Broken::at(Step::Fork))?;
    let place = Place {
        sandbox: plan.sandbox.clone(),
        secret: plan.secret.clone(),
        rights: plan.rights.clone(),
        filter: plan.filter.clone(),
        outputs: next(&mut fds)?,
        journal: next(&mut fds)?,
        groups: Groups::default(),
    };
    listen(place, stem, next(&mut fds)?)
}

fn next(fds: &mut Fds) -> Result<OwnedFd, Broken> {
    fds.next().ok_or_else(|| Broken::at(Step::Plan)(Errno::BADF))
}

fn take(fds: &mut Fds, count: usize) -> Result<Vec<OwnedFd>, Broken> {
    (0..count).map(|_| next(fds)).collect()
}

/// Puts everything in place that is not the caller's, and stands on it.
fn build(plan: &RootPlan, fds: &mut Fds) -> Result<(), Broken> {
    let (root, files, layers) = (next(fds)?, next(fds)?, take(fds, plan.base.layers())?);
    rustix::process::umask(Mode::from_raw_mode(0o022));
    counters::set(plan.namespace).map_err(Broken::at(Step::Limits))?;
    counters::open_low_ports().map_err(Broken::at(Step::Network))?;
    match plan.base {
        Base::Machine => root::build_sandbox(plan, &root, &files)?,
        Base::WritableMachine => image::build_machine(plan, &root, &files, &layers)?,
        Base::Layers(_) => image::build(plan, &root, &files, &layers)?,
    }
    sys::net::bring_loopback_up().map_err(Broken::at(Step::Network))
}

/// Says who it is, and who is beside it.
fn name(plan: &SandboxPlan) -> Result<(), Broken> {
    hosts::set(&plan.hosts).map_err(Broken::at(Step::Root))?;
    rustix::system::sethostname(plan.hostname.as_bytes()).map_err(Broken::at(Step::Network))
}

/// Listens, and gives up what supervising does not take.
fn begin(settled: Settled, plan: &SandboxPlan, fds: &mut Fds) -> Result<Supervision, Broken> {
    let place = Place {
        sandbox: plan.sandbox.clone(),
        secret: plan.secret.clone(),
        rights: plan.rights.clone(),
        filter: plan.filter.clone(),
        outputs: next(fds)?,
        journal: next(fds)?,
        groups: settled.groups,
    };
    listen(place, settled.stem, next(fds)?)
}

fn listen(place: Place, stem: Stem, socket: OwnedFd) -> Result<Supervision, Broken> {
    let (identity, filter) = (place.rights.identity, place.filter.clone());
    let supervision = Supervision::begin(place, stem, socket).map_err(Broken::at(Step::Fork))?;
    privileges::of_supervisor(identity, &filter)?;
    Ok(supervision)
}

/// Supervises until it is told to stop, from when the sandbox is somebody's.
pub(super) fn run(control: PacketSocket, mut supervision: Supervision, waits: bool) {
    // Nobody needs the word if this fails; whoever comes next finds the socket.
    let _ = report(&control, &Report::Ready);
    if waits {
        supervision.have_bud();
        if !matches!(read_command(&control), Ok((Command::Taken, _))) {
            return;
        }
    }
    drop(control);
    // An error of the loop itself would leave commands that nobody waits for: with PID 1 they end.
    let _ = supervision.run();
}
