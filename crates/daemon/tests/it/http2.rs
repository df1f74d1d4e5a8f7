//! HTTP/2 by hand, for what no library of clients sends.

use std::io;

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};

use crate::support::PATIENCE;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Kinds of frames.
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GO_AWAY: u8 = 7;
pub(crate) const WINDOW: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

/// Flags of frames.
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// One frame.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) content: Vec<u8>,
}

impl Frame {
    /// Returns why the other side goes away, if it says so.
    pub(crate) fn goes_away_because(&self) -> Option<u32> {
        let reason = self.content.get(4..8)?.try_into().unwrap();
        (self.kind == GO_AWAY).then_some(u32::from_be_bytes(reason))
    }
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

/// Writes one field of a header block. Later blocks can refer to it.
pub(crate) fn field(name: &str, value: &str) -> Vec<u8> {
    // Lengths of up to 126 are one byte.
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    [vec![0x40], text(name), text(value)].concat()
}

/// Writes the header block of a call.
pub(crate) fn call(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let fields = [
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let fields = fields.iter().chain(more).flat_map(|(name, value)| field(name, value));
    [0x83, 0x86].into_iter().chain(fields).collect()
}

/// Writes what a connection begins with.
pub(crate) fn hello() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

/// Reads the next frame, which may be an error of the connection.
pub(crate) async fn next(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Frame> {
    let mut head = [0; 9];
    timeout(PATIENCE, stream.read_exact(&mut head)).await.unwrap()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut content = vec![0; usize::try_from(length).unwrap()];
    timeout(PATIENCE, stream.read_exact(&mut content)).await.unwrap()?;
    let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
    Ok(Frame { kind: head[3], flags: head[4], stream, content })
}

/// Asks whether the other side is there and returns what it sends before it says so. By then it
/// has read all that was sent before.
pub(crate) async fn ping(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> io::Result<Vec<Frame>> {
    stream.write_all(&frame(PING, 0, 0, b"are you?")).await?;
    let mut before = Vec::new();
    loop {
        let frame = next(stream).await?;
        if (frame.kind, frame.flags, frame.content.as_slice()) == (PING, ACK, b"are you?") {
            return Ok(before);
        }
        before.push(frame);
    }
}
