//! What an image says about how it is to be run.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::digest::Digest;

/// An image's own description, as it stands in its configuration blob.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    #[serde(deserialize_with = "or_empty")]
    pub architecture: String,
    #[serde(deserialize_with = "or_empty")]
    pub os: String,
    #[serde(deserialize_with = "or_empty")]
    pub config: Run,
    #[serde(deserialize_with = "or_empty")]
    pub rootfs: RootFs,
}

/// The defaults for processes of the image.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Run {
    #[serde(deserialize_with = "or_empty")]
    pub user: String,
    /// `NAME=value`, in the image's order.
    #[serde(deserialize_with = "or_empty")]
    pub env: Vec<String>,
    #[serde(deserialize_with = "or_empty")]
    pub entrypoint: Vec<String>,
    #[serde(deserialize_with = "or_empty")]
    pub cmd: Vec<String>,
    #[serde(deserialize_with = "or_empty")]
    pub working_dir: String,
    /// `80/tcp` and the like.
    #[serde(deserialize_with = "keys")]
    pub exposed_ports: Vec<String>,
    #[serde(deserialize_with = "keys")]
    pub volumes: Vec<String>,
    #[serde(deserialize_with = "or_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_empty")]
    pub stop_signal: String,
    pub healthcheck: Option<Healthcheck>,
}

/// How an image wants to be asked for its health. Times are in nanoseconds, 0 is "not said".
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Healthcheck {
    /// `["NONE"]`, `["CMD", …]` or `["CMD-SHELL", command]`.
    #[serde(deserialize_with = "or_empty")]
    pub test: Vec<String>,
    pub interval: i64,
    pub timeout: i64,
    pub start_period: i64,
    pub start_interval: i64,
    pub retries: i64,
}

/// The layers, lowest first, by the digest of their uncompressed archive.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RootFs {
    #[serde(rename = "type", deserialize_with = "or_empty")]
    pub kind: String,
    #[serde(deserialize_with = "or_empty")]
    pub diff_ids: Vec<Digest>,
}

/// Builders write `null` for what is empty.
fn or_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Sets are written as objects with empty objects in them; ours are read back from lists.
fn keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Set {
        Object(BTreeMap<String, serde_json::Value>),
        List(Vec<String>),
    }
    Ok(match Option::deserialize(deserializer)? {
        Some(Set::Object(set)) => set.into_keys().collect(),
        Some(Set::List(list)) => list,
        None => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_as_builders_write_it() {
        let text = r#"{
            "architecture": "amd64", "os": "linux", "created": "2026-01-01T00:00:00Z",
            "config": {
                "User": "1000:1000", "Env": ["PATH=/bin", "A=b=c"], "Entrypoint": null,
                "Cmd": ["sh", "-c", "x"], "WorkingDir": "/srv", "Labels": {"a": "b"},
                "ExposedPorts": {"80/tcp": {}, "53/udp": {}}, "Volumes": null,
                "Healthcheck": {"Test": ["CMD-SHELL", "true"], "Interval": 5000000000, "Retries": 3},
                "StopSignal": "SIGTERM", "ArgsEscaped": true
            },
            "rootfs": {"type": "layers", "diff_ids": null},
            "history": []
        }"#;
        let read: Config = serde_json::from_str(text).unwrap();
        let run = Run {
            user: "1000:1000".into(),
            env: vec!["PATH=/bin".into(), "A=b=c".into()],
            entrypoint: vec![],
            cmd: vec!["sh".into(), "-c".into(), "x".into()],
            working_dir: "/srv".into(),
            exposed_ports: vec!["53/udp".into(), "80/tcp".into()],
            volumes: vec![],
            labels: BTreeMap::from([("a".into(), "b".into())]),
            stop_signal: "SIGTERM".into(),
            healthcheck: Some(Healthcheck {
                test: vec!["CMD-SHELL".into(), "true".into()],
                interval: 5_000_000_000,
                retries: 3,
                ..Healthcheck::default()
            }),
        };
        assert_eq!(read.config, run);
        assert_eq!(read.rootfs, RootFs { kind: "layers".into(), diff_ids: vec![] });
        let again: Config = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
        assert_eq!(again, read);
    }

    #[test]
    fn an_empty_configuration_is_one() {
        assert_eq!(serde_json::from_str::<Config>("{}").unwrap(), Config::default());
        assert_eq!(
            serde_json::from_str::<Config>(r#"{"config":null}"#).unwrap(),
            Config::default()
        );
    }
}
