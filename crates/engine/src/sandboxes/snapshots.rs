//! Snapshots: images under names of a tenant's own. One is kept before its image is brought here, and if
//! the server ends meanwhile the next one goes on with it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use model::{
    ids::{SnapshotId, SnapshotName, Tag, Tenant},
    image::HOST,
    snapshot::{Contents, MOST_SNAPSHOTS, Snapshot, SnapshotRef, SnapshotState},
    spec::{Resources, RunAs, SandboxSpec, Variables},
    units::ByteSize,
};
pub use store::snapshots::{Tagged, Taking};
use store::{StoreError, snapshots::NewSnapshot};
use tokio::time::sleep;

use super::{SandboxError, Sandboxes, Shared, clock, command, materials, random};
use crate::images::{Digest, Found, ImageError, Listener, Pinned, Wanted};

/// What somebody wants to have a snapshot of.
#[derive(Debug)]
pub struct Wish {
    pub name: SnapshotName,
    pub tag: Tag,
    pub taking: Taking,
    pub image: String,
    pub resources: Resources,
    pub run: RunAs,
    pub env: Variables,
    pub labels: BTreeMap<String, String>,
    pub description: Option<String>,
    pub created_by: Option<String>,
}

/// How long to wait before something is kept that could not be.
const RETRY: Duration = Duration::from_secs(1);

impl Sandboxes {
    /// Accepts a new snapshot. Its state tells what becomes of it.
    pub async fn create_snapshot(
        &self,
        tenant: &Tenant,
        wish: Wish,
    ) -> Result<Tagged, SandboxError> {
        let shared = &self.shared;
        let Wish { image, resources, run, env, labels, .. } = &wish;
        let like_a_sandbox = SandboxSpec {
            image: image.clone(),
            resources: *resources,
            run: run.clone(),
            env: env.clone(),
            labels: labels.clone(),
            ..SandboxSpec::default()
        };
        shared.settings.resources.check(&like_a_sandbox)?;
        shared.machine.check(&like_a_sandbox).await?;
        command::check_run(&like_a_sandbox, shared.provider(&like_a_sandbox).no_root())?;
        materials::check(&shared.images, &like_a_sandbox, &[])?;
        let now = clock::now();
        let snapshot = Snapshot {
            id: SnapshotId::from_random(random()?),
            tenant: tenant.clone(),
            name: wish.name,
            node: shared.settings.node.clone(),
            state: match wish.image.as_str() {
                // It is here.
                HOST => SnapshotState::Ready(Contents::default()),
                _ => SnapshotState::Building,
            },
            created_at: now,
            updated_at: now,
            image: wish.image,
            resources: wish.resources,
            run: wish.run,
            env: wish.env,
            labels: wish.labels,
            description: wish.description,
            created_by: wish.created_by,
        };
        let (tag, taking) = (wish.tag.clone(), wish.taking);
        let new = NewSnapshot { snapshot: snapshot.clone(), tag, taking, most: MOST_SNAPSHOTS };
        shared.store.create_snapshot(new).await.map_err(|error| match error {
            StoreError::Conflict { .. } => SandboxError::SnapshotExists,
            other => other.into(),
        })?;
        if snapshot.state == SnapshotState::Building {
            build(shared, snapshot.clone());
        }
        Ok(Tagged { snapshot, tags: vec![wish.tag] })
    }

    /// Returns the snapshots of a tenant, newest first.
    pub async fn snapshots(&self, tenant: &Tenant) -> Result<Vec<Tagged>, SandboxError> {
        Ok(self.shared.store.snapshots(tenant).await?)
    }

    /// Returns the snapshot of this tenant that somebody means.
    pub async fn snapshot(&self, tenant: &Tenant, name: &str) -> Result<Tagged, SandboxError> {
        // What is no name is nobody's.
        let reference: SnapshotRef =
            name.parse().map_err(|_no_name| SandboxError::SnapshotNotFound)?;
        let found = self.shared.store.find_snapshot(tenant, &reference).await?;
        found.ok_or(SandboxError::SnapshotNotFound)
    }

    /// Deletes a snapshot. Sandboxes that were made from it go on.
    pub async fn delete_snapshot(
        &self,
        tenant: &Tenant,
        name: &str,
    ) -> Result<SnapshotId, SandboxError> {
        let id = self.snapshot(tenant, name).await?.snapshot.id;
        self.shared.store.delete_snapshot(tenant, &id).await.map_err(|error| match error {
            StoreError::NotFound { .. } => SandboxError::SnapshotNotFound,
            other => other.into(),
        })?;
        Ok(id)
    }

    /// Has commands and files of a sandbox be root's, if neither the request nor its snapshot names a user
    /// and its provider has a root.
    pub fn as_root_by_default(&self, mut spec: SandboxSpec) -> SandboxSpec {
        if spec.run.user.is_none() && self.shared.provider(&spec).no_root().is_none() {
            spec.run.user = Some("root".to_owned());
        }
        spec
    }

    /// Completes a spec from the tenant's snapshot of this name, or from an image: `host`, the operator's
    /// `default_image`, or an explicit reference. Any other name is an unknown snapshot, and is never pulled.
    pub async fn made_from(
        &self,
        tenant: &Tenant,
        name: &str,
        default_image: Option<&str>,
        asked: SandboxSpec,
    ) -> Result<SandboxSpec, SandboxError> {
        if let Ok(reference) = name.parse::<SnapshotRef>()
            && let Some(found) = self.shared.store.find_snapshot(tenant, &reference).await?
        {
            return Ok(found.snapshot.under(asked)?);
        }
        if name == HOST || Some(name) == default_image || is_explicit_reference(name) {
            return Ok(SandboxSpec { image: name.to_owned(), ..asked });
        }
        Err(SandboxError::SnapshotNotFound)
    }
}

/// Says whether a text can only mean an image: it has a repository path, a tag or a digest.
fn is_explicit_reference(name: &str) -> bool {
    name.contains(['/', ':', '@'])
}

/// Goes on with what a server before this one has left.
pub(super) async fn go_on(shared: &Arc<Shared>) -> Result<(), SandboxError> {
    for snapshot in shared.store.snapshots_to_build(&shared.settings.node).await? {
        build(shared, snapshot);
    }
    Ok(())
}

/// Names the images that snapshots are of.
pub(super) fn images_of(snapshots: &[Snapshot]) -> Vec<Digest> {
    let image = |snapshot: &Snapshot| match &snapshot.state {
        SnapshotState::Ready(contents) => contents.image.as_ref()?.parse().ok(),
        SnapshotState::Building | SnapshotState::Failed { .. } => None,
    };
    snapshots.iter().filter_map(image).collect()
}

/// Has the image of a snapshot brought here.
fn build(shared: &Arc<Shared>, snapshot: Snapshot) {
    let here = Arc::clone(shared);
    shared.tasks.start("snapshot", async move {
        let wanted = snapshot.image.parse::<Wanted>();
        let found = match wanted {
            Ok(wanted) => here.images.get(&snapshot.tenant, wanted, &Listener::default()).await,
            Err(error) => Err(error),
        };
        // Nobody deletes what is held before its record says that it is needed.
        let (state, _held): (SnapshotState, Option<Pinned>) = match found {
            Ok(Found::Image(pinned)) => (ready(&pinned), Some(pinned)),
            Ok(Found::Host | Found::Directory { .. }) => {
                (SnapshotState::Ready(Contents::default()), None)
            }
            // The next server does it.
            Err(ImageError::SpawnerGone) => return,
            Err(error) => (SnapshotState::Failed { message: error.to_string() }, None),
        };
        tracing::info!(snapshot = %snapshot.id, state = state.name(), "snapshot settled");
        settle(&here, &snapshot.id, state).await;
    });
}

fn ready(image: &Pinned) -> SnapshotState {
    SnapshotState::Ready(Contents {
        digest: Some(image.manifest.unwrap_or(image.id).to_string()),
        image: Some(image.id.to_string()),
        size: Some(ByteSize::bytes(image.size)),
    })
}

/// Keeps what became of a snapshot, however long that takes: it has happened.
async fn settle(shared: &Shared, id: &SnapshotId, state: SnapshotState) {
    loop {
        match shared.store.settle_snapshot(id, state.clone(), clock::now()).await {
            Ok(()) | Err(StoreError::Closed | StoreError::Damaged { .. }) => return,
            Err(error) => {
                tracing::error!(snapshot = %id, %error, "cannot keep what became of a snapshot");
                sleep(RETRY).await;
            }
        }
    }
}
