//! Is it alive, is it ready, how is it doing.

use api::{errors::ErrorCode, health::Health};
use axum::{
    Json,
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use store::sandboxes::Health as StoreHealth;

use super::{App, problem::ApiError, routes::Routes};
use crate::{
    dataplane::shape::Shape,
    openapi::{Doc, Opens, Tag},
    serve::Phase,
};

pub(super) fn routes() -> Routes {
    let alive = Doc::new(Tag::Server, "Answers as long as the process can")
        .answers::<Health>(200, "It lives.");
    let ready = Doc::new(Tag::Server, "Answers whether new work is taken")
        .answers::<Health>(200, "It is.")
        .refuses(&[ErrorCode::Unavailable]);
    let counted = Doc::new(Tag::Server, "Returns all counters: docs/metrics.md").answers_as(
        200,
        "Prometheus' text format.",
        "text/plain",
    );
    Routes::new(Shape::Envelope)
        .get("/healthz", Opens::Public, alive, healthz)
        .get("/readyz", Opens::Public, ready, readyz)
        .get("/metrics", Opens::Public, counted, metrics)
}

/// Answers as long as the process can.
async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Answers whether new work is taken.
async fn readyz(State(app): State<App>) -> Result<Json<Health>, ApiError> {
    if let StoreHealth::ReadOnly { report } = app.keyring.store_health() {
        let message = format!("the store takes no more writes: {report}; start the server anew");
        return Err(ApiError::new(ErrorCode::Unavailable, message));
    }
    match *app.phase.borrow() {
        Phase::Serving => Ok(Json(Health { status: "ready" })),
        Phase::Draining | Phase::Closing => {
            Err(ApiError::new(ErrorCode::Unavailable, "the server is shutting down"))
        }
    }
}

/// Returns all counters in Prometheus' text format.
async fn metrics(State(app): State<App>) -> Response {
    let text = app.metrics.render(app.executor.load(), &app.executor.pools());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
