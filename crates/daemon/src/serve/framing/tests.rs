use futures_util::FutureExt as _;
use proptest::{collection::vec, prelude::*, sample::select};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

const HEAD: &str = "POST /a HTTP/1.1\r\nHost: a\r\n";

/// H13.
#[test]
fn h13_what_can_be_read_in_two_ways_goes_no_further() {
    let good = [
        "\r\n",
        "\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        "Content-Length: 3\r\n\r\nabc",
        "content-length:\t3 \r\n\r\na\nb",
        "Content-Length: 0\r\n\r\n",
        "Transfer-Encoding: Chunked\r\n\r\n3\r\na\nb\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n00a;x=y\r\n0123456789\r\n1 \r\nx\r\n0\r\nX-T: 1\r\n\r\n",
        "Upgrade: h2c\r\n\r\n",
    ];
    for rest in good {
        let bytes = format!("{HEAD}{rest}");
        for piece in [1, 2, 7, bytes.len()] {
            let passed = (bytes.len(), Stage::Start, None);
            assert_eq!(pass(bytes.as_bytes(), piece), passed, "{rest:?}");
        }
    }
    // What each goes wrong with: the line that begins so is the first that must not be there.
    let bad = [
        ("GET / HTTP/1.1\n", "GET", LINES),
        ("\n", "\n", LINES),
        ("GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n", "A", LINES),
        ("GET / HTTP/1.1\r\nA: b\r\n\n", "\n", LINES),
        ("X / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "Tr", TWICE),
        ("X / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", "Co", TWICE),
        ("X / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", "Co", TWICE),
        ("X / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", "Co", TWICE),
        ("X / HTTP/1.1\r\nContent-Length: 3, 3\r\n\r\n", "Co", LENGTH),
        ("X / HTTP/1.1\r\nContent-Length: +3\r\n\r\n", "Co", LENGTH),
        ("X / HTTP/1.1\r\nContent-Length: -3\r\n\r\n", "Co", LENGTH),
        ("X / HTTP/1.1\r\nContent-Length: 0x3\r\n\r\n", "Co", LENGTH),
        ("X / HTTP/1.1\r\nContent-Length:\r\n\r\n", "Co", LENGTH),
        ("X / HTTP/1.1\r\nContent-Length: 18446744073709551616\r\n\r\n", "Co", LENGTH),
        ("X / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n", "Co", LENGTH),
        ("X / HTTP/1.1\r\nTransfer-Encoding: chunked, identity\r\n\r\n", "Tr", ENCODING),
        ("X / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "Tr", ENCODING),
        ("X / HTTP/1.1\r\nTransfer-Encoding: identity\r\n\r\n", "Tr", ENCODING),
        ("X / HTTP/1.1\r\nTransfer-Encoding: \x0bchunked\r\n\r\n", "Tr", FIELD),
        ("X / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "Tr", ENCODING),
        (
            "X / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "Tr",
            TWICE,
        ),
        // What the library would refuse by itself.
        ("GET /\r\n\r\n", "GET", FIRST),
        ("GET  / HTTP/1.1\r\n\r\n", "GET", FIRST),
        (" GET / HTTP/1.1\r\n\r\n", " GET", FIRST),
        ("GET / HTTP/1.2\r\n\r\n", "GET", FIRST),
        ("GET / HTTP/2.0\r\n\r\n", "GET", FIRST),
        ("GET / http/1.1\r\n\r\n", "GET", FIRST),
        ("GET / HTTP/1.1 \r\n\r\n", "GET", FIRST),
        ("G\0T / HTTP/1.1\r\n\r\n", "G", FIRST),
        ("GET http://[ HTTP/1.1\r\n\r\n", "GET", FIRST),
        ("hello\r\n\r\n", "hello", FIRST),
        ("X / HTTP/1.1\r\nA : b\r\n\r\n", "A", FIELD),
        ("X / HTTP/1.1\r\n A: b\r\n\r\n", " A", FIELD),
        ("X / HTTP/1.1\r\nA: b\r\n\tc: d\r\n\r\n", "\tc", FIELD),
        ("X / HTTP/1.1\r\nA\r\n\r\n", "A", FIELD),
        ("X / HTTP/1.1\r\n: b\r\n\r\n", ": b", FIELD),
        ("X / HTTP/1.1\r\nA: b\rc\r\n\r\n", "A", FIELD),
        ("X / HTTP/1.1\r\nA: \0\r\n\r\n", "A", FIELD),
        ("X / HTTP/1.1\r\nA: \x1b[0m\r\n\r\n", "A", FIELD),
        ("X / HTTP/1.1\r\nA: \x7f\r\n\r\n", "A", FIELD),
        // Bodies.
        ("X / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", "3\n", LINES),
        ("X / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\n0\r\n\r\n", "\n0", LINES),
        (
            "X / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
            "d\r\n0",
            CHUNK,
        ),
        ("X / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-3\r\nabc", "-3", CHUNK),
        ("X / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\r\nabc", "\r\nabc", CHUNK),
        ("X / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc", "0x3", CHUNK),
        (
            "X / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc",
            "fffffffffffffffff",
            CHUNK,
        ),
        ("X / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-T: 1\n\r\n", "X-T", LINES),
    ];
    for (bytes, from, fault) in bad {
        let expected = (bytes.rfind(from).unwrap(), Stage::Refused, Some(fault));
        for piece in [1, 2, 7, bytes.len()] {
            assert_eq!(pass(bytes.as_bytes(), piece), expected, "{bytes:?} by {piece}");
        }
    }
}

#[test]
fn a_head_has_so_many_bytes_and_fields() {
    let field = |bytes: usize| format!("X-A: {}\r\n", "a".repeat(bytes - 7));
    let rest = MAX_HEAD_BYTES - HEAD.len();
    for (head, fits) in [
        (format!("{HEAD}{}\r\n", field(rest - 2)), true),
        (format!("{HEAD}{}\r\n", field(rest - 1)), false),
        (format!("{HEAD}{}\r\n", field(10).repeat(MAX_FIELDS - 1)), true),
        (format!("{HEAD}{}\r\n", field(10).repeat(MAX_FIELDS)), false),
        (format!("{}{HEAD}", "\r\n".repeat(MAX_HEAD_BYTES)), false),
        // Whoever never ends a line is not waited for.
        (format!("{HEAD}X-A: {}", "a".repeat(rest)), false),
        (format!("GET /{}", "a".repeat(MAX_HEAD_BYTES)), false),
        // What was before it counts for what was before it.
        (format!("{HEAD}{}\r\n", field(rest - 2)).repeat(3), true),
    ] {
        for piece in [1000, head.len()] {
            let (_, stage, fault) = pass(head.as_bytes(), piece);
            let expected = if fits { None } else { Some(Fault::TooLarge) };
            assert_eq!((stage == Stage::Start, fault), (fits, expected), "{}", head.len());
        }
    }
    let chunk = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n1;{}", "a".repeat(MAX_HEAD_BYTES));
    assert_eq!(pass(chunk.as_bytes(), 1000).2, Some(CHUNK));
}

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nUpgrade: WebSocket\r\n\r\n";

/// Reads what comes through. An answer is given whenever nothing comes without one; returns what is wrong with each
/// request that these are for, and with the one after them.
async fn read(bytes: &[u8], answers: &[bool]) -> (Vec<u8>, Vec<Option<Fault>>) {
    let given = Arc::<Answers>::default();
    let (near, mut far) = tokio::io::duplex(1 << 20);
    far.write_all(bytes).await.unwrap();
    drop(far);
    let mut stream = Strict::new(near, Arc::clone(&given));
    let (mut all, mut answers) = (Vec::new(), answers.iter());
    let mut faults = Vec::new();
    loop {
        if let Some(Ok(1..)) = stream.read_buf(&mut all).now_or_never() {
            continue;
        }
        faults.push(given.begin().1);
        let Some(is_upgrade) = answers.next() else { break };
        given.give(*is_upgrade);
    }
    (all, faults)
}

#[tokio::test]
async fn after_an_upgrade_every_byte_goes_through_and_without_one_none_that_must_not() {
    let bare = "GET / HTTP/1.1\nA: b\r\n\r\n";
    let first = "GET / HTTP/1.1\r\n\r\n";
    let stand_in = "GET / HTTP/1.1\r\n\r\n";
    let well = |bytes: &str, requests: usize| (bytes.as_bytes().to_vec(), vec![None; requests]);
    let refused = |bytes: &str, requests: usize| {
        let mut faults = vec![None; requests];
        faults.push(Some(LINES));
        (bytes.as_bytes().to_vec(), faults)
    };
    let sent = format!("{UPGRADE}{bare}");
    assert_eq!(read(sent.as_bytes(), &[true]).await, well(&sent, 2));
    let ended = format!("{UPGRADE}{stand_in}");
    assert_eq!(read(sent.as_bytes(), &[false]).await, refused(&ended, 1));
    // The answer to another request says nothing about this one.
    let (sent, ended) = (format!("{first}{sent}"), format!("{first}{ended}"));
    assert_eq!(read(sent.as_bytes(), &[false, true]).await, well(&sent, 3));
    assert_eq!(read(sent.as_bytes(), &[false, false]).await, refused(&ended, 2));
    // What follows the body of the request waits as well.
    let body = "POST /ws HTTP/1.1\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nab";
    let twice = format!("{body}{UPGRADE}{bare}");
    assert_eq!(read(twice.as_bytes(), &[false, true]).await, well(&twice, 3));
    let ended = format!("{body}{UPGRADE}{stand_in}");
    assert_eq!(read(twice.as_bytes(), &[false, false]).await, refused(&ended, 2));
}

/// What is known of a request goes on, so that it is answered as its route would.
#[tokio::test]
async fn a_head_ends_before_the_line_that_must_not_be_there() {
    let rows = [
        (
            "GET /a HTTP/1.1\r\nHost: a\r\nB : c\r\nD: e\r\n\r\n",
            "GET /a HTTP/1.1\r\nHost: a\r\n\r\n",
            FIELD,
        ),
        ("GET /a HTTP/1.1\r\nA: b\nC: d\r\n\r\n", "GET /a HTTP/1.1\r\n\r\n", LINES),
        ("GET /a\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", FIRST),
    ];
    for (sent, expected, fault) in rows {
        let read = read(sent.as_bytes(), &[]).await;
        assert_eq!(read, (expected.as_bytes().to_vec(), vec![Some(fault)]), "{sent:?}");
    }
    // A body has begun to be answered: it breaks off.
    let sent = "GET /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n";
    let expected = "GET /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\0\r\n\r\n";
    let read = read(sent.as_bytes(), &[false]).await;
    assert_eq!(read, (expected.as_bytes().to_vec(), vec![None, None]));
}

#[tokio::test]
async fn who_goes_while_his_answer_is_made_is_noticed() {
    let (near, mut far) = tokio::io::duplex(1 << 10);
    let mut stream = Strict::new(near, Arc::default());
    far.write_all(UPGRADE.as_bytes()).await.unwrap();
    let mut all = Vec::new();
    stream.read_buf(&mut all).await.unwrap();
    assert_eq!(all, UPGRADE.as_bytes());
    drop(far);
    assert_eq!(stream.read_buf(&mut all).await.unwrap(), 0);
}

/// A request that is read in one way only.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let body = vec(any::<u8>(), 0..40);
    let whole = body.clone().prop_map(|body| {
        let head = format!("PUT / HTTP/1.1\r\nhost: a\r\nCONTENT-LENGTH: {}\r\n\r\n", body.len());
        [head.into_bytes(), body].concat()
    });
    let chunked = vec(body.prop_filter("the last one", |body| !body.is_empty()), 0..4);
    let chunked = chunked.prop_map(|chunks| {
        let mut all = b"PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        for chunk in chunks {
            all.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
            all.extend(chunk);
            all.extend(b"\r\n");
        }
        all.extend(b"0\r\n\r\n");
        all
    });
    prop_oneof![whole, chunked, Just(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".to_vec())]
}

/// Bytes that are often nearly requests.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let words: [&[u8]; 16] = [
        b"GET / HTTP/1.1",
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b"\r",
        b"Content-Length: ",
        b"Transfer-Encoding: ",
        b"chunked",
        b"3",
        b"0",
        b"a",
        b":",
        b" ",
        b";",
        b"Upgrade: websocket",
        b"\0",
    ];
    vec(select(words.to_vec()), 0..40).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn requests_that_follow_each_other_go_through(
        requests in vec(request(), 0..6), piece in 1_usize..50,
    ) {
        let bytes = requests.concat();
        prop_assert_eq!(pass(&bytes, piece), (bytes.len(), Stage::Start, None));
    }

    #[test]
    fn pieces_make_no_difference(bytes in nearly(), piece in 1_usize..20) {
        let whole = pass(&bytes, bytes.len().max(1));
        prop_assert_eq!(pass(&bytes, piece), whole);
        if whole.1 == Stage::Open {
            prop_assert_eq!(whole.0, bytes.len());
        }
    }

    /// So that nothing is answered by the library itself, which says nothing.
    #[test]
    fn the_library_takes_every_head_that_goes_through(bytes in nearly()) {
        let (through, ..) = pass(&bytes, bytes.len().max(1));
        let mut fields = [EMPTY_HEADER; MAX_FIELDS];
        let read = httparse::Request::new(&mut fields).parse(&bytes[..through]);
        prop_assert!(read.is_ok(), "{:?}", read);
    }

    #[test]
    fn any_bytes_are_judged(bytes: Vec<u8>, piece in 1_usize..20) {
        pass(&bytes, piece);
    }
}
