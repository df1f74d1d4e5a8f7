//! `POST /execute/stream/start` and `/resume`: a command as an event stream, in LangSmith's words.

use std::{convert::Infallible, time::Duration};

use api::{
    errors::ErrorCode,
    langsmith::{Execute, Reconnect},
};
use axum::{
    Extension,
    extract::State,
    response::{
        IntoResponse as _, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use engine::sandboxes::attach::{Attached, Output, Part, Stream};
use futures_util::stream;
use model::{
    sandbox::WhenStopped,
    spec::{ExecSpec, Input, OnFull},
};
use serde_json::json;
use tokio::{select, sync::watch};

use super::{
    from_wire,
    to_wire::{self, Told},
};
use crate::{
    dataplane::{access::Access, ending::TellsItsEnd},
    http::{
        App,
        problem::{ApiError, Body},
    },
    serve::Phase,
    ws::connection::until,
};

/// A stream shows that it lives at least so often.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// After so many bytes the client says what it has, by asking for the rest.
const UNTIL_ACK: u64 = 1 << 20;

/// Starts a command and streams it.
pub(super) async fn start(
    State(app): State<App>,
    access: Access,
    Body(asked): Body<Execute>,
) -> Result<Response, ApiError> {
    let exec = from_wire::exec_id(asked.command_id.as_deref())?;
    let spec = ExecSpec { input: Input::Closed, ..from_wire::execute(&asked)? };
    let (tenant, sandbox, resume) = (access.tenant(), access.sandbox(), WhenStopped::Resume);
    let attached = access.sandboxes().run(tenant, sandbox, exec, spec, resume).await?;
    super::note(&access, &attached);
    Ok(stream(&app, access, attached, [0, 0]))
}

/// Streams a command from where the client is.
pub(super) async fn resume(
    State(app): State<App>,
    access: Access,
    Body(from): Body<Reconnect>,
) -> Result<Response, ApiError> {
    let missing = || ApiError::new(ErrorCode::NotFound, "there is no such command");
    let exec = from_wire::exec_id(Some(&from.command_id)).map_err(|_form| missing())?;
    let exec = exec.ok_or_else(missing)?;
    let attached = access.sandboxes().attach(access.tenant(), access.sandbox(), &exec).await?;
    Ok(stream(&app, access, attached, [from.stdout_offset, from.stderr_offset]))
}

fn stream(app: &App, access: Access, attached: Attached, [stdout, stderr]: [u64; 2]) -> Response {
    let telling = Telling {
        stdout: Some(attached.output(Stream::Stdout, stdout, OnFull::Wait)),
        stderr: Some(attached.output(Stream::Stderr, stderr, OnFull::Wait)),
        at: [stdout, stderr],
        attached,
        access,
        phase: app.phase.clone(),
        sent: 0,
        next: Next::Started,
    };
    let events = stream::unfold(telling, async |mut telling| {
        let event = telling.next().await?;
        Some((Ok::<_, Infallible>(event), telling))
    });
    let told = Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT));
    (Extension(TellsItsEnd), told).into_response()
}

/// A command that is being told.
struct Telling {
    attached: Attached,
    access: Access,
    phase: watch::Receiver<Phase>,
    stdout: Option<Output>,
    stderr: Option<Output>,
    /// Up to where both streams were told.
    at: [u64; 2],
    sent: u64,
    next: Next,
}

enum Next {
    Started,
    Output,
    Nothing,
}

impl Telling {
    async fn next(&mut self) -> Option<Event> {
        match self.next {
            Next::Nothing => None,
            Next::Started => {
                self.next = Next::Output;
                let pid = self.attached.started().await.unwrap_or_default();
                let id = self.attached.id().as_str();
                Some(event("started", &json!({"command_id": id, "pid": pid})))
            }
            Next::Output => Some(self.output().await),
        }
    }

    async fn output(&mut self) -> Event {
        if self.stdout.is_none() && self.stderr.is_none() {
            self.next = Next::Nothing;
            return self.end().await;
        }
        if self.sent >= UNTIL_ACK {
            self.next = Next::Nothing;
            let [stdout, stderr] = self.at;
            let at = json!({"stdout_offset": stdout, "stderr_offset": stderr});
            return event("ack_required", &at);
        }
        let restarting = until(self.phase.clone(), |phase| *phase != Phase::Serving);
        let told = select! {
            biased;
            () = restarting => Err(("ServerShuttingDown", "the server is restarting".to_owned())),
            _ = self.access.until_ended() => {
                Err(("SessionExpired", "the credential is not valid any more".to_owned()))
            }
            part = next(&mut self.stdout) => part.map(|part| (Stream::Stdout, part)),
            part = next(&mut self.stderr) => part.map(|part| (Stream::Stderr, part)),
        };
        match told {
            Ok((stream, part)) => self.part(stream, part),
            Err((kind, message)) => {
                self.next = Next::Nothing;
                event("error", &json!({"error_type": kind, "error": message}))
            }
        }
    }

    fn part(&mut self, stream: Stream, part: Part) -> Event {
        let [stdout, stderr] = &mut self.at;
        let (output, at) = match stream {
            Stream::Stdout => (&mut self.stdout, stdout),
            Stream::Stderr => (&mut self.stderr, stderr),
        };
        match part {
            Part::Bytes { at: offset, bytes } => {
                let length = u64::try_from(bytes.len()).unwrap_or_default();
                *at = offset + length;
                self.sent += length;
                let data = BASE64.encode(bytes);
                event(stream.name(), &json!({"offset": offset, "data": data}))
            }
            // The next bytes say by their offset that some are gone.
            Part::Gap { at: offset, length } => {
                *at = offset + length;
                Event::default().comment("gap")
            }
            Part::End { at: offset } => {
                *output = None;
                event("stream_end", &json!({"stream": stream.name(), "offset": offset}))
            }
        }
    }

    async fn end(&mut self) -> Event {
        match self.attached.ended().await.map(|(end, _)| to_wire::told(&end)) {
            Some(Told::Code { code, message: None, .. }) => {
                event("exit", &json!({"exit_code": code}))
            }
            Some(Told::Code { code, message: Some(message), .. }) => {
                event("exit", &json!({"exit_code": code, "message": message}))
            }
            Some(Told::Error { kind, message }) => {
                event("error", &json!({"error_type": kind, "error": message}))
            }
            None => event("error", &json!({"error_type": "ServerShuttingDown", "error": ""})),
        }
    }
}

async fn next(output: &mut Option<Output>) -> Result<Part, (&'static str, String)> {
    match output {
        Some(output) => output.next().await.map_err(|error| ("CommandError", error.to_string())),
        None => std::future::pending().await,
    }
}

fn event(name: &str, data: &serde_json::Value) -> Event {
    Event::default().event(name).data(data.to_string())
}
