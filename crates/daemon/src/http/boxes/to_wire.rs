//! Sandboxes as LangSmith's clients see them.

use api::langsmith::{BoxStatus, SandboxBox};
use model::{
    life::Standing,
    sandbox::Sandbox,
    units::{ByteSize, Timestamp},
};

use crate::clock;

/// Shows a sandbox. Whoever sees one that sleeps may use it as if it did not.
pub(super) fn shown(sandbox: &Sandbox, base: &str) -> SandboxBox {
    let Sandbox { id, alias, spec, life, .. } = sandbox;
    let time = |at: Timestamp| clock::text(at.into());
    let BoxStatus { status, status_message } = status(sandbox);
    SandboxBox {
        id: id.to_string(),
        name: alias.as_ref().map_or_else(|| id.to_string(), ToString::to_string),
        dataplane_url: format!("{base}/dp/{id}"),
        status,
        status_message,
        created_at: time(life.created_at),
        updated_at: time(life.phase_since),
        stopped_at: (status == "stopped").then(|| time(life.standing_since)),
        idle_ttl_seconds: spec.idle.map_or(0, |idle| idle.after.as_secs()),
        snapshot_id: spec.image.clone(),
        vcpus: spec.resources.millicores.map(|millicores| millicores.div_ceil(1000)),
        cpu_millicores: spec.resources.millicores,
        mem_bytes: spec.resources.memory.map(ByteSize::as_bytes),
        fs_capacity_bytes: spec.resources.disk.map(ByteSize::as_bytes),
        labels: spec.labels.clone(),
    }
}

pub(super) fn status(sandbox: &Sandbox) -> BoxStatus {
    let failure = sandbox.life.failure.as_ref().map(|failure| failure.message.clone());
    let (status, status_message) = match sandbox.life.phase.standing() {
        Standing::Pending => ("provisioning", None),
        Standing::Ready => ("ready", None),
        Standing::Stopped | Standing::Deleting | Standing::Deleted => ("stopped", None),
        Standing::Failed => ("failed", failure),
    };
    BoxStatus { status, status_message }
}
