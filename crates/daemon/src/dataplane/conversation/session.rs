//! Clients of the session protocol: who they are, what they may, and what they say.

use std::time::{Duration, Instant as Time, SystemTime};

use api::{
    errors::ErrorCode,
    exec::{ClientFrame, Encoding, ServerFrame},
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use engine::sandboxes::attach::Attached;
use model::{capability::Capability, spec::TerminalSize};
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::{
    select,
    time::{Instant, timeout_at},
};
use tokio_tungstenite::tungstenite::Message;

use super::{
    Due, Heard, Listener, Wish,
    words::{self, queue},
};
use crate::{
    dataplane::{
        access::{Access, Ended, Unproven},
        exec::from_wire,
    },
    ws::{
        end::End,
        socket::{Socket, Step},
    },
};

/// The largest message of a client.
pub(in crate::dataplane) const MAX_MESSAGE: usize = 1 << 20;
/// How long a client has to say who it is, and what it wants.
const AUTH_WITHIN: Duration = Duration::from_secs(5);
const START_WITHIN: Duration = Duration::from_mins(1);
/// What is read of a client that has not said who it is.
const OF_STRANGERS: u64 = 64 << 10;
/// How often is said what a client has written that stays for long.
const REPORT_EVERY: Duration = Duration::from_mins(1);

const UNREADABLE: &str = "the frame is not one that this route takes";

/// A client that has said who it is.
pub(in crate::dataplane) struct Session {
    unproven: Unproven,
    access: Access,
    /// What it takes to write.
    writes: Capability,
    /// The end that it was warned of.
    warned_of: Option<SystemTime>,
    /// What it watches, and how much it has written since that was last said.
    watched: String,
    written: u64,
    reported: Time,
}

/// What a client says before it watches anything.
pub(in crate::dataplane) enum Said<S> {
    Frame(ClientFrame<S>),
    Bytes(Vec<u8>),
    /// It cannot be read.
    Nonsense,
}

impl Session {
    /// Waits until a client has said who it is, unless it has done so with the upgrade.
    pub(in crate::dataplane) async fn open(
        unproven: Unproven,
        writes: Capability,
        socket: &mut Socket,
    ) -> Result<Self, End> {
        let access = match unproven.shown().cloned() {
            Some(access) => access,
            None => first_auth(&unproven, socket).await?,
        };
        Ok(Self {
            unproven,
            access,
            writes,
            warned_of: None,
            watched: String::new(),
            written: 0,
            reported: Time::now(),
        })
    }

    pub(in crate::dataplane) fn access(&self) -> &Access {
        &self.access
    }

    /// Notes what it watches from now on.
    pub(in crate::dataplane) fn watches(&mut self, attached: &Attached) {
        self.watched = attached.id().to_string();
    }

    /// Counts what was written, under the name of who did.
    pub(in crate::dataplane) fn count(&mut self, bytes: &[u8]) {
        self.written += u64::try_from(bytes.len()).unwrap_or_default();
    }

    /// Waits for what it wants to watch, as long as its right lasts. What is of another kind is answered
    /// here.
    pub(in crate::dataplane) async fn first<S: DeserializeOwned>(
        &mut self,
        socket: &mut Socket,
    ) -> Result<Said<S>, End> {
        let within = Instant::now() + START_WITHIN;
        loop {
            let message = select! {
                biased;
                due = self.wait() => match self.tell(due, socket) {
                    Some(end) => return Err(end),
                    None => continue,
                },
                message = next_message(socket, within) => message?,
            };
            let text = match message {
                Message::Text(text) => text,
                Message::Binary(bytes) => return Ok(Said::Bytes(bytes.to_vec())),
                _ => continue,
            };
            match serde_json::from_str(&text) {
                Ok(ClientFrame::Auth { token }) => self.renew(&token, socket).await?,
                Ok(ClientFrame::Ping { id }) => queue(socket, &ServerFrame::Pong { id }),
                Ok(ClientFrame::Close) => return Err(End::Closed(1000, "closed")),
                Ok(frame) => return Ok(Said::Frame(frame)),
                Err(_) => return Ok(Said::Nonsense),
            }
        }
    }

    async fn renew(&mut self, token: &str, socket: &mut Socket) -> Result<(), End> {
        match self.unproven.renew(&self.access, token).await {
            Ok(access) => {
                queue(socket, &ServerFrame::AuthOk { session_id: access.credential_id() });
                self.say_written();
                (self.access, self.warned_of) = (access, None);
                Ok(())
            }
            Err(refusal) => {
                words::error(socket, refusal.code(), &refusal.message());
                Err(End::Closed(4401, "not let in"))
            }
        }
    }

    /// Refuses one frame, after which everything goes on.
    pub(in crate::dataplane) fn refuse(socket: &mut Socket, message: &str) -> Heard {
        words::error(socket, ErrorCode::InvalidRequest, message);
        Heard::Nothing
    }

    /// Refuses what cannot be read where it has to be.
    pub(in crate::dataplane) fn refuse_nonsense(socket: &mut Socket) -> End {
        words::error(socket, ErrorCode::InvalidRequest, UNREADABLE);
        End::Closed(4400, "a frame that cannot be read")
    }

    /// Lets through what it wants, if it may.
    pub(in crate::dataplane) fn wish(&mut self, wish: Wish, socket: &mut Socket) -> Heard {
        if let Err(refusal) = self.access.require(self.writes) {
            words::error(socket, refusal.code(), &refusal.message());
            return Heard::End(End::Closed(refusal.close_code(), "it may watch only"));
        }
        if let Wish::Input(bytes) = &wish {
            self.count(bytes);
        }
        Heard::Wish(wish)
    }

    /// Takes what is written, or asked of the terminal or the processes.
    pub(in crate::dataplane) fn heard<S>(
        &mut self,
        frame: ClientFrame<S>,
        socket: &mut Socket,
    ) -> Heard {
        match frame {
            ClientFrame::Stdin { data, encoding, eof } => match input(data, encoding) {
                Some(bytes) if bytes.is_empty() && eof => self.wish(Wish::CloseInput, socket),
                Some(bytes) if !eof => self.wish(Wish::Input(bytes), socket),
                Some(_) => Self::refuse(socket, "send eof in a frame without data"),
                None => Self::refuse(socket, "stdin is text, or base64 that says so"),
            },
            ClientFrame::Resize { rows, cols } => match size(rows, cols) {
                Some(size) => self.wish(Wish::Resize(size), socket),
                None => Self::refuse(socket, WRONG_SIZE),
            },
            ClientFrame::Signal { signal } => match from_wire::signal(&signal) {
                Some(number) => self.wish(Wish::Signal(number), socket),
                None => Self::refuse(socket, "there is no such signal here"),
            },
            ClientFrame::Ping { id } => {
                queue(socket, &ServerFrame::Pong { id });
                Heard::Nothing
            }
            ClientFrame::Close => Heard::End(End::Closed(1000, "closed")),
            ClientFrame::Start(_) => {
                words::error(socket, ErrorCode::Conflict, "this connection has started already");
                Heard::End(End::Closed(4409, "start twice"))
            }
            // Told apart before.
            ClientFrame::Auth { .. } => Heard::Nothing,
        }
    }

    /// Says who has written how much. What, is nobody's business.
    fn say_written(&mut self) {
        self.reported = Time::now();
        let bytes = std::mem::take(&mut self.written);
        if bytes > 0 {
            let (sandbox, exec) = (self.access.sandbox(), self.watched.as_str());
            let (actor, credential) = (self.access.actor(), self.access.credential_id());
            let (kind, actor) = (actor.kind.text(), actor.id.as_str());
            tracing::info!(%sandbox, exec, kind, actor, credential, bytes, "input");
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.say_written();
    }
}

/// What is said of a size that no terminal has.
pub(in crate::dataplane) const WRONG_SIZE: &str = "rows and cols are from 1 to 65535";

/// Returns a size that a terminal can have.
pub(in crate::dataplane) fn size(rows: i64, cols: i64) -> Option<TerminalSize> {
    match (u32::try_from(rows), u32::try_from(cols)) {
        (Ok(rows @ 1..=0xffff), Ok(cols @ 1..=0xffff)) => Some(TerminalSize::clamped(rows, cols)),
        _ => None,
    }
}

/// Waits for the frame that says who it is.
async fn first_auth(unproven: &Unproven, socket: &mut Socket) -> Result<Access, End> {
    let within = Instant::now() + AUTH_WITHIN;
    socket.distrust(OF_STRANGERS);
    let text = next_text(socket, within).await?;
    let Ok(ClientFrame::<IgnoredAny>::Auth { token }) = serde_json::from_str(&text) else {
        words::error(socket, ErrorCode::Unauthenticated, "the first frame must be auth");
        return Err(End::Closed(4401, "the first frame must be auth"));
    };
    match unproven.prove(&token).await {
        Ok(access) => {
            socket.trust();
            queue(socket, &ServerFrame::AuthOk { session_id: access.credential_id() });
            Ok(access)
        }
        Err(refusal) => {
            words::error(socket, refusal.code(), &refusal.message());
            Err(End::Closed(refusal.close_code(), "not let in"))
        }
    }
}

/// Waits for the first text that says what a client wants, where nobody has to say who it is.
pub(in crate::dataplane) async fn first_text(socket: &mut Socket) -> Result<String, End> {
    next_text(socket, Instant::now() + START_WITHIN).await
}

/// Waits for the next text.
async fn next_text(socket: &mut Socket, within: Instant) -> Result<String, End> {
    loop {
        match next_message(socket, within).await? {
            Message::Text(text) => return Ok(text.to_string()),
            Message::Binary(_) => return Err(End::Closed(1003, "text frames only")),
            _ => {}
        }
    }
}

async fn next_message(socket: &mut Socket, within: Instant) -> Result<Message, End> {
    loop {
        match timeout_at(within, socket.step()).await {
            Ok(Step::Message(Message::Close(_))) => return Err(End::Peer),
            Ok(Step::Message(message)) => return Ok(message),
            Ok(Step::Flushed) => {}
            Ok(Step::Gone(gone)) => return Err(gone.into()),
            Err(_elapsed) => return Err(End::Closed(4408, "nothing came in time")),
        }
    }
}

/// Returns what a connection is closed with that gets nothing to watch.
pub(in crate::dataplane) fn close_code(code: ErrorCode) -> u16 {
    match code {
        ErrorCode::NotFound => 4404,
        ErrorCode::Conflict => 4409,
        ErrorCode::InvalidRequest => 4400,
        ErrorCode::CapabilityDenied => 4403,
        ErrorCode::InternalError => 1011,
        _ => 1013,
    }
}

impl Listener for Session {
    async fn hear(&mut self, message: &str, socket: &mut Socket) -> Heard {
        match serde_json::from_str::<ClientFrame<IgnoredAny>>(message) {
            Ok(ClientFrame::Auth { token }) => match self.renew(&token, socket).await {
                Ok(()) => Heard::Nothing,
                Err(end) => Heard::End(end),
            },
            Ok(frame) => self.heard(frame, socket),
            Err(_) => Self::refuse(socket, UNREADABLE),
        }
    }

    fn hear_bytes(&mut self, bytes: Vec<u8>, socket: &mut Socket) -> Heard {
        self.wish(Wish::Input(bytes), socket)
    }

    fn may_write(&self) -> bool {
        self.access.require(self.writes).is_ok()
    }

    fn report(&mut self) {
        if self.reported.elapsed() >= REPORT_EVERY {
            self.say_written();
        }
    }

    async fn wait(&mut self) -> Due {
        select! {
            () = self.access.until_expiring(self.warned_of) => Due::Warning,
            ended = self.access.until_ended() => cut(ended),
        }
    }

    fn tell(&mut self, due: Due, socket: &mut Socket) -> Option<End> {
        match due {
            Due::Warning => {
                self.warned_of = self.access.expires_at();
                let expires_at = self.warned_of.map(crate::clock::text);
                let expires_at = expires_at.unwrap_or_default();
                queue(socket, &ServerFrame::TokenExpiring { expires_at });
                None
            }
            Due::Cut(code, reason) => Some(End::Closed(code, reason)),
        }
    }
}

/// Says what a connection is cut for.
pub(in crate::dataplane) fn cut(ended: Ended) -> Due {
    match ended {
        Ended::Expired => Due::Cut(4401, "the token has expired"),
        Ended::Revoked => Due::Cut(4401, "the credential was revoked"),
    }
}

fn input(data: String, encoding: Encoding) -> Option<Vec<u8>> {
    match encoding {
        Encoding::Text => Some(data.into_bytes()),
        Encoding::Base64 => BASE64.decode(data).ok(),
        Encoding::Binary => None,
    }
}
