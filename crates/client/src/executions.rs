//! Running code.

use std::{borrow::Cow, time::Duration};

use api::fathom::{
    AskedLimits, Cancel, ClientFrame, Execute, Freshness, VERSION,
    server::{self, ServerFrame},
};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::{
    ClientError,
    address::Address,
    websocket::{Socket, broken, connect},
};

/// The id of our execution. A connection runs one, so any will do.
const ID: &str = "run";

/// What is to be run.
#[derive(Clone)]
pub struct Request {
    pub language: String,
    pub code: String,
    pub stdin: Option<String>,
    pub env: Vec<(String, String)>,
    pub timeout: Duration,
    pub memory_mb: u64,
    pub max_output_bytes: Option<u64>,
    pub freshness: Fresh,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("language", &self.language).finish_non_exhaustive()
    }
}

/// How much the environment may share with others of its language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fresh {
    Shared,
    Strict,
}

/// A frame of the server: as it came, and what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub json: String,
    pub update: Update,
}

/// What happens to an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Received and queued.
    Accepted,
    Started,
    Stdout(String),
    Stderr(String),
    /// It is over; how it ended follows.
    Over(Status),
    /// Something of note that is not the end, such as output being cut.
    Warning(String),
    /// How it ended; the last one unless it is refused.
    Ended(Ended),
    /// It was not run, or nothing is known of its end.
    Refused {
        code: String,
        message: String,
    },
}

/// How an execution ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub status: Status,
    pub exit_code: Option<i32>,
    /// The signal that killed it: its name without `SIG`, and its number on Linux.
    pub signal: Option<String>,
    pub signal_number: Option<i32>,
    pub duration: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Completed,
    Failed,
    Cancelled,
    Timeout,
    Oom,
}

/// One execution on a connection of its own.
#[derive(Debug)]
pub struct Run {
    socket: Socket,
    status: Option<Status>,
    is_over: bool,
}

impl Run {
    /// Connects and sends the request.
    pub async fn start(
        address: &Address,
        key: &str,
        request: Request,
        ts: &str,
    ) -> Result<Self, ClientError> {
        let mut socket = connect(address, "/ws", key).await?;
        let frame = ClientFrame::Execute(execute(request, ts));
        send(&mut socket, &frame).await?;
        Ok(Self { socket, status: None, is_over: false })
    }

    /// Returns the next thing that happens, or nothing after the end. May be dropped and called
    /// again.
    pub async fn next(&mut self) -> Result<Option<Told>, ClientError> {
        while !self.is_over {
            let text = match self.socket.next().await {
                Some(Ok(Message::Text(text))) => text,
                Some(Ok(Message::Close(frame))) => {
                    let reason = frame.map(|frame| frame.to_string()).unwrap_or_default();
                    return Err(ClientError::Closed { reason });
                }
                Some(Ok(_)) => continue,
                Some(Err(error)) => return Err(broken(error)),
                None => return Err(ClientError::Closed { reason: "no reason given".to_owned() }),
            };
            if let Some(update) = self.understand(&text)? {
                return Ok(Some(Told { json: text.as_str().to_owned(), update }));
            }
        }
        Ok(None)
    }

    /// Asks for the execution to be ended. Its end is still to be read.
    pub async fn cancel(&mut self, ts: &str) -> Result<(), ClientError> {
        let cancel = Cancel { v: VERSION, id: ID.to_owned(), ts: ts.to_owned() };
        send(&mut self.socket, &ClientFrame::Cancel(cancel)).await
    }

    fn understand(&mut self, text: &str) -> Result<Option<Update>, ClientError> {
        let frame = serde_json::from_str(text).map_err(ClientError::Answer)?;
        Ok(Some(match frame {
            ServerFrame::Ack(_) => Update::Accepted,
            ServerFrame::Status(status) => {
                self.status = terminal(status.status);
                self.status.map_or(Update::Started, Update::Over)
            }
            ServerFrame::Stdout(output) => Update::Stdout(output.data.into_owned()),
            ServerFrame::Stderr(output) => Update::Stderr(output.data.into_owned()),
            ServerFrame::Error(error) if error.code == "OUTPUT_LIMIT" => {
                Update::Warning(error.message.into_owned())
            }
            // The answer to a cancel that came too late; the end is on its way or was told.
            ServerFrame::Error(error) if error.code == "UNKNOWN_EXECUTION" => return Ok(None),
            ServerFrame::Error(error) => {
                self.is_over = true;
                Update::Refused {
                    code: error.code.into_owned(),
                    message: error.message.into_owned(),
                }
            }
            ServerFrame::Result(result) => {
                self.is_over = true;
                let signal = result.signal.map(Cow::into_owned);
                Update::Ended(Ended {
                    status: self.status.unwrap_or(Status::Failed),
                    exit_code: result.exit_code,
                    signal_number: signal.as_deref().and_then(server::signal_number),
                    signal,
                    duration: Duration::from_millis(result.duration_ms),
                })
            }
            ServerFrame::Pong(_) => return Ok(None),
        }))
    }
}

fn terminal(state: server::State) -> Option<Status> {
    match state {
        server::State::Running => None,
        server::State::Completed => Some(Status::Completed),
        server::State::Failed => Some(Status::Failed),
        server::State::Cancelled => Some(Status::Cancelled),
        server::State::Timeout => Some(Status::Timeout),
        server::State::Oom => Some(Status::Oom),
    }
}

fn execute(request: Request, ts: &str) -> Execute {
    Execute {
        v: VERSION,
        id: ID.to_owned(),
        ts: ts.to_owned(),
        language: request.language,
        code: request.code,
        stdin: request.stdin,
        env: request.env,
        limits: AskedLimits {
            timeout_ms: u64::try_from(request.timeout.as_millis()).unwrap_or(u64::MAX),
            memory_mb: request.memory_mb,
            cpu_shares: None,
            max_output_bytes: request.max_output_bytes,
            processes: None,
            disk_mb: None,
            inodes: None,
        },
        freshness: match request.freshness {
            Fresh::Shared => Freshness::Shared,
            Fresh::Strict => Freshness::Strict,
        },
        posture: false,
    }
}

async fn send(socket: &mut Socket, frame: &ClientFrame) -> Result<(), ClientError> {
    let text = serde_json::to_string(frame).map_err(ClientError::Answer)?;
    socket.send(Message::Text(Utf8Bytes::from(text))).await.map_err(broken)
}
