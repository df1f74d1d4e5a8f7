//! The data plane of a sandbox, as a client with as little in between as there can be.

use std::{
    borrow::Cow,
    io::{BufRead as _, BufReader, Read as _},
    net::{SocketAddr, TcpStream},
};

use anyhow::{Context as _, bail, ensure};
use client::sandboxes::record::Sandbox;
use serde::Deserialize;
use serde_json::Value;
use tokio_tungstenite::tungstenite::{
    self, Message, WebSocket,
    client::IntoClientRequest as _,
    handshake::client::Request,
    http::{HeaderValue, header::AUTHORIZATION},
};

use crate::{
    lasting::{of_host, until},
    server::Server,
};

/// What is read at once, by us and by whoever is compared with us.
pub(crate) const READ: usize = 256 << 10;

/// A sandbox, and how one gets into it.
pub(crate) struct Door {
    pub(crate) address: SocketAddr,
    token: String,
    base: String,
}

impl Door {
    /// Makes a sandbox of the host's image and waits until it is ready.
    pub(crate) async fn make(server: &Server, scope: &str) -> anyhow::Result<Self> {
        let sandboxes = server.sandboxes().await?;
        let sandbox = sandboxes.create(of_host()).await?;
        let mut events = sandboxes.events(&sandbox.name, sandbox.sequence);
        until(&mut events, "SANDBOX_READY").await?;
        Self::to(server, &sandbox, scope).await
    }

    pub(crate) async fn to(
        server: &Server,
        sandbox: &Sandbox,
        scope: &str,
    ) -> anyhow::Result<Self> {
        let (token, base) = server.token(&sandbox.name, scope).await?;
        Ok(Self { address: server.address(), token, base })
    }

    /// The same for whoever was given a token already.
    pub(crate) fn with(server: &Server, sandbox: &str, token: &str) -> Self {
        let (token, base) = (token.to_owned(), format!("/dp/{sandbox}"));
        Self { address: server.address(), token, base }
    }

    /// Returns what asks for a WebSocket here.
    pub(crate) fn request(&self, path: &str) -> anyhow::Result<Request> {
        let url = format!("ws://{}{}{path}", self.address, self.base);
        let mut request = url.into_client_request()?;
        let token = HeaderValue::try_from(format!("Bearer {}", self.token))?;
        request.headers_mut().insert(AUTHORIZATION, token);
        Ok(request)
    }

    /// Opens a WebSocket for one command.
    pub(crate) fn watch(&self) -> anyhow::Result<Watch> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        let frames = BufReader::with_capacity(READ, stream.try_clone()?);
        let opened = tungstenite::client(self.request("/v1/exec/ws")?, stream);
        let (socket, _) = opened.map_err(|error| anyhow::Error::msg(error.to_string()))?;
        Ok(Watch { socket, frames, text: Vec::new(), count: 0 })
    }
}

/// A command that is watched. Frames are read without a library in between, so that a payload which is
/// only counted is only counted.
#[derive(Debug)]
pub(crate) struct Watch {
    socket: WebSocket<TcpStream>,
    frames: BufReader<TcpStream>,
    text: Vec<u8>,
    /// Bytes of stdout so far.
    count: u64,
}

/// What a frame said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Ready,
    /// So many bytes of stdout have come in all.
    Stdout(u64),
    Exit(Option<i32>),
}

impl Watch {
    /// Asks for a command.
    pub(crate) fn start(&mut self, mut start: Value) -> anyhow::Result<()> {
        start["type"] = "start".into();
        self.socket.send(Message::text(start.to_string()))?;
        Ok(())
    }

    /// Waits for the first output; returns how many bytes it is.
    pub(crate) fn first(&mut self) -> anyhow::Result<u64> {
        loop {
            match self.next()? {
                Said::Ready => {}
                Said::Stdout(count) => return Ok(count),
                Said::Exit(code) => bail!("it ended with {code:?}"),
            }
        }
    }

    /// Waits for the end, and calls this whenever there is more output.
    pub(crate) fn finish(&mut self, mut each: impl FnMut(u64)) -> anyhow::Result<u64> {
        loop {
            match self.next()? {
                Said::Ready => {}
                Said::Stdout(count) => each(count),
                Said::Exit(Some(0)) => return Ok(self.count),
                Said::Exit(code) => bail!("it ended with {code:?}"),
            }
        }
    }

    fn next(&mut self) -> anyhow::Result<Said> {
        let mut head = [0; 2];
        self.frames.read_exact(&mut head)?;
        let [kind, length] = head;
        let length = match length {
            126 => u64::from(u16::from_be_bytes(self.take()?)),
            127 => u64::from_be_bytes(self.take()?),
            short => u64::from(short),
        };
        match kind {
            0x81 => self.text(length),
            0x82 => self.binary(length),
            other => bail!("a frame of the kind {other:#x}"),
        }
    }

    fn take<const N: usize>(&mut self) -> anyhow::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.frames.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// One byte for the stream, eight for the place, and the bytes.
    fn binary(&mut self, length: u64) -> anyhow::Result<Said> {
        let [stream] = self.take()?;
        let at = u64::from_be_bytes(self.take()?);
        ensure!((stream, at) == (1, self.count), "stream {stream} at {at}");
        let bytes = length.checked_sub(9).context("too short")?;
        skip(&mut self.frames, bytes)?;
        self.count += bytes;
        Ok(Said::Stdout(self.count))
    }

    fn text(&mut self, length: u64) -> anyhow::Result<Said> {
        self.text.resize(usize::try_from(length)?, 0);
        self.frames.read_exact(&mut self.text)?;
        let text: Text<'_> = serde_json::from_slice(&self.text)?;
        match text.kind {
            "ready" => Ok(Said::Ready),
            "exit" => Ok(Said::Exit(text.exit_code)),
            "stdout" => {
                ensure!(text.offset == self.count, "it goes on at {}", text.offset);
                self.count += u64::try_from(text.data.len())?;
                Ok(Said::Stdout(self.count))
            }
            _ => bail!("{}", String::from_utf8_lossy(&self.text)),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Text<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow, default)]
    data: Cow<'a, str>,
    #[serde(default)]
    offset: u64,
    exit_code: Option<i32>,
}

/// Reads so many bytes, and does nothing with them.
pub(crate) fn skip(from: &mut BufReader<TcpStream>, bytes: u64) -> anyhow::Result<()> {
    let mut left = usize::try_from(bytes)?;
    while left > 0 {
        let read = from.fill_buf()?.len().min(left);
        ensure!(read > 0, "{left} bytes are missing");
        from.consume(read);
        left -= read;
    }
    Ok(())
}
