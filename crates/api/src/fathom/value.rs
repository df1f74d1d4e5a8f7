//! A JSON value as far as a frame needs it: read in one pass, nesting and repeated keys refused,
//! nothing kept that no field asks for.

use std::{borrow::Cow, collections::HashSet, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::MAX_DEPTH;

/// More keys than this in one object are refused, so that looking for repeated ones stays cheap.
const MAX_KEYS: usize = 4096;

#[derive(Debug, PartialEq)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    /// A whole number from zero on, written without fraction or exponent.
    Integer(u64),
    /// Any other number.
    Number,
    Text(Cow<'a, str>),
    /// An array; no field is one, so its elements are not kept.
    Array,
    /// An object; without its entries unless they were asked for.
    Object(Vec<(Cow<'a, str>, Self)>),
}

/// Whether to keep the entries of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entries {
    Keep,
    Drop,
}

/// Reads one value at this depth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) depth: usize,
    pub(super) entries: Entries,
}

impl Read {
    /// Returns how to read what is inside an object or array, unless that is too deep.
    fn inside<E: Error>(self) -> Result<Self, E> {
        if self.depth >= MAX_DEPTH {
            return Err(E::custom(format_args!("nested deeper than {MAX_DEPTH} levels")));
        }
        Ok(Self { depth: self.depth + 1, entries: Entries::Drop })
    }
}

impl<'de> DeserializeSeed<'de> for Read {
    type Value = Value<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Read {
    type Value = Value<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value<'de>, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value<'de>, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value<'de>, E> {
        Ok(Value::Integer(value))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value<'de>, E> {
        Ok(Value::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value<'de>, E> {
        Ok(Value::Number)
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value<'de>, A::Error> {
        let inside = self.inside()?;
        while seq.next_element_seed(inside)?.is_some() {}
        Ok(Value::Array)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value<'de>, A::Error> {
        let inside = self.inside()?;
        let mut keys = HashSet::new();
        let mut kept = Vec::new();
        while let Some(key) = next_key(&mut map)? {
            let value = map.next_value_seed(inside)?;
            if self.entries == Entries::Keep {
                kept.push((key.clone(), value));
            }
            remember(&mut keys, key)?;
        }
        Ok(Value::Object(kept))
    }
}

/// Reads the next key of an object, borrowed where it has no escapes.
pub(super) fn next_key<'de, A: MapAccess<'de>>(
    map: &mut A,
) -> Result<Option<Cow<'de, str>>, A::Error> {
    map.next_key_seed(Key)
}

/// Refuses a key that was there before.
pub(super) fn remember<'de, E: Error>(
    keys: &mut HashSet<Cow<'de, str>>,
    key: Cow<'de, str>,
) -> Result<(), E> {
    if keys.len() >= MAX_KEYS {
        return Err(E::custom(format_args!("more than {MAX_KEYS} keys in one object")));
    }
    if keys.insert(key) { Ok(()) } else { Err(E::custom("a key is there twice")) }
}

struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}
