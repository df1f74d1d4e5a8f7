//! `GET /v1/sandbox/sessions/{session_id}/a2a`: a session as agents hand it on to each other by A2A.

use api::a2a::Task;
use axum::{Json, extract::State};

use super::{
    App,
    problem::{ApiError, Path},
    routes::Routes,
    sessions::{Desk, docs::KNOWN, refusals::Names, to_wire},
};
use crate::{
    auth::Caller,
    dataplane::shape::Shape,
    openapi::{Doc, Opens, Tag},
};

pub(super) fn routes() -> Routes {
    let doc = Doc::new(Tag::Agents, "Shows a session as a task of A2A")
        .answers::<Task>(200, "The task. It has no token: whoever is handed it gets his own.")
        .refuses(&KNOWN);
    let path = "/v1/sandbox/sessions/{session_id}/a2a";
    Routes::new(Shape::Envelope).get(path, Opens::Key, doc, show)
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
