//! The fixed Huffman code of RFC 7541, appendix B. It is canonical: symbols of one length are
//! numbered in order, so that the lengths say everything.

use super::HpackError;

/// How many bits each byte has, then the mark of the end.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

const LONGEST: usize = 30;
const END: u16 = 256;

/// Symbols by length and then by value: the order in which they are numbered.
const SORTED: [u16; 257] = sorted();
/// How many symbols have each length.
const COUNTS: [u32; LONGEST + 1] = counts();

const fn counts() -> [u32; LONGEST + 1] {
    let mut counts = [0; LONGEST + 1];
    let mut symbol = 0;
    while symbol < LENGTHS.len() {
        counts[LENGTHS[symbol] as usize] += 1;
        symbol += 1;
    }
    counts
}

const fn sorted() -> [u16; 257] {
    let mut sorted = [0; 257];
    let (mut place, mut length) = (0, 1);
    while length <= LONGEST {
        let mut symbol: u16 = 0;
        while symbol <= END {
            if LENGTHS[symbol as usize] as usize == length {
                sorted[place] = symbol;
                place += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    sorted
}

/// Where the reading of one symbol stands.
#[derive(Default)]
struct Walk {
    code: u32,
    length: usize,
    /// The first code of this length, and its place among all symbols.
    first: u32,
    place: u32,
}

impl Walk {
    /// Takes one bit; returns the symbol that it completes.
    fn step(&mut self, bit: u32) -> Option<u16> {
        self.first = (self.first + COUNTS[self.length]) << 1;
        self.place += COUNTS[self.length];
        self.code = (self.code << 1) | bit;
        self.length += 1;
        let place = self.code.checked_sub(self.first).filter(|it| *it < COUNTS[self.length])?;
        SORTED.get(usize::try_from(self.place + place).ok()?).copied()
    }

    /// The end is padded with the first bits of the mark, which are ones, and never with a byte
    /// of them.
    fn is_padding(&self) -> bool {
        self.length < 8 && self.code == (1 << self.length) - 1
    }
}

/// Appends the decoded text, at most `room` bytes.
pub(super) fn decode(text: &[u8], room: usize, out: &mut Vec<u8>) -> Result<(), HpackError> {
    let full = out.len().saturating_add(room);
    let mut walk = Walk::default();
    for byte in text {
        for shift in (0..8).rev() {
            let Some(symbol) = walk.step(u32::from((byte >> shift) & 1)) else { continue };
            let byte = u8::try_from(symbol).map_err(|_end| HpackError::Huffman)?;
            if out.len() == full {
                return Err(HpackError::TooLarge);
            }
            out.push(byte);
            walk = Walk::default();
        }
    }
    if walk.is_padding() { Ok(()) } else { Err(HpackError::Huffman) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Result<Vec<u8>, HpackError> {
        let mut out = Vec::new();
        decode(text, 1000, &mut out).map(|()| out)
    }

    /// Writes a text by the numbers that the lengths imply.
    fn encode(text: &[u8]) -> Vec<u8> {
        let (mut bits, mut used) = (Vec::new(), 0);
        for byte in text {
            let (code, length) = code_of(u16::from(*byte));
            for shift in (0..length).rev() {
                if used % 8 == 0 {
                    bits.push(0_u8);
                }
                let last = bits.last_mut().unwrap();
                *last |= u8::try_from((code >> shift) & 1).unwrap() << (7 - used % 8);
                used += 1;
            }
        }
        if used % 8 != 0 {
            *bits.last_mut().unwrap() |= (1 << (8 - used % 8)) - 1;
        }
        bits
    }

    fn code_of(wanted: u16) -> (u32, u32) {
        let (mut code, mut length) = (0, 0);
        for symbol in SORTED {
            let own = u32::from(LENGTHS[usize::from(symbol)]);
            code <<= own - length;
            length = own;
            if symbol == wanted {
                return (code, length);
            }
            code += 1;
        }
        panic!("no symbol {wanted}");
    }

    #[test]
    fn the_code_is_complete_and_has_the_numbers_of_the_appendix() {
        let kraft: u64 = LENGTHS.iter().map(|length| 1 << (LONGEST - usize::from(*length))).sum();
        assert_eq!(kraft, 1 << LONGEST);
        let rows = [
            (0, (0x1ff8, 13)),
            (10, (0x3fff_fffc, 30)),
            (u16::from(b'0'), (0x0, 5)),
            (u16::from(b'a'), (0x3, 5)),
            (u16::from(b'z'), (0x7b, 7)),
            (u16::from(b'%'), (0x15, 6)),
            (127, (0x0fff_fffc, 28)),
            (255, (0x03ff_ffee, 26)),
            (END, (0x3fff_ffff, 30)),
        ];
        for (symbol, expected) in rows {
            assert_eq!(code_of(symbol), expected, "{symbol}");
        }
    }

    #[test]
    fn every_byte_is_read_as_it_is_written() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(read(&encode(&all)), Ok(all));
    }

    #[test]
    fn bad_padding_the_end_mark_and_too_long_a_text_are_refused() {
        assert_eq!(read(&[0xff]), Err(HpackError::Huffman));
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff]), Err(HpackError::Huffman));
        // `0` is five zeros; the rest must be ones.
        assert_eq!(read(&[0b0000_0111]), Ok(b"0".to_vec()));
        assert_eq!(read(&[0b0000_0110]), Err(HpackError::Huffman));
        assert_eq!(decode(&encode(b"abc"), 2, &mut Vec::new()), Err(HpackError::TooLarge));
    }
}
