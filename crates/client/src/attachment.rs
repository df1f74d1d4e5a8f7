//! One WebSocket connection to a command or a shell. Input goes out and output comes in, and neither waits for
//! the other.

use std::{pin::pin, time::Duration};

use api::{
    exec::{ClientFrame, Encoding},
    shell::Told,
};
use futures_util::{
    SinkExt as _, StreamExt as _,
    future::OptionFuture,
    stream::{SplitSink, SplitStream},
};
use serde::Serialize;
use tokio::{
    select,
    sync::{mpsc, watch},
    time::timeout,
};
use tokio_tungstenite::tungstenite::{Error as WsError, Message, protocol::CloseFrame};

use crate::{
    ClientError,
    address::Address,
    websocket::{self, Socket},
};

/// What goes to a command or a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    Bytes(Vec<u8>),
    /// End of file: a command's stdin is closed. Nothing comes after it.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub rows: u16,
    pub columns: u16,
}

/// What comes from the user's side.
#[derive(Debug)]
pub struct Local {
    /// When the sender is dropped, the client leaves, and the command or shell goes on.
    pub input: mpsc::Receiver<Input>,
    /// The size of the user's terminal.
    pub size: watch::Receiver<Size>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// Returns its name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// A part of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output<'a> {
    pub stream: Stream,
    /// So many bytes before these are no longer kept by the server.
    pub lost: u64,
    pub bytes: &'a [u8],
    /// The place of the byte after these in the stream.
    pub end: u64,
}

/// How a command or a shell ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub exit_code: Option<i32>,
    /// The number of the signal that killed it, on Linux.
    pub signal: Option<i32>,
    /// `exited`, `signaled`, `cancelled`, `timed_out`, `not_started` or `lost`.
    pub reason: String,
    /// Says more if it did not end by itself.
    pub message: Option<String>,
}

impl From<api::shell::Ended> for Ended {
    fn from(ended: api::shell::Ended) -> Self {
        let signal = ended.signal_number();
        let api::shell::Ended { exit_code, reason, message, .. } = ended;
        Self { exit_code, signal, reason, message }
    }
}

/// The server asks for a sign of life every 20 s if nothing else is to be said.
const SILENCE: Duration = Duration::from_mins(1);

/// What comes before the bytes of a binary message: what it is, and its place in the output.
const HEAD: usize = 9;

/// What the server closes with when the token is not good any more.
const TOKEN_ENDED: u16 = 4401;

pub(crate) struct Connection {
    sink: SplitSink<Socket, Message>,
    stream: SplitStream<Socket>,
    exec: String,
    can_write: bool,
    /// Why the server is about to close.
    refusal: Option<Refusal>,
}

struct Refusal {
    code: String,
    message: String,
    retryable: bool,
}

pub(crate) enum Over {
    Ended(Ended),
    Left,
}

/// What a message of the server was about.
enum Heard {
    Nothing,
    Ready,
    Ended(Ended),
    TokenExpiring,
}

impl Connection {
    /// Connects, and joins the shell.
    pub(crate) async fn open(
        address: &Address,
        path: &str,
        token: &str,
        start: impl Serialize,
    ) -> Result<Self, ClientError> {
        let socket = websocket::connect(address, path, token).await?;
        let (sink, stream) = socket.split();
        let (exec, can_write, refusal) = (String::new(), false, None);
        let mut connection = Self { sink, stream, exec, can_write, refusal };
        let start = text(&ClientFrame::Start(Box::new(start)))?;
        connection.sink.send(start).await.map_err(websocket::broken)?;
        // Output comes after `ready`.
        while !matches!(connection.hear(&mut |_| {}).await?, Heard::Ready) {}
        Ok(connection)
    }

    pub(crate) fn exec(&self) -> &str {
        &self.exec
    }

    /// Stays until the command or shell ends or the client leaves. `fresh` gets a new token when the old
    /// one is about to expire.
    pub(crate) async fn run(
        &mut self,
        local: &mut Local,
        fresh: impl AsyncFn() -> Result<String, ClientError>,
        show: &mut impl FnMut(Output<'_>),
    ) -> Result<Over, ClientError> {
        let mut renewal = pin!(OptionFuture::default());
        let mut is_sending = false;
        // One that runs already has another size until it is told.
        local.size.mark_changed();
        loop {
            let can_write = self.can_write;
            let message = select! {
                heard = hear(&mut self.stream) => {
                    match self.understand(heard?, show)? {
                        Heard::Nothing | Heard::Ready => {}
                        Heard::Ended(ended) => return Ok(Over::Ended(ended)),
                        Heard::TokenExpiring => renewal.set(Some(fresh()).into()),
                    }
                    continue;
                }
                flushed = self.sink.flush(), if is_sending => {
                    flushed.map_err(websocket::broken)?;
                    is_sending = false;
                    continue;
                }
                Some(token) = &mut renewal, if !is_sending => {
                    renewal.set(None.into());
                    match token {
                        Ok(token) => text::<()>(&ClientFrame::Auth { token })?,
                        // The server ends the connection, and the next one says what is wrong.
                        Err(_) => continue,
                    }
                }
                input = local.input.recv(), if !is_sending => match input {
                    Some(Input::Bytes(bytes)) if can_write => Message::Binary(bytes.into()),
                    Some(Input::End) if can_write => text::<()>(&end_of_input())?,
                    Some(_) => continue,
                    None => return self.leave().await,
                },
                Ok(()) = local.size.changed(), if can_write && !is_sending => {
                    let Size { rows, columns } = *local.size.borrow_and_update();
                    text::<()>(&ClientFrame::Resize { rows: rows.into(), cols: columns.into() })?
                }
            };
            self.sink.feed(message).await.map_err(websocket::broken)?;
            is_sending = true;
        }
    }

    async fn leave(&mut self) -> Result<Over, ClientError> {
        let close = text::<()>(&ClientFrame::Close)?;
        self.sink.send(close).await.map_err(websocket::broken)?;
        Ok(Over::Left)
    }

    async fn hear(&mut self, show: &mut impl FnMut(Output<'_>)) -> Result<Heard, ClientError> {
        let message = hear(&mut self.stream).await?;
        self.understand(message, show)
    }

    fn understand(
        &mut self,
        message: Message,
        show: &mut impl FnMut(Output<'_>),
    ) -> Result<Heard, ClientError> {
        match message {
            Message::Binary(bytes) => {
                if let Some(output) = read_output(&bytes) {
                    show(output);
                }
                Ok(Heard::Nothing)
            }
            Message::Text(frame) => {
                let told = serde_json::from_str(&frame).map_err(ClientError::Answer)?;
                if let Told::Gap { stream, offset, length } = &told {
                    let stream = if stream == "stderr" { Stream::Stderr } else { Stream::Stdout };
                    show(Output {
                        stream,
                        lost: *length,
                        bytes: &[],
                        end: offset.saturating_add(*length),
                    });
                }
                Ok(self.note(told))
            }
            Message::Close(frame) => Err(self.closed(frame)),
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => Ok(Heard::Nothing),
        }
    }

    fn note(&mut self, told: Told) -> Heard {
        match told {
            Told::Ready { exec_id, can_write } => {
                (self.exec, self.can_write) = (exec_id, can_write);
                Heard::Ready
            }
            Told::Exit(ended) => Heard::Ended(ended.into()),
            Told::TokenExpiring { expires_at: _ } => Heard::TokenExpiring,
            Told::Error { code, message, retryable } => {
                self.refusal = Some(Refusal { code, message, retryable });
                Heard::Nothing
            }
            Told::Gap { .. } | Told::Other => Heard::Nothing,
        }
    }

    /// Says why the server closed: what it said before, if that was the last word. A token that
    /// has ended is not: the next connection has another.
    fn closed(&mut self, frame: Option<CloseFrame>) -> ClientError {
        let is_token = frame.as_ref().is_some_and(|frame| u16::from(frame.code) == TOKEN_ENDED);
        match self.refusal.take() {
            Some(Refusal { code, message, retryable: false }) if !is_token => {
                ClientError::Refused { code, message }
            }
            Some(Refusal { message, .. }) => ClientError::Broken { cause: message },
            None => {
                let cause = frame.map(|frame| frame.to_string()).unwrap_or_default();
                ClientError::Broken { cause }
            }
        }
    }
}

async fn hear(stream: &mut SplitStream<Socket>) -> Result<Message, ClientError> {
    let silent = |_| ClientError::Broken { cause: "the server says nothing".to_owned() };
    let message = timeout(SILENCE, stream.next()).await.map_err(silent)?;
    message.unwrap_or(Err(WsError::ConnectionClosed)).map_err(websocket::broken)
}

/// Reads a binary message: the stream, the place of its first byte, the bytes.
fn read_output(message: &[u8]) -> Option<Output<'_>> {
    let (head, bytes) = message.split_first_chunk::<HEAD>()?;
    let [stream, offset @ ..] = *head;
    let stream = if stream == 2 { Stream::Stderr } else { Stream::Stdout };
    let end = u64::from_be_bytes(offset).saturating_add(bytes.len() as u64);
    Some(Output { stream, lost: 0, bytes, end })
}

fn end_of_input() -> ClientFrame<()> {
    ClientFrame::Stdin { data: String::new(), encoding: Encoding::Text, eof: true }
}

fn text<S: Serialize>(frame: &ClientFrame<S>) -> Result<Message, ClientError> {
    Ok(Message::Text(serde_json::to_string(frame).map_err(ClientError::Answer)?.into()))
}
