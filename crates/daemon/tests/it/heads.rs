//! H13: requests that can be read in two ways, byte by byte.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::support::{Daemon, PATIENCE, raw};

/// Sends bytes and reads until the server closes.
async fn exchange(daemon: &Daemon, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(daemon.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    String::from_utf8(answer).unwrap()
}

/// The status of each answer, one after the other.
fn statuses(answers: &str) -> Vec<&str> {
    split(answers).into_iter().map(|answer| answer.get(2..5).unwrap()).collect()
}

/// Takes answers apart, each from its version on.
fn split(answers: &str) -> Vec<&str> {
    let is_answer = |part: &&str| matches!(part.as_bytes(), [b'0' | b'1', b' ', status @ ..] if status[..3].iter().all(u8::is_ascii_digit));
    answers.split("HTTP/1.").filter(is_answer).collect()
}

/// Checks the last answer: a 400 that says why (H21), and that there is nothing after it.
fn check_refusal(answers: &str) {
    // What it says may have the name of the protocol in it.
    let last = answers.rfind("HTTP/1.0 400").max(answers.rfind("HTTP/1.1 400")).unwrap();
    let (head, body) = answers.split_at(last).1.split_once("\r\n\r\n").unwrap();
    let told: serde_json::Value =
        serde_json::from_str(body).unwrap_or_else(|_| panic!("{answers}"));
    assert_eq!(told["error"]["code"], "INVALID_REQUEST", "{answers}");
    assert_eq!(told["error"]["retryable"], false);
    let id = told["error"]["request_id"].as_str().unwrap();
    assert!(id.starts_with("req_") && head.contains(&format!("x-request-id: {id}")), "{answers}");
    assert!(head.contains("\r\ncontent-type: application/json"), "{answers}");
}

/// H13. Behind each is a request that somebody else would see; it is never answered.
#[tokio::test]
async fn h13_what_can_be_read_in_two_ways_is_refused_and_the_connection_closed() {
    let daemon = Daemon::start().await;
    let host = daemon.address;
    let post = format!("POST /v1/admin/keys HTTP/1.1\r\nHost: {host}\r\nX-Api-Key: {}", daemon.key);
    let post = format!("{post}\r\nContent-Type: application/json\r\n");
    let smuggled = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let length = smuggled.len();
    let rows = [
        (
            "length and chunks",
            format!(
                "{post}Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
        ),
        (
            "chunks and length",
            format!(
                "{post}Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n\r\n0\r\n\r\n"
            ),
        ),
        ("two lengths", format!("{post}Content-Length: 2\r\nContent-Length: {length}\r\n\r\n{{}}")),
        ("a length twice", format!("{post}Content-Length: 2\r\nContent-Length: 2\r\n\r\n{{}}")),
        ("a list of lengths", format!("{post}Content-Length: 2, 2\r\n\r\n{{}}")),
        ("a length with a sign", format!("{post}Content-Length: +2\r\n\r\n{{}}")),
        ("a length that is none", format!("{post}Content-Length: two\r\n\r\n{{}}")),
        ("a length without end", format!("{post}Content-Length: 99999999999999999999\r\n\r\n")),
        (
            "chunks and no more",
            format!("{post}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
        ),
        ("what we cannot undo", format!("{post}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n")),
        (
            "chunks twice",
            format!(
                "{post}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
        ),
        (
            "chunks before HTTP/1.1",
            format!(
                "POST /v1/admin/keys HTTP/1.0\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
        ),
        ("a bare line feed", format!("GET /healthz HTTP/1.1\r\nHost: {host}\nX-A: b\r\n\r\n")),
        ("nothing but line feeds", format!("GET /healthz HTTP/1.1\nHost: {host}\n\n")),
        ("a line feed before it", format!("\nGET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n")),
        (
            "a bare carriage return",
            format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nX-A: b\rc\r\n\r\n"),
        ),
        ("a blank before the colon", format!("{post}Content-Length : 2\r\n\r\n{{}}")),
        ("a blank before the name", format!("GET /healthz HTTP/1.1\r\n Host: {host}\r\n\r\n")),
        ("a folded line", format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nX-A: b\r\n c\r\n\r\n")),
        ("no version", "GET /healthz\r\n\r\n".to_owned()),
        ("another version", format!("GET /healthz HTTP/3.0\r\nHost: {host}\r\n\r\n")),
        ("a name with a blank", format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nX A: b\r\n\r\n")),
        ("no name", format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n: b\r\n\r\n")),
        (
            "a huge chunk",
            format!("{post}Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{{}}"),
        ),
        (
            "a chunk that is none",
            format!("{post}Transfer-Encoding: chunked\r\n\r\n0x2\r\n{{}}\r\n0\r\n\r\n"),
        ),
        (
            "a chunk that goes on",
            format!("{post}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}x\r\n0\r\n\r\n"),
        ),
        (
            "a size with a bare line feed",
            format!("{post}Transfer-Encoding: chunked\r\n\r\n2\n{{}}\r\n0\r\n\r\n"),
        ),
    ];
    for (name, bytes) in rows {
        let answers = exchange(&daemon, format!("{bytes}{smuggled}").as_bytes()).await;
        assert_eq!(statuses(&answers), ["400"], "{name}: {answers}");
        check_refusal(&answers);
        // The same after a request that is well.
        let both = format!("{smuggled}{bytes}{smuggled}");
        let answers = exchange(&daemon, both.as_bytes()).await;
        assert_eq!(statuses(&answers), ["200", "400"], "{name}: {answers}");
        check_refusal(&answers);
    }
    daemon.stop().await;
}

/// H13: a body that is shorter than was said, or longer.
#[tokio::test]
async fn h13_a_body_is_as_long_as_was_said() {
    let daemon = Daemon::start().await;
    let head = format!(
        "POST /v1/admin/keys HTTP/1.1\r\nHost: {}\r\nX-Api-Key: {}\r\nContent-Type: application/json\r\n",
        daemon.address, daemon.key
    );
    for said in
        ["Content-Length: 99\r\n\r\n{\"name\":", "Transfer-Encoding: chunked\r\n\r\n9\r\n{\"na"]
    {
        let mut stream = TcpStream::connect(daemon.address).await.unwrap();
        stream.write_all(format!("{head}{said}").as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert_eq!(statuses(&answer), ["400"], "{said}: {answer}");
        check_refusal(&answer);
    }
    // What is left over is no request.
    let answers =
        exchange(&daemon, format!("{head}Content-Length: 2\r\n\r\n{{}}x\r\n\r\n").as_bytes()).await;
    assert_eq!(statuses(&answers), ["400", "400"], "{answers}");
    check_refusal(&answers);
    assert_eq!(daemon.keyring.list().await.unwrap().len(), 1, "nothing came of them");
    daemon.stop().await;
}

/// Requests that follow each other without waiting are answered one by one, in any pieces.
#[tokio::test]
async fn requests_that_can_be_read_in_one_way_are_answered_in_their_order() {
    let daemon = Daemon::start().await;
    let host = daemon.address;
    let key = &daemon.key;
    let head = format!("Host: {host}\r\nX-Api-Key: {key}\r\nContent-Type: application/json\r\n");
    let all = [
        format!("GET /healthz HTTP/1.1\r\n{head}\r\n"),
        format!(
            "\r\nPOST /v1/admin/keys HTTP/1.1\r\n{head}Content-Length: 15\r\n\r\n{{\"name\": \"one\"}}"
        ),
        format!(
            "POST /v1/admin/keys HTTP/1.1\r\n{head}Transfer-Encoding: chunked\r\n\r\n5;a=b\r\n{{\"nam\r\n9\r\ne\": \"two\"\r\n1\r\n}}\r\n0\r\nX-T: 1\r\n\r\n"
        ),
        // Nobody here speaks what this asks for, and it is answered all the same.
        format!("GET /healthz HTTP/1.1\r\n{head}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
        format!("GET /no/such HTTP/1.1\r\n{head}Connection: close\r\n\r\n"),
    ];
    let bytes = all.concat();
    for pieces in [bytes.len(), 97] {
        let mut stream = TcpStream::connect(daemon.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        for piece in bytes.as_bytes().chunks(pieces) {
            stream.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut answers = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answers)).await.unwrap().unwrap();
        assert_eq!(statuses(&answers), ["200", "201", "201", "200", "404"], "{answers}");
    }
    daemon.stop().await;
}

/// H15: nothing is led elsewhere.
#[tokio::test]
async fn h15_connect_is_no_method_of_any_route() {
    let daemon = Daemon::start().await;
    for target in ["evil.example:443".to_owned(), daemon.address.to_string()] {
        let text = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        let answer = raw(daemon.address, text.as_bytes()).await;
        assert_eq!(answer.problem(), (405, "METHOD_NOT_ALLOWED".into()), "{target}");
        assert!(answer.head.contains("\r\nallow: get, head, post"), "{}", answer.head);
    }
    daemon.stop().await;
}
