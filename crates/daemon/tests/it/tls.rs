//! TLS on the main port, and certificates that are replaced under open connections.

use std::{path::Path, sync::Arc};

use daemon::{
    serve::Settings,
    tls::{Looked, Tls, TlsError},
};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, ServerName},
    },
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, client::IntoClientRequest as _},
};
use tonic::Code;

use crate::{
    caller::Connection,
    peer::TS,
    support::{Daemon, PATIENCE, settings},
};

/// A daemon with a certificate in files of its own.
struct Safe {
    daemon: Daemon,
    tls: Tls,
    files: TempDir,
}

/// Puts a new certificate and its key there; returns the certificate.
fn put(files: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(files.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(files.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    made.cert.der().clone()
}

fn open(files: &Path) -> Result<Tls, TlsError> {
    Tls::open(files.join("cert.pem"), files.join("key.pem"))
}

impl Safe {
    async fn start() -> (Self, CertificateDer<'static>) {
        let files = tempfile::tempdir().unwrap();
        let first = put(files.path());
        let tls = open(files.path()).unwrap();
        let settings = Settings { tls: Some(tls.clone()), ..settings() };
        let daemon = Daemon::start_with(settings).await;
        (Self { daemon, tls, files }, first)
    }

    /// Connects as one who believes this certificate alone, and speaks these protocols.
    async fn connect(
        &self,
        believed: &CertificateDer<'static>,
        protocols: &[&[u8]],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(believed.clone()).unwrap();
        let mut config =
            ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
        let stream = TcpStream::connect(self.daemon.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    async fn websocket(&self, believed: &CertificateDer<'static>) -> Chat {
        let stream = self.connect(believed, &[b"http/1.1"]).await.unwrap();
        let mut request = "wss://localhost/ws".into_client_request().unwrap();
        let bearer = format!("Bearer {}", self.daemon.key).parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
        Chat(client_async(request, stream).await.unwrap().0)
    }
}

struct Chat(WebSocketStream<TlsStream<TcpStream>>);

impl Chat {
    /// Says something and is answered.
    async fn is_alive(&mut self) {
        let ping = json!({"v": 1, "type": "ping", "ts": TS}).to_string();
        self.0.send(Message::text(ping)).await.unwrap();
        loop {
            if let Message::Text(text) =
                timeout(PATIENCE, self.0.next()).await.unwrap().unwrap().unwrap()
            {
                let frame: Value = serde_json::from_str(&text).unwrap();
                assert_eq!(frame["type"], "pong");
                return;
            }
        }
    }
}

#[tokio::test]
async fn http_grpc_and_websockets_are_served_over_tls() {
    let (safe, certificate) = Safe::start().await;
    let mut one = safe.connect(&certificate, &[b"http/1.1"]).await.unwrap();
    assert_eq!(one.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let ask = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    one.write_all(ask.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, one.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    let two = safe.connect(&certificate, &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!(two.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let two = Connection::over(two, &[]).await;
    let health = two.raw("/grpc.health.v1.Health/Check", vec![0; 5]).await;
    assert_eq!(health.code(), Code::Ok);
    assert_eq!(two.page("/healthz").await.0, 200);

    safe.websocket(&certificate).await.is_alive().await;
    // Whoever speaks something else, or nothing in time, is not served.
    assert!(safe.connect(&certificate, &[b"ftp"]).await.is_err());
    let mut plain = TcpStream::connect(safe.daemon.address).await.unwrap();
    plain.write_all(ask.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    let _reset = timeout(PATIENCE, plain.read_to_end(&mut heard)).await.unwrap();
    assert!(!heard.starts_with(b"HTTP/"), "{heard:?}");
}

#[tokio::test]
async fn f49_a_new_certificate_is_for_the_next_connection_and_open_ones_go_on() {
    let (safe, first) = Safe::start().await;
    let mut chat = safe.websocket(&first).await;
    chat.is_alive().await;
    let second = put(safe.files.path());
    // It is seen without a word.
    let shown = async { while safe.connect(&second, &[]).await.is_err() {} };
    timeout(PATIENCE, shown).await.unwrap();
    assert!(safe.connect(&first, &[]).await.is_err());
    assert_eq!(safe.tls.reload().unwrap(), Looked::TheSame);
    chat.is_alive().await;
}

#[tokio::test]
async fn files_that_are_not_good_are_not_taken_and_the_error_says_which() {
    let (safe, first) = Safe::start().await;
    let (certificate, key) =
        (safe.files.path().join("cert.pem"), safe.files.path().join("key.pem"));
    let good = std::fs::read_to_string(&certificate).unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let rows = [
        (String::new(), "there is no certificate in"),
        ("-----BEGIN CERTIFICATE-----\nx".to_owned(), "cannot read the certificate in"),
        (other.cert.pem(), "cannot be used with the certificate in"),
    ];
    for (text, expected) in rows {
        std::fs::write(&certificate, text).unwrap();
        let error = safe.tls.reload().unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("cert.pem"), "{error}");
        assert!(open(safe.files.path()).is_err());
        safe.connect(&first, &[]).await.unwrap();
    }
    std::fs::write(&certificate, good).unwrap();
    std::fs::remove_file(&key).unwrap();
    let error = safe.tls.reload().unwrap_err().to_string();
    assert!(error.contains("cannot read the key in"), "{error}");
    safe.connect(&first, &[]).await.unwrap();
}
