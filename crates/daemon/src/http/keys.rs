//! `/v1/admin/keys`: create, list and revoke API keys.

use api::{
    errors::ErrorCode,
    keys::{CreateKey, CreatedKey, KeyList},
};
use axum::{Json, extract::State, http::StatusCode};
use model::audit::{Action, Entry};
use serde_json::json;
use store::keys::{ApiKey, KeyId, Revocation};

use super::{
    App,
    problem::{ApiError, Body, Path},
    routes::Routes,
};
use crate::{
    audit,
    auth::{Admin, Caller},
    dataplane::shape::Shape,
    keys::{NewKey, Secret},
    openapi::{Doc, Opens, Tag},
    to_wire,
};

pub(super) fn routes() -> Routes {
    let doc = |summary| Doc::new(Tag::Keys, summary);
    let listed =
        doc("Lists the keys of the tenant, revoked ones too; for the server's admins, all")
            .answers::<KeyList>(200, "The keys, oldest first.");
    let created = doc("Creates a key of the tenant; for the server's admins, of any")
        .refuses(&[ErrorCode::Forbidden])
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
    let new = app.audit.refusal(&entry, asked_for(&caller, request))?;
    let created = app.keyring.create_by(new, &secret, entry.clone()).await;
    let key = app.audit.refusal(&entry, created)?;
    let created = CreatedKey { key: to_wire::key(&key), secret: secret.reveal().to_owned() };
    Ok((StatusCode::CREATED, Json(created)))
}

/// Keys are made for the caller's own tenant, unless he manages the one that he names.
fn asked_for(caller: &Caller, request: CreateKey) -> Result<NewKey, ApiError> {
    let tenant = request.tenant.clone().unwrap_or_else(|| caller.tenant().to_owned());
    let new = NewKey::asked_for(CreateKey { tenant: Some(tenant), ..request })?;
    if caller.manages(&new.tenant) {
        return Ok(new);
    }
    Err(ApiError::new(
        ErrorCode::Forbidden,
        "keys of other tenants are made by admins of the server",
    ))
}

/// Lists the keys of the tenants that the caller manages, revoked ones too.
async fn list(State(app): State<App>, Admin(caller): Admin) -> Result<Json<KeyList>, ApiError> {
    let keys = app.keyring.list().await?;
    let keys = keys.iter().filter(|key| caller.manages(&key.tenant));
    Ok(Json(KeyList { keys: keys.map(to_wire::key).collect() }))
}

/// Revokes a key, and with it all tokens that were given out with it. Doing it twice is doing it once.
async fn revoke(
    State(app): State<App>,
    Admin(caller): Admin,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let entry = Entry { object: Some(id.clone()), ..audit::by(&caller, Action::KeyRevoke) };
    let is_managed = |key: &ApiKey| key.id.0 == id && caller.manages(&key.tenant);
    let revoked = if app.keyring.list().await?.iter().any(is_managed) {
        app.keyring.revoke_by(KeyId(id.clone()), entry.clone()).await
    } else {
        // What is another tenant's is not there.
        Ok(Revocation::NoSuchKey)
    };
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
