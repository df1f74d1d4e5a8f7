//! Files, as they are shown.

use api::files::FileShown;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use engine::sandboxes::files::Place;
use model::file::{FileKind, FileStat, FileTime};

/// Shows a file that has this path.
pub(super) fn file(path: &[u8], kind: FileKind, stat: Option<&FileStat>) -> FileShown {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    FileShown {
        path: text(path),
        name: text(name),
        name_b64: encoded(name),
        kind: kind.name().to_owned(),
        is_dir: kind == FileKind::Directory,
        size: stat.map(|stat| stat.size),
        mode: stat.map(|stat| format!("{:04o}", stat.mode)),
        uid: stat.map(|stat| stat.user),
        gid: stat.map(|stat| stat.group),
        modified_at: stat.map(|stat| time(stat.modified)),
        etag: stat.map(|stat| format!("\"{}\"", stat.tag)),
    }
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the bytes themselves where text cannot say what they are.
pub(super) fn encoded(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).is_err().then(|| STANDARD.encode(bytes))
}

pub(super) fn time(time: FileTime) -> String {
    let nanos = i32::try_from(time.nanos).unwrap_or_default();
    let time = jiff::Timestamp::new(time.seconds, nanos).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}

/// Returns a path from the root. What is nothing below a place is the place itself.
pub(super) fn whole(place: &Place, below: &[u8]) -> Vec<u8> {
    let path = place.path().as_bytes();
    if below.is_empty() {
        return path.to_vec();
    }
    let folder = path.strip_suffix(b"/").unwrap_or(path);
    [folder, b"/", below].concat()
}
