//! What the document says of commands.

use api::{
    errors::ErrorCode,
    exec::{Ran, Shown, Start},
    langsmith::{Execute, Executed, Reconnect, StreamEvent},
};
use serde_json::json;

use crate::openapi::{Doc, Tag, doc::SANDBOX};

fn doc(summary: &'static str) -> Doc {
    Doc::new(Tag::Commands, summary).refuses(&SANDBOX)
}

pub(super) fn exec() -> Doc {
    doc("Runs a command and answers when it is over")
        .takes::<Start>(&json!({"command": ["true"]}))
        .answers::<Ran>(200, "How it ended, and what it wrote.")
        .refuses(&[ErrorCode::Conflict, ErrorCode::OutputGone])
}

pub(super) fn execute() -> Doc {
    doc("Runs a command and answers when it is over")
        .takes::<Execute>(&json!({"command": "true"}))
        .answers::<Executed>(200, "How it ended, and what it wrote.")
        .refuses(&[ErrorCode::Conflict, ErrorCode::OutputGone])
}

pub(super) fn socket() -> Doc {
    Doc::new(Tag::Commands, "Opens a connection that runs or watches a command").upgrades()
}

pub(super) fn show() -> Doc {
    doc("Shows how a command stands").answers::<Shown>(200, "How it stands.")
}

pub(super) fn cancel() -> Doc {
    doc("Ends a command and all that it has started").answers_nothing(204, "It is ended.")
}

pub(super) fn output() -> Doc {
    let number = json!({"type": "integer", "minimum": 0});
    doc("Returns what a command has written so far")
        .query("offset", &number, "From which byte on.")
        .answers_as(
            200,
            "The bytes. X-Output-Start and X-Output-End say which.",
            "application/octet-stream",
        )
        .refuses(&[ErrorCode::InvalidRequest, ErrorCode::OutputGone])
}

pub(super) fn start() -> Doc {
    doc("Starts a command and follows it")
        .takes::<Execute>(&json!({"command": "true"}))
        .streams::<StreamEvent>("What it writes, and how it ends.")
        .refuses(&[ErrorCode::Conflict])
}

pub(super) fn resume() -> Doc {
    doc("Follows a command from where the client is")
        .takes::<Reconnect>(&json!({"command_id": "EXEC", "stdout_offset": 0, "stderr_offset": 0}))
        .streams::<StreamEvent>("What it writes from there on, and how it ends.")
}
