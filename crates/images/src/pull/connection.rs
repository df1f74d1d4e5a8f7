//! One request and its answer on a connection of its own, within one future: dropped, all ends.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::{Request, Response, body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::{
    PullError,
    transport::{Opened, Transport},
};

/// An answer whose body is still coming.
pub(super) struct Answer {
    pub(super) head: Response<()>,
    body: Incoming,
    connection: Connection,
    host: String,
    silence: Duration,
}

/// Moves the bytes. It is polled along with whoever waits for them, so that no task is left behind.
struct Connection(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Connection {
    async fn driving<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            if let Some(connection) = &mut self.0
                && connection.as_mut().poll(context).is_ready()
            {
                self.0 = None;
            }
            work.as_mut().poll(context)
        })
        .await
    }
}

impl Transport {
    /// Sends one request on a connection to this host.
    pub(super) async fn send(
        &self,
        host: String,
        opened: Opened,
        request: Request<Empty<Bytes>>,
    ) -> Result<Answer, PullError> {
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(256 << 10)
            .handshake(TokioIo::new(opened.stream))
            .await
            .map_err(|source| PullError::Broken { host: host.clone(), source })?;
        let mut connection = Connection(Some(Box::pin(async move {
            // How it ended is seen by whoever reads from it.
            drop(connection.await);
        })));
        let answer =
            connection.driving(timeout(self.silence_timeout, sender.send_request(request)));
        let answer = answer.await.map_err(|_late| PullError::Timeout { host: host.clone() })?;
        let answer = answer.map_err(|source| PullError::Broken { host: host.clone(), source })?;
        let (parts, body) = answer.into_parts();
        let head = Response::from_parts(parts, ());
        Ok(Answer { head, body, connection, host, silence: self.silence_timeout })
    }
}

impl Answer {
    /// Returns the next piece of the body.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, PullError> {
        loop {
            let frame = self.connection.driving(timeout(self.silence, self.body.frame())).await;
            let frame = frame.map_err(|_late| PullError::Timeout { host: self.host.clone() })?;
            let Some(frame) = frame else { return Ok(None) };
            let broken = |source| PullError::Broken { host: self.host.clone(), source };
            if let Ok(data) = frame.map_err(broken)?.into_data() {
                return Ok(Some(data));
            }
        }
    }

    /// Reads a body that must be small.
    pub(super) async fn read(mut self, what: &str, limit: u64) -> Result<Vec<u8>, PullError> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.next().await? {
            bytes.extend_from_slice(&piece);
            if bytes.len() as u64 > limit {
                return Err(PullError::TooLarge { what: what.to_owned(), limit });
            }
        }
        Ok(bytes)
    }

    pub(super) fn status(&self) -> u16 {
        self.head.status().as_u16()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.headers().get(name).and_then(|value| value.to_str().ok())
    }
}
