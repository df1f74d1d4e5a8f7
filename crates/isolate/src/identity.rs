//! Who a slot's processes are, inside and on the host.
//!
//! The kernel charges what a user namespace uses (inotify instances, queued signals, processes, ...) also to the user that
//! has created the namespace, and stops at that user's limit. Every namespace is therefore created by a user of its own:
//! if root created them all, one tenant could use up what root and every other tenant may have.

#[cfg(feature = "spawner")]
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::{
    fs::{CWD, Gid, Mode, OFlags, Uid, openat},
    io::Errno,
    process::Pid,
    thread::{
        CapabilitySets, capabilities, configure_capability_in_ambient_set, set_capabilities,
        set_thread_groups, set_thread_res_gid, set_thread_res_uid,
    },
};

use crate::plan::Identity;
#[cfg(feature = "spawner")]
use crate::{
    plan::INSIDE_USER,
    sys::process::{self, Fork},
};

/// The users of a slot: inside, outside, how many.
#[cfg(feature = "spawner")]
pub(crate) fn slot_map(identity: Identity, id: u32) -> String {
    match identity {
        Identity::Apart => format!("0 {id} 1\n{INSIDE_USER} {} 1\n", id + 1),
        Identity::Shared => format!("{INSIDE_USER} 0 1\n"),
    }
}

/// The users of a sandbox.
#[cfg(feature = "spawner")]
pub(crate) fn sandbox_map(identity: Identity, first: u32) -> String {
    match identity {
        Identity::Apart => format!("0 {first} {SANDBOX_USERS}\n"),
        Identity::Shared => format!("{INSIDE_USER} 0 1\n"),
    }
}

/// Says which users on the machine the owners of files on disk are for one sandbox.
#[cfg(feature = "spawner")]
pub(crate) fn disk_map(on_disk: u32, first: u32) -> String {
    format!("{on_disk} {first} {SANDBOX_USERS}\n")
}

/// How many users a sandbox has: as many as an image can name.
#[cfg(feature = "spawner")]
pub(crate) const SANDBOX_USERS: u32 = 1 << 16;

/// Says who the users inside are on the outside.
pub(crate) fn map_ids(pid: Pid, map: &str) -> Result<(), Errno> {
    map_users_and_groups(pid, map, map)
}

pub(crate) fn map_users_and_groups(pid: Pid, users: &str, groups: &str) -> Result<(), Errno> {
    let pid = pid.as_raw_nonzero();
    for (name, map) in [("uid_map", users), ("gid_map", groups)] {
        let path = format!("/proc/{pid}/{name}");
        let file = openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&file, map.as_bytes())?;
    }
    Ok(())
}

/// Forks into new namespaces, of which this user is the creator. The caller is root, in its own namespace at least.
#[cfg(feature = "spawner")]
pub(crate) fn fork_as_creator(creator: Option<u32>, namespaces: u64) -> Result<Fork, Errno> {
    become_creator(creator)?;
    be_inspectable(creator)?;
    match process::fork(namespaces) {
        // It has no user yet that could be named.
        Ok(Fork::Child) => Ok(Fork::Child),
        other => {
            become_root_again(creator)?;
            be_inspectable(creator)?;
            other
        }
    }
}

/// Makes up for a change of users, which has the kernel hide this process and its children from all but real root. In a
/// user namespace, nothing could map the users of the child.
#[cfg(feature = "spawner")]
fn be_inspectable(creator: Option<u32>) -> Result<(), Errno> {
    creator.map_or(Ok(()), |_| set_dumpable_behavior(DumpableBehavior::Dumpable))
}

/// Makes this user the effective one, by which the kernel knows the creator of a user namespace. Capabilities stay:
/// on some systems only a process that has them may create one.
pub(crate) fn become_creator(creator: Option<u32>) -> Result<(), Errno> {
    let Some(creator) = creator else { return Ok(()) };
    let own = capabilities(None)?;
    set_thread_res_uid(Uid::ROOT, Uid::from_raw(creator), Uid::ROOT)?;
    set_capabilities(None, own)
}

/// Ends what [`become_creator`] began.
pub(crate) fn become_root_again(creator: Option<u32>) -> Result<(), Errno> {
    creator.map_or(Ok(()), |_| set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT))
}

/// Takes on the identity of init inside, with all capabilities, also across the exec.
pub(crate) fn take_inside_identity(identity: Identity) -> Result<(), Errno> {
    match identity {
        Identity::Apart => {
            let (user, group) = (Uid::ROOT, Gid::ROOT);
            set_thread_groups(&[])?;
            set_thread_res_gid(group, group, group)?;
            set_thread_res_uid(user, user, user)
        }
        // Not root inside, so that capabilities would be lost at the exec.
        Identity::Shared => {
            let own = capabilities(None)?;
            set_capabilities(None, CapabilitySets { inheritable: own.permitted, ..own })?;
            for capability in own.permitted.iter() {
                configure_capability_in_ambient_set(capability, true)?;
            }
            Ok(())
        }
    }
}
