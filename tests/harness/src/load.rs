//! How much load a test makes: little by default, or for as long as a person wants.

use std::{env, str::FromStr, time::Duration};

/// How many commands each client of a load test starts, one after the other.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    Commands(usize),
    For(Duration),
}

impl Load {
    /// Returns so many commands, unless `RINGFENCE_SECONDS` sets a time or `RINGFENCE_COMMANDS` another number.
    pub fn of(commands: usize) -> Self {
        match set("RINGFENCE_SECONDS") {
            Some(seconds) => Self::For(Duration::from_secs(seconds)),
            None => Self::Commands(set("RINGFENCE_COMMANDS").unwrap_or(commands)),
        }
    }

    /// Says whether a client that has started so many commands in so much time starts another.
    pub fn goes_on(self, commands: usize, elapsed: Duration) -> bool {
        match self {
            Self::Commands(most) => commands < most,
            Self::For(time) => elapsed < time,
        }
    }
}

fn set<T: FromStr>(name: &str) -> Option<T> {
    env::var(name).ok().and_then(|value| value.parse().ok())
}
