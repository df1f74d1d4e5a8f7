//! Which request is being answered: its id is in the answer, the log and the audit log.

use api::errors::ErrorCode;
use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderName, HeaderValue, header::CONNECTION},
    middleware::Next,
    response::Response,
};

use super::{App, hosts, problem::ApiError};
use crate::{guesses, keys::random_hex, serve::Fault};

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

tokio::task_local! {
    static REQUEST: String;
}

/// Gives a request its id. What a client sends as one is not taken: it could stand for another
/// request, or for more than an id (H22).
pub(super) async fn number(State(app): State<App>, request: Request, next: Next) -> Response {
    let id = new_id();
    let mut answer = REQUEST.scope(id.clone(), answer(&app, request, next)).await;
    if let Ok(value) = HeaderValue::try_from(id) {
        answer.headers_mut().insert(X_REQUEST_ID, value);
    }
    answer
}

/// Answers a request, unless its head is none or it is of somebody who shows too much that is wrong.
async fn answer(app: &App, mut request: Request, next: Next) -> Response {
    if let Some(fault) = request.extensions().get::<Fault>() {
        return refuse_head(&request, *fault);
    }
    let Some(guest) = app.strangers.guest(&request) else { return next.run(request).await };
    let path = request.extensions().get::<MatchedPath>().cloned();
    request.extensions_mut().insert(guest.clone());
    let judged = guest.judge(next.run(request)).await;
    judged.unwrap_or_else(|_wait| hosts::refuse_at(path.as_ref(), guesses::too_many()))
}

/// Answers a request of which only the beginning is known, and maybe not even that. Nothing is read after it.
fn refuse_head(request: &Request, fault: Fault) -> Response {
    let mut answer = hosts::refuse(request, fault);
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

impl From<Fault> for ApiError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Malformed(what) => {
                let message = format!("this is no request of HTTP/1.1: {what}");
                Self::new(ErrorCode::InvalidRequest, message)
            }
            Fault::TooLarge => {
                let message = "the first line and the headers are too large, or too many";
                Self::new(ErrorCode::HeadersTooLarge, message)
            }
        }
    }
}

/// Does something as a part of the request of this id, in another task than its own.
pub(crate) async fn within<F: Future>(id: Option<String>, work: F) -> F::Output {
    match id {
        Some(id) => REQUEST.scope(id, work).await,
        None => work.await,
    }
}

fn new_id() -> String {
    format!("req_{}", random_hex(8).unwrap_or_default())
}

/// Returns the id of the request that is being answered. Tasks that outlive it have none.
pub(crate) fn id() -> Option<String> {
    REQUEST.try_with(Clone::clone).ok()
}

/// Returns the id of the request that is being answered, or a new one.
pub(crate) fn id_or_new() -> String {
    id().unwrap_or_else(new_id)
}
