//! Names of files: lists of them, and what makes, moves and removes them.

use api::{
    errors::ErrorCode,
    files::{EditFile, EditedFile, FileList, FileShown, MakeDirectory, MoveFile},
};
use axum::{
    Json,
    http::{HeaderMap, StatusCode, Uri, header::ETAG},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use engine::sandboxes::files::{Depth, Links, Onto, Parents, Place};
use model::file::{Condition, FileStat, Occurrences};

use super::{
    Operation, conditional,
    errors::{reading, writing},
    operate, parameters, place, shown,
};
use crate::{
    dataplane::access::Access,
    http::problem::{ApiError, Body},
};

/// Names on one page if nobody says how many.
const PAGE: u32 = 1000;

pub(super) async fn list(access: Access, uri: Uri) -> Result<Json<FileList>, ApiError> {
    let parameters = parameters(&uri, &["path", "cursor", "limit"])?;
    let place = parameters.place(&access)?;
    let limit = parameters.number("limit")?;
    page(&access, &place, parameters.bytes("cursor"), limit).await.map(Json)
}

/// Lists what the directory has that a path names.
pub(crate) async fn list_at(
    access: &Access,
    path: &str,
    cursor: Option<&str>,
    limit: u32,
) -> Result<FileList, ApiError> {
    let place = place::of_text(access, path.as_bytes())?;
    page(access, &place, cursor.map(str::as_bytes), Some(limit)).await
}

async fn page(
    access: &Access,
    place: &Place,
    cursor: Option<&[u8]>,
    limit: Option<u32>,
) -> Result<FileList, ApiError> {
    let cursor = cursor.map(|cursor| URL_SAFE_NO_PAD.decode(cursor));
    let cursor = cursor.transpose().map_err(|_not_ours| {
        ApiError::new(ErrorCode::InvalidRequest, "the cursor is none that a list has given")
    })?;
    let limit = limit.unwrap_or(PAGE);
    let page = operate(access, Operation::list("list", place), |files| async move {
        files.list(place, cursor, limit).await.map_err(reading)
    })
    .await?;
    let entries = page.entries.iter().map(|entry| {
        shown::file(&shown::whole(place, &entry.path), entry.kind, entry.stat.as_ref())
    });
    let next_cursor = page.next.as_ref().map(|next| URL_SAFE_NO_PAD.encode(next));
    Ok(FileList { entries: entries.collect(), next_cursor })
}

pub(super) async fn stat(access: Access, uri: Uri) -> Result<Response, ApiError> {
    let parameters = parameters(&uri, &["path", "follow"])?;
    let place = parameters.place(&access)?;
    let links = if parameters.flag("follow", true)? { Links::Follow } else { Links::Keep };
    let stat = operate(&access, Operation::list("stat", &place), |files| {
        let place = &place;
        async move { files.stat(place, links).await.map_err(reading) }
    })
    .await?;
    Ok(answer(StatusCode::OK, &place, &stat))
}

pub(super) async fn make_directory(
    access: Access,
    Body(asked): Body<MakeDirectory>,
) -> Result<Response, ApiError> {
    let place = place::of_text(&access, asked.path.as_bytes())?;
    let mode = asked.mode.as_deref().map(place::mode).transpose()?;
    let parents = if asked.parents { Parents::Make } else { Parents::Need };
    let stat = operate(&access, Operation::write("directory made", &place), |files| {
        let place = &place;
        async move { files.make_directory(place, parents, mode).await.map_err(writing) }
    })
    .await?;
    Ok(answer(StatusCode::CREATED, &place, &stat))
}

pub(super) async fn rename(
    access: Access,
    headers: HeaderMap,
    Body(asked): Body<MoveFile>,
) -> Result<Response, ApiError> {
    let from = place::of_text(&access, asked.from.as_bytes())?;
    let to = place::of_text(&access, asked.to.as_bytes())?;
    let condition = conditional::condition(&headers)?;
    let onto = if asked.overwrite { Onto::File } else { Onto::Nothing };
    let stat = operate(&access, Operation::rename(&from, &to), |files| {
        let (from, to, condition) = (&from, &to, &condition);
        async move { files.rename(from, to, condition, onto).await.map_err(writing) }
    })
    .await?;
    Ok(answer(StatusCode::OK, &to, &stat))
}

pub(super) async fn edit(
    access: Access,
    headers: HeaderMap,
    Body(asked): Body<EditFile>,
) -> Result<Response, ApiError> {
    let condition = conditional::condition(&headers)?;
    let (edited, stat) = edit_at(&access, &asked, &condition).await?;
    Ok(([(ETAG, conditional::etag(&stat))], Json(edited)).into_response())
}

/// Replaces a text in a file.
pub(crate) async fn edit_at(
    access: &Access,
    asked: &EditFile,
    condition: &Condition,
) -> Result<(EditedFile, FileStat), ApiError> {
    let place = place::of_text(access, asked.path.as_bytes())?;
    let which = if asked.replace_all { Occurrences::All } else { Occurrences::One };
    let texts = [asked.old_string.as_bytes(), asked.new_string.as_bytes()];
    let edited = operate(access, Operation::write("edited", &place), |files| {
        let place = &place;
        async move { files.edit(place, texts, which, condition).await.map_err(writing) }
    });
    let (stat, occurrences) = edited.await?;
    Ok((EditedFile { file: show(&place, &stat), occurrences }, stat))
}

pub(super) async fn remove(
    access: Access,
    uri: Uri,
    headers: HeaderMap,
) -> Result<StatusCode, ApiError> {
    let parameters = parameters(&uri, &["recursive"])?;
    let place = place::of_url(&access, &uri)?;
    let condition = conditional::condition(&headers)?;
    let depth = if parameters.flag("recursive", false)? { Depth::All } else { Depth::One };
    operate(&access, Operation::write("removed", &place), |files| {
        let (place, condition) = (&place, &condition);
        async move { files.remove(place, depth, condition).await.map_err(writing) }
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

fn answer(status: StatusCode, place: &Place, stat: &FileStat) -> Response {
    (status, [(ETAG, conditional::etag(stat))], Json(show(place, stat))).into_response()
}

fn show(place: &Place, stat: &FileStat) -> FileShown {
    shown::file(place.path().as_bytes(), stat.kind, Some(stat))
}
