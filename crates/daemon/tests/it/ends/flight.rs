//! What is in flight when the right to it ends: answered, or cut, and never finished.

use model::ids::SandboxId;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::{ask, keys, mint, rotate};
use crate::{
    events::Events,
    exec::{Ground, mint as mint_for},
    oauth::exchange,
    ports::upgraded,
    served::{PORT, Served},
    support::{Daemon, PATIENCE},
};

/// A file that is longer than what any buffer between the server and a client holds.
const LENGTH: u64 = 512 << 20;

/// A request whose answer has not come to its end.
struct Pending(TcpStream);

impl Pending {
    /// Sends the head of a request, and a part of what it announces.
    async fn send(daemon: &Daemon, head: &str, token: &str, body: &str) -> Self {
        let mut stream = TcpStream::connect(daemon.address).await.unwrap();
        let request = format!(
            "{head} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        Self(stream)
    }

    /// Runs a command and waits for it; returns when it runs.
    async fn command(daemon: &Daemon, id: &SandboxId, token: &str, way: (&str, &str)) -> Self {
        let (path, field) = way;
        let mut events = Events::of(daemon, &format!("/dp/{id}/v1/events"), token, "").await;
        let name = token.chars().rev().filter(char::is_ascii_alphanumeric).take(16);
        let name: String = field.chars().take(4).chain(name).collect();
        let body = json!({"command": "sleep 1000", field: name}).to_string();
        let length = body.len();
        let body =
            format!("Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
        let sent = Self::send(daemon, &format!("POST /dp/{id}{path}"), token, &body).await;
        while events.until("EXEC_STARTED").await.data["exec_id"] != name {}
        sent
    }

    /// Begins to send a body; returns when somebody reads it.
    async fn body(daemon: &Daemon, head: &str, token: &str) -> Self {
        let body = "Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n";
        let mut sent = Self::send(daemon, head, token, body).await;
        assert!(sent.head().await.starts_with("HTTP/1.1 100"));
        sent.0.write_all(b"a part of it").await.unwrap();
        sent
    }

    async fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(timeout(PATIENCE, self.0.read_u8()).await.unwrap().unwrap());
        }
        String::from_utf8(head).unwrap()
    }

    /// Returns how many bytes of the body come before the connection ends.
    async fn rest(mut self) -> u64 {
        let (mut count, mut buffer) = (0, vec![0; 1 << 20]);
        loop {
            match timeout(PATIENCE, self.0.read(&mut buffer)).await.unwrap() {
                Ok(0) | Err(_) => return count,
                Ok(more) => count += u64::try_from(more).unwrap(),
            }
        }
    }
}

/// All that can be in flight with one token.
struct Flight {
    waiting: Vec<Pending>,
    download: Pending,
}

impl Flight {
    async fn with(daemon: &Daemon, id: &SandboxId, token: &str, name: &str) -> Self {
        let mut waiting = vec![
            Pending::command(daemon, id, token, ("/v1/exec", "exec_id")).await,
            Pending::command(daemon, id, token, ("/v1/execute", "command_id")).await,
        ];
        for path in [
            format!("POST /dp/{id}/v1/files/upload?path=/tmp/{name}"),
            format!("PUT /dp/{id}/files/tmp/{name}"),
        ] {
            waiting.push(Pending::body(daemon, &path, token).await);
        }
        let head = format!("GET /dp/{id}/v1/files/download?path=/tmp/big");
        let mut download = Pending::send(daemon, &head, token, "\r\n").await;
        assert!(download.head().await.starts_with("HTTP/1.1 200"));
        Self { waiting, download }
    }

    async fn ends(self, why: &str) {
        for (number, mut pending) in self.waiting.into_iter().enumerate() {
            let head = pending.head().await;
            assert!(head.starts_with("HTTP/1.1 401"), "{why}: {number}: {head}");
        }
        let count = self.download.rest().await;
        assert!(count < LENGTH, "{why}: {count}");
    }
}

/// Returns how many commands run, and which files there are.
async fn look(ground: &Ground) -> (usize, String) {
    let token = mint_for(ground.daemon(), &ground.id, "process").await;
    let script = "pgrep -c -x sleep; ls /tmp";
    let bearer = format!("Bearer {token}");
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let body = json!({"command": script}).to_string();
    let path = format!("/dp/{}/v1/exec", ground.id);
    let ran = ground.daemon().ask("POST", &path, &headers, &body).await.json();
    let stdout = ran["stdout"].as_str().unwrap();
    let (count, files) = stdout.split_once('\n').unwrap();
    (count.parse().unwrap(), files.trim().to_owned())
}

#[tokio::test]
async fn what_is_in_flight_is_cut_with_the_right_to_it_and_commands_go_on() {
    let ground = Ground::new().await;
    let (daemon, id) = (ground.daemon(), &ground.id);
    let made = json!({"command": format!("truncate -s {LENGTH} /tmp/big")});
    assert_eq!(ground.ask("POST", "/v1/exec", &made).await.json()["exit_code"], 0);
    let [secret, key] = keys::key(daemon, "theirs").await;
    let resource = format!("sandbox:{id}");
    let of_key = exchange(daemon, &secret, &[("resource", &resource)]).await.json();
    let of_key = of_key["access_token"].as_str().unwrap();
    let [revoked, jti] = mint(daemon, id, "ada", "jwt").await;
    let [rotated, _] = mint(daemon, id, "bob", "opaque").await;
    let brief = exchange(daemon, &rotated, &[("ttl_seconds", "3")]).await.json();
    let brief = brief["access_token"].as_str().unwrap();

    // It ends by itself, five seconds after its time.
    let expires = Flight::with(daemon, id, brief, "expires").await;
    let with_key = Flight::with(daemon, id, of_key, "of-key").await;
    let with_token = Flight::with(daemon, id, &revoked, "revoked").await;
    let with_rotated = Flight::with(daemon, id, &rotated, "rotated").await;
    expires.ends("expired").await;
    keys::revoke(daemon, &key).await;
    with_key.ends("key").await;
    let body = json!({"sandbox": id.as_str(), "jti": jti});
    assert_eq!(ask(daemon, "/v1/admin/tokens/revoke", &body).await.status, 204);
    with_token.ends("token").await;
    assert_eq!(rotate(daemon, id).await.status, 200);
    with_rotated.ends("rotated").await;
    // Commands belong to the sandbox; of what was not sent in whole there is nothing.
    assert_eq!(look(&ground).await, (8, "big".to_owned()));
}

#[tokio::test]
async fn what_goes_through_to_a_port_is_cut_with_the_right_to_it() {
    let served = Served::start().await;
    let (daemon, id) = (served.sandboxed.daemon(), &served.sandbox);
    let (head, mut socket) = upgraded(&served, "/", "").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let head = format!("POST /dp/{id}/ports/{PORT}/silent");
    let mut waiting = Pending::body(daemon, &head, &served.token).await;
    let answer = ask(daemon, &format!("/v1/admin/sandboxes/{id}/rotate-key"), &Value::Null).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let head = waiting.head().await;
    assert!(head.starts_with("HTTP/1.1 401"), "{head}");
    assert_eq!(timeout(PATIENCE, socket.read(&mut [0; 1])).await.unwrap().unwrap_or(0), 0);
    served.end().await;
}
