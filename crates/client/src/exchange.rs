//! One request on a connection of its own.

use std::pin::pin;

use http_body_util::Full;
use hyper::{
    Response,
    body::{Bytes, Incoming},
    client::conn::http1,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST},
    http::request::Builder,
};
use hyper_util::rt::TokioIo;

use crate::{
    ClientError,
    address::{Address, Protocol},
};

/// Sends a request with this key and has the answer read. The body is JSON.
pub(crate) async fn exchange<T>(
    address: &Address,
    key: &str,
    request: Builder,
    body: Vec<u8>,
    read: impl AsyncFnOnce(Response<Incoming>) -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let stream = TokioIo::new(address.connect(Protocol::Http).await?);
    let (mut sender, connection) = http1::handshake(stream).await?;
    let request = request
        .header(HOST, address.authority())
        .header(AUTHORIZATION, format!("Bearer {key}"))
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))?;
    let exchange = async { read(sender.send_request(request).await?).await };
    // The connection does the reading and writing; it ends after the answer.
    let mut exchange = pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        ended = connection => {
            ended?;
            // The answer may have come with the end.
            exchange.await
        }
    }
}
