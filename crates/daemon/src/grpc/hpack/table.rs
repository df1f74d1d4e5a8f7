//! The tables of names and values that a header can be a number in.

use std::collections::VecDeque;

/// A name and a value, as bytes.
pub(crate) type Field = (Vec<u8>, Vec<u8>);

/// RFC 7541, appendix A.
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// What an entry costs besides its bytes.
const OVERHEAD: usize = 32;

/// The fields that were sent before, newest first, within a size.
pub(super) struct Table {
    entries: VecDeque<Field>,
    size: usize,
    max: usize,
}

impl Table {
    pub(super) fn new(max: usize) -> Self {
        Self { entries: VecDeque::new(), size: 0, max }
    }

    /// Returns the field of this number, which begins at 1.
    pub(super) fn get(&self, number: usize) -> Option<(&[u8], &[u8])> {
        let place = number.checked_sub(1)?;
        if let Some((name, value)) = STATIC.get(place) {
            return Some((name.as_bytes(), value.as_bytes()));
        }
        let (name, value) = self.entries.get(place - STATIC.len())?;
        Some((name, value))
    }

    /// One that is larger than the table empties it and is not kept.
    pub(super) fn insert(&mut self, field: Field) {
        let size = size_of(&field);
        self.shrink_to(self.max.saturating_sub(size));
        if size <= self.max {
            self.size += size;
            self.entries.push_front(field);
        }
    }

    pub(super) fn set_max(&mut self, max: usize) {
        self.max = max;
        self.shrink_to(max);
    }

    fn shrink_to(&mut self, size: usize) {
        while self.size > size {
            let Some(oldest) = self.entries.pop_back() else { return };
            self.size -= size_of(&oldest);
        }
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.size
    }
}

fn size_of((name, value): &Field) -> usize {
    name.len() + value.len() + OVERHEAD
}
