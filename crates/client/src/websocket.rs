//! Opening a WebSocket with a credential.

use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error as WsError,
        client::IntoClientRequest as _,
        http::{HeaderValue, header::AUTHORIZATION},
        protocol::WebSocketConfig,
    },
};

use crate::{
    ClientError,
    address::{Address, Protocol, Stream},
};

pub(crate) type Socket = WebSocketStream<Box<dyn Stream>>;

pub(crate) async fn connect(
    address: &Address,
    path: &str,
    credential: &str,
) -> Result<Socket, ClientError> {
    let stream = address.connect(Protocol::Http).await?;
    let url = format!("ws://{}{path}", address.authority());
    let mut request = url.into_client_request().map_err(broken)?;
    let mut bearer = HeaderValue::from_str(&format!("Bearer {credential}"))
        .map_err(|_not_visible| ClientError::Key)?;
    bearer.set_sensitive(true);
    request.headers_mut().insert(AUTHORIZATION, bearer);
    request.headers_mut().insert("x-protocol-version", HeaderValue::from_static("1"));
    let config = WebSocketConfig::default();
    tokio_tungstenite::client_async_with_config(request, stream, Some(config))
        .await
        .map(|(socket, _)| socket)
        .map_err(|error| match error {
            WsError::Http(response) => ClientError::refused(
                response.status().as_u16(),
                response.body().as_deref().unwrap_or_default(),
            ),
            other => broken(other),
        })
}

pub(crate) fn broken(error: WsError) -> ClientError {
    ClientError::WebSocket(Box::new(error))
}
