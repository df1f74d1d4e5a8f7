//! `GET /v1/audit`: the audit log, for admins.

use api::{audit::AuditPage, errors::ErrorCode};
use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use serde_json::json;

use super::{App, problem::ApiError, routes::Routes};
use crate::{
    audit::Wanted,
    auth::Admin,
    dataplane::shape::Shape,
    openapi::{Doc, Opens, Tag},
};

pub(super) fn routes() -> Routes {
    let mut doc = Doc::new(Tag::Audit, "Reads what the audit log has of the tenant, newest first; for the server's admins, all of it")
        .answers::<AuditPage>(200, "A page of records.")
        .query("order", &json!({"type": "string", "enum": ["asc", "desc"]}), "`asc`: oldest first.")
        .query("limit", &json!({"type": "integer", "minimum": 0}), "What a page has at most.")
        .query(
            "outcome",
            &json!({"enum": ["granted", "denied", "failed"]}),
            "Only those that ended so.",
        );
    for (name, about) in FILTERS {
        doc = doc.query(name, &json!({"type": "string"}), about);
    }
    let doc = doc.refuses(&[ErrorCode::InvalidRequest]);
    Routes::new(Shape::Envelope).get("/v1/audit", Opens::Admin, doc, read)
}

const FILTERS: [(&str, &str); 10] = [
    ("cursor", "Where to go on, as the page before said."),
    ("action", "Only those of this action."),
    ("actor", "Only those of the actor of this id."),
    ("key_id", "Only those of this key."),
    ("tenant", "Only those of this tenant."),
    ("scope", "Only those of this scope."),
    ("session", "Only those of this session."),
    ("sandbox", "Only those of this sandbox."),
    ("jti", "Only those of this token."),
    ("request_id", "Only those of this request."),
];

async fn read(
    State(app): State<App>,
    Admin(caller): Admin,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<AuditPage>, ApiError> {
    let Query(wanted) = wanted.map_err(|_rejection| {
        ApiError::new(ErrorCode::InvalidRequest, "these are not parameters of this route")
    })?;
    Ok(Json(app.audit.read(&wanted, caller.confined_to()).await?))
}
