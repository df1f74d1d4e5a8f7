//! A daemon to test, and plain HTTP to talk to it.

use std::{net::SocketAddr, time::Duration};

use daemon::{
    auth::Keyring,
    executor::Executor,
    grpc::Lifecycle,
    keys::{self, NewKey, Secret},
    serve::{Settings, serve},
    ws::health::Timing,
};
use engine::tasks::Tasks;
use model::{
    actor::{Actor, ActorKind},
    policy::Policy,
};
use store::{Store, keys::Role};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    time::timeout,
};

use crate::scripted::Scripted;

/// Nothing in these tests takes this long unless it is broken, also on a slow and busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A running daemon. Ends with the test's runtime.
pub(crate) struct Daemon {
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
    /// What that key is called.
    pub(crate) key_id: String,
    pub(crate) keyring: Keyring,
    pub(crate) scripted: Scripted,
    stop: oneshot::Sender<()>,
    serving: Tasks,
    data: TempDir,
}

/// Makes a key for somebody of a tenant; returns its secret.
pub(crate) async fn key(
    daemon: &Daemon,
    tenant: &str,
    role: Role,
    (kind, id): (ActorKind, &str),
) -> String {
    let actor = Actor { kind, id: id.to_owned() };
    let named = NewKey::named("somebody", role).unwrap();
    let new = NewKey { tenant: tenant.to_owned(), actor, ..named };
    let secret = Secret::random().unwrap();
    daemon.keyring.create(new, &secret).await.unwrap();
    secret.reveal().to_owned()
}

/// Settings whose times are short enough to wait for, where everybody comes to their end, and long enough
/// for a slow machine, where somebody is to be served before it.
pub(crate) fn settings() -> Settings {
    Settings {
        grace: Duration::from_millis(200),
        drain: Duration::from_secs(2),
        timing: Timing { tick: Duration::from_millis(20), ..Timing::default() },
        ..Settings::default()
    }
}

/// The same for those who do not read, and are to be given up soon.
pub(crate) fn hasty() -> Settings {
    let mut settings = settings();
    settings.timing.progress_within = Duration::from_millis(300);
    settings
}

impl Daemon {
    /// Starts a daemon whose executions follow scripts.
    pub(crate) async fn start() -> Self {
        Self::start_with(settings()).await
    }

    pub(crate) async fn start_with(settings: Settings) -> Self {
        let scripted = Scripted::default();
        let executor = scripted.executor();
        Self::start_on(executor, scripted, settings).await
    }

    pub(crate) async fn start_on(
        executor: impl Into<Executor>,
        scripted: Scripted,
        settings: Settings,
    ) -> Self {
        Self::start_all(executor, Lifecycle::default(), scripted, settings).await
    }

    pub(crate) async fn start_all(
        executor: impl Into<Executor>,
        lifecycle: Lifecycle,
        scripted: Scripted,
        settings: Settings,
    ) -> Self {
        let data = tempfile::tempdir().unwrap();
        let store = Store::open(&data.path().join("s.db")).unwrap();
        let keyring = Keyring::open(store).await.unwrap();
        Self::start_over(keyring, data, (executor.into(), lifecycle), scripted, settings).await
    }

    /// Starts a daemon whose executions follow scripts, under this policy.
    pub(crate) async fn start_under(policy: Policy) -> Self {
        let data = tempfile::tempdir().unwrap();
        let store = Store::open(&data.path().join("s.db")).unwrap();
        let keyring = Keyring::open_with(store, policy).await.unwrap();
        let scripted = Scripted::default();
        let with = (scripted.executor(), Lifecycle::default());
        Self::start_over(keyring, data, with, scripted, settings()).await
    }

    /// Starts a daemon with these keys.
    pub(crate) async fn start_over(
        keyring: Keyring,
        data: TempDir,
        (executor, lifecycle): (Executor, Lifecycle),
        scripted: Scripted,
        settings: Settings,
    ) -> Self {
        keys::ensure_admin(&keyring, data.path()).await.unwrap();
        let made = keys::read_secret(&keys::admin_key_file(data.path())).unwrap();
        let (secret, key_id) = if let Some(secret) = made {
            (secret, keyring.list().await.unwrap().remove(0).id.0)
        } else {
            // Another server on the same store has made the first.
            let secret = Secret::random().unwrap();
            let new = NewKey::named("admin", Role::Admin).unwrap();
            let key = keyring.create(new, &secret).await.unwrap();
            (secret, key.id.0)
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = Tasks::default();
        let ring = keyring.clone();
        serving.start("daemon", async move {
            let stopped = async move { drop(stopped.await) };
            serve(listener, executor, ring, lifecycle, settings, stopped).await;
        });
        let key = Secret::reveal(&secret).to_owned();
        Self { address, key, key_id, keyring, scripted, stop, serving, data }
    }

    /// Returns where its store is.
    pub(crate) fn store(&self) -> std::path::PathBuf {
        self.data.path().join("s.db")
    }

    /// Asks the daemon to stop; the answer is there when it has.
    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        timeout(PATIENCE, self.serving.join()).await.unwrap();
    }

    /// Starts to stop the daemon and hands back what waits for the end.
    pub(crate) fn begin_stop(self) -> impl Future<Output = ()> {
        self.stop.send(()).unwrap();
        let (serving, data) = (self.serving, self.data);
        async move {
            timeout(PATIENCE, serving.join()).await.unwrap();
            drop(data);
        }
    }

    /// Sends a request with these headers and this body; returns the answer.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let headers: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{headers}Content-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            self.address,
            body.len()
        );
        raw(self.address, text.as_bytes()).await
    }
}

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Returns status and error code.
    pub(crate) fn problem(&self) -> (u16, String) {
        let problem = self.json();
        assert!(problem["error"]["request_id"].as_str().unwrap().starts_with("req_"), "{problem}");
        assert!(problem["error"]["retryable"].is_boolean(), "{problem}");
        (self.status, problem["error"]["code"].as_str().unwrap().to_owned())
    }
}

/// Sends bytes and reads one answer: the whole of it, or the head of a 101.
pub(crate) async fn raw(address: SocketAddr, bytes: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = timeout(PATIENCE, stream.read(&mut buffer)).await.unwrap().unwrap_or(0);
        answer.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8(answer.clone()).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            assert_ne!(count, 0, "{text}");
            continue;
        };
        let head = head.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.parse().unwrap());
        let body = if head.contains("\r\ntransfer-encoding: chunked") {
            joined(body)
        } else {
            (count == 0 || body.len() >= length).then(|| body.to_owned())
        };
        if let Some(body) = body {
            let status = head.split(' ').nth(1).unwrap().parse().unwrap();
            return Answer { status, head, body };
        }
        assert_ne!(count, 0, "{text}");
    }
}

/// Returns the content of a body in chunks, once its last one is there.
fn joined(mut chunks: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (length, rest) = chunks.split_once("\r\n")?;
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return rest.ends_with("\r\n").then_some(body);
        }
        body.push_str(rest.get(..length)?);
        chunks = rest.get(length + 2..)?;
    }
}
