//! `/threads/{thread_id}/sandbox…`: the same sessions, for a thread that is named by the path.

use api::{
    errors::ErrorCode,
    sessions::{Heartbeat, ThreadRefreshed, ThreadSandbox},
};
use axum::{
    Json, Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    routing::{delete, post},
};
use engine::sessions::{SessionError, Which};
use model::session::{Refusal, SessionEnd};

use super::{
    App,
    problem::ApiError,
    sessions::{Desk, from_wire, refusals::Names, to_wire},
    strict::MaybeObject,
};
use crate::{auth::Caller, to_wire::coordinates};

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/threads/{id}/sandbox", post(acquire).delete(destroy))
        .route("/threads/{id}/sandbox/refresh", post(refresh))
        .route("/threads/{id}/sandbox/heartbeat", post(heartbeat))
        .route("/threads/{id}/archive", post(end))
        .route("/threads/{id}", delete(end))
}

/// Gives a thread its sandbox: the one that it has, or a new one.
async fn acquire(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    MaybeObject(body): MaybeObject,
) -> Result<Json<ThreadSandbox>, ApiError> {
    let desk = Desk::of(&app, caller)?;
    let print = body.fingerprint(&format!("POST thread {id}"));
    let key = from_wire::request_key(&desk, &headers, print)?;
    let image = app.settings.sessions_image.as_deref();
    let asked = from_wire::thread(&desk, &id, body, key, image)?;
    let (acquired, minted) = desk.acquire(asked).await?;
    Ok(Json(to_wire::thread(&acquired.shown, &minted, acquired.hint, &app.base_url)))
}

/// Gives out the next token to whoever shows the one before.
async fn refresh(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    MaybeObject(mut body): MaybeObject,
) -> Result<Json<ThreadRefreshed>, ApiError> {
    let desk = Desk::of(&app, caller)?;
    let which = thread(&id)?;
    let named = body.text("sandbox_id")?;
    let proof = from_wire::proof(&mut body)?;
    let proof = proof.ok_or_else(|| body.wrong("current_token", "must be the token so far"))?;
    desk.reach(&which, Names::Session).await?;
    let shown = desk.sessions.show(&desk.tenant, &which).await;
    let shown = shown.map_err(|error| Names::Session.refuse(error))?;
    if named.is_some_and(|named| named != shown.session.sandbox.as_str()) {
        let message = "the thread has another sandbox now";
        let now = Box::new(coordinates(&shown.session, &app.base_url));
        return Err(ApiError::new(ErrorCode::BindingSuperseded, message).with_binding(Some(now)));
    }
    let minted = desk.renew(&shown, Some(proof)).await?;
    Ok(Json(to_wire::thread_refreshed(&minted)))
}

async fn heartbeat(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    MaybeObject(_): MaybeObject,
) -> Result<Json<Heartbeat>, ApiError> {
    let desk = Desk::of(&app, caller)?;
    let which = thread(&id)?;
    desk.reach(&which, Names::Session).await?;
    let shown = desk.sessions.heartbeat(&desk.tenant, &which).await;
    Ok(Json(to_wire::heartbeat(&shown.map_err(|error| Names::Session.refuse(error))?)))
}

/// Ends the sandbox of a thread.
async fn destroy(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let desk = Desk::of(&app, caller)?;
    let which = thread(&id)?;
    desk.reach(&which, Names::Session).await?;
    let destroyed = desk.sessions.destroy(&desk.tenant, &which, SessionEnd::Destroyed).await;
    destroyed.map_err(|error| Names::Session.refuse(error))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Ends a thread: its sandbox, if it has one.
async fn end(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let desk = Desk::of(&app, caller)?;
    let which = thread(&id)?;
    desk.reach(&which, Names::Session).await?;
    match desk.sessions.destroy(&desk.tenant, &which, SessionEnd::Destroyed).await {
        // Threads are not ours: one without a sandbox is as good as ended.
        Ok(()) | Err(SessionError::Refused(Refusal::NotFound)) => Ok(StatusCode::NO_CONTENT),
        Err(error) => Err(Names::Session.refuse(error)),
    }
}

fn thread(id: &str) -> Result<Which, ApiError> {
    from_wire::thread_scope(id).map(Which::Scope)
}
