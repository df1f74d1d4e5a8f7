//! `WS /v1/exec/ws` and `WS /execute/ws`: the upgrade, who it is, and which command.

use api::{
    errors::ErrorCode,
    exec::{ClientFrame, Start},
    langsmith,
};
use axum::{
    extract::{Request, State},
    response::Response,
};
use engine::sandboxes::attach::Attached;
use model::{capability::Capability, sandbox::WhenStopped, spec::OnFull};
use tokio::select;

use super::from_wire;
use crate::{
    dataplane::{
        access::{Access, Unproven},
        conversation::{
            Conversation, Due, Heard, Listener, Wish, converse,
            session::{Said, Session, close_code, cut, first_text},
            words::{self, Words},
        },
    },
    http::{App, problem::ApiError},
    ws::{end::End, socket::Socket},
};

/// Watches a command in the words of the session protocol.
pub(super) async fn session(
    State(app): State<App>,
    unproven: Unproven,
    request: Request,
) -> Result<Response, ApiError> {
    converse(&app.clone(), request, move |socket| {
        Box::pin(async move {
            match in_session(&app, unproven, socket).await {
                Ok(end) | Err(end) => end,
            }
        })
    })
}

/// Watches a command in LangSmith's words.
pub(super) async fn langsmith(
    State(app): State<App>,
    access: Access,
    request: Request,
) -> Result<Response, ApiError> {
    converse(&app.clone(), request, move |socket| {
        Box::pin(async move { with_langsmith(&app, access, socket).await })
    })
}

async fn in_session(app: &App, unproven: Unproven, socket: &mut Socket) -> Result<End, End> {
    let mut session = Session::open(unproven, Capability::Process, socket).await?;
    let start = first_start(&mut session, socket).await?;
    let words = Words::session(start.encoding.unwrap_or_default());
    match begin(session.access(), &start).await {
        Ok(attached) => {
            session.watches(&attached);
            let from = [start.stdout_offset, start.stderr_offset];
            let on_full = from_wire::on_full(start.on_full);
            let mut conversation = Conversation::new(app, attached, words, from, on_full);
            Ok(conversation.run(socket, &mut session).await)
        }
        Err(error) => {
            words::error(socket, error.code(), error.message());
            Err(End::Closed(close_code(error.code()), "the command is not there"))
        }
    }
}

/// Waits for the frame that says which command, as long as the right to it lasts.
async fn first_start(session: &mut Session, socket: &mut Socket) -> Result<Start, End> {
    loop {
        match session.first(socket).await? {
            Said::Frame(ClientFrame::Start(start)) => return Ok(*start),
            Said::Frame(_) => {
                Session::refuse(socket, "say start first");
            }
            Said::Bytes(_) => return Err(End::Closed(1003, "text frames only")),
            Said::Nonsense => return Err(Session::refuse_nonsense(socket)),
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
            let attached = access.sandboxes().run(tenant, sandbox, exec, spec, resume).await?;
            super::note(access, &attached);
            Ok(attached)
        }
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
    let text = first_text(socket).await?;
    let frame = serde_json::from_str(&text);
    frame.map_err(|_unreadable| {
        let message = "the frame is not one that this route takes";
        Words::langsmith().error(socket, ErrorCode::InvalidRequest, message);
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
            let attached = sandboxes.run(tenant, sandbox, exec, spec, resume).await?;
            super::note(access, &attached);
            Ok((attached, [0, 0]))
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

    fn hear_bytes(&mut self, bytes: Vec<u8>, _: &mut Socket) -> Heard {
        Heard::Wish(Wish::Input(bytes))
    }

    fn may_write(&self) -> bool {
        true
    }

    fn report(&mut self) {}

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
