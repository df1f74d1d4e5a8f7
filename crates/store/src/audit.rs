//! The audit log: entries, each with its number and chained to the one before by a hash.
//!
//! A record is written as one line of JSON in the canonical form of RFC 8785: names in order, no
//! blanks, what is absent is left out. Its hash is the SHA-256 of that line without `hash`; the line
//! has `previous`, the hash of the record before it, so that nothing can be changed, left out, put
//! in or moved without all hashes after it being other ones. `docs/audit.md` says it for strangers.

use std::{fmt, str::FromStr};

use model::audit::{self, Entry};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::StoreError;

/// The most that one answer holds, whatever is asked for.
pub const PAGE: u32 = 1000;

/// The hash of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash([u8; 32]);

impl Hash {
    /// What the first record names as the one before it.
    pub const NONE: Self = Self([0; 32]);

    pub(crate) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Hash {
    type Err = NotALink;

    fn from_str(text: &str) -> Result<Self, NotALink> {
        let mut hash = [0; 32];
        let is_written_so = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 64 || !text.bytes().all(is_written_so) {
            return Err(NotALink);
        }
        for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_not_text| NotALink)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_not_hex| NotALink)?;
        }
        Ok(Self(hash))
    }
}

/// A place in the chain: the number and the hash of a record. Whoever keeps one elsewhere can tell
/// later that nothing up to there was changed or cut off. Written `1234:0f3a…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub sequence: u64,
    pub hash: Hash,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a checkpoint; one looks like 1234:0f3a… with 64 digits after the colon")]
pub struct NotALink;

impl Link {
    /// Before the first record.
    pub const START: Self = Self { sequence: 0, hash: Hash::NONE };
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.sequence, self.hash)
    }
}

impl FromStr for Link {
    type Err = NotALink;

    fn from_str(text: &str) -> Result<Self, NotALink> {
        let (sequence, hash) = text.split_once(':').ok_or(NotALink)?;
        let sequence = sequence.parse().map_err(|_not_a_number| NotALink)?;
        Ok(Self { sequence, hash: hash.parse()? })
    }
}

/// A record, as it is written. The fields are in the order in which they are written: that of their
/// names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub action: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
    /// Absent in what the hash is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jti: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    pub outcome: String,
    pub previous: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    pub sequence: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Milliseconds since 1970.
    pub time: i64,
}

impl Record {
    fn after(before: &Link, entry: &Entry) -> Self {
        let text = |text: &Option<String>| text.as_deref().map(audit::text);
        let (actor, grant) = (entry.actor.as_ref(), entry.grant.as_ref());
        Self {
            action: entry.action.name().to_owned(),
            actor_id: actor.map(|actor| audit::text(&actor.id)),
            actor_type: actor.map(|actor| actor.kind.text().to_owned()),
            audience: grant.map(|grant| audit::text(&grant.audience)),
            capabilities: grant.map(|grant| audit::text(&grant.capabilities)),
            count: entry.count,
            expires_at: grant.map(|grant| grant.expires_at.as_millis()),
            hash: None,
            jti: text(&entry.jti),
            key_id: text(&entry.key),
            object: text(&entry.object),
            outcome: entry.outcome.name().to_owned(),
            previous: before.hash.to_string(),
            reason: text(&entry.reason),
            request_id: text(&entry.request),
            sandbox: text(&entry.sandbox),
            scope: text(&entry.scope),
            sequence: before.sequence.saturating_add(1),
            session: text(&entry.session),
            subject: grant.map(|grant| audit::text(&grant.subject)),
            tenant: text(&entry.tenant),
            time: entry.time.as_millis(),
        }
    }

    /// Returns the line that is exported.
    pub fn line(&self) -> Result<String, StoreError> {
        let encode = |source| StoreError::Encode { what: "an audit record", source };
        serde_json::to_string(self).map_err(encode)
    }
}

/// A row of `audit`.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) sequence: i64,
    /// The line without its hash.
    pub(crate) body: String,
    pub(crate) hash: Vec<u8>,
}

impl Row {
    /// Writes entries down so that each follows the one before.
    pub(crate) fn chain(before: Link, entries: &[Entry]) -> Result<(Vec<Self>, Link), StoreError> {
        let mut last = before;
        let mut rows = Vec::with_capacity(entries.len());
        for entry in entries {
            let record = Record::after(&last, entry);
            let body = record.line()?;
            let hash = Hash(Sha256::digest(&body).into());
            last = Link { sequence: record.sequence, hash };
            let sequence = i64::try_from(record.sequence).unwrap_or(i64::MAX);
            rows.push(Self { sequence, body, hash: hash.as_bytes().to_vec() });
        }
        Ok((rows, last))
    }

    pub(crate) fn link(sequence: i64, hash: &[u8]) -> Result<Link, StoreError> {
        let not_understood = || StoreError::Row { table: "audit" };
        let sequence = u64::try_from(sequence).map_err(|_negative| not_understood())?;
        Ok(Link { sequence, hash: Hash::of_bytes(hash).ok_or_else(not_understood)? })
    }

    /// Reads a record, if it fits its hash.
    pub(crate) fn read(self) -> Result<Record, StoreError> {
        let damaged = || {
            let report = format!("audit record {} does not fit its hash", self.sequence);
            StoreError::Damaged { report }
        };
        let hash = Hash(Sha256::digest(&self.body).into());
        if hash.as_bytes() != self.hash {
            return Err(damaged());
        }
        let record: Record = serde_json::from_str(&self.body).map_err(|_form| damaged())?;
        if i64::try_from(record.sequence) != Ok(self.sequence) {
            return Err(damaged());
        }
        Ok(Record { hash: Some(hash.to_string()), ..record })
    }
}

/// Which end of the log is read first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    OldestFirst,
    NewestFirst,
}

/// A part of the log, to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub order: Order,
    /// Where to go on: the last that was read before.
    pub beyond: Option<u64>,
    /// At most [`PAGE`].
    pub limit: u32,
}

impl Part {
    /// Returns the condition, with one place for a number, the number, and the order, as in SQL.
    pub(crate) fn sql(self) -> (&'static str, i64, &'static str) {
        let beyond = self.beyond.map(|beyond| i64::try_from(beyond).unwrap_or(i64::MAX));
        match self.order {
            Order::OldestFirst => ("sequence >", beyond.unwrap_or(0), "ASC"),
            Order::NewestFirst => ("sequence <", beyond.unwrap_or(i64::MAX), "DESC"),
        }
    }
}

/// Why a log is not what was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    #[error("record {sequence} is not a line as it is exported")]
    Form { sequence: u64 },
    #[error("record {sequence} is missing; {found} stands in its place")]
    Order { sequence: u64, found: u64 },
    #[error("record {sequence} does not follow the one before it")]
    Chain { sequence: u64 },
    #[error("record {sequence} was changed")]
    Hash { sequence: u64 },
    #[error("record {sequence} is not the one that the checkpoint names")]
    Checkpoint { sequence: u64 },
    #[error("record {sequence} is missing: the log ends before the checkpoint {checkpoint}")]
    Cut { sequence: u64, checkpoint: u64 },
}

impl Broken {
    /// Returns the first record that is not what was written.
    pub fn sequence(&self) -> u64 {
        match self {
            Self::Form { sequence }
            | Self::Order { sequence, .. }
            | Self::Chain { sequence }
            | Self::Hash { sequence }
            | Self::Checkpoint { sequence }
            | Self::Cut { sequence, .. } => *sequence,
        }
    }
}

/// Follows a log line by line.
#[derive(Clone, Debug)]
pub struct Chain {
    last: Link,
    /// Those that were not reached yet, the next one last.
    checkpoints: Vec<Link>,
}

impl Chain {
    /// Begins after a place that is known to be good: [`Link::START`] for a whole log.
    pub fn after(known: Link) -> Self {
        Self { last: known, checkpoints: Vec::new() }
    }

    /// Expects these records to be in the log. Those before its beginning are not checked.
    #[must_use]
    pub fn with_checkpoints(self, mut checkpoints: Vec<Link>) -> Self {
        checkpoints.retain(|checkpoint| checkpoint.sequence > self.last.sequence);
        checkpoints.sort_by_key(|checkpoint| std::cmp::Reverse(checkpoint.sequence));
        Self { checkpoints, ..self }
    }

    /// Returns the last record that was checked.
    pub fn last(&self) -> Link {
        self.last
    }

    /// Checks the next line, given without its line break, and returns its record.
    pub fn add(&mut self, line: &str) -> Result<Record, Broken> {
        let sequence = self.last.sequence.saturating_add(1);
        let form = || Broken::Form { sequence };
        let record: Record = serde_json::from_str(line).map_err(|_not_a_record| form())?;
        // Only one way of writing it is right, so that not a byte can be another one.
        if record.line().map_err(|_error| form())? != line {
            return Err(form());
        }
        if record.sequence != sequence {
            return Err(Broken::Order { sequence, found: record.sequence });
        }
        if record.previous.parse() != Ok(self.last.hash) {
            return Err(Broken::Chain { sequence });
        }
        let told: Hash =
            record.hash.as_deref().unwrap_or_default().parse().map_err(|_not_a_hash| form())?;
        let record = Record { hash: None, ..record };
        let hash = Hash(Sha256::digest(record.line().map_err(|_error| form())?).into());
        if hash != told {
            return Err(Broken::Hash { sequence });
        }
        self.last = Link { sequence, hash };
        while let Some(checkpoint) = self.checkpoints.pop_if(|it| it.sequence == sequence) {
            if checkpoint.hash != hash {
                return Err(Broken::Checkpoint { sequence });
            }
        }
        Ok(record)
    }

    /// Ends with the last line. Returns where the log ends.
    pub fn end(self) -> Result<Link, Broken> {
        match self.checkpoints.last() {
            Some(checkpoint) => {
                let sequence = self.last.sequence.saturating_add(1);
                Err(Broken::Cut { sequence, checkpoint: checkpoint.sequence })
            }
            None => Ok(self.last),
        }
    }
}

#[cfg(test)]
mod tests;
