//! A caller of gRPC, over a real connection of either kind.

use std::{
    net::SocketAddr,
    path::Path,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use api::agbox::v1::{self, sandbox_service_client::SandboxServiceClient};
use axum::http::{HeaderMap, Request, Response};
use engine::tasks::Tasks;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::timeout,
};
use tonic::{Code, Status, Streaming, body::Body, codegen::Service};
use tonic_types::StatusExt as _;

use crate::support::PATIENCE;

pub(crate) type Client = SandboxServiceClient<Connection>;

/// A connection, and the metadata that every call on it has.
#[derive(Clone)]
pub(crate) struct Connection {
    requests: SendRequest<Body>,
    talking: Tasks,
    metadata: Arc<HeaderMap>,
}

impl Connection {
    pub(crate) async fn tcp(address: SocketAddr, metadata: &[(&'static str, &str)]) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap(), metadata).await
    }

    pub(crate) async fn unix(path: &Path) -> Self {
        Self::over(UnixStream::connect(path).await.unwrap(), &[]).await
    }

    pub(crate) async fn over(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        metadata: &[(&'static str, &str)],
    ) -> Self {
        let (requests, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let talking = Tasks::default();
        talking.start("caller", async move { drop(connection.await) });
        let mut all = HeaderMap::new();
        for (name, value) in metadata {
            all.append(*name, value.parse().unwrap());
        }
        Self { requests, talking, metadata: Arc::new(all) }
    }

    /// Waits until the other side has closed it.
    pub(crate) async fn closed(&self) {
        self.talking.join().await;
    }

    pub(crate) fn client(&self) -> Client {
        let origin = "http://localhost".parse().unwrap();
        let most = 16 << 20;
        SandboxServiceClient::with_origin(self.clone(), origin)
            .max_encoding_message_size(most)
            .max_decoding_message_size(most)
    }

    /// Sends bytes as the body of a call, and returns how it ended.
    pub(crate) async fn raw(&self, path: &str, body: Vec<u8>) -> Status {
        self.send(path, Body::new(Full::new(Bytes::from(body)))).await
    }

    /// Makes a call with any body, and returns how it ended.
    pub(crate) async fn send(&self, path: &str, body: Body) -> Status {
        let mut request = Request::post(format!("http://localhost{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(body)
            .unwrap();
        request.headers_mut().extend(HeaderMap::clone(&self.metadata));
        let answer = timeout(PATIENCE, self.requests.clone().send_request(request));
        let (head, body) = answer.await.unwrap().unwrap().into_parts();
        if let Some(status) = Status::from_header_map(&head.headers) {
            return status;
        }
        let whole = timeout(PATIENCE, body.collect()).await.unwrap().unwrap();
        Status::from_header_map(whole.trailers().unwrap()).unwrap()
    }

    /// Asks for a page of HTTP.
    pub(crate) async fn page(&self, path: &str) -> (u16, Bytes) {
        let request = Request::get(format!("http://localhost{path}")).body(Body::empty()).unwrap();
        let answer = self.requests.clone().send_request(request).await.unwrap();
        let status = answer.status().as_u16();
        (status, answer.into_body().collect().await.unwrap().to_bytes())
    }
}

impl Service<Request<Body>> for Connection {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = std::pin::Pin<
        Box<dyn Future<Output = Result<Response<Incoming>, hyper::Error>> + Send + 'static>,
    >;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.requests.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        request.headers_mut().extend(HeaderMap::clone(&self.metadata));
        Box::pin(self.requests.send_request(request))
    }
}

/// Writes a message as gRPC frames it.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, message].concat()
}

/// Writes a refusal on one line: status, reason, metadata. Every refusal has all three.
pub(crate) fn refusal(status: &Status) -> String {
    let details = status.get_error_details();
    let Some(info) = details.error_info() else { panic!("{status:?} has no details") };
    assert_eq!(info.domain, "agents-sandbox");
    let mut metadata: Vec<_> =
        info.metadata.iter().map(|(name, value)| format!("{name}={value}")).collect();
    metadata.sort();
    let line = format!("{:?} {} {}", status.code(), info.reason, metadata.join(","));
    line.trim_end().to_owned()
}

/// Returns the refusal of a call that must be refused.
pub(crate) fn refused<T: std::fmt::Debug>(answer: Result<T, Status>) -> String {
    refusal(&answer.unwrap_err())
}

/// Returns the next event, which must come.
pub(crate) async fn next(events: &mut Streaming<v1::SandboxEvent>) -> v1::SandboxEvent {
    timeout(PATIENCE, events.message()).await.unwrap().unwrap().unwrap()
}

/// Returns how a stream ends, after what is left of it.
pub(crate) async fn end_of(mut events: Streaming<v1::SandboxEvent>) -> Status {
    loop {
        match timeout(PATIENCE, events.message()).await.unwrap() {
            Ok(Some(_)) => {}
            Ok(None) => return Status::new(Code::Ok, ""),
            Err(status) => return status,
        }
    }
}

pub(crate) fn subscribe(sandbox: &str, from_sequence: u64) -> v1::SubscribeSandboxEventsRequest {
    let sandbox_id = sandbox.to_owned();
    v1::SubscribeSandboxEventsRequest { sandbox_id, from_sequence, include_current_snapshot: false }
}

/// Makes a request with a deadline.
pub(crate) fn within<T>(message: T, deadline: Duration) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(deadline);
    request
}
