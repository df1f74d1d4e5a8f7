//! The row `create`: from the request for a sandbox until the first byte of a command in it is with the
//! client, over HTTP and a WebSocket, with as little in between as there can be. And `ensure-again`: the same
//! request by another actor, who gets the sandbox that is there and a new token.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::FileExt as _,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use client::sandboxes::Sandboxes;
use serde_json::{Value, json};

use crate::{
    dataplane::Door,
    lasting,
    peers::Peer,
    program::Program,
    report::{Bar, Row},
    server::Server,
};

pub(crate) async fn row(name: &str, server: &Server) -> anyhow::Result<Row> {
    const SAMPLES: usize = 100;
    const WARM_UP: usize = 5;
    let bar = Bar::AtMostAndP99(1.15, 3.0);
    let shell = Program::new(["/bin/sh", "-c", "echo 1"]);
    let mut peer = match Peer::set_up("bubblewrap", &shell) {
        Ok(peer) => peer,
        Err(error) => return Ok(Row::new(name, "bubblewrap", bar).missing(format!("{error:#}"))),
    };
    let mut row = Row::new(name, &format!("{} sh -c", peer.version), bar);
    let sandboxes = server.sandboxes().await?;
    let mut calls = Calls::open(server)?;
    for sample in 0..WARM_UP + SAMPLES {
        server.settle().await?;
        let ours = once(server, &mut calls, &sandboxes, sample).await?;
        server.settle().await?;
        let theirs = peer.time()?;
        if sample >= WARM_UP {
            row.ours.add(ours);
            row.theirs.add(theirs);
        }
    }
    Ok(row)
}

/// Asks for the sandbox of a thread by another actor each time, so that each answer has a new token, which is on
/// disk before the answer. In turn with it, as much is written to the disk.
pub(crate) async fn again(name: &str, server: &Server) -> anyhow::Result<Row> {
    const SAMPLES: usize = 500;
    const WARM_UP: usize = 20;
    let mut row = Row::new(name, "12 KiB on disk", Bar::AtMost(4.0));
    let by = |sample| json!({"type": "agent", "id": format!("agent-{sample}")});
    let asked = |sample| json!({"thread_id": "bench-again", "mode": "ensure", "actor": by(sample)});
    let mut calls = Calls::open(server)?;
    let sandbox = calls.post("/v1/sandbox/sessions", &asked(0))?["sandbox"]["id"].take();
    let mut disk = Disk::open()?;
    server.settle().await?;
    for sample in 1..=WARM_UP + SAMPLES {
        let asked = asked(sample);
        let start = Instant::now();
        let session = calls.post("/v1/sandbox/sessions", &asked)?;
        let ours = start.elapsed();
        ensure!(session["sandbox"]["id"] == sandbox, "it is another sandbox");
        let start = Instant::now();
        disk.keep()?;
        let theirs = start.elapsed();
        if sample > WARM_UP {
            row.ours.add(ours);
            row.theirs.add(theirs);
        }
    }
    Ok(row)
}

/// A file that is written to as the log of a store is: what is there is overwritten, and then it is on disk. It is where
/// the data of the server is.
struct Disk {
    file: File,
    at: u64,
}

impl Disk {
    const SIZE: usize = 4 << 20;
    /// What one token makes a store write: three pages.
    const PIECE: usize = 12 << 10;

    fn open() -> anyhow::Result<Self> {
        let mut file = tempfile::tempfile()?;
        file.write_all(&vec![1; Self::SIZE])?;
        file.sync_all()?;
        Ok(Self { file, at: 0 })
    }

    fn keep(&mut self) -> anyhow::Result<()> {
        self.file.write_all_at(&[2; Self::PIECE], self.at)?;
        self.at = (self.at + u64::try_from(Self::PIECE)?) % (u64::try_from(Self::SIZE)? / 2);
        Ok(self.file.sync_data()?)
    }
}

async fn once(
    server: &Server,
    calls: &mut Calls,
    sandboxes: &Sandboxes,
    number: usize,
) -> anyhow::Result<Duration> {
    let thread = format!("bench-{number}");
    let start = Instant::now();
    let asked = json!({"thread_id": thread, "mode": "ensure"});
    let session = calls.post("/v1/sandbox/sessions", &asked)?;
    let id = session["sandbox"]["id"].as_str().context("no id")?;
    let token = session["token"].as_str().context("no token")?;
    let mut watch = Door::with(server, id, token).watch()?;
    watch.start(json!({"command": ["/bin/echo", "1"]}))?;
    let said = watch.first()?;
    let took = start.elapsed();
    ensure!(said == 2, "it said {said} bytes");
    watch.finish(|_| ())?;
    lasting::remove(sandboxes, sandboxes.get(id).await?).await?;
    Ok(took)
}

/// One connection, on which one request is made after the other.
struct Calls {
    stream: BufReader<TcpStream>,
    host: String,
    key: String,
}

impl Calls {
    fn open(server: &Server) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(server.address())?;
        stream.set_nodelay(true)?;
        let (host, key) = (server.address().to_string(), server.key().to_owned());
        Ok(Self { stream: BufReader::new(stream), host, key })
    }

    fn post(&mut self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let (host, key, body) = (&self.host, &self.key, body.to_string());
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nX-Api-Key: {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> anyhow::Result<Value> {
        let (mut status, mut length) = (String::new(), 0);
        self.stream.read_line(&mut status)?;
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            let Some((name, value)) = line.trim().split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        ensure!(status.starts_with("HTTP/1.1 20"), "{status}{}", String::from_utf8_lossy(&body));
        Ok(serde_json::from_slice(&body)?)
    }
}
