//! `…/v2/sandboxes/boxes`: sandboxes as LangSmith's clients create and see them.

mod docs;
mod from_wire;
mod to_wire;

use std::time::Duration;

use api::{
    errors::ErrorCode,
    langsmith::{BoxList, BoxStatus, CreateBox, SandboxBox},
};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use engine::sandboxes::{SandboxError, Sandboxes, Terms};
use model::{
    audit::{Action, Entry},
    ids::Tenant,
    life::{EndCause, Phase},
    sandbox::Sandbox,
};
use serde::Deserialize;
use store::sandboxes::{Filter, Phases};
use tokio::time::timeout;

use super::{
    App,
    problem::{ApiError, Body, Query},
    routes::Routes,
};
use crate::{audit, auth::Caller, dataplane::shape::Shape, openapi::Opens};

/// Where clients of every age look for it.
const PREFIXES: [&str; 2] = ["/v2/sandboxes", "/api/v2/sandboxes"];

/// How long a creation is waited for, if nobody says, and at most.
const READY_WITHIN: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_mins(10);

/// What a list has at most.
const PAGE: u32 = 500;

pub(super) fn routes() -> Routes {
    let mut routes = Routes::new(Shape::Detail);
    for prefix in PREFIXES {
        let (all, one) = (format!("{prefix}/boxes"), format!("{prefix}/boxes/{{name}}"));
        let below = |path| format!("{one}/{path}");
        routes = routes
            .post(&all, Opens::Key, docs::create(), create)
            .get(&all, Opens::Key, docs::list(), list)
            .get(&one, Opens::Key, docs::show(), show)
            .delete(&one, Opens::Key, docs::delete(), delete)
            .get(&below("status"), Opens::Key, docs::status(), status)
            .post(&below("start"), Opens::Key, docs::start(), start)
            .post(&below("stop"), Opens::Key, docs::stop(), stop);
    }
    routes
}

/// A caller and the sandboxes of its tenant.
struct Mine {
    sandboxes: Sandboxes,
    tenant: Tenant,
}

impl Mine {
    fn of(app: &App, caller: &Caller) -> Result<Self, ApiError> {
        let missing = || ApiError::new(ErrorCode::NotFound, "this server keeps no sandboxes");
        let tenant = caller.tenant().parse().map_err(|_name| missing())?;
        Ok(Self { sandboxes: app.sandboxes.clone().ok_or_else(missing)?, tenant })
    }

    /// Returns a sandbox that was not deleted.
    async fn find(&self, name: &str) -> Result<Sandbox, ApiError> {
        let sandbox = self.sandboxes.get(&self.tenant, name).await?;
        match sandbox.life.phase {
            Phase::Deleting | Phase::Terminated => Err(SandboxError::NotFound.into()),
            _ => Ok(sandbox),
        }
    }

    /// Returns the entry of something that is done to a sandbox which was not deleted.
    async fn about(&self, who: &Caller, action: Action, name: &str) -> Result<Entry, ApiError> {
        let sandbox = self.find(name).await?.id;
        Ok(Entry { sandbox: Some(sandbox.to_string()), ..audit::by(who, action) })
    }
}

async fn create(
    State(app): State<App>,
    caller: Caller,
    Body(asked): Body<CreateBox>,
) -> Result<(StatusCode, Json<SandboxBox>), ApiError> {
    let mine = Mine::of(&app, &caller)?;
    let name = from_wire::name(asked.name.as_deref())?;
    let spec = from_wire::spec(&asked, app.settings.sessions_image.as_deref())?;
    let within = from_wire::within(asked.timeout, READY_WITHIN)?.min(LONGEST);
    let entry = audit::by(&caller, Action::SandboxCreate);
    let terms = Terms { entry: entry.clone(), quotas: caller.quotas() };
    let created = mine.sandboxes.create_recorded(&mine.tenant, Some(name), spec, terms);
    let created = app.audit.refusal(&entry, created.await)?;
    if !asked.wait_for_ready {
        return Ok((StatusCode::CREATED, Json(to_wire::shown(&created, &app.base_url))));
    }
    let ready = timeout(within, mine.sandboxes.settled(created)).await.map_err(|_elapsed| {
        let message = "the sandbox is not ready yet; ask for it by its name";
        ApiError::new(ErrorCode::Timeout, message)
    })??;
    if let Some(failure) = ready.life.failure.as_ref().filter(|_| ready.life.phase == Phase::Failed)
    {
        let message = format!("the sandbox failed: {}", failure.message);
        return Err(ApiError::new(ErrorCode::SandboxNotReady, message).with_kind("SandboxConfig"));
    }
    Ok((StatusCode::CREATED, Json(to_wire::shown(&ready, &app.base_url))))
}

async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<SandboxBox>, ApiError> {
    let sandbox = Mine::of(&app, &caller)?.find(&name).await?;
    Ok(Json(to_wire::shown(&sandbox, &app.base_url)))
}

async fn status(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<BoxStatus>, ApiError> {
    let sandbox = Mine::of(&app, &caller)?.find(&name).await?;
    Ok(Json(to_wire::status(&sandbox)))
}

/// Which ones to list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Wanted {
    limit: Option<u32>,
    page_size: Option<u32>,
    cursor: Option<String>,
    name_contains: Option<String>,
    status: Option<String>,
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
) -> Result<Json<BoxList>, ApiError> {
    let mine = Mine::of(&app, &caller)?;
    let after = wanted.cursor.map(|cursor| cursor.parse()).transpose().map_err(|_form| {
        ApiError::new(ErrorCode::InvalidRequest, "cursor is not one that this route gave")
    })?;
    let limit = wanted.limit.or(wanted.page_size).unwrap_or(PAGE).clamp(1, PAGE);
    let phases = Phases::Undeleted;
    let (tenant, labels) = (mine.tenant.clone(), std::collections::BTreeMap::new());
    let page = mine.sandboxes.list(Filter { tenant, labels, phases, after, limit }).await?;
    let shown = page.sandboxes.iter().map(|sandbox| to_wire::shown(sandbox, &app.base_url));
    let is_wanted = |shown: &SandboxBox| {
        wanted.name_contains.as_ref().is_none_or(|part| shown.name.contains(part.as_str()))
            && wanted.status.as_ref().is_none_or(|status| shown.status == status)
    };
    let sandboxes: Vec<SandboxBox> = shown.filter(is_wanted).collect();
    let items = sandboxes.clone();
    let next_cursor = page.next.map(|cursor| cursor.to_string());
    Ok(Json(BoxList { sandboxes, items, next_cursor, offset: 0 }))
}

async fn start(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<SandboxBox>, ApiError> {
    let mine = Mine::of(&app, &caller)?;
    let entry = mine.about(&caller, Action::SandboxResume, &name).await?;
    app.audit.refusal(&entry, mine.sandboxes.resume(&mine.tenant, &name).await)?;
    app.audit.note(entry);
    Ok(Json(to_wire::shown(&mine.find(&name).await?, &app.base_url)))
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
    Ok(Json(to_wire::shown(&mine.find(&name).await?, &app.base_url)))
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
