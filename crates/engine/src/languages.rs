//! The languages that executions can be written in. Each is a row: adding one is data.

pub mod added;
mod table;

use std::{os::unix::fs::PermissionsExt as _, path::Path};

use isolate::plan::{Disk, Launch, Program, SlotSpec, WORKSPACE};
use model::{limits::FixedLimits, units::ByteSize};

use crate::tenant_number::tenant_number;
use added::{AddError, Added};

/// A language as this machine has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Language {
    pub name: String,
    /// Below this the runtime cannot start.
    pub min_memory: ByteSize,
    /// The runtime's program and its arguments; `{file}` stands for the path of the code.
    pub command: Vec<String>,
    /// The name of the file that the code is written to, in the working directory.
    pub file: String,
    /// Variables of this language, besides those that every execution has.
    pub env: Vec<(String, String)>,
    /// How slots are made ahead.
    pub warm: Warm,
    /// How many slots wait for requests, at least.
    pub pool_size: usize,
    /// What one of them takes, about.
    pub slot_memory: ByteSize,
    /// What the runtime takes that they are forked from, about; nothing if they are not.
    pub zygote_memory: ByteSize,
    /// Variables that the runtime looks at only when it starts; a `*` at the end stands for any
    /// rest.
    pub start_time_variables: Vec<String>,
    /// Files of ours that the runtime needs, by their path in a slot.
    pub files: Vec<(String, Vec<u8>)>,
}

/// How slots of a language are made ahead of their requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warm {
    /// Not at all.
    Never,
    /// Everything but the runtime is there; it starts with the request.
    Wait,
    /// The runtime has started and waits in its own start-up.
    Park(Program),
    /// The runtime is forked from one that has started.
    Fork(Program),
}

/// The table of languages whose runtimes are installed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Languages {
    rows: Vec<Language>,
}

/// What stands for the path of the code in a command.
const FILE: &str = "{file}";

/// The variables that every execution has.
const ENV: [&str; 4] =
    ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "USER=agbox", "HOME=/home/agbox"];

const MAX_OPEN_FILES: u32 = 1024;

impl Languages {
    /// Returns the built-in languages whose runtimes this machine has.
    pub fn installed() -> Self {
        Self { rows: table::rows(is_executable) }
    }

    /// Adds a language of the operator's, or replaces one that was added; never one that is built
    /// in.
    pub fn with(mut self, added: Added) -> Result<Self, AddError> {
        let language = added.into_language(is_executable)?;
        self.rows.retain(|row| row.name != language.name);
        self.rows.push(language);
        Ok(self)
    }

    /// Leaves out all languages but these.
    #[must_use]
    pub fn only(mut self, names: &[&str]) -> Self {
        self.rows.retain(|row| names.contains(&row.name.as_str()));
        self
    }

    pub fn get(&self, name: &str) -> Option<&Language> {
        self.rows.iter().find(|row| row.name == name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Language> {
        self.rows.iter()
    }
}

impl FromIterator<Language> for Languages {
    fn from_iter<I: IntoIterator<Item = Language>>(rows: I) -> Self {
        Self { rows: rows.into_iter().collect() }
    }
}

impl Language {
    /// Returns whether the runtime looks at this variable only when it starts.
    pub(crate) fn reads_at_start(&self, variable: &str) -> bool {
        self.start_time_variables.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => variable.starts_with(prefix),
            None => variable == pattern,
        })
    }

    /// Returns how to start the runtime with its request, sharing nothing with any other.
    pub(crate) fn launch_anew(&self) -> Launch {
        let code_path = self.code_path();
        let argv = self.command.iter().map(|part| part.replace(FILE, &code_path)).collect();
        Launch::Exec { program: Program { argv, env: self.env() }, code_path }
    }

    /// Returns the variables of every execution; those of the language win.
    fn env(&self) -> Vec<String> {
        let is_own = |variable: &str| {
            self.env.iter().any(|(name, _)| variable.split('=').next() == Some(name))
        };
        let base = base_env().into_iter().filter(|variable| !is_own(variable));
        base.chain(self.env.iter().map(|(name, value)| format!("{name}={value}"))).collect()
    }

    fn code_path(&self) -> String {
        format!("{WORKSPACE}/{}", self.file)
    }
}

/// Returns what a slot of any language looks like, but for its program.
pub(crate) fn slot_spec(launch: Launch, tenant: &str, limits: FixedLimits) -> SlotSpec {
    SlotSpec {
        launch,
        tenant: tenant_number(tenant),
        disk: Disk { bytes: limits.disk.as_bytes(), inodes: limits.inodes },
        max_processes: limits.processes,
        max_open_files: MAX_OPEN_FILES,
    }
}

fn base_env() -> Vec<String> {
    ENV.iter().map(ToString::to_string).collect()
}

fn is_executable(program: &str) -> bool {
    Path::new(program)
        .metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o001 != 0)
}
