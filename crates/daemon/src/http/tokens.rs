//! `POST /v1/admin/tokens`: tokens for the sandboxes of the caller's tenant.

use api::{
    errors::ErrorCode,
    tokens::{MintToken, MintedToken},
};
use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use model::{
    capability::{Asked, CapabilityError},
    ids::Tenant,
    reach::{Reach, ReachError},
    token::{Lifetime, LifetimeError},
};

use super::{
    App,
    problem::{ApiError, Body},
};
use crate::{
    auth::{Admin, Caller},
    dataplane::access::generation_of,
    from_wire, keys, to_wire,
    tokens::{
        SignError,
        mint::{MintError, Wish, mint},
    },
};

pub(super) fn router() -> Router<App> {
    Router::new().route("/v1/admin/tokens", post(give_out))
}

/// Gives out a token. This answer is the only place where it is shown.
async fn give_out(
    State(app): State<App>,
    Admin(caller): Admin,
    Body(request): Body<MintToken>,
) -> Result<(StatusCode, Json<MintedToken>), ApiError> {
    let plane = app.plane().ok_or_else(no_sandbox)?;
    let tenant: Tenant = tenant_of(&caller)?;
    let sandbox = plane.sandboxes.get(&tenant, &request.sandbox).await?;
    if sandbox.life.phase.is_terminal() {
        return Err(no_sandbox());
    }
    let asked = request.scope.as_deref().map(Asked::scope).transpose()?;
    let reach = match &request.paths {
        Some(paths) => Reach::below(paths)?,
        None => Reach::Everywhere,
    };
    let lifetime = request.ttl_seconds.map_or(Ok(Lifetime::USUAL), Lifetime::seconds)?;
    if let Some(actor) = &request.actor {
        keys::check_name(&actor.id)?;
    }
    let wish = Wish {
        generation: generation_of(&sandbox.id),
        sandbox: sandbox.id,
        actor: request.actor.map(from_wire::actor),
        asked,
        reach,
        lifetime,
        thread: None,
    };
    let minted = mint(&plane.tokens, &caller, wish)?;
    Ok((StatusCode::CREATED, Json(to_wire::minted(&minted, &app.base_url))))
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

impl From<LifetimeError> for ApiError {
    fn from(error: LifetimeError) -> Self {
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

impl From<MintError> for ApiError {
    fn from(error: MintError) -> Self {
        match error {
            MintError::Nothing(_) => Self::new(ErrorCode::CapabilityDenied, error.to_string()),
            MintError::Sign(SignError::TooLong) => {
                Self::new(ErrorCode::InvalidRequest, error.to_string())
            }
            MintError::Sign(error @ SignError::Claims(_)) => Self::internal(&error),
            MintError::Random(error) => error.into(),
        }
    }
}
