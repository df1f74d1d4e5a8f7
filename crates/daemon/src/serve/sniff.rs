//! Finds out which HTTP a connection speaks, by its first bytes.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, ReadBuf},
    time::timeout,
};

use crate::forward::forward_writes;

/// What every connection of HTTP/2 begins with, and none of HTTP/1.
const PREFACE: [u8; 24] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// Reads as far as it takes. Nothing comes back for who says nothing in time, or not enough: the
/// library has no deadline for the beginning of HTTP/2.
pub(crate) async fn sniff<S: AsyncRead + Unpin>(
    mut stream: S,
    within: Duration,
) -> Option<(Version, Prefixed<S>)> {
    let mut first = [0; PREFACE.len()];
    let mut length = 0;
    let reading = async {
        while first[..length] == PREFACE[..length] && length < PREFACE.len() {
            match stream.read(&mut first[length..]).await {
                Ok(count @ 1..) => length += count,
                Ok(0) | Err(_) => return None,
            }
        }
        Some(if first == PREFACE { Version::Two } else { Version::One })
    };
    let version = timeout(within, reading).await.ok()??;
    Some((version, Prefixed { first, unread: 0..length, stream }))
}

/// A stream whose first bytes were read already.
#[derive(Debug)]
pub(crate) struct Prefixed<S> {
    first: [u8; PREFACE.len()],
    unread: std::ops::Range<usize>,
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let first = this.first.get(this.unread.clone()).unwrap_or_default();
        if first.is_empty() {
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        }
        let count = first.len().min(buffer.remaining());
        buffer.put_slice(first.get(..count).unwrap_or_default());
        this.unread.start += count;
        Poll::Ready(Ok(()))
    }
}

forward_writes!(Prefixed, stream);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    async fn read(pieces: &[&[u8]]) -> Option<(Version, Vec<u8>)> {
        let (near, mut far) = tokio::io::duplex(4);
        let (read, ()) = tokio::join!(
            async {
                let (version, mut stream) = sniff(near, Duration::from_secs(5)).await?;
                let mut all = Vec::new();
                stream.read_to_end(&mut all).await.unwrap();
                Some((version, all))
            },
            async {
                for piece in pieces {
                    // Who has gone reads nothing any more.
                    let _ = far.write_all(piece).await;
                }
                drop(far);
            }
        );
        read
    }

    #[tokio::test]
    async fn the_first_bytes_tell_the_version_and_are_read_again() {
        let rows: [(&[&[u8]], Option<Version>); 8] = [
            (&[b"GET / HTTP/1.1\r\n\r\n"], Some(Version::One)),
            (&[b"P", b"OST / HTTP/1.1\r\n\r\n"], Some(Version::One)),
            (&[b"P", b"R", b"OPFIND /"], Some(Version::One)),
            (&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], Some(Version::Two)),
            (&[b"PRI * HTTP/2.0\r\n\r\n", b"SM\r\n\r\n\0\0\0\x04\0\0\0\0\0"], Some(Version::Two)),
            (&[b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"], Some(Version::One)),
            (&[b"PRI * HT"], None),
            (&[], None),
        ];
        for (pieces, expected) in rows {
            let read = read(pieces).await;
            assert_eq!(read, expected.map(|version| (version, pieces.concat())), "{pieces:?}");
        }
    }

    #[tokio::test]
    async fn who_says_nothing_is_not_waited_for() {
        let (near, _far) = tokio::io::duplex(4);
        assert!(sniff(near, Duration::from_millis(1)).await.is_none());
    }

    proptest! {
        #[test]
        fn no_byte_is_lost(bytes: Vec<u8>) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Some((_, all)) = runtime.unwrap().block_on(read(&[&bytes])) {
                prop_assert_eq!(all, bytes);
            }
        }
    }
}
