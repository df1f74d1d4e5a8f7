//! What the daemon asks of the spawner about long-lived sandboxes, and what it is told.

use serde::{Deserialize, Serialize};

use crate::{
    paths::{Attach, BringIn, NoPath, Paths, With},
    plan::{Broken, Identity, NamespaceLimits, Rights},
    supervisor::wire::Secret,
    volume::{DiskLimit, Reason},
    wire::CgroupFile,
};

/// An order about one sandbox. Every order is answered, by the number that it came with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SandboxOrder {
    /// Starts a supervisor in new namespaces, over the files that are there, or new ones.
    Make(Box<BodySpec>),
    /// Starts the process of a supervisor for a sandbox that nobody has asked for yet. It waits for
    /// its `Make`, and ends with the spawner.
    Prepare { sandbox: String, tenant: u64, max_processes: u32 },
    /// Makes a sandbox that nobody has asked for yet, in all but its being one, where that takes
    /// nothing from others, and else does what `Prepare` does. A `Make` of it has to say just the same.
    PrepareWhole(Box<BodySpec>),
    /// Finds the supervisor that an earlier server left.
    Open { sandbox: String },
    /// Ends every process. The files stay.
    End { sandbox: String },
    /// Ends every process and removes the files.
    Remove { sandbox: String },
    /// Removes the output of a command that is over and that no supervisor knows any more.
    Clear { sandbox: String, exec: String },
    /// Names every sandbox that has files or processes here.
    List,
    /// Opens paths of the machine and writes down that the sandbox may have them, with the rights of
    /// who asks, each time it is made. With [`With::Peer`] his connection comes along.
    Grant { sandbox: String, with: With, paths: Paths },
    /// Opens for reading what the sandbox was granted as a place of images.
    OpenGranted { sandbox: String, path: String },
    /// Opens a file or folder for reading, with the rights of who asks.
    OpenPath { with: With, path: String },
    /// Makes an init that runs in a container, and whose connection comes along, the supervisor of a
    /// sandbox. Its first word there is a [`crate::wire::Report`]: ready or broken.
    Contain(Box<ContainedSpec>),
    /// Connects to the engine of containers that the operator has named, if he has.
    ConnectEngine,
}

impl SandboxOrder {
    /// Returns the sandbox that it is about, if about one.
    pub fn sandbox(&self) -> Option<&str> {
        match self {
            Self::Make(spec) | Self::PrepareWhole(spec) => Some(&spec.sandbox),
            Self::Prepare { sandbox, .. }
            | Self::Open { sandbox }
            | Self::End { sandbox }
            | Self::Remove { sandbox } => Some(sandbox),
            // What comes along with these cannot wait, and they change nothing that others work on.
            Self::Grant { .. }
            | Self::OpenGranted { .. }
            | Self::OpenPath { .. }
            | Self::Contain(_)
            | Self::ConnectEngine
            | Self::Clear { .. }
            | Self::List => None,
        }
    }
}

/// How many bodies may wait for their sandboxes, of all tenants together.
pub const MAX_WAITING: usize = 32;

/// What a sandbox is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BodySpec {
    pub sandbox: String,
    /// A number for the tenant, whose sandboxes are in one cgroup.
    pub tenant: u64,
    pub secret: Secret,
    pub hostname: String,
    pub max_processes: u32,
    pub max_open_files: u32,
    pub image: Image,
    /// The body that this one shares users and network with, if it is a companion's.
    pub beside: Option<String>,
    /// Names of companions, which `/etc/hosts` is to have.
    pub hosts: Vec<String>,
    /// What it may write. It counts when its files are first made.
    pub disk: DiskLimit,
    pub paths: HostPaths,
}

/// What a sandbox is to be that runs in a container: root and limits are the container's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainedSpec {
    pub sandbox: String,
    pub secret: Secret,
    pub max_open_files: u32,
}

/// What a sandbox has of the machine's paths, by what was granted to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostPaths {
    None,
    /// It is made for the first time: copies are made.
    New,
    /// It was ready before: copies are its own by now.
    Again,
}

/// What the root of a sandbox is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Image {
    /// The machine's own programs.
    Host,
    /// Layers in the folder of images, lowest first.
    Layers(Vec<String>),
    /// The folder of the machine that it was granted for this.
    Folder,
}

/// The most layers that an image has: more than any overlay needs, and than a packet carries.
pub const MAX_LAYERS: usize = 128;

/// What the root of a sandbox is put together from. With it come the root of the host's image, the
/// sandbox's own files, and the layers of its image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootPlan {
    pub identity: Identity,
    pub namespace: NamespaceLimits,
    pub base: Base,
}

/// What the root of a sandbox is made over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Base {
    /// The machine's own programs, and a root that is read-only: for sandboxes without a root user.
    Machine,
    /// The machine's own programs, and an overlay that root inside can write to. One layer comes along.
    WritableMachine,
    /// The layers of an image, of which this many come along.
    Layers(usize),
}

impl Base {
    /// Returns how many layers come along.
    pub fn layers(self) -> usize {
        match self {
            Self::Machine => 0,
            Self::WritableMachine => 1,
            Self::Layers(count) => count,
        }
    }
}

/// Everything init needs to know to become the supervisor of a sandbox. With it come what its root is
/// put together from, its mounts, the sources of its copies, the folder for output, the journal, and
/// the socket to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPlan {
    pub sandbox: String,
    pub secret: Secret,
    pub hostname: String,
    pub root: RootPlan,
    /// Names that `/etc/hosts` is to have. None: it is the image's own.
    pub hosts: Vec<String>,
    pub rights: Rights,
    /// The filter for the supervisor itself, which commands inherit below their own.
    pub filter: Vec<u8>,
    pub mounts: Vec<Attach>,
    pub copies: Vec<BringIn>,
    /// Whether nobody has asked for the sandbox yet: it waits to be told of that.
    pub waits: bool,
}

/// Everything init needs to know to become the supervisor of a sandbox in a container. With it come
/// the folder for output, the journal, and the socket to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainedPlan {
    pub sandbox: String,
    pub secret: Secret,
    pub rights: Rights,
    /// The filter for the supervisor itself, which commands inherit below their own.
    pub filter: Vec<u8>,
}

/// What the spawner answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SandboxAnswer {
    /// A supervisor lives, or is on its way. After `Make` the first descriptor is the socket on
    /// which it says whether it is ready; the others are the files of its control group.
    Body {
        cgroup: Vec<CgroupFile>,
    },
    /// No supervisor lives. `rebooted`: the one there was belonged to an earlier boot.
    NoBody {
        rebooted: bool,
    },
    Done,
    /// It is on its way to be a whole sandbox. With it comes the socket on which it says that it is: to
    /// look at, since whoever makes it a sandbox reads there.
    Whole,
    List {
        sandboxes: Vec<String>,
    },
    Failed {
        broken: Broken,
    },
    /// The paths may be had, but for these optional mounts, which are not there.
    Granted {
        missing: Vec<usize>,
    },
    /// The path is open, and comes along.
    Path,
    /// The connection comes along.
    Connected,
    NoPath(NoPath),
    /// It has no files: its volume cannot be made, opened or removed.
    NoVolume {
        reason: Reason,
        said: String,
    },
}

/// Whether a text can name a sandbox or the body of a companion: it becomes the name of folders and
/// control groups.
pub fn is_good_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let is_number = |text: &str| {
        (1..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let (sandbox, number) = name.split_once('-').unwrap_or((name, "0"));
    (1..=64).contains(&sandbox.len()) && sandbox.bytes().all(is_plain) && is_number(number)
}

/// Names the body of a companion.
pub fn companion_name(sandbox: &str, number: usize) -> String {
    format!("{sandbox}-{number}")
}

/// Returns the name of the sandbox that a body belongs to.
pub fn sandbox_of(name: &str) -> &str {
    name.split_once('-').map_or(name, |(sandbox, _)| sandbox)
}

/// Where a sandbox of an image has what it has written, and what the overlay works with.
pub const UPPER: &str = "upper";
pub const WORK: &str = "work";

/// Directories of the machine that programs need, where they are there.
pub const SYSTEM: [&str; 6] = ["usr", "bin", "sbin", "lib", "lib64", "lib32"];

/// The folders of the root that a sandbox of the machine's own image has beside its root and `/tmp`.
pub const WRITABLE: [&str; 4] = ["home", "root", "var", "workspace"];

/// The names in the folder of a sandbox.
pub mod folder {
    /// Where the output of commands is, two files for each.
    pub const OUTPUTS: &str = "out";
    /// What the names of these two begin with the id of the command and end with.
    pub const STREAMS: [&str; 2] = [".stdout.log", ".stderr.log"];
    /// What stands for the id until there is a command. No id begins like this.
    pub const NEXT: &str = ".next";
    pub const JOURNAL: &str = "journal";
    /// Where the supervisor listens.
    pub const SOCKET: &str = "socket";
    /// Where to find the supervisor's process.
    pub const BODY: &str = "body";
    /// What the sandbox itself has written.
    pub const FILES: &str = "files";
    /// Which paths of the machine it has, and with whose rights.
    pub const GRANT: &str = "grant";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_companions_body_is_named_after_its_sandbox() {
        let name = companion_name("sb_1", 12);
        assert_eq!(
            (name.as_str(), sandbox_of(&name), sandbox_of("sb_1")),
            ("sb_1-12", "sb_1", "sb_1")
        );
        for good in ["sb_1", "sb_1-0", "sb_1-999"] {
            assert!(is_good_name(good), "{good}");
        }
        for bad in ["", "-0", "sb_1-", "sb_1-x", "sb_1-0-1", "sb_1-1000", "../x", "sb.1", "SB"] {
            assert!(!is_good_name(bad), "{bad}");
        }
    }
}
