//! From init to the supervisor of a sandbox: makes the sandbox, gives up what it does not need, and
//! lets go of the socket that it was started with.

use std::os::fd::OwnedFd;

use rustix::{fs::Mode, io::Errno};

use super::{hosts, image, paths, privileges, report, root};
use crate::{
    plan::{Broken, Step},
    sandbox::SandboxPlan,
    socket::PacketSocket,
    supervisor::{Groups, Place, Supervision},
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
    /// `cgroup.procs` of the groups that commands are in.
    groups: Vec<OwnedFd>,
    /// `cgroup.procs` of those that only the supervisor is in.
    own_groups: Vec<OwnedFd>,
    leaves: Option<OwnedFd>,
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
            groups: (0..plan.groups).map(|_| next()).collect::<Result<_, _>>()?,
            own_groups: (0..plan.groups).map(|_| next()).collect::<Result<_, _>>()?,
            leaves: plan.has_leaves.then(next).transpose()?,
        })
    }
}

/// Makes the sandbox. When this returns it listens.
pub(super) fn prepare(plan: &SandboxPlan, fds: Vec<OwnedFd>) -> Result<Supervision, Report> {
    let mut fds = Descriptors::of(plan, fds).map_err(Report::Broken)?;
    build(plan, &fds).map_err(Report::Broken)?;
    let copies = plan.copies.iter().zip(std::mem::take(&mut fds.copies)).collect();
    let mounts = plan.mounts.iter().zip(std::mem::take(&mut fds.mounts)).collect();
    paths::bring_in(copies, mounts, plan.rights.identity).map_err(Report::NoPath)?;
    begin(plan, fds).map_err(Report::Broken)
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
    sys::net::bring_loopback_up().map_err(&network)?;
    settle(&fds.groups, &fds.own_groups).map_err(Broken::at(Step::Cgroup))
}

/// Listens, and gives up what supervising does not take.
fn begin(plan: &SandboxPlan, fds: Descriptors) -> Result<Supervision, Broken> {
    let place = Place {
        sandbox: plan.sandbox.clone(),
        secret: plan.secret.clone(),
        rights: plan.rights.clone(),
        outputs: fds.outputs,
        journal: fds.journal,
        groups: Groups { procs: fds.groups, leaves: fds.leaves },
    };
    drop((fds.root, fds.files, fds.layers));
    let supervision = Supervision::begin(place, fds.socket).map_err(Broken::at(Step::Fork))?;
    privileges::of_supervisor(&plan.filter)?;
    Ok(supervision)
}

/// Lets commands see their own groups as the top of all, and nothing of the machine's. The
/// supervisor itself is in another, where what limits them does not limit it.
fn settle(groups: &[OwnedFd], own_groups: &[OwnedFd]) -> Result<(), Errno> {
    join(groups)?;
    sys::process::unshare_cgroup()?;
    join(own_groups)
}

fn join(groups: &[OwnedFd]) -> Result<(), Errno> {
    groups.iter().try_for_each(|procs| rustix::io::write(procs, b"0\n").map(drop))
}

/// Supervises until it is told to stop.
pub(super) fn run(control: PacketSocket, mut supervision: Supervision) {
    // Nobody needs the word if this fails; whoever comes next finds the socket.
    let _ = report(&control, &Report::Ready);
    drop(control);
    // An error of the loop itself would leave commands that nobody waits for: with PID 1 they end.
    let _ = supervision.run();
}
