//! Where sandboxes may run besides this server's own engine: `[providers]`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProvidersConfig {
    pub docker: DockerConfig,
}

/// Containers of a Docker engine on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DockerConfig {
    /// Whether callers may have sandboxes there.
    pub enabled: bool,
    /// The engine's socket. Whoever starts the server must have the right to it.
    pub socket: PathBuf,
    /// The image of a sandbox there for which the caller names none. Without one such a caller is
    /// refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

impl Default for DockerConfig {
    fn default() -> Self {
        Self { enabled: false, socket: PathBuf::from("/run/docker.sock"), image: None }
    }
}

impl ProvidersConfig {
    /// Says what makes no sense.
    pub(super) fn problem(&self) -> Option<String> {
        let is_wrong = !self.docker.socket.is_absolute();
        is_wrong.then(|| "providers.docker.socket must be an absolute path".to_owned())
    }

    /// Returns the socket of the engine, if there is to be one.
    pub fn engine(&self) -> Option<PathBuf> {
        self.docker.enabled.then(|| self.docker.socket.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_to_an_engine_that_was_not_enabled() {
        let mut config = ProvidersConfig::default();
        assert_eq!((config.engine(), config.problem()), (None, None));
        config.docker.enabled = true;
        assert_eq!(config.engine(), Some(PathBuf::from("/run/docker.sock")));
        config.docker.socket = PathBuf::from("docker.sock");
        assert!(config.problem().is_some());
    }
}
