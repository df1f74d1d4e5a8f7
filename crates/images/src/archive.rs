//! Reads tar archives that strangers made, one entry at a time.
//!
//! What two readers could understand differently is refused, because a check by one reader is then
//! no check for the other. Names and extensions are read into bounded memory; the data of an entry
//! is a stream. Nothing here touches a file system.

mod extension;
mod header;

use std::io::{self, Read};

use self::{
    extension::Extensions,
    header::{BLOCK, Header},
};

/// What an archive may make its reader hold in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of a name or of a link's target.
    pub name: u64,
    /// Bytes of the extended header of one entry, which holds its extended attributes.
    pub extension: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { name: 4096, extension: 1024 * 1024 }
    }
}

/// One entry. Its data, if it has any, is read from the [`Reader`] before the next one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: Vec<u8>,
    pub kind: EntryKind,
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    pub modified: Modified,
    pub size: u64,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    File,
    HardLink { target: Vec<u8> },
    SymbolicLink { target: Vec<u8> },
    CharacterDevice,
    BlockDevice,
    Directory,
    Fifo,
}

/// A time since 1970, or before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Modified {
    pub seconds: i64,
    pub nanoseconds: u32,
}

/// The archive cannot be read, or could be read in more than one way.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("cannot read the archive")]
    Read(#[source] io::Error),
    #[error("the archive ends in the middle of an entry")]
    Truncated,
    #[error("a header of the archive has a wrong checksum")]
    Checksum,
    #[error("the {0} in a header of the archive is not a number that fits")]
    Number(&'static str),
    #[error("an extended header of the archive is not well formed")]
    Extension,
    #[error("the {what} of an entry is longer than {limit} bytes")]
    TooLong { what: &'static str, limit: u64 },
    #[error("the archive can be read in two ways: {0}")]
    Ambiguous(&'static str),
    #[error("an entry of the archive has no name")]
    NoName,
    #[error("sparse files are not supported; pack the archive without them")]
    Sparse,
    #[error("an entry of the archive is of the unknown type {0:#04x}")]
    UnknownType(u8),
}

/// Reads entries in order.
#[derive(Debug)]
pub struct Reader<R> {
    inner: R,
    bounds: Bounds,
    /// What is left of the data of the current entry.
    data: u64,
    /// What follows the data, up to the next block.
    padding: u64,
    has_ended: bool,
}

impl<R: Read> Reader<R> {
    pub fn new(inner: R, bounds: Bounds) -> Self {
        Self { inner, bounds, data: 0, padding: 0, has_ended: false }
    }

    /// Returns the next entry. What was not read of the one before is skipped.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, ArchiveError> {
        let mut extensions = Extensions::default();
        while let Some(header) = self.next_header()? {
            match header.type_flag() {
                b'L' => extensions.add_long_name(self.read_text("name", self.bounds.name)?)?,
                b'K' => extensions.add_long_target(self.read_text("target", self.bounds.name)?)?,
                b'x' => extensions.add_records(&self.read_extension()?)?,
                b'g' => extension::check_global(&self.read_extension()?)?,
                _ => return self.entry(&header, extensions).map(Some),
            }
        }
        if extensions.is_empty() { Ok(None) } else { Err(ArchiveError::Truncated) }
    }

    /// Reads what follows the last entry, so that a digest covers the whole stream.
    pub fn drain(&mut self) -> Result<(), ArchiveError> {
        io::copy(&mut self.inner, &mut io::sink()).map_err(ArchiveError::Read)?;
        Ok(())
    }

    pub fn get_ref(&self) -> &R {
        &self.inner
    }

    pub fn into_inner(self) -> R {
        self.inner
    }

    fn next_header(&mut self) -> Result<Option<Header>, ArchiveError> {
        self.skip()?;
        if self.has_ended {
            return Ok(None);
        }
        let Some(block) = self.read_block()? else {
            self.has_ended = true;
            return Ok(None);
        };
        if block.iter().all(|byte| *byte == 0) {
            self.check_end()?;
            return Ok(None);
        }
        let header = Header::new(&block)?;
        self.expect_data(header.size()?);
        Ok(Some(header))
    }

    /// One block of zeros ends an archive for some readers and not for others; two do for all.
    fn check_end(&mut self) -> Result<(), ArchiveError> {
        self.has_ended = true;
        match self.read_block()? {
            Some(block) if block.iter().any(|byte| *byte != 0) => {
                Err(ArchiveError::Ambiguous("a lone block of zeros"))
            }
            _ => Ok(()),
        }
    }

    fn entry(
        &mut self,
        header: &Header,
        mut extensions: Extensions,
    ) -> Result<Entry, ArchiveError> {
        if let Some(size) = extensions.size {
            // The extension is the truth for how far the next header is, too.
            self.expect_data(size);
        }
        let name = match extensions.name.take() {
            Some(name) => name,
            None => header.name()?,
        };
        let kind = header.kind(&name, extensions.target.as_deref())?;
        if self.data > 0 && kind != EntryKind::File {
            return Err(ArchiveError::Ambiguous("an entry that has no data says it has some"));
        }
        if name.is_empty() {
            return Err(ArchiveError::NoName);
        }
        let entry = Entry {
            name,
            kind,
            mode: header.mode()?,
            uid: extensions.uid.map_or_else(|| header.uid(), Ok)?,
            gid: extensions.gid.map_or_else(|| header.gid(), Ok)?,
            modified: extensions.modified.map_or_else(|| header.modified(), Ok)?,
            size: self.data,
            xattrs: extensions.xattrs,
        };
        self.check_lengths(&entry)?;
        Ok(entry)
    }

    fn check_lengths(&self, entry: &Entry) -> Result<(), ArchiveError> {
        let target = match &entry.kind {
            EntryKind::HardLink { target } | EntryKind::SymbolicLink { target } => target.len(),
            _ => 0,
        };
        let limit = self.bounds.name;
        for (what, length) in [("name", entry.name.len()), ("target", target)] {
            if length as u64 > limit {
                return Err(ArchiveError::TooLong { what, limit });
            }
        }
        Ok(())
    }

    fn expect_data(&mut self, size: u64) {
        self.data = size;
        self.padding = size.wrapping_neg() % BLOCK as u64;
    }

    fn read_extension(&mut self) -> Result<Vec<u8>, ArchiveError> {
        self.read_bounded("extended header", self.bounds.extension)
    }

    /// Long names of GNU's form end with a zero byte.
    fn read_text(&mut self, what: &'static str, limit: u64) -> Result<Vec<u8>, ArchiveError> {
        let mut text = self.read_bounded(what, limit + 1)?;
        if text.last() == Some(&0) {
            text.pop();
        }
        if text.contains(&0) {
            return Err(ArchiveError::Ambiguous("a zero byte in a long name"));
        }
        Ok(text)
    }

    fn read_bounded(&mut self, what: &'static str, limit: u64) -> Result<Vec<u8>, ArchiveError> {
        if self.data > limit {
            return Err(ArchiveError::TooLong { what, limit });
        }
        let size = self.data;
        let mut bytes = Vec::new();
        self.take(size).read_to_end(&mut bytes).map_err(ArchiveError::Read)?;
        if (bytes.len() as u64) < size {
            return Err(ArchiveError::Truncated);
        }
        self.check_padding()?;
        Ok(bytes)
    }

    /// Some readers go by whole blocks and would find more in them than the size says.
    fn check_padding(&mut self) -> Result<(), ArchiveError> {
        let mut rest = Vec::new();
        let mut padding = (&mut self.inner).take(self.padding);
        padding.read_to_end(&mut rest).map_err(ArchiveError::Read)?;
        if (rest.len() as u64) < self.padding {
            return Err(ArchiveError::Truncated);
        }
        self.padding = 0;
        if rest.iter().any(|byte| *byte != 0) {
            return Err(ArchiveError::Ambiguous("an extended header goes on after its end"));
        }
        Ok(())
    }

    fn skip(&mut self) -> Result<(), ArchiveError> {
        let left = self.data.checked_add(self.padding).ok_or(ArchiveError::Number("size"))?;
        let mut rest = (&mut self.inner).take(left);
        let skipped = io::copy(&mut rest, &mut io::sink()).map_err(ArchiveError::Read)?;
        if skipped < left {
            return Err(ArchiveError::Truncated);
        }
        (self.data, self.padding) = (0, 0);
        Ok(())
    }

    fn read_block(&mut self) -> Result<Option<[u8; BLOCK]>, ArchiveError> {
        let mut block = Vec::with_capacity(BLOCK);
        let mut limited = (&mut self.inner).take(BLOCK as u64);
        limited.read_to_end(&mut block).map_err(ArchiveError::Read)?;
        if block.is_empty() {
            return Ok(None);
        }
        block.try_into().map(Some).map_err(|_short| ArchiveError::Truncated)
    }
}

/// Reads the data of the current entry. An archive that ends within it is an error, not an end.
impl<R: Read> Read for Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.data).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let count = self.inner.read(buffer.get_mut(..most).unwrap_or_default())?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.data -= count as u64;
        Ok(count)
    }
}
