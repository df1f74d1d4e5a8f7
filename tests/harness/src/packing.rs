//! Packs archives byte by byte, so that they can be wrong in any way.

pub const BLOCK: usize = 512;

/// One entry as it will stand in the archive.
#[derive(Debug, Clone)]
pub struct Item {
    pub name: Vec<u8>,
    pub flag: u8,
    pub data: Vec<u8>,
    pub target: Vec<u8>,
    pub mode: u64,
    pub uid: u64,
    pub gid: u64,
    pub mtime: i64,
    /// What the header says, if that is not the length of the data.
    pub size: Option<u64>,
}

pub fn item(flag: u8, name: impl AsRef<[u8]>) -> Item {
    let mode = if flag == b'5' { 0o755 } else { 0o644 };
    let name = name.as_ref().to_vec();
    let (data, target) = (Vec::new(), Vec::new());
    Item { name, flag, data, target, mode, uid: 0, gid: 0, mtime: 1_700_000_000, size: None }
}

pub fn file(name: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Item {
    Item { data: data.as_ref().to_vec(), ..item(b'0', name) }
}

pub fn directory(name: impl AsRef<[u8]>) -> Item {
    item(b'5', name)
}

pub fn symbolic(name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Item {
    Item { target: target.as_ref().to_vec(), ..item(b'2', name) }
}

pub fn hard(name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Item {
    Item { target: target.as_ref().to_vec(), ..item(b'1', name) }
}

/// An extended header for the next entry.
pub fn extended(records: &[(&str, &[u8])]) -> Item {
    Item {
        data: records.iter().flat_map(|(key, value)| record(key, value)).collect(),
        ..item(b'x', "x")
    }
}

/// The long form of the next name (`L`) or target (`K`).
pub fn long(flag: u8, text: impl AsRef<[u8]>) -> Item {
    Item { data: [text.as_ref(), b"\0"].concat(), ..item(flag, "././@LongLink") }
}

pub fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
    let mut length = rest.len();
    while length != rest.len() + length.to_string().len() {
        length = rest.len() + length.to_string().len();
    }
    [length.to_string().as_bytes(), &rest].concat()
}

/// Returns a whole archive with its end.
pub fn pack(items: &[Item]) -> Vec<u8> {
    let mut bytes: Vec<u8> = items.iter().flat_map(Item::bytes).collect();
    bytes.extend([0; 2 * BLOCK]);
    bytes
}

impl Item {
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.header().to_vec();
        bytes.extend(&self.data);
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        bytes
    }

    fn header(&self) -> [u8; BLOCK] {
        let mut header = [0; BLOCK];
        put(&mut header, 0, 100, &self.name);
        put(&mut header, 100, 8, &number(self.mode.cast_signed(), 8));
        put(&mut header, 108, 8, &number(self.uid.cast_signed(), 8));
        put(&mut header, 116, 8, &number(self.gid.cast_signed(), 8));
        let size = self.size.unwrap_or(self.data.len() as u64);
        put(&mut header, 124, 12, &number(size.cast_signed(), 12));
        put(&mut header, 136, 12, &number(self.mtime, 12));
        header[156] = self.flag;
        put(&mut header, 157, 100, &self.target);
        put(&mut header, 257, 8, b"ustar\x0000");
        seal(&mut header);
        header
    }
}

/// Writes the right checksum.
pub fn seal(header: &mut [u8]) {
    put(header, 148, 8, b"        ");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    put(header, 148, 8, format!("{sum:06o}\0 ").as_bytes());
}

fn put(header: &mut [u8], start: usize, length: usize, bytes: &[u8]) {
    let count = bytes.len().min(length);
    header[start..start + count].copy_from_slice(&bytes[..count]);
}

/// Octal where it fits, else the binary form.
fn number(value: i64, length: usize) -> Vec<u8> {
    let digits = format!("{value:0width$o}", width = length - 1);
    if value >= 0 && digits.len() < length {
        return digits.into_bytes();
    }
    let mut field = vec![if value < 0 { 0xff } else { 0 }; length];
    let bytes = value.to_be_bytes();
    let count = bytes.len().min(length);
    field[length - count..].copy_from_slice(&bytes[bytes.len() - count..]);
    field[0] = if value < 0 { 0xff } else { 0x80 };
    field
}
