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
use model::audit::{Action, Entry};
use store::keys::{KeyId, Revocation};

use super::{
    App,
    problem::{ApiError, Body},
};
use crate::{
    audit,
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
    Admin(caller): Admin,
    Body(request): Body<CreateKey>,
) -> Result<(StatusCode, Json<CreatedKey>), ApiError> {
    let entry = audit::by(&caller, Action::KeyCreate);
    let secret = Secret::random()?;
    let new = app.audit.refusal(&entry, NewKey::asked_for(request))?;
    let created = app.keyring.create_by(new, &secret, entry.clone()).await;
    let key = app.audit.refusal(&entry, created)?;
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
    Admin(caller): Admin,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let entry = Entry { object: Some(id.clone()), ..audit::by(&caller, Action::KeyRevoke) };
    let revoked = app.keyring.revoke_by(KeyId(id), entry.clone()).await;
    match app.audit.refusal(&entry, revoked)? {
        Revocation::Done | Revocation::DoneBefore => Ok(StatusCode::NO_CONTENT),
        Revocation::NoSuchKey => {
            let missing = ApiError::new(ErrorCode::NotFound, "there is no such key");
            app.audit.refusal(&entry, Err(missing))
        }
    }
}
