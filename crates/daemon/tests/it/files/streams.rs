//! P10, P12, P15: bodies that are long, late, cut or broken.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt as _},
    time::timeout,
};

use super::{
    code,
    ground::{Ground, rest},
};

const GIB: u64 = 1 << 30;

/// P10: whatever becomes of a file while it is read, the length that was said is never a lie.
#[tokio::test]
async fn p10_a_large_file_is_read_in_parts_and_a_cut_one_cuts_the_connection() {
    let ground = Ground::start().await;
    ground
        .run("cd /workspace; truncate -s 4G large; printf end >> large; truncate -s 64M mid")
        .await;
    let head = ground.send("HEAD", "/files/workspace/large", &[], b"").await;
    assert_eq!(head.header("content-length"), Some("4294967299"));
    for (range, expected) in [
        ("bytes=4294967296-".to_owned(), b"end".to_vec()),
        ("bytes=-3".to_owned(), b"end".to_vec()),
        (format!("bytes={}-{}", 2 * GIB, 2 * GIB + 9), vec![0; 10]),
    ] {
        let part = ground.send("GET", "/files/workspace/large", &[("range", &range)], b"").await;
        assert_eq!((part.status, part.body), (206, expected), "{range}");
    }
    let mut cut = ground.begin("GET", "/files/workspace/mid", &[]).await;
    let mut first = [0; 1];
    AsyncReadExt::read_exact(&mut cut, &mut first).await.unwrap();
    ground.run("truncate -s 0 /workspace/mid").await;
    let mut got = Vec::new();
    let _ = AsyncReadExt::read_to_end(&mut cut, &mut got).await;
    assert!((got.len() as u64) < 64 << 20, "{}", got.len());
    let empty = ground.send("GET", "/files/workspace/mid", &[], b"").await;
    assert_eq!((empty.status, empty.header("content-length")), (200, Some("0")));
}

/// Resident memory of this process, in which the daemon is.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

/// A gibibyte goes out and in, and at no time is much of it in memory.
#[tokio::test]
async fn bodies_go_through_in_pieces_both_ways() {
    const PIECE: usize = 1 << 20;
    const MOST: u64 = 32 << 20;
    let ground = Ground::start().await;
    ground.run("truncate -s 1G /workspace/large").await;
    let mut buffer = vec![0; PIECE];
    let before = resident();
    let mut most = before;
    let mut stream = ground.begin("GET", "/files/workspace/large", &[]).await;
    let mut got = 0;
    while let read @ 1.. = AsyncReadExt::read(&mut stream, &mut buffer).await.unwrap() {
        got += read as u64;
        most = most.max(resident());
    }
    assert!(got > GIB, "{got}");
    let length = (256_u64 << 20).to_string();
    let mut stream =
        ground.begin("PUT", "/files/workspace/copy", &[("content-length", &length)]).await;
    for _ in 0..256 {
        stream.write_all(&buffer).await.unwrap();
        most = most.max(resident());
    }
    assert_eq!(rest(&mut stream).await.status, 201);
    assert!(most < before + MOST, "{before} became {most}");
}

/// P12.
#[tokio::test]
async fn p12_an_upload_that_breaks_off_leaves_nothing() {
    let ground = Ground::start().await;
    ground.send("PUT", "/files/workspace/a", &[], b"before").await;
    let mut cut = ground.begin("PUT", "/files/workspace/a", &[("content-length", "1000000")]).await;
    cut.write_all(&vec![b'x'; 500_000]).await.unwrap();
    drop(cut);
    let too_large = (4 * GIB + (1 << 20)).to_string();
    let mut large =
        ground.begin("PUT", "/files/workspace/a", &[("content-length", &too_large)]).await;
    let refused = rest(&mut large).await;
    assert_eq!(code(&refused), (413, "PAYLOAD_TOO_LARGE".to_owned()));
    // Without a length it is as long as it is.
    let mut chunked =
        ground.begin("PUT", "/files/workspace/b", &[("transfer-encoding", "chunked")]).await;
    chunked.write_all(b"3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n").await.unwrap();
    assert_eq!(rest(&mut chunked).await.status, 201);
    assert_eq!(ground.read("/workspace/b").await, "abcdefg");
    // Of writers without a condition the last one wins, and each file is whole.
    let writers = (0..8).map(|number| {
        let body = vec![b'0' + number; 100_000];
        let ground = &ground;
        async move { ground.send("PUT", "/files/workspace/c", &[], &body).await.status }
    });
    let ends = futures_util::future::join_all(writers).await;
    assert!(ends.iter().all(|status| matches!(status, 200 | 201)), "{ends:?}");
    let last = ground.read("/workspace/c").await;
    assert!(last.len() == 100_000 && last.bytes().all(|byte| byte == last.as_bytes()[0]));
    let waited = timeout(Duration::from_mins(1), async {
        while ground.run("ls -A /workspace").await != "a\nb\nc\n" {}
    });
    waited.await.expect("something is left");
    assert_eq!(ground.read("/workspace/a").await, "before");
}

/// H14: nothing is kept of what says that it is something else.
#[tokio::test]
async fn h14_what_is_compressed_is_not_taken() {
    let ground = Ground::start().await;
    for encoding in ["gzip", "identity", "br, zstd"] {
        let headers = [("Content-Encoding", encoding)];
        for (method, path, kind) in [
            ("PUT", "/files/workspace/a", "UNSUPPORTED_MEDIA_TYPE"),
            ("POST", "/v1/files/upload?path=/workspace/a", "UNSUPPORTED_MEDIA_TYPE"),
            ("POST", "/upload?path=/workspace/a", "ValidationError"),
        ] {
            let refused = ground.send(method, path, &headers, b"\x1f\x8b").await;
            assert_eq!(refused.status, 415, "{method} {path} {encoding}");
            let body = String::from_utf8_lossy(&refused.body).into_owned();
            assert!(body.contains(kind), "{path}: {body}");
        }
    }
    assert_eq!(ground.run("ls -A /workspace").await, "");
}

/// P15.
#[tokio::test]
async fn p15_a_form_that_is_broken_is_refused_and_leaves_nothing() {
    let ground = Ground::start().await;
    let form = "multipart/form-data; boundary=b";
    let part = "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n";
    let other = "--b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nx\r\n";
    let rows = [
        ("multipart/form-data", format!("{part}--b--\r\n")),
        ("multipart/mixed; boundary=b", format!("{part}--b--\r\n")),
        (form, String::new()),
        (form, part.to_owned()),
        (form, "--b--\r\n".to_owned()),
        (form, format!("{}--b--\r\n", other.repeat(10_000))),
        (form, format!("{other}--b--\r\n")),
        (form, format!("{part}{part}--b--\r\n")),
        (form, format!("--b\r\nX: {}\r\n\r\nx\r\n--b--\r\n", "y".repeat(1 << 20))),
        (
            form,
            "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\
             Content-Type: multipart/mixed; boundary=c\r\n\r\n--c--\r\n--b--\r\n"
                .to_owned(),
        ),
    ];
    for (kind, body) in rows {
        let headers = [("content-type", kind)];
        let post =
            ground.send("POST", "/upload?path=/workspace/a", &headers, body.as_bytes()).await;
        let shown: String = body.chars().take(80).collect();
        assert_eq!(post.status, 400, "{kind} {shown}");
        assert_eq!(post.json()["detail"]["error"], "ValidationError", "{kind} {shown}");
    }
    // An empty file, and one with what looks like the line between parts.
    for bytes in ["", "\r\n--", "\r\n--bb", "x\r\n--\r\n", "--b"] {
        let body = format!(
            "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n{bytes}\r\n--b--\r\n"
        );
        // What begins with the line ends there.
        let expected = if bytes.contains("\r\n--b") { continue } else { bytes };
        let headers = [("content-type", form)];
        let post =
            ground.send("POST", "/upload?path=/workspace/ok", &headers, body.as_bytes()).await;
        assert!(matches!(post.status, 200 | 201), "{bytes:?} {post:?}");
        assert_eq!(ground.read("/workspace/ok").await, expected);
    }
    assert_eq!(ground.run("ls -A /workspace").await, "ok\n");
}
