//! The token that was given out last on a connection, for whoever asks for the same on it once more.
//!
//! Another client never gets it, though it may have the same key: whoever gives a token back, or shows it to get
//! the next, ends his own and nobody else's.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{extract::FromRequestParts, http::request::Parts};

use super::{
    Tokens,
    mint::{self, Minted, Wish},
    opaque,
};
use crate::{auth::Caller, clock, http::App, serve::Peer};

/// What was given out last, if it is remembered. All clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastGiven(Arc<Mutex<Option<Minted>>>);

impl LastGiven {
    pub(crate) fn remember(&self, minted: &Minted) {
        // One that says nothing by itself is there to be ended on its own.
        if !minted.token.reveal().starts_with(opaque::PREFIX) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(minted.clone());
        }
    }

    /// Returns the token that was given out last, if what is wished for now would say the same and nobody has put
    /// an end to it.
    pub(crate) fn again(&self, tokens: &Tokens, caller: &Caller, wish: Wish) -> Option<Minted> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let (wanted, scope) = mint::claims(caller, wish, String::new(), clock::timestamp()).ok()?;
        let serves = last.claims.serves_as(&wanted) && last.scope == scope;
        (serves && tokens.is_untouched(&last)).then_some(last)
    }
}

impl Tokens {
    /// Tells whether a token still opens what it did, and will until it ends by itself.
    fn is_untouched(&self, Minted { token, claims, .. }: &Minted) -> bool {
        self.read_signed(token.reveal()).is_ok()
            && self.inner.ledger.ends_at(&claims.id, claims).is_none()
    }
}

impl FromRequestParts<App> for LastGiven {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        // The connections of a proxy are no client's.
        let peer = parts.extensions.get::<Peer>().filter(|_| !app.settings.is_behind_proxy);
        Ok(peer.map(|peer| peer.last_given.clone()).unwrap_or_default())
    }
}
