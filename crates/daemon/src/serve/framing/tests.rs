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
            assert_eq!(pass(bytes.as_bytes(), piece), (bytes.len(), Stage::Start), "{rest:?}");
        }
    }
    // Where each goes wrong: the byte in this place is the first that must not be there.
    let bad = [
        ("GET / HTTP/1.1\n", "\n"),
        ("\n", "\n"),
        ("GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n", "\nC"),
        ("GET / HTTP/1.1\r\nA: b\r\n\n", "\n"),
        ("X / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "\n\r\n"),
        ("X / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", "\n\r\n"),
        ("X / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", "\n\r\n"),
        ("X / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", "\n\r\n"),
        ("X / HTTP/1.1\r\nContent-Length: 3, 3\r\n\r\n", "\n\r\n"),
        ("X / HTTP/1.1\r\nContent-Length: +3\r\n\r\n", "\n\r\n"),
        ("X / HTTP/1.1\r\nContent-Length: -3\r\n\r\n", "\n\r\n"),
        ("X / HTTP/1.1\r\nContent-Length: 0x3\r\n\r\n", "\n\r\n"),
        ("X / HTTP/1.1\r\nContent-Length:\r\n\r\n", "\n\r\n"),
        ("X / HTTP/1.1\r\nContent-Length: 18446744073709551616\r\n\r\n", "\n\r\n"),
        ("X / HTTP/1.1\r\nTransfer-Encoding: chunked, identity\r\n\r\n", "\n\r\n"),
        ("X / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "\n\r\n"),
        ("X / HTTP/1.1\r\nTransfer-Encoding: identity\r\n\r\n", "\n\r\n"),
        ("X / HTTP/1.1\r\nTransfer-Encoding: \x0bchunked\r\n\r\n", "\n\r\n"),
        (
            "X / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "\n\r\n",
        ),
        ("X / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", "\nabc"),
        ("X / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\n0\r\n\r\n", "\n0"),
        ("X / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", "\n0"),
        ("X / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-3\r\nabc", "\nabc"),
        ("X / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\r\nabc", "\nabc"),
        ("X / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc", "\nabc"),
        ("X / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc", "\nabc"),
        ("X / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-T: 1\n\r\n", "\n\r\n"),
    ];
    for (bytes, from) in bad {
        let expected = bytes.rfind(from).unwrap();
        for piece in [1, 2, 7, bytes.len()] {
            let passed = pass(bytes.as_bytes(), piece);
            assert_eq!(passed, (expected, Stage::Refused), "{bytes:?} by {piece}");
        }
    }
    let long = format!("{HEAD}X-A: {}", "a".repeat(MAX_LINE));
    assert_eq!(pass(long.as_bytes(), 1000).1, Stage::Refused);
}

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nUpgrade: WebSocket\r\n\r\n";

/// Reads what comes through while answers are given after so many bytes were read.
async fn read(bytes: &[u8], answers: &[bool]) -> Vec<u8> {
    let given = Arc::<Answers>::default();
    let (near, mut far) = tokio::io::duplex(1 << 20);
    far.write_all(bytes).await.unwrap();
    drop(far);
    let mut stream = Strict::new(near, Arc::clone(&given));
    let mut all = Vec::new();
    let reading = async { stream.read_to_end(&mut all).await.unwrap() };
    let answering = async {
        for is_upgrade in answers {
            tokio::task::yield_now().await;
            given.give(*is_upgrade);
        }
    };
    tokio::join!(reading, answering);
    all
}

#[tokio::test]
async fn after_an_upgrade_every_byte_goes_through_and_without_one_none_that_must_not() {
    let bare = "GET / HTTP/1.1\nA: b\r\n\r\n";
    let poisoned = "GET / HTTP/1.1\0\r\n\r\n";
    let first = "GET / HTTP/1.1\r\n\r\n";
    let sent = format!("{UPGRADE}{bare}");
    assert_eq!(read(sent.as_bytes(), &[true]).await, sent.as_bytes());
    let refused = format!("{UPGRADE}{poisoned}");
    assert_eq!(read(sent.as_bytes(), &[false]).await, refused.as_bytes());
    // The answer to another request says nothing about this one.
    let (sent, refused) = (format!("{first}{sent}"), format!("{first}{refused}"));
    assert_eq!(read(sent.as_bytes(), &[false, true]).await, sent.as_bytes());
    assert_eq!(read(sent.as_bytes(), &[false, false]).await, refused.as_bytes());
    // What follows the body of the request waits as well.
    let body = "POST /ws HTTP/1.1\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nab";
    let twice = format!("{body}{UPGRADE}{bare}");
    assert_eq!(read(twice.as_bytes(), &[false, true]).await, twice.as_bytes());
    let refused = format!("{body}{UPGRADE}{poisoned}");
    assert_eq!(read(twice.as_bytes(), &[false, false]).await, refused.as_bytes());
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
        prop_assert_eq!(pass(&bytes, piece), (bytes.len(), Stage::Start));
    }

    #[test]
    fn pieces_make_no_difference(bytes in nearly(), piece in 1_usize..20) {
        let whole = pass(&bytes, bytes.len().max(1));
        prop_assert_eq!(pass(&bytes, piece), whole);
        if whole.1 != Stage::Refused && whole.1 != Stage::Answer {
            prop_assert_eq!(whole.0, bytes.len());
        }
    }

    #[test]
    fn any_bytes_are_judged(bytes: Vec<u8>, piece in 1_usize..20) {
        pass(&bytes, piece);
    }
}
