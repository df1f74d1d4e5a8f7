//! One connection to a shell: what is typed goes out, what is shown comes in, and neither waits
//! for the other.

use std::{pin::pin, time::Duration};

use api::{
    exec::ClientFrame,
    shell::{Start, Told},
};
use futures_util::{
    SinkExt as _, StreamExt as _,
    future::OptionFuture,
    stream::{SplitSink, SplitStream},
};
use tokio::{select, time::timeout};
use tokio_tungstenite::tungstenite::{Error as WsError, Message, protocol::CloseFrame};

use super::{Ended, Local, Size, Update};
use crate::{
    ClientError,
    address::Address,
    websocket::{self, Socket},
};

/// The server asks for a sign of life every 20 s if nothing else is to be said.
const SILENCE: Duration = Duration::from_mins(1);

/// What comes before the bytes of a binary message: what it is, and its place in the output.
const HEAD: usize = 9;

/// What the server closes with when the token is not good any more.
const TOKEN_ENDED: u16 = 4401;

pub(super) struct Connection {
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

pub(super) enum Over {
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
    pub(super) async fn open(
        address: &Address,
        path: &str,
        token: &str,
        start: Start,
    ) -> Result<Self, ClientError> {
        let socket = websocket::connect(address, path, token).await?;
        let (sink, stream) = socket.split();
        let (exec, can_write, refusal) = (String::new(), false, None);
        let mut connection = Self { sink, stream, exec, can_write, refusal };
        let start = text(&ClientFrame::Start(Box::new(start)))?;
        connection.sink.send(start).await.map_err(websocket::broken)?;
        // What is shown comes after `ready`.
        while !matches!(connection.hear(&mut |_| {}).await?, Heard::Ready) {}
        Ok(connection)
    }

    pub(super) fn exec(&self) -> &str {
        &self.exec
    }

    /// Stays until the shell ends or is left. `fresh` gets a new token when the old one is about to
    /// end.
    pub(super) async fn run(
        &mut self,
        local: &mut Local,
        fresh: impl AsyncFn() -> Result<String, ClientError>,
        show: &mut impl FnMut(Update<'_>),
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
                        Ok(token) => text(&ClientFrame::Auth { token })?,
                        // The server ends the connection, and the next one says what is wrong.
                        Err(_) => continue,
                    }
                }
                typed = local.typed.recv(), if !is_sending => match typed {
                    Some(typed) if can_write => Message::Binary(typed.into()),
                    Some(_) => continue,
                    None => return self.leave().await,
                },
                Ok(()) = local.size.changed(), if can_write && !is_sending => {
                    let Size { rows, columns } = *local.size.borrow_and_update();
                    text(&ClientFrame::Resize { rows: rows.into(), cols: columns.into() })?
                }
            };
            self.sink.feed(message).await.map_err(websocket::broken)?;
            is_sending = true;
        }
    }

    async fn leave(&mut self) -> Result<Over, ClientError> {
        let close = text(&ClientFrame::Close)?;
        self.sink.send(close).await.map_err(websocket::broken)?;
        Ok(Over::Left)
    }

    async fn hear(&mut self, show: &mut impl FnMut(Update<'_>)) -> Result<Heard, ClientError> {
        let message = hear(&mut self.stream).await?;
        self.understand(message, show)
    }

    fn understand(
        &mut self,
        message: Message,
        show: &mut impl FnMut(Update<'_>),
    ) -> Result<Heard, ClientError> {
        match message {
            Message::Binary(bytes) => {
                if let Some((_, output)) = bytes.split_at_checked(HEAD) {
                    show(Update::Output(output));
                }
                Ok(Heard::Nothing)
            }
            Message::Text(frame) => {
                let told = serde_json::from_str(&frame).map_err(ClientError::Answer)?;
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
            Told::Other => Heard::Nothing,
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

fn text(frame: &ClientFrame<Start>) -> Result<Message, ClientError> {
    Ok(Message::Text(serde_json::to_string(frame).map_err(ClientError::Answer)?.into()))
}
