//! Sandboxes as LangSmith's clients ask for them, in our own words.

use std::time::Duration;

use api::{errors::ErrorCode, langsmith::CreateBox};
use model::{
    ids::Alias,
    spec::{Idle, Resources, SandboxSpec, Suspend},
    units::ByteSize,
};

use crate::{http::problem::ApiError, keys::random_hex};

/// After so much time without use a sandbox is stopped, if nobody says.
const IDLE: Duration = Duration::from_mins(10);

fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, message.into())
}

/// Returns the name of a new sandbox; one that nobody has, if none is asked for.
pub(super) fn name(asked: Option<&str>) -> Result<Alias, ApiError> {
    let name = match asked {
        Some(name) => name.to_owned(),
        None => format!("box-{}", random_hex(8)?),
    };
    name.parse::<Alias>().map_err(|error| invalid(format!("name: {error}")))
}

/// Returns what a new sandbox is made of.
pub(super) fn spec(asked: &CreateBox, image: Option<&str>) -> Result<SandboxSpec, ApiError> {
    let named = [&asked.snapshot_name, &asked.snapshot, &asked.snapshot_id, &asked.template_name];
    let image = named.into_iter().flatten().next().map(String::as_str).or(image);
    let image = image.filter(|image| !image.is_empty()).ok_or_else(|| {
        let message = "name an image as snapshot_name, or have the operator set sessions.image";
        invalid(message).with_kind("SandboxConfig")
    })?;
    let mut env = asked.run_config.clone().and_then(|config| config.env_vars).unwrap_or_default();
    env.extend(asked.env_vars.clone().unwrap_or_default());
    let idle = match asked.idle_ttl_seconds {
        Some(0) => None,
        Some(seconds) => Some(Duration::from_secs(seconds)),
        None => Some(IDLE),
    };
    Ok(SandboxSpec {
        image: image.to_owned(),
        labels: asked.labels.clone().unwrap_or_default(),
        env,
        resources: Resources {
            millicores: millicores(asked)?,
            memory: asked.mem_bytes.map(ByteSize::bytes),
            disk: asked.fs_capacity_bytes.map(ByteSize::bytes),
        },
        idle: idle.map(|after| Idle { after, then: Suspend::Stop }),
        ..SandboxSpec::default()
    })
}

fn millicores(asked: &CreateBox) -> Result<Option<u64>, ApiError> {
    match (asked.cpu_millicores, asked.vcpus) {
        (Some(millicores), _) => Ok(Some(millicores)),
        (None, None) => Ok(None),
        (None, Some(cpus)) if (0.001..=1024.0).contains(&cpus) => {
            let micros = Duration::try_from_secs_f64(cpus).map_or(0, |time| time.as_millis());
            Ok(u64::try_from(micros).ok())
        }
        (None, Some(_)) => Err(invalid("vcpus must be more than 0 and at most 1024")),
    }
}

/// Returns how long the caller waits.
pub(super) fn within(asked: Option<f64>, usual: Duration) -> Result<Duration, ApiError> {
    match asked {
        None => Ok(usual),
        Some(seconds) => Duration::try_from_secs_f64(seconds)
            .map_err(|error| invalid(format!("timeout: {error}"))),
    }
}
