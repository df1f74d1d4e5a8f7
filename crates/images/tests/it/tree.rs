//! What is in a directory, as values that can be compared, and a place to unpack into.

use std::{
    fs,
    os::{
        fd::AsFd as _,
        unix::fs::{FileTypeExt as _, MetadataExt as _},
    },
    path::Path,
};

use images::unpack::{Limits, Owners, Report, Rules, Whiteouts, error::UnpackError, unpack};

/// One line for each thing below a directory: path, kind, mode, owner, content.
pub(crate) fn listing(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let line = describe(&path);
            lines.push(format!("{} {line}", path.strip_prefix(root).unwrap().display()));
            if line.starts_with("directory") {
                waiting.push(path);
            }
        }
    }
    lines.sort();
    lines
}

fn describe(path: &Path) -> String {
    let data = fs::symlink_metadata(path).unwrap();
    let kind = data.file_type();
    let mode = data.mode() & 0o7777;
    if kind.is_dir() {
        format!("directory {mode:o}")
    } else if kind.is_symlink() {
        format!("link {}", fs::read_link(path).unwrap().display())
    } else if kind.is_file() {
        let content = fs::read(path).unwrap();
        format!("file {mode:o} {} {}", data.nlink(), content.escape_ascii())
    } else if kind.is_char_device() {
        format!("device {}", data.rdev())
    } else {
        format!("special {kind:?}")
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Real root keeps owners and writes the trusted form; anybody else can do neither.
pub(crate) fn rules() -> Rules {
    let limits = Limits::default();
    if is_root() {
        Rules { limits, whiteouts: Whiteouts::Trusted, owners: Owners::Kept { below: 65_536 } }
    } else {
        Rules { limits, whiteouts: Whiteouts::User, owners: Owners::Caller }
    }
}

pub(crate) fn unpack_to(
    archive: &[u8],
    target: &Path,
    rules: &Rules,
) -> Result<Report, UnpackError> {
    let folder = fs::File::open(target).unwrap();
    unpack(archive, folder.as_fd(), rules)
}

/// Returns the error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}
