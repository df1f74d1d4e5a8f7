//! What a caller asks a sandbox or an exec to be, after every field was checked. Once accepted, that of
//! an exec is never changed, and that of a sandbox only by an [`crate::adjustment::Adjustment`].

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    ids::{ShellName, SnapshotId},
    units::ByteSize,
};

/// Names and values; the values are the user's secrets.
pub type Variables = BTreeMap<String, String>;

/// What a sandbox is made of.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxSpec {
    #[serde(skip_serializing_if = "Provider::is_local")]
    pub provider: Provider,
    pub image: String,
    pub labels: BTreeMap<String, String>,
    pub env: Variables,
    /// The main process; empty means the one that waits.
    pub command: Vec<String>,
    pub mounts: Vec<Mount>,
    pub copies: Vec<Copy>,
    pub ports: Vec<Port>,
    pub tools: Vec<String>,
    pub companions: Vec<Companion>,
    pub resources: Resources,
    /// `None` means that the sandbox never ends by being idle.
    pub idle: Option<Idle>,
    /// `None` is the operator's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_stopped: Option<KeepStopped>,
    #[serde(skip_serializing_if = "RunAs::is_usual")]
    pub run: RunAs,
    /// The snapshot that image and defaults were taken from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotId>,
    /// What that snapshot was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_name: Option<String>,
    /// Who asked for it, as the audit log writes it, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// Who adjusted it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_by: Option<String>,
}

/// How commands are run that do not say it themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunAs {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

impl RunAs {
    /// The names of the user 0 inside.
    pub const ROOT: [&str; 2] = ["root", "0"];

    fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// Whether commands are run as root inside.
    pub fn is_root(&self) -> bool {
        self.user.as_deref().is_some_and(|user| Self::ROOT.contains(&user))
    }
}

/// How long a sandbox is kept after it has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepStopped {
    Forever,
    For(Duration),
}

/// Where a sandbox runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// The server's own engine.
    #[default]
    Local,
    /// Containers of a Docker engine on the same machine.
    Docker,
}

impl Provider {
    pub const ALL: [Self; 2] = [Self::Local, Self::Docker];

    /// Returns the name that is shown and that callers choose it by.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Docker => "docker",
        }
    }

    /// Returns the provider that a caller would rather have. One that nobody here knows is a wish that
    /// cannot be granted, as is none.
    pub fn preferred(name: &str) -> Self {
        let named = Self::ALL.into_iter().find(|provider| provider.name() == name);
        named.unwrap_or_default()
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
    fn is_local(&self) -> bool {
        *self == Self::Local
    }
}

/// Env is the user's secret: it never appears in a log line.
impl fmt::Debug for SandboxSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxSpec")
            .field("provider", &self.provider)
            .field("image", &self.image)
            .field("labels", &self.labels)
            .field("resources", &self.resources)
            .field("idle", &self.idle)
            .finish_non_exhaustive()
    }
}

/// A file or directory of the host that shows inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    pub source: String,
    pub target: String,
    pub access: Access,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    ReadOnly,
    Writable,
}

/// A file or directory of the host that is copied in once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy {
    pub source: String,
    pub target: String,
    pub exclude_patterns: Vec<String>,
}

/// A port inside that is published on the host's loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    pub inside: u16,
    pub host: u16,
    pub protocol: Protocol,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

/// A further sandbox that the primary one reaches by its name.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Companion {
    pub name: String,
    pub image: String,
    pub env: Variables,
    pub command: Vec<String>,
    pub resources: Resources,
    pub healthcheck: Option<Healthcheck>,
    pub post_start_on_primary: Vec<String>,
}

impl fmt::Debug for Companion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Companion")
            .field("name", &self.name)
            .field("image", &self.image)
            .field("resources", &self.resources)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Healthcheck {
    pub test: Vec<String>,
    pub interval: Option<Duration>,
    pub timeout: Option<Duration>,
    pub retries: Option<u32>,
    pub start_period: Option<Duration>,
    pub start_interval: Option<Duration>,
}

/// What a sandbox may use. `None` is the operator's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Resources {
    pub millicores: Option<u64>,
    pub memory: Option<ByteSize>,
    pub disk: Option<ByteSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
}

/// How long nobody may use a sandbox, and what happens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idle {
    pub after: Duration,
    pub then: Suspend,
}

/// The two ways to put a sandbox to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Suspend {
    /// Processes stay where they stand.
    Freeze,
    /// Processes end, files stay.
    Stop,
}

/// One command to run in a sandbox.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExecSpec {
    pub command: Vec<String>,
    /// Empty: where the sandbox's commands are run.
    pub working_directory: String,
    /// Where it is run if neither it nor its sandbox says.
    #[serde(skip_serializing_if = "ElseIn::is_workspace")]
    pub else_in: ElseIn,
    pub env: Variables,
    pub user: Option<String>,
    #[serde(skip_serializing_if = "Input::is_open")]
    pub input: Input,
    /// With one all its streams are the terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalSize>,
    /// How long it may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// How long it may run while nobody watches it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unattended: Option<Duration>,
    /// How long it can be read after its end. As long as its sandbox, if nobody says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readable: Option<Duration>,
    #[serde(skip_serializing_if = "OnFull::is_drop")]
    pub on_full: OnFull,
    /// With one it is a shell, which others find by this name while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellName>,
}

/// Where commands are run of which nobody says it. The surface's contract says which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ElseIn {
    #[default]
    Workspace,
    Home,
}

impl ElseIn {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
    fn is_workspace(&self) -> bool {
        *self == Self::Workspace
    }
}

/// What becomes of a command when there is no more room for its output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFull {
    /// The oldest output goes.
    #[default]
    Drop,
    /// It waits until somebody who watches it has read, from its beginning on.
    Wait,
}

impl OnFull {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
    fn is_drop(&self) -> bool {
        *self == Self::Drop
    }
}

/// What a command finds at its stdin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// What somebody writes, now or later.
    #[default]
    Open,
    /// The end.
    Closed,
}

impl Input {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
    fn is_open(&self) -> bool {
        *self == Self::Open
    }
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

impl TerminalSize {
    /// What a terminal has if nobody says.
    pub const USUAL: Self = Self { rows: 24, columns: 80 };

    /// The most rows and columns that a terminal has.
    pub const MOST: u16 = 1000;

    /// Returns a size that a terminal can have.
    #[must_use]
    pub fn clamped(rows: u32, columns: u32) -> Self {
        let clamp =
            |number: u32| u16::try_from(number.clamp(1, Self::MOST.into())).unwrap_or(Self::MOST);
        Self { rows: clamp(rows), columns: clamp(columns) }
    }

    /// The most characters on the screen of a shell, which the server keeps.
    pub const MOST_SHOWN: u16 = u16::MAX;

    /// Returns the size that the terminal of a shell gets: as wide, and as high as there is room for.
    #[must_use]
    pub fn of_shell(self) -> Self {
        let Self { rows, columns } = Self::clamped(self.rows.into(), self.columns.into());
        Self { rows: rows.min(Self::MOST_SHOWN / columns), columns }
    }
}

/// Command and env are the user's: they never appear in a log line.
impl fmt::Debug for ExecSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecSpec").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_that_nobody_knows_is_a_wish_and_no_more() {
        let rows = [("docker", Provider::Docker), ("local", Provider::Local)];
        let others = ["auto", "", "Docker", "langsmith"].map(|name| (name, Provider::Local));
        for (name, expected) in rows.into_iter().chain(others) {
            assert_eq!(Provider::preferred(name), expected, "{name}");
        }
    }

    #[test]
    fn a_terminal_has_at_least_one_character_and_a_shells_no_more_than_is_kept() {
        let rows = [
            ((24, 80), (24, 80)),
            ((0, 0), (1, 1)),
            ((1000, 65), (1000, 65)),
            ((1000, 1000), (65, 1000)),
            ((140, 468), (140, 468)),
        ];
        for ((rows, columns), (expected_rows, expected_columns)) in rows {
            let expected = TerminalSize { rows: expected_rows, columns: expected_columns };
            assert_eq!(TerminalSize { rows, columns }.of_shell(), expected);
        }
    }
}
