//! The bytes of a layer: decompressed, measured against the limits, and hashed.

use std::io::{self, BufRead as _, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

use super::{
    Limits,
    error::{Limit, UnpackError},
};
use crate::{
    archive::ArchiveError,
    digest::{Digest, HashingReader},
};

const BUFFER: usize = 128 << 10;

/// The largest window that a frame may ask for, as a power of two: 128 MiB, the least that every
/// decoder must offer for the highest levels.
const LARGEST_WINDOW: u32 = 27;

/// Counts what is read, so that the two sides of a decoder can be compared.
#[derive(Debug)]
struct Counted<R> {
    inner: R,
    count: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.count += count as u64;
        Ok(count)
    }
}

type Source<R> = BufReader<Counted<R>>;

enum Decoder<R: Read> {
    Plain(Source<R>),
    Gzip(Box<MultiGzDecoder<Source<R>>>),
    Zstandard(zstd::Decoder<'static, Source<R>>),
}

impl<R: Read> Decoder<R> {
    /// Chooses by what the bytes say. What a manifest says about them may be wrong.
    fn new(reader: R) -> Result<Self, UnpackError> {
        let mut source = BufReader::with_capacity(BUFFER, Counted { inner: reader, count: 0 });
        let start = source.fill_buf().map_err(ArchiveError::Read)?;
        match start {
            [0x1f, 0x8b, ..] => Ok(Self::Gzip(Box::new(MultiGzDecoder::new(source)))),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::zstandard(source).map_err(UnpackError::Archive),
            [b'B', b'Z', b'h', ..] => Err(UnpackError::Compression("bzip2")),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Err(UnpackError::Compression("xz")),
            _ => Ok(Self::Plain(source)),
        }
    }

    fn zstandard(source: Source<R>) -> Result<Self, ArchiveError> {
        let mut decoder = zstd::Decoder::with_buffer(source).map_err(ArchiveError::Read)?;
        decoder.window_log_max(LARGEST_WINDOW).map_err(ArchiveError::Read)?;
        Ok(Self::Zstandard(decoder))
    }

    fn compressed(&self) -> u64 {
        let source = match self {
            Self::Plain(source) => source,
            Self::Gzip(decoder) => decoder.get_ref(),
            Self::Zstandard(decoder) => decoder.get_ref(),
        };
        source.get_ref().count
    }
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(source) => source.read(buffer),
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstandard(decoder) => decoder.read(buffer),
        }
    }
}

/// Tells whether an archive begins as one of the compressions that are supported.
pub(crate) fn is_compressed(start: &[u8]) -> bool {
    matches!(start, [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd, ..])
}

/// The uncompressed layer. Reading beyond a limit is an error.
pub(super) struct Metered<R: Read> {
    decoder: HashingReader<Decoder<R>>,
    limits: Limits,
}

impl<R: Read> Metered<R> {
    pub(super) fn new(reader: R, limits: &Limits) -> Result<BufReader<Self>, UnpackError> {
        let decoder = HashingReader::new(Decoder::new(reader)?);
        // Headers are read in small pieces, and hashing small pieces is slow.
        Ok(BufReader::with_capacity(BUFFER, Self { decoder, limits: *limits }))
    }

    pub(super) fn finish(self) -> Digest {
        self.decoder.finish().0
    }

    fn check(&self) -> Result<(), Limit> {
        let Limits { bytes, ratio, ratio_from, .. } = self.limits;
        let length = self.decoder.length();
        if length > bytes {
            return Err(Limit::Bytes(bytes));
        }
        let compressed = self.decoder.get_ref().compressed();
        if length > ratio_from && length > compressed.saturating_mul(ratio) {
            return Err(Limit::Ratio(ratio));
        }
        Ok(())
    }
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.decoder.read(buffer)?;
        self.check().map_err(io::Error::other)?;
        Ok(count)
    }
}
