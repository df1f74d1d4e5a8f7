//! As much of a WebSocket as these tests need. It reads when it is told to, and not a byte ahead.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use rustix::net::{
    AddressFamily, SocketType, connect, socket, sockopt::set_socket_recv_buffer_size,
};
use serde_json::{Value, json};

use crate::command::Server;

/// Nothing in these tests takes this long unless it is broken.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct WebSocket {
    pub(crate) stream: TcpStream,
}

impl WebSocket {
    pub(crate) fn connect(server: &Server) -> Self {
        Self::upgrade(server, server.connect())
    }

    /// Connects by a socket that takes hardly anything before it is read.
    pub(crate) fn connect_narrow(server: &Server) -> Self {
        Self::upgrade(server, narrow(server))
    }

    /// Connects by such a socket to watch commands of a sandbox, with a token for it.
    pub(crate) fn watch_narrow(server: &Server, sandbox: &str, token: &str) -> Self {
        Self::upgrade_to(server, narrow(server), &format!("/dp/{sandbox}/v1/exec/ws"), token)
    }

    /// Connects to another path than that of executions, with this credential.
    pub(crate) fn connect_to(server: &Server, path: &str, credential: &str) -> Self {
        Self::upgrade_to(server, server.connect(), path, credential)
    }

    fn upgrade(server: &Server, stream: TcpStream) -> Self {
        let key = std::fs::read_to_string(server.data.path().join("admin.key")).unwrap();
        Self::upgrade_to(server, stream, "/ws", key.trim())
    }

    fn upgrade_to(server: &Server, mut stream: TcpStream, path: &str, credential: &str) -> Self {
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {credential}\r\n\
             Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
            server.address(),
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        crate::command::read_until(&mut stream, "\r\n\r\n");
        Self { stream }
    }

    pub(crate) fn execute(&mut self, id: &str, language: &str, code: &str, limits: &Value) {
        self.send(&json!({
            "v": 1, "type": "execute", "id": id, "ts": "2026-01-01T00:00:00.000Z",
            "language": language, "code": code, "limits": limits,
        }));
    }

    pub(crate) fn send(&mut self, frame: &Value) {
        let text = frame.to_string();
        let length = u16::try_from(text.len()).unwrap().to_be_bytes();
        // A final text frame with a length of two bytes, masked with zeros.
        let head = [0x81, 0x80 | 0x7e, length[0], length[1], 0, 0, 0, 0];
        self.stream.write_all(&[&head, text.as_bytes()].concat()).unwrap();
    }

    /// Returns the next frame of the protocol.
    fn next(&mut self) -> Value {
        loop {
            let [kind, short] = self.take();
            let length = match short {
                126 => u64::from(u16::from_be_bytes(self.take())),
                127 => u64::from_be_bytes(self.take()),
                short => u64::from(short),
            };
            let mut content = vec![0; usize::try_from(length).unwrap()];
            self.stream.read_exact(&mut content).unwrap();
            // Anything but text is a ping.
            if kind == 0x81 {
                return serde_json::from_slice(&content).unwrap();
            }
        }
    }

    /// Reads up to the next frame of this type, and returns it.
    pub(crate) fn until(&mut self, kind: &str) -> Value {
        loop {
            let frame = self.next();
            if frame["type"] == kind {
                return frame;
            }
        }
    }

    fn take<const COUNT: usize>(&mut self) -> [u8; COUNT] {
        let mut bytes = [0; COUNT];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }
}

fn narrow(server: &Server) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    set_socket_recv_buffer_size(&socket, 4 << 10).unwrap();
    connect(&socket, &server.address().parse::<SocketAddr>().unwrap()).unwrap();
    socket.into()
}
