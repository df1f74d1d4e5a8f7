//! What a daemon and an agent for files say to each other.
//!
//! Each message is one packet: the version, then the message. An agent is of the build of its
//! sandbox's supervisor, which may be older than the daemon: messages of a version are therefore never
//! changed, new ones come behind the others, and a test holds their bytes.
//!
//! ```text
//! Open ───────────────▶ Opened, with a descriptor
//! Stat ───────────────▶ Stat
//! List, Glob ─────────▶ Entries …, Finished
//! Grep ───────────────▶ Matches …, Finished
//! Begin ──────────────▶ Begun, with a descriptor to write to; then Commit or Abandon ▶ Done
//! MakeDirectory, Move, Remove ▶ Done
//! Watch ──────────────▶ Watching, then Events for as long as the socket is open
//! anything ───────────▶ Failed
//! ```

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::supervisor::wire::WireError;

/// The version of these messages.
pub const VERSION: u8 = 1;

/// The most entries of a directory that are told at once.
pub const MAX_PAGE: u32 = 1000;

/// The most entries or lines that one search finds.
pub const MAX_FOUND: u32 = 10_000;

/// The most that is told of a line.
pub const MAX_LINE: usize = 2000;

/// The most directories that one agent watches.
pub const MAX_WATCHED: usize = 8192;

/// A place in the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct At {
    /// What must not be left: `/`, or a directory that whoever asks is confined to.
    pub root: Vec<u8>,
    /// From there, without a slash at either end. Empty for the root itself.
    pub path: Vec<u8>,
}

/// What an agent is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    Open {
        at: At,
    },
    /// Of what a link leads to, or of the link itself.
    Stat {
        at: At,
        follow: bool,
    },
    /// The names after this one, in the order of their bytes.
    List {
        at: At,
        after: Option<Vec<u8>>,
        limit: u32,
    },
    /// With `parents`, directories on the way are made if they are missing.
    Begin {
        at: At,
        condition: Condition,
        parents: bool,
    },
    /// Puts what was written in its place. Without a mode it keeps that of what it replaces.
    Commit {
        mode: Option<u32>,
    },
    Abandon,
    MakeDirectory {
        at: At,
        parents: bool,
        mode: Option<u32>,
    },
    /// With `replace`, a file may be in its new place.
    Move {
        from: At,
        to: At,
        condition: Condition,
        replace: bool,
    },
    /// With `recursive`, a directory goes with everything in it.
    Remove {
        at: At,
        recursive: bool,
        condition: Condition,
    },
    /// What has a path that one of the patterns means.
    Glob {
        at: At,
        patterns: Vec<Vec<u8>>,
        limit: u32,
    },
    /// The lines that this stands in, of files whose name or path one of the patterns means.
    Grep {
        at: At,
        text: Vec<u8>,
        patterns: Vec<Vec<u8>>,
        limit: u32,
    },
    Watch {
        at: At,
        recursive: bool,
    },
}

/// What has to be so for something to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// It has to be there, as one of these.
    pub is: Option<Tags>,
    /// It must not be there, or as none of these.
    pub is_not: Option<Tags>,
}

/// Versions of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tags {
    Any,
    /// As [`Stat::tag`] has them.
    These(Vec<String>),
}

impl Condition {
    /// Whether it holds for what is there.
    pub fn holds_for(&self, there: Option<&Stat>) -> bool {
        let is = self.is.as_ref().is_none_or(|tags| tags.has(there));
        is && !self.is_not.as_ref().is_some_and(|tags| tags.has(there))
    }
}

impl Tags {
    fn has(&self, there: Option<&Stat>) -> bool {
        match (self, there) {
            (_, None) => false,
            (Self::Any, Some(_)) => true,
            (Self::These(tags), Some(there)) => tags.contains(&there.tag()),
        }
    }
}

/// What is known of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    pub kind: Kind,
    pub size: u64,
    /// The twelve lowest bits.
    pub mode: u32,
    pub user: u32,
    pub group: u32,
    pub inode: u64,
    pub modified: Moment,
    pub changed: Moment,
}

impl Stat {
    /// Names this version of the file: whatever changes it changes this.
    pub fn tag(&self) -> String {
        let Self { inode, size, modified, changed, .. } = self;
        let moment = |at: &Moment| format!("{:x}.{:x}", at.seconds, at.nanos);
        format!("{inode:x}-{size:x}-{}-{}", moment(modified), moment(changed))
    }
}

/// A time, since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    pub seconds: i64,
    pub nanos: u32,
}

/// What something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    Device,
    Unknown,
}

/// What an agent answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Comes with a descriptor of a regular file, to read from.
    Opened(Stat),
    Stat(Stat),
    /// What is there now. Comes with a descriptor of a regular file, to write to.
    Begun(Option<Stat>),
    /// What is there now.
    Done(Option<Stat>),
    Entries(Vec<Entry>),
    Matches(Vec<Match>),
    Finished(Finished),
    Watching {
        directories: u32,
    },
    Events(Vec<Event>),
    Failed(Fault),
}

/// A name, or a path from where the search began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub path: Vec<u8>,
    pub kind: Kind,
    /// Nothing if it was gone, or may not be looked at.
    pub stat: Option<Stat>,
}

/// A line that was found. Its text is never in a log line.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Match {
    pub path: Vec<u8>,
    /// From 1.
    pub line: u64,
    /// Cut at [`MAX_LINE`].
    pub text: Vec<u8>,
}

impl std::fmt::Debug for Match {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Match").field("line", &self.line).finish_non_exhaustive()
    }
}

/// The end of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// Whether there is more than was told.
    pub more: bool,
    /// Directories and files that could not be looked into.
    pub unreadable: u32,
}

/// Something that has happened to a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    Created {
        path: Vec<u8>,
        is_directory: bool,
    },
    /// Its bytes, and whoever wrote them is done, or its attributes.
    Changed {
        path: Vec<u8>,
    },
    Deleted {
        path: Vec<u8>,
        is_directory: bool,
    },
    /// More has happened than could be told: whoever wants to know looks anew.
    Overflow,
    /// What was watched is gone, and nothing more will be told.
    Gone,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    pub why: Why,
    /// What is there instead of what was expected.
    pub there: Option<Stat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    NotFound,
    NotRegular,
    IsDirectory,
    NotADirectory,
    Denied,
    /// A link is there, and nothing is written through links.
    Symlink,
    /// Links that lead to each other, or a magic one of the kernel.
    Loop,
    /// A link that leads out of what whoever asks is confined to.
    Outside,
    Exists,
    NotEmpty,
    Precondition,
    NoSpace,
    InvalidPath,
    /// Others change the same at this moment, or it is in use.
    Conflict,
    /// The sandbox, or the agent, has no room for more.
    TooMany,
    Other(i32),
}

/// Encodes a message.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, WireError> {
    postcard::to_extend(message, vec![VERSION]).map_err(WireError::Malformed)
}

/// Decodes a packet.
pub fn decode<T: DeserializeOwned>(packet: &[u8]) -> Result<T, WireError> {
    match packet.split_first() {
        None => Err(WireError::Empty),
        Some((&VERSION, rest)) => postcard::from_bytes(rest).map_err(WireError::Malformed),
        Some((&found, _)) => Err(WireError::Version { found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn stat() -> Stat {
        let moment = |seconds| Moment { seconds, nanos: 1 };
        Stat {
            kind: Kind::File,
            size: 3,
            mode: 0o644,
            user: 1000,
            group: 1000,
            inode: 9,
            modified: moment(1),
            changed: moment(2),
        }
    }

    #[test]
    fn messages_of_this_version_are_these_bytes_for_ever() {
        let at = || At { root: b"/".to_vec(), path: b"a".to_vec() };
        let condition = Condition { is: Some(Tags::Any), is_not: None };
        let asks = [
            (Ask::Open { at: at() }, "0100 012f0161"),
            (Ask::Stat { at: at(), follow: true }, "0101 012f0161 01"),
            (Ask::List { at: at(), after: None, limit: 1 }, "0102 012f0161 00 01"),
            (
                Ask::Begin { at: at(), condition: condition.clone(), parents: true },
                "0103 012f0161 010000 01",
            ),
            (Ask::Commit { mode: Some(0o644) }, "0104 01a403"),
            (Ask::Abandon, "0105"),
            (Ask::MakeDirectory { at: at(), parents: false, mode: None }, "0106 012f0161 00 00"),
            (
                Ask::Move { from: at(), to: at(), condition: Condition::default(), replace: true },
                "0107 012f0161 012f0161 0000 01",
            ),
            (Ask::Remove { at: at(), recursive: true, condition }, "0108 012f0161 01 010000"),
            (
                Ask::Glob { at: at(), patterns: vec![b"*".to_vec()], limit: 2 },
                "0109 012f0161 01012a 02",
            ),
            (
                Ask::Grep { at: at(), text: b"x".to_vec(), patterns: Vec::new(), limit: 2 },
                "010a 012f0161 0178 00 02",
            ),
            (Ask::Watch { at: at(), recursive: false }, "010b 012f0161 00"),
        ];
        for (ask, bytes) in asks {
            assert_eq!(hex(&encode(&ask).unwrap()), bytes.replace(' ', ""), "{ask:?}");
            assert_eq!(decode::<Ask>(&encode(&ask).unwrap()).unwrap(), ask);
        }
        let told = "00 03 a405 e807 e807 09 0201 0401".replace("a405", "a403");
        let entry = Entry { path: b"a".to_vec(), kind: Kind::Directory, stat: None };
        let found = Match { path: b"a".to_vec(), line: 7, text: b"t".to_vec() };
        let fault = Fault { why: Why::Other(5), there: Some(stat()) };
        let answers = [
            (Answer::Opened(stat()), format!("0100 {told}")),
            (Answer::Stat(stat()), format!("0101 {told}")),
            (Answer::Begun(None), "0102 00".to_owned()),
            (Answer::Done(Some(stat())), format!("0103 01 {told}")),
            (Answer::Entries(vec![entry]), "0104 01 0161 01 00".into()),
            (Answer::Matches(vec![found]), "0105 01 0161 07 0174".into()),
            (Answer::Finished(Finished { more: true, unreadable: 2 }), "0106 01 02".into()),
            (Answer::Watching { directories: 3 }, "0107 03".into()),
            (
                Answer::Events(vec![
                    Event::Created { path: b"a".to_vec(), is_directory: true },
                    Event::Changed { path: b"a".to_vec() },
                    Event::Deleted { path: b"a".to_vec(), is_directory: false },
                    Event::Overflow,
                    Event::Gone,
                ]),
                "0108 05 00016101 010161 02016100 03 04".into(),
            ),
            (Answer::Failed(fault), format!("0109 0f0a 01 {told}")),
        ];
        for (answer, bytes) in answers {
            assert_eq!(hex(&encode(&answer).unwrap()), bytes.replace(' ', ""), "{answer:?}");
            assert_eq!(decode::<Answer>(&encode(&answer).unwrap()).unwrap(), answer);
        }
    }

    #[test]
    fn a_condition_is_about_what_is_there() {
        let these = |tag: String| Some(Tags::These(vec!["other".to_owned(), tag]));
        let is = |is| Condition { is, is_not: None };
        let is_not = |is_not| Condition { is: None, is_not };
        let rows = [
            (Condition::default(), true, true),
            (is(Some(Tags::Any)), true, false),
            (is(these(stat().tag())), true, false),
            (is(these("else".to_owned())), false, false),
            (is_not(Some(Tags::Any)), false, true),
            (is_not(these(stat().tag())), false, true),
            (is_not(these("else".to_owned())), true, true),
        ];
        for (condition, if_there, if_not) in rows {
            assert_eq!(condition.holds_for(Some(&stat())), if_there, "{condition:?}");
            assert_eq!(condition.holds_for(None), if_not, "{condition:?}");
        }
    }
}
