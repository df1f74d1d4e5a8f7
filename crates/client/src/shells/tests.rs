//! A server of one shell, which does what servers seldom do.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

use super::*;

struct Server {
    listener: TcpListener,
    minted: u32,
}

impl Server {
    async fn start() -> (Self, Address) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        (Self { listener, minted: 0 }, Address::parse(&url).unwrap())
    }

    /// Returns the next request, all of which has come.
    async fn asked(&self) -> TcpStream {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            request.push(stream.read_u8().await.unwrap());
        }
        stream
    }

    async fn turn_away(&self) {
        let answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
        self.asked().await.write_all(answer).await.unwrap();
    }

    /// Gives out a token, and says which.
    async fn mint(&mut self) -> String {
        let mut stream = self.asked().await;
        self.minted += 1;
        let token = format!("token-{}", self.minted);
        let body = json!({
            "token": token, "token_type": "Bearer", "expires_at": "", "expires_in": 900,
            "scope": "shell", "sandbox_id": "sb_1", "jti": "", "dataplane_url": "",
            "http_base_url": "",
        })
        .to_string();
        let answer =
            format!("HTTP/1.1 201 Created\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
        token
    }

    /// Lets a client in; returns what it starts with.
    async fn accept(&mut self) -> (Peer, Value) {
        self.mint().await;
        let (stream, _) = self.listener.accept().await.unwrap();
        let mut peer = Peer(tokio_tungstenite::accept_async(stream).await.unwrap());
        let start = peer.hear().await;
        (peer, start)
    }
}

struct Peer(WebSocketStream<TcpStream>);

impl Peer {
    async fn hear(&mut self) -> Value {
        match self.0.next().await.unwrap().unwrap() {
            Message::Text(text) => serde_json::from_str(&text).unwrap(),
            other => json!(other.into_data().to_vec()),
        }
    }

    async fn say(&mut self, frame: &Value) {
        self.0.send(Message::Text(frame.to_string().into())).await.unwrap();
    }

    async fn ready(&mut self) {
        self.say(&json!({"type": "ready", "exec_id": "ex_1", "pid": 2, "name": "default",
            "rows": 24, "cols": 80, "can_write": true}))
            .await;
    }

    async fn close(mut self, code: u16) {
        let frame = CloseFrame { code: CloseCode::from(code), reason: "".into() };
        self.0.close(Some(frame)).await.unwrap();
    }
}

fn wanted() -> Wanted {
    Wanted { sandbox: "demo".to_owned(), name: "default".to_owned(), role: Role::Write }
}

/// Runs a client beside what the server does; returns what the client was told, and its end.
async fn run(
    address: Address,
    server: impl Future<Output = ()>,
) -> (Vec<String>, Result<End, ClientError>) {
    let (_typed, local) = mpsc::channel(1);
    let (_resized, size) = watch::channel(Size { rows: 24, columns: 80 });
    let mut told = Vec::new();
    let shell = Shell::new(address, "key", wanted());
    let client = shell.run(Local { input: local, size }, |update| {
        told.push(match update {
            Update::Output(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Update::Broken => "broken".to_owned(),
        });
    });
    let (end, ()) = tokio::join!(client, server);
    (told, end)
}

#[tokio::test]
async fn a_token_that_is_about_to_end_is_renewed_on_the_open_connection() {
    let (mut server, address) = Server::start().await;
    let script = async move {
        let (mut peer, start) = server.accept().await;
        assert_eq!((&start["name"], &start["encoding"]), (&"default".into(), &"binary".into()));
        peer.ready().await;
        assert_eq!(peer.hear().await, json!({"type": "resize", "rows": 24, "cols": 80}));
        peer.say(&json!({"type": "token_expiring", "expires_at": ""})).await;
        assert_eq!(server.mint().await, "token-2");
        assert_eq!(peer.hear().await, json!({"type": "auth", "token": "token-2"}));
        peer.0.send(Message::Binary(b"\x01\0\0\0\0\0\0\0\0on".as_ref().into())).await.unwrap();
        peer.say(&json!({"type": "exit", "exit_code": 3, "reason": "exited"})).await;
    };
    let (told, end) = run(address, script).await;
    let ended =
        Ended { exit_code: Some(3), signal: None, reason: "exited".to_owned(), message: None };
    assert_eq!((told, end.unwrap()), (vec!["on".to_owned()], End::Ended(ended)));
}

#[tokio::test]
async fn the_same_shell_is_joined_again_and_no_other_in_its_place() {
    let (mut server, address) = Server::start().await;
    let script = async move {
        for code in [1012, 4401] {
            let (mut peer, _) = server.accept().await;
            peer.ready().await;
            if code == 4401 {
                let expired = json!({"type": "error", "code": "TOKEN_EXPIRED", "message": "",
                    "retryable": false});
                peer.say(&expired).await;
            }
            peer.close(code).await;
        }
        // A server without room is tried again.
        server.turn_away().await;
        let (mut peer, start) = server.accept().await;
        assert_eq!((&start["name"], &start["exec_id"]), (&Value::Null, &"ex_1".into()));
        let gone = json!({"type": "error", "code": "NOT_FOUND", "message": "", "retryable": false});
        peer.say(&gone).await;
        peer.close(4404).await;
    };
    let (told, end) = run(address, script).await;
    assert_eq!(told, ["broken", "broken"]);
    assert_eq!(end.unwrap(), End::EndedUnseen { exec: "ex_1".to_owned() });
}

#[tokio::test]
async fn a_refusal_is_the_last_word() {
    let (mut server, address) = Server::start().await;
    let script = async move {
        let (mut peer, _) = server.accept().await;
        let denied = json!({"type": "error", "code": "CAPABILITY_DENIED", "message": "no",
            "retryable": false});
        peer.say(&denied).await;
        peer.close(4403).await;
    };
    let (_, end) = run(address, script).await;
    assert_eq!(end.unwrap_err().code(), Some("CAPABILITY_DENIED"));
}
