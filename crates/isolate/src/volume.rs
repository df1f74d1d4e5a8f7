//! Words about volumes that also those use who make none: how much one holds, and what holds it to that.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ByteCount(pub u64);

impl ByteCount {
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }
}

/// What a volume may hold at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskLimit {
    /// Somebody asked for so much: no other volume gets this space.
    Promised(ByteCount),
    /// So much if it is there, which nobody promises.
    UpTo(ByteCount),
}

impl DiskLimit {
    pub const fn bytes(self) -> ByteCount {
        match self {
            Self::Promised(bytes) | Self::UpTo(bytes) => bytes,
        }
    }
}

/// How the limits of volumes are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskKind {
    /// By project quota of the data file system.
    Quota,
    /// By a btrfs of our own in one file.
    Btrfs,
    /// By the size of an ext4 in a file of its own.
    Image,
    /// By the size of a file system in memory. What is in it is lost at the sandbox's stop.
    Tmpfs,
    /// Not at all.
    Unlimited,
}

impl DiskKind {
    /// From the best to the worst.
    pub const ALL: [Self; 5] =
        [Self::Quota, Self::Btrfs, Self::Image, Self::Tmpfs, Self::Unlimited];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Quota => "quota",
            Self::Btrfs => "btrfs",
            Self::Image => "image",
            Self::Tmpfs => "tmpfs",
            Self::Unlimited => "unlimited",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for DiskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A kind was not taken, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub kind: DiskKind,
    pub why: String,
}

/// Whose fault an error is, as far as that decides what is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// The caller asked for what cannot be.
    Refused,
    Exists,
    Missing,
    /// Others must give up space first.
    Full,
    /// The machine's, or ours.
    Other,
}
