//! `…/snapshots`: images under names of the tenant's own.

use api::boxes::{CreateSnapshot, ShownSnapshot, SnapshotList, SnapshotTag, SnapshotTags};
use api::errors::ErrorCode;
use axum::{
    Json,
    extract::State,
    http::{StatusCode, Uri},
};
use engine::sandboxes::{
    SandboxError,
    snapshots::{Taking, Wish},
};
use model::{
    audit::{Action, Entry},
    ids::{SnapshotName, Tag},
    spec::Resources,
};

use super::{
    Body, Mine, docs::snapshots as docs, from_wire, from_wire::wrong, not_made, query, to_wire,
};
use crate::{
    audit,
    auth::Caller,
    dataplane::shape::Shape,
    http::{
        App,
        problem::{ApiError, Path},
        routes::Routes,
    },
    openapi::Opens,
    tokens::claims::subject,
};

/// The longest that a description is.
const DESCRIPTION: usize = 1024;

pub(super) fn routes(prefix: &str) -> Routes {
    let (all, one) = (format!("{prefix}/snapshots"), format!("{prefix}/snapshots/{{reference}}"));
    let named = format!("{prefix}/snapshots-by-name/{{snapshot_name}}");
    Routes::new(Shape::Detail)
        .post(&all, Opens::Key, docs::create(), create)
        .get(&all, Opens::Key, docs::list(), list)
        .get(&one, Opens::Key, docs::show(), show)
        .delete(&one, Opens::Key, docs::delete(), delete)
        .get(&named, Opens::Key, docs::tags(), tags)
}

async fn create(
    State(app): State<App>,
    caller: Caller,
    Body(asked): Body<CreateSnapshot>,
) -> Result<(StatusCode, Json<ShownSnapshot>), ApiError> {
    let mine = Mine::of(&app, &caller)?;
    let wish = wish(asked, subject(caller.actor()))?;
    let made = keep(&app, &caller, &mine, wish).await?;
    Ok((StatusCode::CREATED, Json(to_wire::snapshot(&made))))
}

/// Has a snapshot made, and says so in the audit log.
pub(super) async fn keep(
    app: &App,
    caller: &Caller,
    mine: &Mine,
    wish: Wish,
) -> Result<engine::sandboxes::snapshots::Tagged, ApiError> {
    let entry = audit::by(caller, Action::SnapshotCreate);
    let made = mine.sandboxes.create_snapshot(&mine.tenant, wish).await.map_err(not_made);
    let made = app.audit.refusal(&entry, made)?;
    app.audit.note(Entry { object: Some(made.snapshot.id.to_string()), ..entry });
    Ok(made)
}

fn wish(asked: CreateSnapshot, by: String) -> Result<Wish, ApiError> {
    if asked.registry_id.is_some_and(|id| !id.is_empty()) {
        let message = "registry_id: how registries are logged in to is set in images.registries";
        return Err(ApiError::new(ErrorCode::InvalidRequest, message).with_kind("SandboxConfig"));
    }
    if asked.description.as_ref().is_some_and(|text| text.len() > DESCRIPTION) {
        return Err(wrong("description", "must have 1024 bytes at most"));
    }
    let run = asked.run_config.unwrap_or_default();
    Ok(Wish {
        name: name(asked.name.as_deref())?,
        tag: match asked.tag.as_deref() {
            None => Tag::default(),
            Some(tag) => tag.parse().map_err(|error| wrong("tag", &format!("{error}")))?,
        },
        taking: Taking::Moving,
        image: asked
            .docker_image
            .filter(|image| !image.is_empty())
            .ok_or_else(|| wrong("docker_image", "it is missing"))?,
        resources: Resources {
            disk: from_wire::size("fs_capacity_bytes", asked.fs_capacity_bytes)?,
            ..Resources::default()
        },
        run: from_wire::run(run.user, run.work_dir)?,
        env: run.env_vars.unwrap_or_default(),
        labels: from_wire::labels(asked.labels)?,
        description: asked.description,
        created_by: Some(by),
    })
}

pub(super) fn name(asked: Option<&str>) -> Result<SnapshotName, ApiError> {
    let name = asked.ok_or_else(|| wrong("name", "it is missing"))?;
    name.parse().map_err(|error| wrong("name", &format!("{error}")))
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<SnapshotList>, ApiError> {
    let mine = Mine::of(&app, &caller)?;
    let wanted = query::read(&uri, &query::SNAPSHOTS, &subject(caller.actor()))?;
    let all = mine.sandboxes.snapshots(&mine.tenant).await?;
    let found = wanted.query.select(all, to_wire::snapshot_row);
    let snapshots: Vec<ShownSnapshot> = found.items.iter().map(to_wire::snapshot).collect();
    let (next_cursor, offset) = wanted.next(found.next.as_ref(), snapshots.len());
    Ok(Json(SnapshotList { items: snapshots.clone(), snapshots, next_cursor, offset }))
}

async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(reference): Path<String>,
) -> Result<Json<ShownSnapshot>, ApiError> {
    let mine = Mine::of(&app, &caller)?;
    let found = mine.sandboxes.snapshot(&mine.tenant, &reference).await?;
    Ok(Json(to_wire::snapshot(&found)))
}

async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(reference): Path<String>,
) -> Result<StatusCode, ApiError> {
    remove(&app, &caller, &reference).await
}

/// Deletes a snapshot, and says so in the audit log.
pub(super) async fn remove(
    app: &App,
    caller: &Caller,
    reference: &str,
) -> Result<StatusCode, ApiError> {
    let mine = Mine::of(app, caller)?;
    let entry = audit::by(caller, Action::SnapshotDelete);
    let deleted = mine.sandboxes.delete_snapshot(&mine.tenant, reference).await;
    let id = app.audit.refusal(&entry, deleted)?;
    app.audit.note(Entry { object: Some(id.to_string()), ..entry });
    Ok(StatusCode::NO_CONTENT)
}

async fn tags(
    State(app): State<App>,
    caller: Caller,
    Path(asked): Path<String>,
) -> Result<Json<SnapshotTags>, ApiError> {
    let mine = Mine::of(&app, &caller)?;
    let asked = name(Some(&asked))?;
    let all = mine.sandboxes.snapshots(&mine.tenant).await?;
    let of_name: Vec<_> = all.iter().filter(|it| it.snapshot.name == asked).collect();
    if of_name.is_empty() {
        return Err(SandboxError::SnapshotNotFound.into());
    }
    let tags = of_name.iter().flat_map(|it| {
        let snapshot_id = it.snapshot.id.to_string();
        let shown =
            move |tag: &Tag| SnapshotTag { tag: tag.to_string(), snapshot_id: snapshot_id.clone() };
        it.tags.iter().map(shown)
    });
    let mut tags: Vec<SnapshotTag> = tags.collect();
    tags.sort_by(|one, other| one.tag.cmp(&other.tag));
    Ok(Json(SnapshotTags { name: asked.to_string(), tags }))
}
