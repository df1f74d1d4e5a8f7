//! `…/v2/sandboxes`: sandboxes and snapshots as LangSmith's clients make and see them.

mod docs;
mod from_wire;
mod links;
mod quantity;
mod query;
mod snapshots;
mod templates;
mod to_wire;

use std::time::Duration;

use api::{
    boxes::{BoxList, BoxStatus, CreateBox, SandboxBox, UpdateBox},
    errors::ErrorCode,
};
use axum::{
    Json,
    extract::{FromRequest, Request, State},
    http::{StatusCode, Uri},
};
use engine::{
    images::ImageError,
    sandboxes::{SandboxError, Sandboxes, Terms},
    sessions::Sessions,
};
use model::{
    audit::{Action, Entry},
    holder::OutOfReach,
    ids::Tenant,
    life::EndCause,
    sandbox::Sandbox,
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::{
    App,
    problem::{ApiError, Path},
    request,
    routes::Routes,
    strict::MaybeObject,
};
use crate::{
    audit, auth::Caller, dataplane::shape::Shape, openapi::Opens, tokens::claims::subject,
};

/// Where clients of every age look for it.
const PREFIXES: [&str; 2] = ["/v2/sandboxes", "/api/v2/sandboxes"];

/// How long a creation is waited for, if nobody says, and at most.
const READY_WITHIN: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_mins(10);

pub(super) fn routes() -> Routes {
    let mut routes = Routes::new(Shape::Detail);
    for prefix in PREFIXES {
        let (all, one) = (format!("{prefix}/boxes"), format!("{prefix}/boxes/{{name}}"));
        let below = |path| format!("{one}/{path}");
        routes = routes
            .post(&all, Opens::Key, docs::create(), create)
            .get(&all, Opens::Key, docs::list(), list)
            .get(&one, Opens::Key, docs::show(), show)
            .patch(&one, Opens::Key, docs::update(), update)
            .delete(&one, Opens::Key, docs::delete(), delete)
            .get(&below("status"), Opens::Key, docs::status(), status)
            .post(&below("start"), Opens::Key, docs::start(), start)
            .post(&below("stop"), Opens::Key, docs::stop(), stop)
            .post(&below("snapshot"), Opens::Key, docs::capture(), capture)
            .and(links::routes(prefix))
            .and(snapshots::routes(prefix))
            .and(templates::routes(prefix));
    }
    routes
}

/// The body of a request: no body at all is an empty object.
#[derive(Debug)]
struct Body<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let MaybeObject(object) = MaybeObject::from_request(request, state).await?;
        object.message().map(Self)
    }
}

/// A caller and the sandboxes of its tenant.
struct Mine {
    sandboxes: Sandboxes,
    sessions: Option<Sessions>,
    tenant: Tenant,
    caller: Caller,
}

impl Mine {
    fn of(app: &App, caller: &Caller) -> Result<Self, ApiError> {
        let missing = || ApiError::new(ErrorCode::NotFound, "this server keeps no sandboxes");
        let tenant = caller.tenant().parse().map_err(|_name| missing())?;
        let sandboxes = app.sandboxes.clone().ok_or_else(missing)?;
        Ok(Self { sandboxes, sessions: app.sessions.clone(), tenant, caller: caller.clone() })
    }

    /// Returns a sandbox that was not deleted.
    async fn find(&self, name: &str) -> Result<Sandbox, ApiError> {
        let found = self.sandboxes.undeleted(&self.tenant, name).await?;
        self.reach(&found)?;
        Ok(found)
    }

    fn reach(&self, sandbox: &Sandbox) -> Result<(), OutOfReach> {
        match &self.sessions {
            Some(sessions) => sessions.reach_sandbox(&sandbox.id, self.caller.as_holder()),
            None => Ok(()),
        }
    }

    /// Returns the entry of something that is done to a sandbox which was not deleted.
    async fn about(&self, who: &Caller, action: Action, name: &str) -> Result<Entry, ApiError> {
        let sandbox = self.find(name).await?.id;
        Ok(Entry { sandbox: Some(sandbox.to_string()), ..audit::by(who, action) })
    }

    fn shown(&self, sandbox: &Sandbox, app: &App) -> Json<SandboxBox> {
        Json(to_wire::shown(sandbox, &app.base_url, self.sandboxes.keeps_stopped()))
    }
}

/// Says why no sandbox or snapshot came about, as LangSmith's clients tell it apart.
fn not_made(error: SandboxError) -> ApiError {
    match error {
        SandboxError::Image(error) => match error {
            ImageError::SpawnerGone | ImageError::Worker { .. } | ImageError::Store { .. } => {
                ApiError::from(SandboxError::Image(error))
            }
            ImageError::Busy => ApiError::new(ErrorCode::Unavailable, error.to_string()),
            ImageError::NotAllowed(_) => ApiError::new(ErrorCode::Forbidden, error.to_string()),
            other => {
                ApiError::new(ErrorCode::InvalidRequest, other.to_string()).with_kind("ImagePull")
            }
        },
        SandboxError::Invalid(message) | SandboxError::Field { message, .. } => {
            ApiError::new(ErrorCode::InvalidRequest, message).with_kind("SandboxConfig")
        }
        SandboxError::Resource(refusal) => {
            ApiError::new(ErrorCode::InvalidRequest, refusal.to_string()).with_kind("SandboxConfig")
        }
        SandboxError::Snapshot(refusal) => {
            ApiError::new(ErrorCode::InvalidRequest, refusal.to_string()).with_kind("SandboxConfig")
        }
        other => other.into(),
    }
}

async fn create(
    State(app): State<App>,
    caller: Caller,
    Body(asked): Body<CreateBox>,
) -> Result<(StatusCode, Json<SandboxBox>), ApiError> {
    let mine = Mine::of(&app, &caller)?;
    let name = from_wire::name(asked.name.as_deref())?;
    let within = from_wire::within(asked.timeout, READY_WITHIN)?.min(LONGEST);
    let default_image = app.settings.sessions_image.as_deref();
    let from = from_wire::source(&asked, default_image)?;
    let spec = from_wire::spec(&asked, subject(caller.actor()))?;
    let entry = audit::by(&caller, Action::SandboxCreate);
    let terms = Terms { entry: entry.clone(), quotas: caller.quotas() };
    let creating = async {
        let spec = mine.sandboxes.made_from(&mine.tenant, &from, default_image, spec).await?;
        let spec = mine.sandboxes.as_root_by_default(spec);
        mine.sandboxes.create_recorded(&mine.tenant, Some(name), spec, terms).await
    };
    let created = creating.await.map_err(not_made);
    let created = app.audit.refusal(&entry, created)?;
    request::mark_recorded();
    if asked.wait_for_ready == Some(false) {
        return Ok((StatusCode::CREATED, mine.shown(&created, &app)));
    }
    let name = to_wire::name(&created).to_owned();
    let ready = timeout(within, mine.sandboxes.settled(created)).await.map_err(|_elapsed| {
        ApiError::new(ErrorCode::Timeout, format!("box {name} is not ready yet"))
    })??;
    if let Some(failure) = ready.life.broken_by() {
        let message = format!("box {name} failed: {}", failure.message);
        let kind = to_wire::failure(failure.cause);
        return Err(ApiError::new(ErrorCode::SandboxNotReady, message).with_kind(kind));
    }
    Ok((StatusCode::CREATED, mine.shown(&ready, &app)))
}

async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<SandboxBox>, ApiError> {
    let mine = Mine::of(&app, &caller)?;
    Ok(mine.shown(&mine.find(&name).await?, &app))
}

async fn status(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<BoxStatus>, ApiError> {
    let sandbox = Mine::of(&app, &caller)?.find(&name).await?;
    Ok(Json(to_wire::status(&sandbox)))
}

async fn list(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Json<BoxList>, ApiError> {
    let mine = Mine::of(&app, &caller)?;
    let wanted = query::read(&uri, &query::BOXES, &subject(caller.actor()))?;
    let phases = to_wire::phases(wanted.query.status.as_deref());
    let keeps = mine.sandboxes.keeps_stopped();
    let (sandboxes, query) = (&mine.sandboxes, &wanted.query);
    let found = sandboxes.select(&mine.tenant, phases, query, |it| to_wire::row(it, keeps)).await?;
    let shown = found.items.iter().filter(|sandbox| mine.reach(sandbox).is_ok());
    let sandboxes: Vec<SandboxBox> =
        shown.map(|sandbox| to_wire::shown(sandbox, &app.base_url, keeps)).collect();
    let (next_cursor, offset) = wanted.next(found.next.as_ref(), found.items.len());
    Ok(Json(BoxList { items: sandboxes.clone(), sandboxes, next_cursor, offset }))
}

async fn update(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    Body(asked): Body<UpdateBox>,
) -> Result<Json<SandboxBox>, ApiError> {
    let mine = Mine::of(&app, &caller)?;
    let entry = mine.about(&caller, Action::SandboxUpdate, &name).await?;
    let adjustment = from_wire::adjustment(asked, subject(caller.actor()))?;
    let adjusted = mine.sandboxes.adjust(&mine.tenant, &name, adjustment).await.map_err(not_made);
    let adjusted = app.audit.refusal(&entry, adjusted)?;
    app.audit.note(entry);
    Ok(mine.shown(&adjusted, &app))
}

async fn start(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<SandboxBox>, ApiError> {
    let mine = Mine::of(&app, &caller)?;
    let entry = mine.about(&caller, Action::SandboxResume, &name).await?;
    app.audit.refusal(&entry, mine.sandboxes.start(&mine.tenant, &name).await)?;
    app.audit.note(entry);
    Ok(mine.shown(&mine.find(&name).await?, &app))
}

async fn stop(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<SandboxBox>, ApiError> {
    let mine = Mine::of(&app, &caller)?;
    let entry = mine.about(&caller, Action::SandboxStop, &name).await?;
    app.audit.refusal(&entry, mine.sandboxes.stop(&mine.tenant, &name).await)?;
    app.audit.note(entry);
    Ok(mine.shown(&mine.find(&name).await?, &app))
}

async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    let mine = Mine::of(&app, &caller)?;
    let entry = mine.about(&caller, Action::SandboxDelete, &name).await?;
    let deleted = mine.sandboxes.delete(&mine.tenant, &name, EndCause::Requested).await;
    app.audit.refusal(&entry, deleted)?;
    app.audit.note(entry);
    Ok(StatusCode::NO_CONTENT)
}

/// A snapshot of a sandbox itself cannot be had yet; of an image it can.
async fn capture(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<(), ApiError> {
    Mine::of(&app, &caller)?.find(&name).await?;
    let message = "snapshots are made of images here, and not of sandboxes yet";
    Err(ApiError::new(ErrorCode::NotImplemented, message))
}
