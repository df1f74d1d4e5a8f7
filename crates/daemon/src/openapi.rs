//! The document of everything HTTP (`OpenAPI` 3.1), made of what the routes say of themselves.
//!
//! A route is mounted together with its `Doc`; there is no other way to mount one. Here the
//! parts are put together. What nobody declares is not in the document, and not there.

pub(crate) mod doc;
pub(crate) mod page;
mod parameters;
mod security;

use std::{collections::BTreeMap, sync::LazyLock};

use api::errors::{ErrorCode, Problem};
use axum::http::StatusCode;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::{
    dataplane::shape::{self, Shape},
    http,
};
pub(crate) use doc::{Doc, Tag, Tenancy};
pub(crate) use security::Opens;

/// How every route refuses what has no head that can be read, or is for no host, or for another.
const ASTRAY: [ErrorCode; 3] =
    [ErrorCode::InvalidRequest, ErrorCode::MisdirectedRequest, ErrorCode::HeadersTooLarge];

const ABOUT: &str = "Everything that a Ringfence server answers over HTTP. Every answer has the header \
    `X-Request-Id`, and every refusal says it too; it names the request in the server's log and in the audit \
    log. Routes that become a WebSocket are those that answer 101. `GET` stands for `HEAD` too.";

/// A route, with what is said of it.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// In small letters, as the document has it.
    pub(crate) method: &'static str,
    /// As the router has it: `{*name}` for what may hold slashes.
    pub(crate) path: String,
    pub(crate) opens: Opens,
    pub(crate) shape: Shape,
    pub(crate) doc: Doc,
}

/// Returns the document. It is made once. A path that is another with a slash at its end is not in it.
pub fn document() -> &'static Value {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
        let mut operations = http::operations();
        operations.retain(|operation| !operation.has_trailing_slash());
        build(&operations)
    });
    &DOCUMENT
}

/// Returns the document with every path that is routed, for tests of them.
pub fn whole_document() -> Value {
    build(&http::operations())
}

/// Returns the document as it is sent.
pub(crate) fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| document().to_string());
    &TEXT
}

fn build(operations: &[Operation]) -> Value {
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    let mut schemas: BTreeMap<String, Value> = BTreeMap::new();
    let mut responses: BTreeMap<String, Value> = BTreeMap::new();
    let mut parameters: BTreeMap<String, Value> = BTreeMap::new();
    for operation in operations {
        schemas.extend(operation.doc.schemas.clone());
        schemas.extend(operation.shape.schemas());
        responses.extend(operation.shared());
        parameters.extend(parameters::of_path(&operation.path));
        let item = paths.entry(plain(&operation.path)).or_default();
        item.insert(operation.method.to_owned(), operation.shown());
    }
    let tags: Vec<Value> = Tag::ALL
        .into_iter()
        .map(|tag| json!({"name": tag.name(), "description": tag.about()}))
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Ringfence",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": tags,
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": responses,
            "parameters": parameters,
            "securitySchemes": security::schemes(),
        },
    })
}

/// Returns a path as the document has it, which knows no parameter that may hold slashes.
fn plain(path: &str) -> String {
    path.replace("{*", "{")
}

impl Operation {
    fn shown(&self) -> Value {
        let doc = &self.doc;
        let named = parameters::of_path(&self.path).into_iter();
        let named =
            named.map(|(name, _)| json!({"$ref": format!("#/components/parameters/{name}")}));
        let mut parameters: Vec<Value> = named.collect();
        parameters.extend(doc.parameters.iter().cloned());
        let mut shown = json!({
            "operationId": self.id(),
            "summary": doc.summary,
            "tags": [doc.tag.name()],
            "security": self.opens.requirements(),
            "responses": self.responses(),
        });
        if !parameters.is_empty() {
            shown["parameters"] = Value::Array(parameters);
        }
        if let Some(body) = &doc.body {
            shown["requestBody"] = body.clone();
        }
        let refusals = self.refusals();
        if !refusals.is_empty() {
            let words = refusals.into_iter().map(|(status, words)| (status, words.join(" ")));
            shown["x-refusals"] = json!(words.collect::<BTreeMap<_, _>>());
        }
        if matches!(self.opens, Opens::Key | Opens::KeyOrToken | Opens::Admin | Opens::Broker) {
            shown["x-tenancy"] = json!(doc.tenancy_of(&self.path).name());
        }
        if let Some(place) = self.opens.place() {
            shown["x-credential"] = json!(place);
        }
        if doc.is_never {
            shown["x-never"] = json!(true);
        }
        if doc.is_stream {
            shown["x-stream"] = json!(true);
        }
        shown
    }

    fn has_trailing_slash(&self) -> bool {
        self.path.len() > 1 && self.path.ends_with('/')
    }

    /// Names the operation by what it is: nobody has to make up a name, and none is there twice.
    fn id(&self) -> String {
        let path = plain(&self.path);
        let words = path.split(|byte: char| !byte.is_ascii_alphanumeric());
        let mut id = self.method.to_owned();
        for word in words.filter(|word| !word.is_empty()) {
            id.push('_');
            id.push_str(word);
        }
        // Two paths differ by the slash at their end alone.
        if self.has_trailing_slash() {
            id.push_str("_root");
        }
        id
    }

    fn responses(&self) -> Value {
        let mut responses: BTreeMap<String, Value> = BTreeMap::new();
        for (status, answer) in &self.doc.answers {
            responses.insert(status.to_string(), answer.clone());
        }
        if let Some(anything) = &self.doc.anything {
            responses.insert("default".to_owned(), anything.clone());
        }
        for status in self.refusals().keys() {
            let refused = format!("#/components/responses/{}{status}", self.shape.name());
            responses.entry(status.to_string()).or_insert_with(|| json!({"$ref": refused}));
        }
        json!(responses)
    }

    /// Returns under which statuses the route refuses, and which words each stands for.
    fn refusals(&self) -> BTreeMap<u16, Vec<&'static str>> {
        let mut refusals: BTreeMap<u16, Vec<&'static str>> = BTreeMap::new();
        let codes = self.opens.refusals().iter().chain(&self.doc.refusals).chain(&ASTRAY);
        let told = codes.map(|code| self.shape.told(*code));
        for (status, word) in told.chain(self.doc.words.iter().copied()) {
            let words = refusals.entry(status).or_default();
            if !words.contains(&word) {
                words.push(word);
            }
        }
        refusals
    }

    /// Returns the refusals that the routes point to.
    fn shared(&self) -> impl Iterator<Item = (String, Value)> {
        self.refusals().into_keys().map(|status| {
            let reason = StatusCode::from_u16(status).ok();
            let reason = reason.and_then(|status| status.canonical_reason()).unwrap_or("Refused");
            let content = json!({"application/json": {"schema": self.shape.schema()}});
            let answer = json!({"description": reason, "content": content});
            (format!("{}{status}", self.shape.name()), answer)
        })
    }
}

impl Shape {
    /// Returns status and word of a refusal in this shape.
    fn told(self, code: ErrorCode) -> (u16, &'static str) {
        match self {
            Self::Envelope => (code.http_status(), code.wire_name()),
            Self::Detail => {
                let (word, status) = shape::kind(code);
                (status.map_or(code.http_status(), |it| it.as_u16()), word)
            }
            Self::OAuth => {
                let (word, status) = http::oauth::told(code);
                (status.as_u16(), word)
            }
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Envelope => "Problem",
            Self::Detail => "Refused",
            Self::OAuth => "OauthProblem",
        }
    }

    fn schema(self) -> Value {
        match self {
            Self::Envelope => doc::reference::<Problem<'_>>(),
            Self::Detail => doc::reference::<api::langsmith::Refused>(),
            Self::OAuth => doc::reference::<api::tokens::OauthProblem>(),
        }
    }

    fn schemas(self) -> BTreeMap<String, Value> {
        fn of<T: ToSchema>() -> BTreeMap<String, Value> {
            doc::schemas_of::<T>()
        }
        match self {
            Self::Envelope => of::<Problem<'_>>(),
            Self::Detail => of::<api::langsmith::Refused>(),
            Self::OAuth => of::<api::tokens::OauthProblem>(),
        }
    }
}
