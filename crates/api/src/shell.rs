//! Shells over WebSocket. All frames but `start` are those of [`crate::exec`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    exec::{Command, Encoding},
    fathom::server::signal_number,
};

/// Which shell to join: the fields of a `start` frame. One that is not there is started.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Whether the screen comes as a `screen` frame. If absent it does for clients that say `name`, `exec_id`,
    /// `encoding` or `stdout_offset`; others get it as `stdout`.
    pub screen: Option<bool>,
}

impl Start {
    /// Tells whether a client knows more than the protocols as they were written, which have no `screen`.
    pub fn knows_screens(&self) -> bool {
        let says_more = self.name.is_some() || self.exec_id.is_some() || self.encoding.is_some();
        self.screen.unwrap_or(says_more || self.stdout_offset.is_some())
    }
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

/// What a client of a command or a shell receives: the text frames of [`crate::exec::ServerFrame`]. Output
/// comes in binary messages if the client asked for that encoding.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Told {
    Ready {
        exec_id: String,
        /// Only a shell can be read-only.
        #[serde(default = "yes")]
        can_write: bool,
    },
    /// These bytes of a stream are no longer kept.
    Gap {
        stream: String,
        offset: u64,
        length: u64,
    },
    Exit(Ended),
    Error {
        code: String,
        message: String,
        retryable: bool,
    },
    TokenExpiring {
        expires_at: String,
    },
    /// What clients of this version have no use for.
    #[serde(other)]
    Other,
}

fn yes() -> bool {
    true
}

/// How a command or a shell ended, as a client reads it: [`crate::exec::Exit`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Ended {
    pub exit_code: Option<i32>,
    /// With `SIG` before its name.
    #[serde(default)]
    pub signal: Option<String>,
    pub reason: String,
    #[serde(default)]
    pub message: Option<String>,
}

impl Ended {
    /// Returns the number of the signal that ended it, on Linux.
    pub fn signal_number(&self) -> Option<i32> {
        signal_number(self.signal.as_deref()?.trim_start_matches("SIG"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::{ClientFrame, Exit, ServerFrame, ShellReady};

    fn told(frame: &ServerFrame<'_>) -> Told {
        serde_json::from_str(&serde_json::to_string(frame).unwrap()).unwrap()
    }

    #[test]
    fn what_the_server_says_is_what_its_clients_read() {
        let shell = Some(ShellReady { name: "a", rows: 1, cols: 2, can_write: true });
        let ready = ServerFrame::Ready { exec_id: "ex_1", pid: None, shell };
        assert_eq!(told(&ready), Told::Ready { exec_id: "ex_1".to_owned(), can_write: true });
        let exit = Exit {
            exit_code: None,
            signal: Some("SIGKILL".to_owned()),
            reason: "signaled",
            message: None,
            usage: None,
        };
        let ended = Ended {
            exit_code: None,
            signal: Some("SIGKILL".to_owned()),
            reason: "signaled".to_owned(),
            message: None,
        };
        assert_eq!(told(&ServerFrame::Exit(exit)), Told::Exit(ended));
        assert_eq!(told(&ServerFrame::Pong { id: None }), Told::Other);
        let ready = ServerFrame::Ready { exec_id: "ex_1", pid: Some(7), shell: None };
        assert_eq!(told(&ready), Told::Ready { exec_id: "ex_1".to_owned(), can_write: true });
        let gap = ServerFrame::Gap { stream: "stderr", offset: 3, length: 4 };
        let expected = Told::Gap { stream: "stderr".to_owned(), offset: 3, length: 4 };
        assert_eq!(told(&gap), expected);
    }

    #[test]
    fn what_a_client_says_is_what_the_server_reads() {
        let start = Start { name: Some("a".to_owned()), rows: Some(3), ..Start::default() };
        let frame = ClientFrame::Start(Box::new(start));
        let text = serde_json::to_string(&frame).unwrap();
        assert!(serde_json::from_str::<ClientFrame<Start>>(&text).unwrap() == frame);
        let command = Some(Command::Arguments(vec!["true".to_owned()]));
        let start = crate::exec::Start { command, ..crate::exec::Start::default() };
        let frame: ClientFrame = ClientFrame::Start(Box::new(start));
        let text = serde_json::to_string(&frame).unwrap();
        assert!(serde_json::from_str::<ClientFrame>(&text).unwrap() == frame);
    }
}
