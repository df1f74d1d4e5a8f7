//! `config_yaml`: what a sandbox is made of, as people write it.

use std::collections::BTreeMap;

use api::agbox::{MAX_CONFIG_BYTES, v1};
use serde::Deserialize;
use serde_saphyr::{DuplicateKeyPolicy, Error, Options};

use super::{invalid::Invalid, units};

const FIELD: &str = "config_yaml";

/// Reads a configuration. Empty bytes are an empty one.
pub(crate) fn read(bytes: &[u8]) -> Result<v1::CreateSpec, Invalid> {
    if bytes.len() > MAX_CONFIG_BYTES {
        return Err(Invalid::new(FIELD, format!("must be at most {MAX_CONFIG_BYTES} bytes")));
    }
    let text =
        std::str::from_utf8(bytes).map_err(|_not_text| Invalid::new(FIELD, "must be UTF-8"))?;
    let file: Option<File> =
        serde_saphyr::from_str_with_options(text, options()).map_err(|error| refuse(&error))?;
    file.unwrap_or_default().into_spec()
}

/// Bounds on what a small text can make of itself. No configuration needs a tenth of these.
fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            // One more than there may be: the second is refused as such, and not as too much.
            max_documents: 2,
            max_depth: 16,
            flow_nesting_limit: 16,
            max_nodes: 100_000,
            max_events: 300_000,
            max_anchors: 100,
            max_aliases: 1000,
            max_merge_keys: 100,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
            max_replay_stack_depth: 8,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        // A piece of the text in a message could be a secret of the user's.
        with_snippet: false,
    }
}

/// Says what is wrong and where, without repeating a value.
fn refuse(error: &Error) -> Invalid {
    let place = error.location().map_or_else(String::new, |place| {
        format!(" (line {}, column {})", place.line(), place.column())
    });
    Invalid::new(FIELD, format!("{}{place}", problem(error)))
}

fn problem(error: &Error) -> String {
    match error.without_snippet() {
        Error::AliasError { error, .. } => problem(error),
        Error::SerdeUnknownField { field, expected, .. } => {
            format!("unknown key {field:?}; the keys here are {}", expected.join(", "))
        }
        Error::SerdeMissingField { field, .. } => format!("the key {field:?} is missing"),
        Error::DuplicateMappingKey { key, .. } => match key {
            Some(key) => format!("the key {key:?} is there twice"),
            None => "a key is there twice".to_owned(),
        },
        Error::Budget { .. } => "is too deep, too large or refers to itself too often".to_owned(),
        Error::MultipleDocuments { .. } => "must be one document".to_owned(),
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            format!("a value is not {expected}")
        }
        _ => "is not the YAML that is expected here".to_owned(),
    }
}

/// Every key may be there without a value, which is the same as if it were not there.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    image: Option<String>,
    mounts: Option<Vec<Mount>>,
    copies: Option<Vec<Copy>>,
    ports: Option<Vec<Port>>,
    builtin_tools: Option<Vec<String>>,
    /// By name, and so in the order of names.
    companion_containers: Option<BTreeMap<String, Option<Companion>>>,
    labels: Option<Texts>,
    envs: Option<Texts>,
    idle_ttl: Option<String>,
    command: Option<Vec<String>>,
    cpu_limit: Option<String>,
    memory_limit: Option<String>,
    disk_limit: Option<String>,
    gpus: Option<String>,
}

type Texts = BTreeMap<String, Option<String>>;

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Mount {
    source: Option<String>,
    target: Option<String>,
    writable: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Copy {
    source: Option<String>,
    target: Option<String>,
    exclude_patterns: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "these are the keys of the contract")]
struct Port {
    container_port: Option<u32>,
    host_port: Option<u32>,
    protocol: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Companion {
    image: Option<String>,
    envs: Option<Texts>,
    healthcheck: Option<Healthcheck>,
    post_start_on_primary: Option<Vec<String>>,
    command: Option<Vec<String>>,
    cpu_limit: Option<String>,
    memory_limit: Option<String>,
    disk_limit: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Healthcheck {
    test: Option<Vec<String>>,
    interval: Option<String>,
    timeout: Option<String>,
    retries: Option<u32>,
    start_period: Option<String>,
    start_interval: Option<String>,
}

impl File {
    fn into_spec(self) -> Result<v1::CreateSpec, Invalid> {
        Ok(v1::CreateSpec {
            image: self.image.unwrap_or_default(),
            mounts: self.mounts.into_iter().flatten().map(Mount::into_spec).collect(),
            copies: self.copies.into_iter().flatten().map(Copy::into_spec).collect(),
            builtin_tools: self.builtin_tools.unwrap_or_default(),
            companion_containers: self
                .companion_containers
                .into_iter()
                .flatten()
                .map(|(name, companion)| companion.unwrap_or_default().into_spec(name))
                .collect::<Result<_, _>>()?,
            labels: texts(self.labels),
            envs: texts(self.envs),
            idle_ttl: duration(self.idle_ttl, "idle_ttl")?,
            ports: (0..)
                .zip(self.ports.into_iter().flatten())
                .map(|(place, port): (usize, Port)| port.into_spec(place))
                .collect::<Result<_, _>>()?,
            command: command(self.command, "command")?,
            cpu_limit: self.cpu_limit.unwrap_or_default(),
            memory_limit: self.memory_limit.unwrap_or_default(),
            disk_limit: self.disk_limit.unwrap_or_default(),
            gpus: self.gpus.unwrap_or_default(),
        })
    }
}

impl Mount {
    fn into_spec(self) -> v1::MountSpec {
        v1::MountSpec {
            source: self.source.unwrap_or_default(),
            target: self.target.unwrap_or_default(),
            writable: self.writable.unwrap_or_default(),
        }
    }
}

impl Copy {
    fn into_spec(self) -> v1::CopySpec {
        v1::CopySpec {
            source: self.source.unwrap_or_default(),
            target: self.target.unwrap_or_default(),
            exclude_patterns: self.exclude_patterns.unwrap_or_default(),
        }
    }
}

impl Port {
    fn into_spec(self, place: usize) -> Result<v1::PortMapping, Invalid> {
        let protocol = self.protocol.unwrap_or_default().to_ascii_lowercase();
        let protocol = match protocol.as_str() {
            "" | "tcp" => v1::PortProtocol::Tcp,
            "udp" => v1::PortProtocol::Udp,
            "sctp" => v1::PortProtocol::Sctp,
            _ => return Err(at(&format!("ports[{place}].protocol"), "must be tcp, udp or sctp")),
        };
        Ok(v1::PortMapping {
            container_port: self.container_port.unwrap_or_default(),
            host_port: self.host_port.unwrap_or_default(),
            protocol: protocol.into(),
        })
    }
}

impl Companion {
    fn into_spec(self, name: String) -> Result<v1::CompanionContainerSpec, Invalid> {
        let path = format!("companion_containers.{name}");
        let healthcheck = self.healthcheck.map(|it| it.into_spec(&path)).transpose()?;
        Ok(v1::CompanionContainerSpec {
            name,
            image: self.image.unwrap_or_default(),
            envs: texts(self.envs),
            healthcheck,
            post_start_on_primary: self.post_start_on_primary.unwrap_or_default(),
            command: command(self.command, &format!("{path}.command"))?,
            cpu_limit: self.cpu_limit.unwrap_or_default(),
            memory_limit: self.memory_limit.unwrap_or_default(),
            disk_limit: self.disk_limit.unwrap_or_default(),
        })
    }
}

impl Healthcheck {
    fn into_spec(self, path: &str) -> Result<v1::HealthcheckConfig, Invalid> {
        let time = |text, key: &str| duration(text, &format!("{path}.healthcheck.{key}"));
        Ok(v1::HealthcheckConfig {
            test: self.test.unwrap_or_default(),
            interval: time(self.interval, "interval")?,
            timeout: time(self.timeout, "timeout")?,
            retries: self.retries.unwrap_or_default(),
            start_period: time(self.start_period, "start_period")?,
            start_interval: time(self.start_interval, "start_interval")?,
        })
    }
}

fn at(path: &str, problem: &str) -> Invalid {
    Invalid::new(format!("{FIELD}.{path}"), problem)
}

fn texts(texts: Option<Texts>) -> BTreeMap<String, String> {
    let texts = texts.into_iter().flatten();
    texts.map(|(name, value)| (name, value.unwrap_or_default())).collect()
}

fn duration(text: Option<String>, path: &str) -> Result<Option<prost_types::Duration>, Invalid> {
    let Some(text) = text else { return Ok(None) };
    let read = units::duration(&text);
    read.map(Some).ok_or_else(|| at(path, "must be a duration such as \"90s\" or \"1m30s\""))
}

/// An empty list is a mistake: who wants no command of his own leaves the key out.
fn command(command: Option<Vec<String>>, path: &str) -> Result<Vec<String>, Invalid> {
    match command {
        Some(command) if command.is_empty() => {
            Err(at(path, "must not be empty; leave it out for the image's own"))
        }
        other => Ok(other.unwrap_or_default()),
    }
}

/// Reads any bytes, for fuzzing: they are a configuration or are refused in words.
pub fn fuzz_one(bytes: &[u8]) {
    if let Err(refused) = read(bytes) {
        assert!(!refused.problem.is_empty(), "a refusal says nothing");
    }
}

#[cfg(test)]
mod tests;
