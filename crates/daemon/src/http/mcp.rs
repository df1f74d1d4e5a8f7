//! `/mcp`: sandboxes and executions as tools of the Model Context Protocol, over streamable HTTP.
//!
//! Every message stands by itself: it shows its credential, and nothing is kept after its answer. So a
//! client goes on when the server was started anew, and another server of the same fleet will do. Here is
//! the entrance; [`server`] answers, [`tools`] says what there is.

mod answers;
mod arguments;
mod call;
mod code;
mod environment;
mod everyday;
mod progress;
mod results;
mod running;
mod server;
mod tools;

use std::sync::{Arc, OnceLock};

use api::{errors::ErrorCode, mcp::Message};
use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
};
use http_body_util::Full;
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
};
use serde_json::{Map, Value, json};

use super::{App, problem::ApiError, request, routes::Routes, strict};
use crate::{
    dataplane::shape::Shape,
    keys::random_hex,
    openapi::{Doc, Opens, Tag},
};
use call::{Call, Who};
use running::Running;
use server::Server;

/// The largest message: as on `/ws`.
const MAX_MESSAGE: usize = 4 << 20;

/// What a client calls itself by, if it spoke to us first with `initialize`.
const CLIENT: HeaderName = HeaderName::from_static("mcp-session-id");

/// What JSON-RPC calls a message that is none, and one that is not to be.
const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;

pub(super) fn routes() -> Routes {
    // Made by the first who comes: the document is made of the routes where there is no server.
    let door = Arc::new(OnceLock::new());
    let enter = move |State(app): State<App>, request: Request| {
        let door: Door = door.get_or_init(Door::new).clone();
        async move { door.enter(app, request).await }
    };
    Routes::new(Shape::Envelope).post("/mcp", Opens::KeyOrToken, document(), enter)
}

fn document() -> Doc {
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let name = json!({"type": "string", "pattern": "^[0-9a-fA-F]{32}$"});
    Doc::new(Tag::Agents, "Takes one message of the Model Context Protocol")
        .takes::<Message>(&ping)
        .header(CLIENT.as_str(), &name, "What the answer to `initialize` called the client.")
        .streams::<Message>("The answer, after what is told on the way to it.")
        .answers_nothing(202, "A message that needs no answer was taken.")
        .answers::<Message>(400, "It is no message that can be answered.")
        .answers::<Message>(404, "There is no such method, or no such client.")
        .answers_as(400, "It is no message that can be answered.", "text/plain")
        .answers_as(
            406,
            "`Accept` has to name both `application/json` and `text/event-stream`.",
            "text/plain",
        )
        .refuses(&[ErrorCode::Forbidden])
}

/// What stands in front of the tools.
#[derive(Clone)]
struct Door {
    running: Running,
    service: StreamableHttpService<Server, NeverSessionManager>,
}

impl Door {
    fn new() -> Self {
        // Whose page it is, and which host was meant, is checked with what everything else is checked with.
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_max_request_body_bytes(MAX_MESSAGE)
            .disable_allowed_hosts();
        let sessions = Arc::new(NeverSessionManager::default());
        let service = StreamableHttpService::new(|| Ok(Server), sessions, config);
        Self { running: Running::default(), service }
    }

    async fn enter(self, app: App, request: Request) -> Result<Response, ApiError> {
        let (mut parts, body) = request.into_parts();
        app.origins.check(&parts.headers)?;
        let who = Who::of(&app, &mut parts).await?;
        let client = client(&parts.headers)?;
        let request = Request::from_parts(parts, body);
        let (mut parts, bytes) = strict::read(request, MAX_MESSAGE).await?;
        strict::check_type(&parts.headers)?;
        let message = match strict::value(&bytes) {
            Ok(Value::Object(message)) => message,
            Ok(Value::Array(_)) => {
                let text = "batches are not taken: send one message in each request";
                return Ok(not_a_message(INVALID_REQUEST, text));
            }
            Ok(_) => return Ok(not_a_message(INVALID_REQUEST, "a message is a JSON object")),
            Err(_) => return Ok(not_a_message(PARSE_ERROR, "the body is not JSON")),
        };
        let method = message.get("method").and_then(Value::as_str).unwrap_or_default();
        if method == "notifications/cancelled" {
            self.cancel(&who, client, &message);
            return Ok(StatusCode::ACCEPTED.into_response());
        }
        let is_first = method == "initialize";
        let place = match (client, message.get("id")) {
            (Some(client), Some(id)) => Some(self.running.enter(&who, client, id)),
            _ => None,
        };
        parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        parts.extensions.insert(Call::new(app, who, request::id(), place));
        let message = Request::from_parts(parts, Full::new(bytes));
        let mut answer = self.service.handle(message).await.map(Body::new);
        if answer.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            // So the library says it of an object that is JSON and none of its messages.
            return Ok(not_a_message(INVALID_REQUEST, "this is no message of the protocol"));
        }
        if answer.status().is_client_error() {
            let text = HeaderValue::from_static("text/plain; charset=utf-8");
            answer.headers_mut().entry(CONTENT_TYPE).or_insert(text);
        }
        if is_first
            && answer.status().is_success()
            && let Some(name) = new_client()
        {
            answer.headers_mut().insert(CLIENT, name);
        }
        Ok(answer)
    }

    /// Ends a request of the same client. There may be none any more.
    fn cancel(&self, who: &Who, client: Option<String>, message: &Map<String, Value>) {
        let id = message.get("params").and_then(|params| params.get("requestId"));
        if let (Some(client), Some(id)) = (client, id) {
            self.running.cancel(who, client, id);
        }
    }
}

/// Returns what a client calls itself by: what we have called one.
fn client(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(name) = headers.get(CLIENT) else { return Ok(None) };
    let is_ours = |name: &&str| name.len() == 32 && name.bytes().all(|it| it.is_ascii_hexdigit());
    let Some(name) = name.to_str().ok().filter(is_ours) else {
        let message = "there is no such MCP session; begin with initialize";
        return Err(ApiError::new(ErrorCode::NotFound, message));
    };
    Ok(Some(name.to_owned()))
}

/// Returns a name for a client. It opens nothing: it tells the client's requests from those of others who
/// have the same credential.
fn new_client() -> Option<HeaderValue> {
    HeaderValue::try_from(random_hex(16).ok()?).ok()
}

fn not_a_message(code: i32, message: &'static str) -> Response {
    let body = json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": message}});
    let json = [(CONTENT_TYPE, "application/json")];
    (StatusCode::BAD_REQUEST, json, Bytes::from(body.to_string())).into_response()
}
