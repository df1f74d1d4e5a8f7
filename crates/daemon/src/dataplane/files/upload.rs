//! Writes files, piece by piece. Whatever breaks off, nothing of it stays.

use std::time::Duration;

use api::errors::ErrorCode;
use axum::{
    Json,
    body::{Body, BodyDataStream},
    http::{
        HeaderMap, StatusCode, Uri,
        header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG},
    },
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use engine::sandboxes::files::{FileError, MAX_FILE, Parents, Place, Writing};
use futures_util::{StreamExt as _, future::join};
use tokio::time::timeout;

use super::{
    Operation, conditional,
    errors::writing,
    multipart::{self, Multipart},
    operate, parameters, place, shown,
};
use crate::{
    dataplane::access::Access,
    http::{problem::ApiError, strict::check_encoding},
};

/// How much is collected before it is written.
const ENOUGH: usize = 512 << 10;

/// How long a client may pause.
const PAUSE: Duration = Duration::from_secs(15);

const PARAMETERS: [&str; 3] = ["mode", "parents", "path"];

pub(super) async fn by_url(
    access: Access,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let parameters = parameters(&uri, &["mode", "parents"])?;
    let place = place::of_url(&access, &uri)?;
    take(&access, &place, &parameters, &headers, Source::whole(body)).await
}

pub(super) async fn by_parameter(
    access: Access,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let parameters = parameters(&uri, &PARAMETERS)?;
    let place = parameters.place(&access)?;
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let source = match kind {
        Some(kind) if multipart::is_multipart(kind) => Source::form(body, kind)?,
        _ => Source::whole(body),
    };
    take(&access, &place, &parameters, &headers, source).await
}

async fn take(
    access: &Access,
    place: &Place,
    parameters: &place::Parameters,
    headers: &HeaderMap,
    mut source: Source,
) -> Result<Response, ApiError> {
    check_encoding(headers)?;
    let condition = conditional::condition(headers)?;
    let mode = parameters.mode()?;
    let parents = if parameters.flag("parents", true)? { Parents::Make } else { Parents::Need };
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: u64| length > MAX_FILE + multipart::MOST_AROUND) {
        return Err(writing(FileError::TooLarge { most: MAX_FILE }));
    }
    let (is_new, stat) = operate(access, Operation::write("written", place), |files| async move {
        let mut file = files.write(place, &condition, parents).await.map_err(writing)?;
        let is_new = file.before().is_none();
        fill(&mut file, &mut source).await?;
        Ok((is_new, file.commit(mode).await.map_err(writing)?))
    })
    .await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let shown = shown::file(place.path().as_bytes(), stat.kind, Some(&stat));
    Ok((status, [(ETAG, conditional::etag(&stat))], Json(shown)).into_response())
}

/// Writes everything that comes. While a batch is being written the next one is collected, so that
/// neither the client nor the disk waits for the other; more than these two is never in memory.
async fn fill(file: &mut Writing, source: &mut Source) -> Result<(), ApiError> {
    let mut batch = source.batch().await?;
    while !batch.is_empty() {
        let (written, next) = join(file.write_all(batch), source.batch()).await;
        written.map_err(writing)?;
        batch = next?;
    }
    Ok(())
}

/// Where the bytes of a file come from.
enum Source {
    Whole(Incoming),
    Form(Box<Multipart>),
}

impl Source {
    fn whole(body: Body) -> Self {
        Self::Whole(Incoming(body.into_data_stream()))
    }

    fn form(body: Body, kind: &str) -> Result<Self, ApiError> {
        let incoming = Incoming(body.into_data_stream());
        Ok(Self::Form(Box::new(Multipart::new(incoming, kind)?)))
    }

    /// Collects enough to be written at once. Nothing at the end.
    async fn batch(&mut self) -> Result<Vec<Bytes>, ApiError> {
        let mut pieces = Vec::new();
        let mut size = 0;
        while size < ENOUGH
            && let Some(piece) = self.next().await?
        {
            size += piece.len();
            pieces.push(piece);
        }
        Ok(pieces)
    }

    async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        match self {
            Self::Whole(incoming) => incoming.next().await,
            Self::Form(form) => form.next().await,
        }
    }
}

/// The body of a request. It ends with an error if less comes than was announced.
pub(super) struct Incoming(BodyDataStream);

impl Incoming {
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        match timeout(PAUSE, self.0.next()).await {
            Ok(None) => Ok(None),
            Ok(Some(Ok(bytes))) => Ok(Some(bytes)),
            Ok(Some(Err(_))) => Err(writing(FileError::Cut)),
            Err(_) => Err(ApiError::new(ErrorCode::Timeout, "the body did not come in time")),
        }
    }
}
