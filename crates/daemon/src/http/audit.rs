//! `GET /v1/audit`: the audit log, for admins.

use api::{audit::AuditPage, errors::ErrorCode};
use axum::{
    Json, Router,
    extract::{Query, State, rejection::QueryRejection},
    routing::get,
};

use super::{App, problem::ApiError};
use crate::{audit::Wanted, auth::Admin};

pub(super) fn router() -> Router<App> {
    Router::new().route("/v1/audit", get(read))
}

async fn read(
    State(app): State<App>,
    _: Admin,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<AuditPage>, ApiError> {
    let Query(wanted) = wanted.map_err(|_rejection| {
        ApiError::new(ErrorCode::InvalidRequest, "these are not parameters of this route")
    })?;
    Ok(Json(app.audit.read(&wanted).await?))
}
