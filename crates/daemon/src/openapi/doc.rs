//! What a route says of itself: what it takes, what it answers, how it refuses.

use std::collections::BTreeMap;

use api::errors::ErrorCode;
use serde_json::{Value, json};
use utoipa::{
    ToSchema,
    openapi::{RefOr, Schema},
};

/// How bodies are refused that are read as JSON.
const JSON_BODY: [ErrorCode; 4] = [
    ErrorCode::InvalidRequest,
    ErrorCode::UnsupportedMediaType,
    ErrorCode::PayloadTooLarge,
    ErrorCode::Timeout,
];

/// What the engine may say of a sandbox that is used.
pub(crate) const SANDBOX: [ErrorCode; 7] = [
    ErrorCode::NotFound,
    ErrorCode::SandboxStarting,
    ErrorCode::SandboxNotReady,
    ErrorCode::RateLimited,
    ErrorCode::Unavailable,
    ErrorCode::ProviderUnavailable,
    ErrorCode::InternalError,
];

/// What a key of another tenant gets of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tenancy {
    /// That there is no such thing: what the request names is of one tenant.
    Hidden,
    /// Its own: nothing that the request names is of another.
    Own,
    /// Nothing, whatever its role is: the route is for admins of the whole server.
    Server,
}

impl Tenancy {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Hidden => "hidden",
            Self::Own => "own",
            Self::Server => "server",
        }
    }
}

/// What a route is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    Sessions,
    Threads,
    OAuth,
    Executions,
    Commands,
    Shells,
    Files,
    Ports,
    Events,
    Agents,
    LangSmith,
    Keys,
    Tokens,
    Audit,
    Server,
}

impl Tag {
    pub(super) const ALL: [Self; 15] = [
        Self::Sessions,
        Self::Threads,
        Self::OAuth,
        Self::Executions,
        Self::Commands,
        Self::Shells,
        Self::Files,
        Self::Ports,
        Self::Events,
        Self::Agents,
        Self::LangSmith,
        Self::Keys,
        Self::Tokens,
        Self::Audit,
        Self::Server,
    ];

    const fn row(self) -> (&'static str, &'static str) {
        match self {
            Self::Sessions => {
                ("Sessions", "A scope gets its sandbox and a token: docs/sessions.md.")
            }
            Self::Threads => {
                ("Threads", "The same for a thread that the path names: docs/sessions.md.")
            }
            Self::OAuth => ("OAuth", "Tokens exchanged, looked at and ended: docs/tokens.md."),
            Self::Executions => {
                ("Executions", "Source code run once, over a WebSocket: docs/protocol.md.")
            }
            Self::Commands => ("Commands", "Commands in a sandbox: docs/exec.md."),
            Self::Shells => ("Shells", "Terminals that several join: docs/shell.md."),
            Self::Files => ("Files", "Files of a sandbox: docs/files.md."),
            Self::Ports => ("Ports", "Servers in a sandbox: docs/ports.md."),
            Self::Events => ("Events", "What happens to a sandbox: docs/sandboxes.md."),
            Self::Agents => ("Agents", "Sandboxes as agents have them: docs/mcp.md, docs/a2a.md."),
            Self::LangSmith => {
                ("LangSmith", "Sandboxes as LangSmith's clients create and see them.")
            }
            Self::Keys => ("Keys", "API keys."),
            Self::Tokens => ("Tokens", "Tokens of sandboxes: docs/tokens.md."),
            Self::Audit => ("Audit", "Who did what: docs/audit.md."),
            Self::Server => ("Server", "The server itself."),
        }
    }

    pub(super) const fn name(self) -> &'static str {
        self.row().0
    }

    pub(super) const fn about(self) -> &'static str {
        self.row().1
    }
}

/// What is said of a route. Where it is and what opens it is said where it is mounted.
#[derive(Clone, Debug)]
pub(crate) struct Doc {
    pub(super) tag: Tag,
    pub(super) summary: &'static str,
    pub(super) parameters: Vec<Value>,
    pub(super) body: Option<Value>,
    pub(super) answers: BTreeMap<u16, Value>,
    pub(super) refusals: Vec<ErrorCode>,
    /// Statuses and words that no code stands for.
    pub(super) words: Vec<(u16, &'static str)>,
    pub(super) schemas: BTreeMap<String, Value>,
    tenancy: Option<Tenancy>,
    pub(super) is_stream: bool,
    pub(super) is_never: bool,
    pub(super) anything: Option<Value>,
}

impl Doc {
    pub(crate) const fn new(tag: Tag, summary: &'static str) -> Self {
        Self {
            tag,
            summary,
            parameters: Vec::new(),
            body: None,
            answers: BTreeMap::new(),
            refusals: Vec::new(),
            words: Vec::new(),
            schemas: BTreeMap::new(),
            tenancy: None,
            is_stream: false,
            is_never: false,
            anything: None,
        }
    }

    /// Takes JSON. The example is one that a fresh server would take.
    pub(crate) fn takes<T: ToSchema>(self, example: &Value) -> Self {
        self.json_body::<T>(true, example)
    }

    /// Takes JSON, or nothing at all.
    pub(crate) fn may_take<T: ToSchema>(self, example: &Value) -> Self {
        self.json_body::<T>(false, example)
    }

    fn json_body<T: ToSchema>(mut self, is_required: bool, example: &Value) -> Self {
        self.schemas.extend(schemas_of::<T>());
        let content = json!({"schema": reference::<T>(), "example": example});
        self.body =
            Some(json!({"required": is_required, "content": {"application/json": content}}));
        self.refuses(&JSON_BODY)
    }

    /// Takes names and values, as forms of OAuth have them.
    pub(crate) fn takes_form<T: ToSchema>(mut self, example: &Value) -> Self {
        self.schemas.extend(schemas_of::<T>());
        let content = json!({"schema": reference::<T>(), "example": example});
        let content = json!({"application/x-www-form-urlencoded": content});
        self.body = Some(json!({"required": true, "content": content}));
        self
    }

    /// Takes whatever bytes come, of these types.
    pub(crate) fn takes_bytes(mut self, types: &[&str]) -> Self {
        let content = types.iter().map(|kind| (*kind, json!({"schema": schema_of_kind(kind)})));
        let content: BTreeMap<_, _> = content.collect();
        self.body = Some(json!({"required": false, "content": content}));
        self
    }

    /// Takes a parameter of the query that may be left out.
    pub(crate) fn query(self, name: &str, schema: &Value, about: &str) -> Self {
        self.parameter("query", name, schema, about)
    }

    /// Takes a header that may be left out.
    pub(crate) fn header(self, name: &str, schema: &Value, about: &str) -> Self {
        self.parameter("header", name, schema, about)
    }

    fn parameter(mut self, place: &str, name: &str, schema: &Value, about: &str) -> Self {
        self.parameters.push(json!({
            "name": name, "in": place, "required": false, "schema": schema, "description": about,
        }));
        self
    }

    /// Answers JSON.
    pub(crate) fn answers<T: ToSchema>(mut self, status: u16, about: &str) -> Self {
        self.schemas.extend(schemas_of::<T>());
        self.content(status, about, "application/json", &json!({"schema": reference::<T>()}))
    }

    /// Answers without a body.
    pub(crate) fn answers_nothing(mut self, status: u16, about: &str) -> Self {
        self.answers.insert(status, json!({"description": about}));
        self
    }

    /// Answers bytes or text of this media type.
    pub(crate) fn answers_as(self, status: u16, about: &str, kind: &str) -> Self {
        self.content(status, about, kind, &json!({"schema": schema_of_kind(kind)}))
    }

    /// Answers what somebody else decides, with any status and of any type.
    pub(crate) fn answers_anything(mut self, about: &str) -> Self {
        self.anything = Some(json!({"description": about}));
        self
    }

    /// Answers a stream of server-sent events, whose data are these. It may go on for ever.
    pub(crate) fn streams<T: ToSchema>(mut self, about: &str) -> Self {
        self.schemas.extend(schemas_of::<T>());
        self.is_stream = true;
        // What one event holds. OpenAPI 3.1 has no word for it.
        let kind = "text/event-stream";
        let content = json!({"schema": schema_of_kind(kind), "x-event": reference::<T>()});
        self.content(200, about, kind, &content)
    }

    /// Refuses always: clients ask for it, and it cannot be had here.
    pub(crate) fn never_succeeds(self) -> Self {
        Self { is_never: true, ..self }
    }

    /// Becomes a WebSocket.
    pub(crate) fn upgrades(self) -> Self {
        let doc = self.answers_nothing(101, "The connection is a WebSocket from here on.").header(
            "Upgrade",
            &json!({"type": "string", "enum": ["websocket"]}),
            "What it is to become.",
        );
        doc.refuses(&[
            ErrorCode::InvalidRequest,
            ErrorCode::Forbidden,
            ErrorCode::UnsupportedVersion,
            ErrorCode::Unavailable,
        ])
    }

    fn content(mut self, status: u16, about: &str, kind: &str, content: &Value) -> Self {
        let fresh = || json!({"description": about, "content": {}});
        // One status may be answered in several types.
        let answer = self.answers.entry(status).or_insert_with(fresh);
        answer["content"][kind] = content.clone();
        self
    }

    /// Says what a key of another tenant gets, if that cannot be told from the path: without a word, what has a
    /// parameter is hidden, and what has none is each tenant's own.
    pub(crate) fn tenancy(self, tenancy: Tenancy) -> Self {
        Self { tenancy: Some(tenancy), ..self }
    }

    /// Refuses with these codes, besides those that everybody is refused with who may not use the route.
    pub(crate) fn refuses(mut self, codes: &[ErrorCode]) -> Self {
        self.refusals.extend_from_slice(codes);
        self
    }

    /// Refuses with a word that no code stands for, as LangSmith's clients tell more apart.
    pub(crate) fn refuses_with(mut self, status: u16, words: &[&'static str]) -> Self {
        self.words.extend(words.iter().map(|word| (status, *word)));
        self
    }

    pub(super) fn tenancy_of(&self, path: &str) -> Tenancy {
        let usual = if path.contains('{') { Tenancy::Hidden } else { Tenancy::Own };
        self.tenancy.unwrap_or(usual)
    }
}

/// Returns the schema of a media type that is not made of one of our types: programs that generate clients
/// leave out operations with a body that has none.
fn schema_of_kind(kind: &str) -> Value {
    let bytes = json!({"type": "string", "format": "binary"});
    match kind {
        "multipart/form-data" => {
            json!({"type": "object", "required": ["file"], "properties": {"file": bytes}})
        }
        "application/json" => json!({"type": "object"}),
        // Some programs hold the whole body against it, and some each event.
        "text/event-stream" => {
            json!({"description": "Server-sent events; `x-event` is the data of one."})
        }
        text if text.starts_with("text/") => json!({"type": "string"}),
        _ => bytes,
    }
}

/// Points to the schema of a type.
pub(super) fn reference<T: ToSchema>() -> Value {
    json!({"$ref": format!("#/components/schemas/{}", T::name())})
}

/// Returns the schema of a type and of all that it is made of, by their names.
pub(crate) fn schemas_of<T: ToSchema>() -> BTreeMap<String, Value> {
    let mut all: Vec<(String, RefOr<Schema>)> = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut all);
    all.into_iter().map(|(name, schema)| (name, without_null_defaults(json!(schema)))).collect()
}

/// Leaves out defaults that are null: what is optional is absent, and generators take the default for a value
/// of the type.
fn without_null_defaults(schema: Value) -> Value {
    match schema {
        Value::Array(parts) => parts.into_iter().map(without_null_defaults).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(name, value)| name != "default" || !value.is_null())
            .map(|(name, value)| (name, without_null_defaults(value)))
            .collect(),
        other => other,
    }
}
