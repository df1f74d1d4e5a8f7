//! The row about shells: how long a key takes to show, while a thousand shells are open.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use client::sandboxes::record::Sandbox;
use futures_util::{SinkExt as _, StreamExt as _, TryStreamExt as _, future::try_join_all, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    net::{TcpSocket, TcpStream},
    select,
    time::{Instant, sleep_until},
};
use tokio_tungstenite::{WebSocketStream, client_async, tungstenite::Message};

use crate::{
    dataplane::Door,
    lasting::{AT_ONCE, make_many, remove_all},
    report::{Bar, Row},
    server::Server,
};

/// Shells that are open, each in a sandbox of its own: a thousand people, each with theirs.
const SHELLS: usize = 1000;
/// Every so-manieth of them is typed in.
const TYPED: usize = 10;
/// How often, and how many keys.
const EVERY: Duration = Duration::from_secs(1);
const KEYS: usize = 30;
/// What is typed. It is in no prompt.
const KEY: &str = "x";
/// A server takes 256 connections from one address.
const FROM_ONE_ADDRESS: usize = 250;

/// Where a shell is, and what opens it.
const PATH: &str = "/v1/shell/ws";
const SCOPE: &str = "shell";
const PROMPT: &str = "ready>";

fn start() -> Value {
    json!({
        "type": "start",
        "command": ["/bin/bash", "--norc", "--noprofile", "-i"],
        "env": {"PS1": PROMPT, "TERM": "dumb"},
    })
}

pub(crate) async fn measure(name: &str, ringfence: &Path) -> anyhow::Result<Row> {
    let server = Server::start(ringfence)?;
    let row = type_in_many(name, &server).await;
    remove_all(&server).await?;
    row
}

async fn type_in_many(name: &str, server: &Server) -> anyhow::Result<Row> {
    let there = make_many(&server.sandboxes().await?, SHELLS).await?;
    let open = |(index, sandbox)| Shell::open(server, sandbox, index);
    let shells: Vec<Shell> = stream::iter(there.iter().enumerate())
        .map(open)
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    server.settle().await?;
    let mut row = Row::new(&format!("{name}, {SHELLS} open"), "–", Bar::P99Within(20.0));
    let begin = Instant::now() + EVERY;
    let end = begin + EVERY * u32::try_from(KEYS + 1)?;
    let mut due = (0..).map(|index| begin + EVERY * index / u32::try_from(SHELLS).unwrap_or(1));
    let live = |(index, shell): (usize, Shell)| {
        let first = due.next().filter(|_| index % TYPED == 0);
        shell.live(first, end)
    };
    for times in try_join_all(shells.into_iter().enumerate().map(live)).await? {
        for time in times {
            row.ours.add(time);
        }
    }
    Ok(row)
}

struct Shell {
    socket: WebSocketStream<TcpStream>,
}

#[derive(Debug, Deserialize)]
struct Frame {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    data: String,
}

impl Shell {
    /// Opens a shell and waits until it asks for a command.
    async fn open(server: &Server, sandbox: &Sandbox, index: usize) -> anyhow::Result<Self> {
        let door = Door::to(server, sandbox, SCOPE).await?;
        let address = u8::try_from(index / FROM_ONE_ADDRESS + 1)?;
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, address), 0)))?;
        let stream = socket.connect(door.address).await?;
        stream.set_nodelay(true)?;
        let (socket, _) = client_async(door.request(PATH)?, stream).await?;
        let mut shell = Self { socket };
        shell.send(&start()).await?;
        let mut shown = String::new();
        while !shown.contains(PROMPT) {
            shown.push_str(&shell.output().await?);
        }
        Ok(shell)
    }

    /// Types a key a second from then on, if it is to be typed in, and returns how long each took to
    /// show. Until the end it listens, as one does who types nothing.
    async fn live(mut self, first: Option<Instant>, end: Instant) -> anyhow::Result<Vec<Duration>> {
        let (mut due, mut times) = (first, Vec::new());
        while let Some(at) = due {
            select! {
                shown = self.output() => bail!("it shows {:?} by itself", shown?),
                () = sleep_until(at) => times.push(self.key().await?),
            }
            due = Some(at + EVERY).filter(|_| times.len() < KEYS);
        }
        select! {
            shown = self.output() => bail!("it shows {:?} by itself", shown?),
            () = sleep_until(end) => Ok(times),
        }
    }

    async fn key(&mut self) -> anyhow::Result<Duration> {
        let start = Instant::now();
        self.send(&json!({"type": "stdin", "data": KEY})).await?;
        let shown = self.output().await?;
        let took = start.elapsed();
        ensure!(shown == KEY, "it shows {shown:?}");
        Ok(took)
    }

    async fn send(&mut self, frame: &Value) -> anyhow::Result<()> {
        self.socket.send(Message::text(frame.to_string())).await?;
        Ok(())
    }

    /// Waits for what it shows. Pings are answered meanwhile.
    async fn output(&mut self) -> anyhow::Result<String> {
        loop {
            match self.socket.next().await.context("the server closed the connection")?? {
                Message::Text(text) => {
                    let frame: Frame = serde_json::from_str(&text)?;
                    match frame.kind.as_str() {
                        "ready" => {}
                        "stdout" | "screen" => return Ok(frame.data),
                        _ => bail!("{text}"),
                    }
                }
                Message::Close(reason) => bail!("the server closed the connection: {reason:?}"),
                Message::Ping(_) | Message::Pong(_) | Message::Binary(_) | Message::Frame(_) => {}
            }
        }
    }
}
