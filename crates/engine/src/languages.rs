//! The languages that executions can be written in. Each is a row: adding one is data.

use std::{os::unix::fs::PermissionsExt as _, path::Path};

use isolate::plan::{Disk, HOME, Launch, Program, SlotSpec, WORKSPACE};
use model::units::ByteSize;

/// A language as this machine has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Language {
    pub name: String,
    /// Below this the runtime cannot start.
    pub min_memory: ByteSize,
    /// The runtime's program and its arguments; the path of the code comes last.
    pub command: Vec<String>,
    /// The name of the file that the code is written to, in the working directory.
    pub file: String,
}

/// The table of languages whose runtimes are installed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Languages {
    rows: Vec<Language>,
}

/// A row as it is built in: where the runtime may be, in order of preference.
struct BuiltIn {
    name: &'static str,
    programs: &'static [&'static str],
    arguments: &'static [&'static str],
    file: &'static str,
    min_memory: ByteSize,
}

const BUILT_IN: &[BuiltIn] = &[
    BuiltIn {
        name: "python",
        programs: &["/usr/bin/python3", "/usr/local/bin/python3"],
        arguments: &[],
        file: "main.py",
        min_memory: ByteSize::mib(16),
    },
    BuiltIn {
        name: "javascript",
        programs: &["/usr/bin/node", "/usr/local/bin/node"],
        arguments: &[],
        file: "main.js",
        min_memory: ByteSize::mib(64),
    },
    BuiltIn {
        name: "shell",
        programs: &["/bin/bash", "/bin/sh"],
        arguments: &[],
        file: "main.sh",
        min_memory: ByteSize::mib(16),
    },
    BuiltIn {
        name: "elixir",
        programs: &["/usr/bin/elixir", "/usr/local/bin/elixir"],
        arguments: &[],
        file: "main.exs",
        min_memory: ByteSize::mib(128),
    },
];

/// The variables that every execution has.
const ENV: &[&str] =
    &["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "USER=agbox", "HOME=/home/agbox"];

/// What the writable layer of an execution may hold.
const DISK: Disk = Disk { bytes: 64 << 20, inodes: 16 * 1024 };

const MAX_OPEN_FILES: u32 = 1024;

impl Languages {
    /// Returns the built-in languages whose runtimes this machine has.
    pub fn installed() -> Self {
        Self { rows: BUILT_IN.iter().filter_map(BuiltIn::find).collect() }
    }

    /// Adds a language, or replaces the one of that name.
    #[must_use]
    pub fn with(mut self, language: Language) -> Self {
        self.rows.retain(|row| row.name != language.name);
        self.rows.push(language);
        self
    }

    pub fn get(&self, name: &str) -> Option<&Language> {
        self.rows.iter().find(|row| row.name == name)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().map(|row| row.name.as_str())
    }
}

impl BuiltIn {
    fn find(&self) -> Option<Language> {
        let program = self.programs.iter().find(|program| is_executable(program))?;
        let command = std::iter::once(program).chain(self.arguments).map(ToString::to_string);
        Some(Language {
            name: self.name.to_owned(),
            min_memory: self.min_memory,
            command: command.collect(),
            file: self.file.to_owned(),
        })
    }
}

impl Language {
    /// Returns what a slot for this language looks like.
    pub(crate) fn slot_spec(&self) -> SlotSpec {
        let code_path = format!("{WORKSPACE}/{}", self.file);
        let argv = self.command.iter().cloned().chain([code_path.clone()]).collect();
        debug_assert!(ENV.iter().any(|variable| variable.ends_with(HOME)));
        SlotSpec {
            launch: Launch::Exec {
                program: Program { argv, env: ENV.iter().map(ToString::to_string).collect() },
                code_path,
            },
            disk: DISK,
            max_processes: max_processes(),
            max_open_files: MAX_OPEN_FILES,
        }
    }
}

/// Runtimes start threads per processor, so the room for them grows with the machine.
fn max_processes() -> u32 {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(64 + 8 * processors).unwrap_or(u32::MAX)
}

fn is_executable(program: &str) -> bool {
    Path::new(program)
        .metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o001 != 0)
}
