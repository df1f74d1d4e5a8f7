//! `ringfence token`, with a real server and a real sandbox.

use std::io::Write as _;

use crate::{command::read_rest, keeper::Keeper};

/// Asks the data plane with a token; returns the status and the answer.
fn access(keeper: &Keeper, sandbox: &str, token: &str) -> String {
    let mut stream = keeper.connect();
    let path = format!("/dp/{sandbox}/v1/access");
    let head = format!("Authorization: Bearer {token}\r\nConnection: close");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\n").unwrap();
    read_rest(stream)
}

#[test]
fn a_token_is_printed_alone_and_opens_its_sandbox_also_after_a_restart_of_the_server() {
    let mut keeper = Keeper::with_demo();
    let scope = ["token", "mint", "--sandbox", "demo", "--scope", "fs:rw shell process"];
    let minted = keeper.json(&scope);
    assert_eq!(
        (&minted["scope"], &minted["expires_in"]),
        (&"fs:rw shell process".into(), &900.into())
    );
    let sandbox = minted["sandbox_id"].as_str().unwrap();
    let said = keeper.ask(&[&scope[..], &["--ttl", "5m", "--path", "/workspace"]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("good until") && said.err.contains(sandbox), "{said:?}");
    let token = said.out.trim_end();
    let shown = access(&keeper, sandbox, token);
    assert!(shown.starts_with("HTTP/1.1 200"), "{shown}");
    assert!(shown.contains(r#""scope":"fs:rw process shell","paths":["/workspace"]"#), "{shown}");

    keeper.kill();
    keeper.start_again();
    assert!(access(&keeper, sandbox, token).starts_with("HTTP/1.1 200"));

    // Another key ends it for good, and nothing else.
    let second = keeper.ask(&[&scope[..], &["--opaque"]].concat());
    let second = second.out.trim_end();
    assert!(second.starts_with("rfo_") && access(&keeper, sandbox, second).contains(" 200 "));
    let rotated = keeper.ask(&["token", "rotate", "demo"]);
    assert!(rotated.code == Some(0) && rotated.err.contains(sandbox), "{rotated:?}");
    for _ in 0..2 {
        for token in [token, second] {
            assert!(access(&keeper, sandbox, token).starts_with("HTTP/1.1 401"));
        }
        keeper.kill();
        keeper.start_again();
    }
    let third = keeper.ask(&scope);
    let token = third.out.trim_end();
    assert!(access(&keeper, sandbox, token).starts_with("HTTP/1.1 200"));
    // So does another key of the server itself, if it is said so; else not.
    let rotated = keeper.ask(&["token", "rotate-master"]);
    assert!(rotated.code == Some(0) && rotated.err.contains("good until"), "{rotated:?}");
    keeper.kill();
    keeper.start_again();
    assert!(access(&keeper, sandbox, token).starts_with("HTTP/1.1 200"));
    let rotated = keeper.ask(&["token", "rotate-master", "--at-once"]);
    assert!(rotated.code == Some(0) && rotated.err.contains("has ended"), "{rotated:?}");
    assert!(access(&keeper, sandbox, token).starts_with("HTTP/1.1 401"));
    keeper.kill();
    keeper.start_again();
    assert!(access(&keeper, sandbox, token).starts_with("HTTP/1.1 401"));
    let fourth = keeper.ask(&scope);
    let token = fourth.out.trim_end();
    assert!(access(&keeper, sandbox, token).starts_with("HTTP/1.1 200"));
    let unknown = keeper.ask(&["token", "rotate", "nothing"]);
    assert!(unknown.code == Some(125) && unknown.err.contains("NOT_FOUND"), "{unknown:?}");

    let agent = [&scope[..], &["--agent", "robot"]].concat();
    let narrowed = keeper.ask(&agent);
    assert!(narrowed.err.contains("\"fs:rw process\""), "{narrowed:?}");
    assert_eq!(keeper.ask(&["rm", "demo"]).code, Some(0));
    assert!(access(&keeper, sandbox, token).starts_with("HTTP/1.1 404"));
    let gone = keeper.ask(&scope);
    assert!(gone.code == Some(125) && gone.err.contains("NOT_FOUND"), "{gone:?}");
}

#[test]
fn what_cannot_be_asked_for_is_refused_with_what_can() {
    let keeper = Keeper::with_demo();
    let rows: [(&[&str], &str); 4] = [
        (&["--scope", "fs:rwx"], "shell:ro"),
        (&["--ttl", "1m"], "300 to 900 seconds"),
        (&["--path", "a/b"], "a path is absolute"),
        (&["--ttl", "soon"], "write it like"),
    ];
    for (more, expected) in rows {
        let said = keeper.ask(&[&["token", "mint", "--sandbox", "demo"], more].concat());
        assert!(said.code != Some(0) && said.err.contains(expected), "{said:?}");
        assert_eq!(said.out, "");
    }
}
