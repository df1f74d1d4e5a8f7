//! The fields of `execute`: each checked for its type and size.

use std::borrow::Cow;

use serde::{Serializer, ser::SerializeMap as _};

use super::{
    AskedLimits, Execute, Freshness, MAX_CODE_BYTES, MAX_ENV_BYTES, MAX_ENV_KEY_BYTES,
    MAX_ENV_KEYS, MAX_ENV_VALUE_BYTES, MAX_STDIN_BYTES, RESERVED_ENV_PREFIX, VERSION,
    parse::{Fields, Wrong},
    value::Value,
};
use crate::errors::ErrorCode;

pub(super) fn from_fields(fields: Fields<'_>, id: String, ts: String) -> Result<Execute, Wrong> {
    refuse_network(fields.network.as_ref())?;
    Ok(Execute {
        v: VERSION,
        id,
        ts,
        language: language(fields.language)?,
        code: code(fields.code)?,
        stdin: stdin(fields.stdin)?,
        env: env(fields.env)?,
        limits: limits(fields.limits)?,
        freshness: freshness(fields.freshness)?,
        posture: posture(fields.posture.as_ref())?,
    })
}

/// Executions have no network. Asking for one is told apart from a malformed request.
fn refuse_network(network: Option<&Value<'_>>) -> Result<(), Wrong> {
    match network {
        None | Some(Value::Null | Value::Bool(false)) => Ok(()),
        Some(Value::Text(text)) if text == "none" => Ok(()),
        Some(_) => Err(Wrong::request("executions have no network; leave network out or \"none\"")
            .with_code(ErrorCode::NetworkError)),
    }
}

fn language(language: Option<Value<'_>>) -> Result<String, Wrong> {
    match language {
        Some(Value::Text(language)) => Ok(language.into_owned()),
        Some(_) => Err(Wrong::request("language must be a string")),
        None => Err(Wrong::request("language is missing")),
    }
}

fn code(code: Option<Value<'_>>) -> Result<String, Wrong> {
    match code {
        Some(Value::Text(code)) if code.len() <= MAX_CODE_BYTES => Ok(code.into_owned()),
        Some(Value::Text(_)) => {
            Err(Wrong::request(format!("code must be at most {MAX_CODE_BYTES} bytes")))
        }
        Some(_) => Err(Wrong::request("code must be a string")),
        None => Err(Wrong::request("code is missing")),
    }
}

fn stdin(stdin: Option<Value<'_>>) -> Result<Option<String>, Wrong> {
    match stdin {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Text(stdin)) if stdin.len() <= MAX_STDIN_BYTES => Ok(Some(stdin.into_owned())),
        Some(Value::Text(_)) => {
            Err(Wrong::request(format!("stdin must be at most {MAX_STDIN_BYTES} bytes")))
        }
        Some(_) => Err(Wrong::request("stdin must be a string or null")),
    }
}

fn env(env: Option<Value<'_>>) -> Result<Vec<(String, String)>, Wrong> {
    let entries = match env {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(entries)) => entries,
        Some(_) => return Err(Wrong::request("env must be an object of strings")),
    };
    if entries.len() > MAX_ENV_KEYS {
        return Err(Wrong::request(format!("env must have at most {MAX_ENV_KEYS} keys")));
    }
    let env = entries.into_iter().map(variable).collect::<Result<Vec<_>, _>>()?;
    let total: usize = env.iter().map(|(key, value)| key.len() + value.len()).sum();
    if total > MAX_ENV_BYTES {
        return Err(Wrong::request(format!("env must be at most {MAX_ENV_BYTES} bytes in all")));
    }
    Ok(env)
}

/// Loader and interpreter variables are allowed: they act inside only.
fn variable((key, value): (Cow<'_, str>, Value<'_>)) -> Result<(String, String), Wrong> {
    let Value::Text(value) = value else {
        return Err(Wrong::request("env values must be strings"));
    };
    if key.is_empty() || key.contains(['=', '\0']) || key.len() > MAX_ENV_KEY_BYTES {
        return Err(Wrong::request(format!(
            "env keys must be 1 to {MAX_ENV_KEY_BYTES} bytes without = and NUL"
        )));
    }
    if key.starts_with(RESERVED_ENV_PREFIX) {
        return Err(Wrong::request(format!("env keys must not start with {RESERVED_ENV_PREFIX}")));
    }
    if value.contains('\0') || value.len() > MAX_ENV_VALUE_BYTES {
        return Err(Wrong::request(format!(
            "env values must be at most {MAX_ENV_VALUE_BYTES} bytes without NUL"
        )));
    }
    Ok((key.into_owned(), value.into_owned()))
}

fn limits(limits: Option<Value<'_>>) -> Result<AskedLimits, Wrong> {
    let entries = match limits {
        Some(Value::Object(entries)) => entries,
        Some(_) => return Err(Wrong::request("limits must be an object")),
        None => return Err(Wrong::request("limits is missing")),
    };
    let (mut timeout, mut memory, mut cpu, mut output) = (None, None, None, None);
    let (mut processes, mut disk, mut inodes) = (None, None, None);
    for (key, value) in entries {
        match &*key {
            "timeout_ms" => timeout = Some(integer("timeout_ms", &value)?),
            "memory_mb" => memory = Some(integer("memory_mb", &value)?),
            "cpu_shares" => cpu = optional_integer("cpu_shares", &value)?,
            "max_output_bytes" => output = optional_integer("max_output_bytes", &value)?,
            "processes" => processes = optional_integer("processes", &value)?,
            "disk_mb" => disk = optional_integer("disk_mb", &value)?,
            "inodes" => inodes = optional_integer("inodes", &value)?,
            _ => {
                return Err(Wrong::request(
                    "limits has an unknown key; known are timeout_ms, memory_mb, cpu_shares, \
                     max_output_bytes, processes, disk_mb and inodes",
                ));
            }
        }
    }
    Ok(AskedLimits {
        timeout_ms: timeout.ok_or_else(|| Wrong::request("limits.timeout_ms is missing"))?,
        memory_mb: memory.ok_or_else(|| Wrong::request("limits.memory_mb is missing"))?,
        cpu_shares: cpu,
        max_output_bytes: output,
        processes,
        disk_mb: disk,
        inodes,
    })
}

fn integer(field: &str, value: &Value<'_>) -> Result<u64, Wrong> {
    match value {
        Value::Integer(number) => Ok(*number),
        Value::Null
        | Value::Bool(_)
        | Value::Number
        | Value::Text(_)
        | Value::Array
        | Value::Object(_) => {
            Err(Wrong::request(format!("limits.{field} must be a positive integer")))
        }
    }
}

fn optional_integer(field: &str, value: &Value<'_>) -> Result<Option<u64>, Wrong> {
    if *value == Value::Null { Ok(None) } else { integer(field, value).map(Some) }
}

fn freshness(freshness: Option<Value<'_>>) -> Result<Freshness, Wrong> {
    match freshness {
        None | Some(Value::Null) => Ok(Freshness::Shared),
        Some(Value::Text(text)) if text == "shared" => Ok(Freshness::Shared),
        Some(Value::Text(text)) if text == "strict" => Ok(Freshness::Strict),
        Some(_) => Err(Wrong::request("freshness must be \"shared\" or \"strict\"")),
    }
}

fn posture(posture: Option<&Value<'_>>) -> Result<bool, Wrong> {
    match posture {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(asked)) => Ok(*asked),
        Some(_) => Err(Wrong::request("posture must be true or false")),
    }
}

pub(super) fn env_as_object<S: Serializer>(
    env: &[(String, String)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(env.len()))?;
    for (key, value) in env {
        map.serialize_entry(key, value)?;
    }
    map.end()
}
