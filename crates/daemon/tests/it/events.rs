//! `GET /v1/events`: what happens to a sandbox, told from any event on.

use std::time::Duration;

use model::life::EndCause;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, timeout},
};

use crate::{
    exec::{Ground, mint, ready},
    support::{Answer, Daemon, PATIENCE},
};

/// An event stream that is being read.
pub(crate) struct Events {
    stream: TcpStream,
    /// What has come of the body and was not understood yet.
    text: String,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Told {
    id: Option<u64>,
    event: String,
    pub(crate) data: Value,
}

impl Events {
    async fn open(ground: &Ground, token: &str, query: &str, headers: &str) -> Self {
        let path = format!("/dp/{}/v1/events{query}", ground.id);
        Self::of(ground.daemon(), &path, token, headers).await
    }

    /// Opens any event stream.
    pub(crate) async fn of(daemon: &Daemon, path: &str, token: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(daemon.address).await.unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{headers}\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(timeout(PATIENCE, stream.read_u8()).await.unwrap().unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        Self { stream, text: String::new() }
    }

    /// Reads one chunk of the body; nothing at its end.
    async fn chunk(&mut self) -> Option<String> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.push(timeout(PATIENCE, self.stream.read_u8()).await.expect("silence").unwrap());
        }
        let size = usize::from_str_radix(str::from_utf8(&line).unwrap().trim(), 16).unwrap();
        let mut bytes = vec![0; size + 2];
        timeout(PATIENCE, self.stream.read_exact(&mut bytes)).await.unwrap().unwrap();
        bytes.truncate(size);
        (size > 0).then(|| String::from_utf8(bytes).unwrap())
    }

    /// Returns the next event; nothing once the stream has ended. Comments are passed over.
    pub(crate) async fn next(&mut self) -> Option<Told> {
        loop {
            if let Some((one, rest)) = self.text.split_once("\n\n") {
                let told =
                    one.lines().fold(Told::default(), |told, line| match line.split_once(": ") {
                        Some(("id", id)) => Told { id: Some(id.parse().unwrap()), ..told },
                        Some(("event", event)) => Told { event: event.to_owned(), ..told },
                        Some(("data", data)) => {
                            Told { data: serde_json::from_str(data).unwrap(), ..told }
                        }
                        _ => told,
                    });
                self.text = String::from(rest);
                if told != Told::default() {
                    return Some(told);
                }
                continue;
            }
            let chunk = self.chunk().await?;
            self.text.push_str(&chunk);
        }
    }

    /// Reads up to an event of this type.
    pub(crate) async fn until(&mut self, kind: &str) -> Told {
        loop {
            let told = self.next().await.unwrap_or_else(|| panic!("no {kind}"));
            if told.data["event_type"] == kind || told.event == kind {
                return told;
            }
        }
    }
}

async fn ask(ground: &Ground, query: &str, last: Option<&str>) -> Answer {
    let bearer = format!("Bearer {}", ground.token);
    let mut headers = vec![("Authorization", bearer.as_str())];
    headers.extend(last.map(|last| ("Last-Event-ID", last)));
    let path = format!("/dp/{}/v1/events{query}", ground.id);
    ground.daemon().ask("GET", &path, &headers, "").await
}

#[tokio::test]
async fn events_are_told_from_any_of_them_on_without_a_gap() {
    let ground = Ground::new().await;
    let token = mint(ground.daemon(), &ground.id, "fs:ro").await;
    let mut all = Events::open(&ground, &token, "", "").await;
    let mut seen = vec![all.next().await.unwrap()];
    assert_eq!(seen[0].data["event_type"], "SANDBOX_ACCEPTED");
    while seen.last().unwrap().data["event_type"] != "SANDBOX_READY" {
        seen.push(all.next().await.unwrap());
    }
    // It is told while it happens.
    let body = json!({"command": "exit 3", "exec_id": "told"});
    ground.ask("POST", "/v1/exec", &body).await;
    while seen.last().unwrap().data["event_type"] != "EXEC_FAILED" {
        seen.push(all.next().await.unwrap());
    }
    for (number, told) in (1..).zip(&seen) {
        assert_eq!(
            (told.id, &told.event, &told.data["sequence"]),
            (Some(number), &String::new(), &json!(number))
        );
    }
    let last = seen.last().unwrap();
    let expected = json!({
        "sandbox_id": ground.id.as_str(), "sequence": last.id, "event_type": "EXEC_FAILED",
        "occurred_at": last.data["occurred_at"], "sandbox_state": "READY", "phase": null,
        "reason": null, "exec_id": "told", "exec_state": "FAILED", "exit_code": 3,
        "companion": null, "error_code": "EXEC_RUN_FAILED",
        "error_message": "the command failed: exit code 3",
    });
    assert_eq!(last.data, expected);
    // From the middle, by either word; the one of those who come back counts.
    let mut middle = Events::open(&ground, &token, "?from=2", "").await;
    assert_eq!(middle.next().await, Some(Told { event: String::new(), ..clone(&seen[2]) }));
    let back = format!("Last-Event-ID: {}\r\n", seen.len() - 1);
    let mut back = Events::open(&ground, &token, "?from=1", &back).await;
    assert_eq!(back.next().await, Some(clone(last)));
    // From the last one it waits for the next.
    let mut waiting = Events::open(&ground, &token, &format!("?from={}", seen.len()), "").await;
    ground.ask("POST", "/v1/exec", &json!({"command": "true", "exec_id": "next"})).await;
    let next = waiting.next().await.unwrap();
    assert_eq!((next.id, &next.data["exec_id"]), (last.id.map(|id| id + 1), &json!("next")));
}

fn clone(told: &Told) -> Told {
    Told { id: told.id, event: told.event.clone(), data: told.data.clone() }
}

#[tokio::test]
async fn places_that_are_not_among_the_events_are_refused_with_those_that_are() {
    let ground = Ground::new().await;
    let (all, tenant) = (&ground.sandboxed.sandboxes, "default".parse().unwrap());
    let latest = all.get(&tenant, ground.id.as_str()).await.unwrap().life.sequence.0;
    let answer = ask(&ground, &format!("?from={}", latest + 1), None).await;
    assert_eq!(answer.problem(), (416, "RANGE_NOT_SATISFIABLE".into()));
    let range = format!("x-event-range: 1-{latest}");
    assert!(answer.head.contains(&range), "{} has no {range}", answer.head);
    let late = ask(&ground, "", Some("18446744073709551615")).await;
    assert_eq!(late.problem().0, 416);
    for (query, last) in [
        ("?from=-1", None),
        ("?from=x", None),
        ("?from=", None),
        ("?from=1&from=2", None),
        ("?after=1", None),
        ("", Some("1.5")),
        ("", Some("99999999999999999999")),
    ] {
        let answer = ask(&ground, query, last).await;
        assert_eq!(answer.problem(), (400, "INVALID_REQUEST".into()), "{query} {last:?}");
    }
    let elsewhere = ready(&ground.sandboxed).await;
    let other = mint(ground.daemon(), &elsewhere, "process").await;
    let bearer = format!("Bearer {other}");
    let path = format!("/dp/{}/v1/events", ground.id);
    let refused = ground.daemon().ask("GET", &path, &[("Authorization", &bearer)], "").await;
    assert_eq!(refused.status, 401);
}

#[tokio::test]
async fn a_stream_of_events_ends_with_its_token_after_a_warning() {
    let ground = Ground::new().await;
    let begun = Instant::now();
    let token = ground.ending(63);
    let mut warned = Events::open(&ground, &token, "", "").await;
    let short = ground.ending(3);
    let mut ending = Events::open(&ground, &short, "", "").await;
    let warning = warned.until("token_expiring").await;
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(warning.data["expires_at"].is_string() && warning.id.is_none(), "{warning:?}");
    // It goes on, and what happens is told.
    ground.ask("POST", "/v1/exec", &json!({"command": "true", "exec_id": "after"})).await;
    assert_eq!(warned.until("EXEC_FINISHED").await.data["exec_id"], "after");
    ending.until("token_expiring").await;
    let closed = ending.until("closed").await;
    assert_eq!(closed.data, json!({"reason": "token_expired"}));
    assert!(begun.elapsed() >= Duration::from_secs(7), "{:?}", begun.elapsed());
    assert_eq!(ending.next().await, None);
}

#[tokio::test]
async fn a_stream_of_events_ends_with_its_sandbox_and_with_the_server() {
    let mut ground = Ground::new().await;
    let kept = ready(&ground.sandboxed).await;
    let mut deleted = Events::open(&ground, &ground.token, "", "").await;
    let all = &ground.sandboxed.sandboxes;
    let tenant = "default".parse().unwrap();
    all.delete(&tenant, ground.id.as_str(), EndCause::Requested).await.unwrap();
    let last = deleted.until("SANDBOX_DELETED").await;
    assert_eq!(last.data["sandbox_state"], "DELETED");
    assert_eq!(deleted.next().await.unwrap().data, json!({"reason": "deleted"}));
    assert_eq!(deleted.next().await, None);
    assert_eq!(ask(&ground, "", None).await.status, 404);
    ground.token = mint(ground.daemon(), &kept, "process").await;
    ground.id = kept;
    let mut restarting = Events::open(&ground, &ground.token, "", "").await;
    restarting.until("SANDBOX_READY").await;
    let stopping = ground.sandboxed.daemon.take().unwrap().begin_stop();
    let (closed, ()) = tokio::join!(restarting.until("closed"), stopping);
    assert_eq!(closed.data, json!({"reason": "restarting"}));
}
