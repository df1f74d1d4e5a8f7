//! Which request is being answered: its id is in the answer, the log and the audit log.

use std::cell::{Cell, RefCell};

use api::errors::ErrorCode;
use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderName, HeaderValue, header::CONNECTION},
    middleware::Next,
    response::Response,
};

use model::audit::{Action, Entry, Outcome};

use super::{
    App, hosts,
    problem::{ApiError, Told},
};
use crate::{audit::Audit, guesses, keys::random_hex, serve::Fault};

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

tokio::task_local! {
    static REQUEST: Context;
}

/// What is known of the request that is being answered.
struct Context {
    id: String,
    /// The credential that was accepted, as the audit log names it.
    subject: RefCell<Option<Box<Entry>>>,
    is_recorded: Cell<bool>,
}

impl Context {
    fn new(id: String) -> Self {
        Self { id, subject: RefCell::default(), is_recorded: Cell::new(false) }
    }
}

/// Notes which credential the request was accepted for.
pub(crate) fn identify(subject: Entry) {
    // Work outside of a request has no context.
    let _ = REQUEST.try_with(|request| request.subject.replace(Some(Box::new(subject))));
}

/// Notes that the audit log has a record of this request.
pub(crate) fn mark_recorded() {
    let _ = REQUEST.try_with(|request| request.is_recorded.set(true));
}

/// Answers a request under an id of its own. If the handler leaves no record of it, and it is `to_record`, it is
/// recorded here with its outcome: no handler can leave that out. Returns the id as well.
pub(crate) async fn recorded<T>(
    audit: &Audit,
    to_record: Option<&str>,
    work: impl Future<Output = T>,
    outcome: impl FnOnce(&T) -> (Outcome, Option<String>),
) -> (T, String) {
    let id = new_id();
    let work = async {
        let answer = work.await;
        let subject = REQUEST.with(|request| request.subject.take());
        let is_recorded = REQUEST.with(|request| request.is_recorded.get());
        if let (Some(route), Some(subject), false) = (to_record, subject, is_recorded) {
            let (outcome, reason) = outcome(&answer);
            let (action, object) = (Action::Access, Some(route.to_owned()));
            audit.note(Entry { action, outcome, object, reason, ..*subject });
        }
        answer
    };
    (REQUEST.scope(Context::new(id.clone()), work).await, id)
}

/// Gives a request its id. What a client sends as one is not taken: it could stand for another
/// request, or for more than an id (H22).
pub(super) async fn number(State(app): State<App>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().cloned();
    let path = path.as_ref().map_or("", MatchedPath::as_str).to_owned();
    let to_record = !request.method().is_safe() || path.starts_with("/dp/");
    let (mut answer, id) = recorded(
        &app.audit,
        to_record.then_some(path.as_str()),
        answer(&app, request, next),
        outcome,
    )
    .await;
    if let Ok(value) = HeaderValue::try_from(id) {
        answer.headers_mut().insert(X_REQUEST_ID, value);
    }
    answer
}

fn outcome(answer: &Response) -> (Outcome, Option<String>) {
    let outcome = match answer.status().as_u16() {
        ..400 => Outcome::Granted,
        400..500 => Outcome::Denied,
        500.. => Outcome::Failed,
    };
    let told = answer.extensions().get::<Told>();
    (outcome, told.map(|told| told.code.wire_name().to_owned()))
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
        Some(id) => REQUEST.scope(Context::new(id), work).await,
        None => work.await,
    }
}

fn new_id() -> String {
    format!("req_{}", random_hex(8).unwrap_or_default())
}

/// Returns the id of the request that is being answered. Tasks that outlive it have none.
pub(crate) fn id() -> Option<String> {
    REQUEST.try_with(|request| request.id.clone()).ok()
}

/// Returns the id of the request that is being answered, or a new one.
pub(crate) fn id_or_new() -> String {
    id().unwrap_or_else(new_id)
}
