//! What clients are told of a command over a WebSocket, in the two spellings.

use std::borrow::Cow;

use api::{
    errors::ErrorCode,
    exec::{Chunk, Encoding, ServerFrame},
    langsmith,
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use bytes::{BufMut as _, BytesMut};
use engine::sandboxes::attach::{Part, Stream, Usage};
use model::exec::ExecEnd;
use serde::Serialize;

use super::{
    text::{Piece, Text, same_length},
    to_wire::{self, Told},
};
use crate::ws::socket::Socket;

/// How a client is spoken to.
#[derive(Debug)]
pub(super) enum Words {
    Session { encoding: Encoding, texts: [Text; 2] },
    LangSmith { texts: [Text; 2] },
}

impl Words {
    pub(super) fn session(encoding: Encoding) -> Self {
        Self::Session { encoding, texts: Default::default() }
    }

    pub(super) fn langsmith() -> Self {
        Self::LangSmith { texts: Default::default() }
    }

    /// Says that the command is there.
    pub(super) fn started(&self, socket: &mut Socket, id: &str, pid: Option<u32>) {
        match self {
            Self::Session { .. } => queue(socket, &ServerFrame::Ready { exec_id: id, pid }),
            Self::LangSmith { .. } => {
                let pid = pid.unwrap_or_default();
                queue(socket, &langsmith::ServerFrame::Started { command_id: id, pid });
            }
        }
    }

    /// Tells a part of a stream.
    pub(super) fn part(&mut self, socket: &mut Socket, stream: Stream, part: Part) {
        match part {
            Part::Bytes { at, bytes } => self.bytes(socket, stream, at, bytes),
            Part::Gap { at, length } => {
                self.finish(socket, stream, at);
                if let Self::Session { .. } = self {
                    let stream = stream.name();
                    queue(socket, &ServerFrame::Gap { stream, offset: at, length });
                }
            }
            Part::End { at } => self.finish(socket, stream, at),
        }
    }

    fn bytes(&mut self, socket: &mut Socket, stream: Stream, at: u64, bytes: Vec<u8>) {
        match self {
            Self::Session { encoding: Encoding::Binary, .. } => {
                socket.queue_bytes(binary(stream, at, &bytes));
            }
            Self::Session { encoding: Encoding::Base64, .. } => {
                queue_piece(socket, stream, Piece::Bytes { at, bytes });
            }
            Self::Session { encoding: Encoding::Text, texts } => {
                if let Some(piece) = text_of(texts, stream).push(at, bytes) {
                    queue_piece(socket, stream, piece);
                }
            }
            Self::LangSmith { texts } => {
                if let Some(piece) = text_of(texts, stream).push(at, bytes) {
                    queue_langsmith(socket, stream, piece);
                }
            }
        }
    }

    /// A character that was not whole at the end of a stream never will be.
    fn finish(&mut self, socket: &mut Socket, stream: Stream, at: u64) {
        match self {
            Self::Session { texts, .. } => {
                if let Some(piece) = text_of(texts, stream).finish(at) {
                    queue_piece(socket, stream, piece);
                }
            }
            Self::LangSmith { texts } => {
                if let Some(piece) = text_of(texts, stream).finish(at) {
                    queue_langsmith(socket, stream, piece);
                }
            }
        }
    }

    /// Says how it ended.
    pub(super) fn ended(&self, socket: &mut Socket, end: &ExecEnd, usage: Usage) {
        match self {
            Self::Session { .. } => {
                queue(socket, &ServerFrame::Exit(to_wire::exit(end, Some(usage))));
            }
            Self::LangSmith { .. } => match to_wire::told(end) {
                Told::Code { code, signal } => {
                    queue(socket, &langsmith::ServerFrame::Exit { exit_code: code, signal });
                }
                Told::Error { kind, message } => langsmith_error(socket, kind, &message),
            },
        }
    }

    /// Says what went wrong.
    pub(super) fn error(&self, socket: &mut Socket, code: ErrorCode, message: &str) {
        match self {
            Self::Session { .. } => error(socket, code, message),
            Self::LangSmith { .. } => {
                let kind = match code {
                    ErrorCode::NotFound => "CommandNotFound",
                    _ => "CommandError",
                };
                langsmith_error(socket, kind, message);
            }
        }
    }
}

/// Says what went wrong, in the words of the session protocol.
pub(super) fn error(socket: &mut Socket, code: ErrorCode, message: &str) {
    let retryable = code.is_retryable();
    queue(socket, &ServerFrame::Error { code: code.wire_name(), message, retryable });
}

fn langsmith_error(socket: &mut Socket, kind: &str, message: &str) {
    queue(socket, &langsmith::ServerFrame::Error { error_type: kind, error: message });
}

fn text_of(texts: &mut [Text; 2], stream: Stream) -> &mut Text {
    let [stdout, stderr] = texts;
    match stream {
        Stream::Stdout => stdout,
        Stream::Stderr => stderr,
    }
}

fn queue_piece(socket: &mut Socket, stream: Stream, piece: Piece) {
    let chunk = match piece {
        Piece::Text { at, text } => Chunk { data: Cow::Owned(text), offset: at, encoding: None },
        Piece::Bytes { at, bytes } => Chunk {
            data: Cow::Owned(BASE64.encode(bytes)),
            offset: at,
            encoding: Some(Encoding::Base64),
        },
    };
    let frame = match stream {
        Stream::Stdout => ServerFrame::Stdout(chunk),
        Stream::Stderr => ServerFrame::Stderr(chunk),
    };
    queue(socket, &frame);
}

fn queue_langsmith(socket: &mut Socket, stream: Stream, piece: Piece) {
    let (offset, data, data_b64) = match piece {
        Piece::Text { at, text } => (at, text, None),
        Piece::Bytes { at, bytes } => (at, same_length(&bytes), Some(BASE64.encode(bytes))),
    };
    let chunk = langsmith::Chunk { data: &data, offset, data_b64 };
    let frame = match stream {
        Stream::Stdout => langsmith::ServerFrame::Stdout(chunk),
        Stream::Stderr => langsmith::ServerFrame::Stderr(chunk),
    };
    queue(socket, &frame);
}

fn binary(stream: Stream, at: u64, bytes: &[u8]) -> bytes::Bytes {
    let mut frame = BytesMut::with_capacity(9 + bytes.len());
    frame.put_u8(match stream {
        Stream::Stdout => 1,
        Stream::Stderr => 2,
    });
    frame.put_u64(at);
    frame.extend_from_slice(bytes);
    frame.freeze()
}

pub(super) fn queue(socket: &mut Socket, frame: &impl Serialize) {
    match serde_json::to_string(frame) {
        Ok(text) => socket.queue(text),
        Err(error) => tracing::error!(%error, "cannot write a frame"),
    }
}
