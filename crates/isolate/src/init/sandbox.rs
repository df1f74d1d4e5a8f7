//! From init to the supervisor of a sandbox: makes the sandbox, gives up what it does not need, and
//! lets go of the socket that it was started with.

use std::os::fd::OwnedFd;

use rustix::{fs::Mode, io::Errno};

use super::{hosts, image, paths, privileges, report, root};
use crate::{
    plan::{Broken, Step},
    sandbox::SandboxPlan,
    socket::PacketSocket,
    supervisor::{Groups, Place, Stem, Supervision, join},
    sys,
    wire::Report,
};

/// The descriptors that come with a plan.
#[derive(Debug)]
struct Descriptors {
    root: OwnedFd,
    files: OwnedFd,
    /// Lowest first. None: the image is the machine's own.
    layers: Vec<OwnedFd>,
    mounts: Vec<OwnedFd>,
    copies: Vec<OwnedFd>,
    outputs: OwnedFd,
    journal: OwnedFd,
    socket: OwnedFd,
}

/// A process in the groups of a supervisor, with what it has there.
#[derive(Debug)]
pub(super) struct Settled {
    groups: Groups,
    stem: Stem,
}

impl Descriptors {
    fn of(plan: &SandboxPlan, fds: Vec<OwnedFd>) -> Result<Self, Broken> {
        let mut fds = fds.into_iter();
        let mut next = || fds.next().ok_or_else(|| Broken::at(Step::Plan)(Errno::BADF));
        Ok(Self {
            root: next()?,
            files: next()?,
            layers: (0..plan.layers).map(|_| next()).collect::<Result<_, _>>()?,
            mounts: plan.mounts.iter().map(|_| next()).collect::<Result<_, _>>()?,
            copies: plan.copies.iter().map(|_| next()).collect::<Result<_, _>>()?,
            outputs: next()?,
            journal: next()?,
            socket: next()?,
        })
    }
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
    let groups = Groups { procs, leaves: fds.next().filter(|_| has_leaves) };
    let at = Broken::at(Step::Cgroup);
    groups.join().and_then(|()| sys::process::unshare_cgroup()).map_err(&at)?;
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
    let mut fds = Descriptors::of(plan, fds).map_err(Report::Broken)?;
    build(plan, &fds).map_err(Report::Broken)?;
    let copies = plan.copies.iter().zip(std::mem::take(&mut fds.copies)).collect();
    let mounts = plan.mounts.iter().zip(std::mem::take(&mut fds.mounts)).collect();
    paths::bring_in(copies, mounts, plan.rights.identity).map_err(Report::NoPath)?;
    begin(settled, plan, fds).map_err(Report::Broken)
}

/// Puts everything in place that is not the caller's.
fn build(plan: &SandboxPlan, fds: &Descriptors) -> Result<(), Broken> {
    rustix::process::umask(Mode::from_raw_mode(0o022));
    if fds.layers.is_empty() {
        root::build_sandbox(&plan.masked, &fds.root, &fds.files)?;
    } else {
        let identity = plan.rights.identity;
        image::build(&plan.masked, identity, &fds.root, &fds.files, &fds.layers)?;
    }
    hosts::set(&plan.hosts).map_err(Broken::at(Step::Root))?;
    let network = Broken::at(Step::Network);
    rustix::system::sethostname(plan.hostname.as_bytes()).map_err(&network)?;
    sys::net::bring_loopback_up().map_err(&network)
}

/// Listens, and gives up what supervising does not take.
fn begin(settled: Settled, plan: &SandboxPlan, fds: Descriptors) -> Result<Supervision, Broken> {
    let place = Place {
        sandbox: plan.sandbox.clone(),
        secret: plan.secret.clone(),
        rights: plan.rights.clone(),
        filter: plan.filter.clone(),
        outputs: fds.outputs,
        journal: fds.journal,
        groups: settled.groups,
    };
    drop((fds.root, fds.files, fds.layers));
    let supervision = Supervision::begin(place, settled.stem, fds.socket);
    let supervision = supervision.map_err(Broken::at(Step::Fork))?;
    privileges::of_supervisor(&plan.filter)?;
    Ok(supervision)
}

/// Supervises until it is told to stop.
pub(super) fn run(control: PacketSocket, mut supervision: Supervision) {
    // Nobody needs the word if this fails; whoever comes next finds the socket.
    let _ = report(&control, &Report::Ready);
    drop(control);
    // An error of the loop itself would leave commands that nobody waits for: with PID 1 they end.
    let _ = supervision.run();
}
