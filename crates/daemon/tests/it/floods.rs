//! R06: floods of HTTP/2. Whoever sends one loses his connection or is not listened to any more,
//! nobody else notices, and little is kept of it.

use std::{fs, io};

use api::agbox::v1;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpStream, UnixStream},
    select,
    time::timeout,
};

use crate::{
    agbox::with_socket,
    caller::Connection,
    http2::{
        self, ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, PRIORITY,
        RESET, SETTINGS, WINDOW, call, field, frame, hello, next,
    },
    sandboxed::own,
    secrets::Lines,
    support::{Daemon, PATIENCE},
};

const CALL: &str = "/agbox.v1.SandboxService/Ping";
const PROTOCOL_ERROR: u32 = 1;
const ENHANCE_YOUR_CALM: u32 = 11;

/// What a flood may leave in this process, in which both sides are.
const MOST_KEPT: u64 = 32 << 20;

/// The most that sockets take before anybody reads.
const MOST_TAKEN: usize = 4 << 20;

async fn is_answered(connection: &Connection) {
    let mut client = connection.client();
    timeout(PATIENCE, client.ping(v1::PingRequest {})).await.unwrap().unwrap();
}

/// Returns how much memory this process has.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Sends a flood, reads all that comes, and returns why the server went away, if it said so.
async fn send(daemon: &Daemon, flood: &[u8]) -> io::Result<u32> {
    let (mut reading, mut writing) = TcpStream::connect(daemon.address).await.unwrap().into_split();
    let sent = async {
        // It is cut off in the middle, or reads that it is when it has said everything.
        let sent = writing.write_all(flood).await;
        drop(sent);
        std::future::pending::<()>().await;
    };
    let read = async {
        loop {
            if let Some(reason) = next(&mut reading).await?.goes_away_because() {
                return Ok(reason);
            }
        }
    };
    select! {
        read = read => read,
        () = sent => unreachable!("it waits"),
    }
}

#[tokio::test]
async fn r06_a_flood_that_only_costs_ends_its_connection_and_no_other() {
    let daemon = Daemon::start().await;
    let other = Connection::tcp(daemon.address, &[("x-api-key", &daemon.key)]).await;
    is_answered(&other).await;
    let head = call(CALL, &[("x-api-key", &daemon.key)]);
    let begun = [hello(), frame(HEADERS, END_HEADERS, 1, &head)].concat();
    let again = |first: &[u8], frame: &[u8]| [first, &frame.repeat(20_000)].concat();
    let many = |of: &dyn Fn(u32) -> Vec<u8>| {
        [hello(), (1..20_000).step_by(2).flat_map(of).collect::<Vec<u8>>()].concat()
    };
    let block = [0x83, 0x86, 0x84, 0x41, 1, b'a'];
    let large = field("x-large", &"x".repeat(100)).repeat(145);
    let rows = [
        (
            "calls that are reset",
            many(&|stream| {
                let begin = frame(HEADERS, END_HEADERS, stream, &block);
                [begin, frame(RESET, 0, stream, &[0, 0, 0, 8])].concat()
            }),
            ENHANCE_YOUR_CALM,
        ),
        (
            "calls at once",
            many(&|stream| frame(HEADERS, END_HEADERS, stream, &block)),
            ENHANCE_YOUR_CALM,
        ),
        (
            "calls that depend on themselves",
            many(&|stream| {
                let priority = [&stream.to_be_bytes()[..], &[16]].concat();
                frame(HEADERS, END_HEADERS | 0x20, stream, &[&priority[..], &block].concat())
            }),
            ENHANCE_YOUR_CALM,
        ),
        (
            "a header block without an end",
            again(
                &[hello(), frame(HEADERS, 0, 1, &block)].concat(),
                &frame(CONTINUATION, 0, 1, &[]),
            ),
            ENHANCE_YOUR_CALM,
        ),
        (
            "a header block that is too large",
            again(
                &[hello(), frame(HEADERS, 0, 1, &block)].concat(),
                &frame(CONTINUATION, 0, 1, &large),
            ),
            ENHANCE_YOUR_CALM,
        ),
        ("a message of nothing", again(&begun, &frame(DATA, 0, 1, &[])), ENHANCE_YOUR_CALM),
        (
            "windows that do not grow",
            again(&hello(), &frame(WINDOW, 0, 0, &[0; 4])),
            PROTOCOL_ERROR,
        ),
        (
            "settings that nobody sent",
            again(&hello(), &frame(SETTINGS, ACK, 0, &[])),
            PROTOCOL_ERROR,
        ),
    ];
    let before = memory();
    for (name, flood, expected) in &rows {
        match send(&daemon, flood).await {
            Ok(reason) => assert_eq!(reason, *expected, "{name}"),
            // What it wrote after the server was gone took the reason with it.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{name}"),
        }
        is_answered(&other).await;
    }
    let kept = memory().saturating_sub(before);
    assert!(kept < MOST_KEPT, "{kept} bytes are kept");
    drop(other);
    daemon.stop().await;
}

#[tokio::test]
async fn r06_a_flood_of_answers_that_nobody_asked_for_does_not_fill_the_log() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(daemon::logging::filter("info").unwrap())
        .with_writer(lines.clone())
        .finish();
    // The runtime of a test has one thread.
    let _guard = tracing::subscriber::set_default(subscriber);
    let daemon = Daemon::start().await;
    let mut socket = TcpStream::connect(daemon.address).await.unwrap();
    let flood = frame(PING, ACK, 0, &[7; 8]).repeat(20_000);
    socket.write_all(&[hello(), flood].concat()).await.unwrap();
    // It has read them all.
    http2::ping(&mut socket).await.unwrap();
    let logged = lines.text();
    assert!(logged.lines().count() < 20, "{} bytes are logged", logged.len());
    drop(socket);
    daemon.stop().await;
}

/// On the socket, whose buffers in the kernel are small.
#[tokio::test]
async fn r06_whoever_asks_and_does_not_read_the_answers_is_not_listened_to_any_more() {
    let (_folder, path, daemon) = with_socket(own()).await;
    let other = Connection::unix(&path).await;
    is_answered(&other).await;
    for asked in [frame(PING, 0, 0, &[7; 8]), frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1])] {
        let before = memory();
        let flood = asked.repeat(1000);
        let mut socket = UnixStream::connect(&path).await.unwrap();
        socket.write_all(&hello()).await.unwrap();
        // Others are answered a hundred times, and nothing of the flood is taken meanwhile.
        let (mut taken, mut refused) = (0, 0);
        while refused < 100 {
            match socket.try_write(&flood[taken % flood.len()..]) {
                Ok(count) => (taken, refused) = (taken + count, 0),
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    refused += 1;
                }
            }
            is_answered(&other).await;
            assert!(taken < MOST_TAKEN, "{taken} bytes are taken");
        }
        let kept = memory().saturating_sub(before);
        assert!(kept < MOST_KEPT, "{kept} bytes are kept");
        // Once he reads, he is listened to.
        let (mut reading, mut writing) = socket.split();
        let mut answers = tokio::io::sink();
        select! {
            _ = tokio::io::copy(&mut reading, &mut answers) => panic!("the connection has ended"),
            sent = timeout(PATIENCE, writing.write_all(&flood)) => sent.unwrap().unwrap(),
        }
    }
    drop(other);
    daemon.stop().await;
}

#[tokio::test]
async fn r06_calls_whose_answers_may_not_be_sent_hold_up_nobody() {
    let daemon = Daemon::start().await;
    let other = Connection::tcp(daemon.address, &[("x-api-key", &daemon.key)]).await;
    is_answered(&other).await;
    let before = memory();
    let mut socket = TcpStream::connect(daemon.address).await.unwrap();
    // Nothing may be sent on any call; each call is complete.
    let begin = [PREFACE, &frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])].concat();
    socket.write_all(&begin).await.unwrap();
    for stream in (1..512).step_by(2) {
        let head = call(CALL, &[("x-api-key", &daemon.key)]);
        let asked = [
            frame(HEADERS, END_HEADERS, stream, &head),
            frame(DATA, END_STREAM, stream, &[0; 5]),
            frame(PRIORITY, 0, stream, &[0, 0, 0, 0, 16]),
        ];
        socket.write_all(&asked.concat()).await.unwrap();
        let mut heard = Vec::new();
        while !heard.contains(&(HEADERS, stream)) {
            let frame = next(&mut socket).await.unwrap();
            heard.push((frame.kind, frame.stream));
        }
        assert!(heard.iter().all(|(kind, _)| *kind != DATA), "{heard:?}");
    }
    is_answered(&other).await;
    let kept = memory().saturating_sub(before);
    assert!(kept < MOST_KEPT, "{kept} bytes are kept");
    drop((other, socket));
    daemon.stop().await;
}
