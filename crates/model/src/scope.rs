//! What a sandbox is kept for: a conversation thread, a workspace, an assistant or a deployment.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Names one thing of a tenant that can have a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Scope {
    pub kind: ScopeKind,
    pub id: ScopeId,
}

impl Scope {
    pub const fn thread(id: ScopeId) -> Self {
        Self { kind: ScopeKind::Thread, id }
    }

    /// Returns the thread's own name, if it is one.
    pub fn as_thread(&self) -> Option<&str> {
        match self.kind {
            ScopeKind::Thread => Some(self.id.as_str()),
            ScopeKind::Workspace | ScopeKind::Assistant | ScopeKind::Deployment => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeKind {
    Thread,
    Workspace,
    Assistant,
    Deployment,
}

impl ScopeKind {
    pub const ALL: [Self; 4] = [Self::Thread, Self::Workspace, Self::Assistant, Self::Deployment];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Workspace => "workspace",
            Self::Assistant => "assistant",
            Self::Deployment => "deployment",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A caller's own name of a scope: compared byte by byte, and never a part of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ScopeId(String);

/// Why a text names no scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "1 to {LONGEST} letters, digits, `_`, `.`, `:` and `-` are expected, other than `.` and `..`"
)]
pub struct ScopeIdError;

const LONGEST: usize = 128;

impl ScopeId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ScopeId {
    type Err = ScopeIdError;

    /// Refuses what a client or a proxy in between takes for a step in a path.
    fn from_str(text: &str) -> Result<Self, ScopeIdError> {
        if matches!(text, "." | "..") { Err(ScopeIdError) } else { Self::stored(text.to_owned()) }
    }
}

impl ScopeId {
    /// Reads a name that was stored: `.` and `..` were taken once.
    fn stored(text: String) -> Result<Self, ScopeIdError> {
        let is_plain =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'-');
        let holds = (1..=LONGEST).contains(&text.len()) && text.bytes().all(is_plain);
        if holds { Ok(Self(text)) } else { Err(ScopeIdError) }
    }
}

impl TryFrom<String> for ScopeId {
    type Error = ScopeIdError;

    fn try_from(text: String) -> Result<Self, ScopeIdError> {
        Self::stored(text)
    }
}

impl From<ScopeId> for String {
    fn from(id: ScopeId) -> Self {
        id.0
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.id)
    }
}

impl fmt::Display for ScopeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H05.
    #[test]
    fn h05_the_id_of_a_scope_is_plain_and_not_long() {
        let longest = "a".repeat(LONGEST);
        for good in ["a", "thr_123", "A.b:c-9", "...", ".a", longest.as_str()] {
            assert_eq!(good.parse::<ScopeId>().map(String::from), Ok(good.to_owned()));
        }
        let too_long = "a".repeat(LONGEST + 1);
        for bad in [
            "",
            ".",
            "..",
            "a b",
            "../x",
            "a/b",
            "%2e",
            "a\0",
            "a\n",
            "é",
            "\u{202e}a",
            "😀",
            "аa",
            &too_long,
        ] {
            assert_eq!(bad.parse::<ScopeId>(), Err(ScopeIdError), "{bad:?}");
        }
    }

    #[test]
    fn a_name_that_was_taken_before_is_still_read_from_the_store() {
        for stored in [".", ".."] {
            assert_eq!(
                ScopeId::try_from(stored.to_owned()).map(String::from),
                Ok(stored.to_owned())
            );
        }
    }

    #[test]
    fn a_kind_is_read_by_its_name() {
        for kind in ScopeKind::ALL {
            assert_eq!(ScopeKind::named(kind.name()), Some(kind));
        }
        for wrong in ["", "Thread", "user", " thread"] {
            assert_eq!(ScopeKind::named(wrong), None, "{wrong:?}");
        }
    }
}
