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
use engine::sandboxes::files::{Files, Place};
use model::{
    audit::{Action, Entry},
    capability::Capability,
    sandbox::WhenStopped,
};

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

/// What is done to a file, as the audit log says it.
struct Operation {
    action: Action,
    what: &'static str,
    /// From the root of the sandbox.
    path: String,
}

impl Operation {
    fn read(what: &'static str, place: &Place) -> Self {
        Self { action: Action::FileRead, what, path: path_of(place) }
    }

    fn list(what: &'static str, place: &Place) -> Self {
        Self { action: Action::FileList, what, path: path_of(place) }
    }

    fn write(what: &'static str, place: &Place) -> Self {
        Self { action: Action::FileWrite, what, path: path_of(place) }
    }

    fn rename(from: &Place, to: &Place) -> Self {
        let path = format!("{} to {}", path_of(from), path_of(to));
        Self { action: Action::FileWrite, what: "moved", path }
    }
}

fn path_of(place: &Place) -> String {
    shown::text(place.path().as_bytes())
}

/// Carries out one operation on the files that this right is for, and records it with its outcome. There is no other way
/// to the files. Using them resumes a sandbox that was stopped.
async fn operate<T, Work>(
    access: &Access,
    operation: Operation,
    act: impl FnOnce(Files) -> Work,
) -> Result<T, ApiError>
where
    Work: Future<Output = Result<T, ApiError>>,
{
    let (tenant, sandbox) = (access.tenant(), access.sandbox().as_str());
    let files = access.sandboxes().files(tenant, sandbox, WhenStopped::Resume).await;
    let done = match files.map_err(reading) {
        Ok(files) => act(files).await,
        Err(error) => Err(error),
    };
    let Operation { action, what, path } = operation;
    if action == Action::FileWrite && done.is_ok() {
        let credential = access.credential_id();
        tracing::info!(%sandbox, credential, what, "files changed");
    }
    let (object, reason) = (Some(path), Some(what.to_owned()));
    access.note_outcome(Entry { object, reason, ..access.entry(action) }, &done);
    done
}

/// Refuses parameters on routes that have none but these.
fn parameters(uri: &Uri, known: &[&str]) -> Result<place::Parameters, ApiError> {
    place::Parameters::read(uri, known)
}
