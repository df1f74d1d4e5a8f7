//! Places where a test lets the store break. Without the feature `failpoints` there are none.
//!
//! With it, `RINGFENCE_FAILPOINT=s.pre_fsync=kill` ends the process there without unwinding, and
//! `=error` makes the step fail. `=kill:3` does it the third time.

/// Passes, or breaks as the environment says.
#[cfg(not(feature = "failpoints"))]
#[expect(clippy::unnecessary_wraps, reason = "with the feature it may fail")]
#[inline]
pub(crate) fn pass(_name: &'static str) -> Result<(), String> {
    Ok(())
}

#[cfg(feature = "failpoints")]
pub(crate) use armed::pass;

#[cfg(feature = "failpoints")]
mod armed {
    use std::sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    };

    struct Armed {
        name: String,
        action: String,
        left: AtomicU32,
    }

    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

    pub(crate) fn pass(name: &'static str) -> Result<(), String> {
        let Some(armed) = ARMED.get_or_init(read).as_ref().filter(|armed| armed.name == name)
        else {
            return Ok(());
        };
        if armed.left.fetch_sub(1, Ordering::Relaxed) != 1 {
            return Ok(());
        }
        match armed.action.as_str() {
            "kill" => std::process::abort(),
            _ => Err(format!("the failpoint {name} is set")),
        }
    }

    fn read() -> Option<Armed> {
        let text = std::env::var("RINGFENCE_FAILPOINT").ok()?;
        let (name, action) = text.split_once('=')?;
        let (action, times) = action.split_once(':').unwrap_or((action, "1"));
        let left = AtomicU32::new(times.parse().ok()?);
        Some(Armed { name: name.to_owned(), action: action.to_owned(), left })
    }
}
