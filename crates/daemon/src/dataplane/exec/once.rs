//! Commands without a stream: run one and wait, look at one, end one.

use std::future;

use api::{
    errors::ErrorCode,
    exec::{Encoding, Exit, Ran, Shown, Start},
    langsmith::{Execute, Executed},
};
use axum::{
    Json,
    body::Body as Answer,
    extract::State,
    http::{
        StatusCode,
        header::{CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
    },
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use engine::sandboxes::{
    SandboxError,
    attach::{Attached, InputError, Output, Part, Stream},
};
use futures_util::stream;
use model::{
    audit::Action,
    ids::ExecId,
    sandbox::WhenStopped,
    spec::{ExecSpec, Input, OnFull},
};
use serde::Deserialize;

use super::{
    from_wire,
    to_wire::{self, Told},
};
use crate::{
    dataplane::access::Access,
    http::{
        App,
        problem::{ApiError, Body, Path, Query},
    },
};

/// What an answer carries of each stream. The rest can be had by itself.
const MOST: u64 = 1 << 20;

/// Runs a command and answers when it is over.
pub(super) async fn exec(access: Access, Body(start): Body<Start>) -> Result<Json<Ran>, ApiError> {
    let over = run(&access, &start).await?;
    let stdout = read(&over.attached, Stream::Stdout, MOST).await?;
    let stderr = read(&over.attached, Stream::Stderr, MOST).await?;
    Ok(Json(Ran {
        exec_id: over.attached.id().to_string(),
        exit: over.exit,
        stdout_encoding: stdout.encoding(),
        stderr_encoding: stderr.encoding(),
        stdout_omitted: stdout.omitted,
        stderr_omitted: stderr.omitted,
        stdout: stdout.into_text(),
        stderr: stderr.into_text(),
    }))
}

/// A command that is over and can be read.
pub(crate) struct Over {
    pub(crate) attached: Attached,
    pub(crate) exit: Exit,
}

/// Runs a command and returns when it is over.
pub(crate) async fn run(access: &Access, start: &Start) -> Result<Over, ApiError> {
    over(begun(access, start).await?, start).await
}

/// Runs a command and returns when it is over. Meanwhile `hear` is given what it writes; the command does not wait
/// for that, and what is not kept any more when it is read is not heard.
pub(crate) async fn run_heard(
    access: &Access,
    start: &Start,
    hear: impl Fn(&[u8]),
) -> Result<Over, ApiError> {
    let attached = begun(access, start).await?;
    let [stdout, stderr] = Stream::BOTH.map(|stream| attached.output(stream, 0, OnFull::Drop));
    let heard = async {
        tokio::join!(hear_all(stdout, &hear), hear_all(stderr, &hear));
        // How it ends is told by its end.
        future::pending().await
    };
    tokio::select! {
        over = over(attached, start) => over,
        never = heard => never,
    }
}

async fn hear_all(mut output: Output, hear: &impl Fn(&[u8])) {
    while let Ok(part) = output.next().await {
        match part {
            Part::Bytes { bytes, .. } => hear(&bytes),
            Part::Gap { .. } => {}
            Part::End { .. } => return,
        }
    }
}

async fn begun(access: &Access, start: &Start) -> Result<Attached, ApiError> {
    let exec = from_wire::exec_id(start.exec_id.as_deref())?;
    // Nobody who reads is waited for.
    let mut spec = ExecSpec { on_full: OnFull::Drop, ..from_wire::exec(start)? };
    if start.input.is_none() {
        spec.input = Input::Closed;
    }
    begin(access, exec, spec).await
}

async fn over(mut attached: Attached, start: &Start) -> Result<Over, ApiError> {
    if let Some(input) = &start.input {
        write(&attached, input.as_bytes()).await?;
    }
    let (end, usage) = ended(&mut attached).await?;
    Ok(Over { exit: to_wire::exit(&end, Some(usage)), attached })
}

/// The same in LangSmith's words.
pub(super) async fn execute(
    State(app): State<App>,
    access: Access,
    Body(asked): Body<Execute>,
) -> Result<Json<Executed>, ApiError> {
    let exec = from_wire::exec_id(asked.command_id.as_deref())?;
    let spec = from_wire::execute(&asked)?;
    let spec = ExecSpec { input: Input::Closed, on_full: OnFull::Drop, ..spec };
    let mut attached = begin(&access, exec, spec).await?;
    let (end, _) = ended(&mut attached).await?;
    let (exit_code, not_started) = match to_wire::told(&end) {
        Told::Code { code, message, .. } => (code, message),
        Told::Error { kind: "CommandTimeout", message } => {
            return Err(ApiError::new(ErrorCode::Timeout, message).with_kind("CommandTimeout"));
        }
        Told::Error { kind, message } => {
            return Err(ApiError::new(ErrorCode::Conflict, message).with_kind(kind));
        }
    };
    let most = app.settings.execute_output.as_bytes();
    let stdout = read(&attached, Stream::Stdout, most).await?;
    let mut stderr = read(&attached, Stream::Stderr, most).await?;
    let is_truncated = stdout.omitted > 0 || stderr.omitted > 0;
    stderr.bytes.extend(omission(stdout.omitted, stderr.omitted));
    if let Some(message) = not_started {
        stderr.bytes = format!("{message}\n").into_bytes();
    }
    let base64 = |kept: &Kept| kept.encoding().map(|_| BASE64.encode(&kept.bytes));
    Ok(Json(Executed {
        exit_code,
        truncated: is_truncated,
        stdout_b64: base64(&stdout),
        stderr_b64: base64(&stderr),
        stdout: String::from_utf8_lossy(&stdout.bytes).into_owned(),
        stderr: String::from_utf8_lossy(&stderr.bytes).into_owned(),
    }))
}

/// Returns the line that says what is missing, for clients that do not look for it anywhere else.
fn omission(stdout: u64, stderr: u64) -> Vec<u8> {
    let missing: Vec<String> = [(stdout, "stdout"), (stderr, "stderr")]
        .into_iter()
        .filter(|(bytes, _)| *bytes > 0)
        .map(|(bytes, stream)| format!("{bytes} bytes of {stream}"))
        .collect();
    match missing.as_slice() {
        [] => Vec::new(),
        some => format!("\n[ringfence: output truncated, {} omitted]\n", some.join(" and "))
            .into_bytes(),
    }
}

/// Shows how a command stands.
pub(super) async fn show(
    access: Access,
    Path((_, exec)): Path<(String, String)>,
) -> Result<Json<Shown>, ApiError> {
    Ok(Json(to_wire::shown(&find(&access, &exec).await?)))
}

/// Ends a command and all that it has started. Doing it twice is doing it once.
pub(super) async fn cancel(
    access: Access,
    Path((_, exec)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    let found = find(&access, &exec).await?;
    match found.cancel().await {
        Ok(()) => {
            access.note(Action::ExecCancel, Some(found.id().as_str()), None);
            Ok(StatusCode::NO_CONTENT)
        }
        Err(SandboxError::ExecEnded) => Ok(StatusCode::NO_CONTENT),
        Err(error) => Err(error.into()),
    }
}

/// Where to begin in a stream.
#[derive(Debug, Deserialize)]
pub(super) struct From {
    #[serde(default)]
    offset: u64,
}

/// Sends the bytes of a stream from a place on, as far as it has come.
pub(super) async fn output(
    State(_): State<App>,
    access: Access,
    Path((_, exec, stream)): Path<(String, String, String)>,
    Query(From { offset }): Query<From>,
) -> Result<Response, ApiError> {
    let stream = match stream.as_str() {
        "stdout" => Stream::Stdout,
        "stderr" => Stream::Stderr,
        _ => return Err(ApiError::new(ErrorCode::NotFound, "a stream is stdout or stderr")),
    };
    let attached = find(&access, &exec).await?;
    let extent = extent(&attached, stream)?;
    let begin = offset.clamp(extent.start, extent.end);
    let output = attached.output(stream, begin, OnFull::Drop);
    // Held until the end, so that the command counts as watched.
    let bytes =
        stream::try_unfold((output, attached, extent.end), async |(mut output, held, end)| {
            if output.at() >= end {
                return Ok::<_, SandboxError>(None);
            }
            match output.next().await? {
                Part::Bytes { mut bytes, at } => {
                    bytes.truncate(usize::try_from(end - at).unwrap_or(usize::MAX));
                    Ok(Some((bytes, (output, held, end))))
                }
                // What was kept when this was asked is kept no more: an end that is not the right one.
                Part::Gap { .. } => Err(SandboxError::Unavailable("a part is gone".to_owned())),
                Part::End { .. } => Ok(None),
            }
        });
    let headers = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (CONTENT_DISPOSITION, "attachment".to_owned()),
    ];
    let mut answer = (headers, Answer::from_stream(bytes)).into_response();
    for (name, value) in [("x-output-start", begin), ("x-output-end", extent.end)] {
        answer.headers_mut().insert(name, value.into());
    }
    Ok(answer)
}

async fn begin(
    access: &Access,
    exec: Option<ExecId>,
    spec: ExecSpec,
) -> Result<Attached, ApiError> {
    let (tenant, sandbox) = (access.tenant(), access.sandbox());
    let resume = WhenStopped::Resume;
    let attached = access.sandboxes().run(tenant, sandbox, exec, spec, resume).await?;
    super::note(access, &attached);
    Ok(attached)
}

async fn find(access: &Access, exec: &str) -> Result<Attached, ApiError> {
    let exec = exec.parse::<ExecId>().map_err(|_form| SandboxError::ExecNotFound)?;
    Ok(access.sandboxes().attach(access.tenant(), access.sandbox(), &exec).await?)
}

async fn ended(
    attached: &mut Attached,
) -> Result<(model::exec::ExecEnd, engine::sandboxes::attach::Usage), ApiError> {
    let ended = attached.ended().await;
    ended.ok_or_else(|| {
        let message = "the server lets go of the command; ask for it by its id";
        ApiError::new(ErrorCode::Unavailable, message)
    })
}

/// Writes all of a command's input. A command need not read it.
async fn write(attached: &Attached, input: &[u8]) -> Result<(), ApiError> {
    let pipe = match attached.input().await {
        Ok(pipe) => pipe,
        Err(SandboxError::ExecEnded) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    match pipe.write_all(input).await {
        Ok(()) | Err(InputError::Closed) => {}
        Err(InputError::Broken(error)) => {
            let message = format!("cannot write to the command: {error}");
            return Err(ApiError::new(ErrorCode::Unavailable, message));
        }
    }
    drop(pipe);
    match attached.close_input().await {
        Ok(()) | Err(SandboxError::ExecEnded) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What an answer has of a stream.
pub(crate) struct Kept {
    pub(crate) bytes: Vec<u8>,
    pub(crate) omitted: u64,
}

impl Kept {
    fn encoding(&self) -> Option<Encoding> {
        str::from_utf8(&self.bytes).is_err().then_some(Encoding::Base64)
    }

    fn into_text(self) -> String {
        String::from_utf8(self.bytes).unwrap_or_else(|error| BASE64.encode(error.into_bytes()))
    }
}

/// Reads a stream of a command that is over: so much of it, from where it is kept on.
pub(crate) async fn read(attached: &Attached, stream: Stream, most: u64) -> Result<Kept, ApiError> {
    let extent = extent(attached, stream)?;
    let mut output = attached.output(stream, extent.start, OnFull::Drop);
    let mut bytes = Vec::new();
    let mut omitted = extent.start.saturating_add(extent.lost);
    while output.at() < extent.end {
        let Part::Bytes { bytes: more, .. } = output.next().await? else { break };
        bytes.extend(more);
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) >= most {
            break;
        }
    }
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    if bytes.len() > most {
        bytes.truncate(most);
        // A character is not split, if it is one.
        if let Err(error) = str::from_utf8(&bytes)
            && error.error_len().is_none()
        {
            bytes.truncate(error.valid_up_to());
        }
    }
    let read = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    omitted = omitted.saturating_add((extent.end - extent.start).saturating_sub(read));
    Ok(Kept { bytes, omitted })
}

/// Reads so much of the end of a stream of a command that is over.
pub(crate) async fn read_end(
    attached: &Attached,
    stream: Stream,
    most: u64,
) -> Result<Vec<u8>, ApiError> {
    let extent = extent(attached, stream)?;
    let begin = extent.end.saturating_sub(most).max(extent.start);
    let mut output = attached.output(stream, begin, OnFull::Drop);
    let mut bytes = Vec::new();
    while output.at() < extent.end {
        let Part::Bytes { bytes: more, .. } = output.next().await? else { break };
        bytes.extend(more);
    }
    Ok(bytes)
}

/// Returns which bytes of a stream are kept.
pub(crate) fn extent(
    attached: &Attached,
    stream: Stream,
) -> Result<engine::sandboxes::attach::Extent, SandboxError> {
    let flow = attached.flow();
    let [stdout, stderr] = flow.extents;
    match stream {
        _ if flow.is_cleared => Err(SandboxError::OutputGone),
        Stream::Stdout => Ok(stdout),
        Stream::Stderr => Ok(stderr),
    }
}
