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
use store::keys::{KeyId, Revocation, Role};

use super::{
    App,
    problem::{ApiError, Body},
};
use crate::{
    auth::Admin,
    from_wire,
    keys::{NewKey, Secret},
    to_wire,
};

/// Names are shown in tables and logs.
const MAX_NAME_BYTES: usize = 128;

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
    let key = app.keyring.create(new_key(request)?, &secret).await?;
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

fn new_key(request: CreateKey) -> Result<NewKey, ApiError> {
    let actor_id = request.actor.as_ref().map(|actor| actor.id.as_str());
    let texts = [Some(request.name.as_str()), request.tenant.as_deref(), actor_id];
    for text in texts.into_iter().flatten() {
        if text.is_empty() || text.len() > MAX_NAME_BYTES || text.contains(char::is_control) {
            return Err(ApiError::new(
                ErrorCode::InvalidRequest,
                format!("names must be 1 to {MAX_NAME_BYTES} bytes without control characters"),
            ));
        }
    }
    let named = NewKey::named(&request.name, request.role.map_or(Role::User, from_wire::role))?;
    Ok(NewKey {
        tenant: request.tenant.unwrap_or(named.tenant),
        actor: request.actor.map_or(named.actor, from_wire::actor),
        ..named
    })
}
