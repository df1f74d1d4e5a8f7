//! From the events of an execution to frames.

use api::{
    errors::ErrorCode,
    fathom::{
        VERSION,
        server::{Ack, Error, Output, Pong, Posture, ServerFrame, State, Status},
    },
};
use engine::executions::Event;
use model::{
    admission::Load,
    execution::{Outcome, Stream},
};

use super::utf8::Decoder;
use crate::{executor::MemoryLimit, to_wire};

/// What was told of one execution so far.
#[derive(Debug, Default)]
pub(super) struct Telling {
    stdout: Decoder,
    stderr: Decoder,
    /// Pieces of output told so far.
    pieces: u64,
    memory: MemoryLimit,
    /// What the result is to say of the machine.
    posture: Option<Posture>,
}

impl Telling {
    pub(super) fn new(memory: MemoryLimit, posture: Option<Posture>) -> Self {
        Self { memory, posture, ..Self::default() }
    }

    /// Puts an event into frames, in order.
    pub(super) fn tell(
        &mut self,
        id: &str,
        ts: &str,
        event: &Event,
        send: &mut impl FnMut(String),
    ) {
        match event {
            Event::Started => send(status(id, ts, State::Running)),
            Event::Output { stream, data } => self.output(id, ts, *stream, Some(data), send),
            Event::Ended(outcome) => {
                let cut = if outcome.truncated { self.stdout.cut() + self.stderr.cut() } else { 0 };
                let output_bytes = outcome.output_bytes.saturating_sub(cut);
                let outcome = &Outcome { output_bytes, ..outcome.clone() };
                self.finish(id, ts, send);
                if to_wire::limit_reached(outcome) == Some(ErrorCode::OutputLimit) {
                    let message = "the output exceeded limits.max_output_bytes and was cut there";
                    send(error(Some(id), ts, ErrorCode::OutputLimit, message));
                }
                send(status(id, ts, to_wire::state(outcome.status)));
                let replaced = self.stdout.replaced() + self.stderr.replaced();
                let result =
                    to_wire::result(id, ts, outcome, replaced, self.memory, self.posture.take());
                send(write(&ServerFrame::Result(result), 0));
            }
            Event::Broken { .. } => {
                self.finish(id, ts, send);
                let message = "the sandbox broke; how the code would have ended is not known";
                send(error(Some(id), ts, ErrorCode::InternalError, message));
            }
        }
    }

    /// Tells what is left of both streams.
    fn finish(&mut self, id: &str, ts: &str, send: &mut impl FnMut(String)) {
        self.output(id, ts, Stream::Stdout, None, send);
        self.output(id, ts, Stream::Stderr, None, send);
    }

    /// Tells output of one stream; no bytes mean its end.
    fn output(
        &mut self,
        id: &str,
        ts: &str,
        stream: Stream,
        bytes: Option<&[u8]>,
        send: &mut impl FnMut(String),
    ) {
        let pieces = &mut self.pieces;
        let decoder = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let mut piece = |data: &str, offset| {
            let n = *pieces;
            *pieces += 1;
            let output =
                Output { v: VERSION, id: id.into(), ts: ts.into(), data: data.into(), offset, n };
            let frame = match stream {
                Stream::Stdout => ServerFrame::Stdout(output),
                Stream::Stderr => ServerFrame::Stderr(output),
            };
            send(write(&frame, data.len()));
        };
        match bytes {
            Some(bytes) => decoder.push(bytes, &mut piece),
            None => decoder.finish(&mut piece),
        }
    }
}

/// Says that an execution was received and queued.
pub(super) fn ack(id: &str, ts: &str, grace_ms: u64, skew_ms: Option<i64>) -> String {
    let ack = Ack { v: VERSION, id: id.into(), ts: ts.into(), grace_ms: Some(grace_ms), skew_ms };
    write(&ServerFrame::Ack(ack), 0)
}

/// Says that a request is refused, or that we broke.
pub(super) fn error(id: Option<&str>, ts: &str, code: ErrorCode, message: &str) -> String {
    let error = Error {
        v: VERSION,
        id: id.map(Into::into),
        ts: ts.into(),
        code: code.wire_name().into(),
        message: message.into(),
        retryable: code.is_retryable(),
    };
    write(&ServerFrame::Error(error), message.len())
}

/// Says that we are alive, and how busy.
pub(super) fn pong(ts: &str, load: Load) -> String {
    let pong = Pong { v: VERSION, ts: ts.into(), load: Some(to_wire::load(load)) };
    write(&ServerFrame::Pong(pong), 0)
}

fn status(id: &str, ts: &str, status: State) -> String {
    let status = Status { v: VERSION, id: id.into(), ts: ts.into(), status };
    write(&ServerFrame::Status(status), 0)
}

/// Writes a frame into one string of about the right size.
fn write(frame: &ServerFrame<'_>, data: usize) -> String {
    let mut text = Vec::with_capacity(data + data / 16 + 384);
    serde_json::to_writer(&mut text, frame).expect("frames are plain data, and memory takes it");
    String::from_utf8(text).expect("JSON is UTF-8")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::{
        execution::{Exit, Outcome, Status as End, StopReason, Usage},
        units::ByteSize,
    };
    use serde_json::Value;

    use super::*;

    fn outcome(status: End, exit: Option<Exit>, stopped_for: Option<StopReason>) -> Outcome {
        Outcome {
            status,
            exit,
            stopped_for,
            duration: Duration::from_millis(5),
            usage: Usage { peak_memory: ByteSize::mib(3), cpu_time: Duration::from_millis(2) },
            output_bytes: 0,
            truncated: stopped_for == Some(StopReason::OutputLimit),
        }
    }

    /// Tells events; returns each frame in short: its type and what it says.
    fn told(events: &[Event]) -> Vec<String> {
        let mut telling = Telling::default();
        let mut frames = Vec::new();
        for event in events {
            telling.tell("a", "t", event, &mut |text| frames.push(text));
        }
        frames.iter().map(|text| short(&serde_json::from_str(text).unwrap())).collect()
    }

    fn short(frame: &Value) -> String {
        assert_eq!(
            (&frame["v"], &frame["id"], &frame["ts"]),
            (&1.into(), &"a".into(), &"t".into())
        );
        match frame["type"].as_str().unwrap() {
            "status" => format!("status {}", frame["status"]),
            "result" => format!(
                "result {} {} {} {}",
                frame["exit_code"], frame["signal"], frame["truncated"], frame["error_code"]
            ),
            "error" => format!("error {} {}", frame["code"], frame["retryable"]),
            kind => format!("{kind} {} {} {}", frame["n"], frame["offset"], frame["data"]),
        }
    }

    fn output(stream: Stream, data: &[u8]) -> Event {
        Event::Output { stream, data: data.to_vec() }
    }

    #[test]
    fn a_good_run_is_told_in_the_protocols_order() {
        let events = [
            Event::Started,
            output(Stream::Stdout, b"one\xe2\x82"),
            output(Stream::Stderr, b"err"),
            output(Stream::Stdout, b"\xac"),
            output(Stream::Stdout, b"\xe2"),
            Event::Ended(outcome(End::Completed, Some(Exit::Code(0)), None)),
        ];
        let expected = [
            "status \"running\"",
            "stdout 0 0 \"one\"",
            "stderr 1 0 \"err\"",
            "stdout 2 3 \"€\"",
            "stdout 3 6 \"\u{FFFD}\"",
            "status \"completed\"",
            "result 0 null false null",
        ];
        assert_eq!(told(&events), expected);
    }

    #[test]
    fn every_end_is_told_as_decided() {
        use StopReason::{Cancelled, Deadline, OutputLimit};
        let killed = Some(Exit::Signal(9));
        let rows: [(Outcome, &[&str]); 7] = [
            (
                outcome(End::Failed, Some(Exit::Code(3)), None),
                &["status \"failed\"", "result 3 null false null"],
            ),
            (
                outcome(End::Failed, Some(Exit::Signal(11)), None),
                &["status \"failed\"", "result null \"SEGV\" false null"],
            ),
            (
                outcome(End::Timeout, killed, Some(Deadline)),
                &["status \"timeout\"", "result null \"KILL\" false \"TIMEOUT\""],
            ),
            (
                outcome(End::Oom, killed, None),
                &["status \"oom\"", "result null \"KILL\" false \"OOM\""],
            ),
            (
                outcome(End::Cancelled, None, Some(Cancelled)),
                &["status \"cancelled\"", "result null null false null"],
            ),
            (
                outcome(End::Failed, killed, Some(OutputLimit)),
                &[
                    "error \"OUTPUT_LIMIT\" false",
                    "status \"failed\"",
                    "result null \"KILL\" true \"OUTPUT_LIMIT\"",
                ],
            ),
            (
                outcome(End::Oom, killed, Some(OutputLimit)),
                &["status \"oom\"", "result null \"KILL\" true \"OOM\""],
            ),
        ];
        for (outcome, expected) in rows {
            assert_eq!(told(&[Event::Ended(outcome)]), expected);
        }
    }

    #[test]
    fn our_own_failure_is_an_error_and_no_result() {
        let broken = Event::Broken { message: "canary".into() };
        let frames = told(&[Event::Started, output(Stream::Stdout, b"\xe2"), broken]);
        let expected =
            ["status \"running\"", "stdout 0 0 \"\u{FFFD}\"", "error \"INTERNAL_ERROR\" true"];
        assert_eq!(frames, expected);
    }
}
