//! `run_code`: a program in a fresh environment, as on `/ws`.

use api::{
    errors::ErrorCode,
    fathom::{ClientFrame, Execute, VERSION, parse},
    mcp::RanCode,
};
use engine::executions::Event;
use model::execution::{Exit, Outcome, Status, Stream};
use serde_json::{Value, json};

use super::{
    answers::{Refused, Told, cut_short, fitted, streams, values},
    arguments::RunCode,
    call::Call,
    everyday::OUTPUT,
};
use crate::{clock, http::problem::ApiError, metrics::count_refusal, to_wire};

/// Limits if nobody says.
const TIMEOUT: u64 = 30;
const MEMORY_MB: u64 = 256;

pub(super) async fn run(call: &Call, asked: RunCode) -> Result<Told, Refused> {
    let (caller, app) = (call.caller()?, &call.app);
    let seconds = asked.timeout_seconds.unwrap_or(TIMEOUT);
    let most = usize::try_from(asked.max_output_bytes.unwrap_or(OUTPUT)).unwrap_or(usize::MAX);
    let execute = execute(asked, seconds)?;
    let (account, phase) = (app.executor.account(caller), *app.phase.borrow());
    let admitted = app.executor.admit(&account, caller, phase, execute);
    // The place is kept until the end.
    let (mut running, _place) = admitted.map_err(|(code, message)| {
        count_refusal(code);
        ApiError::new(code, message)
    })?;
    app.metrics.accepted();
    // Limits bound what is written.
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    while let Some(event) = running.events.recv().await {
        app.metrics.event(&event);
        match event {
            Event::Started => {}
            Event::Output { stream, data } => {
                call.wrote(&data);
                match stream {
                    Stream::Stdout => stdout.extend(data),
                    Stream::Stderr => stderr.extend(data),
                }
            }
            Event::Ended(outcome) => return Ok(ended(&outcome, seconds, [&stdout, &stderr], most)),
            Event::Broken { message } => {
                tracing::error!(cause = message, "an execution broke");
                break;
            }
        }
    }
    let message = "the sandbox broke; how the code would have ended is not known";
    Err(ApiError::new(ErrorCode::InternalError, message).into())
}

/// Reads it as the same request on `/ws` is read.
fn execute(asked: RunCode, seconds: u64) -> Result<Execute, ApiError> {
    let mut frame = json!({
        "v": VERSION, "type": "execute", "id": "mcp", "ts": clock::stamp(),
        "language": asked.language, "code": asked.code,
        "limits": {
            "timeout_ms": seconds.saturating_mul(1000),
            "memory_mb": asked.memory_mb.unwrap_or(MEMORY_MB),
        },
    });
    let more = [("stdin", asked.stdin.map(Value::from)), ("env", asked.env.map(|env| json!(env)))];
    if let Some(fields) = frame.as_object_mut() {
        let more = more.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        fields.extend(more);
    }
    match parse::parse(&frame.to_string()) {
        Ok(ClientFrame::Execute(execute)) => Ok(execute),
        Ok(ClientFrame::Cancel(_) | ClientFrame::Ping(_)) => {
            Err(ApiError::new(ErrorCode::InvalidRequest, "this is no program"))
        }
        Err(refused) => Err(ApiError::new(refused.code, refused.message)),
    }
}

fn ended(outcome: &Outcome, seconds: u64, streams_of: [&[u8]; 2], most: usize) -> Told {
    let [stdout, stderr] = streams_of.map(|stream| fitted(stream, most));
    let result = to_wire::result("mcp", "", outcome, 0, crate::executor::MemoryLimit::Held, None);
    let code = to_wire::limit_reached(outcome);
    let end = match (outcome.status, outcome.exit) {
        (Status::Timeout, _) => format!(
            "TIMEOUT: killed after {seconds} s; what it wrote until then is below. Give timeout_seconds up to 600"
        ),
        (Status::Oom, _) => {
            "OOM: it took more memory than it may; give memory_mb, or take less".to_owned()
        }
        _ if code.is_some() => {
            "OUTPUT_LIMIT: it wrote too much and was ended; write less".to_owned()
        }
        (_, Some(Exit::Code(code))) => format!("exit code {code}"),
        (_, Some(Exit::Signal(_))) => {
            format!("ended by {}", result.signal.as_deref().unwrap_or("a signal"))
        }
        (_, None) => "ended".to_owned(),
    };
    let text = streams(&end, &stdout, &stderr);
    let ran = RanCode {
        status: to_wire::state(outcome.status).wire_name(),
        exit_code: result.exit_code,
        duration_ms: result.duration_ms,
        resource_usage: result.resource_usage,
        signal: result.signal.map(Into::into),
        streams: values(stdout, stderr),
        error: code.map(|code| cut_short(code, &end)),
    };
    Told { text, values: json!(ran), is_error: code.is_some() }
}
