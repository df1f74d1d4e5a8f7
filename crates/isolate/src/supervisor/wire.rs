//! What a daemon and the supervisor of a sandbox say to each other.
//!
//! Each message is one packet of a SEQPACKET connection: the version, then the message. A daemon
//! may be of another build than the supervisor that it finds: messages of a version are therefore
//! never changed, and a test holds their bytes. A new version gets a number of its own, and daemons
//! go on speaking the last one to the supervisors that know no other. A message may be added behind
//! the others if nobody is harmed who does not know it: `Connect` comes on a connection of its own,
//! which is all that a supervisor without it closes.
//!
//! ```text
//! daemon ── Hello ──▶ supervisor ── Welcome, then every exec that was not forgotten
//!        ── Prepare ▶
//!        ── Start ──▶            ── Started, or Ended if it cannot be
//!        ── Pace ───▶            ── Output, whenever there is more
//!        ── OpenInput ▶          ── Input, with where to write
//!                                ── Ended, once
//!        ── Forget ─▶
//!
//! daemon ── Connect ▶ supervisor ── Connecting, with a socket, or NotConnecting
//! daemon ── Files ──▶ supervisor ── Files, with a socket, or NoFiles
//! ```
//!
//! The supervisor keeps no queue. It remembers what it has told of each exec, and tells the rest
//! when there is room; so a daemon that is slow, or gone for a while, misses nothing.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::plan::{Broken, Exit};

/// The version of these messages.
pub const VERSION: u8 = 1;

/// The longest id of an exec.
pub const MAX_ID: usize = 200;

/// The most execs that run, or have ended and were not forgotten, in one sandbox.
pub const MAX_EXECS: usize = 512;

/// What begins like this is the server's own, again and again: its output goes when it is
/// forgotten. No exec of a caller has such an id.
pub const UNKEPT: &str = "_check-";

/// What only the daemon of a sandbox and its supervisor know.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub [u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// What a daemon says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// First of all. Whoever does not know the secret is not answered.
    Hello {
        secret: Secret,
    },
    /// An id that is known already changes nothing, and is answered with how it stands.
    Start(Box<Start>),
    Signal {
        exec: String,
        signal: i32,
        whom: Whom,
    },
    /// Asks for the writing end of the exec's stdin, which comes along with the answer.
    OpenInput {
        exec: String,
    },
    /// Nobody writes to the exec's stdin any more.
    CloseInput {
        exec: String,
    },
    /// The end of the exec is on disk elsewhere.
    Forget {
        exec: String,
    },
    /// Ends everything, and then the supervisor.
    Stop {
        grace: Duration,
    },
    /// In the place of `Hello`, and the last word on its connection: asks for a socket that is
    /// being connected to a port inside.
    Connect {
        secret: Secret,
        port: u16,
        at: Loopback,
    },
    /// Says what somebody still wants to read: it is kept, and while there is no room for more the
    /// exec waits. Nothing: the oldest goes for the newest.
    Pace {
        exec: String,
        wanted: Option<Wanted>,
    },
    /// Removes the output of an exec that was forgotten.
    Clear {
        exec: String,
    },
    /// Another message, too long for a packet, is in the file that comes along.
    InFile,
    /// Like `Connect`: asks for a process inside that works on files, as this user. What is said to
    /// it is in [`crate::files::wire`].
    Files {
        secret: Secret,
        user: User,
    },
    /// What will be asked for next, if it is: everything that can be done for it is done. It becomes the command when `Start`
    /// says the same, and nothing if anything else is said. Only for a supervisor that is known to know it.
    Prepare(Box<Start>),
}

/// From where on the output of an exec is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    pub stdout: u64,
    pub stderr: u64,
}

/// Where inside a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Loopback {
    V4,
    V6,
}

/// A command to run.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub exec: String,
    /// Looked for in `PATH` if it has no slash.
    pub argv: Vec<String>,
    /// Everything that it finds in its environment, as `KEY=VALUE`.
    pub env: Vec<String>,
    pub directory: String,
    pub user: User,
    /// How much of each stream is kept at most.
    pub keep: u64,
    pub input: Input,
    /// With one all streams are the terminal, and what it shows is kept as stdout.
    pub terminal: Option<Size>,
    /// Everything that it has started is killed after this time.
    pub at_most: Option<Duration>,
    /// What somebody wants to read from the beginning, before a `Pace` could say so.
    pub wanted: Option<Wanted>,
}

/// What an exec finds at its stdin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// What somebody writes, now or later.
    Open,
    /// The end.
    Closed,
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    pub rows: u16,
    pub columns: u16,
}

/// Command and env are the user's: they never appear in a log line.
impl std::fmt::Debug for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Start").field("exec", &self.exec).finish_non_exhaustive()
    }
}

/// Who runs a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum User {
    /// Without any right.
    Plain { user: u32, group: u32 },
    /// User 0 inside, with the few rights that installing packages takes.
    Root,
}

/// Who gets a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whom {
    /// The command's own process.
    Leader,
    /// Its process group; with a terminal the group that is in the foreground there.
    Group,
    /// Everything that it has started, wherever that went.
    All,
}

/// What a supervisor says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tell {
    /// The answer to `Hello`: whose supervisor this is, and how many execs it knows. They follow.
    Welcome {
        sandbox: String,
        execs: u32,
    },
    Known(Known),
    Started {
        exec: String,
        pid: u32,
    },
    Output {
        exec: String,
        written: Written,
    },
    Ended {
        exec: String,
        end: End,
    },
    /// Comes with a descriptor, unless stdin is closed or the exec is over. It does not block; of a
    /// terminal it is the end that people sit at.
    Input {
        exec: String,
    },
    /// What was asked for cannot be done.
    Refused {
        exec: String,
        why: Refusal,
    },
    /// Nothing is left in the sandbox. The supervisor ends after this.
    Stopped,
    /// The answer to `Connect`. It comes with a socket that does not block; whether somebody is
    /// there shows when it can be written to.
    Connecting,
    /// The other answer to it.
    NotConnecting {
        errno: i32,
    },
    /// The answer to `Files`. It comes with the socket of a process that is being started.
    Files,
    /// The other answer to it.
    NoFiles {
        errno: i32,
    },
}

/// An exec as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    pub exec: String,
    /// Inside the sandbox. None before it has started.
    pub pid: Option<u32>,
    pub written: Written,
    pub end: Option<End>,
}

/// How far an exec's output has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    pub stdout: Stored,
    pub stderr: Stored,
}

/// How much of a stream there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// The first byte that is still kept; what was before it is gone.
    pub start: u64,
    /// One past the last byte that was kept.
    pub end: u64,
    /// Bytes after that which could not be kept, because the disk was full or broken.
    pub lost: u64,
}

/// How an exec ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// By the kernel's word. All output is in `written`.
    Exited { exit: Exit, usage: Usage, written: Written },
    /// It never became the command.
    NotStarted(Broken),
    /// It was killed at the end of its time, and is gone by the kernel's word.
    TimedOut { usage: Usage, written: Written },
}

/// What an exec's process and those that it waited for have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub cpu_time: Duration,
    /// Of the largest of them, in bytes.
    pub peak_memory: u64,
}

/// Why something is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    NoSuchExec,
    TooManyExecs,
    /// The id of an exec becomes the name of a file.
    BadId,
    /// The sandbox is being stopped.
    Stopping,
}

/// A packet could not be understood.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("a message of version {found}, this is version {VERSION}")]
    Version { found: u8 },
    #[error("a message that cannot be read")]
    Malformed(#[source] postcard::Error),
    #[error("an empty message")]
    Empty,
}

/// Encodes a message.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, WireError> {
    postcard::to_extend(message, vec![VERSION]).map_err(WireError::Malformed)
}

/// Decodes a packet.
pub fn decode<T: serde::de::DeserializeOwned>(packet: &[u8]) -> Result<T, WireError> {
    match packet.split_first() {
        None => Err(WireError::Empty),
        Some((&VERSION, rest)) => postcard::from_bytes(rest).map_err(WireError::Malformed),
        Some((&found, _)) => Err(WireError::Version { found }),
    }
}

/// Whether an id can be the name of a file, and of a control group.
pub fn is_good_id(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=MAX_ID).contains(&id.len()) && id.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Step;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn messages_of_this_version_are_these_bytes_for_ever() {
        let start = Start {
            exec: "ex".into(),
            argv: vec!["ls".into()],
            env: vec!["A=1".into()],
            directory: "/".into(),
            user: User::Plain { user: 1000, group: 1000 },
            keep: 64 << 20,
            input: Input::Closed,
            terminal: Some(Size { rows: 24, columns: 80 }),
            at_most: Some(Duration::from_secs(1)),
            wanted: Some(Wanted { stdout: 0, stderr: 0 }),
        };
        let asks = [
            (Ask::Hello { secret: Secret([7; 32]) }, format!("0100{}", "07".repeat(32))),
            (
                Ask::Start(Box::new(start.clone())),
                "0101026578 01026c73 0103413d31 012f 00e807e807 80808020 01 011850 010100 010000"
                    .into(),
            ),
            (
                Ask::Signal { exec: "ex".into(), signal: 15, whom: Whom::All },
                "01020265781e02".into(),
            ),
            (Ask::OpenInput { exec: "ex".into() }, "0103026578".into()),
            (Ask::CloseInput { exec: "ex".into() }, "0104026578".into()),
            (Ask::Forget { exec: "ex".into() }, "0105026578".into()),
            (Ask::Stop { grace: Duration::from_secs(10) }, "01060a00".into()),
            (
                Ask::Connect { secret: Secret([7; 32]), port: 8080, at: Loopback::V6 },
                format!("0107{} 903f 01", "07".repeat(32)),
            ),
            (Ask::Pace { exec: "ex".into(), wanted: None }, "0108026578 00".into()),
            (
                Ask::Pace { exec: "ex".into(), wanted: Some(Wanted { stdout: 1, stderr: 2 }) },
                "0108026578 01 01 02".into(),
            ),
            (Ask::Clear { exec: "ex".into() }, "0109026578".into()),
            (Ask::InFile, "010a".into()),
            (
                Ask::Files { secret: Secret([7; 32]), user: User::Root },
                format!("010b{} 01", "07".repeat(32)),
            ),
            (
                Ask::Prepare(Box::new(start.clone())),
                "010c026578 01026c73 0103413d31 012f 00e807e807 80808020 01 011850 010100 010000"
                    .into(),
            ),
        ];
        for (ask, bytes) in asks {
            assert_eq!(hex(&encode(&ask).unwrap()), bytes.replace(' ', ""), "{ask:?}");
            assert_eq!(decode::<Ask>(&encode(&ask).unwrap()).unwrap(), ask);
        }
        let written = Written {
            stdout: Stored { start: 1, end: 2, lost: 3 },
            stderr: Stored { start: 4, end: 5, lost: 6 },
        };
        let usage = Usage { cpu_time: Duration::from_nanos(9), peak_memory: 5 };
        let end = End::Exited { exit: Exit::Code(7), usage, written };
        let timed_out = End::TimedOut { usage, written };
        let not_started = End::NotStarted(Broken { step: Step::Plan, errno: 2 });
        let known = Known { exec: "ex".into(), pid: Some(2), written, end: Some(end.clone()) };
        let tells = [
            (Tell::Welcome { sandbox: "sb".into(), execs: 1 }, "010002736201".to_owned()),
            (
                Tell::Known(known),
                "0101026578 0102 010203040506 01 00 000e 0009 05 010203040506".into(),
            ),
            (Tell::Started { exec: "ex".into(), pid: 2 }, "010202657802".into()),
            (Tell::Output { exec: "ex".into(), written }, "0103026578 010203040506".into()),
            (
                Tell::Ended { exec: "ex".into(), end },
                "0104026578 00 000e 0009 05 010203040506".into(),
            ),
            (
                Tell::Ended { exec: "ex".into(), end: timed_out },
                "0104026578 02 0009 05 010203040506".into(),
            ),
            (Tell::Ended { exec: "ex".into(), end: not_started }, "0104026578 01 00 04".into()),
            (Tell::Input { exec: "ex".into() }, "0105026578".into()),
            (Tell::Refused { exec: "ex".into(), why: Refusal::Stopping }, "010602657803".into()),
            (Tell::Stopped, "0107".into()),
            (Tell::Connecting, "0108".into()),
            (Tell::NotConnecting { errno: 111 }, "0109de01".into()),
            (Tell::Files, "010a".into()),
            (Tell::NoFiles { errno: 11 }, "010b16".into()),
        ];
        for (tell, bytes) in tells {
            assert_eq!(hex(&encode(&tell).unwrap()), bytes.replace(' ', ""), "{tell:?}");
            assert_eq!(decode::<Tell>(&encode(&tell).unwrap()).unwrap(), tell);
        }
    }

    #[test]
    fn another_version_and_a_cut_message_are_refused() {
        let mut packet = encode(&Ask::OpenInput { exec: "ex".into() }).unwrap();
        for end in 0..packet.len() {
            assert!(decode::<Ask>(&packet[..end]).is_err(), "{end}");
        }
        packet[0] = 2;
        assert!(matches!(decode::<Ask>(&packet), Err(WireError::Version { found: 2 })));
    }

    #[test]
    fn an_id_is_a_plain_name() {
        for good in ["a", "ex_1", "A-b", &"x".repeat(MAX_ID)] {
            assert!(is_good_id(good), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a.b", "ü", "a b", "a\0", &"x".repeat(MAX_ID + 1)] {
            assert!(!is_good_id(bad), "{bad}");
        }
    }
}
