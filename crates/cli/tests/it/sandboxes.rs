//! The commands about sandboxes, with a real server and real sandboxes.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::Stdio,
};

use serde_json::Value;

use crate::{
    command::{Said, Server, call, read_rest, read_until, ringfence, signal, write},
    keeper::Keeper,
};

impl Keeper {
    fn shell(&self, script: &str) -> Said {
        self.ask(&["exec", "demo", "--", "sh", "-c", script])
    }

    /// Returns the type of every event of `demo`.
    fn events(&self) -> Vec<String> {
        let said = self.ask(&["events", "demo"]);
        said.out.lines().map(|line| line.split_whitespace().nth(2).unwrap().to_owned()).collect()
    }
}

fn said(code: i32, out: &str, err: &str) -> Said {
    Said { code: Some(code), out: out.into(), err: err.into() }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_sandbox_is_created_listed_stopped_resumed_and_removed() {
    let keeper = Keeper::start();
    let create = ["create", "--image", "host", "--name", "demo", "--label", "team=a"];
    assert_eq!(keeper.ask(&create), said(0, "demo\n", ""));
    let listed = keeper.ask(&["ps"]).out;
    let rows: Vec<Vec<&str>> = listed.lines().map(|row| row.split("  ").collect()).collect();
    assert_eq!(rows[0].join(" "), "NAME STATUS CREATED IMAGE LABELS ERROR");
    assert_eq!((rows[1][0], rows[1][1], rows.len()), ("demo", "READY", 2));
    assert_eq!(keeper.shell("echo kept > file"), said(0, "", ""));

    assert_eq!(keeper.ask(&["stop", "demo"]), said(0, "demo\n", ""));
    assert_eq!(keeper.json(&["ps"])["sandboxes"][0]["state"], "STOPPED");
    assert_eq!(keeper.ask(&["stop", "demo"]), said(0, "demo\n", ""), "it is stopped already");
    assert_eq!(keeper.ask(&["resume", "demo"]), said(0, "demo\n", ""));
    assert_eq!(keeper.ask(&["resume", "demo"]), said(0, "demo\n", ""), "it runs already");
    assert_eq!(keeper.shell("cat file"), said(0, "kept\n", ""));
    assert_eq!(keeper.ask(&["stop", "demo"]), said(0, "demo\n", ""));
    assert_eq!(keeper.shell("cat file"), said(0, "kept\n", ""), "a command starts it");

    assert_eq!(keeper.ask(&["rm", "demo"]), said(0, "demo\n", ""));
    assert_eq!(keeper.json(&["ps"])["sandboxes"], Value::Array(Vec::new()));
    let gone = &keeper.json(&["ps", "-a", "--label", "team=a"])["sandboxes"][0];
    assert_eq!((&gone["sandbox_id"], &gone["state"]), (&"demo".into(), &"DELETED".into()));
    assert_eq!(keeper.ask(&create), said(0, "demo\n", ""), "the name is free again");
    let taken = keeper.ask(&create);
    assert!(taken.code == Some(125) && taken.err.contains("choose another"), "{taken:?}");
}

#[test]
fn a_command_has_its_streams_its_variables_its_folder_and_its_exit_code() {
    let keeper = Keeper::with_demo();
    assert_eq!(keeper.shell("echo out; echo err >&2; exit 7"), said(7, "out\n", "err\n"));
    assert_eq!(keeper.shell("kill -KILL $$"), said(137, "", ""));
    let set = ["exec", "demo", "-e", "A=x=y", "--cwd", "/tmp", "--", "sh", "-c", "echo $A; pwd"];
    assert_eq!(keeper.ask(&set), said(0, "x=y\n/tmp\n", ""));
    let bytes = keeper.shell("head -c 3000000 /dev/zero");
    assert!(bytes.code == Some(0) && bytes.out.len() == 3_000_000 && bytes.err.is_empty());

    let script = "echo out; echo err >&2; exit 7";
    let told = keeper.ask(&["exec", "demo", "--json", "--", "sh", "-c", script]);
    assert_eq!((told.code, told.err.as_str()), (Some(7), ""));
    let told = lines(&told.out);
    let of = |name: &str| told.iter().find(|line| line["type"] == name).unwrap();
    assert_eq!((&of("stdout")["data"], &of("stderr")["data"]), (&"out\n".into(), &"err\n".into()));
    assert_eq!(told.first().unwrap()["type"], "started");
    let end = told.last().unwrap();
    assert_eq!((&end["type"], &end["exit_code"]), (&"ended".into(), &7.into()));
}

#[test]
fn output_streams_and_a_signal_cancels_the_command() {
    let keeper = Keeper::with_demo();
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let mut child = keeper.begin(&["exec", "demo", "--", "sh", "-c", "echo up; sleep 100"]);
        read_until(child.stdout.as_mut().unwrap(), "up\n");
        signal(child.id(), name);
        assert_eq!(child.wait().unwrap().code(), Some(code), "{name}");
        assert_eq!(read_rest(child.stderr.take().unwrap()), "ringfence: cancelled\n");
    }
    let ends = keeper.events().into_iter().filter(|event| event == "EXEC_CANCELLED").count();
    assert_eq!(ends, 2);
}

#[test]
fn a_command_without_end_can_be_cancelled_while_it_writes() {
    let keeper = Keeper::with_demo();
    let mut child = keeper.begin(&["exec", "demo", "--", "yes"]);
    // It is read no further, so that what is written has nowhere to go for a while.
    let stdout = child.stdout.take().unwrap();
    let mut reader = BufReader::new(stdout);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "y\n");
    signal(child.id(), "INT");
    let written = std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(written > 0);
}

#[test]
fn nobody_who_reads_ends_the_command() {
    let keeper = Keeper::with_demo();
    let mut child = keeper.begin(&["exec", "demo", "--", "yes"]);
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(125));
    assert_eq!(keeper.events().last().unwrap(), "EXEC_CANCELLED");
}

#[test]
fn events_are_followed_over_a_killed_server() {
    let mut keeper = Keeper::with_demo();
    let mut child = keeper.begin(&["events", "demo", "--follow", "--json"]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut told = String::new();
    for _ in 0..3 {
        out.read_line(&mut told).unwrap();
    }
    keeper.kill();
    let mut err = child.stderr.take().unwrap();
    read_until(&mut err, "the connection broke; going on after event 3\n");
    keeper.start_again();
    assert_eq!(keeper.shell("echo on"), said(0, "on\n", ""));
    assert_eq!(keeper.ask(&["rm", "demo"]).code, Some(0));
    told += &read_rest(out);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let told = lines(&told);
    let sequences: Vec<u64> = told.iter().map(|it| it["sequence"].as_u64().unwrap()).collect();
    assert_eq!(sequences, (1..=7).collect::<Vec<_>>(), "{told:?}");
    assert_eq!(told[6]["event_type"], "SANDBOX_DELETED");
    let later = keeper.ask(&["events", "demo", "--from", "6"]);
    assert!(later.out.starts_with("   7  ") && later.out.lines().count() == 1, "{later:?}");
    assert_eq!(keeper.ask(&["events", "demo", "--from", "7", "--follow"]), said(0, "", ""));
}

#[test]
fn a_command_is_waited_for_over_a_killed_server() {
    let mut keeper = Keeper::with_demo();
    assert_eq!(keeper.shell("mkfifo go").code, Some(0));
    let script = "echo up; cat go; exit 3";
    let mut child = keeper.begin(&["exec", "demo", "--", "sh", "-c", script]);
    read_until(child.stdout.as_mut().unwrap(), "up\n");
    keeper.kill();
    read_until(child.stderr.as_mut().unwrap(), "connecting again\n");
    keeper.start_again();
    assert_eq!(keeper.shell("echo down > go"), said(0, "", ""));
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stdout.as_slice()), (Some(3), &b"down\n"[..]));
}

#[test]
fn the_output_of_a_command_can_be_read_later() {
    let keeper = Keeper::with_demo();
    assert_eq!(keeper.shell("mkfifo go").code, Some(0));
    let script = "echo up; echo err >&2; cat go";
    let begun = keeper.ask(&["exec", "demo", "--detach", "--", "sh", "-c", script]);
    let exec = begun.out.trim();
    assert!(begun.code == Some(0) && exec.starts_with("ex_"), "{begun:?}");
    let mut child = keeper.begin(&["logs", "--follow", exec]);
    read_until(child.stdout.as_mut().unwrap(), "up\n");
    assert_eq!(keeper.shell("echo down > go").code, Some(0));
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stdout.as_slice()), (Some(0), &b"down\n"[..]));
    assert_eq!(keeper.ask(&["logs", exec]), said(0, "up\ndown\n", ""));
    assert_eq!(keeper.ask(&["logs", exec, "--stderr"]), said(0, "err\n", ""));
    let json = keeper.ask(&["logs", exec, "--json"]).out;
    assert_eq!(lines(&json)[0]["data"], "up\ndown\n");
    assert_eq!(keeper.ask(&["rm", "demo"]).code, Some(0));
    let gone = keeper.ask(&["logs", exec]);
    assert!(gone.code == Some(125) && gone.err.contains("no sandbox of this name"), "{gone:?}");
}

/// A machine that has nothing but the server's URL and a key.
#[test]
fn output_comes_over_the_network_to_clients_without_the_servers_files() {
    let keeper = Keeper::with_demo();
    let key = keeper.key();
    let away = |arguments: &[&str]| -> Said {
        let mut command = ringfence(arguments);
        command.env("RINGFENCE_URL", &keeper.url).env("RINGFENCE_API_KEY", &key);
        command.env("RINGFENCE_DATA", "/nowhere").output().unwrap().into()
    };
    let script = "echo out; echo err >&2; exit 9";
    assert_eq!(away(&["exec", "demo", "--", "sh", "-c", script]), said(9, "out\n", "err\n"));
    let begun = away(&["exec", "demo", "--detach", "--", "sh", "-c", script]);
    let exec = begun.out.trim();
    assert_eq!(away(&["logs", "--follow", exec]), said(0, "out\n", ""));
    assert_eq!(away(&["logs", "--stderr", exec]), said(0, "err\n", ""));
}

/// Standard input that never ends is nothing to a command that was not given it.
#[test]
fn a_command_has_no_standard_input_unless_it_is_asked_for() {
    let keeper = Keeper::with_demo();
    let mut endless = keeper.ringfence(&["exec", "demo", "--", "sh", "-c", "cat; echo end"]);
    let mut child = endless.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let held = child.stdin.take();
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stdout.as_slice()), (Some(0), &b"end\n"[..]));
    drop(held);
}

#[test]
fn interactive_input_reaches_the_command_with_its_end() {
    let keeper = Keeper::with_demo();
    let input: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).take(2 << 20).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("input");
    std::fs::write(&path, &input).unwrap();
    let command = || keeper.ringfence(&["exec", "-i", "demo", "--", "sh", "-c", "cat; exit 5"]);

    let from_file = command().stdin(std::fs::File::open(&path).unwrap()).output().unwrap();
    assert_eq!(from_file.status.code(), Some(5), "{:?}", from_file.stderr);
    assert!(from_file.stdout == input, "{} bytes", from_file.stdout.len());

    let mut child = command().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"first\n").unwrap();
    read_until(child.stdout.as_mut().unwrap(), "first\n");
    stdin.write_all(b"second\n").unwrap();
    drop(stdin);
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stdout.as_slice()), (Some(5), &b"second\n"[..]));

    let closed = command().stdin(Stdio::null()).output().unwrap();
    assert_eq!((closed.status.code(), closed.stdout.as_slice()), (Some(5), &b""[..]));
}

#[test]
fn a_wait_says_what_it_waits_for_and_can_be_interrupted() {
    let keeper = Keeper::with_demo();
    // The stop gives it some seconds, which it does not use.
    let script = "trap '' TERM; echo up; while :; do sleep 1; done";
    let begun = keeper.ask(&["exec", "demo", "--detach", "--", "sh", "-c", script]);
    let mut logs = keeper.begin(&["logs", "--follow", begun.out.trim()]);
    read_until(logs.stdout.as_mut().unwrap(), "up\n");
    let mut stop = keeper.begin(&["stop", "demo"]);
    let mut err = stop.stderr.take().unwrap();
    read_until(&mut err, "ringfence: waiting for demo to be STOPPED …\n");
    signal(stop.id(), "INT");
    assert_eq!(stop.wait().unwrap().code(), Some(130));
    let rest = read_rest(err);
    assert!(rest.contains("demo goes on to be STOPPED"), "{rest}");
    assert_eq!(keeper.events().last().unwrap(), "SANDBOX_STOP_REQUESTED");
    assert_eq!(keeper.ask(&["rm", "demo"]).code, Some(0));
    assert_eq!(logs.wait().unwrap().code(), Some(0));
}

#[test]
fn sandboxes_are_chosen_by_their_labels() {
    let keeper = Keeper::start();
    for (name, label) in [("one-a", "team=a"), ("two-a", "team=a"), ("one-b", "team=b")] {
        let made = keeper.json(&["create", "--image", "host", "--name", name, "--label", label]);
        assert_eq!((&made["sandbox_id"], &made["state"]), (&name.into(), &"READY".into()));
    }
    let removed = keeper.ask(&["rm", "--label", "team=a"]);
    assert_eq!(removed, said(0, "one-a\ntwo-a\n", ""));
    let left = keeper.json(&["ps"]);
    assert_eq!(left["sandboxes"].as_array().unwrap().len(), 1, "{left}");
    assert_eq!(left["sandboxes"][0]["labels"]["team"], "b");
    let some = keeper.ask(&["rm", "--json", "nobody", "one-b"]);
    assert_eq!(some.code, Some(125));
    let some: Value = serde_json::from_str(&some.out).unwrap();
    assert_eq!(some["errors"][0]["sandbox_id"], "nobody");
    assert_eq!(some["sandboxes"][0]["state"], "DELETED");
}

#[test]
fn limits_and_a_main_process_are_handed_on() {
    let keeper = Keeper::start();
    let made = keeper.ask(&[
        "create",
        "--image",
        "host",
        "--name",
        "demo",
        "--memory",
        "64m",
        "--cpus",
        "0.5",
        "--idle",
        "0",
        "--env",
        "WHO=me",
        "--no-wait",
        "--",
        "sh",
        "-c",
        "mkfifo go; echo $WHO > go; exec sleep 1000",
    ]);
    assert_eq!(made, said(0, "demo\n", ""));
    // It was not waited for. The next event but two is that it is ready.
    let mut child = keeper.begin(&["events", "demo", "--follow"]);
    read_until(child.stdout.as_mut().unwrap(), "SANDBOX_READY\n");
    signal(child.id(), "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    // Whichever comes first makes the place where the two meet.
    let met = keeper.shell("mkfifo go 2> /dev/null; cat go");
    assert_eq!(met, said(0, "me\n", ""));
    let full = keeper.ask(&["exec", "demo", "--", "python3", "-c", "x = bytearray(10**9)"]);
    assert_ne!(full.code, Some(0), "{full:?}");
}

#[test]
fn what_cannot_be_done_is_said_with_what_to_do() {
    let keeper = Keeper::start();
    let rows: [(&[&str], i32, &str); 13] = [
        (&["create", "--name", "demo"], 2, "--image"),
        (&["create", "--image", "host", "--name", "a b"], 125, "letters, digits"),
        (&["create", "--image", "host", "--memory", "lots"], 125, "512m"),
        (&["create", "--image", "host", "--idle", "soon"], 2, "10m"),
        (&["create", "--image", "host", "--label", "a"], 2, "KEY=VALUE"),
        (&["exec", "nobody", "--", "true"], 125, "ringfence ps -a"),
        (&["exec", "demo"], 2, "COMMAND"),
        (&["stop", "nobody"], 125, "ringfence ps -a"),
        (&["resume", "nobody"], 125, "SANDBOX_NOT_FOUND"),
        (&["rm"], 2, "NAME"),
        (&["events", "nobody"], 125, "SANDBOX_NOT_FOUND"),
        (&["logs", "../../admin.key"], 125, "EXEC_NOT_FOUND"),
        (&["ps", "--key", "canary"], 125, "ringfence key create"),
    ];
    for (arguments, code, text) in rows {
        let said = keeper.ask(arguments);
        assert_eq!((said.code, said.out.as_str()), (Some(code), ""), "{arguments:?} {said:?}");
        assert!(said.err.contains(text) && !said.err.contains("canary"), "{arguments:?}: {said:?}");
    }
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", other.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        // Whether somebody is there, and the call itself.
        for _ in 0..2 {
            let (mut stream, _) = other.accept().unwrap();
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    });
    let strange = call(&["ps", "--url", &url, "--key", "x"]);
    answering.join().unwrap();
    assert!(strange.err.contains("is a Ringfence server at this URL?"), "{strange:?}");
    let nobody = call(&["ps", "--url", "http://127.0.0.1:1", "--key", "x"]);
    assert!(nobody.code == Some(125) && nobody.err.contains("nothing answers"), "{nobody:?}");
}

#[test]
fn files_of_the_caller_are_mounted_and_copied_by_the_socket() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("own/box.sock").display().to_string();
    let table = format!("[agbox]\nsocket = {socket:?}\n");
    let file = write(place.path(), "ringfence.toml", &table);
    let keeper = Keeper(Server::start_with(&["--config", &file]));
    let shared = place.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    write(&shared, "note", "hello\n");
    let mount = format!("{}:/workspace/shared:rw", shared.display());
    let copy = format!("{}:/workspace/copy", shared.join("note").display());
    let paths = ["--mount", &mount, "--copy", &copy];
    let create = ["create", "--image", "host", "--name", "demo"];
    let refused = keeper.ask(&[&create[..], &paths[..]].concat());
    assert!(refused.code == Some(125) && refused.err.contains("Unix socket"), "{refused:?}");
    let by_socket = [&create[..], &paths[..], &["--socket", &socket]].concat();
    assert_eq!(keeper.ask(&by_socket), said(0, "demo\n", ""));
    let script = "cat copy shared/note; echo back > shared/answer";
    assert_eq!(keeper.shell(script), said(0, "hello\nhello\n", ""));
    assert_eq!(std::fs::read_to_string(shared.join("answer")).unwrap(), "back\n");
}

#[test]
fn a_command_that_does_not_exist_is_127_and_one_that_is_no_program_126() {
    let keeper = Keeper::with_demo();
    let none = keeper.ask(&["exec", "demo", "--", "no-such-program"]);
    assert_eq!(none, said(127, "", "ringfence: no-such-program: command not found\n"));
    let none = keeper.ask(&["exec", "demo", "--", "/etc/passwd"]);
    assert_eq!(none, said(126, "", "ringfence: /etc/passwd: cannot be executed\n"));
}
