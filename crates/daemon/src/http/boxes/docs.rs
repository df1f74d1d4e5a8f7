//! What the document says of boxes.

use api::{
    errors::ErrorCode,
    langsmith::{BoxList, BoxStatus, CreateBox, SandboxBox},
};
use serde_json::json;

use crate::openapi::{Doc, Tag, doc::SANDBOX};

fn doc(summary: &'static str) -> Doc {
    Doc::new(Tag::LangSmith, summary).refuses(&SANDBOX)
}

pub(super) fn create() -> Doc {
    doc("Creates a sandbox")
        .takes::<CreateBox>(
            &json!({"name": "box-1", "snapshot_name": "host", "wait_for_ready": false}),
        )
        .answers::<SandboxBox>(201, "The sandbox; ready, unless that was not to be waited for.")
        .refuses(&[ErrorCode::Conflict, ErrorCode::InvalidRequest, ErrorCode::Timeout])
}

pub(super) fn list() -> Doc {
    let number = || json!({"type": "integer", "minimum": 0, "maximum": u32::MAX});
    let text = || json!({"type": "string"});
    doc("Lists the sandboxes of the key's tenant")
        .query("limit", &number(), "What a page has at most.")
        .query("page_size", &number(), "Another name of the same.")
        .query("cursor", &text(), "Where to go on, as the page before said.")
        .query("name_contains", &text(), "Only those whose names hold this.")
        .query("status", &text(), "Only those that stand so.")
        .answers::<BoxList>(200, "A page of them.")
        .refuses(&[ErrorCode::InvalidRequest])
}

pub(super) fn show() -> Doc {
    doc("Shows a sandbox").answers::<SandboxBox>(200, "The sandbox.")
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
