//! Shells over WebSocket. All frames but `start` are those of [`crate::exec`].

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::exec::{Command, Encoding};

/// Which shell to join: the fields of a `start` frame. One that is not there is started.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Start {
    /// 1 to 64 letters, digits, `-` and `_`; `default` if nobody says.
    pub name: Option<String>,
    /// Joins the shell of this id, which has to be there. Neither a name nor a command goes with it.
    pub exec_id: Option<String>,
    /// What is run, if it has to be started: `/bin/bash`, or `/bin/sh` where there is none.
    pub command: Option<Command>,
    /// An absolute path; `/workspace` if nobody says.
    pub cwd: Option<String>,
    pub env: BTreeMap<String, String>,
    /// `agbox`, `root` or a number.
    pub user: Option<String>,
    /// How large the terminal of one that is started is: 24 rows and 80 columns if nobody says.
    pub rows: Option<i64>,
    pub cols: Option<i64>,
    /// In which form output comes.
    pub encoding: Option<Encoding>,
    /// Goes on at this byte of the output, without a `screen` before it.
    pub stdout_offset: Option<u64>,
}

/// Command and env are the user's: they never appear in a log line.
impl std::fmt::Debug for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, exec_id) = (&self.name, &self.exec_id);
        f.debug_struct("Start")
            .field("name", name)
            .field("exec_id", exec_id)
            .finish_non_exhaustive()
    }
}
