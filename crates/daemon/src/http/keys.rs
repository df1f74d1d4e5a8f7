//! `/v1/admin/keys`: create, list and revoke API keys.

use api::{
    errors::ErrorCode,
    keys::{CreateKey, CreatedKey, KeyList},
};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use model::audit::{Action, Entry};
use serde_json::json;
use store::keys::{KeyId, Revocation};

use super::{
    App,
    problem::{ApiError, Body},
    routes::Routes,
};
use crate::{
    audit,
    auth::Admin,
    dataplane::shape::Shape,
    keys::{NewKey, Secret},
    openapi::{Doc, Opens, Tag, Tenancy},
    to_wire,
};

pub(super) fn routes() -> Routes {
    let doc = |summary| Doc::new(Tag::Keys, summary).tenancy(Tenancy::Server);
    let listed =
        doc("Lists all keys, revoked ones too").answers::<KeyList>(200, "All keys, oldest first.");
    let created = doc("Creates a key")
        .takes::<CreateKey>(&json!({"name": "laptop", "role": "user"}))
        .answers::<CreatedKey>(201, "The key. Its secret is shown this once.");
    let revoked = doc("Revokes a key; what it has opened closes, and tokens of it end")
        .answers_nothing(204, "It opens nothing any more.")
        .refuses(&[ErrorCode::NotFound]);
    Routes::new(Shape::Envelope)
        .get("/v1/admin/keys", Opens::Admin, listed, list)
        .post("/v1/admin/keys", Opens::Admin, created, create)
        .delete("/v1/admin/keys/{key_id}", Opens::Admin, revoked, revoke)
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

/// Revokes a key, and with it all tokens that were given out with it. Doing it twice is doing it once.
async fn revoke(
    State(app): State<App>,
    Admin(caller): Admin,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let entry = Entry { object: Some(id.clone()), ..audit::by(&caller, Action::KeyRevoke) };
    let revoked = app.keyring.revoke_by(KeyId(id.clone()), entry.clone()).await;
    match app.audit.refusal(&entry, revoked)? {
        Revocation::Done | Revocation::DoneBefore => {
            app.tokens.iter().for_each(|tokens| tokens.end_key(&id));
            Ok(StatusCode::NO_CONTENT)
        }
        Revocation::NoSuchKey => {
            let missing = ApiError::new(ErrorCode::NotFound, "there is no such key");
            app.audit.refusal(&entry, Err(missing))
        }
    }
}
