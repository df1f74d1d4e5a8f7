//! Files of a sandbox, in three spellings over one implementation.

mod conditional;
mod docs;
mod download;
mod errors;
mod multipart;
mod place;
pub(crate) mod search;
mod shown;
pub(crate) mod tree;
mod upload;
mod watch;
pub(crate) mod whole;

use axum::http::Uri;
use engine::sandboxes::files::Files;
use model::{audit::Action, capability::Capability, sandbox::WhenStopped};

use super::{
    access::Access,
    routes::{Body, Method, Needs, Route, Routes, Spelling},
};
use crate::http::problem::ApiError;
use errors::reading;

pub(super) fn routes() -> Routes {
    use Method::{Delete, Get, Post, Put};
    use Spelling::{Endpoint, LangSmith, Link, Session};
    let reads = |spelling, method, path| Route {
        spelling,
        method,
        path,
        needs: Needs::Capability(Capability::FsRead),
        body: Body::Message,
    };
    let writes = |spelling, method, path| Route {
        needs: Needs::Capability(Capability::FsWrite),
        ..reads(spelling, method, path)
    };
    let takes =
        |spelling, method, path| Route { body: Body::Streamed, ..writes(spelling, method, path) };
    Routes::default()
        .with(reads(Endpoint, Get, "/files/{*path}"), docs::read_url(), download::by_url)
        .with(takes(Endpoint, Put, "/files/{*path}"), docs::write_url(), upload::by_url)
        .with(writes(Endpoint, Delete, "/files/{*path}"), docs::remove(), tree::remove)
        .with(takes(Session, Post, "/files/upload"), docs::write(), upload::by_parameter)
        .with(reads(Session, Get, "/files/download"), docs::read(), download::by_parameter)
        .with(reads(Session, Get, "/files/list"), docs::list(), tree::list)
        .with(reads(Session, Get, "/files/stat"), docs::stat(), tree::stat)
        .with(writes(Session, Post, "/files/mkdir"), docs::make_directory(), tree::make_directory)
        .with(writes(Session, Post, "/files/move"), docs::rename(), tree::rename)
        .with(writes(Session, Post, "/files/edit"), docs::edit(), tree::edit)
        .with(reads(Session, Post, "/files/glob"), docs::glob(), search::glob)
        .with(reads(Session, Post, "/files/grep"), docs::grep(), search::grep)
        .with(reads(Session, Get, "/files/watch"), docs::watch(), watch::watch)
        .with(takes(LangSmith, Post, "/upload"), docs::write(), upload::by_parameter)
        .with(reads(LangSmith, Get, "/download"), docs::read(), download::by_parameter)
        .with(reads(Link, Get, "/link/{token}"), docs::read_link(), download::by_link)
        .with(reads(LangSmith, Post, "/glob"), docs::glob(), search::glob)
        .with(reads(LangSmith, Post, "/grep"), docs::grep(), search::grep)
}

/// Returns the files that this right is for. Using them resumes a sandbox that was stopped.
async fn files(access: &Access) -> Result<Files, ApiError> {
    let (tenant, sandbox) = (access.tenant(), access.sandbox().as_str());
    access.sandboxes().files(tenant, sandbox, WhenStopped::Resume).await.map_err(reading)
}

/// Refuses parameters on routes that have none but these.
fn parameters(uri: &Uri, known: &[&str]) -> Result<place::Parameters, ApiError> {
    place::Parameters::read(uri, known)
}

/// Says who has changed a file. Which one it was is the user's business.
fn note(access: &Access, what: &'static str) {
    access.note(Action::FileWrite, None, Some(what));
    tracing::info!(
        sandbox = %access.sandbox(), credential = access.credential_id(), what, "files changed"
    );
}
