//! A registry of a few lines, which can lie, and Debian's, which does not.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on is red")]

use std::{
    io::{BufRead as _, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use images::{
    digest::Digest,
    pull::connector::{ConnectFailure, Connected, Connector, Target},
};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::imaging::{Built, INDEX, MANIFEST};

/// Connects to whatever a pull asks for, without looking where it leads.
pub fn unchecked_connector() -> Connector {
    Arc::new(|Target { host, port, .. }| {
        Box::pin(async move {
            let connected = tokio::net::TcpStream::connect((host.as_str(), port)).await;
            let failed = |error: std::io::Error| ConnectFailure::Unreachable(error.to_string());
            Ok(Connected { stream: connected.map_err(failed)?, gets_credentials: true })
        })
    })
}

/// What a client asked for.
#[derive(Debug, Clone)]
pub struct Asked {
    pub path: String,
    pub head: String,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<String> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    }
}

type Answering = dyn Fn(&Asked) -> Vec<u8> + Send + Sync;

/// Answers each request by a function and then closes the connection.
#[derive(Debug)]
pub struct Fake {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Fake {
    /// The thread ends with the process: a listener that nobody connects to costs nothing.
    pub fn start(answer: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::start_with(None, answer)
    }

    pub fn start_with(
        tls: Option<Arc<ServerConfig>>,
        answer: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        let answer: Arc<Answering> = Arc::new(answer);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (answer, log, tls) = (answer.clone(), log.clone(), tls.clone());
                thread::spawn(move || match tls {
                    None => serve(stream, &*answer, &log),
                    Some(tls) => {
                        let connection = ServerConnection::new(tls).unwrap();
                        serve(StreamOwned::new(connection, stream), &*answer, &log);
                    }
                });
            }
        });
        Self { address, asked }
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub fn count(&self, part: &str) -> usize {
        self.asked().iter().filter(|it| it.path.contains(part)).count()
    }
}

fn serve(mut stream: impl Read + Write, answer: &Answering, log: &Mutex<Vec<Asked>>) {
    let mut reader = BufReader::new(&mut stream);
    let (mut head, mut line) = (String::new(), String::new());
    while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
        head.push_str(&std::mem::take(&mut line));
    }
    if head.is_empty() {
        // A client that did not like the certificate.
        return;
    }
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let asked = Asked { path, head };
    log.lock().unwrap().push(asked.clone());
    // A client that went away is no concern here.
    drop(stream.write_all(&answer(&asked)));
}

pub fn reply(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

pub fn ok(body: &[u8]) -> Vec<u8> {
    reply("200 OK", "", body)
}

pub fn missing() -> Vec<u8> {
    reply("404 Not Found", "", b"")
}

/// Answers as an honest registry with one image would.
pub fn honest(built: &Built, asked: &Asked) -> Vec<u8> {
    let Some(last) = asked.path.rsplit('/').next() else { return missing() };
    if last == "latest" || last == Digest::of(&built.manifest).to_string() {
        return reply("200 OK", &format!("Content-Type: {MANIFEST}\r\n"), &built.manifest);
    }
    let mut blobs = built.layers.iter().chain([&built.config]);
    blobs.find(|it| Digest::of(it).to_string() == last).map_or_else(missing, |blob| ok(blob))
}

/// Debian's registry on a port of its own. It dies with the test.
#[derive(Debug)]
pub struct Real {
    child: Child,
    pub address: String,
}

impl Real {
    pub fn start(folder: &Path, more: &str) -> Self {
        let config = folder.join("config.yml");
        let storage = folder.join("storage");
        let text = format!(
            "version: 0.1\nlog:\n  level: info\nstorage:\n  filesystem:\n    rootdirectory: {}\n\
             http:\n  addr: 127.0.0.1:0\n{more}",
            storage.display()
        );
        std::fs::write(&config, text).unwrap();
        // The kernel kills it when the thread of the test ends, however it ends.
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "docker-registry", "serve"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("setpriv runs");
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut seen = Vec::new();
        let ready = lines.find_map(|line| {
            let address = line.split_once("listening on ").map(|(_, rest)| rest.to_owned());
            seen.push(line);
            address
        });
        let ready = ready.unwrap_or_else(|| {
            panic!("docker-registry (Debian's package) did not start: {seen:#?}")
        });
        let address = ready.split(['"', ',', ' ']).next().unwrap_or_default().to_owned();
        // Somebody must read what it says, or it would wait for that.
        thread::spawn(move || lines.count());
        Self { child, address }
    }

    pub fn push(&self, repository: &str, tag: &str, built: &Built) {
        for blob in built.layers.iter().chain([&built.config]) {
            self.push_blob(repository, blob);
        }
        self.push_manifest(repository, tag, MANIFEST, &built.manifest);
    }

    fn push_blob(&self, repository: &str, blob: &[u8]) {
        let (head, _) = self.send("POST", &format!("/v2/{repository}/blobs/uploads/"), "", b"");
        let location = head.lines().find_map(|line| line.strip_prefix("Location: ")).unwrap();
        let path = location.split_once(&self.address).map_or(location, |(_, path)| path);
        let path = format!("{path}&digest={}", Digest::of(blob));
        let (head, _) = self.send("PUT", &path, "application/octet-stream", blob);
        assert!(head.starts_with("HTTP/1.1 201"), "{head}");
    }

    pub fn push_manifest(&self, repository: &str, tag: &str, kind: &str, manifest: &[u8]) {
        assert!([MANIFEST, INDEX].contains(&kind));
        let path = format!("/v2/{repository}/manifests/{tag}");
        let (head, body) = self.send("PUT", &path, kind, manifest);
        assert!(head.starts_with("HTTP/1.1 201"), "{head}{body}");
    }

    fn send(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        // "user:secret word", which a registry without accounts does not look at.
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
             Authorization: Basic dXNlcjpzZWNyZXQgd29yZA==\r\nConnection: close\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).replace("\r\n", "\n");
        let (head, body) = answer.split_once("\n\n").unwrap();
        (head.to_owned(), body.to_owned())
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
