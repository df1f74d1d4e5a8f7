//! What the document says of snapshots.

use api::{
    boxes::{CreateSnapshot, ShownSnapshot, SnapshotList, SnapshotTags},
    errors::ErrorCode,
};
use serde_json::json;

use super::{checked, doc, listing};
use crate::{dataplane::shape::CREATION, http::boxes::query::SNAPSHOTS, openapi::Doc};

pub(in crate::http::boxes) fn create() -> Doc {
    checked(doc("Makes a snapshot of an image"))
        .may_take::<CreateSnapshot>(&json!({"name": "snapshot-1", "docker_image": "host"}))
        .answers::<ShownSnapshot>(201, "The snapshot, which may still be built.")
        .refuses(&[ErrorCode::Conflict])
        .refuses_with(422, &CREATION)
}

pub(in crate::http::boxes) fn list() -> Doc {
    listing(doc("Lists the snapshots of the key's tenant"), &SNAPSHOTS)
        .answers::<SnapshotList>(200, "A page of them.")
}

pub(in crate::http::boxes) fn show() -> Doc {
    doc("Shows a snapshot").answers::<ShownSnapshot>(200, "The snapshot.")
}

pub(in crate::http::boxes) fn delete() -> Doc {
    doc("Deletes a snapshot; sandboxes that were made from it stay")
        .answers_nothing(204, "It is gone.")
}

pub(in crate::http::boxes) fn tags() -> Doc {
    checked(doc("Shows the tags of a name"))
        .answers::<SnapshotTags>(200, "The tags, and where each leads.")
}
