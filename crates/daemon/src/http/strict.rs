//! JSON bodies that are read strictly: one object, no key twice, not nested deeply, and every field by its
//! name. A refusal says where, and never repeats what was sent.

use std::{fmt, time::Duration};

use api::errors::ErrorCode;
use axum::{
    body::{Bytes, to_bytes},
    extract::{FromRequest, Request},
    http::{
        HeaderMap,
        header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE},
        request::Parts,
    },
};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use super::problem::ApiError;

const MAX_BYTES: usize = 1 << 20;
const MAX_DEPTH: usize = 64;
/// More elements or keys in one place are no request of anybody.
const MAX_ENTRIES: usize = 4096;
/// Nor is a name of that many bytes, which would be taken for a field from the future.
const MAX_KEY: usize = 1024;
/// Bodies are small; one that takes longer is held back on purpose.
const DEADLINE: Duration = Duration::from_secs(15);

/// The most that is read of a body at a route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MostBytes(pub(crate) usize);

impl Default for MostBytes {
    fn default() -> Self {
        Self(MAX_BYTES)
    }
}

/// The body of a request: a JSON object.
#[derive(Debug, Default)]
pub(super) struct Object {
    fields: Map<String, Value>,
    /// Where it stands in the body.
    at: String,
}

/// The same, where no body at all is an empty object.
#[derive(Debug)]
pub(super) struct MaybeObject(pub(super) Object);

impl<S: Send + Sync> FromRequest<S> for Object {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (parts, bytes) = read(request, MAX_BYTES).await?;
        check_type(&parts.headers)?;
        Self::parse(&bytes)
    }
}

impl<S: Send + Sync> FromRequest<S> for MaybeObject {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (parts, bytes) = read(request, MAX_BYTES).await?;
        if bytes.is_empty() {
            return Ok(Self(Object::default()));
        }
        check_type(&parts.headers)?;
        Object::parse(&bytes).map(Self)
    }
}

/// Reads a body of at most this size, without looking at what is in it.
pub(super) async fn read(request: Request, most: usize) -> Result<(Parts, Bytes), ApiError> {
    let too_large = || ApiError::new(ErrorCode::PayloadTooLarge, "the body is too large");
    let (parts, body) = request.into_parts();
    check_encoding(&parts.headers)?;
    let length = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    if length.and_then(|length| length.parse().ok()).is_some_and(|length: usize| length > most) {
        return Err(too_large());
    }
    match timeout(DEADLINE, to_bytes(body, most)).await {
        Ok(Ok(bytes)) => Ok((parts, bytes)),
        Ok(Err(error)) if is_limit(&error) => Err(too_large()),
        Ok(Err(_broken)) => Err(invalid("the body breaks off")),
        Err(_elapsed) => Err(ApiError::new(ErrorCode::Timeout, "the body did not come in time")),
    }
}

/// Refuses what is compressed: what it grows to is known when it is too late.
pub(crate) fn check_encoding(headers: &HeaderMap) -> Result<(), ApiError> {
    if headers.contains_key(CONTENT_ENCODING) {
        let message = "the body must not be compressed";
        return Err(ApiError::new(ErrorCode::UnsupportedMediaType, message));
    }
    Ok(())
}

fn is_limit(error: &axum::Error) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(<dyn std::error::Error>::is::<http_body_util::LengthLimitError>)
}

/// A browser sends no other page's JSON without asking first.
pub(super) fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let mut kinds = headers.get_all(CONTENT_TYPE).iter();
    let kind = kinds.next().and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") && kinds.next().is_none() {
        return Ok(());
    }
    let message = "the body must be JSON, with Content-Type: application/json";
    Err(ApiError::new(ErrorCode::UnsupportedMediaType, message))
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, message)
}

/// Reads JSON of any kind, as strictly.
pub(super) fn value(bytes: &[u8]) -> serde_json::Result<Value> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let parsed = Strict { depth: 1 }.deserialize(&mut reader);
    parsed.and_then(|value| reader.end().map(|()| value))
}

impl From<Map<String, Value>> for Object {
    fn from(fields: Map<String, Value>) -> Self {
        Self { fields, at: String::new() }
    }
}

impl Object {
    fn parse(bytes: &[u8]) -> Result<Self, ApiError> {
        match value(bytes) {
            Ok(Value::Object(fields)) => Ok(Self { fields, at: String::new() }),
            Ok(_) => Err(invalid("the body must be a JSON object").pointing("")),
            Err(error) => {
                let (line, column) = (error.line(), error.column());
                let what = match error.classify() {
                    serde_json::error::Category::Data => "is refused: a key twice, or too much",
                    _ => "is not JSON",
                };
                Err(invalid(format!("the body {what}, at line {line} column {column}"))
                    .pointing(""))
            }
        }
    }

    /// Reads all fields that a message has, each of which may be missing.
    pub(super) fn message<T: DeserializeOwned>(self) -> Result<T, ApiError> {
        let Self { fields, at } = self;
        let read = |fields| serde_json::from_value::<T>(Value::Object(fields));
        read(fields.clone()).map_err(|_wrong| {
            // Whatever is wrong by itself is what is wrong.
            let is_wrong = |(name, value): &(&String, &Value)| {
                read(Map::from_iter([((*name).clone(), (*value).clone())])).is_err()
            };
            match fields.iter().find(is_wrong) {
                Some((name, _)) => {
                    let message = format!("{name}: this is not what the field takes");
                    invalid(message).at(name.clone()).pointing(format!("{at}/{name}"))
                }
                None => {
                    invalid("the body is not the JSON object that this route takes").pointing("")
                }
            }
        })
    }

    /// Returns what tells this body from others, however it is spaced.
    pub(super) fn fingerprint(&self, route: &str) -> [u8; 32] {
        let body = Value::Object(self.fields.clone()).to_string();
        Sha256::new().chain_update(route).chain_update([0]).chain_update(body).finalize().into()
    }

    /// Refuses a field, saying where it stands.
    pub(super) fn wrong(&self, name: &str, expected: &str) -> ApiError {
        let pointer = format!("{}/{name}", self.at);
        invalid(format!("{pointer}: {expected}")).pointing(pointer)
    }

    /// Refuses fields that could be meant to confine, and that nobody here knows.
    pub(super) fn refuse(&self, names: &[&str]) -> Result<(), ApiError> {
        match names.iter().find(|name| self.fields.contains_key(**name)) {
            Some(name) => Err(self.wrong(name, "this route does not know it")),
            None => Ok(()),
        }
    }

    /// Takes a field. One that is null is not there.
    fn take(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(name, "must be a string")),
        }
    }

    pub(super) fn texts(&mut self, name: &str) -> Result<Option<Vec<String>>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let Value::Array(values) = value else {
            return Err(self.wrong(name, "must be a list of strings"));
        };
        let texts = values.into_iter().map(|value| match value {
            Value::String(text) => Ok(text),
            _ => Err(self.wrong(name, "must be a list of strings")),
        });
        texts.collect::<Result<_, _>>().map(Some)
    }

    pub(super) fn whole(&mut self, name: &str) -> Result<Option<u64>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.wrong(name, "must be a whole number from 0 on")),
            },
        }
    }

    pub(super) fn object(&mut self, name: &str) -> Result<Option<Self>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(fields)) => {
                Ok(Some(Self { fields, at: format!("{}/{name}", self.at) }))
            }
            Some(_) => Err(self.wrong(name, "must be an object")),
        }
    }
}

/// Reads one value at this depth.
#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl Strict {
    fn inside<E: Error>(self) -> Result<Self, E> {
        if self.depth > MAX_DEPTH {
            return Err(E::custom("nested too deeply"));
        }
        Ok(Self { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let (inside, mut values) = (self.inside()?, Vec::new());
        while let Some(value) = seq.next_element_seed(inside)? {
            values.push(value);
            if values.len() > MAX_ENTRIES {
                return Err(A::Error::custom("too many elements"));
            }
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let (inside, mut fields) = (self.inside()?, Map::new());
        while let Some(key) = map.next_key::<String>()? {
            if key.len() > MAX_KEY {
                return Err(A::Error::custom("a key is too long"));
            }
            let value = map.next_value_seed(inside)?;
            if fields.insert(key, value).is_some() {
                return Err(A::Error::custom("a key is there twice"));
            }
            if fields.len() > MAX_ENTRIES {
                return Err(A::Error::custom("too many keys"));
            }
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H03, H04.
    #[test]
    fn h03_h04_only_one_plain_object_is_read() {
        let deep = |depth: usize| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
        assert!(Object::parse(deep(64).as_bytes()).is_ok());
        let many_keys: Vec<String> = (0..5000).map(|it| format!("\"k{it}\":1")).collect();
        let rows: [&[u8]; 18] = [
            b"",
            b"null",
            b"[]",
            b"7",
            b"\"x\"",
            b"{}{}",
            b"{} x",
            b"\xef\xbb\xbf{}",
            b"\xff\xfe{\0}\0",
            b"{\"a\":\"\xff\"}",
            b"{\"a\":\0}",
            b"{\"a\":1,\"a\":1}",
            b"{\"a\":{\"b\":1,\"b\":2}}",
            deep(65).leak().as_bytes(),
            b"\0",
            format!("{{\"{}\":1}}", "k".repeat(MAX_KEY + 1)).leak().as_bytes(),
            format!("{{\"a\":[{}0]}}", "0,".repeat(100_000)).leak().as_bytes(),
            format!("{{{}}}", many_keys.join(",")).leak().as_bytes(),
        ];
        for row in rows {
            let shown: String = String::from_utf8_lossy(row).chars().take(40).collect();
            let refused = Object::parse(row).expect_err(&shown);
            assert_eq!(refused.code(), ErrorCode::InvalidRequest, "{shown}");
        }
    }

    #[test]
    fn a_refusal_says_where_and_not_what() {
        let mut object = Object::parse(br#"{"a":{"b":"canary"},"c":[1],"d":-1,"e":null}"#).unwrap();
        assert_eq!(object.text("e").unwrap(), None);
        assert!(object.texts("c").unwrap_err().message().starts_with("/c: "));
        assert!(object.whole("d").unwrap_err().message().starts_with("/d: "));
        let mut inner = object.object("a").unwrap().unwrap();
        let message = inner.whole("b").unwrap_err().message().to_owned();
        assert!(message.starts_with("/a/b: ") && !message.contains("canary"), "{message}");
    }

    #[test]
    fn the_same_fields_are_the_same_request_however_they_are_written() {
        let print = |text: &str| Object::parse(text.as_bytes()).unwrap().fingerprint("POST /x");
        assert_eq!(print(r#"{"a":1,"b":2}"#), print("{ \"b\" : 2,\n\"a\":1 }"));
        assert_ne!(print(r#"{"a":1}"#), print(r#"{"a":"1"}"#));
    }
}
