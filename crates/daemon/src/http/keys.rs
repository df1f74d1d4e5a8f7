//! `/v1/admin/keys`: create, list and revoke API keys.

use api::{
    errors::ErrorCode,
    keys::{CreateKey, CreatedKey, KeyList},
};
use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::{delete, get},
};
use store::keys::{KeyId, Revocation};

use super::{
    App,
    problem::{ApiError, Body},
};
use crate::{
    auth::Admin,
    keys::{NewKey, Secret},
    to_wire,
};

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/v1/admin/keys", get(list).post(create))
        .route("/v1/admin/keys/{id}", delete(revoke))
}

/// Creates a key. This answer is the only place where its secret is shown.
async fn create(
    State(app): State<App>,
    _: Admin,
    Body(request): Body<CreateKey>,
) -> Result<(StatusCode, Json<CreatedKey>), ApiError> {
    let secret = Secret::random()?;
    let key = app.keyring.create(NewKey::asked_for(request)?, &secret).await?;
    let created = CreatedKey { key: to_wire::key(&key), secret: secret.reveal().to_owned() };
    Ok((StatusCode::CREATED, Json(created)))
}

/// Lists all keys, revoked ones too.
async fn list(State(app): State<App>, _: Admin) -> Result<Json<KeyList>, ApiError> {
    let keys = app.keyring.list().await?;
    Ok(Json(KeyList { keys: keys.iter().map(to_wire::key).collect() }))
}

/// Revokes a key. Doing it twice is doing it once.
async fn revoke(
    State(app): State<App>,
    _: Admin,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    match app.keyring.revoke(KeyId(id)).await? {
        Revocation::Done | Revocation::DoneBefore => Ok(StatusCode::NO_CONTENT),
        Revocation::NoSuchKey => Err(ApiError::new(ErrorCode::NotFound, "there is no such key")),
    }
}
