//! Giving out tokens: who asks for what, and what he gets.

use model::{
    actor::Actor,
    capability::{self, Asked, Capabilities, NothingGranted},
    ids::SandboxId,
    reach::Reach,
    token::{Claims, Generation, Lifetime},
};

use super::{SignError, Token, Tokens};
use crate::{
    auth::Caller,
    clock,
    keys::{KeyError, random_hex},
};

/// What somebody wants a token for.
#[derive(Debug)]
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
}

/// A token, and what it says.
#[derive(Debug)]
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
    Sign(#[from] SignError),
    #[error(transparent)]
    Random(#[from] KeyError),
}

/// Makes a token for whoever has this key. Nobody gets more by acting for another: it is bounded by
/// what either may have.
pub(crate) fn mint(tokens: &Tokens, caller: &Caller, wish: Wish) -> Result<Minted, MintError> {
    let actor = wish.actor.unwrap_or_else(|| caller.actor().clone());
    let bound = Capabilities::usual(actor.kind);
    let bound = bound.narrowed_to(Capabilities::usual(caller.actor().kind));
    let capabilities = capability::grant(wish.asked.as_ref(), bound)?;
    let scope = match &wish.asked {
        Some(asked) => asked.granted(capabilities).collect::<Vec<_>>().join(" "),
        None => capabilities.to_string(),
    };
    let (issued_at, expires_at) = wish.lifetime.from(clock::timestamp());
    let claims = Claims {
        id: format!("tok_{}", random_hex(16)?),
        actor,
        key: caller.key_id().0.clone(),
        sandbox: wish.sandbox,
        capabilities,
        reach: wish.reach,
        thread: wish.thread,
        generation: wish.generation,
        issued_at,
        expires_at,
    };
    let token = tokens.sign(&claims)?;
    tracing::info!(
        token = claims.id,
        actor = claims.actor.id,
        key = claims.key,
        sandbox = %claims.sandbox,
        scope = %claims.capabilities,
        "token given out"
    );
    Ok(Minted { token, claims, scope })
}
