//! Finds files by their paths, and lines by what stands in them.

use api::files::{Glob, GlobMatch, GlobMatches, Grep, GrepMatch, GrepMatches};
use axum::Json;
use engine::sandboxes::files::{Entry, Line, Place};
use model::file::FileKind;

use super::{Operation, errors::reading, operate, place, shown};
use crate::{
    dataplane::access::Access,
    http::problem::{ApiError, Body},
};

/// How much is found if nobody says how much.
const FOUND: u32 = 1000;

pub(crate) async fn glob(
    access: Access,
    Body(asked): Body<Glob>,
) -> Result<Json<GlobMatches>, ApiError> {
    let (place, pattern) = glob_place(&access, asked.path.as_deref(), &asked.pattern)?;
    let limit = asked.limit.unwrap_or(FOUND);
    let found = operate(&access, Operation::list("glob", &place), |files| {
        let place = &place;
        async move { files.glob(place, vec![pattern], limit).await.map_err(reading) }
    })
    .await?;
    let shown = |entry: &Entry| {
        let path = shown::whole(&place, &entry.path);
        GlobMatch {
            path: shown::text(&path),
            path_b64: shown::encoded(&path),
            is_dir: entry.kind == FileKind::Directory,
            size_bytes: entry.stat.as_ref().map_or(0, |stat| stat.size),
            modified_at: entry.stat.as_ref().map(|stat| shown::time(stat.modified)),
        }
    };
    let matches = found.found.iter().map(shown).collect();
    Ok(Json(GlobMatches { matches, truncated: found.is_cut, unreadable: found.unreadable }))
}

pub(crate) async fn grep(
    access: Access,
    Body(asked): Body<Grep>,
) -> Result<Json<GrepMatches>, ApiError> {
    let place = place::of_text(&access, asked.path.as_deref().unwrap_or(".").as_bytes())?;
    let patterns = asked.glob.map(String::into_bytes).into_iter().collect();
    let (text, limit) = (asked.pattern.into_bytes(), asked.limit.unwrap_or(FOUND));
    let found = operate(&access, Operation::read("grep", &place), |files| {
        let place = &place;
        async move { files.grep(place, text, patterns, limit).await.map_err(reading) }
    })
    .await?;
    let shown = |line: &Line| GrepMatch {
        path: shown::text(&shown::whole(&place, &line.path)),
        line: line.number,
        text: shown::text(&line.text),
    };
    let matches = found.found.iter().map(shown).collect();
    Ok(Json(GrepMatches { matches, truncated: found.is_cut, unreadable: found.unreadable }))
}

/// A pattern that begins at the root is looked for from there, within what may be reached.
fn glob_place(
    access: &Access,
    path: Option<&str>,
    pattern: &str,
) -> Result<(Place, Vec<u8>), ApiError> {
    let pattern = pattern.as_bytes();
    match pattern.strip_prefix(b"/") {
        None => Ok((place::of_text(access, path.unwrap_or(".").as_bytes())?, pattern.to_vec())),
        Some(rest) => {
            let is_plain = |part: &&[u8]| !part.iter().any(|byte| b"*?[{\\".contains(byte));
            let parts: Vec<&[u8]> = rest.split(|byte| *byte == b'/').collect();
            let plain = parts.iter().take(parts.len() - 1).take_while(|part| is_plain(part));
            let plain: Vec<&[u8]> = plain.copied().collect();
            let left = parts.get(plain.len()..).unwrap_or_default().join(&b'/');
            let from = [b"/".as_slice(), &plain.join(&b'/')].concat();
            Ok((place::of_text(access, &from)?, left))
        }
    }
}
