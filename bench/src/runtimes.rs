//! The interpreters that slots use, as they are run bare.

use std::path::Path;

use crate::program::Program;

/// A language, and what to run in it.
#[derive(Debug)]
pub(crate) struct Runtime {
    /// Its name in an `execute` frame.
    pub(crate) language: &'static str,
    /// Where its interpreter may be; the first that is there is the slot's.
    programs: [&'static str; 2],
    /// The argument that code comes after.
    flag: &'static str,
    /// Prints one line.
    pub(crate) hello: &'static str,
    /// Prints which interpreter runs it: a slot and a bare run must say the same.
    pub(crate) identity: &'static str,
}

pub(crate) const PYTHON: Runtime = Runtime {
    language: "python",
    programs: ["/usr/bin/python3", "/usr/local/bin/python3"],
    flag: "-c",
    hello: "print(1)",
    identity: "import os, sys\n\
        print(sys.executable, sys.version.split()[0], sorted(os.environ.items()))",
};

pub(crate) const NODE: Runtime = Runtime {
    language: "javascript",
    programs: ["/usr/bin/node", "/usr/local/bin/node"],
    flag: "-e",
    hello: "console.log(1)",
    identity: "console.log(process.execPath, process.version, \
        JSON.stringify(Object.entries(process.env).sort()))",
};

pub(crate) const SHELL: Runtime = Runtime {
    language: "shell",
    programs: ["/bin/bash", "/bin/sh"],
    flag: "-c",
    hello: "echo 1",
    identity: r#"echo "$(readlink -f /proc/$$/exe) $BASH_VERSION $PATH $LANG $USER $HOME""#,
};

pub(crate) const ELIXIR: Runtime = Runtime {
    language: "elixir",
    programs: ["/usr/bin/elixir", "/usr/local/bin/elixir"],
    flag: "-e",
    hello: "IO.puts(1)",
    identity: "IO.puts(Enum.join([:code.lib_dir(:elixir), System.version(), \
        :erlang.system_info(:otp_release)], \" \"))",
};

/// Imports what scripts often import.
pub(crate) const IMPORTS: &str = "import json, re, datetime, collections, urllib.request\nprint(1)";

impl Runtime {
    /// Returns the interpreter's absolute path, or why there is none.
    pub(crate) fn path(&self) -> Result<&'static str, String> {
        let found = self.programs.into_iter().find(|program| Path::new(program).is_file());
        found.ok_or_else(|| format!("missing: none of {:?} is there", self.programs))
    }

    /// Returns the program that runs this code bare.
    pub(crate) fn bare(&self, code: &str) -> Result<Program, String> {
        Ok(Program::new([self.path()?, self.flag, code]))
    }
}
