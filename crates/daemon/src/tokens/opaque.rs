//! Tokens that say nothing by themselves: a random text, whose meaning is in the store.
//!
//! A part of the text is a seal of ours, so that strangers cannot make us look into the store.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use model::{
    token::{Claims, Epoch, LEEWAY},
    units::Timestamp,
};
use store::{StoreError, keys::KeyHash, tokens::OpaqueToken};

use super::{NotGenuine, SignError, Token, Tokens, claims};
use crate::{
    clock,
    keys::{KeyError, Secret, random},
};

/// What every such text begins with. No other token and no API key does.
pub(crate) const PREFIX: &str = "rfo_";
const RANDOM: usize = 24;
const SEAL: usize = 16;
/// Keeps the key of seals apart from those of tokens.
const KIND: &[u8] = b"opaque";
/// What was found in the store, or was given out here, is remembered of so many.
const REMEMBERED: usize = 16_384;

/// What opaque tokens of late were found to be.
#[derive(Debug, Default)]
pub(super) struct Remembered(RwLock<HashMap<KeyHash, Arc<(Claims, Epoch)>>>);

impl Remembered {
    fn get(&self, hash: &KeyHash) -> Option<Arc<(Claims, Epoch)>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(hash).cloned()
    }

    /// At the bound those are forgotten that have ended, or all: each can be found again.
    fn put(&self, hash: KeyHash, token: Arc<(Claims, Epoch)>, now: Timestamp) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.retain(|_, token| token.0.expires_at.plus(LEEWAY) >= now);
        }
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(hash, token);
    }
}

/// Why no opaque token is given out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeepError {
    #[error(transparent)]
    Random(#[from] KeyError),
    #[error(transparent)]
    Claims(#[from] SignError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Tokens {
    /// Keeps what a new text stands for.
    pub(super) async fn keep(&self, what: &Claims) -> Result<Token, KeepError> {
        let store = self.inner.store.as_ref().ok_or(StoreError::Closed)?;
        let mut bytes = random::<RANDOM>()?.to_vec();
        bytes.extend(sealed(&self.inner.masters.first(&[KIND]), &bytes));
        let text = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
        let (hash, now) = (Secret::hash_of(&text), clock::timestamp());
        let epoch = self.epoch_of(&what.sandbox);
        let written = claims::write(what).map_err(SignError::Claims)?;
        let kept = OpaqueToken {
            hash,
            sandbox: what.sandbox.clone(),
            epoch,
            claims: String::from_utf8_lossy(&written).into_owned(),
            keep_until: what.expires_at.plus(LEEWAY),
        };
        store.keep_token(kept, now).await?;
        self.inner.remembered.put(hash, Arc::new((what.clone(), epoch)), now);
        Ok(Token(text))
    }

    /// Returns what an opaque token stands for, and under which key it was given out.
    pub(super) async fn find(&self, text: &str) -> Result<(Claims, Epoch), FindError> {
        let encoded = text.strip_prefix(PREFIX).ok_or(NotGenuine::Form)?;
        let mut bytes = [0; RANDOM + SEAL];
        let length = URL_SAFE_NO_PAD.decode_slice(encoded, &mut bytes);
        if length.map_err(|_not_base64| NotGenuine::Form)? != bytes.len() {
            return Err(NotGenuine::Form.into());
        }
        let (random, seal) = bytes.split_at(RANDOM);
        let keys = self.inner.masters.all(&[KIND], clock::timestamp());
        let is_ours = |key| {
            aws_lc_rs::constant_time::verify_slices_are_equal(&sealed(key, random), seal).is_ok()
        };
        if !keys.iter().any(is_ours) {
            return Err(NotGenuine::Signature.into());
        }
        let hash = Secret::hash_of(text);
        if let Some(known) = self.inner.remembered.get(&hash) {
            return Ok((*known).clone());
        }
        let store = self.inner.store.as_ref().ok_or(NotGenuine::Key)?;
        let kept = store.opaque_token(hash).await?.ok_or(NotGenuine::Key)?;
        let claims = claims::read(kept.claims.as_bytes()).ok_or(NotGenuine::Claims)?;
        let token = (claims, kept.epoch);
        self.inner.remembered.put(hash, Arc::new(token.clone()), clock::timestamp());
        Ok(token)
    }
}

fn sealed(key: &hmac::Key, random: &[u8]) -> [u8; SEAL] {
    let tag = hmac::sign(key, random);
    let mut seal = [0; SEAL];
    seal.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
    seal
}

/// Why nobody knows what a token is.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error(transparent)]
    NotGenuine(#[from] NotGenuine),
    /// It cannot be told now.
    #[error(transparent)]
    Store(#[from] StoreError),
}
