//! Tokens for the sandboxes of the caller's tenant: given out, looked at, and ended.

use api::{
    errors::ErrorCode,
    tokens::{
        Introspection, MintToken, MintedToken, RevokeTokens, RotateMasterKey, RotatedKey,
        RotatedMasterKey,
    },
};
use axum::{Json, extract::State, http::StatusCode};
use model::{
    audit::{Action, Entry},
    capability::{Asked, CapabilityError},
    holder::{Lacks, OutOfReach},
    ids::{SandboxId, Tenant},
    policy::TtlError,
    reach::{Reach, ReachError},
    text::check_name,
};
use serde_json::json;

use super::{
    App,
    problem::{ApiError, Body, Path},
    routes::Routes,
};
use crate::{
    audit,
    auth::{Admin, Caller, Operator},
    clock,
    dataplane::{access::Plane, refusal::Refusal, shape::Shape},
    from_wire,
    openapi::{Doc, Opens, Tag, Tenancy},
    to_wire,
    tokens::{
        SignError,
        masters::{ChangeError, Overlap},
        mint::{MintError, Minted, Wish, mint},
    },
};

pub(super) fn routes() -> Routes {
    let minted = |summary| {
        Doc::new(Tag::Tokens, summary)
            .takes::<MintToken>(
                &json!({"sandbox": "SANDBOX", "scope": "fs:ro", "ttl_seconds": 300}),
            )
            .tenancy(Tenancy::Hidden)
            .answers::<MintedToken>(201, "The token. It is shown this once.")
            .refuses(&[ErrorCode::NotFound, ErrorCode::CapabilityDenied, ErrorCode::InvalidPath])
    };
    let given_out = minted("Gives out a token for a sandbox");
    let given_to_user = minted("Gives out a token for a sandbox that the key may use");
    let revoked = Doc::new(Tag::Tokens, "Ends one token of a sandbox, or all of an actor")
        .takes::<RevokeTokens>(&json!({"sandbox": "SANDBOX", "jti": "tok_0"}))
        .tenancy(Tenancy::Hidden)
        .answers_nothing(204, "It opens nothing any more.")
        .refuses(&[ErrorCode::NotFound]);
    let rotated = Doc::new(Tag::Tokens, "Ends all tokens of a sandbox, by giving it another key")
        .answers::<RotatedKey>(200, "The key that it has now.")
        .refuses(&[ErrorCode::NotFound]);
    let looked = Doc::new(Tag::Tokens, "Tells what a token says that is good now")
        .answers::<Introspection>(200, "What it says.")
        .refuses(&[ErrorCode::NotFound]);
    let master_rotated = Doc::new(Tag::Tokens, "Gives the server itself another key")
        .takes::<RotateMasterKey>(&json!({"at_once": false}))
        .tenancy(Tenancy::Server)
        .answers::<RotatedMasterKey>(200, "The key that it has now.")
        .refuses(&[ErrorCode::NotFound, ErrorCode::Conflict]);
    let rotate_path = "/v1/admin/sandboxes/{sandbox}/rotate-key";
    Routes::new(Shape::Envelope)
        .post("/v1/tokens", Opens::Key, given_to_user, give_to_user)
        .post("/v1/admin/tokens", Opens::Admin, given_out, give_out)
        .post("/v1/admin/tokens/revoke", Opens::Admin, revoked, revoke)
        .post(rotate_path, Opens::Admin, rotated, rotate)
        .post("/v1/admin/master-key/rotate", Opens::Admin, master_rotated, rotate_master)
        .get("/internal/tokens/{token}", Opens::Admin, looked, look)
}

/// Gives out a token. This answer is the only place where it is shown.
async fn give_out(
    State(app): State<App>,
    Admin(caller): Admin,
    Body(request): Body<MintToken>,
) -> Result<(StatusCode, Json<MintedToken>), ApiError> {
    grant(&app, &caller, request).await
}

/// Does the same for a key of any role: the sandbox must be one that the key may use, and the token has no more
/// rights than the key.
async fn give_to_user(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<MintToken>,
) -> Result<(StatusCode, Json<MintedToken>), ApiError> {
    grant(&app, &caller, request).await
}

async fn grant(
    app: &App,
    caller: &Caller,
    request: MintToken,
) -> Result<(StatusCode, Json<MintedToken>), ApiError> {
    let entry = audit::by(caller, Action::TokenMint);
    let minted = app.audit.refusal(&entry, make(app, caller, request).await)?;
    app.audit.record(audit::granting(entry, &minted.claims)).await?;
    Ok((StatusCode::CREATED, Json(to_wire::minted(&minted, &app.base_url))))
}

async fn make(app: &App, caller: &Caller, request: MintToken) -> Result<Minted, ApiError> {
    let (plane, sandbox) = find(app, caller, &request.sandbox).await?;
    let asked = request.scope.as_deref().map(Asked::scope).transpose()?;
    let reach = match &request.paths {
        Some(paths) => Reach::below(paths)?,
        None => Reach::Everywhere,
    };
    let lifetime = caller.policy().lifetime(request.ttl_seconds)?;
    if let Some(actor) = &request.actor {
        check_name(&actor.id)?;
    }
    let wish = Wish {
        generation: plane.sessions.generation(&sandbox),
        sandbox,
        actor: request.actor.map(from_wire::actor),
        asked,
        reach,
        lifetime,
        thread: None,
        format: request.format.map(from_wire::format),
    };
    Ok(mint(&plane.tokens, caller, wish).await?)
}

/// Gives a sandbox another key: no token of it is worth anything any more.
async fn rotate(
    State(app): State<App>,
    Admin(caller): Admin,
    Path(name): Path<String>,
) -> Result<Json<RotatedKey>, ApiError> {
    let (plane, sandbox) = find(&app, &caller, &name).await?;
    let epoch = plane.tokens.rotate(&sandbox).await?;
    let sandbox_id = Some(sandbox.to_string());
    app.audit.note(Entry { sandbox: sandbox_id, ..audit::by(&caller, Action::TokenRotate) });
    Ok(Json(RotatedKey { sandbox_id: sandbox.to_string(), key_epoch: epoch.0 }))
}

/// Gives the server itself another key, with or without a time in which the one before stays good.
async fn rotate_master(
    State(app): State<App>,
    Operator(caller): Operator,
    Body(RotateMasterKey { at_once }): Body<RotateMasterKey>,
) -> Result<Json<RotatedMasterKey>, ApiError> {
    let entry = audit::by(&caller, Action::TokenRotate);
    let entry = Entry { reason: at_once.then(|| "at once".to_owned()), ..entry };
    let tokens = app.tokens.as_ref().ok_or_else(no_sandbox)?;
    let overlap = if at_once { Overlap::None } else { Overlap::Day };
    let changed = app.audit.refusal(&entry, tokens.change_master(overlap).await)?;
    app.audit.note(Entry { object: Some(format!("master key {}", changed.number)), ..entry });
    let previous_until = changed.previous_until.map(|until| clock::text(until.into()));
    Ok(Json(RotatedMasterKey { key: changed.number, previous_until }))
}

/// Ends one token, or all of an actor.
async fn revoke(
    State(app): State<App>,
    Admin(caller): Admin,
    Body(request): Body<RevokeTokens>,
) -> Result<StatusCode, ApiError> {
    let (plane, sandbox) = find(&app, &caller, &request.sandbox).await?;
    let sandbox_id = Some(sandbox.to_string());
    let mut entry = Entry { sandbox: sandbox_id, ..audit::by(&caller, Action::TokenRevoke) };
    match (&request.jti, request.actor) {
        (Some(jti), None) => {
            check_name(jti)?;
            plane.tokens.revoke(&sandbox, jti).await?;
            entry.jti = Some(jti.clone());
        }
        (None, Some(actor)) => {
            check_name(&actor.id)?;
            let actor = from_wire::actor(actor);
            plane.tokens.revoke_actor(&sandbox, &actor).await?;
            entry.object = Some(format!("{}:{}", actor.kind.text(), actor.id));
        }
        (Some(_), Some(_)) | (None, None) => {
            return Err(ApiError::new(ErrorCode::InvalidRequest, "name a jti or an actor"));
        }
    }
    app.audit.note(entry);
    Ok(StatusCode::NO_CONTENT)
}

/// Tells what a token says that opens a sandbox of the caller's tenant now.
async fn look(
    State(app): State<App>,
    Admin(caller): Admin,
    Path(token): Path<String>,
) -> Result<Json<Introspection>, ApiError> {
    let no_token = || ApiError::new(ErrorCode::NotFound, "there is no such token");
    match introspect(&app, &caller, &token).await? {
        told @ Introspection { active: true, .. } => Ok(Json(told)),
        Introspection { active: false, .. } => Err(no_token()),
    }
}

/// Says what a token is worth to whoever has a key of the sandbox's tenant.
pub(super) async fn introspect(
    app: &App,
    caller: &Caller,
    token: &str,
) -> Result<Introspection, ApiError> {
    let Some(plane) = app.plane() else { return Ok(Introspection::default()) };
    match plane.examine(token).await {
        Ok(access) if access.tenant().as_str() == caller.tenant() => {
            let token = access.token().map(|held| to_wire::said(held.claims()));
            Ok(Introspection { active: token.is_some(), token })
        }
        Err(Refusal::Unclear(error)) => Err(error.into()),
        Ok(_) | Err(_) => Ok(Introspection::default()),
    }
}

/// Returns a sandbox of the caller's tenant that has not come to its end, and that he reaches.
pub(super) async fn find(
    app: &App,
    caller: &Caller,
    name: &str,
) -> Result<(Plane, SandboxId), ApiError> {
    let plane = app.plane().ok_or_else(no_sandbox)?;
    let sandbox = plane.sandboxes.unended(&tenant_of(caller)?, name).await?.id;
    plane.sessions.reach_sandbox(&sandbox, caller.as_holder())?;
    Ok((plane, sandbox))
}

fn tenant_of(caller: &Caller) -> Result<Tenant, ApiError> {
    let no_tenant = |_bad_name| ApiError::new(ErrorCode::Forbidden, "the key belongs to no tenant");
    caller.tenant().parse().map_err(no_tenant)
}

fn no_sandbox() -> ApiError {
    ApiError::new(ErrorCode::NotFound, "there is no such sandbox")
}

impl From<CapabilityError> for ApiError {
    fn from(error: CapabilityError) -> Self {
        Self::new(ErrorCode::InvalidRequest, error.to_string())
    }
}

impl From<OutOfReach> for ApiError {
    fn from(error: OutOfReach) -> Self {
        Self::new(ErrorCode::Forbidden, error.to_string())
    }
}

impl From<Lacks> for ApiError {
    fn from(error: Lacks) -> Self {
        Self::new(ErrorCode::CapabilityDenied, error.to_string())
    }
}

impl From<TtlError> for ApiError {
    fn from(error: TtlError) -> Self {
        Self::new(ErrorCode::InvalidRequest, error.to_string())
    }
}

impl From<ReachError> for ApiError {
    fn from(error: ReachError) -> Self {
        let code = match error {
            ReachError::Folder(_) => ErrorCode::InvalidPath,
            ReachError::Count => ErrorCode::InvalidRequest,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::TooMany { .. } => Self::new(ErrorCode::Conflict, error.to_string()),
            ChangeError::Random(error) => error.into(),
            ChangeError::File(_) | ChangeError::BrokeOff => Self::internal(&error),
        }
    }
}

impl From<MintError> for ApiError {
    fn from(error: MintError) -> Self {
        match error {
            MintError::NotYourself(_) => Self::new(ErrorCode::Forbidden, error.to_string()),
            MintError::Nothing(_) => Self::new(ErrorCode::CapabilityDenied, error.to_string()),
            MintError::Sign(SignError::TooLong) => {
                Self::new(ErrorCode::InvalidRequest, error.to_string())
            }
            MintError::Sign(error @ SignError::Claims(_)) => Self::internal(&error),
            MintError::Format | MintError::Wider(_) => {
                Self::new(ErrorCode::InvalidRequest, error.to_string())
            }
            MintError::Ended => Self::new(ErrorCode::Unauthenticated, error.to_string()),
            MintError::Store(error) => error.into(),
            MintError::Random(error) => error.into(),
        }
    }
}
