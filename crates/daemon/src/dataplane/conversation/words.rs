//! What clients are told of a command over a WebSocket, in the two spellings.

use std::borrow::Cow;

use api::{
    errors::ErrorCode,
    exec::{Chunk, Encoding, Screen, ServerFrame, ShellReady},
    langsmith,
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use bytes::{BufMut as _, BytesMut};
use engine::sandboxes::{
    attach::{Part, Stream, Usage},
    shells::{Painting, Resized},
};
use model::{
    exec::{Exec, ExecEnd},
    spec::TerminalSize,
};
use serde::Serialize;

use super::text::{Piece, Text, same_length};
use crate::{
    dataplane::exec::to_wire::{self, Told},
    ws::socket::Socket,
};

/// How a client is spoken to.
#[derive(Debug)]
pub(in crate::dataplane) enum Words {
    Session { encoding: Encoding, texts: [Text; 2], screens: Screens },
    LangSmith { texts: [Text; 2] },
}

/// How a client is shown the screen of a shell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::dataplane) enum Screens {
    /// In a frame of its own.
    #[default]
    Frame,
    /// As output, for clients that know no other frames than those of the protocols as they were written.
    Output,
}

impl Words {
    pub(in crate::dataplane) fn session(encoding: Encoding) -> Self {
        Self::shell(encoding, Screens::Frame)
    }

    pub(in crate::dataplane) fn shell(encoding: Encoding, screens: Screens) -> Self {
        Self::Session { encoding, texts: Default::default(), screens }
    }

    pub(in crate::dataplane) fn langsmith() -> Self {
        Self::LangSmith { texts: Default::default() }
    }

    /// Says that the command is there.
    pub(in crate::dataplane) fn started(&self, socket: &mut Socket, id: &str, pid: Option<u32>) {
        match self {
            Self::Session { .. } => {
                queue(socket, &ServerFrame::Ready { exec_id: id, pid, shell: None });
            }
            Self::LangSmith { .. } => {
                let pid = pid.unwrap_or_default();
                queue(socket, &langsmith::ServerFrame::Started { command_id: id, pid });
            }
        }
    }

    /// Shows what the terminal of a shell does.
    pub(in crate::dataplane) fn screen(&self, socket: &mut Socket, painting: &Painting) {
        let Painting { size, at, lost, text } = painting;
        if let Self::Session { encoding, screens: Screens::Output, .. } = self {
            return screen_as_output(socket, *encoding, *at, text);
        }
        let screen = |data, encoding| Screen {
            data,
            offset: *at,
            rows: size.rows,
            cols: size.columns,
            encoding,
            lost: *lost,
        };
        let frame = match self {
            Self::Session { encoding: Encoding::Binary, .. } => {
                return socket.queue_bytes(binary(SCREEN, *at, text.as_bytes()));
            }
            Self::Session { encoding: Encoding::Base64, .. } => {
                screen(Cow::Owned(BASE64.encode(text)), Some(Encoding::Base64))
            }
            Self::Session { encoding: Encoding::Text, .. } | Self::LangSmith { .. } => {
                screen(Cow::Borrowed(text), None)
            }
        };
        queue(socket, &ServerFrame::Screen(frame));
    }

    /// Tells a part of a stream.
    pub(in crate::dataplane) fn part(&mut self, socket: &mut Socket, stream: Stream, part: Part) {
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
                let kind = match stream {
                    Stream::Stdout => STDOUT,
                    Stream::Stderr => STDERR,
                };
                socket.queue_bytes(binary(kind, at, &bytes));
            }
            Self::Session { encoding: Encoding::Base64, .. } => {
                queue_piece(socket, stream, Piece::Bytes { at, bytes });
            }
            Self::Session { encoding: Encoding::Text, texts, .. } => {
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
    pub(in crate::dataplane) fn ended(&self, socket: &mut Socket, end: &ExecEnd, usage: Usage) {
        match self {
            Self::Session { .. } => {
                queue(socket, &ServerFrame::Exit(to_wire::exit(end, Some(usage))));
            }
            Self::LangSmith { .. } => match to_wire::told(end) {
                Told::Code { code, signal, message } => {
                    let exit_code = code;
                    queue(socket, &langsmith::ServerFrame::Exit { exit_code, signal, message });
                }
                Told::Error { kind, message } => langsmith_error(socket, kind, &message),
            },
        }
    }

    /// Says what went wrong.
    pub(in crate::dataplane) fn error(&self, socket: &mut Socket, code: ErrorCode, message: &str) {
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

/// Shows a screen as output, whose offset is that of the output that follows it.
fn screen_as_output(socket: &mut Socket, encoding: Encoding, at: u64, text: &str) {
    let piece = match encoding {
        Encoding::Binary => return socket.queue_bytes(binary(STDOUT, at, text.as_bytes())),
        Encoding::Base64 => Piece::Bytes { at, bytes: text.as_bytes().to_vec() },
        Encoding::Text => Piece::Text { at, text: text.to_owned() },
    };
    queue_piece(socket, Stream::Stdout, piece);
}

/// Says that the client has joined a shell.
pub(in crate::dataplane) fn joined(
    socket: &mut Socket,
    exec: &Exec,
    pid: Option<u32>,
    size: TerminalSize,
    can_write: bool,
) {
    let name = exec.spec.shell.as_ref().map(model::ids::ShellName::as_str).unwrap_or_default();
    let (rows, cols) = (size.rows, size.columns);
    let shell = Some(ShellReady { name, rows, cols, can_write });
    queue(socket, &ServerFrame::Ready { exec_id: exec.id.as_str(), pid, shell });
}

/// Says that the terminal of a shell has another size.
pub(in crate::dataplane) fn resized(socket: &mut Socket, Resized { size, at }: Resized) {
    let (rows, cols) = (size.rows, size.columns);
    queue(socket, &ServerFrame::Resize { rows, cols, offset: at });
}

/// Says what went wrong, in the words of the session protocol.
pub(in crate::dataplane) fn error(socket: &mut Socket, code: ErrorCode, message: &str) {
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

/// The first byte of a binary message, which says what it is.
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const SCREEN: u8 = 3;

fn binary(kind: u8, at: u64, bytes: &[u8]) -> bytes::Bytes {
    let mut frame = BytesMut::with_capacity(9 + bytes.len());
    frame.put_u8(kind);
    frame.put_u64(at);
    frame.extend_from_slice(bytes);
    frame.freeze()
}

pub(in crate::dataplane) fn queue(socket: &mut Socket, frame: &impl Serialize) {
    match serde_json::to_string(frame) {
        Ok(text) => socket.queue(text),
        Err(error) => tracing::error!(%error, "cannot write a frame"),
    }
}
