//! Sandboxes as LangSmith's clients ask for them, in our own words.

use std::{collections::BTreeMap, time::Duration};

use api::{
    boxes::{CreateBox, UpdateBox},
    errors::ErrorCode,
    langsmith::RunConfig,
};
use model::{
    adjustment::{Adjustment, IdleRule},
    ids::Alias,
    spec::{Idle, KeepStopped, Resources, RunAs, SandboxSpec, Suspend, Variables},
    units::ByteSize,
};
use serde_json::Value;

use crate::{http::problem::ApiError, keys::random_hex};

/// After so much time without use a sandbox is stopped, if nobody says.
const IDLE: Duration = Duration::from_mins(10);

/// Times are in whole minutes, and not longer than ten years.
const MINUTE: u64 = 60;
const LONGEST: u64 = 10 * 365 * 24 * 3600;

/// Refuses a value, and says of which field.
pub(super) fn wrong(field: &'static str, message: &str) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, format!("{field}: {message}")).at(field)
}

/// Refuses what cannot be had on this server.
fn cannot(message: &'static str) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, message).with_kind("SandboxConfig")
}

/// Returns the name of a new sandbox; one that nobody has, if none is asked for.
pub(super) fn name(asked: Option<&str>) -> Result<Alias, ApiError> {
    match asked.filter(|name| !name.is_empty()) {
        Some(name) => alias(name),
        None => alias(&format!("box-{}", random_hex(8)?)),
    }
}

fn alias(name: &str) -> Result<Alias, ApiError> {
    name.parse::<Alias>().map_err(|error| wrong("name", &error.to_string()))
}

/// Returns the name of what a new sandbox is made from.
pub(super) fn source(asked: &CreateBox, usual: Option<&str>) -> Result<String, ApiError> {
    let named = [&asked.snapshot_id, &asked.snapshot, &asked.snapshot_name, &asked.template_name];
    let mut named = named.into_iter().flatten().filter(|name| !name.is_empty());
    let first = named.next().map(String::as_str);
    if named.any(|other| Some(other.as_str()) != first) {
        return Err(wrong("snapshot", "it is named twice, and not the same"));
    }
    let from = first.or(usual).filter(|from| !from.is_empty());
    from.map(str::to_owned).ok_or_else(|| {
        cannot("name a snapshot or an image as snapshot, or have the operator set sessions.image")
    })
}

/// Returns what a new sandbox is made of, but for its image.
pub(super) fn spec(asked: &CreateBox, by: String) -> Result<SandboxSpec, ApiError> {
    refuse_what_cannot_be_had(asked)?;
    let RunConfig { user, work_dir, env_vars } = asked.run_config.clone().unwrap_or_default();
    let mut env = env_vars.unwrap_or_default();
    env.extend(asked.env_vars.clone().unwrap_or_default());
    let idle = match asked.idle_ttl_seconds {
        None => IdleRule::After(stopping(IDLE)),
        Some(seconds) => idle(seconds)?,
    };
    Ok(SandboxSpec {
        labels: labels(asked.labels.clone())?,
        env,
        run: run(user, work_dir)?,
        resources: Resources {
            millicores: millicores(asked)?,
            memory: size("mem_bytes", asked.mem_bytes)?,
            disk: size("fs_capacity_bytes", asked.fs_capacity_bytes)?,
            processes: None,
        },
        idle: match idle {
            IdleRule::Never => None,
            IdleRule::After(idle) => Some(idle),
        },
        keep_stopped: asked.delete_after_stop_seconds.map(keep_stopped).transpose()?,
        created_by: Some(by),
        ..SandboxSpec::default()
    })
}

fn refuse_what_cannot_be_had(asked: &CreateBox) -> Result<(), ApiError> {
    let rows = [
        (asks(asked.proxy_config.as_ref()), "proxy_config: sandboxes have no network"),
        (asks(asked.mount_config.as_ref()), "mount_config: nothing can be mounted here"),
        (
            asks(asked.access_delegation.as_ref()),
            "access_delegation: this server can give no access to another",
        ),
        (asked.volumes.as_ref().is_some_and(|it| !it.is_empty()), "volumes: there are none here"),
        (
            asked.tag_value_ids.as_ref().is_some_and(|it| !it.is_empty()),
            "tag_value_ids: use labels instead",
        ),
        (asked.persistent == Some(false), "persistent: files are kept when a sandbox is stopped"),
        (
            asked.preserve_memory_on_stop == Some(true),
            "preserve_memory_on_stop: processes end when a sandbox is stopped",
        ),
        (asked.restore_memory == Some(true), "restore_memory: snapshots here have no memory"),
    ];
    match rows.into_iter().find(|(is_asked, _)| *is_asked) {
        Some((_, message)) => Err(cannot(message)),
        None => Ok(()),
    }
}

/// Tells whether something is asked for that is not empty, at any depth: `{"rules": []}` asks for nothing.
/// What is no object is not empty, but wrong.
fn asks(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::Object(fields)) => !fields.values().all(is_empty),
        Some(_) => true,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Array(items) => items.iter().all(is_empty),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Returns what is to be changed of a sandbox.
pub(super) fn adjustment(asked: UpdateBox, by: String) -> Result<Adjustment, ApiError> {
    if asks(asked.proxy_config.as_ref()) {
        return Err(cannot("proxy_config: sandboxes have no network"));
    }
    let sizes = [asked.cpu_millicores, asked.mem_bytes, asked.fs_capacity_bytes];
    if asked.vcpus.is_some() || sizes.into_iter().any(|size| size.is_some()) {
        return Err(cannot("the size of a sandbox is set when it is created"));
    }
    if asked.tag_value_ids.is_some_and(|ids| !ids.is_empty()) {
        return Err(cannot("tag_value_ids: use labels instead"));
    }
    let RunConfig { user, work_dir, env_vars } = asked.run_config.unwrap_or_default();
    let RunAs { user, directory } = run(user, work_dir)?;
    Ok(Adjustment {
        name: asked.name.as_deref().map(alias).transpose()?,
        idle: asked.idle_ttl_seconds.map(idle).transpose()?,
        keep_stopped: asked.delete_after_stop_seconds.map(keep_stopped).transpose()?,
        user,
        directory,
        env: env_vars.unwrap_or_default(),
        by: Some(by),
    })
}

fn ttl(field: &'static str, seconds: u64) -> Result<Duration, ApiError> {
    if seconds.is_multiple_of(MINUTE) && seconds <= LONGEST {
        return Ok(Duration::from_secs(seconds));
    }
    Err(wrong(field, "must be a multiple of 60, from 0 to 315360000"))
}

fn stopping(after: Duration) -> Idle {
    Idle { after, then: Suspend::Stop }
}

fn idle(seconds: u64) -> Result<IdleRule, ApiError> {
    let after = ttl("idle_ttl_seconds", seconds)?;
    Ok(if after.is_zero() { IdleRule::Never } else { IdleRule::After(stopping(after)) })
}

fn keep_stopped(seconds: u64) -> Result<KeepStopped, ApiError> {
    let kept = ttl("delete_after_stop_seconds", seconds)?;
    Ok(if kept.is_zero() { KeepStopped::Forever } else { KeepStopped::For(kept) })
}

pub(super) fn run(user: Option<String>, folder: Option<String>) -> Result<RunAs, ApiError> {
    let user = user.filter(|user| !user.is_empty());
    let directory = folder.filter(|folder| !folder.is_empty());
    if directory.as_ref().is_some_and(|folder| !folder.starts_with('/')) {
        return Err(wrong("run_config", "work_dir must be an absolute path"));
    }
    Ok(RunAs { user, directory })
}

pub(super) fn labels(asked: Option<Variables>) -> Result<BTreeMap<String, String>, ApiError> {
    let labels = asked.unwrap_or_default();
    let is_good = |(name, value): (&String, &String)| {
        let has_zero = name.contains('\0') || value.contains('\0');
        !has_zero && !name.contains('=') && (1..=255).contains(&name.len()) && value.len() <= 1024
    };
    if labels.len() > 64 || !labels.iter().all(is_good) {
        let text = "at most 64, each with a name of 1 to 255 bytes without =, and up to 1024 more";
        return Err(wrong("labels", text));
    }
    Ok(labels)
}

pub(super) fn size(field: &'static str, asked: Option<u64>) -> Result<Option<ByteSize>, ApiError> {
    match asked {
        None => Ok(None),
        // More than a signed number holds is nobody's disk or memory.
        Some(bytes) if bytes > 0 && i64::try_from(bytes).is_ok() => {
            Ok(Some(ByteSize::bytes(bytes)))
        }
        Some(_) => Err(wrong(field, "must be a number of bytes above 0")),
    }
}

fn millicores(asked: &CreateBox) -> Result<Option<u64>, ApiError> {
    match (asked.cpu_millicores, asked.vcpus) {
        (None, None) => Ok(None),
        (Some(millicores), _) if (1..=1_024_000).contains(&millicores) => Ok(Some(millicores)),
        (Some(_), _) => Err(wrong("cpu_millicores", "must be 1 to 1024000")),
        (None, Some(cpus)) if (0.001..=1024.0).contains(&cpus) => {
            let millis = Duration::try_from_secs_f64(cpus).map_or(0, |time| time.as_millis());
            Ok(u64::try_from(millis).ok())
        }
        (None, Some(_)) => Err(wrong("vcpus", "must be more than 0 and at most 1024")),
    }
}

/// Returns how long the caller waits.
pub(super) fn within(asked: Option<f64>, usual: Duration) -> Result<Duration, ApiError> {
    match asked {
        None => Ok(usual),
        Some(seconds) => Duration::try_from_secs_f64(seconds)
            .map_err(|_not_a_time| wrong("timeout", "must be a number of seconds")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_not_empty_is_asked_for() {
        for empty in [json!(null), json!({}), json!({"rules": []}), json!({"a": {"b": [{}, ""]}})] {
            assert!(!asks(Some(&empty)), "{empty}");
        }
        for full in
            [json!({"rules": [1]}), json!([]), json!(""), json!(false), json!({"a": {"b": 0}})]
        {
            assert!(asks(Some(&full)), "{full}");
        }
    }
}
