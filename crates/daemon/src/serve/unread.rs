//! Tells whether a request's body was read to its end before the request was answered.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use axum::body::Body;
use hyper::{
    Request,
    body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint},
};

/// How far a request's body has been read.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    is_read: Arc<AtomicBool>,
    has_length: bool,
}

impl Progress {
    /// Tells whether the connection can take another request, given whether all bytes of this one have arrived: the
    /// library skips an unread body that it has whole, if that has a length.
    pub(super) fn allows_another(&self, has_arrived: bool) -> bool {
        self.is_read.load(Ordering::Relaxed) || (has_arrived && self.has_length)
    }
}

/// Watches how far the body of this request is read. A request without a body has none to watch.
pub(super) fn watch(request: Request<Incoming>) -> (Request<Body>, Option<Progress>) {
    let (head, body) = request.into_parts();
    if body.is_end_stream() {
        return (Request::from_parts(head, Body::new(body)), None);
    }
    let has_length = body.size_hint().exact().is_some();
    let progress = Progress { is_read: Arc::default(), has_length };
    let watched = Watched { body, is_read: Arc::clone(&progress.is_read) };
    (Request::from_parts(head, Body::new(watched)), Some(progress))
}

struct Watched {
    body: Incoming,
    is_read: Arc<AtomicBool>,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() || self.body.is_end_stream() {
            self.is_read.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
