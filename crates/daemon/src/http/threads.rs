//! `/threads/{thread_id}/sandbox…`: the same sessions, for a thread that is named by the path.

use api::{
    errors::ErrorCode,
    sessions::{AcquireThread, Beat, Heartbeat, RefreshThread, ThreadRefreshed, ThreadSandbox},
};
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use engine::sessions::Which;
use serde_json::json;

use super::{
    App,
    problem::{ApiError, Path},
    routes::Routes,
    sessions::{Desk, Destroyed, docs, from_wire, refusals::Names, to_wire},
    strict::MaybeObject,
};
use crate::{
    auth::Caller,
    dataplane::shape::Shape,
    openapi::{Doc, Opens, Tag, Tenancy},
    to_wire::coordinates,
    tokens::again::LastGiven,
};

pub(super) fn routes() -> Routes {
    // The names of threads are each tenant's own.
    let doc = |summary| Doc::new(Tag::Threads, summary).tenancy(Tenancy::Own);
    let known = |doc: Doc| {
        doc.refuses(&[ErrorCode::InvalidRequest, ErrorCode::Forbidden]).refuses(&docs::KNOWN)
    };
    let ended = |summary| known(doc(summary)).answers_nothing(204, "It is ended.");
    let acquired = docs::acquires(doc("Gives a thread its sandbox and a token"))
        .may_take::<AcquireThread>(&json!({"image": "host", "scopes": ["fs:ro"]}))
        .answers::<ThreadSandbox>(200, "The sandbox, and a token for it.");
    let refreshed = known(doc("Gives out the next token to whoever shows the one before"))
        .takes::<RefreshThread>(&json!({"current_token": "TOKEN"}))
        .answers::<ThreadRefreshed>(200, "The next token.")
        .refuses(&[ErrorCode::BindingSuperseded, ErrorCode::CapabilityDenied]);
    let kept = known(doc("Keeps the sandbox of a thread for another while"))
        .may_take::<Beat>(&json!({}))
        .answers::<Heartbeat>(200, "How long it is kept.");
    Routes::new(Shape::Envelope)
        .post("/threads/{thread_id}/sandbox", Opens::Key, acquired, acquire)
        .delete(
            "/threads/{thread_id}/sandbox",
            Opens::Key,
            ended("Ends the sandbox of a thread"),
            destroy,
        )
        .post("/threads/{thread_id}/sandbox/refresh", Opens::Key, refreshed, refresh)
        .post("/threads/{thread_id}/sandbox/heartbeat", Opens::Key, kept, heartbeat)
        .post(
            "/threads/{thread_id}/archive",
            Opens::Key,
            ended("Archives a thread: its sandbox ends"),
            end,
        )
        .delete("/threads/{thread_id}", Opens::Key, ended("Ends a thread, and its sandbox"), end)
}

/// Gives a thread its sandbox: the one that it has, or a new one.
async fn acquire(
    State(app): State<App>,
    caller: Caller,
    last_given: LastGiven,
    Path(id): Path<String>,
    headers: HeaderMap,
    MaybeObject(body): MaybeObject,
) -> Result<Json<ThreadSandbox>, ApiError> {
    let desk = Desk::of(&app, caller)?.after(last_given);
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
    let scope = from_wire::thread_scope(&id)?;
    let named = body.text("sandbox_id")?;
    let proof = from_wire::proof(&mut body)?;
    let proof = proof.ok_or_else(|| body.wrong("current_token", "must be the token so far"))?;
    let shown = desk.show(&Which::Scope(scope), Names::Session).await?;
    if named.is_some_and(|named| named != shown.session.sandbox.as_str()) {
        let message = "the thread has another sandbox now";
        let now = Box::new(coordinates(&shown.session, &app.base_url));
        return Err(ApiError::new(ErrorCode::BindingSuperseded, message).with_binding(Some(now)));
    }
    let lifetime = desk.thread_lifetime(None)?;
    let minted = desk.renew(&shown, Some(proof), lifetime).await?;
    Ok(Json(to_wire::thread_refreshed(&minted)))
}

async fn heartbeat(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    MaybeObject(_): MaybeObject,
) -> Result<Json<Heartbeat>, ApiError> {
    let which = Which::Scope(from_wire::thread_scope(&id)?);
    Desk::of(&app, caller)?.keep(&which, Names::Session).await.map(Json)
}

/// Ends the sandbox of a thread.
async fn destroy(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let (desk, scope) = (Desk::of(&app, caller)?, from_wire::thread_scope(&id)?);
    match desk.destroy(scope.clone()).await? {
        Destroyed::Session => Ok(StatusCode::NO_CONTENT),
        Destroyed::Nothing => desk.refuse_end(&scope),
    }
}

/// Ends a thread: its sandbox, if it has one.
async fn end(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    match Desk::of(&app, caller)?.destroy(from_wire::thread_scope(&id)?).await? {
        // Threads are not ours: one without a sandbox is as good as ended.
        Destroyed::Session | Destroyed::Nothing => Ok(StatusCode::NO_CONTENT),
    }
}
