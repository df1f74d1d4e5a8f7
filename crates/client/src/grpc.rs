//! Calls of gRPC, by the main port: the connection, the key, and what went wrong.

use std::{error::Error as _, io, path::Path, time::Duration};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::{
    Code, Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{self, Channel, Endpoint, Uri},
};
use tonic_types::StatusExt as _;
use tower::service_fn;

use crate::{
    ClientError,
    address::{Address, Protocol},
};

/// No answer takes longer. The server has the same bound.
const DEADLINE: Duration = Duration::from_mins(1);

const CONNECT: Duration = Duration::from_secs(10);

/// A peer that does not answer for so long is gone.
const ALIVE: Duration = Duration::from_secs(20);

pub(crate) type Connection = InterceptedService<Channel, Bearer>;

/// Connects. The key is looked at with the first call.
pub(crate) async fn connect(address: &Address, key: &str) -> Result<Connection, ClientError> {
    let url = address.url();
    let not_a_url = |_| ClientError::Url { url: url.clone() };
    // Who connects sees to TLS, so that this is not to.
    let endpoint = Endpoint::from_shared(format!("http://{}", address.authority()));
    let endpoint = endpoint.map_err(not_a_url)?;
    let endpoint = endpoint.connect_timeout(CONNECT);
    let endpoint = endpoint.http2_keep_alive_interval(ALIVE).keep_alive_timeout(ALIVE);
    let bearer = Bearer::new(key)?;
    let address = address.clone();
    let connect = move |_: Uri| {
        let address = address.clone();
        async move { address.connect(Protocol::Grpc).await.map(TokioIo::new) }
    };
    let channel = endpoint.connect_with_connector(service_fn(connect)).await;
    let channel = channel.map_err(|error| unreachable(url, &error))?;
    Ok(InterceptedService::new(channel, bearer))
}

/// Connects by the server's Unix socket, where the kernel says who calls.
pub(crate) async fn connect_to_socket(path: &Path) -> Result<Connection, ClientError> {
    let (url, path) = (format!("unix:{}", path.display()), path.to_owned());
    let connect = move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    };
    let endpoint = Endpoint::from_static("http://localhost").connect_timeout(CONNECT);
    let channel = endpoint.connect_with_connector(service_fn(connect)).await;
    let channel = channel.map_err(|error| unreachable(url, &error))?;
    Ok(InterceptedService::new(channel, Bearer::none()))
}

pub(crate) fn within<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    request
}

/// Adds the key to every call, if there is one.
#[derive(Clone)]
pub(crate) struct Bearer(Option<MetadataValue<Ascii>>);

impl Bearer {
    fn none() -> Self {
        Self(None)
    }

    fn new(key: &str) -> Result<Self, ClientError> {
        let value = MetadataValue::try_from(format!("Bearer {key}"));
        let mut value = value.map_err(|_not_visible| ClientError::Key)?;
        value.set_sensitive(true);
        Ok(Self(Some(value)))
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(key) = &self.0 {
            request.metadata_mut().insert("authorization", key.clone());
        }
        Ok(request)
    }
}

/// Says why there is no connection in the kernel's words, if it was the kernel who said no.
fn unreachable(url: String, error: &transport::Error) -> ClientError {
    let mut cause = error.source();
    while let Some(next) = cause {
        if let Some(ClientError::Unproven { source, .. }) = next.downcast_ref() {
            let source = io::Error::other(source.to_string());
            return ClientError::Unproven { url, source };
        }
        if let Some(error) = next.downcast_ref::<io::Error>() {
            let source = error
                .raw_os_error()
                .map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
            return ClientError::Connect { url, source };
        }
        cause = next.source();
    }
    ClientError::Connect { url, source: io::Error::other("it does not speak HTTP/2") }
}

impl From<Status> for ClientError {
    /// A status with a reason is the server's word; one without says nothing of what was done.
    fn from(status: Status) -> Self {
        match status.get_details_error_info() {
            Some(info) if status.code() != Code::Unavailable => {
                Self::Refused { code: info.reason, message: status.message().to_owned() }
            }
            _ => Self::Broken { cause: root_cause(&status) },
        }
    }
}

/// The outer errors say no more than that there is an inner one.
fn root_cause(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut next = status.source();
    while let Some(cause) = next {
        text = cause.to_string();
        next = cause.source();
    }
    text
}
