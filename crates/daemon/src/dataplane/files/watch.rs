//! Tells what happens to files, as a stream of server-sent events.
//!
//! Events are numbered within one stream. The kernel keeps nothing of what happens while nobody
//! watches: whoever comes back with a number is told first that there is a gap.

use std::{convert::Infallible, time::Duration};

use api::files::WatchEvent;
use axum::{
    Extension,
    http::{HeaderMap, Uri},
    response::sse::{Event, KeepAlive, Sse},
};
use engine::sandboxes::files::{Breadth, Place, Watching};
use futures_util::{Stream, StreamExt as _, stream};
use model::file::FileEvent;
use tokio::select;

use super::{Operation, errors::reading, operate, parameters, shown};
use crate::{
    dataplane::{access::Access, ending::TellsItsEnd},
    http::problem::ApiError,
};

/// How often a silent stream says that it is there.
const ALIVE: Duration = Duration::from_secs(15);

pub(super) async fn watch(
    access: Access,
    uri: Uri,
    headers: HeaderMap,
) -> Result<(Extension<TellsItsEnd>, Sse<impl Stream<Item = Result<Event, Infallible>>>), ApiError>
{
    let parameters = parameters(&uri, &["path", "recursive", "cursor"])?;
    let place = parameters.place(&access)?;
    let breadth = if parameters.flag("recursive", false)? { Breadth::All } else { Breadth::One };
    let comes_back = headers.contains_key("last-event-id") || parameters.bytes("cursor").is_some();
    let watching = operate(&access, Operation::list("watch", &place), |files| {
        let place = &place;
        async move { files.watch(place, breadth).await.map_err(reading) }
    })
    .await?;
    let mut first = vec![WatchEvent::Watching { path: shown::text(place.path().as_bytes()) }];
    if comes_back {
        let reason = "what happened before this stream began is not known".to_owned();
        first.push(WatchEvent::Overflow { reason });
    }
    let told = stream::unfold(Some((access, watching, place)), |state| async {
        let (access, watching, place) = state?;
        let (events, is_last) = next(&access, &watching, &place).await?;
        Some((events, (!is_last).then_some((access, watching, place))))
    });
    let told = stream::iter([first]).chain(told).flat_map(stream::iter);
    let numbered = told.enumerate().filter_map(async |(number, event)| {
        let event = Event::default().id(number.to_string()).json_data(event).ok()?;
        Some(Ok(event))
    });
    let told = Sse::new(numbered).keep_alive(KeepAlive::new().interval(ALIVE));
    Ok((Extension(TellsItsEnd), told))
}

/// Waits for what happens next. The stream ends with the right to it.
async fn next(
    access: &Access,
    watching: &Watching,
    place: &Place,
) -> Option<(Vec<WatchEvent>, bool)> {
    let next = select! {
        _ = access.until_ended() => return None,
        next = watching.next() => next,
    };
    match next {
        Ok(Some(events)) => {
            let is_last = events.contains(&FileEvent::Gone);
            Some((events.into_iter().map(|event| tell(place, event)).collect(), is_last))
        }
        Ok(None) => None,
        Err(error) => {
            let reason = format!("the stream broke off: {error}");
            Some((vec![WatchEvent::Overflow { reason }], true))
        }
    }
}

fn tell(place: &Place, event: FileEvent) -> WatchEvent {
    let whole = |path: &[u8]| shown::text(&shown::whole(place, path));
    match event {
        FileEvent::Created { path, is_directory } => {
            WatchEvent::Created { path: whole(&path), is_dir: is_directory }
        }
        FileEvent::Changed { path } => WatchEvent::Changed { path: whole(&path) },
        FileEvent::Deleted { path, is_directory } => {
            WatchEvent::Deleted { path: whole(&path), is_dir: is_directory }
        }
        FileEvent::Overflow => {
            let reason = "more has happened than could be told".to_owned();
            WatchEvent::Overflow { reason }
        }
        FileEvent::Gone => WatchEvent::Gone { path: shown::text(place.path().as_bytes()) },
    }
}
