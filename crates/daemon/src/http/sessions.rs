//! `/v1/sandbox/sessions…`: a scope gets its sandbox and a token.
//!
//! Handlers read, ask the engine and write. What is read is in `from_wire`, what is written in
//! `to_wire`, and how refusals are called in `refusals`.

pub(super) mod docs;
pub(super) mod from_wire;
pub(super) mod refusals;
pub(super) mod to_wire;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use api::{
    errors::ErrorCode,
    sessions::{Heartbeat, Refreshed, RefreshedToken, SessionAnswer},
};
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use engine::sessions::{Acquired, Records, Replaced, SessionError, Sessions, Shown, Which};
use model::{
    actor::Actor,
    audit::{Action, Entry},
    capability::Asked,
    ids::Tenant,
    policy::{Policy, TtlError},
    reach::Reach,
    scope::Scope,
    session::{Refusal, Session, SessionEnd},
    token::Lifetime,
};

use super::{
    App,
    problem::{ApiError, Path},
    request,
    routes::Routes,
    strict::{MaybeObject, Object},
};
use crate::{
    audit::{self, Audit},
    auth::{Admin, Caller},
    dataplane::{access::Plane, shape::Shape},
    openapi::Opens,
    tokens::{
        FindError, Held, Tokens,
        again::LastGiven,
        mint::{self, Minted, Wish, mint},
    },
};
use from_wire::{Asking, Proof};
use refusals::Names;

/// For so long a token is good after its holder has shown it to get the next.
const OVERLAP: Duration = Duration::from_mins(1);

pub(super) fn routes() -> Routes {
    const ONE: &str = "/v1/sandbox/sessions/{session_id}";
    let below = |path| format!("{ONE}/{path}");
    Routes::new(Shape::Envelope)
        .post("/v1/sandbox/sessions", Opens::Key, docs::acquire(), acquire)
        .get(ONE, Opens::Key, docs::show(), show)
        .delete(ONE, Opens::Key, docs::release(), release)
        .post(&below("refresh"), Opens::Key, docs::refresh(), refresh)
        .post(&below("refresh-token"), Opens::Key, docs::refresh_token(), refresh_token)
        .post(&below("heartbeat"), Opens::Key, docs::heartbeat(), heartbeat)
        .post("/internal/sandboxes/{sandbox_id}/kill", Opens::Admin, docs::kill(), kill)
}

/// A caller, and what there is for its tenant.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) sessions: Sessions,
    pub(super) tenant: Tenant,
    pub(super) caller: Caller,
    tokens: Tokens,
    pub(super) audit: Audit,
    last_given: LastGiven,
    /// The image of a container for which nobody names one.
    docker_image: Option<String>,
}

/// What was there to be ended.
pub(super) enum Destroyed {
    Session,
    Nothing,
}

/// What somebody wants a token to be.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) actor: Actor,
    pub(super) asked: Option<Asked>,
    pub(super) reach: Reach,
    pub(super) lifetime: Lifetime,
}

impl Terms {
    fn wish(self, session: &Session) -> Wish {
        Wish {
            sandbox: session.sandbox.clone(),
            generation: session.generation,
            actor: Some(self.actor),
            asked: self.asked,
            reach: self.reach,
            lifetime: self.lifetime,
            thread: session.scope.as_thread().map(str::to_owned),
            format: None,
        }
    }
}

impl Desk {
    pub(super) fn of(app: &App, caller: Caller) -> Result<Self, ApiError> {
        let missing = || ApiError::new(ErrorCode::NotFound, "this server keeps no sandboxes");
        let tenant = caller.tenant().parse().map_err(|_name| missing())?;
        let plane = app.plane().ok_or_else(missing)?;
        let Plane { sessions, tokens, audit, .. } = plane;
        let docker_image = app.settings.docker_image.clone();
        let last_given = LastGiven::default();
        Ok(Self { sessions, tenant, caller, tokens, audit, last_given, docker_image })
    }

    /// Lets who asks for the same once more have what was given out last.
    pub(super) fn after(self, last_given: LastGiven) -> Self {
        Self { last_given, ..self }
    }

    /// Returns who acts, if the caller may act for him.
    pub(super) fn acting(&self, actor: Option<Actor>) -> Result<Actor, ApiError> {
        let actor = actor.unwrap_or_else(|| self.caller.actor().clone());
        match Policy::act_for(self.caller.role(), self.caller.actor(), &actor) {
            Ok(()) => Ok(actor),
            Err(error) => Err(mint::MintError::from(error).into()),
        }
    }

    /// Refuses who would get nothing, before anything is done for him.
    pub(super) fn check(&self, terms: &Terms) -> Result<(), ApiError> {
        let granted = mint::grant(&self.caller, &terms.actor, terms.asked.as_ref());
        granted.map(drop).map_err(ApiError::from)
    }

    /// Returns what the audit log says of this that the caller does with a session.
    pub(super) fn entry(&self, action: Action, session: &Session) -> Entry {
        about(session, audit::by(&self.caller, action))
    }

    /// Gives out a token for a session. It is on the audit log before anybody sees it.
    pub(super) async fn mint(
        &self,
        session: &Session,
        terms: Terms,
        action: Action,
    ) -> Result<Minted, ApiError> {
        let minted = mint(&self.tokens, &self.caller, terms.wish(session)).await?;
        self.audit.record(audit::granting(self.entry(action, session), &minted.claims)).await?;
        Ok(minted)
    }

    /// Gives out the token that was given out last, which is on the audit log, if it says all that a new one would.
    fn give_again(&self, session: &Session, terms: &Terms) -> Option<Minted> {
        let wish = terms.clone().wish(session);
        let minted = self.last_given.again(&self.tokens, &self.caller, wish)?;
        let reason = Some("the same token again".to_owned());
        let entry = self.entry(Action::SessionAcquire, session);
        let entry = audit::granting(entry, &minted.claims);
        self.audit.note(Entry { reason, ..entry });
        Some(minted)
    }

    /// Refuses a scope that the operator keeps from the caller. What is not there is for others to say.
    pub(super) async fn reach(&self, which: &Which, names: Names) -> Result<(), ApiError> {
        let reached = self.sessions.reach(&self.tenant, which, self.caller.as_holder()).await;
        self.reached(reached, names)
    }

    fn reaches(&self, scope: &Scope, creator: Option<&str>) -> Result<(), ApiError> {
        let reached = self.caller.as_holder().reaches(scope, creator);
        self.reached(reached.map_err(SessionError::from), Names::Session)
    }

    /// Has it recorded that a scope is out of reach.
    fn reached(&self, reached: Result<(), SessionError>, names: Names) -> Result<(), ApiError> {
        reached.map_err(|error| {
            let scope = match &error {
                SessionError::OutOfReach(out) => Some(out.scope.to_string()),
                _ => None,
            };
            let refused = names.refuse(error);
            if scope.is_some() {
                let entry = audit::by(&self.caller, Action::SessionAcquire);
                self.audit.note(audit::refused(Entry { scope, ..entry }, &refused));
            }
            refused
        })
    }

    /// Returns what gives out a token for a session with the record of its very beginning. The token is left
    /// in this place, for whoever sees that the session has begun.
    fn first_token(&self, terms: Terms, place: &Arc<Mutex<Option<Minted>>>) -> Records {
        let (desk, place) = (self.clone(), Arc::clone(place));
        // Whatever keeps it has no request of its own.
        let entry = audit::by(&self.caller, Action::SessionAcquire);
        Records::new(move |session, replaced| {
            let wish = terms.clone().wish(session);
            // What cannot be made now is tried again, and told, when the session is there.
            let minted = mint::mint_first(&desk.tokens, &desk.caller, wish).ok().flatten();
            let granted = about(session, entry.clone());
            let granted = minted.as_ref().map(|minted| audit::granting(granted, &minted.claims));
            *place.lock().unwrap_or_else(PoisonError::into_inner) = minted;
            let expired = replaced.map(|replaced| expired(replaced, entry.clone()));
            expired.into_iter().chain(granted).collect()
        })
    }

    /// Gives out a token for a session that was acquired: the first one, the one that was given out last, or another.
    async fn give(
        &self,
        session: &Session,
        terms: Terms,
        first: Option<Minted>,
        is_new: bool,
    ) -> Result<Minted, ApiError> {
        // Somebody else may have begun it since it was looked for.
        self.reaches(&session.scope, Some(&session.created_by))?;
        let is_for = |minted: &Minted| {
            minted.claims.sandbox == session.sandbox
                && minted.claims.generation == session.generation
        };
        let again = || if is_new { None } else { self.give_again(session, &terms) };
        let minted = match first.filter(is_for).or_else(again) {
            Some(minted) => minted,
            None => self.mint(session, terms, Action::SessionAcquire).await?,
        };
        self.last_given.remember(&minted);
        Ok(minted)
    }

    /// Gives a scope its sandbox and the caller a token.
    pub(super) async fn acquire(&self, asked: Asking) -> Result<(Acquired, Minted), ApiError> {
        let Asking { mut acquire, terms, names } = asked;
        self.reach(&Which::Scope(acquire.scope.clone()), names).await?;
        let scope = Some(acquire.scope.to_string());
        let entry = Entry { scope, ..audit::by(&self.caller, Action::SessionAcquire) };
        self.audit.refusal(&entry, self.check(&terms))?;
        let first = Arc::default();
        acquire.records = self.first_token(terms.clone(), &first);
        // What is sent once more because nobody heard the answer gets another token.
        let is_new = acquire.key.is_some();
        let give = async |session: &Session| {
            let first = first.lock().unwrap_or_else(PoisonError::into_inner).take();
            self.give(session, terms, first, is_new).await
        };
        let acquired = self.sessions.acquire_with(acquire, give).await;
        let acquired = acquired.map_err(|error| names.refuse(error));
        let (acquired, minted) = self.audit.refusal(&entry, acquired)?;
        // A new session has its record in the transaction that begins it.
        request::mark_recorded();
        Ok((acquired, minted?))
    }

    /// Shows the session of this id.
    pub(super) async fn find(&self, id: &str, names: Names) -> Result<Shown, ApiError> {
        self.show(&from_wire::which(id, names)?, names).await
    }

    pub(super) async fn show(&self, which: &Which, names: Names) -> Result<Shown, ApiError> {
        self.reach(which, names).await?;
        self.sessions.show(&self.tenant, which).await.map_err(|error| names.refuse(error))
    }

    /// Moves the end of the session of this id.
    pub(super) async fn heartbeat(&self, id: &str) -> Result<Heartbeat, ApiError> {
        self.keep(&from_wire::which(id, Names::Binding)?, Names::Binding).await
    }

    pub(super) async fn keep(&self, which: &Which, names: Names) -> Result<Heartbeat, ApiError> {
        self.reach(which, names).await?;
        let shown = self.sessions.heartbeat(&self.tenant, which).await;
        let shown = shown.map_err(|error| names.refuse(error))?;
        self.audit.note(self.entry(Action::SessionHeartbeat, &shown.session));
        Ok(to_wire::heartbeat(&shown))
    }

    /// Ends the session of a scope, with its sandbox.
    pub(super) async fn destroy(&self, scope: Scope) -> Result<Destroyed, ApiError> {
        let entry = self.ending(&scope);
        let which = Which::Scope(scope);
        self.reach(&which, Names::Session).await?;
        let entry = self.about_last(&which, entry).await;
        match self.sessions.destroy(&self.tenant, &which, SessionEnd::Destroyed).await {
            Err(SessionError::Refused(Refusal::NotFound)) => Ok(Destroyed::Nothing),
            destroyed => {
                let destroyed = destroyed.map_err(|error| Names::Session.refuse(error));
                self.audit.refusal(&entry, destroyed)?;
                self.audit.note(entry);
                Ok(Destroyed::Session)
            }
        }
    }

    /// Refuses to end what a scope does not have.
    pub(super) fn refuse_end<T>(&self, scope: &Scope) -> Result<T, ApiError> {
        self.audit.refusal(&self.ending(scope), Err(Names::Session.not_found()))
    }

    fn ending(&self, scope: &Scope) -> Entry {
        let entry = audit::by(&self.caller, Action::SessionRelease);
        Entry { scope: Some(scope.to_string()), ..entry }
    }

    /// Adds to an entry which session and sandbox it is about.
    async fn about_last(&self, which: &Which, entry: Entry) -> Entry {
        match self.sessions.find(&self.tenant, which).await {
            Ok(Some(session)) => about(&session, entry),
            Ok(None) | Err(_) => entry,
        }
    }

    /// Ends a session. Its sandbox is kept for a while.
    pub(super) async fn release(&self, id: String) -> Result<(), ApiError> {
        let which = from_wire::which(&id, Names::Session)?;
        self.reach(&which, Names::Session).await?;
        let entry = Entry { session: Some(id), ..audit::by(&self.caller, Action::SessionRelease) };
        let entry = self.about_last(&which, entry).await;
        let released = self.sessions.release(&self.tenant, &which).await;
        let released = released.map_err(|error| Names::Session.refuse(error));
        self.audit.refusal(&entry, released)?;
        self.audit.note(entry);
        Ok(())
    }

    /// Returns how long tokens of sessions are valid.
    pub(super) fn session_lifetime(&self) -> Lifetime {
        self.caller.policy().session_ttl
    }

    /// Decides how long a token of a thread is valid.
    pub(super) fn thread_lifetime(&self, asked: Option<u64>) -> Result<Lifetime, TtlError> {
        self.caller.policy().lifetime(asked)
    }

    /// Gives out the next token: what the one is that is shown, which then ends soon, or else what the caller may
    /// have.
    pub(super) async fn renew(
        &self,
        shown: &Shown,
        proof: Option<Proof>,
        lifetime: Lifetime,
    ) -> Result<Minted, ApiError> {
        let Some(proof) = proof else {
            let actor = self.acting(None)?;
            let terms = Terms { actor, asked: None, reach: Reach::Everywhere, lifetime };
            return self.mint(&shown.session, terms, Action::SessionRefresh).await;
        };
        let old = self.proven(shown, &proof).await?;
        let claims = old.claims();
        let asked = Some(Asked::scope(&claims.capabilities.to_string())?);
        let (actor, reach) = (self.acting(Some(claims.actor.clone()))?, claims.reach.clone());
        let terms = Terms { actor, asked, reach, lifetime };
        let minted = self.mint(&shown.session, terms, Action::SessionRefresh).await?;
        self.tokens.revoke_after(claims, &minted.claims, OVERLAP).await?;
        Ok(minted)
    }

    /// Returns the token that is shown, if it is one of this session that nobody has ended. It may have expired.
    async fn proven(&self, shown: &Shown, Proof(token): &Proof) -> Result<Held, ApiError> {
        let session = &shown.session;
        match self.tokens.held(token).await {
            Ok(held)
                if !held.is_revoked()
                    && held.claims().sandbox == session.sandbox
                    && held.claims().generation == session.generation =>
            {
                Ok(held)
            }
            Err(FindError::Store(error)) => Err(error.into()),
            Ok(_) | Err(FindError::NotGenuine(_)) => {
                let message = "current_token is no token of this session; ask for a session anew";
                Err(ApiError::new(ErrorCode::Unauthenticated, message))
            }
        }
    }
}

/// Says in an entry that a session has ended, and its sandbox with it, because another took its place.
fn expired(Replaced { session, end }: Replaced<'_>, entry: Entry) -> Entry {
    let (action, reason) = (Action::SessionExpire, Some(end.name().to_owned()));
    about(session, Entry { action, reason, ..entry })
}

/// Says in an entry which session it is about.
fn about(session: &Session, entry: Entry) -> Entry {
    Entry {
        scope: Some(session.scope.to_string()),
        session: Some(session.id.to_string()),
        sandbox: Some(session.sandbox.to_string()),
        ..entry
    }
}

/// Gives a scope its sandbox: the one that it has, or a new one.
async fn acquire(
    State(app): State<App>,
    caller: Caller,
    last_given: LastGiven,
    headers: HeaderMap,
    body: Object,
) -> Result<Json<SessionAnswer>, ApiError> {
    let desk = Desk::of(&app, caller)?.after(last_given);
    let key = from_wire::request_key(&desk, &headers, body.fingerprint("POST sessions"))?;
    let asked = from_wire::acquire(&desk, body, key, app.settings.sessions_image.as_deref())?;
    let (acquired, minted) = desk.acquire(asked).await?;
    Ok(Json(to_wire::session(&acquired.shown, &minted, acquired.hint, &app.base_url)))
}

/// Shows a session, with a new token.
async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<SessionAnswer>, ApiError> {
    let desk = Desk::of(&app, caller)?;
    let shown = desk.find(&id, Names::Session).await?;
    let minted = desk.renew(&shown, None, desk.session_lifetime()).await?;
    let hint = engine::sessions::Hint::Fine;
    Ok(Json(to_wire::session(&shown, &minted, hint, &app.base_url)))
}

async fn refresh(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    MaybeObject(mut body): MaybeObject,
) -> Result<Json<Refreshed>, ApiError> {
    let desk = Desk::of(&app, caller)?;
    let proof = from_wire::proof(&mut body)?;
    let shown = desk.find(&id, Names::Session).await?;
    let minted = desk.renew(&shown, proof, desk.session_lifetime()).await?;
    Ok(Json(to_wire::refreshed(&minted)))
}

async fn refresh_token(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    MaybeObject(mut body): MaybeObject,
) -> Result<Json<RefreshedToken>, ApiError> {
    let desk = Desk::of(&app, caller)?;
    let proof = from_wire::proof(&mut body)?;
    let shown = desk.find(&id, Names::Binding).await?;
    let minted = desk.renew(&shown, proof, desk.session_lifetime()).await?;
    Ok(Json(to_wire::refreshed_token(&minted)))
}

async fn heartbeat(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    MaybeObject(_): MaybeObject,
) -> Result<Json<Heartbeat>, ApiError> {
    Desk::of(&app, caller)?.heartbeat(&id).await.map(Json)
}

async fn release(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    Desk::of(&app, caller)?.release(id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Ends a sandbox, whoever uses it.
async fn kill(
    State(app): State<App>,
    Admin(caller): Admin,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    let desk = Desk::of(&app, caller)?;
    let killed = desk.sessions.kill(&desk.tenant, &name).await;
    let killed = killed.map_err(|error| Names::Session.refuse(error));
    let entry = Entry { sandbox: Some(name), ..audit::by(&desk.caller, Action::SandboxKill) };
    let (sandbox, session) = desk.audit.refusal(&entry, killed)?;
    let entry = match session {
        Some(session) => about(&session, entry),
        None => Entry { sandbox: Some(sandbox.to_string()), ..entry },
    };
    desk.audit.note(entry);
    Ok(StatusCode::ACCEPTED)
}
