//! P01–P09, P13–P19: paths that mean something else than they seem to.

use serde_json::json;

use super::{code, ground::Ground};

#[tokio::test]
async fn p01_p02_a_path_that_no_file_can_have_is_refused() {
    let ground = Ground::start().await;
    let long_name = "x".repeat(256);
    let long = "x/".repeat(2049);
    let deep = "x/".repeat(257);
    let bad = [
        "../x",
        "a/../../x",
        "%2e%2e%2fx",
        "a/%2e%2e/x",
        "..",
        "a%00b",
        "a%0ab",
        "a%7fb",
        "%zz",
        &long_name,
        &long,
        &deep,
    ];
    for path in bad {
        for method in ["GET", "PUT", "DELETE"] {
            let refused = ground.send(method, &format!("/files/workspace/{path}"), &[], b"").await;
            assert_eq!(code(&refused), (400, "INVALID_PATH".to_owned()), "{method} {path}");
        }
        let refused = ground.send("GET", &format!("/v1/files/stat?path=/{path}"), &[], b"").await;
        assert_eq!(code(&refused), (400, "INVALID_PATH".to_owned()), "{path}");
    }
    let refused = ground.send("GET", "/v1/files/stat?path=", &[], b"").await;
    assert_eq!(code(&refused), (400, "INVALID_PATH".to_owned()));
    let refused = ground.post("/v1/files/mkdir", json!({"path": "a/../b"})).await;
    assert_eq!(code(&refused), (400, "INVALID_PATH".to_owned()));
}

/// P01, P03: names are bytes, decoded once and never changed.
#[tokio::test]
async fn p01_p03_names_are_kept_as_they_are() {
    let ground = Ground::start().await;
    let rows: [(&str, &[u8]); 9] = [
        ("%252e%252e", b"%2e%2e"),
        ("%c0%ae%c0%ae", b"\xc0\xae\xc0\xae"),
        ("a%5cb", b"a\\b"),
        ("~", b"~"),
        ("$HOME", b"$HOME"),
        ("e%CC%81", b"e\xcc\x81"),
        ("%C3%A9", b"\xc3\xa9"),
        ("%E2%80%AEx", b"\xe2\x80\xaex"),
        ("%F0%9F%A6%80+", b"\xf0\x9f\xa6\x80+"),
    ];
    for (path, name) in rows {
        let put = ground.send("PUT", &format!("/files//workspace/./n/{path}"), &[], name).await;
        assert_eq!(put.status, 201, "{path} {put:?}");
        let get = ground.send("GET", &format!("/files/workspace/n//{path}"), &[], b"").await;
        assert_eq!((get.status, get.body.as_slice()), (200, name), "{path}");
    }
    let listed = ground.send("GET", "/v1/files/list?path=/workspace/n/", &[], b"").await.json();
    let entries = listed["entries"].as_array().unwrap();
    assert_eq!(entries.len(), rows.len());
    let odd: Vec<_> = entries.iter().filter(|entry| !entry["name_b64"].is_null()).collect();
    assert_eq!((odd.len(), &odd[0]["name_b64"]), (1, &json!("wK7Arg==")));
}

#[tokio::test]
async fn p04_p07_links_are_read_inside_and_never_written_through() {
    let ground = Ground::start().await;
    let script = "cd /workspace; echo inside > file; mkdir d
        ln -s file good; ln -s /etc/hostname absolute; ln -s loop loop; ln -s nowhere dangling
        ln -s /proc/self/root root; ln -s /proc/1/root one; ln -s /dev/stdin stdin; ln -s d sub
        ln file hard; chmod 4755 file";
    ground.run(script).await;
    let rows = [
        ("good", 200),
        ("absolute", 200),
        ("loop", 400),
        ("dangling", 404),
        ("root/etc/passwd", 400),
        // PID 1 belongs to another user, and is not to be seen.
        ("one/etc/passwd", 404),
        ("stdin", 400),
        ("sub", 400),
    ];
    for (path, status) in rows {
        let got = ground.send("GET", &format!("/files/workspace/{path}"), &[], b"").await;
        assert_eq!(got.status, status, "{path} {got:?}");
    }
    let hostname = ground.read("/workspace/absolute").await;
    assert_ne!(hostname, std::fs::read_to_string("/etc/hostname").unwrap_or_default());
    for path in ["good", "absolute", "loop", "dangling", "sub"] {
        let put = ground.send("PUT", &format!("/files/workspace/{path}"), &[], b"x").await;
        assert_eq!(code(&put), (403, "SYMLINK".to_owned()), "{path}");
    }
    // P07, P14: another name of the same file keeps what it had, and no bit but permissions stays.
    let put = ground.send("PUT", "/files/workspace/file", &[], b"new").await;
    assert_eq!((put.status, &put.json()["mode"]), (200, &json!("0755")));
    assert_eq!(ground.read("/workspace/hard").await, "inside\n");
    let put = ground.send("PUT", "/files/workspace/modes?mode=777777", &[], b"").await;
    assert_eq!(put.json()["mode"], "0777");
    let put = ground.send("PUT", "/files/workspace/modes?mode=-1", &[], b"").await;
    assert_eq!(code(&put), (400, "INVALID_REQUEST".to_owned()));
}

#[tokio::test]
async fn p08_what_is_no_regular_file_is_refused_at_once() {
    let ground = Ground::start().await;
    ground.run("mkfifo /workspace/fifo").await;
    for path in ["/workspace/fifo", "/dev/null", "/dev/zero", "/proc/version", "/proc/self/maps"] {
        let got = ground.send("GET", &format!("/files{path}"), &[], b"").await;
        assert_eq!(code(&got), (400, "NOT_REGULAR".to_owned()), "{path}");
    }
}

#[tokio::test]
async fn p13_what_is_in_the_way_of_an_upload_stays_and_nothing_is_left() {
    let ground = Ground::start().await;
    let script = "cd /workspace; mkdir d ro; mkfifo fifo; echo x > read-only; chmod 444 read-only
        chmod 555 ro; echo x > file";
    ground.run(script).await;
    let rows = [
        ("/workspace/d", 409),
        ("/workspace/fifo", 409),
        ("/workspace/read-only", 403),
        ("/workspace/ro/new", 403),
        ("/workspace/file/below", 409),
        ("/usr/bin/new", 403),
        ("/proc/new", 403),
    ];
    for (path, status) in rows {
        let put = ground.send("PUT", &format!("/files{path}"), &[], b"new").await;
        assert_eq!(put.status, status, "{path} {put:?}");
    }
    let left = ground.run("cd /workspace; ls -A . ro; cat read-only").await;
    assert_eq!(left, ".:\nd\nfifo\nfile\nread-only\nro\n\nro:\nx\n");
}

#[tokio::test]
async fn p18_p19_the_root_stays_and_a_move_is_within_one_file_system() {
    let ground = Ground::start().await;
    ground.send("PUT", "/files/workspace/d/a", &[], b"x").await;
    for path in ["/files/%2e", "/files/.", "/files//"] {
        let refused = ground.send("DELETE", &format!("{path}?recursive=true"), &[], b"").await;
        assert_eq!(code(&refused), (400, "INVALID_PATH".to_owned()), "{path}");
    }
    let moves = [
        ("/workspace/d", "/workspace/d/below", 409),
        ("/workspace/d/a", "/workspace", 409),
        ("/workspace/d/a", "/dev/shm/a", 409),
        ("/workspace/none", "/workspace/b", 404),
        ("/workspace/d/a", "/workspace/none/b", 404),
    ];
    for (from, to, status) in moves {
        let moved = ground.post("/v1/files/move", json!({"from": from, "to": to})).await;
        assert_eq!(moved.status, status, "{from} {to} {moved:?}");
    }
    assert_eq!(ground.read("/workspace/d/a").await, "x");
}
