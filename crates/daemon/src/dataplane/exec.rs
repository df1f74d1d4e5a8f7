//! Commands in a sandbox: run one and wait, or watch it over a WebSocket or an event stream.
//!
//! One implementation in two spellings, that of the session protocol (`/v1/exec…`) and LangSmith's
//! (`/execute…`). Whoever is cut off goes on at the byte where it was.

mod docs;
mod events;
pub(super) mod from_wire;
pub(crate) mod once;
mod socket;
pub(super) mod to_wire;

use engine::sandboxes::attach::Attached;
use model::{audit::Action, capability::Capability};

use super::{
    access::Access,
    routes::{Body, Method, Needs, Route, Routes, Spelling},
};

pub(super) fn routes() -> Routes {
    use Method::{Delete, Get, Post, Socket};
    use Spelling::{LangSmith, Session};
    let process = Needs::Capability(Capability::Process);
    let route = |spelling, method, path, needs| Route {
        spelling,
        method,
        path,
        needs,
        body: Body::Message,
    };
    Routes::default()
        .with(route(Session, Post, "/exec", process), docs::exec(), once::exec)
        .with(
            route(Session, Socket, "/exec/ws", Needs::InBand(Capability::Process)),
            docs::socket(),
            socket::session,
        )
        .with(route(Session, Get, "/exec/{exec_id}", process), docs::show(), once::show)
        .with(route(Session, Delete, "/exec/{exec_id}", process), docs::cancel(), once::cancel)
        .with(
            route(Session, Get, "/exec/{exec_id}/{stream}", process),
            docs::output(),
            once::output,
        )
        .with(route(LangSmith, Post, "/execute", process), docs::execute(), once::execute)
        .with(route(LangSmith, Socket, "/execute/ws", process), docs::socket(), socket::langsmith)
        .with(
            route(LangSmith, Post, "/execute/stream/start", process),
            docs::start(),
            events::start,
        )
        .with(
            route(LangSmith, Post, "/execute/stream/resume", process),
            docs::resume(),
            events::resume,
        )
}

/// Has it recorded who started a command. What it is, is the user's business.
fn note(access: &Access, attached: &Attached) {
    access.note(Action::ExecStart, Some(attached.id().as_str()), None);
}
