//! What is done in the sandbox of a session: commands and files.

use api::{
    errors::ErrorCode,
    exec::{Command, Exit, Start},
    files::{self as wire, EditFile},
    mcp::{RanCommand, ReadLines, WrittenFile},
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use engine::sandboxes::attach::Stream;
use model::{capability::Capability, file::Condition};
use serde_json::json;

use super::{
    answers::{Refused, Shown, Told, cut_short, shown, streams, values},
    arguments::{Edit, Encoding, Exec, Glob, Grep, List, Read, Write},
    call::Call,
};
use crate::{
    dataplane::{
        exec::once::{self, Over},
        files::{search, tree, whole},
    },
    http::problem::{ApiError, Body},
};

/// Where commands begin, and what paths are from that say nothing else.
const WORKSPACE: &str = "/workspace";

/// How long a command may take if nobody says.
const TIMEOUT: u64 = 60;

/// How much is shown of a stream if nobody says, and of a file or of lists at most.
pub(super) const OUTPUT: u64 = 32 << 10;
const TEXT: usize = 64 << 10;

/// What is shown of files if nobody says.
const LINES: u64 = 2000;
const NAMES: u32 = 200;
const MATCHES: u32 = 100;

pub(super) async fn exec(call: &Call, asked: Exec) -> Result<Told, Refused> {
    let access = call.access(asked.session_id.as_deref(), "mcp exec", Capability::Process).await?;
    let seconds = asked.timeout_seconds.unwrap_or(TIMEOUT);
    let start = Start {
        command: Some(Command::Text(asked.command)),
        cwd: asked.cwd,
        env: asked.env.unwrap_or_default(),
        input: asked.stdin,
        timeout_seconds: u32::try_from(seconds).ok().map(f64::from),
        // Whoever does not wait any more has it ended.
        kill_on_disconnect: true,
        ..Start::default()
    };
    let over = if call.is_heard() {
        once::run_heard(&access, &start, |bytes| call.wrote(bytes)).await?
    } else {
        once::run(&access, &start).await?
    };
    let most = asked.max_output_bytes.unwrap_or(OUTPUT);
    let stdout = stream(&over, Stream::Stdout, most).await?;
    let stderr = stream(&over, Stream::Stderr, most).await?;
    Ok(ran(over, stdout, stderr, seconds))
}

/// Shows the beginning and the end of what a command has written.
async fn stream(over: &Over, stream: Stream, most: u64) -> Result<Shown, Refused> {
    let extent = once::extent(&over.attached, stream).map_err(ApiError::from)?;
    if extent.end - extent.start <= most {
        let all = once::read(&over.attached, stream, most).await?;
        return Ok(shown(&all.bytes, &[], all.omitted));
    }
    let head = once::read(&over.attached, stream, most / 2).await?;
    let tail = once::read_end(&over.attached, stream, most / 2).await?;
    let read = u64::try_from(tail.len()).unwrap_or(u64::MAX);
    Ok(shown(&head.bytes, &tail, head.omitted.saturating_sub(read)))
}

fn ran(over: Over, stdout: Shown, stderr: Shown, seconds: u64) -> Told {
    let (end, code) = ended(&over.exit, seconds);
    let text = streams(&end, &stdout, &stderr);
    let ran = RanCommand {
        exec_id: over.attached.id().to_string(),
        exit: over.exit,
        streams: values(stdout, stderr),
        error: code.map(|code| cut_short(code, &end)),
    };
    Told { text, values: json!(ran), is_error: code.is_some() }
}

/// Says how a command ended. What it decided itself is no error of the tool.
fn ended(exit: &Exit, seconds: u64) -> (String, Option<ErrorCode>) {
    let message = exit.message.as_deref().unwrap_or_default();
    match (exit.reason, exit.exit_code, &exit.signal) {
        ("exited", Some(code), _) => (format!("exit code {code}"), None),
        ("signaled", _, Some(signal)) => (format!("ended by {signal}"), None),
        ("timed_out", ..) => {
            let text = format!(
                "TIMEOUT: killed after {seconds} s; what it wrote until then is below. Give timeout_seconds up to \
                 600, or do less at once"
            );
            (text, Some(ErrorCode::Timeout))
        }
        (reason, ..) => (format!("{reason}: {message}"), Some(ErrorCode::Conflict)),
    }
}

pub(super) async fn read(call: &Call, asked: Read) -> Result<Told, Refused> {
    let access = call.access(asked.session_id.as_deref(), "mcp read", Capability::FsRead).await?;
    let first = asked.first_line.unwrap_or(1);
    let range = whole::Range { first, count: asked.lines.unwrap_or(LINES), most: TEXT };
    let lines = whole::read(&access, &absolute(&asked.path), range).await?;
    let next = first.saturating_add(lines.count);
    let (text, content, encoding) = match String::from_utf8(cut_character(lines.bytes)) {
        Ok(text) if lines.is_cut => {
            let more = format!("[… cut here; go on with first_line {next} …]");
            (format!("{text}\n{more}"), text, "text")
        }
        Ok(text) => (text.clone(), text, "text"),
        Err(error) => {
            let bytes = error.into_bytes();
            let text = "The file is no text. Its first bytes are in structuredContent, in base64; use exec, e.g. \
                        file or xxd, to look at it.";
            (text.to_owned(), BASE64.encode(bytes), "base64")
        }
    };
    let read = ReadLines {
        file: lines.file,
        first_line: first,
        lines: lines.count,
        truncated: lines.is_cut,
        content,
        encoding,
    };
    Ok(Told::done(text, json!(read)))
}

/// Leaves out a character of which a part was cut off.
fn cut_character(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Err(error) = str::from_utf8(&bytes)
        && error.error_len().is_none()
    {
        bytes.truncate(error.valid_up_to());
    }
    bytes
}

pub(super) async fn write(call: &Call, asked: Write) -> Result<Told, Refused> {
    let access = call.access(asked.session_id.as_deref(), "mcp write", Capability::FsWrite).await?;
    let bytes = match asked.encoding {
        None | Some(Encoding::Text) => asked.content.into_bytes(),
        Some(Encoding::Base64) => BASE64.decode(asked.content).map_err(|_not_base64| {
            ApiError::new(ErrorCode::InvalidRequest, "/content: must be base64, as encoding says")
        })?,
    };
    let condition = match asked.if_match.as_deref() {
        Some(tag) => Condition::is(tag.trim_matches('"')),
        None => Condition::default(),
    };
    let size = bytes.len();
    let file = whole::write(&access, &absolute(&asked.path), bytes, &condition).await?;
    let text = format!("{size} bytes are in {}.", file.path);
    Ok(Told::done(text, json!(WrittenFile { file })))
}

pub(super) async fn edit(call: &Call, asked: Edit) -> Result<Told, Refused> {
    let access = call.access(asked.session_id.as_deref(), "mcp edit", Capability::FsWrite).await?;
    let edit = EditFile {
        path: absolute(&asked.path),
        old_string: asked.old_string,
        new_string: asked.new_string,
        replace_all: asked.replace_all.unwrap_or_default(),
    };
    let (edited, _) = tree::edit_at(&access, &edit, &Condition::default()).await?;
    let text = format!("Replaced {} times in {}.", edited.occurrences, edited.file.path);
    Ok(Told::done(text, json!(edited)))
}

pub(super) async fn list(call: &Call, asked: List) -> Result<Told, Refused> {
    let access = call.access(asked.session_id.as_deref(), "mcp list", Capability::FsRead).await?;
    let path = absolute(asked.path.as_deref().unwrap_or_default());
    let limit = asked.limit.unwrap_or(NAMES);
    let page = tree::list_at(&access, &path, asked.cursor.as_deref(), limit).await?;
    let lines = page.entries.iter().map(|entry| {
        let size = entry.size.map_or_else(String::new, |size| format!(" {size}"));
        let slash = if entry.is_dir { "/" } else { "" };
        format!("{}{slash} {}{size}", entry.name, entry.kind)
    });
    let mut text = joined(lines, "the directory is empty");
    if page.next_cursor.is_some() {
        text.push_str("\n[… there is more; go on with cursor …]");
    }
    Ok(Told::done(text, json!(page)))
}

pub(super) async fn glob(call: &Call, asked: Glob) -> Result<Told, Refused> {
    let access = call.access(asked.session_id.as_deref(), "mcp glob", Capability::FsRead).await?;
    let path = absolute(asked.path.as_deref().unwrap_or_default());
    let limit = Some(asked.limit.unwrap_or(NAMES));
    let glob = wire::Glob { pattern: asked.pattern, path: Some(path), limit };
    let found = search::glob(access, Body(glob)).await?.0;
    let text = joined(found.matches.iter().map(|it| it.path.clone()), "nothing was found");
    Ok(Told::done(and_more(text, found.truncated, found.unreadable), json!(found)))
}

pub(super) async fn grep(call: &Call, asked: Grep) -> Result<Told, Refused> {
    let access = call.access(asked.session_id.as_deref(), "mcp grep", Capability::FsRead).await?;
    let path = absolute(asked.path.as_deref().unwrap_or_default());
    let limit = Some(asked.limit.unwrap_or(MATCHES));
    let grep = wire::Grep { pattern: asked.pattern, path: Some(path), glob: asked.glob, limit };
    let mut found = search::grep(access, Body(grep)).await?.0;
    let mut room = TEXT;
    let all = found.matches.len();
    found.matches.retain(|line| {
        room = room.saturating_sub(line.path.len() + line.text.len() + 32);
        room > 0
    });
    found.truncated |= found.matches.len() < all;
    let lines = found.matches.iter().map(|it| format!("{}:{}:{}", it.path, it.line, it.text));
    let text = joined(lines, "nothing was found");
    Ok(Told::done(and_more(text, found.truncated, found.unreadable), json!(found)))
}

fn joined(lines: impl Iterator<Item = String>, nothing: &str) -> String {
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() { nothing.to_owned() } else { lines.join("\n") }
}

fn and_more(mut text: String, is_cut: bool, unreadable: u32) -> String {
    if is_cut {
        text.push_str("\n[… there may be more; look in fewer places, or give a larger limit …]");
    }
    if unreadable > 0 {
        text.extend(["\n[… ", &unreadable.to_string(), " could not be looked into …]"]);
    }
    text
}

/// Returns a path from the root: where commands begin is where paths begin.
fn absolute(path: &str) -> String {
    match path {
        "" => WORKSPACE.to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        path => format!("{WORKSPACE}/{path}"),
    }
}
