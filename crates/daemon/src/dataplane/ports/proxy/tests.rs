use std::convert::Infallible;

use axum::http::header::TRANSFER_ENCODING;
use bytes::Bytes;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    time::timeout,
};

use super::*;
use crate::dataplane::ports::{body::cut_at, headers::Page};

const PATIENCE: Duration = Duration::from_mins(1);

fn passage() -> Passage {
    let timing = Timing { answer_within: PATIENCE, silence: PATIENCE, quiet: PATIENCE };
    Passage {
        asker: Asker { peer: None, scheme: "http", host: None, page: Page::Other },
        places: Places::new("/p".to_owned(), 80, "/"),
        ground: Ground::Api,
        target: Uri::from_static("/a?b=c"),
        timing,
        tasks: Tasks::default(),
        cut: Box::new(|| cut_at(None)),
    }
}

fn get() -> Request {
    Request::new(Body::empty())
}

/// Reads a head.
async fn head_of(server: &mut DuplexStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(PATIENCE, server.read_u8()).await.unwrap().unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Asks a server that says this, whatever it is asked, and then hangs up.
async fn ask(says: Vec<u8>) -> Result<Response, ProxyError> {
    let (client, mut server) = duplex(1 << 16);
    let tasks = Tasks::default();
    tasks.start("a server", async move {
        head_of(&mut server).await;
        // Nobody may want to hear all of it.
        let _ = server.write_all(&says).await;
        let _ = server.shutdown().await;
        // Bytes that nobody reads would look like a reset.
        let _ = tokio::io::copy(&mut server, &mut tokio::io::sink()).await;
    });
    timeout(PATIENCE, passage().carry(get(), client, ())).await.unwrap()
}

async fn body_of(response: Response) -> Result<Bytes, axum::Error> {
    timeout(PATIENCE, response.into_body().collect())
        .await
        .unwrap()
        .map(http_body_util::Collected::to_bytes)
}

#[tokio::test]
async fn what_is_no_answer_in_http_is_not_passed_on() {
    let ok = b"HTTP/1.1 200 OK\r\n".to_vec();
    let with = |more: &[u8]| [&ok, more].concat();
    let rows = [
        ("nothing", Vec::new()),
        ("no http", b"hello\r\n\r\n".to_vec()),
        ("http/0.9", b"<html></html>".to_vec()),
        ("half a head", with(b"content-type: text/plain\r\n")),
        ("two lengths", with(b"content-length: 1\r\ncontent-length: 2\r\n\r\nxx")),
        ("a length that is none", with(b"content-length: -1\r\n\r\n")),
        ("a folded line", with(b"x-a: 1\r\n 2\r\n\r\n")),
        ("a blank before the colon", with(b"x-a : 1\r\n\r\n")),
        ("a huge head", with(&[b"x-a: ".to_vec(), vec![b'a'; 100 << 10]].concat())),
        ("many headers", with(&[b"x-a: 1\r\n".repeat(101), b"\r\n".to_vec()].concat())),
        ("announcements without end", b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(100_000)),
    ];
    for (name, says) in rows {
        let answer = ask(says).await;
        assert!(matches!(answer, Err(ProxyError::NoHttp(_))), "{name}: {answer:?}");
    }
}

#[tokio::test]
async fn a_change_of_protocol_that_nobody_asked_for_is_refused() {
    let says = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n";
    let answer = ask(says.to_vec()).await;
    assert!(matches!(answer, Err(ProxyError::NotAsked)), "{answer:?}");
}

#[tokio::test]
async fn a_body_that_breaks_off_never_looks_whole() {
    let rows: [(&str, &[u8]); 4] = [
        ("too short", b"content-length: 10\r\n\r\nabc"),
        ("no last chunk", b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"),
        ("no chunk", b"transfer-encoding: chunked\r\n\r\nZZ\r\n"),
        ("a chunk without end", b"transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n"),
    ];
    for (name, more) in rows {
        let response = ask([b"HTTP/1.1 200 OK\r\n", more].concat()).await.unwrap();
        assert!(body_of(response).await.is_err(), "{name}");
    }
}

#[tokio::test]
async fn an_answer_is_written_anew_with_one_length_or_none() {
    type Row = (&'static str, &'static [u8], Option<&'static str>, &'static [u8]);
    let rows: [Row; 4] = [
        ("a length", b"content-length: 3\r\n\r\nabcdef", Some("3"), b"abc"),
        (
            "a length and chunks",
            b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            None,
            b"abc",
        ),
        (
            "a trailer",
            b"transfer-encoding: chunked\r\ntrailer: x-a\r\n\r\n3\r\nabc\r\n0\r\nx-a: 1\r\n\r\n",
            None,
            b"abc",
        ),
        ("up to the end", b"\r\nabc", None, b"abc"),
    ];
    for (name, more, length, body) in rows {
        let announced = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n";
        let response = ask([announced, more].concat()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{name}");
        let said = response.headers().get(CONTENT_LENGTH).map(|it| it.to_str().unwrap().to_owned());
        assert_eq!(said.as_deref(), length, "{name}");
        assert!(!response.headers().contains_key(TRANSFER_ENCODING), "{name}");
        let collected = timeout(PATIENCE, response.into_body().collect()).await.unwrap().unwrap();
        assert!(collected.trailers().is_none(), "{name}");
        assert_eq!(collected.to_bytes(), body, "{name}");
    }
}

#[tokio::test]
async fn an_answer_without_a_body_speaks_of_its_length_and_has_none() {
    let (client, mut server) = duplex(1 << 16);
    Tasks::default().start("a server", async move {
        head_of(&mut server).await;
        server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n").await.unwrap();
        head_of(&mut server).await;
    });
    let mut request = get();
    *request.method_mut() = Method::HEAD;
    let response = timeout(PATIENCE, passage().carry(request, client, ())).await.unwrap().unwrap();
    assert_eq!(response.headers()[CONTENT_LENGTH], "99");
    assert_eq!(body_of(response).await.unwrap(), "");
}

#[tokio::test]
async fn a_server_that_says_nothing_is_not_waited_for_for_ever() {
    let (client, _server) = duplex(1 << 16);
    let mut passage = passage();
    passage.timing.answer_within = Duration::from_millis(50);
    let answer = timeout(PATIENCE, passage.carry(get(), client, ())).await.unwrap();
    assert!(matches!(answer, Err(ProxyError::TimedOut(_))), "{answer:?}");
}

#[tokio::test]
async fn a_body_that_stops_is_broken_off() {
    let (client, mut server) = duplex(1 << 16);
    let mut passage = passage();
    passage.timing.silence = Duration::from_millis(50);
    let sent = async {
        head_of(&mut server).await;
        server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc").await.unwrap();
    };
    let (answer, ()) = tokio::join!(passage.carry(get(), client, ()), sent);
    assert!(body_of(answer.unwrap()).await.is_err());
}

#[tokio::test]
async fn an_answer_may_come_before_the_request_was_read_but_not_before_it_was_made() {
    let (client, mut server) = duplex(1 << 10);
    let endless = futures_util::stream::repeat_with(|| {
        Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[0; 4096])))
    });
    let mut request = Request::new(Body::new(StreamBody::new(endless)));
    *request.method_mut() = Method::POST;
    let passage = passage();
    let answered = async {
        head_of(&mut server).await;
        server.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno").await.unwrap();
    };
    let carried = timeout(PATIENCE, passage.carry(request, client, ()));
    let (response, ()) = tokio::join!(carried, answered);
    let response = response.unwrap().unwrap();
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(body_of(response).await.unwrap(), "no");

    let (client, mut server) = duplex(1 << 10);
    server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    let answer = timeout(PATIENCE, passage.carry(get(), client, ())).await.unwrap();
    assert!(matches!(answer, Err(ProxyError::NoHttp(_))), "{answer:?}");
}

/// Sends a request; returns what a server reads of it until it answers after the last of these.
async fn read_by_server(request: Request, last: &str) -> String {
    let (client, mut server) = duplex(1 << 16);
    let reading = async {
        let mut read = String::new();
        while !read.ends_with(last) {
            read.push(char::from(timeout(PATIENCE, server.read_u8()).await.unwrap().unwrap()));
        }
        server.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        read
    };
    let passage = passage();
    let (answer, read) = tokio::join!(passage.carry(request, client, ()), reading);
    assert_eq!(answer.unwrap().status(), StatusCode::NO_CONTENT);
    read.to_ascii_lowercase()
}

#[tokio::test]
async fn a_request_is_written_anew_with_one_length_or_none() {
    let mut request = Request::new(Body::from("abc"));
    *request.method_mut() = Method::PUT;
    // What the body has counts, and nothing else.
    request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("99"));
    request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    let read = read_by_server(request, "abc").await;
    assert!(read.starts_with("put /a?b=c http/1.1\r\n"), "{read}");
    assert!(read.contains("\r\ncontent-length: 3\r\n"), "{read}");
    assert!(!read.contains("transfer-encoding"), "{read}");

    let frames = [
        Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"abc"))),
        Ok(Frame::trailers(HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from(7))]))),
    ];
    let mut request = Request::new(Body::new(StreamBody::new(futures_util::stream::iter(frames))));
    *request.method_mut() = Method::POST;
    let read = read_by_server(request, "0\r\n\r\n").await;
    assert!(read.contains("\r\ntransfer-encoding: chunked\r\n"), "{read}");
    assert!(!read.contains("content-length"), "{read}");

    let mut request = get();
    *request.method_mut() = Method::POST;
    request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    let read = read_by_server(request, "\r\n\r\n").await;
    assert!(read.contains("\r\ncontent-length: 0\r\n"), "{read}");

    let read = read_by_server(get(), "\r\n\r\n").await;
    assert!(!read.contains("content-length") && !read.contains("transfer-encoding"), "{read}");
}

#[tokio::test]
async fn methods_that_are_about_something_else_are_not_carried() {
    for method in [Method::TRACE, Method::CONNECT] {
        let (client, _server) = duplex(1 << 16);
        let mut request = get();
        *request.method_mut() = method;
        let answer = passage().carry(request, client, ()).await;
        assert!(matches!(answer, Err(ProxyError::Method)), "{answer:?}");
    }
}

#[tokio::test]
async fn what_is_under_way_is_cut_off_when_the_right_to_it_ends() {
    let (client, mut server) = duplex(1 << 16);
    let mut passage = passage();
    passage.cut = Box::new(|| cut_at(Some(tokio::time::Instant::now())));
    let answer = timeout(PATIENCE, passage.carry(get(), client, ())).await.unwrap();
    assert!(matches!(answer, Err(ProxyError::Cut)), "{answer:?}");

    let (client, mut other) = duplex(1 << 16);
    let (end, ended) = tokio::sync::watch::channel(false);
    passage.cut = Box::new(move || {
        let mut ended = ended.clone();
        Box::pin(async move { drop(ended.wait_for(|ended| *ended).await) })
    });
    let sent = async {
        head_of(&mut other).await;
        other.write_all(b"HTTP/1.1 200 OK\r\n\r\nabc").await.unwrap();
    };
    let (answer, ()) = tokio::join!(passage.carry(get(), client, ()), sent);
    end.send(true).unwrap();
    assert!(body_of(answer.unwrap()).await.is_err());
    drop(server.shutdown().await);
}
