//! Frames of yamux, version 0, as its specification has them: a head of twelve bytes, and behind it,
//! if the frame is one of data, as many bytes as it says.

use bytes::{BufMut as _, BytesMut};

/// The bytes of a head.
pub(super) const HEAD: usize = 12;
/// What each side may send on a new stream before it is given more.
pub(super) const WINDOW: u32 = 256 << 10;

pub(super) const SYN: u16 = 1;
pub(super) const ACK: u16 = 2;
pub(super) const FIN: u16 = 4;
pub(super) const RST: u16 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Window,
    Ping,
    GoAway,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) flags: u16,
    pub(super) stream: u32,
    /// Of data, their length; of a window, what is added to it; of a ping, its number; of a
    /// farewell, its reason.
    pub(super) value: u32,
}

/// Why a connection is closed with a farewell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Farewell {
    Normal = 0,
    ProtocolError = 1,
}

impl Head {
    pub(super) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    fn read(bytes: [u8; HEAD]) -> Result<Self, Malformed> {
        let [version, kind, high, low, stream @ .., _, _, _, _] = bytes;
        let [.., a, b, c, d] = bytes;
        if version != 0 {
            return Err(Malformed::Version(version));
        }
        let kind = match kind {
            0 => Kind::Data,
            1 => Kind::Window,
            2 => Kind::Ping,
            3 => Kind::GoAway,
            other => return Err(Malformed::Kind(other)),
        };
        let flags = u16::from_be_bytes([high, low]);
        if flags & !(SYN | ACK | FIN | RST) != 0 {
            return Err(Malformed::Flags(flags));
        }
        let (stream, value) = (u32::from_be_bytes(stream), u32::from_be_bytes([a, b, c, d]));
        Ok(Self { kind, flags, stream, value })
    }

    pub(super) fn write(self, out: &mut BytesMut) {
        out.put_u8(0);
        out.put_u8(match self.kind {
            Kind::Data => 0,
            Kind::Window => 1,
            Kind::Ping => 2,
            Kind::GoAway => 3,
        });
        out.put_u16(self.flags);
        out.put_u32(self.stream);
        out.put_u32(self.value);
    }
}

/// Writes a frame of data. There is room for the length in a head, as there is for a window.
pub(super) fn write_data(out: &mut BytesMut, stream: u32, bytes: &[u8]) {
    let value = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    Head { kind: Kind::Data, flags: 0, stream, value }.write(out);
    out.put_slice(bytes);
}

/// Writes a frame that says something about a stream.
pub(super) fn write_flags(out: &mut BytesMut, stream: u32, flags: u16) {
    Head { kind: Kind::Window, flags, stream, value: 0 }.write(out);
}

pub(super) fn write_window(out: &mut BytesMut, stream: u32, more: u32) {
    Head { kind: Kind::Window, flags: 0, stream, value: more }.write(out);
}

pub(super) fn write_ping(out: &mut BytesMut, flags: u16, number: u32) {
    Head { kind: Kind::Ping, flags, stream: 0, value: number }.write(out);
}

pub(super) fn write_farewell(out: &mut BytesMut, why: Farewell) {
    Head { kind: Kind::GoAway, flags: 0, stream: 0, value: why as u32 }.write(out);
}

/// What cannot be a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("a frame of version {0}")]
    Version(u8),
    #[error("a frame of kind {0}")]
    Kind(u8),
    #[error("a frame with the flags {0:#x}")]
    Flags(u16),
}

/// A piece of what a peer has sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A frame begins. If it is one of data, they follow.
    Begin(Head),
    Data(u32, &'a [u8]),
    /// Everything of the frame has been told.
    End(Head),
}

/// Cuts a stream of bytes into frames, however it comes.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    head: [u8; HEAD],
    filled: usize,
    /// The frame that has begun, and how much of it is to come.
    begun: Option<(Head, usize)>,
}

impl Decoder {
    /// Takes the next piece off the input; `None` when more input is needed.
    pub(super) fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<Piece<'a>>, Malformed> {
        match self.begun {
            Some((head, 0)) => {
                self.begun = None;
                Ok(Some(Piece::End(head)))
            }
            Some(_) if input.is_empty() => Ok(None),
            Some((head, left)) => {
                let (data, rest) = input.split_at(left.min(input.len()));
                *input = rest;
                self.begun = Some((head, left - data.len()));
                Ok(Some(Piece::Data(head.stream, data)))
            }
            None => {
                let (taken, rest) = input.split_at(input.len().min(HEAD - self.filled));
                *input = rest;
                for (to, from) in self.head.iter_mut().skip(self.filled).zip(taken) {
                    *to = *from;
                }
                self.filled += taken.len();
                if self.filled < HEAD {
                    return Ok(None);
                }
                self.filled = 0;
                let head = Head::read(self.head)?;
                let length = match head.kind {
                    Kind::Data => usize::try_from(head.value).unwrap_or(usize::MAX),
                    Kind::Window | Kind::Ping | Kind::GoAway => 0,
                };
                self.begun = Some((head, length));
                Ok(Some(Piece::Begin(head)))
            }
        }
    }
}

/// Decodes any bytes, for fuzzing: how they are cut makes no difference. The first byte says how.
pub fn fuzz_one(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let (whole, cut) = (decoded(bytes, bytes.len().max(1)), decoded(bytes, usize::from(*cut) + 1));
    assert_eq!(whole, cut, "it depends on how the bytes are cut");
}

/// Decodes bytes that come in portions of this length; returns what is whole before the first that is no frame.
fn decoded(bytes: &[u8], portion: usize) -> (Vec<Head>, Vec<u8>) {
    let (mut decoder, mut heads, mut data) = (Decoder::default(), Vec::new(), Vec::new());
    for mut input in bytes.chunks(portion) {
        loop {
            match decoder.next(&mut input) {
                Ok(Some(Piece::Begin(_))) => {}
                Ok(Some(Piece::Data(_, piece))) => data.extend_from_slice(piece),
                Ok(Some(Piece::End(head))) => heads.push(head),
                Ok(None) => break,
                Err(_) => return (heads, data),
            }
        }
    }
    (heads, data)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_are_the_bytes_of_the_specification() {
        let mut out = BytesMut::new();
        write_flags(&mut out, 1, SYN);
        write_data(&mut out, 1, b"\x01\x1f\x90");
        write_window(&mut out, 3, WINDOW);
        write_ping(&mut out, ACK, 7);
        write_farewell(&mut out, Farewell::ProtocolError);
        let expected = [
            &[0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0][..],
            &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3, 1, 0x1f, 0x90],
            &[0, 1, 0, 0, 0, 0, 0, 3, 0, 4, 0, 0],
            &[0, 2, 0, 2, 0, 0, 0, 0, 0, 0, 0, 7],
            &[0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn what_is_no_frame_is_refused_at_its_head() {
        let refused = |bytes: [u8; HEAD]| {
            let mut input = &bytes[..];
            Decoder::default().next(&mut input).unwrap_err()
        };
        assert_eq!(refused([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Malformed::Version(1));
        assert_eq!(refused([0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Malformed::Kind(4));
        assert_eq!(refused([0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0]), Malformed::Flags(16));
    }

    proptest! {
        #[test]
        fn frames_are_the_same_however_they_are_cut(
            texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
            portion in 1_usize..50,
        ) {
            let mut out = BytesMut::new();
            for text in &texts {
                write_data(&mut out, 5, text);
                write_ping(&mut out, SYN, 1);
            }
            let (heads, data) = decoded(&out, portion);
            prop_assert_eq!(heads.len(), 2 * texts.len());
            prop_assert_eq!(data, texts.concat());
        }

        #[test]
        fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (mut decoder, mut input) = (Decoder::default(), &bytes[..]);
            while let Ok(Some(_)) = decoder.next(&mut input) {}
        }
    }
}
