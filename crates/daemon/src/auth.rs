//! Who calls: API keys, looked up without the store.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, Instant},
};

use api::errors::ErrorCode;
use axum::{
    extract::FromRequestParts,
    http::{
        HeaderMap, HeaderName, Uri,
        header::{AUTHORIZATION, RETRY_AFTER},
        request::Parts,
    },
};
use model::{
    actor::Actor,
    audit::{Action, Entry, Outcome},
    holder,
    policy::{self, Bucket, Policy, QuotaError, Quotas},
};
use store::{
    Store, StoreError,
    keys::{ApiKey, KeyHash, KeyId, Revocation, Role},
    sandboxes::Health,
};
use tokio::sync::watch;

use crate::{
    audit::{self, Audit},
    clock, guesses,
    http::{App, problem::ApiError, request},
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
    valid: RwLock<Valid>,
    rules: Arc<Rules>,
}

/// The holders of valid keys, by what they show and by what their keys are called.
#[derive(Debug, Default)]
struct Valid {
    by_hash: HashMap<KeyHash, Arc<Holder>>,
    by_id: HashMap<KeyId, Arc<Holder>>,
}

impl Valid {
    fn add(&mut self, hash: KeyHash, holder: Arc<Holder>) {
        self.by_id.insert(holder.key.id.clone(), Arc::clone(&holder));
        self.by_hash.insert(hash, holder);
    }

    fn remove(&mut self, id: &KeyId) -> Option<Arc<Holder>> {
        self.by_hash.retain(|_, holder| holder.key.id != *id);
        self.by_id.remove(id)
    }
}

/// What holds for all keys.
#[derive(Debug)]
struct Rules {
    policy: Policy,
    /// What times of requests are counted from.
    since: Instant,
    /// Executions that wait or run, by tenant.
    executions: Mutex<HashMap<String, usize>>,
}

impl Rules {
    fn with_executions<T>(&self, act: impl FnOnce(&mut HashMap<String, usize>) -> T) -> T {
        // No code panics while it holds the lock, so a poisoned one is as good as any.
        act(&mut self.executions.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The holder of a valid key.
#[derive(Debug)]
struct Holder {
    key: ApiKey,
    revoked: watch::Sender<bool>,
    requests: Mutex<Bucket>,
    rules: Arc<Rules>,
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

    /// Reads all keys of the store, to which the usual policy applies.
    pub async fn open(store: Store) -> Result<Self, StoreError> {
        Self::open_with(store, Policy::default()).await
    }

    /// Reads all keys of the store, to which this policy applies.
    pub async fn open_with(store: Store, policy: Policy) -> Result<Self, StoreError> {
        let (since, executions) = (Instant::now(), Mutex::default());
        let rules = Arc::new(Rules { policy, since, executions });
        let keys = store.keys().await?;
        let mut valid = Valid::default();
        for (key, hash) in keys.into_iter().filter(|(key, _)| key.revoked_at.is_none()) {
            valid.add(hash, Holder::new(key, &rules));
        }
        Ok(Self { inner: Arc::new(Inner { store, valid: RwLock::new(valid), rules }) })
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
        request::mark_recorded();
        self.with_valid(|valid| valid.add(hash, Holder::new(key.clone(), &self.inner.rules)));
        tracing::info!(key = %key.id, role = ?key.role, tenant = key.tenant, "key created");
        Ok(key)
    }

    /// Returns what a tenant may have.
    pub(crate) fn quotas(&self, tenant: &str) -> Quotas {
        self.inner.rules.policy.quotas(tenant)
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
        request::mark_recorded();
        if let Some(holder) = self.with_valid(|valid| valid.remove(&id)) {
            holder.revoked.send_replace(true);
            tracing::info!(key = %id, "key revoked");
        }
        Ok(revocation)
    }

    /// Returns the holder of the API key that a request presents, and counts the request against the key's rate
    /// limit. Every surface authenticates keys here, and refusals are recorded here.
    pub(crate) fn authenticate(
        &self,
        audit: &Audit,
        secret: Result<&str, &'static str>,
    ) -> Result<Caller, KeyRefusal> {
        let caller = secret.and_then(|secret| self.holder(secret)).map_err(|reason| {
            let entry = audit::entry(Action::Access, Outcome::Denied);
            audit.note(audit::refused(entry, &unauthenticated(reason)));
            KeyRefusal::Invalid(reason)
        })?;
        caller.spend().map_err(|wait| {
            audit.note(audit::refused(audit::by(&caller, Action::Access), &too_fast(wait)));
            KeyRefusal::TooFast(wait)
        })?;
        request::identify(audit::by(&caller, Action::Access));
        Ok(caller)
    }

    fn holder(&self, secret: &str) -> Result<Caller, &'static str> {
        let hash = Secret::hash_of(secret);
        let valid = self.inner.valid.read().unwrap_or_else(PoisonError::into_inner);
        let Some(holder) = valid.by_hash.get(&hash) else {
            guesses::note_wrong();
            return Err("the API key is not valid");
        };
        guesses::note_good();
        Ok(Caller(Arc::clone(holder)))
    }

    /// Returns the holder of a valid key, by what it is called.
    pub(crate) fn known(&self, id: &str) -> Option<Caller> {
        let valid = self.inner.valid.read().unwrap_or_else(PoisonError::into_inner);
        valid.by_id.get(&KeyId(id.to_owned())).cloned().map(Caller)
    }

    /// Counts a request that presents a token, a link or a cookie, against the rate limit of the key that it was
    /// issued with. A key that this server does not know has no limit here.
    pub(crate) fn count_for(&self, key: &str) -> Result<(), Duration> {
        if !self.inner.rules.policy.bounds_requests() {
            return Ok(());
        }
        self.known(key).map_or(Ok(()), |caller| caller.spend())
    }

    /// No code panics while it holds the lock, so a poisoned one is as good as any.
    fn with_valid<T>(&self, act: impl FnOnce(&mut Valid) -> T) -> T {
        act(&mut self.inner.valid.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Holder {
    fn new(key: ApiKey, rules: &Arc<Rules>) -> Arc<Self> {
        let (revoked, requests) = (watch::Sender::new(false), Mutex::new(Bucket::FULL));
        Arc::new(Self { key, revoked, requests, rules: Arc::clone(rules) })
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

    /// Returns what decisions about it need to know.
    pub(crate) fn as_holder(&self) -> holder::Holder<'_> {
        let (policy, role) = (self.policy(), self.role());
        holder::Holder { policy, role, key: &self.key_id().0, actor: self.actor() }
    }

    /// Returns what the operator has set.
    pub(crate) fn policy(&self) -> &Policy {
        &self.0.rules.policy
    }

    /// Tells whether the key manages the whole server.
    pub(crate) fn operates(&self) -> bool {
        Policy::operates(self.role(), self.tenant())
    }

    /// Tells whether the key manages this tenant.
    pub(crate) fn manages(&self, tenant: &str) -> bool {
        Policy::manages(self.role(), self.tenant(), tenant)
    }

    /// Returns the tenant that the key is confined to, if it is to one.
    pub(crate) fn confined_to(&self) -> Option<&str> {
        (!self.operates()).then(|| self.tenant())
    }

    pub(crate) fn role(&self) -> policy::Role {
        match self.0.key.role {
            Role::Admin => policy::Role::Admin,
            Role::Broker => policy::Role::Broker,
            Role::User => policy::Role::User,
        }
    }

    /// Tells whether the key is one of a server rather than of its users.
    pub(crate) fn may_act_for_others(&self) -> bool {
        self.role().acts_for_others()
    }

    /// Returns what its tenant may have.
    pub(crate) fn quotas(&self) -> Quotas {
        self.policy().quotas(self.tenant())
    }

    /// Counts a request, or returns how long to wait before it is sent again.
    fn spend(&self) -> Result<(), Duration> {
        let Some(per_second) = self.quotas().requests_per_second else { return Ok(()) };
        let now = self.0.rules.since.elapsed();
        let mut requests = self.0.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.take(now, per_second)
    }

    /// Takes a place for an execution of its tenant, until it is dropped.
    pub(crate) fn begin_execution(&self) -> Result<ExecutionPlace, QuotaError> {
        let (quotas, tenant) = (self.quotas(), self.tenant().to_owned());
        self.0.rules.with_executions(|executions| {
            let count = executions.entry(tenant.clone()).or_default();
            quotas.admit_execution(*count)?;
            *count += 1;
            Ok(())
        })?;
        Ok(ExecutionPlace { rules: Arc::clone(&self.0.rules), tenant })
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

/// The place of an execution among those of its tenant.
#[derive(Debug)]
pub(crate) struct ExecutionPlace {
    rules: Arc<Rules>,
    tenant: String,
}

impl Drop for ExecutionPlace {
    fn drop(&mut self) {
        self.rules.with_executions(|executions| {
            if let Some(count) = executions.get_mut(&self.tenant) {
                *count = count.saturating_sub(1);
            }
        });
    }
}

/// Why an API key opens nothing now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRefusal {
    /// There is none, or it is not valid.
    Invalid(&'static str),
    /// The key is over its rate limit: wait this long.
    TooFast(Duration),
}

impl From<KeyRefusal> for ApiError {
    fn from(refusal: KeyRefusal) -> Self {
        match refusal {
            KeyRefusal::Invalid(reason) => unauthenticated(reason),
            KeyRefusal::TooFast(wait) => too_fast(wait),
        }
    }
}

/// Refuses a request that is over the rate limit of its key.
pub(crate) fn too_fast(wait: Duration) -> ApiError {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let error = ApiError::new(
        ErrorCode::RateLimited,
        "too many requests with this key or its tokens; wait",
    );
    error.with_header(RETRY_AFTER, seconds.max(1).into())
}

impl FromRequestParts<App> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        refuse_key_in_query(&parts.uri)?;
        // The body has not been read yet.
        Ok(app.keyring.authenticate(&app.audit, credential(&parts.headers))?)
    }
}

/// A caller who manages the whole server: an admin of the tenant that is there without being made.
#[derive(Debug)]
pub struct Operator(pub(crate) Caller);

impl FromRequestParts<App> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let Admin(caller) = Admin::from_request_parts(parts, app).await?;
        if caller.operates() {
            return Ok(Self(caller));
        }
        let message = "this is for admins of the server, whose keys are of the tenant default";
        let entry = audit::by(&caller, Action::Access);
        app.audit.refusal(&entry, Err(ApiError::new(ErrorCode::Forbidden, message)))
    }
}

/// A caller who manages a tenant.
#[derive(Debug)]
pub struct Admin(pub(crate) Caller);

impl FromRequestParts<App> for Admin {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let caller = Caller::from_request_parts(parts, app).await?;
        if caller.manages(caller.tenant()) {
            return Ok(Self(caller));
        }
        let message = "this takes a key with the role admin";
        let entry = audit::by(&caller, Action::Access);
        app.audit.refusal(&entry, Err(ApiError::new(ErrorCode::Forbidden, message)))
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
