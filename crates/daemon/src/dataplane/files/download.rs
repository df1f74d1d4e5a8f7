//! Reads files, whole or in part, piece by piece.

use std::{
    collections::VecDeque,
    io,
    ops::Range,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use api::errors::ErrorCode;
use axum::{
    body::Body,
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri,
        header::{
            ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
            CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, LAST_MODIFIED, REFERRER_POLICY,
            X_CONTENT_TYPE_OPTIONS,
        },
    },
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use engine::sandboxes::files::{FileError, OpenFile, Place};
use futures_util::stream;

use super::{
    Operation,
    conditional::{self, Answer},
    errors::reading,
    operate, parameters, place,
};
use crate::{dataplane::access::Access, http::problem::ApiError};

/// How much is read at once. Two of these are in memory for each download, and what the connection
/// has not taken yet.
const PIECE: usize = 256 << 10;

pub(super) async fn by_url(
    access: Access,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    parameters(&uri, &[])?;
    let place = place::of_url(&access, &uri)?;
    send(&access, &place, &method, &headers).await
}

pub(super) async fn by_parameter(
    access: Access,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let place = parameters(&uri, &["path"])?.place(&access)?;
    send(&access, &place, &method, &headers).await
}

/// Sends the one file that a link is for, as the link says.
pub(super) async fn by_link(
    access: Access,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    parameters(&uri, &[])?;
    let no_link = || ApiError::new(ErrorCode::NotFound, "there is no such link");
    let link = access.download().ok_or_else(no_link)?;
    let place = place::of_text(&access, link.path.as_bytes())?;
    let mut answer = send(&access, &place, &method, &headers).await?;
    let told = answer.headers_mut();
    let is_file = told.contains_key(CONTENT_TYPE);
    let kind = link.content_type.as_deref().and_then(|kind| HeaderValue::from_str(kind).ok());
    if let Some(kind) = kind.filter(|_| is_file) {
        told.insert(CONTENT_TYPE, kind);
    }
    let name = disposition(link.disposition.name(), place.path().name().unwrap_or_default());
    if let Ok(name) = HeaderValue::from_str(&name) {
        told.insert(CONTENT_DISPOSITION, name);
    }
    // Whoever shares a computer or a proxy is not to find it there.
    told.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    told.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Ok(answer)
}

async fn send(
    access: &Access,
    place: &Place,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let operation = match *method {
        Method::HEAD => Operation::list("stat", place),
        _ => Operation::read("read", place),
    };
    operate(access, operation, |files| async move {
        let file = files.open(place).await.map_err(reading)?;
        answer(file, place, method, headers)
    })
    .await
}

fn answer(
    file: OpenFile,
    place: &Place,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let stat = file.stat();
    let size = stat.size;
    let (status, part) = match conditional::answer(headers, stat)? {
        Answer::Whole => (StatusCode::OK, 0..size),
        Answer::Part(part) => (StatusCode::PARTIAL_CONTENT, part),
        Answer::NotModified => {
            return Ok((StatusCode::NOT_MODIFIED, about(&file, place)).into_response());
        }
        Answer::Failed => {
            return Err(reading(FileError::Precondition { current: Some(stat.tag.clone()) }));
        }
        Answer::Unsatisfiable => {
            let text = "one range of bytes that are in the file can be asked for";
            let whole = HeaderValue::from_str(&format!("bytes */{size}"));
            let refused = ApiError::new(ErrorCode::RangeNotSatisfiable, text);
            return Err(match whole {
                Ok(whole) => refused.with_header(CONTENT_RANGE, whole),
                Err(_) => refused,
            });
        }
    };
    let mut all = about(&file, place);
    all.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    all.insert(CONTENT_LENGTH, HeaderValue::from(part.end - part.start));
    if status == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {}-{}/{size}", part.start, part.end - 1);
        if let Ok(range) = HeaderValue::from_str(&range) {
            all.insert(CONTENT_RANGE, range);
        }
    }
    let body = if *method == Method::HEAD { Body::empty() } else { body(file, part) };
    Ok((status, all, body).into_response())
}

/// What is said of a file whether it is sent or not.
fn about(file: &OpenFile, place: &Place) -> HeaderMap {
    let fixed: [(HeaderName, &'static str); 3] = [
        (ACCEPT_RANGES, "bytes"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Whatever it is, a browser is not to run it as one of our pages.
        (CONTENT_SECURITY_POLICY, "sandbox"),
    ];
    let fixed = fixed.map(|(name, value)| (name, HeaderValue::from_static(value)));
    let mut headers: HeaderMap = fixed.into_iter().collect();
    headers.insert(ETAG, conditional::etag(file.stat()));
    let name = disposition("attachment", place.path().name().unwrap_or_default());
    let date = conditional::date(file.stat().modified);
    for (header, text) in [(CONTENT_DISPOSITION, name), (LAST_MODIFIED, date)] {
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(header, value);
        }
    }
    headers
}

/// Names a file as RFC 6266 has it: in ASCII for everybody, and exactly for whoever understands that.
fn disposition(how: &str, name: &[u8]) -> String {
    let plain = |byte: &u8| match byte {
        b'"' | b'\\' | b'%' => '_',
        0x20..=0x7e => char::from(*byte),
        _ => '_',
    };
    let plain: String = name.iter().map(plain).collect();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte: u8| {
        if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    let exact: String = String::from_utf8_lossy(name).bytes().map(encode).collect();
    format!("{how}; filename=\"{plain}\"; filename*=UTF-8''{exact}")
}

/// Sends a part of a file. If the file has become shorter the connection is cut, since its length was
/// said already; what was added to it meanwhile is not sent.
fn body(file: OpenFile, part: Range<u64>) -> Body {
    let pieces = Pieces { file, part, next: None, buffers: Buffers::default() };
    Body::from_stream(stream::try_unfold(pieces, |mut pieces| async move {
        Ok::<_, io::Error>(pieces.piece().await?.map(|piece| (piece, pieces)))
    }))
}

type Reading = Pin<Box<dyn Future<Output = Result<Vec<u8>, FileError>> + Send>>;

/// The rest of a file, of which the next piece is being read while the last one is being sent.
struct Pieces {
    file: OpenFile,
    part: Range<u64>,
    next: Option<(usize, Reading)>,
    buffers: Buffers,
}

impl Pieces {
    async fn piece(&mut self) -> io::Result<Option<Bytes>> {
        self.begin();
        let Some((wanted, reading)) = self.next.take() else { return Ok(None) };
        let piece = reading.await.map_err(io::Error::other)?;
        if piece.len() < wanted {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.begin();
        Ok(Some(self.buffers.lend(piece)))
    }

    /// Begins to read the next piece, if there is one.
    fn begin(&mut self) {
        let left = self.part.end - self.part.start;
        if self.next.is_some() || left == 0 {
            return;
        }
        let wanted = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        let reading = self.file.read_at(self.part.start, wanted, self.buffers.take());
        self.part.start += wanted as u64;
        self.next = Some((wanted, Box::pin(reading)));
    }
}

/// Buffers that come back when what was in them is sent.
#[derive(Clone, Default)]
struct Buffers(Arc<Mutex<VecDeque<Vec<u8>>>>);

/// A buffer on its way.
struct Lent {
    bytes: Vec<u8>,
    home: Buffers,
}

impl Buffers {
    fn take(&self) -> Vec<u8> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.pop_front().unwrap_or_default()
    }

    fn lend(&self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent { bytes, home: self.clone() })
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.home.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p16_a_name_of_a_download_is_encoded() {
        let rows: [(&[u8], &str); 4] = [
            (b"a.html", "attachment; filename=\"a.html\"; filename*=UTF-8''a.html"),
            (b"a\"b\r\nc", "attachment; filename=\"a_b__c\"; filename*=UTF-8''a%22b%0D%0Ac"),
            ("ü.txt".as_bytes(), "attachment; filename=\"__.txt\"; filename*=UTF-8''%C3%BC.txt"),
            (b"\xff", "attachment; filename=\"_\"; filename*=UTF-8''%EF%BF%BD"),
        ];
        for (name, expected) in rows {
            assert_eq!(disposition("attachment", name), expected);
            assert!(HeaderValue::from_str(&disposition("inline", name)).is_ok());
        }
    }
}
