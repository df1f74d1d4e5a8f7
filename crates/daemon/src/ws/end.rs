//! How a WebSocket comes to its end.

use super::socket::{Gone, Socket};

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer has gone.
    Peer,
    /// It is closed with this code, for this reason.
    Closed(u16, &'static str),
}

impl End {
    /// Tells the peer, if it is there, and lets go of the socket.
    pub(crate) async fn tell(self, socket: Socket) {
        match self {
            Self::Peer => socket.hang_up().await,
            Self::Closed(code, reason) => socket.close(code, reason).await,
        }
    }
}

impl From<Gone> for End {
    fn from(gone: Gone) -> Self {
        match gone {
            Gone::Peer => Self::Peer,
            Gone::Framing => Self::Closed(1002, "protocol error"),
            Gone::NotUtf8 => Self::Closed(1007, "text is not UTF-8"),
            Gone::TooBig => Self::Closed(1009, "message too big"),
        }
    }
}
