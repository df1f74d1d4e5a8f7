//! Many who watch one shell, over a server that is killed.

use std::{io::Write as _, net::TcpStream};

use serde_json::{Value, json};

use crate::{keeper::Keeper, websocket::WebSocket};

const OBSERVERS: usize = 200;

/// Joins the shell of `demo` with this token.
fn join(keeper: &Keeper, sandbox: &str, token: &str) -> WebSocket {
    let path = format!("/dp/{sandbox}/v1/shell/ws");
    let mut socket = WebSocket::connect_to(keeper, &path, token);
    // One that says nothing by itself, so that what comes is what was asked for.
    let command = ["/bin/sh", "-c", "PS1= exec sh"];
    socket.send(&json!({"type": "start", "name": "work", "command": command}));
    socket
}

fn mint(keeper: &Keeper, scope: &str) -> (String, String) {
    let minted = keeper.json(&["token", "mint", "--sandbox", "demo", "--scope", scope]);
    let text = |name: &str| minted[name].as_str().unwrap().to_owned();
    (text("sandbox_id"), text("token"))
}

/// Opens as many as there are observers, and returns what each is shown.
fn watch(keeper: &Keeper, sandbox: &str, token: &str) -> (Vec<WebSocket>, Vec<Value>) {
    let mut sockets: Vec<_> = (0..OBSERVERS).map(|_| join(keeper, sandbox, token)).collect();
    let screens = sockets.iter_mut().map(|socket| socket.until("screen")).collect();
    (sockets, screens)
}

/// Writes a binary message, masked with zeros.
fn send_bytes(stream: &mut TcpStream, bytes: &[u8]) {
    let length = 0x80 | u8::try_from(bytes.len()).unwrap();
    stream.write_all(&[&[0x82, length, 0, 0, 0, 0], bytes].concat()).unwrap();
}

#[test]
fn two_hundred_see_the_same_screen_also_of_the_next_server_and_change_no_byte_of_it() {
    let mut keeper = Keeper::with_demo();
    let (sandbox, writing) = mint(&keeper, "shell");
    let (_, watching) = mint(&keeper, "shell:ro");
    let mut writer = join(&keeper, &sandbox, &writing);
    assert_eq!(writer.until("ready")["can_write"], true);
    let draw = "stty -echo; trap 'echo hit' INT; seq 1 5000; \
        printf '\\033[2J\\033[5;9Hdr''awn \\033[32mgr\\303\\274n\\033[?25l\\033[3;20r\\033[9;2H'\n";
    writer.send(&json!({"type": "stdin", "data": draw}));
    let mut drawn = String::new();
    while !drawn.ends_with("\x1b[9;2H") {
        drawn.push_str(writer.until("stdout")["data"].as_str().unwrap());
    }
    let (mut sockets, screens) = watch(&keeper, &sandbox, &watching);
    let screen = &screens[0];
    let painted = screen["data"].as_str().unwrap();
    assert!(painted.contains("drawn ") && painted.contains("gr\u{fc}n"), "{painted:?}");
    assert!(screen["offset"].as_u64().unwrap() > 20_000, "{screen}");
    assert!(screens.iter().all(|other| other == screen));

    // None of them gets through, whatever it tries.
    for (number, socket) in sockets.iter_mut().enumerate() {
        match number % 4 {
            0 => socket.send(&json!({"type": "stdin", "data": "echo written\n"})),
            1 => socket.send(&json!({"type": "resize", "rows": 5, "cols": 5})),
            2 => socket.send(&json!({"type": "signal", "signal": "INT"})),
            _ => send_bytes(&mut socket.stream, b"echo written\n"),
        }
        assert_eq!(socket.until("error")["code"], "CAPABILITY_DENIED", "{number}");
    }
    let (_, screens) = watch(&keeper, &sandbox, &watching);
    assert!(screens.iter().all(|other| other == screen));

    keeper.kill();
    keeper.start_again();
    let (_sockets, screens) = watch(&keeper, &sandbox, &watching);
    for other in &screens {
        assert_eq!(other, screen);
    }
    // It is the same shell, and goes on.
    let mut writer = join(&keeper, &sandbox, &writing);
    assert_eq!(writer.until("screen"), *screen);
    writer.send(&json!({"type": "stdin", "data": "echo go''es on\n"}));
    let next = writer.until("stdout");
    assert_eq!(next["offset"], screen["offset"]);
    assert!(next["data"].as_str().unwrap().starts_with('g'), "{next}");
}
