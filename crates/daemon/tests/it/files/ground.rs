//! A server with one sandbox, and whoever may use all of its files.

use std::time::Duration;

use model::{
    event::Sequence,
    exec::ExecState,
    ids::{SandboxId, Tenant},
    life::Phase,
    sandbox::WhenStopped,
    spec::{ExecSpec, SandboxSpec},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::sandboxed::Sandboxed;

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_mins(1);

pub(super) struct Ground {
    pub(super) sandboxed: Sandboxed,
    pub(super) id: SandboxId,
    token: String,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Reply {
    fn read(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("no head");
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head, body: bytes[end + 4..].to_vec() }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// Returns status and error code.
    pub(super) fn problem(&self) -> (u16, String) {
        (self.status, self.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
    }
}

fn tenant() -> Tenant {
    "default".parse().unwrap()
}

impl Ground {
    pub(super) async fn start() -> Self {
        let sandboxed = Sandboxed::start().await;
        let spec = SandboxSpec { image: "host".to_owned(), ..SandboxSpec::default() };
        let id = sandboxed.sandboxes.create(&tenant(), None, spec).await.unwrap().id;
        let name = id.as_str();
        let mut events = sandboxed.sandboxes.events(&tenant(), name, Sequence::ZERO).await.unwrap();
        while sandboxed.sandboxes.get(&tenant(), name).await.unwrap().life.phase != Phase::Active {
            timeout(PATIENCE, events.next()).await.expect("no event in time").unwrap();
        }
        let mut ground = Self { sandboxed, id, token: String::new() };
        ground.token = ground.token("fs:rw", None).await;
        ground
    }

    pub(super) async fn token(&self, scope: &str, folder: Option<&str>) -> String {
        let daemon = self.sandboxed.daemon();
        let mut asked = json!({"sandbox": self.id.as_str(), "scope": scope});
        if let Some(folder) = folder {
            asked["paths"] = json!([folder]);
        }
        let bearer = format!("Bearer {}", daemon.key);
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
        let minted = daemon.ask("POST", "/v1/admin/tokens", &headers, &asked.to_string()).await;
        minted.json()["token"].as_str().unwrap().to_owned()
    }

    /// Writes the head of a request; returns the connection.
    pub(super) async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        token: &str,
    ) -> TcpStream {
        let headers: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let address = self.sandboxed.daemon().address;
        let head = format!(
            "{method} /dp/{}{path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
             Connection: close\r\n{headers}\r\n",
            self.id
        );
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    }

    async fn exchange(
        &self,
        token: &str,
        (method, path): (&str, &str),
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        let length = body.len().to_string();
        let mut all = headers.to_vec();
        all.push(("Content-Length", &length));
        let mut stream = self.request(method, path, &all, token).await;
        // It may have been answered before everything was sent.
        let _ = stream.write_all(body).await;
        rest(&mut stream).await
    }

    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        self.exchange(&self.token, (method, path), headers, body).await
    }

    pub(super) async fn with(&self, token: &str, method: &str, path: &str, body: &[u8]) -> Reply {
        let headers = [("Content-Type", "application/json")];
        self.exchange(token, (method, path), &headers, body).await
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> Reply {
        let headers = [("Content-Type", "application/json")];
        self.send("POST", path, &headers, body.to_string().as_bytes()).await
    }

    pub(super) async fn read(&self, path: &str) -> String {
        let reply = self.send("GET", &format!("/files{path}"), &[], b"").await;
        assert_eq!(reply.status, 200, "{path} {reply:?}");
        String::from_utf8(reply.body).unwrap()
    }

    /// Opens a request whose body, or whose answer, is sent piece by piece.
    pub(super) async fn open(&self, path: &str, headers: &[(&str, &str)]) -> Opened {
        let stream = self.request("GET", path, headers, &self.token).await;
        Opened { stream, read: Vec::new() }
    }

    pub(super) async fn begin(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> TcpStream {
        self.request(method, path, headers, &self.token).await
    }

    /// Runs a script in the sandbox to its end.
    pub(super) async fn run(&self, script: &str) -> String {
        let sandboxes = &self.sandboxed.sandboxes;
        let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        let spec = ExecSpec { command, ..ExecSpec::default() };
        let name = self.id.as_str();
        let tenant = tenant();
        let started = sandboxes.start_exec(&tenant, name, None, spec, WhenStopped::Refuse);
        let started = started.await.unwrap();
        let mut events = sandboxes.events(&tenant, name, Sequence::ZERO).await.unwrap();
        loop {
            let now = sandboxes.exec(&tenant, &started.exec.id).await.unwrap();
            if let ExecState::Ended(_) = now.exec.life.state {
                return std::fs::read_to_string(started.stdout).unwrap();
            }
            timeout(PATIENCE, events.next()).await.expect("no event in time").unwrap();
        }
    }
}

/// Reads the rest of an answer, to the end of the connection.
pub(super) async fn rest(stream: &mut TcpStream) -> Reply {
    let mut bytes = Vec::new();
    // A connection that is cut ends here, too.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("no end in time");
    Reply::read(&bytes)
}

/// An answer that goes on.
pub(super) struct Opened {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Opened {
    /// Reads until this was said.
    pub(super) async fn until(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.read).contains(text) {
            let mut buffer = [0; 4096];
            let got = timeout(PATIENCE, self.stream.read(&mut buffer)).await;
            let got = got.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&self.read)));
            let got = got.unwrap();
            assert_ne!(got, 0, "{}", String::from_utf8_lossy(&self.read));
            self.read.extend_from_slice(&buffer[..got]);
        }
    }
}
