//! The screen of a shell as of some byte of its output, in a file: whoever goes on with it need not
//! know what was before.
//!
//! It need not survive the machine, which the shell does not either; so nothing waits for the disk.

use std::{
    collections::HashSet,
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use model::{ids::ExecId, spec::TerminalSize};

use super::keeper::Painting;

/// The first word of the file, which says what follows.
const KIND: &str = "screen-1";

/// The longest file that is read: no screen takes this much.
const MOST: u64 = 16 << 20;

/// Puts a screen in the place of the last one.
pub(super) fn write(folder: &Path, exec: &ExecId, painting: &Painting) -> io::Result<()> {
    let Painting { size, at, lost, text } = painting;
    let TerminalSize { rows, columns } = size;
    let head = format!("{KIND} {at} {rows} {columns} {lost} {}\n", text.len());
    let (path, new) = (path(folder, exec), folder.join(format!("{exec}.new")));
    let open = || OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new);
    let mut file = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            open()?
        }
        opened => opened?,
    };
    file.write_all(head.as_bytes())?;
    file.write_all(text.as_bytes())?;
    fs::rename(new, path)
}

/// Returns the last one. One that is not whole is none.
pub(super) fn read(folder: &Path, exec: &ExecId) -> Option<Painting> {
    let path = path(folder, exec);
    if fs::metadata(&path).ok()?.len() > MOST {
        return None;
    }
    parse(&fs::read_to_string(path).ok()?)
}

fn parse(kept: &str) -> Option<Painting> {
    let (head, text) = kept.split_once('\n')?;
    let mut words = head.split(' ');
    let kind = words.next()?;
    let at = words.next()?.parse().ok()?;
    let (rows, columns) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let lost = words.next()?.parse().ok()?;
    let length: usize = words.next()?.parse().ok()?;
    let size = TerminalSize { rows, columns };
    let is_whole = kind == KIND && length == text.len() && size == size.of_shell();
    is_whole.then(|| Painting { size, at, lost, text: text.to_owned() })
}

/// Removes what there is of a shell that is over.
pub(super) fn remove(folder: &Path, exec: &ExecId) {
    // There need not be any.
    let _ = fs::remove_file(path(folder, exec));
}

/// Removes all but those of these shells.
pub(super) fn tidy(folder: &Path, shells: &HashSet<ExecId>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let exec = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)?.parse().ok());
        if !exec.is_some_and(|exec| shells.contains(&exec)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

const SUFFIX: &str = ".screen";

fn path(folder: &Path, exec: &ExecId) -> PathBuf {
    folder.join(format!("{exec}{SUFFIX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn painting(text: &str) -> Painting {
        let size = TerminalSize { rows: 24, columns: 80 };
        Painting { size, at: 7, lost: 0, text: text.to_owned() }
    }

    #[test]
    fn the_last_screen_is_read_as_it_was_written_and_half_a_screen_is_none() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("screens");
        let (one, other) = (ExecId::from_random([1; 16]), ExecId::from_random([2; 16]));
        assert_eq!(read(&folder, &one), None);
        tidy(&folder, &HashSet::new()).unwrap();
        for text in ["", "\x1bcä\nb", "longer than the one before"] {
            write(&folder, &one, &painting(text)).unwrap();
            assert_eq!(read(&folder, &one), Some(painting(text)));
        }
        let whole = fs::read_to_string(path(&folder, &one)).unwrap();
        for (length, _) in whole.char_indices() {
            assert_eq!(parse(whole.get(..length).unwrap()), None, "{length}");
        }
        write(&folder, &other, &painting("other")).unwrap();
        tidy(&folder, &HashSet::from([other.clone()])).unwrap();
        assert_eq!((read(&folder, &one), read(&folder, &other).is_some()), (None, true));
        remove(&folder, &other);
        assert_eq!(read(&folder, &other), None);
    }
}
