//! What the document says of boxes and of URLs into them.

pub(super) mod snapshots;
pub(super) mod templates;

use api::{
    boxes::{
        BoxList, BoxStatus, CreateBox, CreateDownloadUrl, CreateServiceUrl, DownloadUrl,
        SandboxBox, ServiceUrl, UpdateBox,
    },
    errors::ErrorCode,
};
use serde_json::{Value, json};

use super::query::{BOXES, Kind, MOST, MOST_PASSED};
use crate::{
    dataplane::shape::CREATION,
    openapi::{Doc, Tag, doc::SANDBOX},
};

fn doc(summary: &'static str) -> Doc {
    Doc::new(Tag::LangSmith, summary).refuses(&SANDBOX).refuses(&[ErrorCode::Forbidden])
}

/// Says how a field is refused.
fn checked(doc: Doc) -> Doc {
    doc.refuses(&[ErrorCode::InvalidRequest]).refuses_with(422, &["ValidationError"])
}

/// Says what all lists are narrowed and ordered by.
fn listing(doc: Doc, kind: &Kind) -> Doc {
    let text = json!({"type": "string"});
    let one_of = |names: &[&str]| json!({"type": "string", "enum": names});
    let number =
        |least: u64, most: u64| json!({"type": "integer", "minimum": least, "maximum": most});
    let order = one_of(&["asc", "desc"]);
    let labels = json!({"type": "array", "items": {"type": "string"}});
    checked(doc)
        .query("limit", &number(1, MOST), "What a page has at most.")
        .query("page_size", &number(1, MOST), "Another name of the same.")
        .query("cursor", &text, "Where to go on, as the page before said.")
        .query("offset", &number(0, MOST_PASSED), "How many are passed over.")
        .query("name_contains", &text, "Only those whose names hold this.")
        .query("status", &one_of(kind.statuses), "Only those that stand so.")
        .query("label", &labels, "Only those that have this label: `name`, or `name=value`.")
        .query("created_by", &one_of(&["me"]), "Only those of whoever asks.")
        .query("sort_by", &one_of(&kind.sort_names()), "What they are ordered by.")
        .query("sort_order", &order, "The newest or the last first, if nobody says.")
        .query("sort_direction", &order, "Another name of the same.")
}

pub(super) fn create() -> Doc {
    checked(doc("Creates a sandbox"))
        .may_take::<CreateBox>(
            &json!({"name": "box-1", "snapshot_name": "host", "wait_for_ready": false}),
        )
        .answers::<SandboxBox>(201, "The sandbox; ready, unless that was not to be waited for.")
        .refuses(&[ErrorCode::Conflict, ErrorCode::Timeout, ErrorCode::Forbidden])
        .refuses_with(422, &CREATION)
}

pub(super) fn list() -> Doc {
    listing(doc("Lists the sandboxes of the key's tenant"), &BOXES)
        .answers::<BoxList>(200, "A page of them.")
}

pub(super) fn show() -> Doc {
    doc("Shows a sandbox").answers::<SandboxBox>(200, "The sandbox.")
}

pub(super) fn update() -> Doc {
    checked(doc("Changes a sandbox; what is absent stays"))
        .may_take::<UpdateBox>(&json!({"idle_ttl_seconds": 3600}))
        .answers::<SandboxBox>(200, "The sandbox.")
        .refuses(&[ErrorCode::Conflict, ErrorCode::Forbidden])
        .refuses_with(422, &CREATION)
}

pub(super) fn status() -> Doc {
    doc("Shows how a sandbox stands").answers::<BoxStatus>(200, "How it stands.")
}

pub(super) fn start() -> Doc {
    doc("Starts a sandbox that was stopped").answers::<SandboxBox>(200, "The sandbox.")
}

pub(super) fn stop() -> Doc {
    doc("Stops a sandbox; its files are kept").answers::<SandboxBox>(200, "The sandbox.")
}

pub(super) fn delete() -> Doc {
    doc("Deletes a sandbox").answers_nothing(204, "It will be gone soon.")
}

pub(super) fn capture() -> Doc {
    doc("Makes a snapshot of a sandbox, which cannot be had yet")
        .refuses(&[ErrorCode::NotImplemented])
        .never_succeeds()
}

/// Of URLs that open something of a sandbox.
fn gives_out(summary: &'static str) -> Doc {
    checked(doc(summary)).refuses(&[ErrorCode::CapabilityDenied])
}

pub(super) fn service_url() -> Doc {
    gives_out("Gives out a URL to a server in a sandbox")
        .may_take::<CreateServiceUrl>(&json!({"port": 8000, "expires_in_seconds": 600}))
        .answers::<ServiceUrl>(200, "The URL, and the token that opens it.")
        .refuses_with(422, &["SandboxConfig"])
}

pub(super) fn download_url() -> Doc {
    let example: Value = json!({"path": "a", "expires_in_seconds": 600});
    gives_out("Gives out a URL that downloads one file")
        .may_take::<CreateDownloadUrl>(&example)
        .answers::<DownloadUrl>(200, "The URL, which opens the file by itself.")
}
