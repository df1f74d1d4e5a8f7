//! Giving out tokens: who asks for what, and what he gets.

use model::{
    actor::Actor,
    capability::{Asked, Capabilities, NothingGranted},
    ids::SandboxId,
    policy::{NotYourself, Policy},
    reach::Reach,
    token::{Claims, Generation, Lifetime, Narrowing, WiderThanParent},
    units::Timestamp,
};
use store::StoreError;

use super::{Held, SignError, Token, Tokens, opaque::KeepError};
use crate::{
    auth::Caller,
    clock,
    keys::{KeyError, random_hex},
};

/// What somebody wants a token for.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) sandbox: SandboxId,
    pub(crate) generation: Generation,
    /// On whose behalf, if not the key's own actor.
    pub(crate) actor: Option<Actor>,
    /// Without it, all that may be had.
    pub(crate) asked: Option<Asked>,
    pub(crate) reach: Reach,
    pub(crate) lifetime: Lifetime,
    pub(crate) thread: Option<String>,
    /// Without it, what the tenant has.
    pub(crate) format: Option<Format>,
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Says by itself what it is good for.
    Jwt,
    /// A text that says nothing.
    Opaque,
}

/// A token, and what it says.
#[derive(Clone, Debug)]
pub(crate) struct Minted {
    pub(crate) token: Token,
    pub(crate) claims: Claims,
    /// What was granted, in the words that it was asked for in.
    pub(crate) scope: String,
}

/// Why no token is given out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MintError {
    #[error(transparent)]
    Nothing(#[from] NothingGranted),
    #[error(transparent)]
    NotYourself(#[from] NotYourself),
    #[error(transparent)]
    Sign(#[from] SignError),
    #[error("the token that it was to be made of has ended")]
    Ended,
    #[error("tokens of this tenant are opaque")]
    Format,
    #[error(transparent)]
    Wider(#[from] WiderThanParent),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Random(#[from] KeyError),
}

/// Decides what somebody gets who has this key: the one place where that is decided. Nobody gets more by
/// acting for another: it is bounded by what either may have.
pub(crate) fn grant(
    caller: &Caller,
    actor: &Actor,
    asked: Option<&Asked>,
) -> Result<Capabilities, MintError> {
    let (policy, role, own) = (caller.policy(), caller.role(), caller.actor());
    Policy::act_for(role, own, actor)?;
    Ok(policy.grant(role, own.kind, actor.kind, asked)?)
}

/// Makes a token for whoever has this key.
pub(crate) async fn mint(
    tokens: &Tokens,
    caller: &Caller,
    wish: Wish,
) -> Result<Minted, MintError> {
    let actor = wish.actor.as_ref().unwrap_or_else(|| caller.actor());
    let now = tokens.date(&wish.sandbox, actor).await;
    let format = wish.format;
    let (claims, scope) = claims(caller, wish, new_id()?, now)?;
    tokens.give_out(claims, scope, caller.tenant(), format).await
}

/// Makes a token for a sandbox that is about to begin, of which nobody's was ended. Nothing if it is to be
/// kept, which takes longer.
pub(crate) fn mint_first(
    tokens: &Tokens,
    caller: &Caller,
    wish: Wish,
) -> Result<Option<Minted>, MintError> {
    if wish.format == Some(Format::Opaque) || tokens.is_opaque(caller.tenant()) {
        return Ok(None);
    }
    let (claims, scope) = claims(caller, wish, new_id()?, clock::timestamp())?;
    let token = tokens.sign(&claims)?;
    Ok(Some(given_out(token, claims, scope)))
}

pub(super) fn claims(
    caller: &Caller,
    wish: Wish,
    id: String,
    now: Timestamp,
) -> Result<(Claims, String), MintError> {
    let actor = wish.actor.unwrap_or_else(|| caller.actor().clone());
    let capabilities = grant(caller, &actor, wish.asked.as_ref())?;
    let scope = in_words_of(wish.asked.as_ref(), capabilities);
    let (issued_at, expires_at) = wish.lifetime.from(now);
    let claims = Claims {
        id,
        actor,
        key: caller.key_id().0.clone(),
        sandbox: wish.sandbox,
        capabilities,
        reach: wish.reach,
        thread: wish.thread,
        generation: wish.generation,
        issued_at,
        expires_at,
        parents: Vec::new(),
    };
    Ok((claims, scope))
}

/// Makes a token of one that its holder has: less of the same. The tenant is that of the sandbox.
pub(crate) async fn narrow(
    tokens: &Tokens,
    parent: &Held,
    narrowing: Narrowing,
    tenant: &str,
    format: Option<Format>,
) -> Result<Minted, MintError> {
    let asked = narrowing.asked.clone();
    let claims = parent.claims().narrowed(new_id()?, narrowing, clock::timestamp())?;
    let scope = in_words_of(asked.as_ref(), claims.capabilities);
    let minted = tokens.give_out(claims, scope, tenant, format).await?;
    // Whoever has put an end to it meanwhile has put an end to this one too.
    if parent.is_revoked() { Err(MintError::Ended) } else { Ok(minted) }
}

fn new_id() -> Result<String, KeyError> {
    Ok(format!("tok_{}", random_hex(16)?))
}

/// Says what was granted in the words that it was asked for in.
fn in_words_of(asked: Option<&Asked>, granted: Capabilities) -> String {
    match asked {
        Some(asked) => asked.granted(granted).collect::<Vec<_>>().join(" "),
        None => granted.to_string(),
    }
}

impl Tokens {
    async fn give_out(
        &self,
        claims: Claims,
        scope: String,
        tenant: &str,
        format: Option<Format>,
    ) -> Result<Minted, MintError> {
        let token = match (format, self.is_opaque(tenant)) {
            (Some(Format::Jwt), true) => return Err(MintError::Format),
            (Some(Format::Opaque), _) | (None, true) => self.keep(&claims).await?,
            (Some(Format::Jwt) | None, false) => self.sign(&claims)?,
        };
        Ok(given_out(token, claims, scope))
    }

    /// Whether tokens of a tenant say nothing by themselves.
    fn is_opaque(&self, tenant: &str) -> bool {
        self.inner.opaque_tenants.iter().any(|opaque| opaque == tenant)
    }
}

fn given_out(token: Token, claims: Claims, scope: String) -> Minted {
    tracing::info!(
        token = claims.id,
        actor = claims.actor.id,
        key = claims.key,
        sandbox = %claims.sandbox,
        scope = %claims.capabilities,
        parent = claims.parents.last(),
        "token given out"
    );
    Minted { token, claims, scope }
}

impl From<KeepError> for MintError {
    fn from(error: KeepError) -> Self {
        match error {
            KeepError::Random(error) => Self::Random(error),
            KeepError::Claims(error) => Self::Sign(error),
            KeepError::Store(error) => Self::Store(error),
        }
    }
}
