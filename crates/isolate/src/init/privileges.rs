//! Giving up rights: for the user's program all of them, for init all but what it needs.

use std::os::fd::OwnedFd;

use rustix::{
    fs::{Gid, Uid},
    io::Errno,
    process::{DumpableBehavior, Resource, getrlimit, getuid, set_dumpable_behavior},
    thread::{
        CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capability_is_in_bounding_set,
        clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
        set_capabilities_secure_bits, set_keep_capabilities, set_no_new_privs, set_thread_groups,
        set_thread_res_gid, set_thread_res_uid,
    },
};

use crate::{
    plan::{Broken, INSIDE_USER, Identity, Plan, Rights, Rlimits, SERVICE_USER, Step},
    supervisor::wire::User,
    sys,
};

/// Makes the calling process the unprivileged user of the slot, for good. Returns the listener of
/// its system call filter, which must not reach user code.
pub(crate) fn of_user_code(left: &Rights) -> Result<Option<OwnedFd>, Broken> {
    limits(left.limits).map_err(Broken::at(Step::Limits))?;
    become_user(left.identity).map_err(Broken::at(Step::Privileges))?;
    sys::seccomp::load_with_listener(&left.filter).map_err(Broken::at(Step::Seccomp))
}

/// Leaves the calling process, a child of a supervisor, what it takes to work on files as this user. In all else it keeps
/// the supervisor's own user, so that no command of the same user can signal it.
pub(crate) fn of_file_agent(left: &Rights, user: User) -> Result<(), Broken> {
    before_command(left)?;
    if left.identity == Identity::Shared {
        return of_prepared(left, user);
    }
    keep_only_files_of(user).map_err(Broken::at(Step::Privileges))?;
    sys::seccomp::load(&left.filter).map_err(Broken::at(Step::Seccomp))
}

fn keep_only_files_of(user: User) -> Result<(), Errno> {
    let (user, group, kept) = match user {
        User::Plain { user, group } => (user, group, CapabilitySet::empty()),
        User::Root => (0, 0, OF_ROOTS_FILES),
    };
    bound_by(kept)?;
    clear_ambient_capability_set()?;
    set_thread_groups(&[])?;
    sys::process::set_user_of_files(user, group)?;
    only(kept)?;
    set_no_new_privs(true)
}

/// Limits a process that is to be a command, whoever its user will be.
pub(crate) fn before_command(left: &Rights) -> Result<(), Broken> {
    limits(left.limits).map_err(Broken::at(Step::Limits))
}

/// Makes a process that was limited before the user of a command, for good. The filter comes last: it does
/// not let anybody become somebody else.
pub(crate) fn of_prepared(left: &Rights, user: User) -> Result<(), Broken> {
    match user {
        User::Plain { user, group } => become_plain(left.identity, user, group),
        User::Root => become_root_inside(),
    }
    .map_err(Broken::at(Step::Privileges))?;
    sys::seccomp::load(&left.filter).map_err(Broken::at(Step::Seccomp))
}

/// What installing packages takes, in the sandbox's own user namespace.
const OF_ROOT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID);

/// What root may do with files that are another user's.
const OF_ROOTS_FILES: CapabilitySet =
    CapabilitySet::CHOWN.union(CapabilitySet::DAC_OVERRIDE).union(CapabilitySet::FOWNER);

fn become_root_inside() -> Result<(), Errno> {
    bound_by(OF_ROOT)?;
    clear_ambient_capability_set()?;
    set_thread_groups(&[])?;
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
    only(OF_ROOT)?;
    set_no_new_privs(true)
}

/// What init keeps. A slot of a pool does not know yet whether its files will be collected.
const OF_INIT: CapabilitySet =
    CapabilitySet::KILL.union(CapabilitySet::SYS_PTRACE).union(CapabilitySet::DAC_READ_SEARCH);

/// Leaves init only the rights to signal the processes of its slot, to read their exit status and,
/// where it has to watch their memory itself, its size, and to read the files that they left. All of
/// them are good for the slot's own user namespace only. Its own filter has no call that changes them.
pub(super) fn of_init(plan: &Plan) -> Result<(), Broken> {
    let at = Broken::at(Step::Privileges);
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(&at)?;
    empty_bounding_set().map_err(&at)?;
    clear_ambient_capability_set().map_err(&at)?;
    only(OF_INIT).map_err(&at)?;
    set_no_new_privs(true).map_err(&at)?;
    sys::seccomp::load(&plan.init_filter).map_err(Broken::at(Step::Seccomp))
}

/// What it takes to start commands and to signal them, in the sandbox's own namespace.
const OF_SUPERVISOR: CapabilitySet =
    OF_ROOT.union(CapabilitySet::KILL).union(CapabilitySet::SETPCAP);

/// Makes sure that what is started by it later has no more than a supervisor has, whatever it has
/// itself until then.
pub(super) fn of_body() -> Result<(), Broken> {
    bound_by(OF_SUPERVISOR).map_err(Broken::at(Step::Privileges))
}

/// Leaves a supervisor what it takes to start commands and to signal them, in its own namespace. Its files stay root's.
pub(crate) fn of_supervisor(identity: Identity, filter: &[u8]) -> Result<(), Broken> {
    let at = Broken::at(Step::Privileges);
    bound_by(OF_SUPERVISOR).map_err(&at)?;
    clear_ambient_capability_set().map_err(&at)?;
    if identity == Identity::Apart {
        become_service().map_err(&at)?;
    }
    only(OF_SUPERVISOR).map_err(&at)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(&at)?;
    set_no_new_privs(true).map_err(&at)?;
    sys::seccomp::load(filter).map_err(Broken::at(Step::Seccomp))
}

/// Takes on the user of processes that serve a sandbox. Capabilities stay: there is no exec after this, and each
/// process that is forked says itself what it keeps.
fn become_service() -> Result<(), Errno> {
    let user = Uid::from_raw(SERVICE_USER);
    // What a supervisor forks has it already, and a filter that lets nothing take it on.
    if getuid() != user {
        set_keep_capabilities(true)?;
        set_thread_res_uid(user, user, user)?;
        only(OF_SUPERVISOR)?;
    }
    sys::process::set_user_of_files(0, 0)
}

/// What it takes to write the files of an image, whoever they belong to.
#[cfg(feature = "spawner")]
const OF_IMAGE_WORKER: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);

/// Leaves the process that unpacks images what it needs for that, also across the exec, and only
/// for files of its own user namespace.
#[cfg(feature = "spawner")]
pub(crate) fn of_image_worker(filter: &[u8]) -> Result<(), Broken> {
    let at = Broken::at(Step::Privileges);
    bound_by(OF_IMAGE_WORKER).map_err(&at)?;
    clear_ambient_capability_set().map_err(&at)?;
    only(OF_IMAGE_WORKER).map_err(&at)?;
    set_no_new_privs(true).map_err(&at)?;
    sys::seccomp::load(filter).map_err(Broken::at(Step::Seccomp))
}

/// Who may have few descriptors or processes himself can give nobody more: less is as safe.
fn limits(limits: Rlimits) -> Result<(), Errno> {
    let most = |resource| getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let limits = Rlimits {
        open_files: limits.open_files.min(most(Resource::Nofile)),
        processes: limits.processes.min(most(Resource::Nproc)),
    };
    limits.all().into_iter().try_for_each(|(kind, value)| sys::process::limit(kind, value))
}

fn become_user(identity: Identity) -> Result<(), Errno> {
    become_plain(identity, INSIDE_USER, INSIDE_USER)
}

fn become_plain(identity: Identity, user: u32, group: u32) -> Result<(), Errno> {
    empty_bounding_set()?;
    clear_ambient_capability_set()?;
    set_capabilities_secure_bits(
        CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
            | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED,
    )?;
    if identity == Identity::Apart {
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        set_thread_groups(&[])?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
    }
    only(CapabilitySet::empty())?;
    set_no_new_privs(true)
}

/// Without a bounding set no program can ever give a capability back.
fn empty_bounding_set() -> Result<(), Errno> {
    bound_by(CapabilitySet::empty())
}

/// Takes everything else out of the bounding set.
fn bound_by(kept: CapabilitySet) -> Result<(), Errno> {
    for bit in 0..64 {
        let Some(capability) = CapabilitySet::from_bits(1 << bit) else { continue };
        if kept.contains(capability) {
            continue;
        }
        // To look is cheaper than to take out what is not there.
        match capability_is_in_bounding_set(capability) {
            // The kernel is older than this capability, and so are all above it.
            Err(Errno::INVAL) => break,
            Ok(true) => remove_capability_from_bounding_set(capability)?,
            other => _ = other?,
        }
    }
    Ok(())
}

fn only(kept: CapabilitySet) -> Result<(), Errno> {
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: none })
}
