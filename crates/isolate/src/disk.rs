//! Private directories on disk for sandboxes, each with a limit that holds.
//!
//! A *volume* is one such directory. How its limit is held depends on the machine: [`Disks::open`]
//! takes the first way that works, after it has seen a write beyond a limit fail.
//!
//! ```text
//! quota      a project of the data file system
//! btrfs      a subvolume of one pool, a file in the data directory
//! image      an ext4 in a file of its own
//! tmpfs      in memory, if the operator allows that by name
//! unlimited  a mere directory, if the operator allows that by name
//! ```
//!
//! Everything but [`Disks::kind`] may wait for the disk, so the spawner's loop calls none of it but
//! has it done by a forked [`work::Work`]. That is sound because nothing that a call changes is kept
//! in memory: it is all in the file system and in the kernel, where the next call finds it.
//!
//! The caller has a mount namespace of its own, from which mounts do not spread, and one thread.
//! Mounts go with the namespace, and loop devices with the last mount of them. What runs on after
//! the server was killed keeps both, and the next server finds the device and mounts it once more.

mod btrfs;
mod directory;
mod ground;
mod image;
mod ladder;
mod loops;
mod mounts;
mod programs;
mod quota;
mod tmpfs;
pub(crate) mod tree;
pub mod work;

use std::{
    fmt,
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

pub use crate::volume::{ByteCount, DiskKind, DiskLimit, Reason, Refused};
use ground::Ground;
pub(crate) use ground::wait_until_free;

/// What the operator wants.
#[derive(Clone, Debug)]
pub struct DiskSettings {
    /// This kind or none. Unset: the best that works.
    pub only: Option<DiskKind>,
    /// Whether volumes may be in memory, and lost at a stop.
    pub allow_tmpfs: bool,
    /// Whether volumes may be without a limit.
    pub allow_unlimited_disk: bool,
    /// How much of the data file system is never promised to volumes.
    pub keep_free: ByteCount,
    /// By how many times the limits of volumes may together exceed what is free, where nothing but
    /// their sum keeps them from filling the data file system: under quota and as images. With one,
    /// every limit is a promise.
    pub overcommit: u32,
    /// The projects of quota that are ours: this one and all above it.
    pub first_project: u32,
    /// Called after each step that a crash may come after.
    pub observe: fn(&'static str),
}

impl Default for DiskSettings {
    fn default() -> Self {
        Self {
            only: None,
            allow_tmpfs: false,
            allow_unlimited_disk: false,
            keep_free: ByteCount::mib(1024),
            overcommit: 1,
            first_project: 0x5246_0000,
            observe: |_| {},
        }
    }
}

/// The name of a volume: lower-case letters, digits and underscores, at most 64.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeName(String);

impl VolumeName {
    pub fn new(name: &str) -> Result<Self, DiskError> {
        let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
        if (1..=64).contains(&name.len()) && name.bytes().all(is_allowed) {
            Ok(Self(name.to_owned()))
        } else {
            Err(DiskError::Name)
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a volume holds now, and what it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub bytes: ByteCount,
    /// `None`: as much as there is.
    pub limit: Option<ByteCount>,
}

/// The least that a volume can be limited to: a file system of its own must fit.
pub const LEAST: ByteCount = ByteCount::mib(16);

/// Something about volumes could not be done.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error("a volume is named by 1 to 64 lower-case letters, digits and underscores")]
    Name,
    #[error("a volume cannot be limited to less than {} bytes", LEAST.0)]
    TooSmall,
    #[error("there is a volume {name} already")]
    Exists { name: String },
    #[error("there is no volume {name}")]
    Missing { name: String },
    #[error("{wanted} bytes are wanted for volumes, and the data directory has {room} to give")]
    Full { wanted: u64, room: u64 },
    #[error("a volume of the kind {kind} cannot become smaller")]
    CannotShrink { kind: DiskKind },
    #[error(
        "volume {name} is in use, and to enlarge it meanwhile needs CAP_SYS_RESOURCE: stop its \
         sandbox first"
    )]
    Busy { name: String },
    #[error("what a volume of the kind {kind} uses is not counted")]
    NotCounted { kind: DiskKind },
    #[error("the folder of volumes is used by another server")]
    InUse,
    #[error(
        "the folder `disks` in the data directory belongs to user {owner} with mode {mode:o}: it \
         must be ours alone; look why, and remove it"
    )]
    NotOurs { owner: u32, mode: u32 },
    #[error("the kind of the volumes that are there is not known: {text}")]
    UnknownKind { text: String },
    #[error("there are volumes of the kind {kind}, which cannot be used")]
    KindLost {
        kind: DiskKind,
        #[source]
        source: Box<Self>,
    },
    #[error("no limit of disk space can be held here{}; install btrfs-progs or e2fsprogs and start \
        as root with loop devices, or allow sandboxes without a limit by name: start with \
        --allow-unlimited-disk, or set `allow_unlimited_disk = true` in `[sandboxes]`",
        list(.tried))]
    NoKind { tried: Vec<Refused> },
    #[error("not allowed by the settings")]
    NotAllowed,
    #[error("a write beyond the limit did not fail")]
    NotHeld,
    #[error("this kernel has no {what}, which is in Linux since {since}")]
    OldKernel { what: &'static str, since: &'static str },
    #[error("the program {name} is missing: install the package {package}")]
    NoProgram { name: &'static str, package: &'static str },
    #[error("{name} did not do its work ({said})")]
    Program { name: &'static str, said: String },
    #[error("cannot mount a file system of the kind {kind} ({said})")]
    Mount {
        kind: String,
        said: String,
        #[source]
        errno: Errno,
    },
    #[error("cannot {doing} {what}")]
    System {
        doing: &'static str,
        what: String,
        #[source]
        errno: Errno,
    },
    #[error("{said}")]
    Worker { reason: Reason, said: String },
}

impl DiskError {
    pub fn reason(&self) -> Reason {
        match self {
            Self::Name
            | Self::TooSmall
            | Self::CannotShrink { .. }
            | Self::Busy { .. }
            | Self::NotCounted { .. } => Reason::Refused,
            Self::Exists { .. } => Reason::Exists,
            Self::Missing { .. } => Reason::Missing,
            Self::Full { .. } => Reason::Full,
            Self::Worker { reason, .. } => *reason,
            Self::InUse
            | Self::NotOurs { .. }
            | Self::UnknownKind { .. }
            | Self::KindLost { .. }
            | Self::NoKind { .. }
            | Self::NotAllowed
            | Self::NotHeld
            | Self::OldKernel { .. }
            | Self::NoProgram { .. }
            | Self::Program { .. }
            | Self::Mount { .. }
            | Self::System { .. } => Reason::Other,
        }
    }
}

fn list(tried: &[Refused]) -> String {
    tried.iter().map(|Refused { kind, why }| format!("; {kind}: {why}")).collect()
}

/// Says an error with its causes, on one line.
pub(crate) fn whole(error: &DiskError) -> String {
    let mut said = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        said.push_str(": ");
        said.push_str(&cause.to_string());
        next = cause.source();
    }
    said
}

/// One way to hold limits. All volumes of a server are of one kind.
trait Kind: fmt::Debug {
    /// Makes a volume. Until that is done it is not among the names.
    fn make(&self, ground: &Ground, name: &str, limit: DiskLimit) -> Result<OwnedFd, DiskError>;
    fn open_volume(&self, ground: &Ground, name: &str) -> Result<OwnedFd, DiskError>;
    fn set_limit(&self, ground: &Ground, name: &str, limit: ByteCount) -> Result<(), DiskError>;
    fn usage(&self, ground: &Ground, name: &str) -> Result<Usage, DiskError>;
    /// Removes a volume, or what there is of it.
    fn remove(&self, ground: &Ground, name: &str) -> Result<(), DiskError>;
    fn names(&self, ground: &Ground) -> Result<Vec<VolumeName>, DiskError>;

    /// Makes a place in a volume from where its user might get around the limit, if there is any.
    fn way_out(&self, _volume: &OwnedFd) -> Result<Option<OwnedFd>, DiskError> {
        Ok(None)
    }

    /// Lets go of what is mounted, because another kind is taken.
    fn close(&self, _ground: &Ground) -> Result<(), DiskError> {
        Ok(())
    }
}

/// The volumes of a server.
#[derive(Debug)]
pub struct Disks {
    ground: Ground,
    kind: DiskKind,
    held: Box<dyn Kind>,
    refused: Vec<Refused>,
}

impl Disks {
    /// Opens the volumes in this data directory, finishes or clears what a crash has left, and sees
    /// that limits hold.
    pub fn open(data: BorrowedFd<'_>, settings: &DiskSettings) -> Result<Self, DiskError> {
        let ground = Ground::open(data, settings)?;
        let (kind, held, refused) = ladder::choose(&ground)?;
        Ok(Self { ground, kind, held, refused })
    }

    pub fn kind(&self) -> DiskKind {
        self.kind
    }

    /// Returns the kinds that are better than ours, and why they were not taken.
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// Makes a volume and opens it. It belongs to root, with mode 0755, and is empty.
    pub fn make(&self, name: &VolumeName, limit: DiskLimit) -> Result<OwnedFd, DiskError> {
        if limit.bytes() < LEAST {
            return Err(DiskError::TooSmall);
        }
        self.held.make(&self.ground, &name.0, limit)
    }

    /// Opens a volume that is there, mounted if it has to be.
    pub fn open_volume(&self, name: &VolumeName) -> Result<OwnedFd, DiskError> {
        self.held.open_volume(&self.ground, &name.0)
    }

    /// Changes the limit. Below what is used, nothing more can be written.
    pub fn set_limit(&self, name: &VolumeName, limit: ByteCount) -> Result<(), DiskError> {
        if limit < LEAST {
            return Err(DiskError::TooSmall);
        }
        self.held.set_limit(&self.ground, &name.0, limit)
    }

    pub fn usage(&self, name: &VolumeName) -> Result<Usage, DiskError> {
        self.held.usage(&self.ground, &name.0)
    }

    /// Removes a volume with everything in it, or what there is of it. That it is not there is no
    /// error. Whoever still has it open keeps its space until they are gone.
    pub fn remove(&self, name: &VolumeName) -> Result<(), DiskError> {
        self.held.remove(&self.ground, &name.0)
    }

    /// Returns the volumes that are there, in order.
    pub fn names(&self) -> Result<Vec<VolumeName>, DiskError> {
        self.held.names(&self.ground)
    }
}

fn missing(name: &str) -> DiskError {
    DiskError::Missing { name: name.to_owned() }
}

fn exists(name: &str) -> DiskError {
    DiskError::Exists { name: name.to_owned() }
}

/// How many files a volume may have, where that is limited apart from its bytes.
fn files(limit: ByteCount) -> u64 {
    (limit.0 / 4096).min(u64::from(u32::MAX))
}
