//! Files of a real sandbox over HTTP, with the answers of table P.

mod ground;
mod paths;
mod streams;

use serde_json::{Value, json};

use ground::{Ground, Reply};

#[tokio::test]
async fn a_file_is_written_read_and_removed_in_every_spelling() {
    let ground = Ground::start().await;
    let put = ground.send("PUT", "/files/workspace/a.txt", &[], b"hello").await;
    assert_eq!(put.status, 201, "{put:?}");
    let etag = put.header("etag").unwrap().to_owned();
    assert_eq!(put.json()["etag"], json!(etag));
    assert_eq!(put.json()["path"], "/workspace/a.txt");
    let places = [
        "/files/workspace/a.txt",
        "/v1/files/download?path=/workspace/a.txt",
        "/download?path=%2Fworkspace%2Fa.txt",
        "/v1/download?path=/workspace/a.txt",
    ];
    for place in places {
        let get = ground.send("GET", place, &[], b"").await;
        assert_eq!((get.status, get.body.as_slice()), (200, b"hello".as_slice()), "{place}");
        assert_eq!(get.header("etag"), Some(etag.as_str()));
        assert_eq!(get.header("content-type"), Some("application/octet-stream"));
        assert_eq!(get.header("x-content-type-options"), Some("nosniff"));
        assert!(get.header("content-disposition").unwrap().starts_with("attachment;"));
        assert!(get.header("last-modified").unwrap().ends_with(" GMT"));
        let head = ground.send("HEAD", place, &[], b"").await;
        assert_eq!((head.status, head.body.len()), (200, 0), "{place}");
        assert_eq!(head.header("content-length"), Some("5"));
    }
    // As LangSmith's clients upload; the file's own name in the form means nothing.
    let form = b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"../../x\"\r\n\
        Content-Type: text/plain\r\n\r\nfrom a form\r\n--b--\r\n";
    let kind = ("content-type", "multipart/form-data; boundary=b");
    for place in ["/upload?path=deep/er/b", "/v1/upload?path=deep/er/b"] {
        let post = ground.send("POST", place, &[kind], form).await;
        assert!(matches!(post.status, 200 | 201), "{post:?}");
        assert_eq!(ground.read("/home/agbox/deep/er/b").await, "from a form");
    }
    let post =
        ground.send("POST", "/v1/files/upload?path=/workspace/c&mode=600", &[], b"raw").await;
    assert_eq!((post.status, &post.json()["mode"]), (201, &json!("0600")));
    let gone = ground.send("DELETE", "/files/workspace/a.txt", &[], b"").await;
    assert_eq!(gone.status, 204);
    let gone = ground.send("GET", "/files/workspace/a.txt", &[], b"").await;
    assert_eq!(gone.problem(), (404, "NOT_FOUND".to_owned()));
    let gone = ground.send("GET", "/download?path=/workspace/a.txt", &[], b"").await;
    assert_eq!((gone.status, &gone.json()["detail"]["error"]), (404, &json!("FileNotFound")));
    let directory = ground.send("GET", "/download?path=/workspace", &[], b"").await;
    assert_eq!(
        (directory.status, &directory.json()["detail"]["error"]),
        (400, &json!("ReadError"))
    );
    assert!(directory.json()["detail"]["message"].as_str().unwrap().contains("is a directory"));
}

#[tokio::test]
async fn parts_and_versions_are_answered_as_clients_expect() {
    let ground = Ground::start().await;
    let put = ground.send("PUT", "/files/workspace/a", &[], b"0123456789").await;
    let etag = put.header("etag").unwrap().to_owned();
    let get = async |headers: &[(&str, &str)]| {
        ground.send("GET", "/download?path=/workspace/a", headers, b"").await
    };
    let part = get(&[("range", "bytes=2-4")]).await;
    assert_eq!((part.status, part.body.as_slice()), (206, b"234".as_slice()));
    assert_eq!(part.header("content-range"), Some("bytes 2-4/10"));
    let part = get(&[("range", "bytes=2-4"), ("if-range", &etag)]).await;
    assert_eq!(part.status, 206);
    let whole = get(&[("range", "bytes=2-4"), ("if-range", "\"old\"")]).await;
    assert_eq!((whole.status, whole.body.len()), (200, 10));
    let same = get(&[("if-none-match", &etag)]).await;
    assert_eq!((same.status, same.body.len()), (304, 0));
    for range in ["bytes=10-", "bytes=-0", "bytes=5-2", "bytes=0-1,3-4"] {
        let none = get(&[("range", range)]).await;
        assert_eq!(none.status, 416, "{range}");
        assert_eq!(none.header("content-range"), Some("bytes */10"), "{range}");
    }
    // A write or a delete is of the version that is named, and says which is there.
    let stale = [("if-match", "\"old\"")];
    for (method, path) in [("PUT", "/files/workspace/a"), ("DELETE", "/files/workspace/a")] {
        let refused = ground.send(method, path, &stale, b"x").await;
        assert_eq!(refused.problem(), (412, "PRECONDITION_FAILED".to_owned()));
        assert_eq!(refused.header("etag"), Some(etag.as_str()));
    }
    let absent = ground.send("PUT", "/files/workspace/a", &[("if-none-match", "*")], b"x").await;
    assert_eq!(absent.status, 412);
    let edit = json!({"path": "/workspace/a", "old_string": "5", "new_string": "five"}).to_string();
    let stale = [("if-match", "\"old\""), ("content-type", "application/json")];
    assert_eq!(ground.send("POST", "/v1/files/edit", &stale, edit.as_bytes()).await.status, 412);
    let moved = json!({"from": "/workspace/a", "to": "/workspace/b"}).to_string();
    assert_eq!(ground.send("POST", "/v1/files/move", &stale, moved.as_bytes()).await.status, 412);
    let replaced = ground.send("PUT", "/files/workspace/a", &[("if-match", &etag)], b"new").await;
    assert_eq!(replaced.status, 200);
    assert_ne!(replaced.header("etag"), Some(etag.as_str()));
}

#[tokio::test]
async fn names_are_listed_made_moved_edited_and_found() {
    let ground = Ground::start().await;
    let made =
        ground.post("/v1/files/mkdir", json!({"path": "/workspace/d/e", "parents": true})).await;
    assert_eq!((made.status, &made.json()["is_dir"]), (201, &json!(true)), "{made:?}");
    let again = ground.post("/v1/files/mkdir", json!({"path": "/workspace/d/e"})).await;
    assert_eq!(again.problem(), (409, "CONFLICT".to_owned()));
    for name in ["one.py", "two.py", "three.txt"] {
        let path = format!("/files/workspace/d/{name}");
        ground.send("PUT", &path, &[], b"a = 1\nb = 1\n").await;
    }
    let page =
        ground.send("GET", "/v1/files/list?path=/workspace/d&limit=3", &[], b"").await.json();
    assert_eq!(names(&page), ["e", "one.py", "three.txt"]);
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = format!("/v1/files/list?path=/workspace/d&cursor={cursor}");
    let rest = ground.send("GET", &rest, &[], b"").await.json();
    assert_eq!((names(&rest), &rest["next_cursor"]), (vec!["two.py".to_owned()], &Value::Null));
    let edit = |old: &str, all: bool| json!({"path": "/workspace/d/one.py", "old_string": old, "new_string": "2", "replace_all": all});
    assert_eq!(ground.post("/v1/files/edit", edit("1", false)).await.status, 409);
    let edited = ground.post("/v1/files/edit", edit("1", true)).await;
    assert_eq!((edited.status, &edited.json()["occurrences"]), (200, &json!(2)));
    assert_eq!(ground.read("/workspace/d/one.py").await, "a = 2\nb = 2\n");
    let moved = json!({"from": "/workspace/d/one.py", "to": "/workspace/d/e/one.py"});
    assert_eq!(ground.post("/v1/files/move", moved).await.status, 200);
    for route in ["/glob", "/v1/files/glob"] {
        let found =
            ground.post(route, json!({"pattern": "**/*.py", "path": "/workspace"})).await.json();
        let paths: Vec<_> =
            found["matches"].as_array().unwrap().iter().map(|it| &it["path"]).collect();
        assert_eq!(paths, ["/workspace/d/e/one.py", "/workspace/d/two.py"], "{route}");
        assert_eq!(found["truncated"], false);
    }
    for route in ["/grep", "/v1/files/grep"] {
        let asked = json!({"pattern": "b = ", "path": "/workspace", "glob": "*.py"});
        let found = ground.post(route, asked).await.json();
        let line = |path: &str, text: &str| json!({"path": path, "line": 2, "text": text});
        let expected =
            json!([line("/workspace/d/e/one.py", "b = 2"), line("/workspace/d/two.py", "b = 1")]);
        assert_eq!(found["matches"], expected, "{route}");
    }
    let stat = ground.send("GET", "/v1/files/stat?path=/workspace/d", &[], b"").await.json();
    assert_eq!((&stat["type"], &stat["mode"]), (&json!("directory"), &json!("0755")));
    let refused = ground.send("DELETE", "/files/workspace/d", &[], b"").await;
    assert_eq!(refused.problem(), (409, "CONFLICT".to_owned()));
    let removed = ground.send("DELETE", "/files/workspace/d?recursive=true", &[], b"").await;
    assert_eq!(removed.status, 204);
}

fn names(page: &Value) -> Vec<String> {
    let entries = page["entries"].as_array().unwrap().iter();
    entries.map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
}

/// Whoever may only read changes nothing, and whoever is confined reaches nothing else.
#[tokio::test]
async fn capabilities_and_folders_of_a_token_hold() {
    let ground = Ground::start().await;
    ground.send("PUT", "/files/workspace/in/a", &[], b"a").await;
    ground.send("PUT", "/files/workspace/out/b", &[], b"b").await;
    ground.run("ln -s ../out /workspace/in/up; ln -s /workspace/out/b /workspace/in/link").await;
    let reader = ground.token("fs:ro", None).await;
    assert_eq!(ground.with(&reader, "GET", "/files/workspace/in/a", b"").await.status, 200);
    let writes = [
        ("PUT", "/files/workspace/in/a"),
        ("DELETE", "/files/workspace/in/a"),
        ("POST", "/upload?path=/workspace/in/a"),
        ("POST", "/v1/files/upload?path=/workspace/in/a"),
        ("POST", "/v1/files/mkdir"),
        ("POST", "/v1/files/move"),
        ("POST", "/v1/files/edit"),
    ];
    for (method, path) in writes {
        let refused = ground.with(&reader, method, path, b"{}").await;
        assert_eq!(refused.status, 403, "{method} {path}");
    }
    let confined = ground.token("fs:rw", Some("/workspace/in")).await;
    assert_eq!(ground.with(&confined, "GET", "/files/workspace/in/a", b"").await.status, 200);
    let outside = [
        ("GET", "/files/workspace/out/b".to_owned(), json!(null)),
        ("GET", "/files/workspace/in/up/b".to_owned(), json!(null)),
        ("GET", "/files/workspace/in/link".to_owned(), json!(null)),
        ("GET", "/download?path=/etc/passwd".to_owned(), json!(null)),
        ("PUT", "/files/workspace/out/new".to_owned(), json!(null)),
        ("PUT", "/files/workspace/in/up/new".to_owned(), json!(null)),
        ("DELETE", "/files/workspace/out/b".to_owned(), json!(null)),
        ("DELETE", "/files/workspace/in/up/b".to_owned(), json!(null)),
        ("GET", "/v1/files/list?path=/workspace".to_owned(), json!(null)),
        ("GET", "/v1/files/list?path=/workspace/in/up".to_owned(), json!(null)),
        ("GET", "/v1/files/stat?path=/".to_owned(), json!(null)),
        ("GET", "/v1/files/watch?path=/workspace".to_owned(), json!(null)),
        ("POST", "/glob".to_owned(), json!({"pattern": "**", "path": "/"})),
        ("POST", "/glob".to_owned(), json!({"pattern": "/workspace/out/*"})),
        ("POST", "/grep".to_owned(), json!({"pattern": "x", "path": "/workspace/in/up"})),
        (
            "POST",
            "/v1/files/move".to_owned(),
            json!({"from": "/workspace/in/a", "to": "/workspace/out/a"}),
        ),
        (
            "POST",
            "/v1/files/move".to_owned(),
            json!({"from": "/workspace/out/b", "to": "/workspace/in/b"}),
        ),
        ("POST", "/v1/files/mkdir".to_owned(), json!({"path": "/workspace/in/up/d"})),
    ];
    for (method, path, body) in outside {
        let refused = ground.with(&confined, method, &path, body.to_string().as_bytes()).await;
        assert_eq!(refused.status, 403, "{method} {path} {refused:?}");
    }
    let everything = json!({"pattern": "**", "path": "/workspace/in"}).to_string();
    let found = ground.with(&confined, "POST", "/glob", everything.as_bytes()).await;
    assert_eq!(found.json()["matches"].as_array().unwrap().len(), 3);
    let root = ground.with(&confined, "DELETE", "/files/workspace/in?recursive=true", b"").await;
    assert_eq!(root.problem(), (400, "INVALID_PATH".to_owned()));
    assert_eq!(ground.read("/workspace/out/b").await, "b");
}

#[tokio::test]
async fn whoever_watches_is_told_and_told_of_gaps() {
    let ground = Ground::start().await;
    let mut stream = ground.open("/v1/files/watch?path=/workspace&recursive=true", &[]).await;
    stream.until("\"type\":\"watching\"").await;
    ground.send("PUT", "/files/workspace/d/a", &[], b"x").await;
    stream.until("\"path\":\"/workspace/d/a\"").await;
    let mut again = ground.open("/v1/files/watch?path=/workspace", &[("last-event-id", "7")]).await;
    again.until("\"type\":\"overflow\"").await;
    ground.run("rm -rf /workspace/d").await;
    stream.until("\"type\":\"deleted\"").await;
}

fn code(reply: &Reply) -> (u16, String) {
    reply.problem()
}
