//! Many who follow one sandbox.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::mpsc::{Receiver, Sender, channel},
    thread::{self, JoinHandle},
};

use client::{
    address::Address,
    sandboxes::{
        Sandboxes,
        events::{Events, Next},
        record::Event,
    },
};
use tokio::{runtime::Builder, task::JoinSet};

use super::ground::Ground;

/// Each connection has fewer than the 256 calls that one may have.
const CONNECTIONS: usize = 5;
const ON_EACH: usize = 200;

/// F55, F57: a thousand are told the same, over a restart of the server, while one does not read.
#[test]
fn f55_f57_a_thousand_followers_are_told_the_same_over_a_killed_server() {
    let mut ground = Ground::new();
    ground.start();
    ground.create("demo");
    let (begun, followers) = follow(&ground);
    let deaf = deaf_follower(&ground);
    for _ in 0..CONNECTIONS * ON_EACH {
        begun.recv().unwrap();
    }
    for _ in 0..5 {
        assert_eq!(ground.shell("demo", "true").code, Some(0));
    }
    ground.kill();
    ground.start();
    let still_deaf = deaf_follower(&ground);
    assert_eq!(ground.shell("demo", "true").code, Some(0));
    assert_eq!(ground.ask(&["rm", "demo"]).code, Some(0));
    let told = followers.join().unwrap();
    drop((deaf, still_deaf));
    assert_eq!(told.len(), CONNECTIONS * ON_EACH);
    let numbers: Vec<u64> = told[0].iter().map(|event| event.sequence).collect();
    let known = u64::try_from(ground.events("demo").len()).unwrap();
    assert_eq!(numbers, (1..=known).collect::<Vec<_>>());
    for other in &told {
        assert_eq!(other, &told[0]);
    }
}

/// Follows the sandbox a thousand times, to its end. Each tells when it has begun.
fn follow(ground: &Ground) -> (Receiver<()>, JoinHandle<Vec<Vec<Event>>>) {
    let (address, key) = (Address::parse(ground.url()).unwrap(), ground.key().to_owned());
    let (begun, all_begun) = channel();
    let following = thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut followers = JoinSet::new();
            for _ in 0..CONNECTIONS {
                let sandboxes = Sandboxes::connect(&address, &key).await.unwrap();
                for _ in 0..ON_EACH {
                    followers.spawn(to_the_end(sandboxes.events("demo", 0), begun.clone()));
                }
            }
            followers.join_all().await
        })
    });
    (all_begun, following)
}

async fn to_the_end(mut events: Events, begun: Sender<()>) -> Vec<Event> {
    let mut told = Vec::new();
    while told.last().is_none_or(|last: &Event| last.kind != "SANDBOX_DELETED") {
        let Some(Next::Event(event)) = events.next().await.unwrap() else { continue };
        if told.is_empty() {
            begun.send(()).unwrap();
        }
        told.push(*event);
    }
    told
}

/// Follows the sandbox by hand, and allows nothing to be sent: returns once it follows.
fn deaf_follower(ground: &Ground) -> TcpStream {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let field = |(name, value): (&str, &str)| [vec![0], text(name), text(value)].concat();
    let fields = [
        (":path", "/agbox.v1.SandboxService/SubscribeSandboxEvents"),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("x-api-key", ground.key()),
    ];
    let block: Vec<u8> =
        [0x83, 0x86].into_iter().chain(fields.into_iter().flat_map(field)).collect();
    let frame = |kind: u8, flags: u8, stream: u8, content: &[u8]| {
        let length = u32::try_from(content.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, stream], content].concat()
    };
    let message = [&[0, 0, 0, 0, 6, 0x0a, 4][..], b"demo"].concat();
    let request = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        // Of its settings the fourth is how much may be sent on a call.
        frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]),
        frame(1, 4, 1, &block),
        frame(0, 1, 1, &message),
    ];
    let mut stream = TcpStream::connect(ground.url().strip_prefix("http://").unwrap()).unwrap();
    stream.write_all(&request.concat()).unwrap();
    // The answer begins with its headers, and goes no further.
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut content = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut content).unwrap();
        assert_ne!(head[3], 0, "something is sent");
        if (head[3], head[8]) == (1, 1) {
            return stream;
        }
    }
}
