//! `…/templates`, `…/volumes` and `…/pools`, as old clients know them. A template is the snapshot of its
//! name that is tagged `latest`; there are no volumes and no pools.

use api::{
    boxes::{CreateTemplate, PoolList, Template, TemplateList, VolumeList},
    errors::ErrorCode,
};
use axum::{Json, extract::State, http::StatusCode};
use engine::sandboxes::{
    SandboxError,
    snapshots::{Tagged, Taking, Wish},
};
use model::{
    ids::{SnapshotName, Tag},
    spec::{Resources, RunAs, Variables},
};

use super::{Mine, docs::templates as docs, from_wire::wrong, quantity, snapshots, to_wire};
use crate::{
    auth::Caller,
    dataplane::shape::Shape,
    http::{
        App,
        boxes::Body,
        problem::{ApiError, Path},
        routes::Routes,
    },
    openapi::Opens,
    tokens::claims::subject,
};

const NO_VOLUMES: &str =
    "there are no volumes here: a sandbox keeps its own files when it is stopped";
const NO_POOLS: &str =
    "there are no pools here: the operator sets sandboxes.prepared, which is for everybody";

pub(super) fn routes(prefix: &str) -> Routes {
    let (all, one) = (format!("{prefix}/templates"), format!("{prefix}/templates/{{template}}"));
    let routes = Routes::new(Shape::Detail)
        .post(&all, Opens::Key, docs::create(), create)
        .get(&all, Opens::Key, docs::list(), list)
        .get(&one, Opens::Key, docs::show(), show)
        .delete(&one, Opens::Key, docs::delete(), delete);
    let (volumes, pools) = (format!("{prefix}/volumes"), format!("{prefix}/pools"));
    let routes = routes
        .get(&volumes, Opens::Key, docs::volumes(), async |_: Caller| Json(VolumeList::default()))
        .get(&pools, Opens::Key, docs::pools(), async |_: Caller| Json(PoolList::default()));
    nothing(nothing(routes, &volumes, NO_VOLUMES), &pools, NO_POOLS)
}

async fn create(
    State(app): State<App>,
    caller: Caller,
    Body(asked): Body<CreateTemplate>,
) -> Result<(StatusCode, Json<Template>), ApiError> {
    let mine = Mine::of(&app, &caller)?;
    let wish = wish(&asked, subject(caller.actor()))?;
    let made = snapshots::keep(&app, &caller, &mine, wish).await?;
    Ok((StatusCode::CREATED, Json(to_wire::template(&made))))
}

fn wish(asked: &CreateTemplate, by: String) -> Result<Wish, ApiError> {
    if asked.volume_mounts.as_ref().is_some_and(|mounts| !mounts.is_empty()) {
        return Err(refuse(NO_VOLUMES));
    }
    let cpu = |text: &String| {
        quantity::read_cpu(text).ok_or_else(|| wrong("cpu", "must be like 500m, 2 or 0.5"))
    };
    let size = |field: &'static str, text: &Option<String>| match text {
        None => Ok(None),
        Some(text) => match quantity::read_size(text) {
            Some(size) => Ok(Some(size)),
            None => Err(wrong(field, "must be like 512Mi, 1Gi or a number of bytes")),
        },
    };
    Ok(Wish {
        name: snapshots::name(asked.name.as_deref())?,
        tag: Tag::default(),
        taking: Taking::Free,
        image: asked
            .image
            .clone()
            .filter(|image| !image.is_empty())
            .ok_or_else(|| wrong("image", "it is missing"))?,
        resources: Resources {
            millicores: asked.cpu.as_ref().map(cpu).transpose()?,
            memory: size("memory", &asked.memory)?,
            disk: size("storage", &asked.storage)?,
            processes: None,
        },
        run: RunAs::default(),
        env: Variables::default(),
        labels: Variables::default(),
        description: None,
        created_by: Some(by),
    })
}

fn refuse(message: &'static str) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, message).with_kind("SandboxConfig")
}

/// Lists templates.
async fn list(State(app): State<App>, caller: Caller) -> Result<Json<TemplateList>, ApiError> {
    let mine = Mine::of(&app, &caller)?;
    let all = mine.sandboxes.snapshots(&mine.tenant).await?;
    let is_template = |it: &&Tagged| it.tags.contains(&Tag::default());
    let shown = all.iter().filter(is_template).map(to_wire::template);
    Ok(Json(TemplateList { templates: shown.collect() }))
}

async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Template>, ApiError> {
    let mine = Mine::of(&app, &caller)?;
    let found = mine.sandboxes.snapshot(&mine.tenant, &latest(&name)?).await?;
    Ok(Json(to_wire::template(&found)))
}

async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    snapshots::remove(&app, &caller, &latest(&name)?).await
}

/// Names the snapshot that is the template of this name. What is no name is nobody's.
fn latest(name: &str) -> Result<String, ApiError> {
    let name: SnapshotName = name.parse().map_err(|_no_name| SandboxError::SnapshotNotFound)?;
    Ok(format!("{name}:{}", Tag::default()))
}

/// Adds the other routes of a list that is always empty.
fn nothing(routes: Routes, all: &str, why: &'static str) -> Routes {
    let one = format!("{all}/{{absent}}");
    let refuse = async move |_: Caller| -> Result<(), ApiError> { Err(refuse(why)) };
    routes
        .post(all, Opens::Key, docs::refused(), refuse)
        .get(&one, Opens::Key, docs::missing("Shows what is never there"), missing)
        .delete(&one, Opens::Key, docs::missing("Deletes what is never there"), missing)
}

async fn missing(_: Caller) -> Result<(), ApiError> {
    Err(ApiError::new(ErrorCode::NotFound, "there is nothing of this name"))
}
