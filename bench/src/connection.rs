//! A WebSocket to the server, with as little in between as there can be.

use std::{
    collections::HashMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use api::fathom::{
    AskedLimits, ClientFrame, Execute, Freshness, Ping, VERSION, server::ServerFrame,
};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        client::IntoClientRequest as _,
        http::{HeaderValue, header::AUTHORIZATION},
    },
};

#[derive(Debug)]
pub(crate) struct Connection {
    socket: WebSocketStream<TcpStream>,
    executions: u64,
}

/// How an execution went.
#[derive(Debug)]
pub(crate) struct Done {
    /// From before the `execute` frame was sent until the `result` frame was there.
    pub(crate) elapsed: Duration,
    pub(crate) stdout: String,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr, key: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut request = format!("ws://{address}/ws").into_client_request()?;
        request
            .headers_mut()
            .insert(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {key}"))?);
        let (socket, _) = tokio_tungstenite::client_async(request, stream).await?;
        Ok(Self { socket, executions: 0 })
    }

    /// Runs code in a fresh environment; anything but success is an error.
    pub(crate) async fn execute(&mut self, language: &str, code: &str) -> anyhow::Result<Done> {
        let frame = self.execute_frame(language, code)?;
        let mut stdout = String::new();
        let start = Instant::now();
        self.socket.send(frame).await?;
        loop {
            let text = self.receive().await?;
            match serde_json::from_str(&text)? {
                ServerFrame::Stdout(output) => stdout.push_str(&output.data),
                ServerFrame::Result(result) => {
                    let elapsed = start.elapsed();
                    if result.exit_code != Some(0) {
                        bail!("{language} ended with {result:?}");
                    }
                    return Ok(Done { elapsed, stdout });
                }
                ServerFrame::Error(error) => bail!("{}: {}", error.code, error.message),
                ServerFrame::Stderr(output) => bail!("{language} complains: {}", output.data),
                ServerFrame::Ack(_) | ServerFrame::Status(_) | ServerFrame::Pong(_) => {}
            }
        }
    }

    /// Runs code and times it; it has to print a one.
    pub(crate) async fn time(&mut self, language: &str, code: &str) -> anyhow::Result<Duration> {
        let done = self.execute(language, code).await?;
        if done.stdout != "1\n" {
            bail!("{language} printed {:?}", done.stdout);
        }
        Ok(done.elapsed)
    }

    /// Offers many executions at once and waits until all have ended. Returns how those went that
    /// did not print a one and exit with zero.
    pub(crate) async fn offer(
        &mut self,
        count: u32,
        language: &str,
        code: &str,
    ) -> anyhow::Result<Vec<String>> {
        for _ in 0..count {
            let frame = self.execute_frame(language, code)?;
            self.socket.feed(frame).await?;
        }
        self.socket.flush().await?;
        let (mut ended, mut failures) = (0, Vec::new());
        let mut outputs: HashMap<String, String> = HashMap::new();
        while ended < count {
            let text = self.receive().await?;
            match serde_json::from_str(&text)? {
                ServerFrame::Stdout(output) | ServerFrame::Stderr(output) => {
                    outputs.entry(output.id.into_owned()).or_default().push_str(&output.data);
                }
                ServerFrame::Result(result) => {
                    ended += 1;
                    let output = outputs.remove(&*result.id).unwrap_or_default();
                    if result.exit_code != Some(0) || output != "1\n" {
                        failures.push(format!("printed {output:?}, {text}"));
                    }
                }
                ServerFrame::Error(_) => {
                    ended += 1;
                    failures.push(text);
                }
                ServerFrame::Ack(_) | ServerFrame::Status(_) | ServerFrame::Pong(_) => {}
            }
        }
        Ok(failures)
    }

    /// Asks for a sign of life until nothing runs.
    pub(crate) async fn quiet(&mut self) -> anyhow::Result<()> {
        loop {
            let ping = ClientFrame::Ping(Ping { v: VERSION, ts: stamp() });
            self.socket.send(Message::text(serde_json::to_string(&ping)?)).await?;
            let text = self.receive().await?;
            match serde_json::from_str(&text)? {
                ServerFrame::Pong(pong) => {
                    if pong.load.is_none_or(|load| load.active_executions == 0) {
                        return Ok(());
                    }
                }
                other => bail!("not a pong: {other:?}"),
            }
        }
    }

    async fn receive(&mut self) -> anyhow::Result<String> {
        loop {
            match self.socket.next().await.context("the server closed the connection")?? {
                Message::Text(text) => return Ok(text.as_str().to_owned()),
                Message::Close(reason) => bail!("the server closed the connection: {reason:?}"),
                Message::Ping(_) | Message::Pong(_) | Message::Binary(_) | Message::Frame(_) => {}
            }
        }
    }

    fn execute_frame(&mut self, language: &str, code: &str) -> anyhow::Result<Message> {
        self.executions += 1;
        let frame = ClientFrame::Execute(Execute {
            v: VERSION,
            id: format!("exec_{}", self.executions),
            ts: stamp(),
            language: language.to_owned(),
            code: code.to_owned(),
            stdin: None,
            env: Vec::new(),
            limits: AskedLimits {
                timeout_ms: 60_000,
                memory_mb: 256,
                cpu_shares: None,
                max_output_bytes: None,
                processes: None,
                disk_mb: None,
                inodes: None,
            },
            freshness: Freshness::Shared,
            posture: false,
        });
        Ok(Message::text(serde_json::to_string(&frame)?))
    }
}

fn stamp() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}
