//! Messages of the Model Context Protocol, handed on between a program's standard streams and a server.
//!
//! The server answers every message by itself, so that nothing has to be kept in between but which are on
//! their way. A request that is taken back is hung up on, which is how the server learns of it.

use std::{collections::HashMap, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::{
    StreamExt as _,
    future::{AbortHandle, abortable},
    stream::FuturesUnordered,
};
use http_body_util::BodyExt as _;
use hyper::{
    Method, Request, Response,
    body::Incoming,
    header::{ACCEPT, CONTENT_TYPE},
};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::timeout};

use crate::{ClientError, address::Address, exchange::exchange};

/// The longest message, in either direction.
pub const MAX_MESSAGE: usize = 16 << 20;

/// Requests on their way at once.
const MOST: usize = 64;

/// How long answers are waited for once nothing more will be asked.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

const VERSION: &str = "MCP-Protocol-Version";
const VERSION_OF_REQUEST: &str = "/params/_meta/io.modelcontextprotocol~1protocolVersion";

/// What JSON-RPC calls what is no message, and our own failure to get an answer.
const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const NO_ANSWER: i32 = -32000;

/// Hands messages to one server.
pub struct Relay {
    address: Address,
    key: String,
    /// What both sides have agreed on, for clients that agree once.
    version: Option<String>,
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("address", &self.address).finish_non_exhaustive()
    }
}

/// How a request ended: its name, and the version that it has brought about.
struct Answered {
    id: String,
    version: Option<String>,
}

impl Relay {
    /// The key may be a token of a sandbox as well.
    pub fn new(address: Address, key: &str) -> Self {
        Self { address, key: key.to_owned(), version: None }
    }

    /// Hands on what comes until nothing more does, and every answer to it.
    pub async fn run(mut self, mut lines: mpsc::Receiver<String>, answers: mpsc::Sender<String>) {
        let mut running = FuturesUnordered::new();
        let mut handles = HashMap::<String, AbortHandle>::new();
        loop {
            tokio::select! {
                Some(ended) = running.next(), if !running.is_empty() => {
                    if let Ok(Answered { id, version }) = ended {
                        handles.remove(&id);
                        self.version = version.or(self.version.take());
                    }
                }
                line = lines.recv() => {
                    let Some(line) = line else { break };
                    let message = match read(&line) {
                        Ok(Heard::Request(message)) => message,
                        Ok(Heard::Cancelled(id)) => {
                            if let Some(handle) = handles.remove(&id) {
                                handle.abort();
                            }
                            continue;
                        }
                        Ok(Heard::Nothing) => continue,
                        Err(error) => {
                            let _ = answers.send(error).await;
                            continue;
                        }
                    };
                    if handles.len() >= MOST {
                        let text = "too many requests at once; wait for some to be answered";
                        let _ = answers.send(error(&message.id, NO_ANSWER, text)).await;
                        continue;
                    }
                    let id = message.id.to_string();
                    let exchange = self.exchange(message);
                    let (work, handle) = abortable(tell(exchange, answers.clone()));
                    handles.insert(id, handle);
                    running.push(work);
                }
                () = answers.closed() => return,
            }
        }
        let rest = async { while running.next().await.is_some() {} };
        let _ = timeout(LAST_ANSWERS, rest).await;
    }

    /// Makes a request of a message.
    fn exchange(&self, message: Message) -> Exchange {
        let at = |pointer: &str| message.body.pointer(pointer).and_then(Value::as_str);
        let method = at("/method").unwrap_or_default().to_owned();
        let own = at(VERSION_OF_REQUEST);
        let mut headers = Vec::new();
        if let Some(version) = own {
            headers.push((VERSION, version.to_owned()));
            headers.push(("Mcp-Method", method.clone()));
            let name = at("/params/name").or_else(|| at("/params/uri"));
            headers.extend(name.map(|name| ("Mcp-Name", encoded(name))));
        } else if let Some(version) = self.version.as_ref().filter(|_| method != "initialize") {
            headers.push((VERSION, version.clone()));
        }
        let (address, key) = (self.address.clone(), self.key.clone());
        Exchange { address, key, headers, message, method }
    }
}

/// A request on its way.
struct Exchange {
    address: Address,
    key: String,
    headers: Vec<(&'static str, String)>,
    message: Message,
    method: String,
}

/// Sends a request and hands on what is answered; one that is not is told why.
async fn tell(exchange: Exchange, answers: mpsc::Sender<String>) -> Answered {
    let id = exchange.message.id.clone();
    let mut version = None;
    let mut has_answer = false;
    let is_first = exchange.method == "initialize";
    let mut hear = async |message: Value| {
        has_answer |= message.get("id") == Some(&id);
        if is_first {
            let agreed = message.pointer("/result/protocolVersion").and_then(Value::as_str);
            version = agreed.map(str::to_owned);
        }
        let _ = answers.send(message.to_string()).await;
    };
    let sent = exchange.send(&mut hear).await;
    let failed = match sent {
        Err(error) => Some(error.to_string()),
        Ok(()) if !has_answer => Some("the server hung up before it had answered".to_owned()),
        Ok(()) => None,
    };
    if let Some(text) = failed.filter(|_| !has_answer) {
        let _ = answers.send(error(&id, NO_ANSWER, &text)).await;
    }
    Answered { id: id.to_string(), version }
}

impl Exchange {
    async fn send(&self, hear: &mut impl AsyncFnMut(Value)) -> Result<(), ClientError> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri("/mcp")
            .header(ACCEPT, "application/json, text/event-stream");
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let body = self.message.body.to_string().into_bytes();
        let read = async |response| self.read(response, hear).await;
        exchange(&self.address, &self.key, request, body, read).await
    }

    async fn read(
        &self,
        response: Response<Incoming>,
        hear: &mut impl AsyncFnMut(Value),
    ) -> Result<(), ClientError> {
        let status = response.status();
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let is_stream = kind.is_some_and(|kind| kind.starts_with("text/event-stream"));
        let mut body = response.into_body();
        let mut held = Events::default();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            held.push(&data)?;
            while let Some(event) = is_stream.then(|| held.next()).flatten() {
                hear(serde_json::from_str(&event).map_err(ClientError::Answer)?).await;
            }
        }
        if is_stream {
            return Ok(());
        }
        let answer = serde_json::from_slice::<Value>(&held.bytes).ok();
        match answer.filter(|answer| answer.get("jsonrpc").is_some()) {
            Some(mut answer) => {
                if let Some(fields) = answer.as_object_mut()
                    && fields.get("id").is_none_or(Value::is_null)
                {
                    fields.insert("id".to_owned(), self.message.id.clone());
                }
                hear(answer).await;
                Ok(())
            }
            None => Err(ClientError::refused(status.as_u16(), &held.bytes)),
        }
    }
}

/// A request as it came.
struct Message {
    id: Value,
    body: Value,
}

enum Heard {
    Request(Message),
    /// The request of this name is not waited for any more.
    Cancelled(String),
    /// What the server need not know, because it keeps nothing.
    Nothing,
}

/// Reads a line; one that is no message has an answer.
fn read(line: &str) -> Result<Heard, String> {
    if line.trim().is_empty() {
        return Ok(Heard::Nothing);
    }
    let wrong = |code, text| Err(error(&Value::Null, code, text));
    let Ok(body) = serde_json::from_str::<Value>(line) else {
        return wrong(PARSE_ERROR, "the line is not JSON");
    };
    if !body.is_object() {
        return wrong(INVALID_REQUEST, "a message is a JSON object on a line of its own");
    }
    let (id, method) = (body.get("id").cloned(), body.get("method").and_then(Value::as_str));
    Ok(match (id, method) {
        (Some(id), Some(_)) => Heard::Request(Message { id, body }),
        (None, Some("notifications/cancelled")) => {
            let id = body.pointer("/params/requestId");
            Heard::Cancelled(id.map(Value::to_string).unwrap_or_default())
        }
        _ => Heard::Nothing,
    })
}

fn error(id: &Value, code: i32, message: &str) -> String {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}).to_string()
}

/// Writes a text as a header can have it.
fn encoded(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
        && text.trim() == text
        && !text.starts_with("=?base64?");
    if is_plain { text.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(text)) }
}

/// The bytes of an event stream that were not understood yet.
#[derive(Default)]
struct Events {
    bytes: Vec<u8>,
}

impl Events {
    fn push(&mut self, more: &[u8]) -> Result<(), ClientError> {
        if self.bytes.len() + more.len() > MAX_MESSAGE {
            return Err(ClientError::Closed { reason: "the answer is too long".to_owned() });
        }
        self.bytes.extend_from_slice(more);
        Ok(())
    }

    /// Returns the data of the next event that is whole and has any.
    fn next(&mut self) -> Option<String> {
        loop {
            let text = String::from_utf8_lossy(&self.bytes);
            let ends = ["\n\n", "\r\n\r\n"].map(|end| Some((text.find(end)?, end.len())));
            let (at, length) = ends.into_iter().flatten().min()?;
            let lines = text.get(..at).unwrap_or_default().lines();
            let data = lines.filter_map(|line| line.strip_prefix("data:"));
            let data: Vec<&str> = data.map(|data| data.strip_prefix(' ').unwrap_or(data)).collect();
            let data = data.join("\n");
            self.bytes.drain(..at + length);
            if !data.is_empty() {
                return Some(data);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_however_they_come() {
        let stream = ": ping\n\ndata: {\"a\":1}\n\nid: 1\nretry: 3\ndata:\n\nevent: message\r\n\
                      data: {\"b\":\r\ndata: 2}\r\n\r\ndata: {";
        for size in 1..stream.len() {
            let (mut events, mut found) = (Events::default(), Vec::new());
            for piece in stream.as_bytes().chunks(size) {
                events.push(piece).unwrap();
                found.extend(std::iter::from_fn(|| events.next()));
            }
            assert_eq!(found, ["{\"a\":1}", "{\"b\":\n2}"], "{size}");
        }
    }

    #[test]
    fn lines_are_requests_or_nothing_or_are_told_why_not() {
        let rows = [
            ("", "nothing"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "request 1"),
            (r#"{"jsonrpc":"2.0","id":"1","method":"ping"}"#, "request \"1\""),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, "nothing"),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
                "cancelled 7",
            ),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "nothing"),
        ];
        for (line, expected) in rows {
            let heard = match read(line) {
                Ok(Heard::Request(message)) => format!("request {}", message.id),
                Ok(Heard::Cancelled(id)) => format!("cancelled {id}"),
                Ok(Heard::Nothing) => "nothing".to_owned(),
                Err(error) => error,
            };
            assert_eq!(heard, expected, "{line}");
        }
        for line in ["{", "[]", "7"] {
            assert!(read(line).is_err_and(|error| error.contains("\"id\":null")), "{line}");
        }
    }

    #[test]
    fn names_are_written_as_headers_can_have_them() {
        assert_eq!(encoded("exec"), "exec");
        for (text, expected) in
            [("ü", "=?base64?w7w=?="), (" a", "=?base64?IGE=?="), ("\na!", "=?base64?CmEh?=")]
        {
            assert_eq!(encoded(text), expected, "{text}");
        }
    }
}
