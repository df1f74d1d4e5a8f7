//! From text to a frame, or to the reason why not.

use std::{borrow::Cow, collections::HashSet, fmt};

use serde::{
    Deserialize,
    de::{Deserializer, Error as _, MapAccess, Visitor},
};

use super::{
    Cancel, ClientFrame, Ping, VERSION, execute, is_id,
    timestamp::is_timestamp,
    value::{Entries, Read, Value, next_key, remember},
};
use crate::errors::ErrorCode;

/// Why a frame is not acted upon. The text never repeats what the client sent, but for names of
/// fields that we know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    pub code: ErrorCode,
    pub message: Cow<'static, str>,
    /// The id of the execution, if a valid one could be read.
    pub id: Option<String>,
    pub part: Part,
}

/// Which part of a frame is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What every frame has: the sender does not speak this protocol.
    Envelope,
    /// The fields of its type: the sender made a mistake in one request.
    Request,
}

/// Reads one text message.
pub fn parse(text: &str) -> Result<ClientFrame, Refused> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let fields = Fields::deserialize(&mut reader)
        .and_then(|fields| reader.end().map(|()| fields))
        .map_err(|error| not_json(text, &error))?;
    let id = match &fields.id {
        Some(Value::Text(id)) if is_id(id) => Some(id.clone().into_owned()),
        Some(_) | None => None,
    };
    fields.into_frame(id.as_deref()).map_err(|wrong| wrong.about(id))
}

/// A refusal that does not know its frame's id yet.
#[derive(Debug)]
pub(super) struct Wrong {
    code: ErrorCode,
    message: Cow<'static, str>,
    part: Part,
}

impl Wrong {
    pub(super) fn request(message: impl Into<Cow<'static, str>>) -> Self {
        Self { code: ErrorCode::InvalidRequest, message: message.into(), part: Part::Request }
    }

    pub(super) fn with_code(self, code: ErrorCode) -> Self {
        Self { code, ..self }
    }

    fn envelope(message: impl Into<Cow<'static, str>>) -> Self {
        Self { part: Part::Envelope, ..Self::request(message) }
    }

    fn about(self, id: Option<String>) -> Refused {
        Refused { code: self.code, message: self.message, id, part: self.part }
    }
}

/// The fields that some frame has, as they came.
#[derive(Debug, Default)]
pub(super) struct Fields<'a> {
    v: Option<Value<'a>>,
    kind: Option<Value<'a>>,
    id: Option<Value<'a>>,
    ts: Option<Value<'a>>,
    pub(super) language: Option<Value<'a>>,
    pub(super) code: Option<Value<'a>>,
    pub(super) stdin: Option<Value<'a>>,
    pub(super) env: Option<Value<'a>>,
    pub(super) limits: Option<Value<'a>>,
    pub(super) freshness: Option<Value<'a>>,
    pub(super) posture: Option<Value<'a>>,
    pub(super) network: Option<Value<'a>>,
}

impl Fields<'_> {
    fn into_frame(mut self, id: Option<&str>) -> Result<ClientFrame, Wrong> {
        check_version(self.v.as_ref())?;
        let Some(Value::Text(kind)) = self.kind.take() else {
            return Err(Wrong::envelope("type must be \"execute\", \"cancel\" or \"ping\""));
        };
        let ts = match self.ts.take() {
            Some(Value::Text(ts)) if is_timestamp(&ts) => ts.into_owned(),
            Some(_) => {
                return Err(Wrong::envelope(
                    "ts must be an ISO 8601 timestamp such as 2025-12-27T11:30:00.000Z",
                ));
            }
            None => return Err(Wrong::envelope("ts is missing")),
        };
        let id = id
            .map(str::to_owned)
            .ok_or_else(|| Wrong::envelope("id must be 1 to 128 printable characters"));
        match &*kind {
            "execute" => execute::from_fields(self, id?, ts).map(ClientFrame::Execute),
            "cancel" => Ok(ClientFrame::Cancel(Cancel { v: VERSION, id: id?, ts })),
            "ping" => Ok(ClientFrame::Ping(Ping { v: VERSION, ts })),
            _ => Err(Wrong::envelope("type must be \"execute\", \"cancel\" or \"ping\"")),
        }
    }
}

fn check_version(v: Option<&Value<'_>>) -> Result<(), Wrong> {
    match v {
        Some(Value::Integer(VERSION)) => Ok(()),
        Some(Value::Integer(other)) => Err(Wrong::envelope(format!(
            "protocol version {other} is not supported; this server speaks version {VERSION}"
        ))),
        Some(_) => Err(Wrong::envelope(format!("v must be the integer {VERSION}"))),
        None => Err(Wrong::envelope(format!("v is missing; it must be {VERSION}"))),
    }
}

/// Refuses what is not one JSON object. A second, lenient reading looks for the id, so that the
/// client can tell which of its executions is meant.
fn not_json(text: &str, error: &serde_json::Error) -> Refused {
    #[derive(Deserialize)]
    struct OnlyId {
        #[serde(default)]
        id: Option<String>,
    }
    let id = serde_json::from_str::<OnlyId>(text).ok().and_then(|only| only.id);
    Wrong::envelope(format!("not a valid frame: {error}")).about(id.filter(|id| is_id(id)))
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Frame;

        impl<'de> Visitor<'de> for Frame {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Fields::default();
                let mut unknown = HashSet::new();
                let read = Read { depth: 1, entries: Entries::Drop };
                while let Some(key) = next_key(&mut map)? {
                    let read = match &*key {
                        "env" | "limits" => Read { entries: Entries::Keep, ..read },
                        _ => read,
                    };
                    let value = map.next_value_seed(read)?;
                    match fields.named(&key) {
                        Some(Some(_)) => return Err(A::Error::custom("a key is there twice")),
                        Some(field) => *field = Some(value),
                        None => remember(&mut unknown, key)?,
                    }
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(Frame)
    }
}

impl<'a> Fields<'a> {
    fn named(&mut self, key: &str) -> Option<&mut Option<Value<'a>>> {
        Some(match key {
            "v" => &mut self.v,
            "type" => &mut self.kind,
            "id" => &mut self.id,
            "ts" => &mut self.ts,
            "language" => &mut self.language,
            "code" => &mut self.code,
            "stdin" => &mut self.stdin,
            "env" => &mut self.env,
            "limits" => &mut self.limits,
            "freshness" => &mut self.freshness,
            "posture" => &mut self.posture,
            "network" => &mut self.network,
            _ => return None,
        })
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
