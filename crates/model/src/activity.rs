//! Whether a sandbox is in use. The whole rule is the table of [`judge`]; `docs/sandboxes.md` draws it.

use crate::{
    life::Life,
    spec::{ExecSpec, Suspend},
};

/// What is going on in a sandbox when it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    pub clients: Clients,
    pub commands: Commands,
    pub shells: Shells,
    pub cpu: Cpu,
    pub heartbeats: Heartbeats,
}

/// Clients that are attached to a command or a shell, connected to a port, or use files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    None,
    Attached,
}

/// Commands that run and are not shells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commands {
    None,
    /// At least one, and none of them has a timeout.
    WithoutTimeout,
    /// At least one has a timeout: its caller waits for it.
    WithTimeout,
}

/// Shells that run. One that a client is attached to counts among [`Clients`] too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shells {
    None,
    /// At a prompt, or with jobs: those count by the processor time that they use.
    Running,
}

/// Processor time that all processes of the sandbox used since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cpu {
    Quiet,
    Busy,
    /// It cannot be measured here.
    Unknown,
}

/// Heartbeats of its session since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heartbeats {
    None,
    Received,
}

/// What happens to a sandbox that is idle for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// Nothing is lost by it.
    Freeze,
    /// Its commands and shells are lost by it.
    Stop,
    /// The sandbox is deleted.
    EndLease,
}

impl From<Suspend> for Consequence {
    fn from(suspend: Suspend) -> Self {
        match suspend {
            Suspend::Freeze => Self::Freeze,
            Suspend::Stop => Self::Stop,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    Active,
    Idle,
}

/// Decides whether a sandbox is in use.
pub const fn judge(facts: Facts, consequence: Consequence) -> Usage {
    match facts {
        Facts { clients: Clients::Attached, .. }
        | Facts { commands: Commands::WithTimeout, .. }
        | Facts { cpu: Cpu::Busy, .. } => Usage::Active,
        // What uses no processor time loses nothing by a freeze; a stop would kill it.
        Facts { commands: Commands::WithoutTimeout, cpu, .. } => match (consequence, cpu) {
            (Consequence::Stop, _) | (_, Cpu::Unknown | Cpu::Busy) => Usage::Active,
            (Consequence::Freeze, Cpu::Quiet) => Usage::Idle,
            (Consequence::EndLease, Cpu::Quiet) => by_heartbeats(facts.heartbeats),
        },
        // A job in it may be at work.
        Facts { shells: Shells::Running, cpu: Cpu::Unknown, .. } => Usage::Active,
        // A prompt without a client, or nothing at all.
        Facts { commands: Commands::None, .. } => match consequence {
            Consequence::Freeze | Consequence::Stop => Usage::Idle,
            Consequence::EndLease => by_heartbeats(facts.heartbeats),
        },
    }
}

const fn by_heartbeats(heartbeats: Heartbeats) -> Usage {
    match heartbeats {
        Heartbeats::Received => Usage::Active,
        Heartbeats::None => Usage::Idle,
    }
}

/// The part of one processor, as one in so many, from which on processes count as busy.
const BUSY_PART: u32 = 100;

impl Cpu {
    /// Judges how much processor time was used in a time.
    pub fn of(used: std::time::Duration, within: std::time::Duration) -> Self {
        let is_busy = !used.is_zero() && used.saturating_mul(BUSY_PART) >= within;
        if is_busy { Self::Busy } else { Self::Quiet }
    }
}

impl ExecSpec {
    /// Says whether a command ends by itself after some time: its own, or the time without clients.
    pub const fn has_timeout(&self) -> bool {
        self.timeout.is_some() || self.unattended.is_some()
    }
}

impl Life {
    /// Returns which commands run that are not shells.
    pub fn commands(&self) -> Commands {
        if !self.with_timeout.is_empty() {
            return Commands::WithTimeout;
        }
        let is_shell = |exec| self.shells.values().any(|shell| shell == exec);
        let has_commands = self.running.keys().any(|exec| !is_shell(exec));
        if has_commands { Commands::WithoutTimeout } else { Commands::None }
    }

    pub fn shells_running(&self) -> Shells {
        if self.shells.is_empty() { Shells::None } else { Shells::Running }
    }

    /// Says whether a suspension for idleness would take something from a command, whatever else is so.
    pub(crate) fn commands_forbid(&self, consequence: Consequence) -> bool {
        match (self.commands(), consequence) {
            (Commands::WithTimeout, _) | (Commands::WithoutTimeout, Consequence::Stop) => true,
            (Commands::None, _)
            | (Commands::WithoutTimeout, Consequence::Freeze | Consequence::EndLease) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const CLIENTS: [Clients; 2] = [Clients::None, Clients::Attached];
    const COMMANDS: [Commands; 3] =
        [Commands::None, Commands::WithoutTimeout, Commands::WithTimeout];
    const SHELLS: [Shells; 2] = [Shells::None, Shells::Running];
    const CPUS: [Cpu; 3] = [Cpu::Quiet, Cpu::Busy, Cpu::Unknown];
    const HEARTBEATS: [Heartbeats; 2] = [Heartbeats::None, Heartbeats::Received];
    const CONSEQUENCES: [Consequence; 3] =
        [Consequence::Freeze, Consequence::Stop, Consequence::EndLease];

    fn all() -> Vec<Facts> {
        let mut all = Vec::new();
        for clients in CLIENTS {
            for commands in COMMANDS {
                for shells in SHELLS {
                    for cpu in CPUS {
                        for heartbeats in HEARTBEATS {
                            all.push(Facts { clients, commands, shells, cpu, heartbeats });
                        }
                    }
                }
            }
        }
        all
    }

    fn verdicts(facts: Facts) -> String {
        let word = |consequence| match judge(facts, consequence) {
            Usage::Active => 'A',
            Usage::Idle => '-',
        };
        CONSEQUENCES.map(word).iter().collect()
    }

    /// The table of `docs/sandboxes.md`: without clients and heartbeats, by commands, shells and processor time.
    /// Each row says freeze, stop, end of the lease; `A` is active, `-` idle.
    #[test]
    fn without_clients_the_table_says_what_is_use() {
        use Commands::{WithTimeout, WithoutTimeout};
        let rows = [
            (Commands::None, Shells::None, Cpu::Quiet, "---"),
            (Commands::None, Shells::None, Cpu::Busy, "AAA"),
            (Commands::None, Shells::None, Cpu::Unknown, "---"),
            (Commands::None, Shells::Running, Cpu::Quiet, "---"),
            (Commands::None, Shells::Running, Cpu::Busy, "AAA"),
            (Commands::None, Shells::Running, Cpu::Unknown, "AAA"),
            (WithoutTimeout, Shells::None, Cpu::Quiet, "-A-"),
            (WithoutTimeout, Shells::None, Cpu::Busy, "AAA"),
            (WithoutTimeout, Shells::None, Cpu::Unknown, "AAA"),
            (WithoutTimeout, Shells::Running, Cpu::Quiet, "-A-"),
            (WithTimeout, Shells::None, Cpu::Quiet, "AAA"),
            (WithTimeout, Shells::Running, Cpu::Quiet, "AAA"),
        ];
        for (commands, shells, cpu, expected) in rows {
            let (clients, heartbeats) = (Clients::None, Heartbeats::None);
            let facts = Facts { clients, commands, shells, cpu, heartbeats };
            assert_eq!(verdicts(facts), expected, "{facts:?}");
        }
    }

    #[test]
    fn a_client_or_processor_time_or_a_timeout_is_always_use() {
        for facts in all() {
            let is_use = facts.clients == Clients::Attached
                || facts.cpu == Cpu::Busy
                || facts.commands == Commands::WithTimeout;
            if is_use {
                assert_eq!(verdicts(facts), "AAA", "{facts:?}");
            }
        }
    }

    #[test]
    fn heartbeats_keep_the_lease_and_never_keep_a_sandbox_from_its_suspension() {
        for facts in all() {
            let without = verdicts(Facts { heartbeats: Heartbeats::None, ..facts });
            let with = verdicts(Facts { heartbeats: Heartbeats::Received, ..facts });
            let (suspension, lease) = with.split_at(2);
            assert_eq!((suspension, lease), (without.split_at(2).0, "A"), "{facts:?}");
        }
    }

    #[test]
    fn a_stop_is_never_easier_than_a_freeze() {
        for facts in all() {
            let is_active = |consequence| judge(facts, consequence) == Usage::Active;
            assert!(is_active(Consequence::Stop) || !is_active(Consequence::Freeze), "{facts:?}");
        }
    }

    #[test]
    fn one_hundredth_of_a_processor_is_busy() {
        let minute = Duration::from_mins(1);
        for (used, cpu) in
            [(0, Cpu::Quiet), (599, Cpu::Quiet), (600, Cpu::Busy), (90_000, Cpu::Busy)]
        {
            assert_eq!(Cpu::of(Duration::from_millis(used), minute), cpu, "{used}");
        }
        assert_eq!(Cpu::of(Duration::ZERO, Duration::ZERO), Cpu::Quiet);
    }
}
