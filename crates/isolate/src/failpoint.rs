//! Places where a test lets a process of the server die. There are none in a release build.
//!
//! `RF_FAILPOINT=e.row` ends the process that comes there, without unwinding; `e.row:3` the
//! third time that it does. `panic:e.row:3` breaks off what it does instead, and lets it live.

/// Every place, in the order of a life. A test goes through them all.
pub const ALL: [&str; 25] = [
    // Creating: the daemon, the spawner, the daemon.
    "c.made_early",
    "c.intent_synced",
    "c.prepared",
    "c.volume_asked",
    "c.volume_made",
    "c.cgroup",
    "c.dirs",
    "c.supervisor_spawned",
    "c.supervisor_recorded",
    "c.plan_sent",
    "c.connected",
    "c.ready_handshake",
    "c.active_event",
    // A command, from its record to its end.
    "e.row",
    "e.asked",
    "e.exit_seen",
    "e.log_synced",
    "e.terminal_event",
    "e.cancelled",
    // Stopping and deleting.
    "d.intent",
    "d.killed",
    "d.cgroup_removed",
    "d.volume_removed",
    "d.files_removed",
    "d.terminal_event",
];

/// Passes, or dies as the environment says.
#[cfg(not(debug_assertions))]
#[inline]
pub fn pass(_name: &'static str) {}

/// Passes, or dies as the environment says.
#[cfg(debug_assertions)]
pub fn pass(name: &'static str) {
    use std::sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    };

    struct Armed {
        name: String,
        left: AtomicU32,
        panics: bool,
    }

    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();
    debug_assert!(ALL.contains(&name), "{name} is on no list");
    let armed = ARMED.get_or_init(|| {
        let text = std::env::var("RF_FAILPOINT").ok()?;
        let (place, panics) = text.strip_prefix("panic:").map_or((&*text, false), |it| (it, true));
        let (name, times) = place.split_once(':').unwrap_or((place, "1"));
        Some(Armed { name: name.to_owned(), left: AtomicU32::new(times.parse().ok()?), panics })
    });
    if let Some(armed) = armed
        && armed.name == name
        && armed.left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        assert!(!armed.panics, "{name} was to break off");
        std::process::abort();
    }
}
