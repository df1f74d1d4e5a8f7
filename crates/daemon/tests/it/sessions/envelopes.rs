//! Rows H21 and H22: whatever is sent, a refusal says what it is about, and names its request by a name of ours.

use serde_json::{Value, json};

use super::{SESSIONS, post};
use crate::{
    sandboxed::Sandboxed,
    support::{Answer, Daemon, raw},
};

/// Checks a refusal: all that the envelope has is there, is what it should be, and nothing else is.
fn check(answer: &Answer) -> (u16, String) {
    let (body, head) = (answer.json(), &answer.head);
    let error = body["error"].as_object().unwrap_or_else(|| panic!("{body}"));
    assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
    let known = ["binding", "code", "message", "pointer", "request_id", "retryable"];
    assert!(error.keys().all(|name| known.contains(&name.as_str())), "{body}");
    let code = error["code"].as_str().unwrap();
    let row = api::errors::ErrorCode::ALL.into_iter().find(|row| row.wire_name() == code).unwrap();
    assert_eq!(row.http_status(), answer.status, "{body}");
    assert_eq!(error["retryable"], row.is_retryable(), "{body}");
    let message = error["message"].as_str().unwrap();
    assert!(!message.is_empty() && message.len() < 500, "{body}");
    assert!(!message.contains(|it: char| it.is_control() || !it.is_ascii()), "{body}");
    let id = error["request_id"].as_str().unwrap();
    assert!(is_ours(id), "{body}");
    assert!(head.contains(&format!("\r\nx-request-id: {id}")), "{head}");
    assert!(head.contains("\r\ncontent-type: application/json"), "{head}");
    answer.problem()
}

fn is_ours(id: &str) -> bool {
    let digits = id.strip_prefix("req_").unwrap_or_default();
    digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[tokio::test]
async fn h21_every_kind_of_refusal_has_the_envelope() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let head = format!("Host: {}\r\nX-Api-Key: {}\r\n", daemon.address, daemon.key);
    let json = format!("{head}Content-Type: application/json\r\n");
    let long = "a".repeat(41 << 10);
    let sessions = SESSIONS;
    let unknown = format!("{SESSIONS}/ssn_00000000000000000000000000");
    let rows = [
        (format!("GET /no/such/route HTTP/1.1\r\n{head}\r\n"), 404, "NOT_FOUND"),
        (format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", daemon.address), 404, "NOT_FOUND"),
        (format!("OPTIONS * HTTP/1.1\r\n{head}\r\n"), 404, "NOT_FOUND"),
        (format!("PATCH {sessions} HTTP/1.1\r\n{head}\r\n"), 405, "METHOD_NOT_ALLOWED"),
        (format!("BREW {sessions} HTTP/1.1\r\n{head}\r\n"), 405, "METHOD_NOT_ALLOWED"),
        (format!("CONNECT a.example:443 HTTP/1.1\r\n{head}\r\n"), 405, "METHOD_NOT_ALLOWED"),
        (format!("GET {unknown} HTTP/1.1\r\n{head}\r\n"), 404, "SESSION_NOT_FOUND"),
        (
            format!("POST {sessions} HTTP/1.1\r\n{head}Content-Length: 2\r\n\r\n{{}}"),
            415,
            "UNSUPPORTED_MEDIA_TYPE",
        ),
        (
            format!("POST {sessions} HTTP/1.1\r\n{json}Content-Length: 2\r\n\r\n{{}}"),
            400,
            "INVALID_REQUEST",
        ),
        (
            format!("POST {sessions} HTTP/1.1\r\n{json}Content-Length: 9999999\r\n\r\n{{"),
            413,
            "PAYLOAD_TOO_LARGE",
        ),
        (
            format!("POST {sessions} HTTP/1.1\r\n{json}Transfer-Encoding: chunked\r\n\r\nx\r\n"),
            400,
            "INVALID_REQUEST",
        ),
        (format!("GET {sessions}/%ff HTTP/1.1\r\n{head}\r\n"), 400, "INVALID_REQUEST"),
        (format!("GET /v1/audit?limit=x HTTP/1.1\r\n{head}\r\n"), 400, "INVALID_REQUEST"),
        (
            format!("GET /v1/admin/keys HTTP/1.1\r\nHost: {}\r\n\r\n", daemon.address),
            401,
            "UNAUTHENTICATED",
        ),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), 421, "MISDIRECTED_REQUEST"),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400, "INVALID_REQUEST"),
        // What is no request at all.
        (format!("GET /{long} HTTP/1.1\r\n{head}\r\n"), 431, "HEADERS_TOO_LARGE"),
        (format!("GET / HTTP/1.1\r\n{head}X-Long: {long}\r\n\r\n"), 431, "HEADERS_TOO_LARGE"),
        (
            format!("GET / HTTP/1.1\r\n{head}{}\r\n", "X-A: b\r\n".repeat(100)),
            431,
            "HEADERS_TOO_LARGE",
        ),
        (format!("GET / HTTP/1.1\n{head}\r\n"), 400, "INVALID_REQUEST"),
        ("GET /\r\n\r\n".to_owned(), 400, "INVALID_REQUEST"),
        ("hello\r\n\r\n".to_owned(), 400, "INVALID_REQUEST"),
        ("\u{16}\u{3}\u{1}\0\n\r\n\r\n".to_owned(), 400, "INVALID_REQUEST"),
        (format!("GET / HTTP/9.9\r\n{head}\r\n"), 400, "INVALID_REQUEST"),
        (format!("G@T / HTTP/1.1\r\n{head}\r\n"), 400, "INVALID_REQUEST"),
        (format!("GET http://[::1 HTTP/1.1\r\n{head}\r\n"), 400, "INVALID_REQUEST"),
        (format!("GET / HTTP/1.1\r\n{head}canary\r\n\r\n"), 400, "INVALID_REQUEST"),
        (format!("GET / HTTP/1.1\r\n{head}canary: \0\r\n\r\n"), 400, "INVALID_REQUEST"),
    ];
    for (request, status, code) in rows {
        let answer = raw(daemon.address, request.as_bytes()).await;
        let shown: String = request.chars().take(80).collect();
        assert_eq!(check(&answer), (status, code.to_owned()), "{shown:?}");
        assert!(!answer.body.contains("canary"), "{}", answer.body);
    }
    // What cannot be read is answered as its route would, as far as that is known.
    let wrong = format!("{head}X A: b\r\n\r\n");
    let boxes = format!("GET /v2/sandboxes/boxes HTTP/1.1\r\n{wrong}");
    let boxes = raw(daemon.address, boxes.as_bytes()).await;
    assert_eq!((boxes.status, &boxes.json()["error_type"]), (400, &json!("ValidationError")));
    let oauth =
        raw(daemon.address, format!("POST /oauth/token HTTP/1.1\r\n{wrong}").as_bytes()).await;
    assert_eq!((oauth.status, &oauth.json()["error"]), (400, &json!("invalid_request")));
}

/// Numbers that look like any others, and are the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }
}

/// A request that is nearly one.
fn nearly(dice: &mut Dice, daemon: &Daemon) -> Vec<u8> {
    let host = daemon.address.to_string();
    let unknown = format!("{SESSIONS}/ssn_00000000000000000000000000");
    let method = dice.pick(&[
        "GET", "POST", "DELETE", "PUT", "OPTIONS", "TRACE", "POST", "POST", "get", "P OST",
    ]);
    let path = match dice.roll(6) {
        0 => SESSIONS.to_owned(),
        1 => unknown,
        2 => format!("/threads/{}/sandbox", dice.pick(&["thr_1", "%ff", "a%00", "..", "😀"])),
        3 => format!("/{}", "x".repeat(dice.roll(50_000))),
        4 => {
            dice.pick(&["*", "", "//", "/%", "/?%ff", "http://a/", "/v1/audit?limit=-1"]).to_owned()
        }
        _ => format!("/v1/admin/{}", dice.pick(&["keys", "tokens", "keys/x", "nothing"])),
    };
    let version =
        if dice.roll(8) == 0 { dice.pick(&["HTTP/1.0", "HTTP/2.0", ""]) } else { "HTTP/1.1" };
    let end = if dice.roll(20) == 0 { dice.pick(&["\n", "\r\r\n"]) } else { "\r\n" };
    let mut text = format!("{method} {path} {version}{end}Host: {host}\r\nConnection: close\r\n");
    for _ in 0..dice.roll(4) {
        let line = match dice.roll(12) {
            0..3 => format!("X-Api-Key: {}", daemon.key),
            3..5 => format!("Authorization: Bearer {}", daemon.key),
            5..8 => "Content-Type: application/json".to_owned(),
            8 => "Content-Type: text/plain".to_owned(),
            9 => format!("X-Long: {}", "z".repeat(dice.roll(50_000))),
            10 => dice.pick(&["Accept: é", "X-A:", "Cookie: a=b"]).to_owned(),
            _ => dice
                .pick(&["X Y: z", ": z", "A: \0", "A: \u{1b}[2J", "A: b\rc", "A: b\nC: d"])
                .to_owned(),
        };
        text.push_str(&line);
        text.push_str("\r\n");
    }
    let body =
        dice.pick(&["", "{}", "[]", "null", "{\"mode\":", "\u{feff}{}", "{\"a\":1,\"a\":1}"]);
    let said = dice.pick(&[
        "",
        "Content-Length: 0\r\n",
        "Content-Length: x\r\n",
        "Transfer-Encoding: gzip\r\n",
    ]);
    let length = format!("Content-Length: {}\r\n", body.len());
    text += if dice.roll(8) == 0 { said } else { &length };
    format!("{text}\r\n{body}").into_bytes()
}

/// H21: as the row asks, whatever is sent.
#[tokio::test]
async fn h21_whatever_is_nearly_a_request_is_refused_in_the_envelope() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let mut seen = std::collections::BTreeMap::new();
    for seed in 0..1500 {
        let mut dice = Dice(seed * 7919 + 1);
        let request = nearly(&mut dice, daemon);
        let answer = raw(daemon.address, &request).await;
        *seen.entry(answer.status).or_insert(0) += 1;
        // What goes to HEAD and to a status without a body has none.
        if !(200..300).contains(&answer.status) {
            check(&answer);
        }
    }
    for status in [400, 401, 404, 405, 415, 431] {
        assert!(seen.contains_key(&status), "{status} is not among {seen:?}");
    }
    assert!(!seen.contains_key(&500), "{seen:?}");
}

#[tokio::test]
async fn h22_a_request_has_a_name_of_ours_whatever_it_calls_itself() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let body = json!({"thread_id": "thr_1", "mode": "ensure", "image": "host"}).to_string();
    let send = async |name: &str, body: &str| {
        let text = format!(
            "POST {SESSIONS} HTTP/1.1\r\nHost: {}\r\nX-Api-Key: {}\r\nX-Request-Id: {name}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            daemon.address,
            daemon.key,
            body.len()
        );
        // Of a head that is too long, nobody reads more than its beginning.
        raw(daemon.address, &text.as_bytes()[..text.len().min(60 << 10)]).await
    };
    let megabyte = "canary".repeat(1 << 18);
    let long = "canary".repeat(5000);
    let rows = [
        ("canary", 200),
        ("req_0123456789abcdef", 200),
        ("", 200),
        (&long, 200),
        ("canary\tcanary", 200),
        ("canary é", 200),
        ("canary\u{1b}[31m", 400),
        ("canary\nX-Evil: 1", 400),
        ("canary\r\n folded", 400),
        ("canary\r\nX-Request-Id: twice", 200),
        ("canary\0", 400),
        (&megabyte, 431),
    ];
    for (name, status) in rows {
        for (body, refused) in [(body.as_str(), None), ("{}", Some(400))] {
            let answer = send(name, body).await;
            let shown: String = name.chars().take(40).collect();
            let expected = if status == 200 { refused.unwrap_or(200) } else { status };
            assert_eq!(answer.status, expected, "{shown:?}: {}", answer.body);
            let mut lines = answer.head.lines().filter_map(|it| it.strip_prefix("x-request-id: "));
            let id = lines.next().unwrap().to_owned();
            assert!(is_ours(&id) && id != "req_0123456789abcdef", "{id}");
            assert_eq!(lines.next(), None);
            assert!(!answer.head.contains("canary") && !answer.body.contains("canary"), "{shown}");
            if answer.status != 200 {
                check(&answer);
            }
        }
    }
    // Nor is it on the audit log.
    let page = super::ask(daemon, "GET", "/v1/audit?limit=1000").await.json();
    let records = page["records"].as_array().unwrap();
    assert!(records.iter().filter_map(|it| it["request_id"].as_str()).all(is_ours), "{page}");
    assert!(!page.to_string().contains("canary"));
    let answer = post(daemon, SESSIONS, &Value::Null).await;
    check(&answer);
}
