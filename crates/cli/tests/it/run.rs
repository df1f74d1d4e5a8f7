//! `ringfence run`, with a server of its own unless said otherwise.

use std::process::Stdio;

use crate::command::{
    Said, Server, call, call_with_input, children, gone, read_rest, read_until, ringfence, signal,
    write,
};

fn said(code: i32, out: &str, err: &str) -> Said {
    Said { code: Some(code), out: out.into(), err: err.into() }
}

#[test]
fn code_is_taken_from_a_file_an_argument_or_standard_input() {
    let directory = tempfile::tempdir().unwrap();
    let file = write(directory.path(), "hello.py", "print('hello')");
    assert_eq!(call(&["run", &file]), said(0, "hello\n", ""));
    let script = write(directory.path(), "hello.sh", "echo hello");
    assert_eq!(call(&["run", &script]), said(0, "hello\n", ""));
    let argument = ["run", "-c", "print('hello')", "--language", "python"];
    assert_eq!(call(&argument), said(0, "hello\n", ""));
    let input = ["run", "-", "--language", "shell"];
    assert_eq!(call_with_input(&input, "echo hello"), said(0, "hello\n", ""));
}

#[test]
fn stdin_and_env_are_handed_on() {
    let directory = tempfile::tempdir().unwrap();
    let file = write(directory.path(), "in.txt", "line\n");
    let code = "cat; echo $A $B";
    let with_file =
        ["run", "-l", "shell", "-c", code, "--stdin", &file, "--env", "A=1", "-e", "B=x=y"];
    assert_eq!(call(&with_file), said(0, "line\n1 x=y\n", ""));
    let with_ours = ["run", "-l", "shell", "-c", "cat", "--stdin", "-"];
    assert_eq!(call_with_input(&with_ours, "ours"), said(0, "ours", ""));
}

#[test]
fn the_exit_code_says_how_it_ended() {
    let server = Server::start();
    let run = |code: &str, more: &[&str]| {
        server.call(&[&["run", "-l", "python", "-c", code], more].concat())
    };
    assert_eq!(run("import sys; sys.exit(7)", &[]), said(7, "", ""));
    let killed = run("import os; os.kill(os.getpid(), 11)", &[]);
    assert_eq!(killed, said(139, "", "ringfence: killed by SIGSEGV\n"));
    let late = run("while True: pass", &["--timeout", "200ms"]);
    assert!(
        late.code == Some(124) && late.err.starts_with("ringfence: timed out after "),
        "{late:?}"
    );
    let fill = "x = []\nwhile True: x.append(bytearray(1 << 20))";
    let full = run(fill, &["--memory", "64"]);
    assert_eq!(full, said(137, "", "ringfence: out of memory; see --memory\n"));
    let cut = run("print('x' * 100)", &["--max-output", "10"]);
    assert_eq!(cut.out, "x".repeat(10));
    assert!(cut.err.contains("max_output_bytes"), "{cut:?}");
}

#[test]
fn output_streams_and_ctrl_c_cancels() {
    let server = Server::start();
    let place = ["--url", &server.url, "--data", server.data()];
    let arguments = ["run", "-l", "shell", "-c", "echo up; sleep 100"];
    let mut child = ringfence(&[&arguments[..], &place].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    read_until(child.stdout.as_mut().unwrap(), "up\n");
    signal(child.id(), "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(read_rest(child.stderr.take().unwrap()), "ringfence: cancelled\n");
}

#[test]
fn a_private_server_is_gone_soon_after_its_caller_was_killed() {
    let temporary = tempfile::tempdir().unwrap();
    let mut child = ringfence(&["run", "-l", "shell", "-c", "echo up; sleep 100"])
        .env("TMPDIR", temporary.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    read_until(child.stdout.as_mut().unwrap(), "up\n");
    let servers = children(child.id());
    assert_eq!(servers.len(), 1, "{servers:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    for server in servers {
        assert!(gone(&server), "the server goes on");
    }
    let left: Vec<_> = std::fs::read_dir(temporary.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn json_shows_the_messages_as_lines() {
    let server = Server::start();
    let shown = server.call(&["run", "-l", "shell", "-c", "echo hello", "--json"]);
    assert_eq!((shown.code, shown.err.as_str()), (Some(0), ""));
    let types: Vec<_> = shown
        .out
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["type"].clone())
        .collect();
    assert_eq!(types, ["ack", "status", "stdout", "status", "result"]);
}

#[test]
fn what_cannot_be_run_is_said_with_what_to_do() {
    let rows: [(&[&str], &str); 6] = [
        (&["run", "-c", "x"], "--language"),
        (&["run", "/nowhere.py"], "cannot read /nowhere.py"),
        (&["run", "-", "-l", "shell", "--stdin", "-"], "cannot be both"),
        (
            &["run", "-l", "shell", "-c", "x", "--url", "http://127.0.0.1:1", "--key", "k"],
            "nothing answers",
        ),
        (
            &["run", "-l", "shell", "-c", "x", "--url", "http://example.org", "--key", "k"],
            "without TLS",
        ),
        (&["run", "-l", "cobol", "-c", "x"], "LANGUAGE_NOT_SUPPORTED"),
    ];
    for (arguments, text) in rows {
        let said = call(arguments);
        assert_eq!((said.code, said.out.as_str()), (Some(125), ""), "{arguments:?}");
        assert!(said.err.contains(text), "{arguments:?}: {}", said.err);
    }
}

#[test]
fn a_wrong_key_is_refused_and_not_shown() {
    let server = Server::start();
    let said = server.call(&["run", "-l", "shell", "-c", "x", "--key", "canary"]);
    assert_eq!(said.code, Some(125));
    assert!(said.err.contains("UNAUTHENTICATED") && !said.err.contains("canary"), "{said:?}");
}
