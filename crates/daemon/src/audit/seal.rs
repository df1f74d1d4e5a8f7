//! Keys that seal the audit log, and the seals themselves.
//!
//! A seal is a message authentication code over a checkpoint of the log. Its key belongs to an epoch: after each seal the server replaces the key
//! by a hash of it, which cannot be reversed. An intruder who takes over the server finds only the current key, and cannot seal anything in place of
//! what was sealed before. The verification key is the key of epoch 0: all later ones follow from it.

use std::{fmt, str::FromStr};

use aws_lc_rs::{constant_time::verify_slices_are_equal, hmac};
use model::{
    audit::{Action, Entry, Outcome},
    units::Timestamp,
};
use store::audit::{Link, Record};

use crate::key_file::LENGTH;

/// What the text of a verification key begins with.
const PREFIX: &str = "rfaudit_";

fn code(key: &[u8; LENGTH], text: &str) -> [u8; LENGTH] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let tag = hmac::sign(&key, text.as_bytes());
    let mut code = [0; LENGTH];
    for (to, from) in code.iter_mut().zip(tag.as_ref()) {
        *to = *from;
    }
    code
}

pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn from_hex(text: &str) -> Option<[u8; LENGTH]> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if text.len() != 2 * LENGTH || !is_hex {
        return None;
    }
    let mut bytes = [0; LENGTH];
    for (byte, index) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(text.get(index..index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// The key that verifies every seal of one server. It belongs on another machine.
#[derive(Clone, PartialEq, Eq)]
pub struct VerificationKey([u8; LENGTH]);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not a verification key; one looks like rfaudit_ and 64 hexadecimal digits, as `ringfence audit key` prints it"
)]
pub struct NotAVerificationKey;

impl VerificationKey {
    pub(super) fn new(bytes: [u8; LENGTH]) -> Self {
        Self(bytes)
    }

    /// Returns the key of the first epoch.
    pub(super) fn first_epoch(&self) -> EpochKey {
        let id = code(&self.0, "ringfence audit key id");
        let id = id.get(..8).map(to_hex).unwrap_or_default();
        EpochKey { id, epoch: 0, key: self.0 }
    }

    pub(super) fn text(&self) -> String {
        format!("{PREFIX}{}", to_hex(&self.0))
    }
}

impl fmt::Debug for VerificationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerificationKey({})", self.first_epoch().id)
    }
}

impl FromStr for VerificationKey {
    type Err = NotAVerificationKey;

    fn from_str(text: &str) -> Result<Self, NotAVerificationKey> {
        let digits = text.trim().strip_prefix(PREFIX).ok_or(NotAVerificationKey)?;
        from_hex(digits).map(Self).ok_or(NotAVerificationKey)
    }
}

/// The key of one epoch.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct EpochKey {
    /// Names the verification key that it follows from.
    pub(super) id: String,
    pub(super) epoch: u64,
    pub(super) key: [u8; LENGTH],
}

impl fmt::Debug for EpochKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpochKey")
            .field("id", &self.id)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

impl EpochKey {
    /// Returns the key of the next epoch. It does not tell this one.
    pub(super) fn next(&self) -> Self {
        Self {
            id: self.id.clone(),
            epoch: self.epoch.saturating_add(1),
            key: code(&self.key, "ringfence audit next epoch"),
        }
    }

    fn code(&self, checkpoint: &Link) -> [u8; LENGTH] {
        code(&self.key, &format!("ringfence audit seal {} {checkpoint}", self.epoch))
    }

    /// Returns the record that seals the log up to a checkpoint.
    pub(super) fn seal(&self, checkpoint: &Link, now: Timestamp) -> Entry {
        Entry {
            key: Some(self.id.clone()),
            object: Some(checkpoint.to_string()),
            reason: Some(format!("{}:{}", self.epoch, to_hex(&self.code(checkpoint)))),
            ..Entry::new(now, Action::AuditSeal, Outcome::Granted)
        }
    }

    pub(super) fn verifies(&self, seal: &Seal) -> bool {
        seal.epoch == self.epoch
            && verify_slices_are_equal(&self.code(&seal.checkpoint), &seal.code).is_ok()
    }
}

/// A seal as its record has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seal {
    pub(super) key: String,
    pub(super) epoch: u64,
    pub(super) checkpoint: Link,
    code: [u8; LENGTH],
}

impl Seal {
    /// Returns whether a record is meant to be a seal.
    pub(super) fn is_one(record: &Record) -> bool {
        record.action == Action::AuditSeal.name()
    }

    /// Reads the seal of such a record.
    pub(super) fn of(record: &Record) -> Option<Self> {
        let (epoch, code) = record.reason.as_deref()?.split_once(':')?;
        Some(Self {
            key: record.key_id.clone()?,
            epoch: epoch.parse().ok()?,
            checkpoint: record.object.as_deref()?.parse().ok()?,
            code: from_hex(code)?,
        })
    }
}
