//! The row about files: one gibibyte out of a sandbox and into it, over HTTP on loopback.

use std::{
    fs,
    io::Write as _,
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use client::sandboxes::{NewExec, Sandboxes, record::Sandbox};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::sleep,
};

use crate::{
    lasting::{of_host, until},
    report::{Bar, Row},
    server::Server,
};

const SIZE: usize = 1 << 30;
const PIECE: usize = 1 << 20;
const SAMPLES: usize = 10;
const MEBIBYTES: u32 = 1024;
const BAR: Bar = Bar::Throughput(0.6);

pub(crate) async fn measure(name: &str, server: &Server) -> anyhow::Result<Vec<Row>> {
    let sandboxes = server.sandboxes().await?;
    let sandbox = sandboxes.create(of_host()).await?;
    let mut events = sandboxes.events(&sandbox.name, sandbox.sequence);
    until(&mut events, "SANDBOX_READY").await?;
    let (token, base) = server.token(&sandbox.name, "fs:rw").await?;
    let path = format!("{base}/files/workspace/large");
    let head = |method: &str, more: &str| {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{more}\r\n"
        )
    };
    let mut upload = Row::new(&format!("{name}, upload"), "dd conv=fsync in the sandbox", BAR);
    let length = format!("Content-Length: {SIZE}\r\n");
    for sample in 0..=SAMPLES {
        let ours = send(server.address(), &head("PUT", &length)).await?;
        let theirs = dd(&sandboxes, &sandbox).await?;
        if sample > 0 {
            upload.ours.add_rate(MEBIBYTES, ours);
            upload.theirs.add_rate(MEBIBYTES, theirs);
        }
    }
    let download = format!("{name}, download");
    let mut download = match Nginx::start().await {
        Err(error) => Row::new(&download, "nginx", BAR).missing(format!("{error:#}")),
        Ok(nginx) => {
            let mut row = Row::new(&download, "nginx, the same file", BAR);
            for sample in 0..=SAMPLES {
                let ours = receive(server.address(), &head("GET", "")).await?;
                let request = "GET /large HTTP/1.1\r\nHost: bench\r\n\r\n";
                let theirs = receive(nginx.address, request).await?;
                if sample > 0 {
                    row.ours.add_rate(MEBIBYTES, ours);
                    row.theirs.add_rate(MEBIBYTES, theirs);
                }
            }
            row
        }
    };
    if download.ours.is_empty() {
        for _ in 0..SAMPLES {
            let took = receive(server.address(), &head("GET", "")).await?;
            download.ours.add_rate(MEBIBYTES, took);
        }
    }
    Ok(vec![download, upload])
}

/// Sends a file, and waits until it is said to be on disk.
async fn send(address: SocketAddr, head: &str) -> anyhow::Result<Duration> {
    let mut stream = TcpStream::connect(address).await?;
    let piece = vec![7_u8; PIECE];
    let start = Instant::now();
    stream.write_all(head.as_bytes()).await?;
    for _ in 0..SIZE / PIECE {
        stream.write_all(&piece).await?;
    }
    let mut answer = vec![0; 4096];
    let read = stream.read(&mut answer).await?;
    let took = start.elapsed();
    let answer = String::from_utf8_lossy(answer.get(..read).unwrap_or_default()).into_owned();
    ensure!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    Ok(took)
}

/// Receives a file.
async fn receive(address: SocketAddr, head: &str) -> anyhow::Result<Duration> {
    let mut stream = TcpStream::connect(address).await?;
    let mut buffer = vec![0; PIECE];
    let start = Instant::now();
    stream.write_all(head.as_bytes()).await?;
    let mut got = 0;
    while got < SIZE {
        let read = stream.read(&mut buffer).await?;
        ensure!(read > 0, "only {got} bytes came");
        got += read;
    }
    Ok(start.elapsed())
}

/// Writes the same to the same disk.
async fn dd(sandboxes: &Sandboxes, sandbox: &Sandbox) -> anyhow::Result<Duration> {
    let script = "dd if=/dev/zero of=/workspace/dd bs=1M count=1024 conv=fsync 2>/dev/null && rm /workspace/dd";
    let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let now = sandboxes.get(&sandbox.name).await?;
    let mut events = sandboxes.events(&sandbox.name, now.sequence);
    let start = Instant::now();
    let exec = NewExec { sandbox: sandbox.name.clone(), command, ..NewExec::default() };
    sandboxes.exec(exec).await?;
    until(&mut events, "EXEC_FINISHED").await?;
    Ok(start.elapsed())
}

/// An nginx that serves one file.
struct Nginx {
    address: SocketAddr,
    child: Child,
    _folder: TempDir,
}

impl Nginx {
    async fn start() -> anyhow::Result<Self> {
        let program = nginx()?;
        let folder = tempfile::tempdir()?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut file = fs::File::create(folder.path().join("large"))?;
        let piece = vec![7_u8; PIECE];
        for _ in 0..SIZE / PIECE {
            file.write_all(&piece)?;
        }
        let here = folder.path().display();
        let conf = format!(
            "daemon off; master_process off; pid {here}/pid; error_log {here}/log;\n\
             events {{}}\nhttp {{ access_log off; sendfile on; tcp_nopush on; root {here};\n\
             server {{ listen {address}; }} }}\n"
        );
        fs::write(folder.path().join("nginx.conf"), conf)?;
        let mut command = Command::new(program);
        command.arg("-p").arg(folder.path()).arg("-c").arg(folder.path().join("nginx.conf"));
        let child = command.stderr(Stdio::null()).spawn()?;
        let nginx = Self { address, child, _folder: folder };
        for _ in 0..200 {
            if std::net::TcpStream::connect(address).is_ok() {
                return Ok(nginx);
            }
            sleep(Duration::from_millis(10)).await;
        }
        bail!("nginx does not listen")
    }
}

fn nginx() -> anyhow::Result<&'static Path> {
    let places = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"];
    let found = places.map(Path::new).into_iter().find(|path| path.exists());
    found.context("it is not installed")
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
