//! Makes the requests of clients on a Unix socket readable for our HTTP/2 library.
//!
//! Such clients send the path of the socket as `:authority`, with `%2F` for each slash. The library
//! takes that for no authority and resets the stream, and the clients have no setting for it. So
//! this stands between socket and library: it reads header blocks, puts `localhost` in the place of
//! an authority that cannot be read, and writes them anew in a form that needs no table. All other
//! bytes go through as they are.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::http::uri::Authority;
use tokio::io::{AsyncRead, ReadBuf};

use super::hpack::{self, Decoder, HpackError};
use crate::forward::forward_writes;

/// What every connection begins with.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The largest header block, put together of its frames.
const MAX_BLOCK_BYTES: usize = 64 << 10;
/// The most frames that one header block may come in.
const MAX_BLOCK_FRAMES: usize = 32;
/// The largest frame that the library takes, since we never say otherwise.
const MAX_FRAME_BYTES: usize = 16_384;
const HEAD_BYTES: usize = 9;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

const STAND_IN: &[u8] = b"localhost";

/// Why a connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    #[error("this is no HTTP/2 connection")]
    Preface,
    #[error("a frame of headers has more padding than content")]
    Padding,
    #[error("a frame of headers is larger than {MAX_FRAME_BYTES} bytes")]
    FrameSize,
    #[error("a header block is larger than {MAX_BLOCK_BYTES} bytes or in too many frames")]
    BlockSize,
    #[error("a header block is interrupted, or goes on where none began")]
    Order,
    #[error(transparent)]
    Hpack(#[from] HpackError),
}

/// Rewrites the bytes of one connection, in pieces as they come.
#[derive(Default)]
pub(crate) struct Rewriter {
    stage: Stage,
    /// The bytes of the present stage so far.
    held: Vec<u8>,
    /// A header block whose end has not come.
    block: Option<Block>,
    decoder: Decoder,
}

#[derive(Clone, Copy, Default)]
enum Stage {
    #[default]
    Preface,
    Head,
    /// The content of a frame of headers.
    Content(Head),
    /// So much of a frame that is none of our business.
    Through(usize),
}

/// The beginning of a frame.
#[derive(Clone, Copy)]
struct Head {
    length: usize,
    kind: u8,
    flags: u8,
    stream: [u8; 4],
}

struct Block {
    stream: [u8; 4],
    end_stream: u8,
    bytes: Vec<u8>,
    frames: usize,
}

impl Rewriter {
    /// Takes bytes, and appends what they become. Returns how many were taken: at least one, and
    /// not all of them once there is a header block to hand on, so that little input does not make
    /// much output at once.
    pub(crate) fn take(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Broken> {
        match self.stage {
            Stage::Preface => {
                let taken = self.hold(input, PREFACE.len());
                if !PREFACE.starts_with(&self.held) {
                    return Err(Broken::Preface);
                }
                if self.held.len() == PREFACE.len() {
                    out.append(&mut self.held);
                    self.stage = Stage::Head;
                }
                Ok(taken)
            }
            Stage::Head => {
                let taken = self.hold(input, HEAD_BYTES);
                if self.held.len() == HEAD_BYTES {
                    self.begin(out)?;
                }
                Ok(taken)
            }
            Stage::Content(head) => {
                let taken = self.hold(input, head.length);
                if self.held.len() == head.length {
                    self.end_content(head, out)?;
                }
                Ok(taken)
            }
            Stage::Through(left) => {
                let taken = left.min(input.len());
                out.extend(input.iter().take(taken));
                self.stage = Stage::after(left - taken);
                Ok(taken)
            }
        }
    }

    fn hold(&mut self, input: &[u8], wanted: usize) -> usize {
        let taken = wanted.saturating_sub(self.held.len()).min(input.len());
        self.held.extend(input.iter().take(taken));
        taken
    }

    /// Decides what is to be done with a frame.
    fn begin(&mut self, out: &mut Vec<u8>) -> Result<(), Broken> {
        let head = Head::read(&self.held);
        let goes_on = match &self.block {
            None => false,
            Some(block) if head.kind == CONTINUATION && head.stream == block.stream => true,
            Some(_) => return Err(Broken::Order),
        };
        match head.kind {
            CONTINUATION if !goes_on => return Err(Broken::Order),
            HEADERS | CONTINUATION => {
                self.held.clear();
                if head.length > MAX_FRAME_BYTES {
                    return Err(Broken::FrameSize);
                }
                self.stage = Stage::Content(head);
                if head.length == 0 {
                    self.end_content(head, out)?;
                }
            }
            _ => {
                out.append(&mut self.held);
                self.stage = Stage::after(head.length);
            }
        }
        Ok(())
    }

    /// Adds what is held to the header block, and writes the block once it is whole.
    fn end_content(&mut self, head: Head, out: &mut Vec<u8>) -> Result<(), Broken> {
        self.stage = Stage::Head;
        let content = std::mem::take(&mut self.held);
        let mut block = match self.block.take() {
            Some(block) => block,
            None => Block::begin(head),
        };
        block.add(head.fragment(&content)?)?;
        if head.flags & END_HEADERS == 0 {
            self.block = Some(block);
            return Ok(());
        }
        let bytes = self.rewrite(&block.bytes)?;
        block.write(&bytes, out);
        Ok(())
    }

    fn rewrite(&mut self, block: &[u8]) -> Result<Vec<u8>, Broken> {
        let mut bytes = Vec::with_capacity(block.len());
        for mut header in self.decoder.decode(block)? {
            if header.name == b":authority" && Authority::try_from(&*header.value).is_err() {
                header.value = STAND_IN.to_vec();
            }
            hpack::encode(&header, &mut bytes);
        }
        Ok(bytes)
    }
}

impl Stage {
    fn after(left: usize) -> Self {
        if left == 0 { Self::Head } else { Self::Through(left) }
    }
}

impl Head {
    /// Reads nine bytes. Missing ones count as zero.
    fn read(bytes: &[u8]) -> Self {
        let at = |place: usize| bytes.get(place).copied().unwrap_or(0);
        let length =
            [at(0), at(1), at(2)].into_iter().fold(0, |sum, it| sum << 8 | usize::from(it));
        // The first bit of a stream's number says nothing.
        let stream = [at(5) & 0x7f, at(6), at(7), at(8)];
        Self { length, kind: at(3), flags: at(4), stream }
    }

    /// Returns the part of the content that belongs to the header block.
    fn fragment<'content>(&self, content: &'content [u8]) -> Result<&'content [u8], Broken> {
        if self.kind == CONTINUATION {
            return Ok(content);
        }
        let mut rest = content;
        let mut padding = 0;
        if self.flags & PADDED != 0 {
            let (first, after) = rest.split_first().ok_or(Broken::Padding)?;
            (padding, rest) = (usize::from(*first), after);
        }
        if self.flags & PRIORITY != 0 {
            rest = rest.get(5..).ok_or(Broken::Padding)?;
        }
        let length = rest.len().checked_sub(padding).ok_or(Broken::Padding)?;
        Ok(rest.get(..length).unwrap_or_default())
    }
}

impl Block {
    fn begin(head: Head) -> Self {
        let end_stream = head.flags & END_STREAM;
        Self { stream: head.stream, end_stream, bytes: Vec::new(), frames: 0 }
    }

    fn add(&mut self, fragment: &[u8]) -> Result<(), Broken> {
        self.frames += 1;
        if self.frames > MAX_BLOCK_FRAMES || self.bytes.len() + fragment.len() > MAX_BLOCK_BYTES {
            return Err(Broken::BlockSize);
        }
        self.bytes.extend_from_slice(fragment);
        Ok(())
    }

    /// Writes the block as few frames as it takes.
    fn write(&self, bytes: &[u8], out: &mut Vec<u8>) {
        let (mut kind, mut flags) = (HEADERS, self.end_stream);
        let mut rest = bytes;
        loop {
            let (frame, after) = rest.split_at(rest.len().min(MAX_FRAME_BYTES));
            if after.is_empty() {
                flags |= END_HEADERS;
            }
            let length = u32::try_from(frame.len()).unwrap_or(0).to_be_bytes();
            out.extend_from_slice(&[length[1], length[2], length[3], kind, flags]);
            out.extend_from_slice(&self.stream);
            out.extend_from_slice(frame);
            if after.is_empty() {
                return;
            }
            (kind, flags, rest) = (CONTINUATION, 0, after);
        }
    }
}

/// How much is read from the socket at once.
const READ_BYTES: usize = 8 << 10;

/// A connection whose header blocks are rewritten as they are read.
pub(crate) struct Readable<S> {
    socket: S,
    rewriter: Rewriter,
    input: Box<[u8; READ_BYTES]>,
    /// The part of `input` that has not been taken.
    left: std::ops::Range<usize>,
    output: Vec<u8>,
    /// How much of `output` has been read.
    read: usize,
}

impl<S> Readable<S> {
    pub(crate) fn new(socket: S) -> Self {
        Self {
            socket,
            rewriter: Rewriter::default(),
            input: Box::new([0; READ_BYTES]),
            left: 0..0,
            output: Vec::new(),
            read: 0,
        }
    }

    /// Hands out what there is; tells whether there was anything.
    fn hand_out(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let ready = self.output.get(self.read..).unwrap_or_default();
        let count = ready.len().min(buffer.remaining());
        buffer.put_slice(ready.get(..count).unwrap_or_default());
        self.read += count;
        if self.read == self.output.len() {
            self.read = 0;
            self.output.clear();
        }
        count > 0
    }

    /// Takes a part of the input; tells whether there was any.
    fn take(&mut self) -> io::Result<bool> {
        let input = self.input.get(self.left.clone()).unwrap_or_default();
        if input.is_empty() {
            return Ok(false);
        }
        let broken = |broken: Broken| io::Error::new(io::ErrorKind::InvalidData, broken);
        self.left.start += self.rewriter.take(input, &mut self.output).map_err(broken)?;
        Ok(true)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Readable<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if buffer.remaining() == 0 || this.hand_out(buffer) {
                return Poll::Ready(Ok(()));
            }
            if this.take()? {
                continue;
            }
            let mut input = ReadBuf::new(&mut *this.input);
            ready!(Pin::new(&mut this.socket).poll_read(context, &mut input))?;
            this.left = 0..input.filled().len();
            if this.left.is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

forward_writes!(Readable, socket);

/// Rewrites any bytes, for fuzzing: how they are cut makes no difference, and what was rewritten once stays as it
/// is. The first byte says how.
pub fn fuzz_one(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let input = [PREFACE, bytes].concat();
    let whole = rewrite(&input, &[]);
    let sizes = vec![usize::from(*cut) + 1; input.len()];
    assert_eq!(rewrite(&input, &sizes), whole, "it depends on how the bytes are cut");
    if let Ok(once) = whole {
        assert_eq!(rewrite(&once, &[]).as_ref(), Ok(&once), "it is changed again");
    }
}

/// Rewrites a whole connection that comes in pieces of these sizes, and then in one.
fn rewrite(input: &[u8], sizes: &[usize]) -> Result<Vec<u8>, Broken> {
    let mut rewriter = Rewriter::default();
    let (mut out, mut rest) = (Vec::new(), input);
    let mut sizes = sizes.iter().copied();
    while !rest.is_empty() {
        let size = sizes.next().unwrap_or(usize::MAX).clamp(1, rest.len());
        let (mut piece, after) = rest.split_at(size);
        while !piece.is_empty() {
            let taken = rewriter.take(piece, &mut out)?;
            assert!((1..=piece.len()).contains(&taken), "{taken} were taken");
            piece = piece.split_at(taken).1;
        }
        rest = after;
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
