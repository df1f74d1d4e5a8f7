//! `WS /dp/{id}/tunnel`: yamux as its clients speak it, and as they should not.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use model::capability::{Capabilities, Capability};
use tokio::{io::AsyncReadExt as _, net::TcpStream, time::timeout};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, client::IntoClientRequest as _},
};

use crate::{
    ports::upgraded,
    sandboxed::Sandboxed,
    served::{PORT, Served, serving, token},
    support::PATIENCE,
    tokens::claims,
};

const DATA: u8 = 0;
const WINDOW: u8 = 1;
const PING: u8 = 2;
const GO_AWAY: u8 = 3;
const SYN: u16 = 1;
const ACK: u16 = 2;
const FIN: u16 = 4;
const RST: u16 = 8;

fn frame(kind: u8, flags: u16, stream: u32, value: u32, data: &[u8]) -> Vec<u8> {
    let head = [&[0, kind][..], &flags.to_be_bytes(), &stream.to_be_bytes(), &value.to_be_bytes()];
    [head.concat(), data.to_vec()].concat()
}

fn data(stream: u32, bytes: &[u8]) -> Vec<u8> {
    frame(DATA, 0, stream, u32::try_from(bytes.len()).unwrap(), bytes)
}

/// Opens a stream to a port.
fn opened(stream: u32, port: u16) -> Vec<u8> {
    let [high, low] = port.to_be_bytes();
    [frame(WINDOW, SYN, stream, 0, &[]), data(stream, &[1, high, low])].concat()
}

#[derive(Debug, PartialEq, Eq)]
struct Frame {
    kind: u8,
    flags: u16,
    stream: u32,
    value: u32,
    data: Vec<u8>,
}

struct Peer {
    socket: WebSocketStream<TcpStream>,
    buffer: Vec<u8>,
}

/// Why a tunnel said no more.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Frame(Frame),
    Closed(u16),
}

impl Peer {
    async fn connect(sandboxed: &Sandboxed, base: &str, header: (&'static str, &str)) -> Self {
        let address = sandboxed.daemon().address;
        let mut request = format!("ws://{address}{base}/tunnel").into_client_request().unwrap();
        request.headers_mut().insert(header.0, header.1.parse().unwrap());
        let stream = TcpStream::connect(address).await.unwrap();
        let (socket, _) = client_async(request, stream).await.unwrap();
        Self { socket, buffer: Vec::new() }
    }

    async fn of(served: &Served) -> Self {
        let base = format!("/dp/{}/v1", served.sandbox);
        Self::connect(&served.sandboxed, &base, ("x-api-key", &served.token)).await
    }

    async fn send(&mut self, bytes: Vec<u8>) {
        self.socket.send(Message::Binary(bytes.into())).await.unwrap();
    }

    async fn next(&mut self) -> Next {
        loop {
            if let Some(head) = self.buffer.first_chunk::<12>() {
                let [_, kind, high, low, stream @ .., _, _, _, _] = *head;
                let [.., a, b, c, d] = *head;
                let value = u32::from_be_bytes([a, b, c, d]);
                let length = if kind == DATA { usize::try_from(value).unwrap() } else { 0 };
                if self.buffer.len() >= 12 + length {
                    let mut data: Vec<u8> = self.buffer.drain(..12 + length).collect();
                    let flags = u16::from_be_bytes([high, low]);
                    let stream = u32::from_be_bytes(stream);
                    data.drain(..12);
                    return Next::Frame(Frame { kind, flags, stream, value, data });
                }
            }
            match timeout(PATIENCE, self.socket.next()).await.unwrap() {
                Some(Ok(Message::Binary(bytes))) => self.buffer.extend_from_slice(&bytes),
                Some(Ok(Message::Close(frame))) => {
                    return Next::Closed(frame.map_or(0, |frame| frame.code.into()));
                }
                other => panic!("the tunnel said {other:?}"),
            }
        }
    }

    async fn frame(&mut self) -> Frame {
        match self.next().await {
            Next::Frame(frame) => frame,
            Next::Closed(code) => panic!("closed with {code}"),
        }
    }

    /// Returns the next data of a stream; nothing when it has ended.
    async fn heard(&mut self, stream: u32) -> Option<Vec<u8>> {
        loop {
            let frame = self.frame().await;
            assert_eq!((frame.flags & RST, frame.kind == GO_AWAY), (0, false), "{frame:?}");
            if frame.stream == stream && frame.kind == DATA {
                return Some(frame.data);
            }
            if frame.stream == stream && frame.flags & FIN != 0 {
                return None;
            }
        }
    }

    /// Reads a stream to its end, giving back what was read.
    async fn rest(&mut self, stream: u32) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(bytes) = self.heard(stream).await {
            let count = u32::try_from(bytes.len()).unwrap();
            all.extend(bytes);
            self.send(frame(WINDOW, 0, stream, count, &[])).await;
        }
        all
    }

    async fn until_closed(&mut self) -> (Option<Frame>, u16) {
        let mut last = None;
        loop {
            match self.next().await {
                Next::Frame(frame) => last = Some(frame),
                Next::Closed(code) => return (last, code),
            }
        }
    }
}

#[tokio::test]
async fn a_stream_is_a_connection_to_a_port_of_the_sandbox() {
    let served = Served::start().await;
    let base = format!("/dp/{}", served.sandbox);
    let key = served.sandboxed.daemon().key.clone();
    let bearer = format!("Bearer {}", served.token);
    for (base, header) in [
        (base.clone(), ("x-api-key", key.as_str())),
        (base.clone(), ("authorization", bearer.as_str())),
        (format!("{base}/v1"), ("x-api-key", served.token.as_str())),
    ] {
        let mut peer = Peer::connect(&served.sandboxed, &base, header).await;
        peer.send(opened(1, PORT)).await;
        let acknowledged = peer.frame().await;
        assert_eq!((acknowledged.kind, acknowledged.flags, acknowledged.stream), (WINDOW, ACK, 1));
        assert_eq!(peer.heard(1).await.unwrap(), [0], "{base}");
        peer.send(data(1, b"GET /x HTTP/1.1\r\nConnection: close\r\n\r\n")).await;
        let answer = String::from_utf8(peer.rest(1).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("GET /x"), "{answer}");
        peer.send(frame(DATA, FIN, 1, 0, &[])).await;
        // A stream is as good as the first after that.
        peer.send(opened(3, PORT)).await;
        assert_eq!(peer.heard(3).await.unwrap(), [0]);
        peer.send(frame(PING, SYN, 0, 77, &[])).await;
        let pong = peer.frame().await;
        assert_eq!((pong.kind, pong.flags, pong.value), (PING, ACK, 77));
        peer.send([frame(DATA, FIN, 3, 0, &[]), frame(GO_AWAY, 0, 0, 0, &[])].concat()).await;
        let (last, code) = peer.until_closed().await;
        assert_eq!((last.map(|frame| frame.kind), code), (Some(GO_AWAY), 1000));
    }
    served.end().await;
}

#[tokio::test]
async fn what_cannot_be_connected_is_said_by_one_byte() {
    let served = Served::start().await;
    let mut peer = Peer::of(&served).await;
    let rows = [([1, 0, 0], 1), ([1, 0, 9], 2), ([2, 0, 9], 3)];
    for (index, (header, status)) in rows.into_iter().enumerate() {
        let stream = u32::try_from(2 * index + 1).unwrap();
        peer.send(frame(DATA, SYN, stream, 3, &header)).await;
        assert_eq!(peer.rest(stream).await, [status], "{header:?}");
    }
    drop(peer);
    served.end().await;
}

/// Says everything again once it has heard it all.
fn echoing(port: u16) -> Vec<String> {
    let server = format!(
        "import socket, threading\n\
         listener = socket.create_server(('127.0.0.1', {port}), backlog=512)\n\
         def echo(client):\n\
         \x20   client.sendall(b''.join(iter(lambda: client.recv(65536), b'')))\n\
         \x20   client.close()\n\
         while True:\n\
         \x20   threading.Thread(target=echo, args=(listener.accept()[0],)).start()\n"
    );
    ["/usr/bin/python3", "-c", &server].map(str::to_owned).to_vec()
}

#[tokio::test]
async fn each_direction_has_its_own_end_and_more_than_a_window_goes_through() {
    const PIECES: usize = 64;
    let sandboxed = Sandboxed::start().await;
    let id = serving(&sandboxed, echoing(9000), 9000).await;
    let token = token(&sandboxed, &id, "ports").await;
    let served = Served { sandboxed, sandbox: id, token };
    let mut peer = Peer::of(&served).await;
    peer.send(opened(1, 9000)).await;
    assert_eq!(peer.heard(1).await.unwrap(), [0]);
    let piece: Vec<u8> = (0..=255).cycle().take(16 << 10).collect();
    let mut allowed = (256 << 10) - 3;
    for _ in 0..PIECES {
        // As much as a client may: what was taken is given back to it.
        while allowed < piece.len() {
            let frame = peer.frame().await;
            assert_eq!((frame.kind, frame.flags, frame.stream), (WINDOW, 0, 1), "{frame:?}");
            allowed += usize::try_from(frame.value).unwrap();
        }
        allowed -= piece.len();
        peer.send(data(1, &piece)).await;
    }
    peer.send(frame(DATA, FIN, 1, 0, &[])).await;
    assert!(peer.rest(1).await == piece.repeat(PIECES), "bytes were changed");
    drop(peer);
    served.end().await;
}

#[tokio::test]
async fn a_peer_that_breaks_the_rules_is_told_so_and_closed() {
    let served = Served::start().await;
    let syn = |stream| frame(WINDOW, SYN, stream, 0, &[]);
    let flood = vec![0; 256 << 10];
    let rows: [(&str, Vec<Vec<u8>>); 5] = [
        ("another version", vec![vec![1; 12]]),
        ("another kind", vec![frame(9, 0, 1, 0, &[])]),
        ("an even stream", vec![syn(2)]),
        ("a stream twice", vec![syn(1), syn(1)]),
        ("more than the window", vec![[syn(1), data(1, &flood), data(1, &[0])].concat()]),
    ];
    for (name, messages) in rows {
        let mut peer = Peer::of(&served).await;
        for message in messages {
            peer.send(message).await;
        }
        let (last, code) = peer.until_closed().await;
        let last = last.unwrap();
        assert_eq!((last.kind, last.value, code), (GO_AWAY, 1, 1002), "{name}");
    }
    let mut peer = Peer::of(&served).await;
    peer.socket.send(Message::Text("hello".into())).await.unwrap();
    assert_eq!(peer.until_closed().await.1, 1003);
    let mut peer = Peer::of(&served).await;
    peer.send(vec![0; 1 << 20]).await;
    assert_eq!(peer.until_closed().await.1, 1009);
    served.end().await;
}

#[tokio::test]
async fn streams_may_be_opened_in_any_order_and_again_once_they_are_closed() {
    let served = Served::start().await;
    let mut peer = Peer::of(&served).await;
    for stream in [5, 1, 3] {
        peer.send(opened(stream, PORT)).await;
        assert_eq!(peer.heard(stream).await.unwrap(), [0], "{stream}");
    }
    // What was on its way to a stream that is gone harms nobody.
    peer.send([frame(WINDOW, RST, 3, 0, &[]), data(3, b"late")].concat()).await;
    peer.send(opened(3, PORT)).await;
    assert_eq!(peer.heard(3).await.unwrap(), [0]);
    drop(peer);
    served.end().await;
}

#[tokio::test]
async fn streams_beyond_the_bound_are_reset_and_the_others_go_on() {
    const BOUND: u32 = 256;
    let served = Served::start().await;
    let mut peer = Peer::of(&served).await;
    let all: Vec<u8> =
        (0..=BOUND).flat_map(|index| frame(WINDOW, SYN, 2 * index + 1, 0, &[])).collect();
    peer.send(all).await;
    for index in 0..=BOUND {
        let answer = peer.frame().await;
        let expected = if index < BOUND { ACK } else { RST };
        assert_eq!((answer.stream, answer.flags), (2 * index + 1, expected));
    }
    // One that never says where it leads is not waited for either.
    peer.send(data(1, &[1, 0x1f, 0x40])).await;
    assert_eq!(peer.heard(1).await.unwrap(), [0]);
    loop {
        let frame = peer.frame().await;
        if frame.flags == RST && frame.stream == 3 {
            break;
        }
    }
    drop(peer);
    served.end().await;
}

#[tokio::test]
async fn streams_that_nobody_reads_inside_do_not_stop_the_others_for_ever() {
    let sandboxed = Sandboxed::start().await;
    let deaf = "import socket, time\n\
                listener = socket.create_server(('127.0.0.1', 9000), backlog=512)\n\
                time.sleep(1000)\n";
    let command = ["/usr/bin/python3", "-c", deaf].map(str::to_owned).to_vec();
    let id = serving(&sandboxed, command, 9000).await;
    let token = token(&sandboxed, &id, "ports").await;
    let served = Served { sandboxed, sandbox: id, token };
    let mut peer = Peer::of(&served).await;
    // What is sent is more than the kernel and the tunnel hold for these streams.
    let piece = vec![7; 64 << 10];
    let streams: Vec<u32> = (0..8).map(|index| 2 * index + 1).collect();
    for stream in &streams {
        peer.send(opened(*stream, 9000)).await;
        assert_eq!(peer.heard(*stream).await.unwrap(), [0]);
    }
    let (mut writer, mut reader) = peer.socket.split();
    let sending = async {
        let mut allowed = vec![(256_usize << 10) - 3; streams.len()];
        let mut buffer: Vec<u8> = Vec::new();
        loop {
            for (index, stream) in streams.iter().enumerate() {
                while allowed[index] >= piece.len() {
                    allowed[index] -= piece.len();
                    let message = Message::Binary(data(*stream, &piece).into());
                    // At the bound the tunnel reads no more, for a while.
                    writer.send(message).await.unwrap();
                }
            }
            let message = reader.next().await.unwrap().unwrap();
            buffer.extend_from_slice(&message.into_data());
            while let Some(head) = buffer.first_chunk::<12>().copied() {
                buffer.drain(..12);
                let [_, kind, _, flags, a, b, c, d, value @ ..] = head;
                assert_eq!(kind, WINDOW, "{head:?}");
                let stream = u32::from_be_bytes([a, b, c, d]);
                let index = streams.iter().position(|it| *it == stream).unwrap();
                if u16::from(flags) == RST {
                    return stream;
                }
                allowed[index] += usize::try_from(u32::from_be_bytes(value)).unwrap();
            }
        }
    };
    let broken = timeout(3 * PATIENCE + Duration::from_secs(1), sending).await.unwrap();
    assert!(streams.contains(&broken));
    drop((writer, reader));
    served.end().await;
}

#[tokio::test]
async fn a_tunnel_without_a_stream_does_not_hold_up_a_server_that_ends() {
    let served = Served::start().await;
    let mut peer = Peer::of(&served).await;
    peer.send(frame(PING, SYN, 0, 1, &[])).await;
    peer.frame().await;
    let (mut served, closed) = (served, peer.until_closed());
    let daemon = served.sandboxed.daemon.take().unwrap();
    let ((last, code), ()) = tokio::join!(closed, daemon.stop());
    assert_eq!((last.unwrap().kind, code), (GO_AWAY, 1001));
}

#[tokio::test]
async fn tunnels_and_websockets_are_cut_when_their_token_has_ended() {
    let mut served = Served::start().await;
    let ports = [Capability::Ports].into_iter().collect::<Capabilities>();
    // One that ends within a second, and a few seconds of grace after it.
    let claims = claims(&served.sandbox, ports, 15 * 60 - 1);
    served.token = served.sandboxed.tokens.sign(&claims).unwrap().reveal().to_owned();
    let mut peer = Peer::of(&served).await;
    peer.send(opened(1, PORT)).await;
    assert_eq!(peer.heard(1).await.unwrap(), [0]);
    let (head, mut stream) = upgraded(&served, "/", "").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let (last, code) = peer.until_closed().await;
    assert_eq!((last.unwrap().kind, code), (GO_AWAY, 4401));
    assert_eq!(timeout(PATIENCE, stream.read(&mut [0; 1])).await.unwrap().unwrap_or(0), 0);
    served.end().await;
}
