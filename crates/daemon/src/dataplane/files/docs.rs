//! What the document says of files.

use api::{
    errors::ErrorCode,
    files::{
        EditFile, EditedFile, FileList, FileShown, Glob, GlobMatches, Grep, GrepMatches,
        MakeDirectory, MoveFile, WatchEvent,
    },
};
use serde_json::{Value, json};

use crate::openapi::{Doc, Tag, doc::SANDBOX};

/// How files are refused that are read.
const READING: [ErrorCode; 7] = [
    ErrorCode::InvalidRequest,
    ErrorCode::InvalidPath,
    ErrorCode::NotRegular,
    ErrorCode::NotFound,
    ErrorCode::Forbidden,
    ErrorCode::Timeout,
    ErrorCode::SandboxNotReady,
];

/// How files are refused that are changed, besides.
const WRITING: [ErrorCode; 6] = [
    ErrorCode::Conflict,
    ErrorCode::PreconditionFailed,
    ErrorCode::Symlink,
    ErrorCode::InsufficientStorage,
    ErrorCode::PayloadTooLarge,
    ErrorCode::UnsupportedMediaType,
];

fn text() -> Value {
    json!({"type": "string"})
}

fn flag() -> Value {
    json!({"type": "boolean"})
}

fn reads(summary: &'static str) -> Doc {
    Doc::new(Tag::Files, summary).refuses(&SANDBOX).refuses(&READING)
}

fn writes(summary: &'static str) -> Doc {
    reads(summary).refuses(&WRITING)
}

/// Says which version a change is for.
fn conditional(doc: Doc) -> Doc {
    doc.header("If-Match", &text(), "Only if it is one of these versions.").header(
        "If-None-Match",
        &text(),
        "Only if it is none of these versions; `*`: only if it is not there.",
    )
}

fn with_path(doc: Doc) -> Doc {
    let path = json!({"type": "string", "examples": ["/workspace/a"]});
    doc.query("path", &path, "The file. A relative path is from the user's home.")
}

fn sends(doc: Doc) -> Doc {
    conditional(doc)
        .header("Range", &text(), "One range of bytes.")
        .header("If-Range", &text(), "The version that the range is of.")
        .header("If-Modified-Since", &text(), "Only if it was changed since.")
        .answers_as(200, "The file.", "application/octet-stream")
        .answers_as(206, "The part of it.", "application/octet-stream")
        .answers_nothing(304, "The client has it already.")
        .refuses(&[ErrorCode::PreconditionFailed, ErrorCode::RangeNotSatisfiable])
}

pub(super) fn read_url() -> Doc {
    sends(reads("Reads a file"))
}

pub(super) fn read() -> Doc {
    with_path(sends(reads("Reads a file")))
}

pub(super) fn read_link() -> Doc {
    sends(reads("Reads the one file that a link is for"))
}

fn takes(doc: Doc, types: &[&str]) -> Doc {
    let octal = json!({"type": "string", "pattern": "^[0-7]+$"});
    conditional(doc)
        .takes_bytes(types)
        .query("mode", &octal, "Its permission bits, in octal digits.")
        .query(
            "parents",
            &flag(),
            "Whether missing directories are made; so they are if nobody says.",
        )
        .answers::<FileShown>(200, "The file that was replaced.")
        .answers::<FileShown>(201, "The file that is new.")
}

pub(super) fn write_url() -> Doc {
    takes(writes("Writes a file"), &["application/octet-stream"])
}

pub(super) fn write() -> Doc {
    let types = ["application/octet-stream", "multipart/form-data"];
    with_path(takes(writes("Writes a file"), &types))
}

pub(super) fn remove() -> Doc {
    conditional(writes("Removes a file or a directory"))
        .query("recursive", &flag(), "With all that is in it.")
        .answers_nothing(204, "It is gone.")
}

pub(super) fn list() -> Doc {
    let number = json!({"type": "integer", "minimum": 0, "maximum": u32::MAX});
    with_path(reads("Lists a directory"))
        .query("limit", &number, "What a page has at most.")
        .query("cursor", &text(), "Where to go on, as the page before said.")
        .answers::<FileList>(200, "A page of its names.")
}

pub(super) fn stat() -> Doc {
    with_path(reads("Shows what is known of a file"))
        .query("follow", &flag(), "Whether of what a link points to; so it is if nobody says.")
        .answers::<FileShown>(200, "What is known of it.")
}

pub(super) fn make_directory() -> Doc {
    writes("Makes a directory")
        .takes::<MakeDirectory>(&json!({"path": "made", "parents": true}))
        .answers::<FileShown>(201, "The directory.")
}

pub(super) fn rename() -> Doc {
    conditional(writes("Moves a file or a directory"))
        .takes::<MoveFile>(&json!({"from": "a", "to": "b"}))
        .answers::<FileShown>(200, "It, at its new place.")
}

pub(super) fn edit() -> Doc {
    conditional(writes("Replaces a text in a file"))
        .takes::<EditFile>(&json!({"path": "a", "old_string": "b", "new_string": "c"}))
        .answers::<EditedFile>(200, "The file.")
}

pub(super) fn glob() -> Doc {
    reads("Finds files by their paths")
        .takes::<Glob>(&json!({"pattern": "*", "path": "/workspace"}))
        .answers::<GlobMatches>(200, "What was found.")
}

pub(super) fn grep() -> Doc {
    reads("Finds lines by what stands in them")
        .takes::<Grep>(&json!({"pattern": "a", "path": "/workspace"}))
        .answers::<GrepMatches>(200, "What was found.")
}

pub(super) fn watch() -> Doc {
    with_path(reads("Follows what happens to files"))
        .query("recursive", &flag(), "Below it too.")
        .query(
            "cursor",
            &text(),
            "The last event that the client has: it is told that there is a gap.",
        )
        .header("Last-Event-ID", &text(), "The same, as browsers say it.")
        .streams::<WatchEvent>("What happens from now on.")
}
