//! Rows W13, W14 and W18: bad framing, sent byte by byte.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    peer::ping,
    support::{Daemon, PATIENCE},
};

pub(crate) const TEXT: u8 = 1;
const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
const PING: u8 = 9;
pub(crate) const CONTINUATION: u8 = 0;
pub(crate) const FIN: u8 = 0x80;

/// Opens a WebSocket by hand.
async fn open(daemon: &Daemon) -> TcpStream {
    let mut stream = TcpStream::connect(daemon.address).await.unwrap();
    let request = format!(
        "GET /ws HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        daemon.address, daemon.key
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"));
    stream
}

/// Returns a frame of a client, masked with zeros.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..=125 => bytes.push(0x80 | u8::try_from(length).unwrap()),
        length @ 126..=0xffff => {
            bytes.push(0x80 | 0x7e);
            bytes.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 0x7f);
            bytes.extend(u64::try_from(length).unwrap().to_be_bytes());
        }
    }
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes
}

/// Reads one frame of the server: its kind and content.
pub(crate) async fn read(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let first = stream.read_u8().await.unwrap();
    let length = match stream.read_u8().await.unwrap() {
        126 => usize::from(stream.read_u16().await.unwrap()),
        127 => usize::try_from(stream.read_u64().await.unwrap()).unwrap(),
        length => usize::from(length),
    };
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await.unwrap();
    (first & 0x0f, payload)
}

/// Reads until the server closes; returns its code.
async fn close_code(stream: &mut TcpStream) -> u16 {
    loop {
        let (kind, payload) = timeout(PATIENCE, read(stream)).await.unwrap();
        if kind == CLOSE {
            return u16::from_be_bytes([payload[0], payload[1]]);
        }
    }
}

/// Writes bytes; the server may hang up before it has read them all.
async fn write(stream: &mut TcpStream, bytes: &[u8]) {
    drop(timeout(PATIENCE, stream.write_all(bytes)).await.unwrap());
}

#[tokio::test]
async fn w13_w14_bad_framing_is_closed_with_its_code() {
    let daemon = Daemon::start().await;
    let unmasked = vec![FIN | TEXT, 2, b'{', b'}'];
    let mut endless = vec![FIN | TEXT, 0x80 | 0x7f];
    endless.extend((1_u64 << 63).to_be_bytes());
    endless.extend([0; 4]);
    let mut too_big = vec![FIN | TEXT, 0x80 | 0x7f];
    too_big.extend(((4_u64 << 20) + 1).to_be_bytes());
    too_big.extend([0; 4]);
    let rows = [
        ("binary", frame(FIN | BINARY, b"x"), 1003),
        ("invalid UTF-8", frame(FIN | TEXT, b"\xff\xfe"), 1007),
        ("reserved bits", frame(FIN | 0x40 | TEXT, b"{}"), 1002),
        ("reserved kind", frame(FIN | 3, b"{}"), 1002),
        ("unmasked", unmasked, 1002),
        ("ping of 126 bytes", frame(FIN | PING, &[0; 126]), 1002),
        ("ping in fragments", frame(PING, b"x"), 1002),
        ("continuation of nothing", frame(FIN | CONTINUATION, b"x"), 1002),
        ("text within text", [frame(TEXT, b"{"), frame(FIN | TEXT, b"}")].concat(), 1002),
        ("close with one byte", frame(FIN | CLOSE, &[3]), 1002),
        ("close with a reserved code", frame(FIN | CLOSE, &1005_u16.to_be_bytes()), 1002),
        ("length of 2^63", endless, 1009),
        ("one byte too long", too_big, 1009),
    ];
    for (name, bytes, code) in rows {
        let mut stream = open(&daemon).await;
        write(&mut stream, &bytes).await;
        assert_eq!(close_code(&mut stream).await, code, "{name}");
    }
}

#[tokio::test]
async fn w13_a_message_in_many_fragments_is_one_message() {
    let daemon = Daemon::start().await;
    let mut stream = open(&daemon).await;
    let text = ping().to_string() + &" ".repeat(100_000);
    let mut bytes = frame(TEXT, b"");
    for (index, byte) in text.bytes().enumerate() {
        bytes.extend(frame(CONTINUATION, &[byte]));
        if index == 50 {
            bytes.extend(frame(FIN | PING, b"between"));
        }
    }
    bytes.extend(frame(FIN | CONTINUATION, b""));
    write(&mut stream, &bytes).await;
    let (kind, payload) = timeout(PATIENCE, read(&mut stream)).await.unwrap();
    assert_eq!((kind, payload.as_slice()), (10, b"between".as_slice()));
    let (kind, payload) = timeout(PATIENCE, read(&mut stream)).await.unwrap();
    assert_eq!(kind, TEXT);
    assert!(String::from_utf8(payload).unwrap().contains("\"pong\""));
}

#[tokio::test]
async fn w13_fragments_are_limited_as_the_message_that_they_make() {
    let daemon = Daemon::start().await;
    let part = frame(CONTINUATION, &vec![b' '; 1 << 20]);
    let large = [frame(TEXT, b"{"), part.repeat(4)].concat();
    let mut stream = open(&daemon).await;
    write(&mut stream, &large).await;
    assert_eq!(close_code(&mut stream).await, 1009);
    let nothing = [frame(TEXT, b""), frame(CONTINUATION, b"").repeat(1_500_000)].concat();
    let mut stream = open(&daemon).await;
    write(&mut stream, &nothing).await;
    assert_eq!(close_code(&mut stream).await, 1009);
}

#[tokio::test]
async fn w13_pings_of_the_transport_are_rate_limited_too() {
    let daemon = Daemon::start().await;
    let mut stream = open(&daemon).await;
    write(&mut stream, &frame(FIN | PING, b"x").repeat(1000)).await;
    assert_eq!(close_code(&mut stream).await, 4429);
}

#[tokio::test]
async fn w18_what_comes_after_a_close_is_dropped() {
    let daemon = Daemon::start().await;
    let mut stream = open(&daemon).await;
    let execute = crate::peer::execute("late", "start").to_string();
    let close = frame(FIN | CLOSE, &1000_u16.to_be_bytes());
    write(&mut stream, &[close, frame(FIN | TEXT, execute.as_bytes())].concat()).await;
    assert_eq!(close_code(&mut stream).await, 1000);
    let mut rest = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert!(rest.is_empty() && daemon.scripted.seen().is_empty());
}

#[tokio::test]
async fn f42_bytes_one_at_a_time_are_the_same_message() {
    let daemon = Daemon::start().await;
    let mut stream = open(&daemon).await;
    stream.set_nodelay(true).unwrap();
    for byte in frame(FIN | TEXT, ping().to_string().as_bytes()) {
        stream.write_all(&[byte]).await.unwrap();
        stream.flush().await.unwrap();
    }
    let (kind, payload) = timeout(PATIENCE, read(&mut stream)).await.unwrap();
    assert_eq!(kind, TEXT);
    assert!(String::from_utf8(payload).unwrap().contains("\"pong\""));
}
