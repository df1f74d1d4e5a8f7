//! Users of a slot's processes, and the daemon as the spawner sees it.

use std::fs;

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitStatus, kill_process},
};

use super::{
    IdRange, SpawnerError,
    subids::{Granted, Mapper},
};
use crate::{
    identity::slot_map,
    init::exit_of,
    plan::{Exit, Identity},
    sys,
};

/// The daemon beside the spawner: it is told when the server is to stop.
#[derive(Clone, Copy, Debug)]
pub struct Daemon {
    pid: Pid,
    exit: Option<Exit>,
}

impl Daemon {
    /// Takes the process of that number, which is a child of the spawner.
    pub fn new(pid: u32) -> Option<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
        Some(Self { pid, exit: None })
    }

    /// Hands a signal on. The daemon ends on its own terms, and the spawner after it.
    pub(super) fn forward(self, signal: libc::c_int) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            // If it is gone already, its socket says so.
            let _ = kill_process(self.pid, signal);
        }
    }

    pub(super) fn note(&mut self, pid: Pid, status: WaitStatus) {
        if pid == self.pid {
            self.exit = exit_of(status);
        }
    }

    pub(super) fn exit(self) -> Option<Exit> {
        self.exit
    }
}

/// Becomes root of an own user namespace, in which an ordinary user may make all the others. Returns the users
/// that slots can have in it, where the system grants some to this user.
pub fn enter_user_namespace() -> Result<Option<IdRange>, SpawnerError> {
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let fail = |errno| SpawnerError::System { doing: "make a user namespace", errno };
    let granted = Granted::find(user.as_raw(), group.as_raw());
    let mapper = granted.and_then(|granted| Mapper::start(granted).ok());
    sys::process::unshare_user().map_err(fail)?;
    if mapper.is_some_and(Mapper::map) {
        return Ok(granted.map(|granted| granted.inside()));
    }
    let write = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text).map_err(|error| fail(errno_of(&error)))
    };
    let is_mapped = |file: &str| {
        fs::read_to_string(format!("/proc/self/{file}")).is_ok_and(|map| !map.trim().is_empty())
    };
    // One of them may be mapped already, if only the other could not be.
    if !is_mapped("uid_map") {
        write("uid_map", format!("0 {} 1\n", user.as_raw()))?;
    }
    if !is_mapped("gid_map") {
        write("setgroups", "deny".to_owned())?;
        write("gid_map", format!("0 {} 1\n", group.as_raw()))?;
    }
    Ok(None)
}

/// A zygote has the users of every slot inside its own namespace.
pub(super) fn zygote_map(range: Option<IdRange>) -> String {
    match range {
        Some(IdRange { first, count }) => format!("0 {first} {count}\n"),
        None => "0 0 1\n".to_owned(),
    }
}

/// The users of a slot, as its zygote sees them.
pub(super) fn forked_map(identity: Identity, id: u32, range: Option<IdRange>) -> String {
    slot_map(identity, id - range.map_or(0, |range| range.first))
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
