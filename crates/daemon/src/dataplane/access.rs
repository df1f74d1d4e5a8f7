//! The right to use a sandbox: how it is shown, what it holds, when it ends.

mod link;
mod unproven;

use std::{
    future,
    sync::Arc,
    time::{Duration, SystemTime},
};

use api::errors::ErrorCode;
use axum::{extract::FromRequestParts, http::request::Parts};
use engine::{
    sandboxes::Sandboxes,
    sessions::{Fence, Sessions},
};
use model::{
    actor::Actor,
    audit::{Action, Entry, Outcome},
    capability::{Capabilities, Capability},
    ids::{SandboxId, Tenant},
    reach::Reach,
    token::{Claims, Generation, LEEWAY, TokenRefusal},
    units::Timestamp,
};
use tokio::{select, sync::watch};

use super::refusal::Refusal;
use crate::{
    audit::{self, Audit},
    auth::{Caller, Keyring},
    clock, guesses,
    http::{App, problem::ApiError, request},
    to_wire,
    tokens::{FindError, Held, Tokens, link::Download},
};
use link::{LINK, Link};
pub use unproven::Unproven;

/// How long before the end of a token a stream is warned.
const WARNING: Duration = Duration::from_mins(1);

/// The checked right of one request. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Access(Arc<Right>);

#[derive(Debug)]
struct Right {
    sandboxes: Sandboxes,
    audit: Audit,
    /// The request that it came with.
    request: Option<String>,
    sandbox: SandboxId,
    tenant: Tenant,
    actor: Actor,
    capabilities: Capabilities,
    reach: Reach,
    proof: Proof,
}

/// What the right was shown by.
#[derive(Debug)]
enum Proof {
    Token {
        held: Box<Held>,
        /// Turns true when the session is over that the token is of.
        over: Option<watch::Receiver<bool>>,
    },
    Key(Caller),
    Link(Box<Link>),
}

/// Why a right is not there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Expired,
    Revoked,
}

impl Access {
    /// Returns the sandboxes of this server, among which the one is that this right is for.
    pub fn sandboxes(&self) -> &Sandboxes {
        &self.0.sandboxes
    }

    pub fn sandbox(&self) -> &SandboxId {
        &self.0.sandbox
    }

    pub fn tenant(&self) -> &Tenant {
        &self.0.tenant
    }

    /// Returns on whose behalf the request is made.
    pub fn actor(&self) -> &Actor {
        &self.0.actor
    }

    /// Returns the key that acts for him.
    pub fn key_id(&self) -> &str {
        match &self.0.proof {
            Proof::Token { held, .. } => &held.claims().key,
            Proof::Key(caller) => &caller.key_id().0,
            Proof::Link(_) => LINK,
        }
    }

    /// Returns what the credential is called in logs: `jti` of a token, id of a key.
    pub fn credential_id(&self) -> &str {
        match &self.0.proof {
            Proof::Token { held, .. } => &held.claims().id,
            Proof::Key(caller) => &caller.key_id().0,
            Proof::Link(_) => LINK,
        }
    }

    /// Returns the file that it is for, if it is for one alone.
    pub(super) fn download(&self) -> Option<&Download> {
        match &self.0.proof {
            Proof::Link(link) => link.download.as_ref(),
            Proof::Token { .. } | Proof::Key(_) => None,
        }
    }

    /// Has it recorded that this right was used. What for is said by names, never by content.
    pub(crate) fn note(&self, action: Action, object: Option<&str>, reason: Option<&str>) {
        self.0.audit.note(Entry {
            object: object.map(str::to_owned),
            reason: reason.map(str::to_owned),
            ..self.entry(action)
        });
    }

    /// Records what was done with this right, or why it was not.
    pub(crate) fn note_outcome<T>(&self, entry: Entry, done: &Result<T, ApiError>) {
        self.0.audit.note(match done {
            Ok(_) => entry,
            Err(error) => audit::refused(entry, error),
        });
    }

    /// Returns what the audit log says of something that is done with this right.
    pub(crate) fn entry(&self, action: Action) -> Entry {
        let right = &*self.0;
        let (jti, session) = match &right.proof {
            Proof::Token { held, .. } => {
                (Some(held.claims().id.clone()), held.claims().thread.clone())
            }
            Proof::Key(_) | Proof::Link(_) => (None, None),
        };
        Entry {
            request: right.request.clone(),
            actor: Some(right.actor.clone()),
            key: Some(self.key_id().to_owned()),
            tenant: Some(right.tenant.to_string()),
            sandbox: Some(right.sandbox.to_string()),
            scope: session.map(|thread| format!("thread:{thread}")),
            jti,
            ..audit::entry(action, Outcome::Granted)
        }
    }

    /// Tells whether it was shown by a key or a link, which every use of is recorded.
    pub(super) fn is_by_key(&self) -> bool {
        matches!(self.0.proof, Proof::Key(_) | Proof::Link(_))
    }

    pub fn capabilities(&self) -> Capabilities {
        self.0.capabilities
    }

    /// Checks a capability beyond what the route needs.
    pub fn require(&self, needed: Capability) -> Result<(), Refusal> {
        let required = require(self.0.capabilities, Some(needed));
        required.inspect_err(|refusal| {
            self.0.audit.note(denied(self.entry(Action::Access), refusal));
        })
    }

    /// Returns which files may be used.
    pub fn reach(&self) -> &Reach {
        &self.0.reach
    }

    /// Returns when the right ends by itself; a key's does not.
    pub fn expires_at(&self) -> Option<SystemTime> {
        match &self.0.proof {
            Proof::Token { held, .. } => Some(held.expires_at().into()),
            Proof::Key(_) => None,
            Proof::Link(link) => link.until.map(SystemTime::from),
        }
    }

    /// Returns the token, if it is one that the right was shown by.
    pub(crate) fn token(&self) -> Option<&Held> {
        match &self.0.proof {
            Proof::Token { held, .. } => Some(held),
            Proof::Key(_) | Proof::Link(_) => None,
        }
    }

    /// Returns when a stream is to be warned that the right ends soon, which may be at once. It was
    /// warned of this end before; another comes if another token takes over.
    pub async fn until_expiring(&self, warned_of: Option<SystemTime>) {
        let Some(held) = self.token() else { return future::pending().await };
        let warning = || match held.expires_at() {
            end if warned_of == Some(end.into()) => Timestamp::from_millis(i64::MAX),
            end => before(end, WARNING),
        };
        clock::until(warning).await;
    }

    /// Returns when a stream must be cut.
    pub async fn until_ended(&self) -> Ended {
        let expired = async {
            match &self.0.proof {
                Proof::Token { held, .. } => {
                    clock::until(|| held.expires_at().plus(LEEWAY)).await;
                }
                Proof::Link(link) if link.until.is_some() => {
                    clock::until(|| link.until.unwrap_or_default()).await;
                }
                Proof::Key(_) | Proof::Link(_) => future::pending().await,
            }
        };
        let revoked = async {
            match &self.0.proof {
                Proof::Key(caller) => turned(caller.revoked()).await,
                Proof::Link(link) => {
                    select! {
                        () = link.tokens.until_rotated(&self.0.sandbox, link.age) => {}
                        () = turned(link.caller.revoked()) => {}
                    }
                }
                Proof::Token { held, over } => {
                    select! {
                        () = held.until_revoked() => {}
                        () = is_over(over.as_ref()) => {}
                    }
                }
            }
        };
        select! {
            () = expired => Ended::Expired,
            () = revoked => Ended::Revoked,
        }
    }
}

impl Access {
    /// Notes that it has ended while something was being done with it, and returns how that is refused.
    pub(super) fn refuse_ended(&self, ended: Ended) -> Refusal {
        let refusal = match ended {
            Ended::Expired => Refusal::Expired,
            Ended::Revoked => Refusal::Invalid,
        };
        self.0.audit.note(denied(self.entry(Action::Access), &refusal));
        refusal
    }
}

/// Returns when the watched value is true. Nobody can take back what nobody watches over any more.
async fn turned(mut revoked: watch::Receiver<bool>) {
    if revoked.wait_for(|revoked| *revoked).await.is_err() {
        future::pending::<()>().await;
    }
}

/// Returns when the session is over that a token is of, if it is of one.
async fn is_over(over: Option<&watch::Receiver<bool>>) {
    match over {
        Some(over) => turned(over.clone()).await,
        None => future::pending().await,
    }
}

fn before(time: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(time.as_millis().saturating_sub(by))
}

impl FromRequestParts<App> for Access {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        parts.extensions.get::<Self>().cloned().ok_or_else(no_gate)
    }
}

/// Only a mistake of ours puts a handler where no gate is, or behind the gate of another kind.
fn no_gate() -> ApiError {
    tracing::error!("a handler of the data plane is not behind the gate that it needs");
    ApiError::new(ErrorCode::InternalError, "the server failed; its log says more")
}

/// What a credential says of whoever shows it.
struct Shown {
    actor: Actor,
    capabilities: Capabilities,
    reach: Reach,
    proof: Proof,
}

/// What rights are checked with. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Plane {
    pub(crate) audit: Audit,
    pub(crate) sandboxes: Sandboxes,
    pub(crate) tokens: Tokens,
    pub(crate) keyring: Keyring,
    pub(crate) sessions: Sessions,
    /// What every URL begins with that is handed out.
    pub(crate) base_url: Arc<str>,
}

impl Plane {
    /// Checks a token for a request to this sandbox; without one the path names none.
    pub(super) async fn by_token(
        &self,
        token: &str,
        sandbox: Option<&SandboxId>,
        needed: Option<Capability>,
    ) -> Result<Access, Refusal> {
        let held = self.presented(token).await?;
        match sandbox {
            Some(sandbox) => self.admit(held, sandbox, needed).await,
            None => Err(self.refuse(held.claims(), Refusal::OtherSandbox).await),
        }
    }

    /// Checks a token that a request presents for the sandbox that it is for.
    pub(crate) async fn own(&self, token: &str) -> Result<Access, Refusal> {
        let held = self.presented(token).await?;
        let sandbox = held.claims().sandbox.clone();
        self.admit(held, &sandbox, None).await
    }

    /// Checks a token that a request is about, for the sandbox that it is for. The request is another credential's.
    pub(crate) async fn examine(&self, token: &str) -> Result<Access, Refusal> {
        let held = self.genuine(token).await?;
        let sandbox = held.claims().sandbox.clone();
        self.admit(held, &sandbox, None).await
    }

    /// Returns a genuine token that a request presents, and counts the request against the rate limit of the key that
    /// the token was issued with.
    pub(crate) async fn presented(&self, token: &str) -> Result<Held, Refusal> {
        let held = self.genuine(token).await?;
        match self.keyring.count_for(&held.claims().key) {
            Ok(()) => Ok(held),
            Err(wait) => Err(self.refuse(held.claims(), Refusal::TooFast(wait)).await),
        }
    }

    /// Returns a token that we have given out, whatever became of it.
    async fn genuine(&self, token: &str) -> Result<Held, Refusal> {
        let held = self.tokens.held(token).await;
        held.inspect(|_| guesses::note_good()).map_err(|error| match error {
            FindError::NotGenuine(reason) => {
                tracing::debug!(%reason, "a token is not genuine");
                self.audit.note_forged(reason);
                guesses::note_wrong();
                Refusal::Invalid
            }
            FindError::Store(error) => Refusal::Unclear(error.into()),
        })
    }

    async fn admit(
        &self,
        held: Held,
        sandbox: &SandboxId,
        needed: Option<Capability>,
    ) -> Result<Access, Refusal> {
        let claims = held.claims();
        let (tenant, over) = match self.check(&held, sandbox, needed).await {
            Ok(checked) => checked,
            Err(refusal) => return Err(self.refuse(claims, refusal).await),
        };
        let shown = Shown {
            actor: claims.actor.clone(),
            capabilities: claims.capabilities,
            reach: claims.reach.clone(),
            proof: Proof::Token { held: Box::new(held), over },
        };
        Ok(self.let_in(sandbox, tenant, shown))
    }

    /// Gives the right to a sandbox to whoever has shown this, which was checked.
    fn let_in(&self, sandbox: &SandboxId, tenant: Tenant, shown: Shown) -> Access {
        let Shown { actor, capabilities, reach, proof } = shown;
        let access = Access(Arc::new(Right {
            sandboxes: self.sandboxes.clone(),
            audit: self.audit.clone(),
            request: request::id(),
            sandbox: sandbox.clone(),
            tenant,
            actor,
            capabilities,
            reach,
            proof,
        }));
        request::identify(access.entry(Action::Access));
        access
    }

    /// Notes that a genuine token was refused, for the admins of the tenant that it is of.
    async fn refuse(&self, claims: &Claims, refusal: Refusal) -> Refusal {
        let tenant = match self.keyring.known(&claims.key) {
            Some(caller) => Some(caller.tenant().to_owned()),
            // The key is revoked: whose the sandbox is says the same, as long as there is one.
            None => self.owner(&claims.sandbox).await.ok().map(|tenant| tenant.to_string()),
        };
        self.audit.note(denied(Entry { tenant, ..shown_by(claims) }, &refusal));
        refusal
    }

    /// Checks what a genuine token says.
    async fn check(
        &self,
        held: &Held,
        sandbox: &SandboxId,
        needed: Option<Capability>,
    ) -> Result<(Tenant, Option<watch::Receiver<bool>>), Refusal> {
        let claims = held.claims();
        let (generation, over) = self.generation_of(sandbox, claims);
        let checked = claims.check(clock::timestamp(), sandbox, generation).inspect_err(
            |refusal| tracing::info!(token = claims.id, %sandbox, %refusal, "token refused"),
        );
        let is_stale = checked == Err(TokenRefusal::StaleGeneration);
        if !is_stale {
            checked?;
        }
        if held.is_revoked() {
            tracing::info!(token = claims.id, %sandbox, "a token that was revoked is refused");
            return Err(Refusal::Invalid);
        }
        if is_stale {
            return Err(self.superseded(sandbox).await);
        }
        require(claims.capabilities, needed)?;
        match self.owner(sandbox).await {
            // The token is good, and what it is for may have been replaced.
            Err(Refusal::NotFound) => Err(self.replaced(sandbox).await),
            owner => Ok((owner?, over)),
        }
    }

    /// Checks an API key for a request to this sandbox.
    pub(super) async fn by_key(
        &self,
        key: &str,
        sandbox: Option<&SandboxId>,
        needed: Option<Capability>,
    ) -> Result<Access, Refusal> {
        let caller = self.keyring.authenticate(&self.audit, Ok(key))?;
        self.by_caller(caller, sandbox, needed).await
    }

    /// Checks the holder of a key, whose request was counted already.
    pub(crate) async fn by_caller(
        &self,
        caller: Caller,
        sandbox: Option<&SandboxId>,
        needed: Option<Capability>,
    ) -> Result<Access, Refusal> {
        let actor = caller.actor().clone();
        let capabilities = caller.as_holder().capabilities();
        let checked = self.check_key(&caller, capabilities, sandbox, needed).await;
        let (sandbox, tenant) = checked.inspect_err(|refusal| {
            self.audit.note(denied(audit::by(&caller, Action::Access), refusal));
        })?;
        let (reach, proof) = (Reach::Everywhere, Proof::Key(caller));
        Ok(self.let_in(sandbox, tenant, Shown { actor, capabilities, reach, proof }))
    }

    /// Returns the generation that tokens for a sandbox must have, and what tells that this is over.
    fn generation_of(
        &self,
        sandbox: &SandboxId,
        claims: &Claims,
    ) -> (Generation, Option<watch::Receiver<bool>>) {
        match self.sessions.fence(sandbox) {
            Fence::Bound { generation, over } => (generation, Some(over)),
            // Tokens of a session that is over are good for nothing.
            Fence::Over => (claims.generation.next(), None),
            Fence::Unbound => (Generation::FIRST, None),
        }
    }

    /// Says where the sandbox is that took the place of one; of a session that is just over, nothing.
    async fn superseded(&self, sandbox: &SandboxId) -> Refusal {
        match (self.sessions.fence(sandbox), self.sessions.successor(sandbox).await) {
            (_, Ok(Some(next))) => {
                Refusal::Superseded(Some(Box::new(to_wire::coordinates(&next, &self.base_url))))
            }
            (Fence::Bound { .. }, Ok(None)) => match self.sessions.holder(sandbox) {
                Some(now) => {
                    Refusal::Superseded(Some(Box::new(to_wire::coordinates(&now, &self.base_url))))
                }
                None => Refusal::Superseded(None),
            },
            (Fence::Unbound, Ok(None)) => Refusal::Superseded(None),
            (Fence::Over, Ok(None)) => match self.owner(sandbox).await {
                Err(gone) => gone,
                Ok(_) => Refusal::Invalid,
            },
            (_, Err(error)) => Refusal::Unclear(error.into()),
        }
    }

    async fn replaced(&self, sandbox: &SandboxId) -> Refusal {
        match self.sessions.successor(sandbox).await {
            Ok(Some(next)) => {
                Refusal::Superseded(Some(Box::new(to_wire::coordinates(&next, &self.base_url))))
            }
            Ok(None) => Refusal::NotFound,
            Err(error) => Refusal::Unclear(error.into()),
        }
    }

    async fn check_key<'a>(
        &self,
        caller: &Caller,
        held: Capabilities,
        sandbox: Option<&'a SandboxId>,
        needed: Option<Capability>,
    ) -> Result<(&'a SandboxId, Tenant), Refusal> {
        let sandbox = sandbox.ok_or(Refusal::NotFound)?;
        let tenant = self.owner(sandbox).await?;
        if tenant.as_str() != caller.tenant() {
            return Err(Refusal::NotFound);
        }
        let reached = self.sessions.reach_sandbox(sandbox, caller.as_holder());
        reached.map_err(Refusal::OutOfReach)?;
        require(held, needed)?;
        Ok((sandbox, tenant))
    }

    async fn owner(&self, sandbox: &SandboxId) -> Result<Tenant, Refusal> {
        let owner = self.sandboxes.owner(sandbox).await.map_err(Refusal::Unclear)?;
        owner.ok_or(Refusal::NotFound)
    }
}

/// Returns the entry of a request with a genuine token.
fn shown_by(claims: &Claims) -> Entry {
    Entry {
        actor: Some(claims.actor.clone()),
        key: Some(claims.key.clone()),
        sandbox: Some(claims.sandbox.to_string()),
        jti: Some(claims.id.clone()),
        ..audit::entry(Action::Access, Outcome::Denied)
    }
}

fn denied(entry: Entry, refusal: &Refusal) -> Entry {
    let outcome = match refusal {
        Refusal::Unclear(_) => Outcome::Failed,
        _ => Outcome::Denied,
    };
    Entry { outcome, reason: Some(refusal.reason().into_owned()), ..entry }
}

fn require(held: Capabilities, needed: Option<Capability>) -> Result<(), Refusal> {
    match needed {
        Some(needed) if !held.allows(needed) => Err(Refusal::Denied(needed)),
        Some(_) | None => Ok(()),
    }
}
