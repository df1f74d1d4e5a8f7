//! Who calls: API keys, looked up without the store.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use api::errors::ErrorCode;
use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderName, Uri, header::AUTHORIZATION, request::Parts},
};
use model::{
    actor::Actor,
    audit::{Action, Entry, Outcome},
};
use store::{
    Store, StoreError,
    keys::{ApiKey, KeyHash, KeyId, Revocation, Role},
    sandboxes::Health,
};
use tokio::sync::watch;

use crate::{
    audit, clock,
    http::{App, problem::ApiError},
    keys::{NewKey, Secret},
};

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Query parameters that people put keys into. URLs end up in logs and histories.
const KEYS_IN_QUERY: [&str; 7] =
    ["token", "access_token", "api_key", "apikey", "key", "authorization", "x-api-key"];

/// All keys that are valid now, in memory; the store behind them.
#[derive(Clone, Debug)]
pub struct Keyring {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    valid: RwLock<HashMap<KeyHash, Arc<Holder>>>,
}

/// The holder of a valid key.
#[derive(Debug)]
struct Holder {
    key: ApiKey,
    revoked: watch::Sender<bool>,
}

impl Keyring {
    /// Says whether the store behind the keys, which is that of everything, still takes writes.
    pub(crate) fn store_health(&self) -> Health {
        self.inner.store.health()
    }

    /// Returns when it does not any more.
    pub(crate) async fn until_store_is_read_only(&self) {
        self.inner.store.until_read_only().await;
    }

    /// Reads all keys of the store.
    pub async fn open(store: Store) -> Result<Self, StoreError> {
        let keys = store.keys().await?;
        let valid = keys
            .into_iter()
            .filter(|(key, _)| key.revoked_at.is_none())
            .map(|(key, hash)| (hash, Holder::new(key)))
            .collect();
        Ok(Self { inner: Arc::new(Inner { store, valid: RwLock::new(valid) }) })
    }

    /// Returns the store behind the keys, which is that of everything.
    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Keeps a new key under this secret, for somebody on the machine itself. It is valid when this
    /// returns.
    pub async fn create(&self, new: NewKey, secret: &Secret) -> Result<ApiKey, StoreError> {
        self.create_by(new, secret, audit::local(Action::KeyCreate, "on the machine itself")).await
    }

    /// The same for whoever the entry says, and with it.
    pub(crate) async fn create_by(
        &self,
        new: NewKey,
        secret: &Secret,
        entry: Entry,
    ) -> Result<ApiKey, StoreError> {
        let key = new.into_key(secret, clock::now());
        let hash = secret.hash();
        let entry = Entry { object: Some(key.id.0.clone()), ..entry };
        self.inner.store.create_key_recorded(key.clone(), hash, entry).await?;
        self.with_valid(|valid| valid.insert(hash, Holder::new(key.clone())));
        tracing::info!(key = %key.id, role = ?key.role, tenant = key.tenant, "key created");
        Ok(key)
    }

    /// Returns every key there ever was, oldest first.
    pub async fn list(&self) -> Result<Vec<ApiKey>, StoreError> {
        Ok(self.inner.store.keys().await?.into_iter().map(|(key, _)| key).collect())
    }

    /// Revokes a key. When this returns it opens nothing more, and what it had opened closes.
    pub async fn revoke(&self, id: KeyId) -> Result<Revocation, StoreError> {
        let entry = audit::local(Action::KeyRevoke, "on the machine itself");
        self.revoke_by(id.clone(), Entry { object: Some(id.0), ..entry }).await
    }

    /// The same for whoever the entry says, and with it. What takes a right away is done even if it
    /// cannot be recorded.
    pub(crate) async fn revoke_by(
        &self,
        id: KeyId,
        entry: Entry,
    ) -> Result<Revocation, StoreError> {
        let (store, now) = (&self.inner.store, clock::now());
        let revocation = match store.revoke_key_recorded(id.clone(), now, entry).await {
            Err(StoreError::Audit { report }) => {
                tracing::error!(key = %id, report, "a key is revoked without a record of it");
                store.revoke_key(id.clone(), now).await?
            }
            answer => answer?,
        };
        let removed: Vec<_> =
            self.with_valid(|valid| valid.extract_if(|_, holder| holder.key.id == id).collect());
        for (_, holder) in removed {
            holder.revoked.send_replace(true);
            tracing::info!(key = %id, "key revoked");
        }
        Ok(revocation)
    }

    /// Returns whose key a request carries, or why it is nobody's.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Caller, &'static str> {
        self.holder(credential(headers)?)
    }

    /// Returns whose key this is.
    pub(crate) fn holder(&self, secret: &str) -> Result<Caller, &'static str> {
        let hash = Secret::hash_of(secret);
        let valid = self.inner.valid.read().unwrap_or_else(PoisonError::into_inner);
        let holder = valid.get(&hash).ok_or("the API key is not valid")?;
        Ok(Caller(Arc::clone(holder)))
    }

    /// No code panics while it holds the lock, so a poisoned one is as good as any.
    fn with_valid<T>(&self, act: impl FnOnce(&mut HashMap<KeyHash, Arc<Holder>>) -> T) -> T {
        act(&mut self.inner.valid.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Holder {
    fn new(key: ApiKey) -> Arc<Self> {
        Arc::new(Self { key, revoked: watch::Sender::new(false) })
    }
}

/// Whoever sent a request with a valid key.
#[derive(Clone)]
pub struct Caller(Arc<Holder>);

impl Caller {
    pub(crate) fn key_id(&self) -> &KeyId {
        &self.0.key.id
    }

    pub(crate) fn tenant(&self) -> &str {
        &self.0.key.tenant
    }

    pub(crate) fn actor(&self) -> &Actor {
        &self.0.key.actor
    }

    pub(crate) fn is_admin(&self) -> bool {
        self.0.key.role == Role::Admin
    }

    /// Tells whether the key is one of a server rather than of its users.
    pub(crate) fn may_act_for_others(&self) -> bool {
        match self.0.key.role {
            Role::Admin | Role::Broker => true,
            Role::User => false,
        }
    }

    /// Says whether the key may act for this actor: its own, or any if it is a broker's.
    pub(crate) fn may_act_for(&self, actor: &Actor) -> bool {
        match self.0.key.role {
            Role::Admin | Role::Broker => true,
            Role::User => self.0.key.actor == *actor,
        }
    }

    /// Returns what turns true when the key is revoked.
    pub(crate) fn revoked(&self) -> watch::Receiver<bool> {
        self.0.revoked.subscribe()
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Caller").field(self.key_id()).finish()
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        refuse_key_in_query(&parts.uri)?;
        app.keyring.caller(&parts.headers).map_err(|reason| {
            let error = unauthenticated(reason);
            let entry = audit::entry(Action::Access, Outcome::Denied);
            app.audit.note(audit::refused(entry, &error));
            error
        })
    }
}

/// A caller who may manage keys.
#[derive(Debug)]
pub struct Admin(pub(crate) Caller);

impl FromRequestParts<App> for Admin {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let caller = Caller::from_request_parts(parts, app).await?;
        match caller.0.key.role {
            Role::Admin => Ok(Self(caller)),
            Role::Broker | Role::User => {
                let message = "this takes a key with the role admin";
                let entry = audit::by(&caller, Action::Access);
                app.audit.refusal(&entry, Err(ApiError::new(ErrorCode::Forbidden, message)))
            }
        }
    }
}

fn refuse_key_in_query(uri: &Uri) -> Result<(), ApiError> {
    let mut names = uri.query().unwrap_or_default().split('&').filter_map(|pair| {
        let name = pair.split('=').next()?;
        Some(name.to_ascii_lowercase())
    });
    if names.any(|name| KEYS_IN_QUERY.contains(&name.as_str())) {
        return Err(unauthenticated("send the key as a header, never in the URL"));
    }
    Ok(())
}

/// Tells whether a request carries any credential, good or bad.
pub(crate) fn has_credential(headers: &HeaderMap) -> bool {
    headers.contains_key(AUTHORIZATION) || headers.contains_key(X_API_KEY)
}

/// Returns the secret that a request carries. `Authorization` wins over `X-Api-Key`.
pub(crate) fn credential(headers: &HeaderMap) -> Result<&str, &'static str> {
    const MISSING: &str = "send an API key as \"Authorization: Bearer KEY\" or \"X-Api-Key: KEY\"";
    let (name, scheme) = if headers.contains_key(AUTHORIZATION) {
        (AUTHORIZATION, Some("bearer"))
    } else {
        (X_API_KEY, None)
    };
    let mut values = headers.get_all(&name).iter();
    let value = values.next().ok_or(MISSING)?;
    if values.next().is_some() {
        return Err("the request carries more than one key");
    }
    let text = value.to_str().map_err(|_not_ascii| MISSING)?;
    let Some(scheme) = scheme else { return Ok(text.trim()) };
    match text.split_once(' ') {
        Some((found, secret)) if found.eq_ignore_ascii_case(scheme) => Ok(secret.trim()),
        Some(_) | None => Err(MISSING),
    }
}

fn unauthenticated(message: &'static str) -> ApiError {
    ApiError::new(ErrorCode::Unauthenticated, message)
}
