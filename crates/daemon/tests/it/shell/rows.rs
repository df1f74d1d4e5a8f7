//! The rows N01 to N10 and N13 for shells: what clients get wrong, and what they are told.

use model::{capability::Capabilities, token::Claims, units::Timestamp};

use super::*;
use crate::{exec::ready, tokens::claims};

#[tokio::test]
async fn n01_who_does_not_say_who_it_is_is_sent_away() {
    let ground = Ground::new().await;
    let mut silent = open(&ground, "/v1/shell/ws").await;
    for first in [
        json!({"type": "start"}),
        json!({"type": "stdin", "data": "x"}),
        json!({"type": "auth", "token": "a.b.c"}),
        json!({"type": "auth"}),
    ] {
        let mut wire = open(&ground, "/ws").await;
        wire.send(first.clone()).await;
        assert_eq!(wire.closed().await, Some(4401), "{first}");
    }
    // A second one is a new proof, of the same actor and for the same sandbox.
    let mut wire = open(&ground, "/v1/shell/ws").await;
    let other = ready(&ground.sandboxed).await;
    let same = mint(ground.daemon(), &ground.id, "shell").await;
    for token in [&ground.token, &same] {
        wire.send(auth(token)).await;
        assert_eq!(wire.next().await.unwrap()["type"], "auth_ok");
    }
    wire.send(json!({"type": "start", "command": QUIET, "screen": true})).await;
    wire.until("screen").await;
    wire.send(auth(&same)).await;
    assert_eq!(wire.next().await.unwrap()["type"], "auth_ok");
    wire.send(auth(&mint(ground.daemon(), &other, "shell").await)).await;
    assert_eq!(wire.closed().await, Some(4401));
    let strange = claims(&ground.id, Capabilities::of_scope("shell"), 0);
    let strange = ground.sandboxed.tokens.sign(&strange).unwrap().reveal().to_owned();
    let mut wire = open(&ground, "/v1/shell/ws").await;
    wire.send(auth(&ground.token)).await;
    wire.send(auth(&strange)).await;
    assert_eq!(wire.closed().await, Some(4401));
    assert_eq!(silent.closed().await, Some(4408));
}

#[tokio::test]
async fn n02_a_token_that_is_not_for_this_is_refused() {
    let ground = Ground::new().await;
    let other = ready(&ground.sandboxed).await;
    let daemon = ground.daemon();
    let rows = [mint(daemon, &other, "shell").await, mint(daemon, &ground.id, "process").await];
    for token in rows {
        let mut wire = open(&ground, "/v1/shell/ws").await;
        wire.send(auth(&token)).await;
        assert_eq!(wire.closed().await, Some(4403));
    }
    // Who may watch only may not start one.
    let token = mint(daemon, &ground.id, "shell:ro").await;
    let mut wire = open(&ground, "/v1/shell/ws").await;
    wire.send(auth(&token)).await;
    wire.send(json!({"type": "start"})).await;
    assert_eq!(wire.until("error").await["code"], "CAPABILITY_DENIED");
    assert_eq!(wire.closed().await, Some(4403));
}

#[tokio::test]
async fn n03_nothing_is_done_before_it_is_known_who_asks() {
    let ground = Ground::new().await;
    let then = [
        json!({"type": "start", "name": "early", "command": QUIET}),
        json!({"type": "stdin", "data": "touch early; echo do''ne\n"}),
    ];
    let mut wrong = open(&ground, "/v1/shell/ws").await;
    wrong.send(auth("a.b.c")).await;
    for frame in &then {
        // It may have been closed already.
        let _ = wrong.0.send(Message::text(frame.to_string())).await;
    }
    assert_eq!(wrong.closed().await, Some(4401));
    let asked = json!({"command": "[ -e early ] && echo there || echo none"});
    assert_eq!(ground.ask("POST", "/v1/exec", &asked).await.json()["stdout"], "none\n");
    // In the right order it is all done after that.
    let mut wire = open(&ground, "/v1/shell/ws").await;
    wire.send(auth(&ground.token)).await;
    for frame in then {
        wire.send(frame).await;
    }
    assert_eq!(wire.next().await.unwrap()["type"], "auth_ok");
    let mut said = wire.until("screen").await["data"].as_str().unwrap().to_owned();
    while !said.contains("done") {
        said.push_str(wire.until("stdout").await["data"].as_str().unwrap());
    }
    assert_eq!(ground.ask("POST", "/v1/exec", &asked).await.json()["stdout"], "there\n");
    // Who has not said who it is is listened to for 64 KiB.
    let mut long = open(&ground, "/v1/shell/ws").await;
    let message = Message::text(auth(&"x".repeat(200_000)).to_string());
    let _ = long.0.send(message).await;
    assert_eq!(long.closed().await, Some(1009));
}

#[tokio::test]
async fn n04_a_connection_starts_once_and_waits_for_nobody() {
    let ground = Ground::new().await;
    let mut twice = Joined::new(&ground, "work").await;
    twice.wire.send(json!({"type": "start", "name": "other"})).await;
    assert_eq!(twice.until("error").await["code"], "CONFLICT");
    assert_eq!(twice.wire.closed().await, Some(4409));
    // What comes before `ready` waits for it.
    let mut eager = ground.open("/v1/shell/ws").await;
    eager.send(json!({"type": "start", "name": "eager", "command": QUIET})).await;
    eager.send(json!({"type": "stdin", "data": "exit 5\n"})).await;
    assert_eq!(eager.until("exit").await["exit_code"], 5);
    // What comes after the end is not even read.
    let _ = eager.0.send(Message::text(json!({"type": "stdin", "data": "x"}).to_string())).await;
    assert_eq!(eager.closed().await, Some(1000));
    for wrong in [
        json!({"type": "start", "nonsense": 1}),
        json!({"type": "start", "name": "no/name"}),
        json!({"type": "start", "rows": 5}),
        json!({"type": "start", "rows": 0, "cols": 5}),
        json!({"type": "start", "command": []}),
        json!({"type": "start", "exec_id": "some-id", "name": "work"}),
        json!({"type": "start", "cwd": "here"}),
        json!({"type": "start", "name": "new", "user": "nobody-here"}),
    ] {
        let mut wire = ground.open("/v1/shell/ws").await;
        wire.send(wrong.clone()).await;
        assert_eq!(wire.until("error").await["code"], "INVALID_REQUEST", "{wrong}");
        assert_eq!(wire.closed().await, Some(4400), "{wrong}");
    }
}

#[tokio::test]
async fn n05_sizes_are_checked_cut_and_the_last_of_many_counts() {
    let ground = Ground::new().await;
    let mut first = Joined::new(&ground, "work").await;
    let mut other = Joined::new(&ground, "work").await;
    for (rows, cols) in [
        (json!(0), json!(0)),
        (json!(-1), json!(80)),
        (json!(24), json!(65536)),
        (json!("24"), json!("80")),
        (json!(1.5), json!(80)),
        (Value::Null, json!(80)),
    ] {
        first.wire.send(json!({"type": "resize", "rows": rows, "cols": cols})).await;
        assert_eq!(first.until("error").await["code"], "INVALID_REQUEST", "{rows} {cols}");
    }
    first.wire.send(json!({"type": "resize", "rows": 65535, "cols": 65535})).await;
    let cut = other.until("resize").await;
    assert_eq!((&cut["rows"], &cut["cols"]), (&json!(65), &json!(1000)));
    for number in 0..20_000 {
        let (rows, cols) = (number % 60 + 1, number % 90 + 1);
        let frame = json!({"type": "resize", "rows": rows, "cols": cols}).to_string();
        first.wire.0.feed(Message::text(frame)).await.unwrap();
    }
    first.wire.send(json!({"type": "resize", "rows": 33, "cols": 99})).await;
    let mut told = 0;
    loop {
        let frame = other.until("resize").await;
        told += 1;
        if (&frame["rows"], &frame["cols"]) == (&json!(33), &json!(99)) {
            break;
        }
    }
    assert!(told < 2000, "{told}");
    first.write("stty size\n").await;
    first.hears("33 99").await;
}

#[tokio::test]
async fn n06_signals_go_by_name_to_the_shell_and_nowhere_else() {
    let ground = Ground::new().await;
    let mut first = Joined::new(&ground, "work").await;
    first.write("stty -echo; trap 'echo cau''ght' USR1; echo rea''dy\n").await;
    first.hears("ready").await;
    for wrong in ["0", "9", "KILL; rm", "SIGSTOP", "STOP", "-1", ""] {
        first.wire.send(json!({"type": "signal", "signal": wrong})).await;
        assert_eq!(first.until("error").await["code"], "INVALID_REQUEST", "{wrong}");
    }
    first.wire.send(json!({"type": "signal", "signal": 9})).await;
    assert_eq!(first.until("error").await["code"], "INVALID_REQUEST");
    first.wire.send(json!({"type": "signal", "signal": "SIGUSR1"})).await;
    first.write("\n").await;
    first.hears("caught").await;
    first.wire.send(json!({"type": "signal", "signal": "KILL"})).await;
    let exit = first.until("exit").await;
    assert_eq!((&exit["signal"], &exit["exit_code"]), (&json!("SIGKILL"), &Value::Null));
}

#[tokio::test]
async fn a_signal_reaches_the_program_in_the_foreground_as_at_a_terminal() {
    let ground = Ground::new().await;
    let mut first = Joined::new(&ground, "work").await;
    // The shell itself would write another word, and the program does not end by the signal. It handles the signal
    // between two short sleeps, wherever the signal meets it.
    first.write("set -m; stty -echo; trap 'echo sh''ell' USR1; echo rea''dy\n").await;
    first.hears("ready").await;
    let program =
        r#"sh -c 'trap "echo pro""gram" USR1; echo wai""ting; while :; do sleep 0.1; done'"#;
    first.write(&format!("{program}\n")).await;
    first.hears("waiting").await;
    first.wire.send(json!({"type": "signal", "signal": "USR1"})).await;
    first.hears("program").await;
    first.wire.send(json!({"type": "signal", "signal": "KILL"})).await;
    // The program is killed, and the shell goes on.
    first.write("echo still he''re\n").await;
    first.hears("still here").await;
    let heard = &first.output;
    assert!(!heard.contains("shell"), "{heard}");
}

#[tokio::test]
async fn n07_input_has_a_size_an_end_and_waits_for_who_does_not_read() {
    let ground = Ground::new().await;
    let mut large = Joined::new(&ground, "work").await;
    large.write(&"x".repeat((1 << 20) + 1)).await;
    assert_eq!(large.wire.closed().await, Some(1009));
    // `eof` is what people type, and others can write after it.
    let mut first = Joined::new(&ground, "work").await;
    first.write("stty -echo; cat > /dev/null; echo re''ad\n").await;
    first.wire.send(json!({"type": "stdin", "eof": true, "data": "x"})).await;
    assert_eq!(first.until("error").await["code"], "INVALID_REQUEST");
    let read = async {
        while !first.output.contains("read") {
            first.wire.send(json!({"type": "stdin", "eof": true})).await;
            tokio::select! {
                () = first.hears("read") => {}
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
            }
        }
    };
    timeout(PATIENCE, read).await.unwrap();
    // While nothing reads, the client waits, and not the server's memory.
    let mut flood = Joined::new(&ground, "work").await;
    flood.write("stty raw -echo; echo go; exec sleep 1000\n").await;
    flood.hears("go").await;
    let chunk = Message::binary(vec![b'x'; 64 << 10]);
    let mut sent = 0_usize;
    while let Ok(done) = timeout(Duration::from_secs(1), flood.wire.0.send(chunk.clone())).await {
        done.unwrap();
        sent += 64 << 10;
        assert!(sent < 64 << 20, "nobody holds it up");
    }
    drain(&mut flood.wire).await;
}

#[tokio::test]
async fn n09_those_who_write_to_the_same_shell_are_all_heard() {
    let ground = Ground::new().await;
    let mut one = Joined::new(&ground, "work").await;
    let mut other = Joined::new(&ground, "work").await;
    one.write("stty -echo; cat\n").await;
    for number in 0..50 {
        one.write(&format!("one {number}\n")).await;
        other.write(&format!("other {number}\n")).await;
    }
    for joined in [&mut one, &mut other] {
        joined.hears("one 49").await;
        joined.hears("other 49").await;
    }
    for who in ["one", "other"] {
        let places = (0..50).map(|number| one.output.rfind(&format!("{who} {number}\r\n")));
        let places: Vec<_> = places.map(Option::unwrap).collect();
        assert!(places.is_sorted(), "{who}: {places:?}");
    }
}

#[tokio::test]
async fn n10_nobody_joins_what_is_not_his_or_not_there() {
    let ground = Ground::new().await;
    let mut first = Joined::new(&ground, "work").await;
    let exec = first.ready["exec_id"].as_str().unwrap().to_owned();
    // 128 random bits.
    assert!(exec.starts_with("ex_") && exec.len() == 29, "{exec}");
    let joins = async |wire: &mut Wire, exec: &str| {
        wire.send(json!({"type": "start", "exec_id": exec})).await;
        wire.closed().await
    };
    let other = ready(&ground.sandboxed).await;
    let token = mint(ground.daemon(), &other, "shell").await;
    let mut foreign = Wire::open(ground.daemon(), &other, "/v1/shell/ws", Some(&token)).await;
    assert_eq!(joins(&mut foreign, &exec).await, Some(4404));
    let guessed = "ex_00000000000000000000000000";
    assert_eq!(joins(&mut ground.open("/ws").await, guessed).await, Some(4404));
    // A command is none, nor is a shell a command.
    ground.ask("POST", "/v1/exec", &json!({"command": "true", "exec_id": "a-command"})).await;
    assert_eq!(joins(&mut ground.open("/ws").await, "a-command").await, Some(4404));
    assert_eq!(joins(&mut ground.open("/v1/exec/ws").await, &exec).await, Some(4404));
    let shown = ground.ask("GET", &format!("/v1/exec/{exec}/stdout"), &Value::Null).await;
    assert_eq!(shown.problem(), (404, "NOT_FOUND".into()));
    first.write("exit\n").await;
    first.until("exit").await;
    assert_eq!(joins(&mut ground.open("/ws").await, &exec).await, Some(4404));
}

/// Returns a token that ends in so many seconds.
fn short(ground: &Ground, id: &str, seconds: i64) -> String {
    let all = claims(&ground.id, Capabilities::of_scope("shell"), 800);
    #[expect(clippy::disallowed_methods, reason = "a test has no other clock")]
    let now = Timestamp::from(std::time::SystemTime::now()).as_millis() / 1000;
    let expires_at = Timestamp::from_millis((now + seconds) * 1000);
    let claims = Claims { id: id.to_owned(), expires_at, ..all };
    ground.sandboxed.tokens.sign(&claims).unwrap().reveal().to_owned()
}

#[tokio::test]
async fn n13_a_token_that_ends_is_told_before_and_renewed_or_the_connection_is_closed() {
    let ground = Ground::new().await;
    let mut lapsed = open(&ground, "/v1/shell/ws").await;
    lapsed.send(auth(&short(&ground, "tok_lapsed", 5))).await;
    let mut renewed = open(&ground, "/v1/shell/ws").await;
    renewed.send(auth(&short(&ground, "tok_renewed", 5))).await;
    for wire in [&mut lapsed, &mut renewed] {
        wire.send(json!({"type": "start", "command": QUIET})).await;
        let warned = wire.until("token_expiring").await;
        assert!(warned["expires_at"].as_str().unwrap().ends_with('Z'), "{warned}");
    }
    let fresh = claims(&ground.id, Capabilities::of_scope("shell"), 0);
    let fresh = ground.sandboxed.tokens.sign(&fresh).unwrap().reveal().to_owned();
    renewed.send(auth(&fresh)).await;
    renewed.until("auth_ok").await;
    assert_eq!(lapsed.closed().await, Some(4401));
    renewed.send(json!({"type": "stdin", "data": "echo st''ill; exit\n"})).await;
    let (stdout, _, exit) = renewed.rest().await;
    assert!(stdout.contains("still") && exit["exit_code"] == 0, "{stdout:?} {exit}");
}
