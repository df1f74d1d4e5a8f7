//! Tokens of sandboxes: signed here, checked here, nowhere else.
//!
//! They are JSON Web Tokens with HMAC-SHA-256. Every sandbox has a key of its own, derived from the
//! master key, the sandbox's id and the epoch of its key. Whoever signs is whoever checks, so that
//! nothing in a token chooses how it is checked: its header has to be, byte for byte, the one that
//! we would have written. Others say nothing by themselves (`opaque`). Either ends before its time
//! if somebody says so (`ends`), and what was opened with it closes.

pub(crate) mod again;
pub(crate) mod claims;
mod ends;
mod header;
mod held;
pub(crate) mod issued;
mod ledger;
pub mod link;
pub mod masters;
pub(crate) mod mint;
pub(crate) mod opaque;
pub mod preview;

use std::{
    collections::HashMap,
    fmt,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use model::{
    actor::Actor,
    ids::SandboxId,
    token::{Claims, Epoch, LEEWAY},
    units::Timestamp,
};
use store::{Store, StoreError};

use crate::{
    clock,
    key_file::{self, KeyFileError},
};
pub use held::Held;
use ledger::Ledger;
use masters::Masters;
pub use opaque::FindError;
use opaque::Remembered;

/// No token is longer. It has to fit into a header beside others.
pub const MAX_BYTES: usize = 4 << 10;
/// The characters that 32 bytes take.
const SIGNATURE: usize = 43;
/// Keys of sandboxes that are kept; each takes about 1 KiB.
const MAX_KEYS: usize = 4096;

/// Signs and checks tokens. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Tokens {
    inner: Arc<Inner>,
}

struct Inner {
    masters: Masters,
    /// By their name. Only keys of genuine tokens are in it, so that strangers cannot fill it.
    keys: RwLock<HashMap<String, Arc<hmac::Key>>>,
    ledger: Ledger,
    remembered: Remembered,
    /// Without one, ends are known until the process ends, and there are no opaque tokens.
    store: Option<Store>,
    /// Tenants whose tokens are all opaque.
    opaque_tenants: Vec<String>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tokens(…)")
    }
}

/// A token, for the one who may see it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Returns the token itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Why a text is no token of ours. Clients are not told which; the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotGenuine {
    #[error("its form is not that of a token")]
    Form,
    #[error("its header is not one of ours")]
    Header,
    #[error("its key is not in use")]
    Key,
    #[error("its signature is wrong")]
    Signature,
    #[error("its claims are not understood")]
    Claims,
}

impl NotGenuine {
    pub(crate) const ALL: [Self; 5] =
        [Self::Form, Self::Header, Self::Key, Self::Signature, Self::Claims];
}

/// Why no token is made of these claims.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    #[error("the token would be longer than {MAX_BYTES} bytes: name fewer or shorter paths")]
    TooLong,
    #[error("the claims cannot be written")]
    Claims(#[source] serde_json::Error),
}

/// Why there can be no tokens.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    #[error("cannot read what was done to tokens")]
    Store(#[from] StoreError),
}

impl Tokens {
    /// Reads the master key of this data directory, which at the first start is made up, and what is
    /// kept about tokens. Those of some tenants are all opaque.
    pub async fn open(
        data: &Path,
        store: Store,
        opaque_tenants: Vec<String>,
    ) -> Result<Self, OpenError> {
        let path = data.join("tokens.key");
        let (first, older) = masters::open(&path)?;
        let masters = Masters::new(&first, &older, Some(path));
        Ok(Self::over(masters, store, opaque_tenants).await?)
    }

    /// Signs with this key, and keeps in this store what happens to tokens.
    pub async fn kept(
        master: &[u8; key_file::LENGTH],
        store: Store,
        opaque_tenants: Vec<String>,
    ) -> Result<Self, StoreError> {
        Self::over(Masters::of(master), store, opaque_tenants).await
    }

    async fn over(
        masters: Masters,
        store: Store,
        opaque_tenants: Vec<String>,
    ) -> Result<Self, StoreError> {
        let tokens = Self::with(masters, Some(store.clone()), opaque_tenants);
        tokens.absorb(tokens.read_all(&store).await?);
        Ok(tokens)
    }

    /// Signs with this key, and forgets with the process what happens to tokens.
    pub fn new(master: &[u8; key_file::LENGTH]) -> Self {
        Self::with(Masters::of(master), None, Vec::new())
    }

    fn with(masters: Masters, store: Option<Store>, opaque_tenants: Vec<String>) -> Self {
        let (keys, ledger, remembered) =
            (RwLock::default(), Ledger::default(), Remembered::default());
        let inner = Inner { masters, keys, ledger, remembered, store, opaque_tenants };
        Self { inner: Arc::new(inner) }
    }

    /// Signs claims with the key of their sandbox.
    pub fn sign(&self, claims: &Claims) -> Result<Token, SignError> {
        let epoch = self.epoch_of(&claims.sandbox).0;
        let master = self.inner.masters.signing();
        let name = header::key_name(&claims.sandbox, epoch, master);
        let (name, key) = match self.known(&name) {
            Some(key) => (name, key),
            None => self.newest_key(&claims.sandbox, epoch),
        };
        let payload = claims::write(claims).map_err(SignError::Claims)?;
        let mut token = URL_SAFE_NO_PAD.encode(header::write(&name));
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(payload, &mut token);
        let signature = hmac::sign(&key, token.as_bytes());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        if token.len() > MAX_BYTES { Err(SignError::TooLong) } else { Ok(Token(token)) }
    }

    /// Returns what a token says, if we have signed it. Whether that still holds is for
    /// [`Claims::check`], and whether somebody has put an end to it for [`Held`].
    pub fn read(&self, token: &str) -> Result<Claims, NotGenuine> {
        self.read_signed(token).map(|(claims, _)| claims)
    }

    /// Cheap things are looked at first.
    fn read_signed(&self, token: &str) -> Result<(Claims, Epoch), NotGenuine> {
        if token.len() > MAX_BYTES {
            return Err(NotGenuine::Form);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(NotGenuine::Form)?;
        let (header, payload) = signed.split_once('.').ok_or(NotGenuine::Form)?;
        if signature.len() != SIGNATURE || payload.contains('.') {
            return Err(NotGenuine::Form);
        }
        let header = header::read(header).ok_or(NotGenuine::Header)?;
        if header.epoch != self.epoch_of(&header.sandbox).0 {
            return Err(NotGenuine::Key);
        }
        let decoded = URL_SAFE_NO_PAD.decode(signature).map_err(|_not_base64| NotGenuine::Form)?;
        let (masters, now) = (&self.inner.masters, clock::timestamp());
        if !masters.is_good(header.master, now) {
            return Err(NotGenuine::Key);
        }
        let known = self.known(&header.key_name);
        let is_known = known.is_some();
        let derive = || masters.of_sandbox(header.master, &header.sandbox, header.epoch, now);
        let key = known.or_else(|| derive().map(Arc::new)).ok_or(NotGenuine::Key)?;
        // Takes the same time wherever the first difference is.
        hmac::verify(&key, signed.as_bytes(), &decoded).map_err(|_forged| NotGenuine::Signature)?;
        if !is_known {
            self.remember(header.key_name, &key);
        }
        let payload = URL_SAFE_NO_PAD.decode(payload).map_err(|_not_base64| NotGenuine::Claims)?;
        let claims = claims::read(&payload).ok_or(NotGenuine::Claims)?;
        if claims.sandbox == header.sandbox {
            Ok((claims, Epoch(header.epoch)))
        } else {
            Err(NotGenuine::Claims)
        }
    }

    /// Returns a genuine token of either kind, and keeps an eye on it.
    pub async fn held(&self, text: &str) -> Result<Held, FindError> {
        // Before it is looked at: what ends everything meanwhile ends it too.
        let floor = self.inner.masters.floor();
        let (claims, epoch) = if text.starts_with(opaque::PREFIX) {
            self.find(text).await?
        } else {
            self.read_signed(text)?
        };
        Ok(Held::new(self.clone(), claims, epoch, floor))
    }

    /// Returns which of a sandbox's keys is in use. Raising it ends all tokens of the sandbox at once.
    pub(crate) fn epoch_of(&self, sandbox: &SandboxId) -> Epoch {
        self.inner.ledger.epoch_of(sandbox)
    }

    /// Returns the time at which a token is given out to this actor. If his were ended in this very
    /// second, that is the next one: tokens are dated to the second. It is not waited for longer than
    /// clocks may differ.
    async fn date(&self, sandbox: &SandboxId, actor: &Actor) -> Timestamp {
        let now = clock::timestamp();
        if let Some(first) = self.inner.ledger.first_after(sandbox, actor)
            && first.since(now) <= LEEWAY
        {
            clock::until(|| first).await;
        }
        clock::timestamp()
    }

    /// Returns the key of a sandbox that signs, and its name. The server may have another by now.
    fn newest_key(&self, sandbox: &SandboxId, epoch: u32) -> (String, Arc<hmac::Key>) {
        let (master, key) = self.inner.masters.newest_of(sandbox, epoch);
        let (name, key) = (header::key_name(sandbox, epoch, master), Arc::new(key));
        self.remember(name.clone(), &key);
        (name, key)
    }

    fn known(&self, name: &str) -> Option<Arc<hmac::Key>> {
        let keys = self.inner.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.get(name).cloned()
    }

    /// At the bound all are forgotten: deriving one again takes microseconds.
    fn remember(&self, name: String, key: &Arc<hmac::Key>) {
        let mut keys = self.inner.keys.write().unwrap_or_else(PoisonError::into_inner);
        if keys.len() >= MAX_KEYS {
            keys.clear();
        }
        keys.insert(name, Arc::clone(key));
    }

    /// Forgets those of master keys that are not good any more; the others are derived again.
    fn forget_keys(&self) {
        self.inner.keys.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Tells whether a credential has the form of a token, rather than that of an API key: no key has a
/// dot in it and every signed token has two.
pub(crate) fn is_token(credential: &str) -> bool {
    credential.contains('.') || credential.starts_with(opaque::PREFIX)
}

#[cfg(test)]
mod tests;
