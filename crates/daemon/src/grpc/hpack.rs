//! Reads header blocks of HTTP/2 (RFC 7541), strictly and within bounds, and writes them in the
//! plainest form.
//!
//! It is here for [`crate::grpc::authority`] alone. The crates that do this either keep their
//! decoder to themselves or are no longer kept, with a known panic.

mod huffman;
mod table;

use table::{Field, Table};

/// The table that HTTP/2 begins with. We never advertise another.
const TABLE_BYTES: usize = 4096;

/// A block may say each of few bytes' worth what takes thousands when it is written out.
pub(crate) const MAX_DECODED_BYTES: usize = 64 << 10;

/// Why a header block cannot be read. The connection cannot go on after it, because the tables of
/// the two ends differ from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HpackError {
    #[error("a header block ends in the middle of a field")]
    Short,
    #[error("a number in a header block is too large")]
    Number,
    #[error("a header block refers to a field that is in no table")]
    Index,
    #[error("a header block changes the size of the table where or as it must not")]
    Resize,
    #[error("a header block has an ill-formed Huffman text")]
    Huffman,
    #[error("a header block is too large")]
    TooLarge,
}

/// One header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) name: Vec<u8>,
    pub(crate) value: Vec<u8>,
    /// Whether its sender wants nobody to keep it in a table.
    pub(crate) is_sensitive: bool,
}

/// Reads the header blocks of one connection, in their order.
pub(crate) struct Decoder {
    table: Table,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { table: Table::new(TABLE_BYTES) }
    }
}

impl Decoder {
    /// Reads one whole block.
    pub(crate) fn decode(&mut self, block: &[u8]) -> Result<Vec<Header>, HpackError> {
        let mut reader = Reader { rest: block, room: MAX_DECODED_BYTES };
        let mut headers = Vec::new();
        while let Some(first) = reader.rest.first().copied() {
            if first & 0b1110_0000 == 0b0010_0000 {
                // Only the beginning of a block may do this.
                let size = reader.number(5)?;
                if !headers.is_empty() || size > TABLE_BYTES {
                    return Err(HpackError::Resize);
                }
                self.table.set_max(size);
                continue;
            }
            headers.push(self.field(&mut reader, first)?);
        }
        Ok(headers)
    }

    fn field(&mut self, reader: &mut Reader<'_>, first: u8) -> Result<Header, HpackError> {
        if first & 0b1000_0000 != 0 {
            let number = reader.number(7)?;
            let (name, value) = self.table.get(number).ok_or(HpackError::Index)?;
            reader.spend(name.len() + value.len())?;
            return Ok(Header { name: name.into(), value: value.into(), is_sensitive: false });
        }
        let is_indexed = first & 0b0100_0000 != 0;
        let is_sensitive = !is_indexed && first & 0b0001_0000 != 0;
        let (name, value) = self.literal(reader, if is_indexed { 6 } else { 4 })?;
        if is_indexed {
            self.table.insert((name.clone(), value.clone()));
        }
        Ok(Header { name, value, is_sensitive })
    }

    /// Reads a name, as a number or as text, and a value.
    fn literal(&self, reader: &mut Reader<'_>, bits: u32) -> Result<Field, HpackError> {
        let name = match reader.number(bits)? {
            0 => reader.text()?,
            number => {
                let (name, _) = self.table.get(number).ok_or(HpackError::Index)?;
                reader.spend(name.len())?;
                name.to_vec()
            }
        };
        Ok((name, reader.text()?))
    }
}

/// What is left of a block, and how much may still come out of it.
struct Reader<'block> {
    rest: &'block [u8],
    room: usize,
}

impl<'block> Reader<'block> {
    fn byte(&mut self) -> Result<u8, HpackError> {
        let (first, rest) = self.rest.split_first().ok_or(HpackError::Short)?;
        self.rest = rest;
        Ok(*first)
    }

    fn bytes(&mut self, count: usize) -> Result<&'block [u8], HpackError> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(HpackError::Short)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads a number whose beginning is in the low bits of the next byte.
    fn number(&mut self, bits: u32) -> Result<usize, HpackError> {
        let mask = (1_usize << bits) - 1;
        let mut number = usize::from(self.byte()?) & mask;
        if number < mask {
            return Ok(number);
        }
        // Three further bytes say more than any block here has.
        for shift in [0, 7, 14] {
            let byte = self.byte()?;
            number += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(HpackError::Number)
    }

    fn text(&mut self) -> Result<Vec<u8>, HpackError> {
        let is_huffman = self.rest.first().is_some_and(|first| first & 0x80 != 0);
        let length = self.number(7)?;
        let raw = self.bytes(length)?;
        let mut text = Vec::new();
        if is_huffman {
            huffman::decode(raw, self.room, &mut text)?;
        } else {
            text.extend_from_slice(raw);
        }
        self.spend(text.len())?;
        Ok(text)
    }

    fn spend(&mut self, bytes: usize) -> Result<(), HpackError> {
        self.room = self.room.checked_sub(bytes).ok_or(HpackError::TooLarge)?;
        Ok(())
    }
}

/// Appends a header that enters no table, as plain text.
pub(crate) fn encode(header: &Header, out: &mut Vec<u8>) {
    out.push(if header.is_sensitive { 0b0001_0000 } else { 0 });
    for text in [&header.name, &header.value] {
        encode_length(text.len(), out);
        out.extend_from_slice(text);
    }
}

fn encode_length(length: usize, out: &mut Vec<u8>) {
    const MASK: usize = 0x7f;
    let Some(mut rest) = length.checked_sub(MASK) else {
        return out.push(low_bits(length));
    };
    out.push(low_bits(MASK));
    while rest >= 0x80 {
        out.push(low_bits(rest) | 0x80);
        rest >>= 7;
    }
    out.push(low_bits(rest));
}

fn low_bits(number: usize) -> u8 {
    u8::try_from(number & 0x7f).unwrap_or(0x7f)
}

#[cfg(test)]
mod tests;
