//! What a right has opened ends with it. The gate puts this around every handler and every answer, so
//! that no route has to think of it: a request that waits is answered, a body that flows is cut.
//!
//! `WebSockets` are not among it: they are closed with a code, by whoever speaks them.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    response::{IntoResponse as _, Response},
};
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::{
    select,
    time::{Sleep, sleep},
};

use super::access::Access;
use crate::http::problem::ApiError;

/// How long a stream may take to say why it ends.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Marks an answer that says by itself, as its last words, that the right to it has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct TellsItsEnd;

/// Runs a handler while the right is there that it was called with, and lets its answer flow no longer
/// than that.
pub(super) async fn within(access: Access, handler: impl Future<Output = Response>) -> Response {
    let mut handler = pin!(handler);
    // Most answer at once, so that nobody has to listen for the end.
    let first = poll_fn(|context| Poll::Ready(handler.as_mut().poll(context))).await;
    let answer = match first {
        Poll::Ready(answer) => answer,
        Poll::Pending => select! {
            biased;
            ended = access.until_ended() => {
                return ApiError::from(access.refuse_ended(ended)).into_response();
            }
            answer = handler => answer,
        },
    };
    bounded(answer, access)
}

fn bounded(answer: Response, access: Access) -> Response {
    let tells = answer.extensions().get::<TellsItsEnd>().copied();
    answer.map(|body| {
        if body.is_end_stream() {
            return body;
        }
        Body::new(Bounded { body, access, tells, has_begun: false, ended: None, patience: None })
    })
}

/// The right to an answer has ended before all of it was sent.
#[derive(Debug, thiserror::Error)]
#[error("the right to it has ended")]
struct Cut;

/// The body of an answer, for as long as there is a right to it.
struct Bounded {
    body: Body,
    access: Access,
    tells: Option<TellsItsEnd>,
    /// The first piece is often the only one: what ends it is listened to after that.
    has_begun: bool,
    ended: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    patience: Option<Pin<Box<Sleep>>>,
}

impl Bounded {
    fn has_ended(&mut self, context: &mut Context<'_>) -> bool {
        if self.patience.is_some() {
            return true;
        }
        let access = &self.access;
        let ended = self.ended.get_or_insert_with(|| {
            let access = access.clone();
            Box::pin(async move {
                let ended = access.until_ended().await;
                access.refuse_ended(ended);
            })
        });
        ended.as_mut().poll(context).is_ready()
    }

    /// Lets a stream speak that has something to say about its end, for a moment.
    fn last_words(&mut self, context: &mut Context<'_>) -> Polled {
        if self.tells.is_none() {
            return Poll::Ready(Some(Err(axum::Error::new(Cut))));
        }
        let patience = self.patience.get_or_insert_with(|| Box::pin(sleep(LAST_WORDS)));
        let is_over = patience.as_mut().poll(context).is_ready();
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Pending if is_over => Poll::Ready(Some(Err(axum::Error::new(Cut)))),
            polled => polled,
        }
    }
}

type Polled = Poll<Option<Result<Frame<Bytes>, axum::Error>>>;

impl hyper::body::Body for Bounded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let this = &mut *self;
        let is_first = !std::mem::replace(&mut this.has_begun, true);
        if !is_first && this.has_ended(context) {
            return this.last_words(context);
        }
        let polled = Pin::new(&mut this.body).poll_frame(context);
        if is_first && polled.is_pending() && this.has_ended(context) {
            return this.last_words(context);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
