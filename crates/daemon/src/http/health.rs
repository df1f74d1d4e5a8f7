//! Is it alive, is it ready, how is it doing.

use api::errors::ErrorCode;
use axum::{
    Json, Router,
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::{Value, json};
use store::sandboxes::Health;

use super::{App, problem::ApiError};
use crate::serve::Phase;

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
}

/// Answers as long as the process can.
async fn healthz() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// Answers whether new work is taken.
async fn readyz(State(app): State<App>) -> Result<Json<Value>, ApiError> {
    if let Health::ReadOnly { report } = app.keyring.store_health() {
        let message = format!("the store takes no more writes: {report}; start the server anew");
        return Err(ApiError::new(ErrorCode::Unavailable, message));
    }
    match *app.phase.borrow() {
        Phase::Serving => Ok(Json(json!({"status": "ready"}))),
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
