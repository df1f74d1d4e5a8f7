//! A sandbox with a server in it, and a token for its ports.

use std::time::Duration;

use model::{
    event::Sequence,
    ids::{SandboxId, Tenant},
    life::Phase,
    sandbox::WhenStopped,
    spec::{ExecSpec, SandboxSpec},
};
use serde_json::json;
use tokio::time::timeout;

use crate::{
    sandboxed::Sandboxed,
    support::{Answer, PATIENCE},
};

pub(crate) const PORT: u16 = 8000;

/// Answers with what it was asked; takes a WebSocket and says its bytes again.
const SERVER: &str = r#"
import base64, hashlib, socketserver, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        if self.headers.get("Upgrade") == "websocket":
            key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
            self.send_header("Sec-WebSocket-Accept", accept if self.path != "/wrong" else "x")
            self.end_headers()
            self.wfile.flush()
            for heard in iter(lambda: self.rfile.read1(65536), b""):
                self.wfile.write(heard)
                self.wfile.flush()
            self.close_connection = True
            return
        if self.path.startswith("/silent"):
            time.sleep(1000)
        body = b""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while True:
                size = int(self.rfile.readline(), 16)
                body += self.rfile.read(size)
                self.rfile.readline()
                if size == 0:
                    break
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        lines = [self.requestline] + [f"{k.lower()}: {v}" for k, v in self.headers.items()]
        text = "\n".join(lines).encode() + b"\n\n" + body
        self.send_response(302 if self.path.startswith("/moved") else 200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Set-Cookie", "mine=1; Domain=localhost; Path=/")
        self.send_header("Content-Security-Policy", "default-src 'self'")
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Service-Worker-Allowed", "/")
        self.send_header("Clear-Site-Data", '"*"')
        self.send_header("X-App", "yes")
        if self.path.startswith("/moved"):
            self.send_header("Location", self.path.split("?", 1)[1])
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)
    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = do_FROB = answer
    def log_message(self, *arguments):
        pass

ThreadingHTTPServer.request_queue_size = 512
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

pub(crate) struct Served {
    pub(crate) sandboxed: Sandboxed,
    pub(crate) sandbox: SandboxId,
    pub(crate) token: String,
}

pub(crate) fn tenant() -> Tenant {
    "default".parse().unwrap()
}

impl Served {
    pub(crate) async fn start() -> Self {
        Self::over(Sandboxed::start().await).await
    }

    pub(crate) async fn over(sandboxed: Sandboxed) -> Self {
        let sandbox = sandbox(&sandboxed).await;
        let token = token(&sandboxed, &sandbox, "ports").await;
        Self { sandboxed, sandbox, token }
    }

    /// Ends the server in order.
    pub(crate) async fn end(mut self) {
        self.sandboxed.daemon.take().unwrap().stop().await;
    }

    /// Sends a request to a path inside, with the token.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let bearer = format!("Bearer {}", self.token);
        let mut all = vec![("Authorization", bearer.as_str())];
        all.extend_from_slice(headers);
        let path = format!("/dp/{}/ports/{PORT}{path}", self.sandbox);
        self.sandboxed.daemon().ask(method, &path, &all, body).await
    }
}

/// Makes a sandbox whose own command is the server.
pub(crate) async fn sandbox(sandboxed: &Sandboxed) -> SandboxId {
    let command = ["/usr/bin/python3", "-c", SERVER, &PORT.to_string()].map(str::to_owned);
    serving(sandboxed, command.to_vec(), PORT).await
}

/// Makes a sandbox, and waits until its own command listens.
pub(crate) async fn serving(sandboxed: &Sandboxed, command: Vec<String>, port: u16) -> SandboxId {
    let spec = SandboxSpec { image: "host".to_owned(), command, ..SandboxSpec::default() };
    let id = sandboxed.sandboxes.create(&tenant(), None, spec).await.unwrap().id;
    until_ready(sandboxed, &id).await;
    let script = format!("until grep -q :{port:04X} /proc/net/tcp /proc/net/tcp6; do :; done");
    run(sandboxed, &id, &script).await;
    id
}

async fn until_ready(sandboxed: &Sandboxed, id: &SandboxId) {
    let all = &sandboxed.sandboxes;
    let mut events = all.events(&tenant(), id.as_str(), Sequence::ZERO).await.unwrap();
    while all.get(&tenant(), id.as_str()).await.unwrap().life.phase != Phase::Active {
        timeout(PATIENCE, events.next()).await.expect("no event in time").unwrap();
    }
}

/// Runs a command in a sandbox to its end.
pub(crate) async fn run(sandboxed: &Sandboxed, id: &SandboxId, script: &str) {
    let all = &sandboxed.sandboxes;
    let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let spec = ExecSpec { command, ..ExecSpec::default() };
    let refuse = WhenStopped::Refuse;
    let started = all.start_exec(&tenant(), id.as_str(), None, spec, refuse).await.unwrap();
    let mut events = all.events(&tenant(), id.as_str(), Sequence::ZERO).await.unwrap();
    while !all.exec(&tenant(), &started.exec.id).await.unwrap().exec.life.state.is_terminal() {
        timeout(PATIENCE, events.next()).await.expect("no event in time").unwrap();
    }
}

/// Gets a token with this scope for ten minutes.
pub(crate) async fn token(sandboxed: &Sandboxed, id: &SandboxId, scope: &str) -> String {
    let daemon = sandboxed.daemon();
    let bearer = format!("Bearer {}", daemon.key);
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let seconds = Duration::from_mins(10).as_secs();
    let body = json!({"sandbox": id.as_str(), "scope": scope, "ttl_seconds": seconds});
    let answer = daemon.ask("POST", "/v1/admin/tokens", &headers, &body.to_string()).await;
    answer.json()["token"].as_str().unwrap().to_owned()
}
