//! `WS /v1/exec/ws` and `WS /execute/ws`: the upgrade, who it is, and which command.

use std::time::Duration;

use api::{
    errors::ErrorCode,
    exec::{ClientFrame, Encoding, ServerFrame, Start},
    langsmith,
};
use axum::{
    extract::{Request, State},
    response::Response,
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use engine::sandboxes::attach::Attached;
use model::{
    sandbox::WhenStopped,
    spec::{OnFull, TerminalSize},
};
use tokio::{
    select,
    time::{Instant, timeout_at},
};
use tokio_tungstenite::tungstenite::Message;

use super::{
    conversation::{Conversation, Due, End, Heard, Listener, Wish, say_goodbye},
    from_wire,
    words::{self, Words, queue},
};
use crate::{
    dataplane::access::{Access, Ended, Unproven},
    http::{App, problem::ApiError},
    ws::{
        self,
        socket::{Socket, Step},
    },
};

/// The largest message of a client.
const MAX_MESSAGE: usize = 1 << 20;
/// The same before it has said who it is.
const MAX_BEFORE_AUTH: u64 = 64 << 10;
/// How long a client has to say who it is, and what it wants.
const AUTH_WITHIN: Duration = Duration::from_secs(5);
const START_WITHIN: Duration = Duration::from_mins(1);

/// Watches a command in the words of the session protocol.
pub(super) async fn session(
    State(app): State<App>,
    unproven: Unproven,
    request: Request,
) -> Result<Response, ApiError> {
    ws::upgrade_to(&app.clone(), request, async move |stream| {
        let mut socket = Socket::with_limit(stream, MAX_MESSAGE).await;
        let end = in_session(&app, unproven, &mut socket).await;
        say_goodbye(socket, end).await;
    })
}

/// Watches a command in LangSmith's words.
pub(super) async fn langsmith(
    State(app): State<App>,
    access: Access,
    request: Request,
) -> Result<Response, ApiError> {
    ws::upgrade_to(&app.clone(), request, async move |stream| {
        let mut socket = Socket::with_limit(stream, MAX_MESSAGE).await;
        let end = with_langsmith(&app, access, &mut socket).await;
        say_goodbye(socket, end).await;
    })
}

async fn in_session(app: &App, unproven: Unproven, socket: &mut Socket) -> End {
    let access = match unproven.shown().cloned() {
        Some(access) => access,
        None => match first_auth(&unproven, socket).await {
            Ok(access) => access,
            Err(end) => return end,
        },
    };
    let mut session = Session { unproven, access, is_warned: false };
    let start = match first_start(&mut session, socket).await {
        Ok(start) => start,
        Err(end) => return end,
    };
    let words = Words::session(start.encoding.unwrap_or_default());
    match begin(&session.access, &start).await {
        Ok(attached) => {
            let from = [start.stdout_offset, start.stderr_offset];
            let on_full = from_wire::on_full(start.on_full);
            let mut conversation = Conversation::new(app, attached, words, from, on_full);
            conversation.run(socket, &mut session).await
        }
        Err(error) => {
            words::error(socket, error.code(), error.message());
            End::Closed(close_code(error.code()), "the command is not there")
        }
    }
}

/// Waits for the frame that says who it is.
async fn first_auth(unproven: &Unproven, socket: &mut Socket) -> Result<Access, End> {
    let within = Instant::now() + AUTH_WITHIN;
    socket.distrust(MAX_BEFORE_AUTH);
    let text = next_text(socket, within).await?;
    let Ok(ClientFrame::Auth { token }) = serde_json::from_str(&text) else {
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

/// Waits for the frame that says which command, as long as the right to it lasts.
async fn first_start(session: &mut Session, socket: &mut Socket) -> Result<Start, End> {
    let within = Instant::now() + START_WITHIN;
    loop {
        let text = select! {
            biased;
            due = session.wait() => match session.tell(due, socket) {
                Some(end) => return Err(end),
                None => continue,
            },
            text = next_text(socket, within) => text?,
        };
        match serde_json::from_str(&text) {
            Ok(ClientFrame::Start(start)) => return Ok(*start),
            Ok(ClientFrame::Auth { token }) => session.renew(&token, socket).await?,
            Ok(ClientFrame::Ping { id }) => queue(socket, &ServerFrame::Pong { id }),
            Ok(ClientFrame::Close) => return Err(End::Closed(1000, "closed")),
            Ok(_) => {
                let message = "say start first";
                words::error(socket, ErrorCode::InvalidRequest, message);
            }
            Err(_) => {
                words::error(socket, ErrorCode::InvalidRequest, UNREADABLE);
                return Err(End::Closed(4400, "a frame that cannot be read"));
            }
        }
    }
}

const UNREADABLE: &str = "the frame is not one that this route takes";

/// Waits for the next text.
async fn next_text(socket: &mut Socket, within: Instant) -> Result<String, End> {
    loop {
        match timeout_at(within, socket.step()).await {
            Ok(Step::Message(Message::Text(text))) => return Ok(text.to_string()),
            Ok(Step::Message(Message::Binary(_))) => {
                return Err(End::Closed(1003, "text frames only"));
            }
            Ok(Step::Message(Message::Close(_))) => return Err(End::Peer),
            Ok(Step::Message(_) | Step::Flushed) => {}
            Ok(Step::Gone(gone)) => return Err(gone.into()),
            Err(_elapsed) => return Err(End::Closed(4408, "nothing came in time")),
        }
    }
}

async fn begin(access: &Access, start: &Start) -> Result<Attached, ApiError> {
    let (tenant, sandbox) = (access.tenant(), access.sandbox());
    let exec = from_wire::exec_id(start.exec_id.as_deref())?;
    match (exec, &start.command) {
        (Some(exec), None) => Ok(access.sandboxes().attach(tenant, sandbox, &exec).await?),
        (exec, _) => {
            let spec = from_wire::exec(start)?;
            let resume = WhenStopped::Resume;
            Ok(access.sandboxes().run(tenant, sandbox, exec, spec, resume).await?)
        }
    }
}

fn close_code(code: ErrorCode) -> u16 {
    match code {
        ErrorCode::NotFound => 4404,
        ErrorCode::Conflict => 4409,
        ErrorCode::InvalidRequest => 4400,
        ErrorCode::InternalError => 1011,
        _ => 1013,
    }
}

/// A client of the session protocol.
struct Session {
    unproven: Unproven,
    access: Access,
    is_warned: bool,
}

impl Session {
    async fn renew(&mut self, token: &str, socket: &mut Socket) -> Result<(), End> {
        match self.unproven.renew(&self.access, token).await {
            Ok(access) => {
                queue(socket, &ServerFrame::AuthOk { session_id: access.credential_id() });
                (self.access, self.is_warned) = (access, false);
                Ok(())
            }
            Err(refusal) => {
                words::error(socket, refusal.code(), &refusal.message());
                Err(End::Closed(4401, "not let in"))
            }
        }
    }

    fn refuse(socket: &mut Socket, message: &str) -> Heard {
        words::error(socket, ErrorCode::InvalidRequest, message);
        Heard::Nothing
    }
}

impl Listener for Session {
    async fn hear(&mut self, message: &str, socket: &mut Socket) -> Heard {
        match serde_json::from_str(message) {
            Ok(ClientFrame::Auth { token }) => match self.renew(&token, socket).await {
                Ok(()) => Heard::Nothing,
                Err(end) => Heard::End(end),
            },
            Ok(ClientFrame::Start(_)) => {
                words::error(socket, ErrorCode::Conflict, "this connection watches a command");
                Heard::End(End::Closed(4409, "start twice"))
            }
            Ok(ClientFrame::Stdin { data, encoding, eof }) => match input(data, encoding) {
                Some(bytes) if bytes.is_empty() && eof => Heard::Wish(Wish::CloseInput),
                Some(bytes) if !eof => Heard::Wish(Wish::Input(bytes)),
                Some(_) => Self::refuse(socket, "send eof in a frame without data"),
                None => Self::refuse(socket, "stdin is text, or base64 that says so"),
            },
            Ok(ClientFrame::Resize { rows, cols }) => {
                match (u32::try_from(rows), u32::try_from(cols)) {
                    (Ok(rows @ 1..=0xffff), Ok(cols @ 1..=0xffff)) => {
                        Heard::Wish(Wish::Resize(TerminalSize::clamped(rows, cols)))
                    }
                    _ => Self::refuse(socket, "rows and cols are from 1 to 65535"),
                }
            }
            Ok(ClientFrame::Signal { signal }) => match from_wire::signal(&signal) {
                Some(number) => Heard::Wish(Wish::Signal(number)),
                None => Self::refuse(socket, "there is no such signal here"),
            },
            Ok(ClientFrame::Ping { id }) => {
                queue(socket, &ServerFrame::Pong { id });
                Heard::Nothing
            }
            Ok(ClientFrame::Close) => Heard::End(End::Closed(1000, "closed")),
            Err(_) => Self::refuse(socket, UNREADABLE),
        }
    }

    async fn wait(&mut self) -> Due {
        select! {
            () = self.access.until_expiring(), if !self.is_warned => Due::Warning,
            ended = self.access.until_ended() => cut(ended),
        }
    }

    fn tell(&mut self, due: Due, socket: &mut Socket) -> Option<End> {
        match due {
            Due::Warning => {
                self.is_warned = true;
                let expires_at = self.access.expires_at().map(crate::clock::text);
                let expires_at = expires_at.unwrap_or_default();
                queue(socket, &ServerFrame::TokenExpiring { expires_at });
                None
            }
            Due::Cut(code, reason) => Some(End::Closed(code, reason)),
        }
    }
}

fn cut(ended: Ended) -> Due {
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

async fn with_langsmith(app: &App, access: Access, socket: &mut Socket) -> End {
    let words = Words::langsmith();
    let mut client = LangSmith { access };
    let first = select! {
        biased;
        due = client.wait() => Err(client.tell(due, socket).unwrap_or(End::Peer)),
        first = first_command(socket) => first,
    };
    let LangSmith { access } = client;
    let begun = match first {
        Ok(first) => begin_langsmith(&access, first).await,
        Err(end) => return end,
    };
    match begun {
        Ok((attached, from)) => {
            let mut conversation = Conversation::new(app, attached, words, from, OnFull::Wait);
            conversation.run(socket, &mut LangSmith { access }).await
        }
        Err(error) => {
            words.error(socket, error.code(), error.message());
            End::Closed(1000, "the command is not there")
        }
    }
}

/// Waits for the frame that says which command.
async fn first_command(socket: &mut Socket) -> Result<langsmith::ClientFrame, End> {
    let within = Instant::now() + START_WITHIN;
    let text = next_text(socket, within).await?;
    let frame = serde_json::from_str(&text);
    frame.map_err(|_unreadable| {
        Words::langsmith().error(socket, ErrorCode::InvalidRequest, UNREADABLE);
        End::Closed(1000, "a frame that cannot be read")
    })
}

async fn begin_langsmith(
    access: &Access,
    first: langsmith::ClientFrame,
) -> Result<(Attached, [u64; 2]), ApiError> {
    let (tenant, sandbox, sandboxes) = (access.tenant(), access.sandbox(), access.sandboxes());
    match first {
        langsmith::ClientFrame::Execute(asked) => {
            let exec = from_wire::exec_id(asked.command_id.as_deref())?;
            let spec = from_wire::execute(&asked)?;
            let resume = WhenStopped::Resume;
            Ok((sandboxes.run(tenant, sandbox, exec, spec, resume).await?, [0, 0]))
        }
        langsmith::ClientFrame::Reconnect(from) => {
            let missing = || ApiError::new(ErrorCode::NotFound, "there is no such command");
            let exec = from_wire::exec_id(Some(&from.command_id)).map_err(|_form| missing())?;
            let exec = exec.ok_or_else(missing)?;
            let attached = sandboxes.attach(tenant, sandbox, &exec).await?;
            Ok((attached, [from.stdout_offset, from.stderr_offset]))
        }
        langsmith::ClientFrame::Input { .. }
        | langsmith::ClientFrame::CloseStdin
        | langsmith::ClientFrame::Kill
        | langsmith::ClientFrame::Other => Err(ApiError::new(
            ErrorCode::InvalidRequest,
            "the first frame must be execute or reconnect",
        )),
    }
}

/// One of LangSmith's clients.
struct LangSmith {
    access: Access,
}

impl Listener for LangSmith {
    async fn hear(&mut self, message: &str, _: &mut Socket) -> Heard {
        match serde_json::from_str(message) {
            Ok(langsmith::ClientFrame::Input { data }) => {
                Heard::Wish(Wish::Input(data.into_bytes()))
            }
            Ok(langsmith::ClientFrame::CloseStdin) => Heard::Wish(Wish::CloseInput),
            Ok(langsmith::ClientFrame::Kill) => Heard::Wish(Wish::Kill),
            // Its clients pass over what they do not know, and so do we.
            Ok(_) | Err(_) => Heard::Nothing,
        }
    }

    async fn wait(&mut self) -> Due {
        cut(self.access.until_ended().await)
    }

    fn tell(&mut self, due: Due, _: &mut Socket) -> Option<End> {
        match due {
            Due::Warning => None,
            Due::Cut(code, reason) => Some(End::Closed(code, reason)),
        }
    }
}
