//! Shells over WebSocket: `WS /v1/shell/ws`, and `WS /ws` as the token exchange has it.
//!
//! Whoever may use a shell joins one by its name, and it is started if it is not there. Whoever may
//! watch joins one that is there, and is sent away when it writes.

use api::{errors::ErrorCode, exec::ClientFrame, shell::Start};
use axum::{
    extract::{Request, State},
    response::Response,
};
use engine::sandboxes::{SandboxError, shells::Shell};
use model::{
    audit::Action, capability::Capability, ids::ShellName, sandbox::WhenStopped, spec::TerminalSize,
};

use super::{
    access::{Access, Unproven},
    conversation::{
        Conversation, Heard, Wish, converse,
        session::{Said, Session, close_code},
        words::{self, Screens, Words},
    },
    exec::from_wire,
    refusal::Refusal,
    routes::{Body, Method, Needs, Route, Routes, Spelling},
};
use crate::{
    http::{App, problem::ApiError},
    openapi::{Doc, Tag},
    ws::{end::End, socket::Socket},
};

pub(super) fn routes() -> Routes {
    let route = |spelling, path| Route {
        spelling,
        method: Method::Socket,
        path,
        needs: Needs::InBand(Capability::ShellObserve),
        body: Body::Message,
    };
    let doc =
        || Doc::new(Tag::Shells, "Joins a shell, which is started if it is not there").upgrades();
    Routes::default().with(route(Spelling::Session, "/shell/ws"), doc(), join).with(
        route(Spelling::Endpoint, "/ws"),
        doc(),
        join,
    )
}

async fn join(
    State(app): State<App>,
    unproven: Unproven,
    request: Request,
) -> Result<Response, ApiError> {
    converse(&app.clone(), request, move |socket| {
        Box::pin(async move {
            match serve(&app, unproven, socket).await {
                Ok(end) | Err(end) => end,
            }
        })
    })
}

async fn serve(app: &App, unproven: Unproven, socket: &mut Socket) -> Result<End, End> {
    let mut session = Session::open(unproven, Capability::Shell, socket).await?;
    let First { start, then } = first(&mut session, socket).await?;
    let screens = if start.knows_screens() { Screens::Frame } else { Screens::Output };
    let words = Words::shell(start.encoding.unwrap_or_default(), screens);
    match enter(session.access(), &start).await {
        Ok(shell) => {
            let exec = shell.attached.id().to_string();
            session.access().note(Action::ShellOpen, Some(&exec), None);
            session.watches(&shell.attached);
            let how = (words, start.stdout_offset);
            Ok(Conversation::run_shell(app, shell, how, then, socket, &mut session).await)
        }
        Err(error) => {
            words::error(socket, error.code(), error.message());
            Err(End::Closed(close_code(error.code()), "the shell is not there"))
        }
    }
}

/// Which shell a client joins, and what it wants there at once.
struct First {
    start: Start,
    then: Option<Wish>,
}

/// Waits until a client says which shell. Who just begins means the usual one.
async fn first(session: &mut Session, socket: &mut Socket) -> Result<First, End> {
    let usual = |then| First { start: Start::default(), then: Some(then) };
    loop {
        let heard = match session.first(socket).await? {
            Said::Frame(ClientFrame::Start(start)) => {
                return Ok(First { start: *start, then: None });
            }
            Said::Frame(ClientFrame::Signal { .. }) => Session::refuse(socket, "say start first"),
            Said::Frame(frame) => session.heard(frame, socket),
            Said::Bytes(bytes) => session.wish(Wish::Input(bytes), socket),
            Said::Nonsense => return Err(Session::refuse_nonsense(socket)),
        };
        match heard {
            Heard::Nothing => {}
            Heard::End(end) => return Err(end),
            Heard::Wish(Wish::Resize(size)) => return Ok(sized(size)),
            Heard::Wish(wish) => return Ok(usual(wish)),
        }
    }
}

/// One that is there gets the size as well, as by any other wish for it.
fn sized(size: TerminalSize) -> First {
    let (rows, cols) = (Some(size.rows.into()), Some(size.columns.into()));
    First { start: Start { rows, cols, ..Start::default() }, then: Some(Wish::Resize(size)) }
}

async fn enter(access: &Access, start: &Start) -> Result<Shell, ApiError> {
    let (tenant, sandbox, sandboxes) = (access.tenant(), access.sandbox(), access.sandboxes());
    if let Some(exec) = from_wire::exec_id(start.exec_id.as_deref())? {
        if start.name.is_some() || start.command.is_some() {
            let message = "exec_id is of a shell that is there: give no name and no command";
            return Err(ApiError::new(ErrorCode::InvalidRequest, message));
        }
        return Ok(sandboxes.join_shell_by_id(tenant, sandbox, &exec).await?);
    }
    let name = start.name.as_deref().map_or_else(|| Ok(ShellName::default()), str::parse);
    let invalid =
        |error: model::ids::IdError| ApiError::new(ErrorCode::InvalidRequest, error.to_string());
    let name: ShellName = name.map_err(invalid)?;
    let spec = from_wire::shell(start)?;
    if let Err(refusal) = access.require(Capability::Shell) {
        return match sandboxes.join_shell(tenant, sandbox, &name).await {
            Err(SandboxError::ShellNotFound) => Err(not_started(&refusal)),
            joined => Ok(joined?),
        };
    }
    let resume = WhenStopped::Resume;
    Ok(sandboxes.start_shell(tenant, sandbox, &name, spec, resume).await?)
}

/// There is no such shell, and whoever wants to watch it may not start it.
fn not_started(refusal: &Refusal) -> ApiError {
    let message = format!("the shell does not run, and to start it {}", refusal.message());
    ApiError::new(refusal.code(), message)
}
