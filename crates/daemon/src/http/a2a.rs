//! `GET /v1/sandbox/sessions/{id}/a2a`: a session as agents hand it on to each other by A2A.

use api::a2a::Task;
use axum::{
    Json, Router,
    extract::{Path, State},
    routing::get,
};

use super::{
    App,
    problem::ApiError,
    sessions::{Desk, refusals::Names, to_wire},
};
use crate::auth::Caller;

pub(super) fn router() -> Router<App> {
    Router::new().route("/v1/sandbox/sessions/{id}/a2a", get(show))
}

/// Shows a session as a task. No token is given out: whoever is handed it asks for one of his own.
async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Task>, ApiError> {
    let shown = Desk::of(&app, caller)?.find(&id, Names::Session).await?;
    Ok(Json(to_wire::task(&shown, &app.base_url)))
}
