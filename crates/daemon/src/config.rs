//! One configuration: defaults, then a file, then the environment, then flags.

mod audit;
mod first;
mod images;
mod languages;
mod layers;
mod policy;
mod providers;
mod sandboxes;
mod units;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use api::fathom::MAX_MESSAGE_BYTES;
use engine::{PoolIdle, languages::Languages};
use model::{
    admission::Capacity,
    execution::Freshness,
    lease::Terms,
    limits::{FixedLimits, LimitPolicy},
    policy::Policy,
    units::ByteSize,
};
use serde::{Deserialize, Serialize};

pub use audit::AuditConfig;
pub use images::{ImagesConfig, RegistryConfig};
pub use languages::{AddedLanguage, AddedLanguages};
pub use layers::{ConfigError, Sources, load};
pub use policy::{PolicyConfig, QuotasConfig, RoleConfig, RolesConfig};
pub use providers::{DockerConfig, ProvidersConfig};
pub use sandboxes::{EXECUTE_OUTPUT, SandboxesConfig};

use crate::{dataplane::previews, http::hosts::Host, serve::Settings};

/// Everything that can be set. Unknown names are refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where to listen. Another address than loopback needs TLS, here or by a proxy, and is refused
    /// without.
    pub listen: SocketAddr,
    /// Where state is kept.
    pub data: PathBuf,
    /// The URL that others know this server by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
    /// Whether a proxy with TLS is all that can reach this server.
    pub behind_proxy: bool,
    /// Origins of web pages that may connect, besides the server's own.
    pub allowed_origins: Vec<String>,
    /// Names, with or without a port, that requests may be for besides those that are the server's
    /// own anyway.
    pub allowed_hosts: Vec<String>,
    /// How long executions may go on after a stop was asked for.
    #[serde(with = "units::duration")]
    pub drain: Duration,
    /// Whether to start where the kernel cannot limit a slot's memory: it is then only watched.
    pub allow_soft_limits: bool,
    /// What all executions may use together, and all sandboxes together. Default: the machine's memory, less an
    /// eighth (at least 512 MiB) for the server.
    #[serde(with = "units::optional_size")]
    pub total_memory: Option<ByteSize>,
    /// What every execution gets at least: `shared` may be forked from a warm runtime, `strict`
    /// is executed anew. A request can ask for more than this, not for less.
    pub freshness: Freshness,
    /// The user that the daemon has when root starts the server: a name or a number. Without one:
    /// `ringfence` if there is such a user, else a number that nobody has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    pub tls: TlsConfig,
    pub log: Log,
    pub connections: Connections,
    pub executions: Executions,
    pub agbox: Agbox,
    pub sandboxes: SandboxesConfig,
    pub providers: ProvidersConfig,
    pub images: ImagesConfig,
    pub sessions: Sessions,
    pub policy: PolicyConfig,
    pub previews: PreviewsConfig,
    pub tokens: TokensConfig,
    pub audit: AuditConfig,
    /// Languages besides the built-in ones.
    #[serde(skip_serializing_if = "AddedLanguages::is_empty")]
    pub languages: AddedLanguages,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Which lines are written, such as `info` or `warn,daemon=debug`.
    pub filter: String,
    pub format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Connections {
    pub max: usize,
    pub max_per_peer: usize,
    /// By the Unix socket.
    pub max_socket: usize,
    /// Calls and streams that are open at once on one HTTP/2 connection.
    pub max_streams: usize,
    /// Wrong keys and tokens that one address may show in a second.
    pub wrong_per_peer: u32,
}

/// TLS on the main port: both, or neither.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// A file in PEM with the server's certificate first, and then those that lead to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// A file in PEM with its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

/// Sandboxes of those who do not say what they are made of, and of sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sessions {
    /// The image of a sandbox for which the caller names none. Without one, or if it is empty, such a
    /// caller is refused. The first start writes one down ([`Config::first_file`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// How long a sandbox is kept that nobody uses and nobody sends a heartbeat for.
    #[serde(with = "units::duration")]
    pub lease: Duration,
    /// How long a sandbox is kept at most.
    #[serde(with = "units::duration")]
    pub hard_ttl: Duration,
    /// After which time of no use a sandbox is frozen. Zero: never.
    #[serde(with = "units::duration")]
    pub idle_timeout: Duration,
    /// How long the sandbox of a released session is kept.
    #[serde(with = "units::duration")]
    pub release_grace: Duration,
}

impl Sessions {
    /// Returns how long sandboxes of sessions are kept.
    pub fn settings(&self) -> engine::sessions::Settings {
        let terms =
            Terms { lease: self.lease, hard_ttl: self.hard_ttl, release_grace: self.release_grace };
        let idle = Some(self.idle_timeout).filter(|idle| !idle.is_zero());
        engine::sessions::Settings { terms, idle }
    }
}

impl Default for Sessions {
    fn default() -> Self {
        let Terms { lease, hard_ttl, release_grace } = Terms::default();
        let idle_timeout = engine::sessions::Settings::default().idle.unwrap_or_default();
        Self { image: None, lease, hard_ttl, idle_timeout, release_grace }
    }
}

/// The lifecycle protocol over gRPC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Agbox {
    /// The path of the Unix socket. Without one: `agbox/agboxd.sock` below the runtime directory of
    /// whoever starts the server, where clients look for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// A group, by name or number, whose members may use the socket besides the server's own user
    /// and root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Paths of the host below which callers over the network may name sources of mounts, copies
    /// and images.
    pub host_paths: Vec<PathBuf>,
}

/// Servers in sandboxes, seen by browsers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PreviewsConfig {
    /// The URL below whose host each port of each sandbox has a host of its own. Without one:
    /// `http://localhost` with the server's port, unless there is a `public_url`; then none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// Tokens of sandboxes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TokensConfig {
    /// Tenants whose tokens are all opaque: texts that say nothing by themselves.
    pub opaque_tenants: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Executions {
    /// How long executions go on when their connection is lost.
    #[serde(with = "units::duration")]
    pub disconnect_grace: Duration,
    #[serde(with = "units::duration")]
    pub max_timeout: Duration,
    /// Default: what the machine has for all of them.
    #[serde(with = "units::optional_size")]
    pub max_memory: Option<ByteSize>,
    pub max_cpu_shares: u32,
    #[serde(with = "units::size")]
    pub max_output: ByteSize,
    pub max_processes: u32,
    #[serde(with = "units::size")]
    pub max_disk: ByteSize,
    pub max_inodes: u64,
    /// What an execution gets of each that does not ask.
    pub processes: u32,
    #[serde(with = "units::size")]
    pub disk: ByteSize,
    pub inodes: u64,
    /// How many may run at once, on one connection and in all.
    pub running_per_connection: usize,
    pub running: usize,
    /// How many may wait, on one connection and in all.
    pub queued_per_connection: usize,
    pub queued: usize,
    /// What code, stdin and env of all of them may take together.
    #[serde(with = "units::size")]
    pub held: ByteSize,
    /// The memory that slots may take together while they wait for requests. An eighth of the
    /// machine's, if it is not set.
    #[serde(with = "units::optional_size")]
    pub pool_memory: Option<ByteSize>,
    /// How long the waiting slots of a tenant are kept that runs nothing.
    #[serde(with = "units::duration")]
    pub pool_idle: Duration,
}

impl Default for Config {
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7700)),
            data: PathBuf::from("/var/lib/ringfence"),
            public_url: None,
            behind_proxy: false,
            tls: TlsConfig::default(),
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            drain: settings.drain,
            allow_soft_limits: false,
            total_memory: None,
            freshness: Freshness::default(),
            user: None,
            log: Log::default(),
            connections: Connections::default(),
            executions: Executions::default(),
            agbox: Agbox::default(),
            sandboxes: SandboxesConfig::default(),
            providers: ProvidersConfig::default(),
            images: ImagesConfig::default(),
            sessions: Sessions::default(),
            policy: PolicyConfig::default(),
            previews: PreviewsConfig::default(),
            tokens: TokensConfig::default(),
            audit: AuditConfig::default(),
            languages: AddedLanguages::new(),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { filter: "info".into(), format: LogFormat::Text }
    }
}

impl Default for Connections {
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            max: settings.max_connections,
            max_per_peer: settings.max_connections_per_peer,
            max_socket: settings.max_socket_connections,
            max_streams: settings.max_streams_per_connection,
            wrong_per_peer: settings.wrong_per_peer,
        }
    }
}

impl Default for Executions {
    fn default() -> Self {
        let (policy, capacity) = (LimitPolicy::default(), Capacity::default());
        Self {
            disconnect_grace: Settings::default().grace,
            max_timeout: policy.max_timeout,
            max_memory: None,
            max_cpu_shares: policy.max_cpu_shares,
            max_output: policy.max_output,
            max_processes: policy.max_fixed.processes,
            max_disk: policy.max_fixed.disk,
            max_inodes: policy.max_fixed.inodes,
            processes: policy.fixed.processes.max(threads_of_a_runtime()),
            disk: policy.fixed.disk,
            inodes: policy.fixed.inodes,
            running_per_connection: capacity.running_per_client,
            running: capacity.running,
            queued_per_connection: capacity.queued_per_client,
            queued: capacity.queued,
            held: capacity.held,
            pool_memory: None,
            pool_idle: PoolIdle::default().0,
        }
    }
}

/// Runtimes start threads for each processor. A program is to have room for its own beside them.
fn threads_of_a_runtime() -> u32 {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(processors.saturating_mul(8))
        .map_or(u32::MAX, |threads| threads.saturating_add(128))
}

/// What the server must be able to hold: the largest message, or it would be told for ever to
/// come back later.
const MIN_HELD: ByteSize = ByteSize::bytes(MAX_MESSAGE_BYTES as u64);

/// The most that `connections.max_streams` can be: each stream may hold what waits to be sent on it.
const MAX_STREAMS: usize = 65_536;

/// The longest grace period after a disconnect.
const MAX_GRACE: Duration = Duration::from_mins(5);

/// Reads a duration as it stands in the configuration: `10s`, `500ms`, `1h 30m`.
pub fn read_duration(text: &str) -> Option<Duration> {
    units::duration::read(text)
}

impl Config {
    /// Refuses what is unsafe or makes no sense, with what to do instead.
    pub fn check(&self) -> Result<(), ConfigError> {
        let refuse = |problem: String| Err(ConfigError::Unsafe { problem });
        let TlsConfig { cert, key } = &self.tls;
        if cert.is_some() != key.is_some() {
            return refuse("tls.cert and tls.key belong together: set both, or neither".into());
        }
        let ip = self.listen.ip();
        if !ip.is_loopback() && cert.is_none() && !self.behind_proxy {
            return refuse(format!(
                "listen = \"{}\" is not a loopback address, and there is no TLS: keys and code \
                 would cross the network in the clear; give a certificate and its key with \
                 --tls-cert and --tls-key, or listen on 127.0.0.1, or say --behind-proxy if a \
                 proxy with TLS is all that can reach this address",
                self.listen
            ));
        }
        if ip.is_unspecified() && self.public_url.is_none() {
            return refuse(format!(
                "listen = \"{}\" does not say where clients find the server: set public_url, such \
                 as --public-url https://sandboxes.example.com",
                self.listen
            ));
        }
        if self.executions.disconnect_grace > MAX_GRACE {
            return refuse("executions.disconnect_grace must be at most 300s".into());
        }
        if self.sessions.lease.is_zero() || self.sessions.hard_ttl.is_zero() {
            return refuse("sessions.lease and sessions.hard_ttl must be more than 0s".into());
        }
        if self.connections.max == 0 || self.executions.running == 0 {
            return refuse("connections.max and executions.running must be at least 1".into());
        }
        let Connections { max_per_peer, max_socket, max_streams, .. } = self.connections;
        if max_per_peer == 0 || max_socket == 0 || !(1..=MAX_STREAMS).contains(&max_streams) {
            return refuse(format!(
                "connections.max_per_peer and connections.max_socket must be at least 1, \
                 connections.max_streams 1 to {MAX_STREAMS}"
            ));
        }
        if self.connections.wrong_per_peer == 0 {
            return refuse("connections.wrong_per_peer must be at least 1".into());
        }
        if self.executions.held < MIN_HELD {
            return refuse(format!("executions.held must be at least {MIN_HELD}"));
        }
        if let Err(problem) = self.limit_policy().check_defaults() {
            return refuse(problem.to_string());
        }
        let problems = [
            self.sandboxes.problem(),
            self.images.problem(),
            self.providers.problem(),
            self.audit.problem(),
        ];
        if let Some(problem) = problems.into_iter().flatten().next() {
            return refuse(problem);
        }
        if let Err(problem) = self.policy.read() {
            return refuse(problem);
        }
        let mut agbox_paths = self.agbox.socket.iter().chain(&self.agbox.host_paths);
        if agbox_paths.any(|path| !path.is_absolute()) {
            return refuse("agbox.socket and agbox.host_paths must be absolute paths".into());
        }
        let origins = self.public_url.iter().chain(&self.allowed_origins);
        for origin in origins {
            if !origin.starts_with("http://") && !origin.starts_with("https://") {
                return refuse(format!("\"{origin}\" must start with http:// or https://"));
            }
        }
        if let Some(url) = self.public_url.as_ref().filter(|url| Host::of_url(url).is_none()) {
            return refuse(format!("public_url = \"{url}\" names no host that requests can name"));
        }
        if let Some(host) = self.allowed_hosts.iter().find(|host| Host::read(host).is_none()) {
            return refuse(format!(
                "allowed_hosts: \"{host}\" is no host; write it as requests do, such as \
                 \"sandboxes.example.com\" or \"localhost:8000\""
            ));
        }
        if let Some(url) = &self.previews.url
            && !previews::is_domain(url)
        {
            return refuse(format!(
                "previews.url = \"{url}\" must be http:// or https:// and the name of a host, below \
                 which every preview has a name of its own"
            ));
        }
        self.languages().map(drop)
    }

    /// Returns the languages of this machine and those that were added.
    pub fn languages(&self) -> Result<Languages, ConfigError> {
        Ok(languages::installed_and(&self.languages)?)
    }

    /// Returns what keys may do and have.
    pub fn policy(&self) -> Result<Policy, ConfigError> {
        self.policy.read().map_err(|problem| ConfigError::Unsafe { problem })
    }

    /// Returns the part that the surfaces need.
    pub fn settings(&self) -> Settings {
        Settings {
            allowed_origins: self.allowed_origins.clone(),
            allowed_hosts: self.allowed_hosts.clone(),
            public_url: self.public_url.clone(),
            grace: self.executions.disconnect_grace,
            drain: self.drain,
            max_connections: self.connections.max,
            max_connections_per_peer: self.connections.max_per_peer,
            max_socket_connections: self.connections.max_socket,
            max_streams_per_connection: self.connections.max_streams,
            wrong_per_peer: self.connections.wrong_per_peer,
            is_behind_proxy: self.behind_proxy,
            host_paths: self.agbox.host_paths.clone(),
            sessions_image: self.sessions.image.clone(),
            execute_output: self.sandboxes.execute_output,
            docker_image: self.providers.docker.image.clone(),
            previews_url: self.previews.url.clone(),
            ..Settings::default()
        }
    }

    /// Returns what the operator allows an execution at most.
    pub fn limit_policy(&self) -> LimitPolicy {
        let machine = || LimitPolicy::of_machine(engine::machine_size::of(&self.data).0).max_memory;
        LimitPolicy {
            max_timeout: self.executions.max_timeout,
            max_memory: self.executions.max_memory.unwrap_or_else(machine),
            max_cpu_shares: self.executions.max_cpu_shares,
            max_output: self.executions.max_output,
            max_fixed: FixedLimits {
                processes: self.executions.max_processes,
                disk: self.executions.max_disk,
                inodes: self.executions.max_inodes,
            },
            fixed: FixedLimits {
                processes: self.executions.processes,
                disk: self.executions.disk,
                inodes: self.executions.inodes,
            },
        }
    }

    /// Returns how many bytes all executions may use together, and all sandboxes together.
    pub fn total_memory(&self) -> u64 {
        let machine = || engine::machine_size::of(&self.data).0.memory_for_tenants();
        self.total_memory.unwrap_or_else(machine).as_bytes()
    }

    /// Returns how many executions there may be.
    pub fn capacity(&self) -> Capacity {
        Capacity {
            running_per_client: self.executions.running_per_connection,
            queued_per_client: self.executions.queued_per_connection,
            running: self.executions.running,
            queued: self.executions.queued,
            held: self.executions.held,
        }
    }

    /// Returns the folders that the daemon writes to.
    pub fn written_folders(&self) -> Vec<PathBuf> {
        let checkpoints = self.audit.checkpoints.as_deref().and_then(Path::parent);
        [self.data.as_path()].into_iter().chain(checkpoints).map(Path::to_owned).collect()
    }

    /// Returns the folder in which each sandbox has its own.
    pub fn sandboxes_folder(&self) -> PathBuf {
        self.data.join("sandboxes")
    }

    /// Returns where supervisors of containers are met, if there are to be any.
    pub fn docker_folder(&self) -> Option<PathBuf> {
        self.providers.docker.enabled.then(|| self.data.join("docker"))
    }

    /// Returns how images are had.
    pub fn image_settings(&self) -> engine::images::Settings {
        self.images.settings()
    }

    /// Returns the folder of images. It is the worker's who unpacks them.
    pub fn images_folder(&self) -> PathBuf {
        self.data.join("images")
    }

    /// Reads what [`Self::to_toml`] wrote.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(ConfigError::Reread)
    }

    /// Writes the whole configuration as TOML. There are no secrets in it.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        toml::to_string_pretty(self).map_err(ConfigError::Print)
    }
}
