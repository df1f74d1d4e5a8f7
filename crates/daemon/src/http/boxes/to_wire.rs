//! Sandboxes and snapshots as LangSmith's clients see them.

use std::time::Duration;

use api::{
    boxes::{BoxStatus, SandboxBox, ShownSnapshot, Template, TemplateResources},
    langsmith::RunConfig,
};
use engine::sandboxes::snapshots::Tagged;
use model::{
    life::{FailureCause, Life, Phase, Standing, SuspendReason},
    listing::Row,
    sandbox::Sandbox,
    snapshot::{Contents, Snapshot, SnapshotState},
    spec::{KeepStopped, RunAs},
    units::{ByteSize, Timestamp},
};
use store::sandboxes::Phases;

use super::quantity;
use crate::clock;

fn time(at: Timestamp) -> String {
    clock::text(at.into())
}

/// Returns what a box is called: its alias, or else its id.
pub(super) fn name(sandbox: &Sandbox) -> &str {
    sandbox.alias.as_ref().map_or(sandbox.id.as_str(), |alias| alias.as_str())
}

/// Shows a sandbox. Whoever sees one that sleeps may use it as if it did not.
pub(super) fn shown(sandbox: &Sandbox, base: &str, keeps_stopped: Option<Duration>) -> SandboxBox {
    let Sandbox { id, spec, life, .. } = sandbox;
    let row = row(sandbox, keeps_stopped);
    let BoxStatus { status, status_message } = status(sandbox);
    let from = spec.snapshot.as_ref().map_or_else(|| spec.image.clone(), ToString::to_string);
    SandboxBox {
        id: id.to_string(),
        name: row.name.to_owned(),
        dataplane_url: format!("{base}/dp/{id}"),
        status,
        status_message,
        created_at: time(life.created_at),
        updated_at: time(life.phase_since.max(life.adjusted_at.unwrap_or(life.phase_since))),
        created_by: spec.created_by.clone(),
        updated_by: spec.updated_by.clone(),
        stopped_at: row.stopped_at.map(time),
        idle_ttl_seconds: row.idle,
        delete_after_stop_seconds: row.keep_stopped,
        snapshot_id: from,
        template_name: spec.snapshot_name.clone().unwrap_or_else(|| spec.image.clone()),
        vcpus: spec.resources.millicores.map(|millicores| millicores.div_ceil(1000)),
        cpu_millicores: spec.resources.millicores,
        mem_bytes: spec.resources.memory.map(ByteSize::as_bytes),
        fs_capacity_bytes: spec.resources.disk.map(ByteSize::as_bytes),
        labels: spec.labels.clone(),
        run_config: run_config(&spec.run),
        persistent: true,
        preserve_memory_on_stop: false,
        size_class: None,
        access_delegation: None,
        mount_config: None,
        proxy_config: None,
        volumes: Vec::new(),
    }
}

/// The values of variables are secrets, and nobody is shown them.
fn run_config(run: &RunAs) -> RunConfig {
    RunConfig { user: run.user.clone(), work_dir: run.directory.clone(), env_vars: None }
}

pub(super) fn status(sandbox: &Sandbox) -> BoxStatus {
    let status = match sandbox.life.phase.standing() {
        Standing::Pending => "provisioning",
        Standing::Ready => "ready",
        Standing::Stopped => "stopped",
        Standing::Deleting | Standing::Deleted => "deleting",
        Standing::Failed => "failed",
    };
    BoxStatus { status, status_message: status_message(&sandbox.life) }
}

/// Returns what broke a sandbox, or what stopped it without a request.
fn status_message(life: &Life) -> Option<String> {
    let lost = match life.suspended_for {
        Some(SuspendReason::HostRebooted) => "the machine was restarted",
        Some(SuspendReason::SupervisorLost) => "the supervisor of the sandbox was lost",
        Some(
            SuspendReason::Requested
            | SuspendReason::Idle
            | SuspendReason::Released
            | SuspendReason::ProviderStopped,
        )
        | None => return life.broken_by().map(|failure| failure.message.clone()),
    };
    (life.phase == Phase::Stopped)
        .then(|| format!("{lost}: its files are kept, and using it starts it again"))
        .or_else(|| life.broken_by().map(|failure| failure.message.clone()))
}

/// Returns what lists are narrowed and ordered by.
pub(super) fn row(sandbox: &Sandbox, keeps_stopped: Option<Duration>) -> Row<'_> {
    let Sandbox { id, spec, life, .. } = sandbox;
    let status = status(sandbox).status;
    Row {
        id: id.as_str(),
        name: name(sandbox),
        status,
        created_at: life.created_at,
        stopped_at: (status == "stopped").then_some(life.standing_since),
        idle: spec.idle.map_or(0, |idle| idle.after.as_secs()),
        keep_stopped: match spec.keep_stopped {
            Some(KeepStopped::Forever) => 0,
            Some(KeepStopped::For(kept)) => kept.as_secs(),
            None => keeps_stopped.map_or(0, |kept| kept.as_secs()),
        },
        labels: Some(&spec.labels),
        created_by: spec.created_by.as_deref(),
    }
}

/// Returns the phases that a status stands for. Those that are being deleted are listed only to whoever
/// asks for them.
pub(super) fn phases(status: Option<&str>) -> Phases {
    let is_listed = |phase: &Phase| {
        let standing = phase.standing();
        match status {
            None => !phase.is_deleted(),
            Some("provisioning") => standing == Standing::Pending,
            Some("ready") => standing == Standing::Ready,
            Some("stopped") => standing == Standing::Stopped,
            Some("failed") => standing == Standing::Failed,
            Some(_) => standing == Standing::Deleting,
        }
    };
    Phases::Only(Phase::ALL.into_iter().filter(is_listed).collect())
}

/// Returns how LangSmith's clients call a failure.
pub(super) const fn failure(cause: FailureCause) -> &'static str {
    match cause {
        FailureCause::ImageFailed
        | FailureCause::ImageNotFound
        | FailureCause::ImageNotAllowed
        | FailureCause::ImageUnusable => "ImagePull",
        FailureCause::MainProcessCrashed => "CrashLoop",
        FailureCause::CreateFailed
        | FailureCause::ResumeFailed
        | FailureCause::SupervisorLost
        | FailureCause::HostRebooted
        | FailureCause::ProviderLost
        | FailureCause::DiskFull => "SandboxConfig",
    }
}

pub(super) fn snapshot(tagged: &Tagged) -> ShownSnapshot {
    let Tagged { snapshot, tags } = tagged;
    let (contents, status_message) = match &snapshot.state {
        SnapshotState::Ready(contents) => (contents.clone(), None),
        SnapshotState::Building => (Contents::default(), None),
        SnapshotState::Failed { message } => (Contents::default(), Some(message.clone())),
    };
    ShownSnapshot {
        id: snapshot.id.to_string(),
        name: snapshot.name.to_string(),
        status: snapshot.state.name(),
        status_message,
        fs_capacity_bytes: snapshot.resources.disk.map_or(0, ByteSize::as_bytes),
        fs_used_bytes: contents.size.map(ByteSize::as_bytes),
        docker_image: snapshot.image.clone(),
        image_digest: contents.digest,
        source_sandbox_id: None,
        registry_id: None,
        created_by: snapshot.created_by.clone(),
        created_at: time(snapshot.created_at),
        updated_at: time(snapshot.updated_at),
        tags: tags.iter().map(ToString::to_string).collect(),
        labels: snapshot.labels.clone(),
        description: snapshot.description.clone(),
        run_config: run_config(&snapshot.run),
    }
}

pub(super) fn snapshot_row(tagged: &Tagged) -> Row<'_> {
    let Snapshot { id, name, state, created_at, labels, created_by, .. } = &tagged.snapshot;
    Row {
        id: id.as_str(),
        name: name.as_str(),
        status: state.name(),
        created_at: *created_at,
        labels: Some(labels),
        created_by: created_by.as_deref(),
        ..Row::default()
    }
}

pub(super) fn template(tagged: &Tagged) -> Template {
    let snapshot = &tagged.snapshot;
    Template {
        id: snapshot.id.to_string(),
        name: snapshot.name.to_string(),
        image: snapshot.image.clone(),
        resources: TemplateResources {
            cpu: snapshot.resources.millicores.map(quantity::write_cpu),
            memory: snapshot.resources.memory.map(quantity::write_size),
            storage: snapshot.resources.disk.map(quantity::write_size),
        },
        volume_mounts: Vec::new(),
        created_at: time(snapshot.created_at),
        updated_at: time(snapshot.updated_at),
    }
}
