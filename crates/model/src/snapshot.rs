//! Snapshots: images under names of a tenant's own, with what sandboxes that are made from them get if
//! they do not say otherwise.
//!
//! ```text
//! building ─▶ ready
//!      └────▶ failed
//! ```

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    ids::{IdError, NodeId, SnapshotId, SnapshotName, Tag, Tenant},
    spec::{Resources, RunAs, SandboxSpec, Variables},
    units::{ByteSize, Timestamp},
};

/// The most that a tenant has.
pub const MOST_SNAPSHOTS: u32 = 1000;

/// A snapshot as it is kept.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub id: SnapshotId,
    pub tenant: Tenant,
    pub name: SnapshotName,
    /// The server that brings its image here.
    pub node: NodeId,
    pub state: SnapshotState,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub image: String,
    #[serde(default)]
    pub resources: Resources,
    #[serde(default)]
    pub run: RunAs,
    #[serde(default)]
    pub env: Variables,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub description: Option<String>,
    #[serde(default)]
    pub created_by: Option<String>,
}

/// Env is the user's secret: it never appears in a log line.
impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("state", &self.state)
            .field("image", &self.image)
            .finish_non_exhaustive()
    }
}

/// What has become of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotState {
    /// Its image is on its way.
    Building,
    Ready(Contents),
    Failed {
        message: String,
    },
}

/// What its image was when it came here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Contents {
    /// The digest by which its registry knows it, or its own. The machine itself has none.
    pub digest: Option<String>,
    /// The id by which this server knows it.
    pub image: Option<String>,
    /// Bytes in its files.
    pub size: Option<ByteSize>,
}

impl SnapshotState {
    /// Returns the name that is kept and shown.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Building => "building",
            Self::Ready(_) => "ready",
            Self::Failed { .. } => "failed",
        }
    }
}

/// How somebody names a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotRef {
    Id(SnapshotId),
    /// A bare name is the one that is tagged `latest`, else the newest without a tag.
    Name(SnapshotName),
    Tagged(SnapshotName, Tag),
}

impl FromStr for SnapshotRef {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if let Ok(id) = text.parse() {
            return Ok(Self::Id(id));
        }
        match text.split_once(':') {
            None => Ok(Self::Name(text.parse()?)),
            Some((name, tag)) => Ok(Self::Tagged(name.parse()?, tag.parse()?)),
        }
    }
}

/// Why no sandbox is made from a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotRefusal {
    #[error("the snapshot has failed: {message}")]
    Failed { message: String },
    #[error("the snapshot takes a disk of {least} at least")]
    Smaller { least: ByteSize },
}

impl Snapshot {
    /// Returns what a sandbox is made of that is made from this: what is asked for, and where nothing
    /// is, what this says.
    pub fn under(&self, asked: SandboxSpec) -> Result<SandboxSpec, SnapshotRefusal> {
        match &self.state {
            // A sandbox waits for its image by itself.
            SnapshotState::Ready(_) | SnapshotState::Building => {}
            SnapshotState::Failed { message } => {
                return Err(SnapshotRefusal::Failed { message: message.clone() });
            }
        }
        if let (Some(least), Some(disk)) = (self.resources.disk, asked.resources.disk)
            && disk < least
        {
            return Err(SnapshotRefusal::Smaller { least });
        }
        let over = |below: &BTreeMap<String, String>, above: BTreeMap<String, String>| {
            below.clone().into_iter().chain(above).collect::<BTreeMap<_, _>>()
        };
        Ok(SandboxSpec {
            image: self.image.clone(),
            snapshot: Some(self.id.clone()),
            snapshot_name: Some(self.name.to_string()),
            env: over(&self.env, asked.env),
            labels: over(&self.labels, asked.labels),
            run: RunAs {
                user: asked.run.user.or_else(|| self.run.user.clone()),
                directory: asked.run.directory.or_else(|| self.run.directory.clone()),
            },
            resources: Resources {
                millicores: asked.resources.millicores.or(self.resources.millicores),
                memory: asked.resources.memory.or(self.resources.memory),
                disk: asked.resources.disk.or(self.resources.disk),
                processes: asked.resources.processes.or(self.resources.processes),
            },
            ..asked
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let variables = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        Snapshot {
            id: SnapshotId::from_random([1; 16]),
            tenant: "default".parse().unwrap(),
            name: "mine".parse().unwrap(),
            node: "node_1".parse().unwrap(),
            state: SnapshotState::Ready(Contents::default()),
            created_at: Timestamp::from_millis(1),
            updated_at: Timestamp::from_millis(1),
            image: "python:3.12".to_owned(),
            resources: Resources {
                millicores: Some(500),
                memory: None,
                disk: Some(ByteSize::mib(64)),
                processes: Some(100),
            },
            run: RunAs { user: Some("root".to_owned()), directory: Some("/srv".to_owned()) },
            env: variables(&[("A", "snapshot"), ("B", "snapshot")]),
            labels: variables(&[("team", "a")]),
            description: None,
            created_by: None,
        }
    }

    #[test]
    fn what_is_asked_for_wins_over_what_the_snapshot_says() {
        let asked = SandboxSpec {
            env: [("B".to_owned(), "box".to_owned())].into(),
            run: RunAs { user: None, directory: Some("/tmp".to_owned()) },
            resources: Resources { memory: Some(ByteSize::mib(1)), ..Resources::default() },
            ..SandboxSpec::default()
        };
        let made = snapshot().under(asked).unwrap();
        assert_eq!((made.image.as_str(), made.snapshot), ("python:3.12", Some(snapshot().id)));
        let env: Vec<_> = made.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(env, ["A=snapshot", "B=box"]);
        let (user, directory) = (Some("root".to_owned()), Some("/tmp".to_owned()));
        assert_eq!(made.run, RunAs { user, directory });
        let expected = Resources {
            millicores: Some(500),
            memory: Some(ByteSize::mib(1)),
            disk: Some(ByteSize::mib(64)),
            processes: Some(100),
        };
        assert_eq!((made.resources, made.labels.len()), (expected, 1));
    }

    #[test]
    fn nothing_is_made_from_what_has_failed_or_on_less_disk() {
        let with = |state| Snapshot { state, ..snapshot() }.under(SandboxSpec::default());
        assert!(with(SnapshotState::Building).is_ok());
        let message = "no such image".to_owned();
        let failed = SnapshotState::Failed { message: message.clone() };
        assert_eq!(with(failed), Err(SnapshotRefusal::Failed { message }));
        let disk = |size| SandboxSpec {
            resources: Resources { disk: Some(size), ..Resources::default() },
            ..SandboxSpec::default()
        };
        let least = ByteSize::mib(64);
        let smaller = snapshot().under(disk(ByteSize::mib(63)));
        assert_eq!(smaller, Err(SnapshotRefusal::Smaller { least }));
        assert!(snapshot().under(disk(least)).is_ok());
    }

    #[test]
    fn a_snapshot_is_named_by_its_id_its_name_or_name_and_tag() {
        let id = SnapshotId::from_random([1; 16]);
        let name: SnapshotName = "mine".parse().unwrap();
        assert_eq!(id.as_str().parse(), Ok(SnapshotRef::Id(id)));
        assert_eq!("mine".parse(), Ok(SnapshotRef::Name(name.clone())));
        assert_eq!("mine:v1".parse(), Ok(SnapshotRef::Tagged(name, "v1".parse().unwrap())));
        for bad in ["", ":", "mine:", ":v1", "mine:v1:v2", "a/b", "docker.io/library/python:3"] {
            assert!(bad.parse::<SnapshotRef>().is_err(), "{bad}");
        }
    }
}
