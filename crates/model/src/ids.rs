//! Names of things. Ours are random; a caller's own have one form, whatever they name.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Why a text names nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error(
        "an id has 4 to 200 letters, digits, `-` and `_`, and begins and ends with a letter or digit"
    )]
    Form,
    #[error(
        "ids that begin with `sb_` and have {RANDOM} characters after it are given by the server"
    )]
    Reserved,
    #[error("a sandbox is named `sb_` and {RANDOM} lower-case letters and digits")]
    NotASandbox,
    #[error("a name of a tenant or node has 1 to 200 characters, none of them a control character")]
    Name,
    #[error("a shell is named by 1 to 64 letters, digits, `-` and `_`")]
    NotAShell,
    #[error("a session is named `ssn_` and {RANDOM} lower-case letters and digits")]
    NotASession,
    #[error("a snapshot is named `snap_` and {RANDOM} lower-case letters and digits")]
    NotASnapshot,
    #[error(
        "the name of a snapshot has 1 to 128 letters, digits, `.`, `-` and `_`, begins with a letter or \
         digit, and does not look like an id"
    )]
    SnapshotName,
    #[error(
        "a tag has 1 to 128 letters, digits, `.`, `-` and `_`, and begins with a letter, digit or `_`"
    )]
    Tag,
}

/// How many characters 128 random bits take.
const RANDOM: usize = 26;
/// The digits and letters that are not easily taken for each other.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Names a sandbox for ever. `sb_…`, fit for a DNS label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SandboxId(String);

impl SandboxId {
    pub fn from_random(random: [u8; 16]) -> Self {
        Self(format!("sb_{}", spell(random)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SandboxId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let random = text.strip_prefix("sb_").ok_or(IdError::NotASandbox)?;
        let is_ours = random.len() == RANDOM && random.bytes().all(|byte| ALPHABET.contains(&byte));
        if is_ours { Ok(Self(text.to_owned())) } else { Err(IdError::NotASandbox) }
    }
}

/// Names a binding of a scope to a sandbox for ever. `ssn_…`
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(String);

impl SessionId {
    pub fn from_random(random: [u8; 16]) -> Self {
        Self(format!("ssn_{}", spell(random)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SessionId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let random = text.strip_prefix("ssn_").ok_or(IdError::NotASession)?;
        let is_ours = random.len() == RANDOM && random.bytes().all(|byte| ALPHABET.contains(&byte));
        if is_ours { Ok(Self(text.to_owned())) } else { Err(IdError::NotASession) }
    }
}

/// Names a snapshot for ever. `snap_…`
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SnapshotId(String);

impl SnapshotId {
    pub fn from_random(random: [u8; 16]) -> Self {
        Self(format!("snap_{}", spell(random)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SnapshotId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let random = text.strip_prefix("snap_").ok_or(IdError::NotASnapshot)?;
        let is_ours = random.len() == RANDOM && random.bytes().all(|byte| ALPHABET.contains(&byte));
        if is_ours { Ok(Self(text.to_owned())) } else { Err(IdError::NotASnapshot) }
    }
}

/// A tenant's own name of snapshots, which tags tell apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SnapshotName(String);

impl SnapshotName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SnapshotName {
    type Err = IdError;

    /// Refuses what is an id: one text must not name two snapshots.
    fn from_str(text: &str) -> Result<Self, IdError> {
        let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        let holds = begins && text.len() <= 128 && text.bytes().all(is_in_reference);
        if holds && SnapshotId::from_str(text).is_err() {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::SnapshotName)
        }
    }
}

/// Tells snapshots of one name apart. It can be moved from one to another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tag(String);

impl Tag {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The tag of those who name none.
impl Default for Tag {
    fn default() -> Self {
        Self("latest".to_owned())
    }
}

impl FromStr for Tag {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let first = text.bytes().next();
        let begins = first.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let holds = begins && text.len() <= 128 && text.bytes().all(is_in_reference);
        if holds { Ok(Self(text.to_owned())) } else { Err(IdError::Tag) }
    }
}

fn is_in_reference(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
}

/// A caller's own name of a sandbox, unique in its tenant for ever.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Alias(String);

impl Alias {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Alias {
    type Err = IdError;

    /// Refuses what the server could give as an id itself: one text must not name two sandboxes.
    fn from_str(text: &str) -> Result<Self, IdError> {
        if SandboxId::from_str(text).is_ok() {
            return Err(IdError::Reserved);
        }
        check_form(text).map(|()| Self(text.to_owned()))
    }
}

/// Names an exec, unique in its tenant for ever. `ex_…` or the caller's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExecId(String);

impl ExecId {
    pub fn from_random(random: [u8; 16]) -> Self {
        Self(format!("ex_{}", spell(random)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ExecId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        check_form(text).map(|()| Self(text.to_owned()))
    }
}

/// Names a shell among those that run in its sandbox. Free again once the shell has ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ShellName(String);

impl ShellName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The shell of those who name none.
impl Default for ShellName {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

impl FromStr for ShellName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let holds = (1..=64).contains(&text.len()) && text.bytes().all(is_plain);
        if holds { Ok(Self(text.to_owned())) } else { Err(IdError::NotAShell) }
    }
}

/// Who owns things. Nobody sees what another tenant has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tenant(String);

impl Tenant {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Tenant {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        check_name(text).map(|()| Self(text.to_owned()))
    }
}

/// A machine that runs the daemon.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeId(String);

impl NodeId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NodeId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        check_name(text).map(|()| Self(text.to_owned()))
    }
}

/// The same four conversions for each: a name is shown as its text and read through its check.
macro_rules! text_conversions {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    )*};
}

text_conversions!(
    SandboxId,
    SessionId,
    SnapshotId,
    SnapshotName,
    Tag,
    Alias,
    ExecId,
    ShellName,
    Tenant,
    NodeId
);

/// `^[a-zA-Z0-9][a-zA-Z0-9_-]{2,198}[a-zA-Z0-9]$`
fn check_form(text: &str) -> Result<(), IdError> {
    let bytes = text.as_bytes();
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let holds = (4..=200).contains(&bytes.len())
        && bytes.iter().all(inside)
        && edge(bytes.first())
        && edge(bytes.last());
    if holds { Ok(()) } else { Err(IdError::Form) }
}

fn check_name(text: &str) -> Result<(), IdError> {
    let holds = (1..=200).contains(&text.len()) && !text.chars().any(char::is_control);
    if holds { Ok(()) } else { Err(IdError::Name) }
}

/// Writes 128 bits as 26 characters, five bits each.
fn spell(random: [u8; 16]) -> String {
    let mut left = u128::from_be_bytes(random);
    let mut text = Vec::with_capacity(RANDOM);
    for _ in 0..RANDOM {
        let place = usize::try_from(left & 31).unwrap_or(0);
        text.push(char::from(ALPHABET[place]));
        left >>= 5;
    }
    text.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_callers_id_has_the_form_of_the_contract() {
        let longest = "a".repeat(200);
        for good in ["abcd", "a--d", "A_-9", "my-sandbox", longest.as_str()] {
            assert_eq!(good.parse::<Alias>().map(String::from), Ok(good.to_owned()));
            assert_eq!(good.parse::<ExecId>().map(String::from), Ok(good.to_owned()));
        }
        let too_long = "a".repeat(201);
        for bad in ["", "abc", "-abc", "abc-", "ab c", "abcé", "a/bc", "ab\0c", too_long.as_str()]
        {
            assert_eq!(bad.parse::<Alias>(), Err(IdError::Form), "{bad:?}");
            assert_eq!(bad.parse::<ExecId>(), Err(IdError::Form), "{bad:?}");
        }
    }

    #[test]
    fn a_shell_has_a_short_plain_name() {
        let longest = "a".repeat(64);
        for good in ["a", "-", "my_shell-2", longest.as_str()] {
            assert_eq!(good.parse::<ShellName>().map(String::from), Ok(good.to_owned()));
        }
        let too_long = "a".repeat(65);
        for bad in ["", "a b", "a/b", "é", "a\0", too_long.as_str()] {
            assert_eq!(bad.parse::<ShellName>(), Err(IdError::NotAShell), "{bad:?}");
        }
        assert_eq!(ShellName::default().as_str().parse(), Ok(ShellName::default()));
    }

    #[test]
    fn snapshots_have_plain_names_and_tags_and_no_name_is_an_id() {
        let longest = "a".repeat(128);
        for good in ["a", "0", "my-snap_1.2", longest.as_str()] {
            assert_eq!(good.parse::<SnapshotName>().map(String::from), Ok(good.to_owned()));
            assert_eq!(good.parse::<Tag>().map(String::from), Ok(good.to_owned()));
        }
        let too_long = "a".repeat(129);
        for bad in ["", "a:b", "a/b", "-a", ".a", "é", "a b", "a\0", too_long.as_str()] {
            assert_eq!(bad.parse::<SnapshotName>(), Err(IdError::SnapshotName), "{bad:?}");
            assert_eq!(bad.parse::<Tag>(), Err(IdError::Tag), "{bad:?}");
        }
        assert_eq!("_a".parse::<Tag>().map(String::from), Ok("_a".to_owned()));
        let id = SnapshotId::from_random([3; 16]);
        assert_eq!(id.as_str().parse::<SnapshotName>(), Err(IdError::SnapshotName));
        assert_eq!(id.as_str().parse::<SnapshotId>(), Ok(id));
    }

    #[test]
    fn an_alias_never_looks_like_an_id_of_ours() {
        let ours = SandboxId::from_random([7; 16]);
        assert_eq!(ours.as_str().parse::<Alias>(), Err(IdError::Reserved));
        assert!("sb_mine".parse::<Alias>().is_ok());
    }

    proptest! {
        #[test]
        fn different_random_bits_give_different_ids_that_can_be_read(
            left: [u8; 16], right: [u8; 16],
        ) {
            let (one, other) = (SandboxId::from_random(left), SandboxId::from_random(right));
            prop_assert_eq!(one == other, left == right);
            prop_assert_eq!(one.as_str().parse::<SandboxId>(), Ok(one.clone()));
            let exec = ExecId::from_random(left);
            prop_assert_eq!(exec.as_str().parse::<ExecId>(), Ok(exec.clone()));
            let session = SessionId::from_random(left);
            prop_assert_eq!(session.as_str().parse::<SessionId>(), Ok(session.clone()));
        }
    }
}
