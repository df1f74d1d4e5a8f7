//! Keys of the server itself: 32 random bytes in a file of the data directory that nobody else can
//! read, made at the first start.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use rustix::rand::{GetRandomFlags, getrandom};

/// The file of a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("cannot use the key in {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("others can read {path}: chmod 600 it")]
    TooOpen { path: PathBuf },
    #[error("{path} does not hold a key: restore it, or remove it, {without_it}")]
    Malformed { path: PathBuf, without_it: &'static str },
}

pub(crate) const LENGTH: usize = 32;

/// Reads a key; at the first start it is made up. `without_it` says what becomes of the server's
/// things if the file is removed.
pub(crate) fn open(path: &Path, without_it: &'static str) -> Result<[u8; LENGTH], KeyFileError> {
    let malformed = |_length| KeyFileError::Malformed { path: path.to_owned(), without_it };
    <[u8; LENGTH]>::try_from(open_bytes(path)?).map_err(malformed)
}

/// Reads what the file of a key holds; at the first start that is made up.
pub(crate) fn open_bytes(path: &Path) -> Result<Vec<u8>, KeyFileError> {
    let failed = |source| KeyFileError::File { path: path.to_owned(), source };
    let key = match read(path) {
        Ok(key) => key,
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(path).map_err(failed)?,
        Err(error) => return Err(failed(error)),
    };
    let is_open_to_others = path.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0;
    if is_open_to_others {
        return Err(KeyFileError::TooOpen { path: path.to_owned() });
    }
    Ok(key)
}

/// Has the file of a key hold this, as a whole or not at all.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), KeyFileError> {
    write(path, bytes).map_err(|source| KeyFileError::File { path: path.to_owned(), source })
}

/// Does the same, and overwrites what the file held before.
pub(crate) fn replace_and_erase(path: &Path, bytes: &[u8]) -> Result<(), KeyFileError> {
    let replace = || {
        write_unfinished(path, bytes)?;
        erase(path)?;
        finish(path)
    };
    replace().map_err(|source| KeyFileError::File { path: path.to_owned(), source })
}

/// Overwrites a file with zeros. A file system may keep copies that this does not reach.
pub(crate) fn erase(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    let length = usize::try_from(file.metadata()?.len()).unwrap_or_default();
    file.write_all(&vec![0; length])?;
    file.sync_all()
}

/// Reads a file that [`replace_and_erase`] writes, if it is there. A replacement that a crash interrupted is completed.
pub(crate) fn read_or_recover(path: &Path) -> Result<Option<Vec<u8>>, KeyFileError> {
    let recover = || match read(path) {
        Ok(bytes) if bytes.iter().all(|byte| *byte == 0) && unfinished(path).exists() => {
            finish(path)?;
            read(path).map(Some)
        }
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    recover().map_err(|source| KeyFileError::File { path: path.to_owned(), source })
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut key = Vec::new();
    File::open(path)?.take(1024).read_to_end(&mut key)?;
    Ok(key)
}

/// Makes a key and has it on disk.
fn make(path: &Path) -> io::Result<Vec<u8>> {
    let key = random()?;
    write(path, &key)?;
    Ok(key.to_vec())
}

/// Returns a new key.
pub(crate) fn random() -> io::Result<[u8; LENGTH]> {
    let mut key = [0; LENGTH];
    if getrandom(&mut key, GetRandomFlags::empty())? != LENGTH {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(key)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_unfinished(path, bytes)?;
    finish(path)
}

fn unfinished(path: &Path) -> PathBuf {
    path.with_extension("key.new")
}

fn write_unfinished(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(unfinished(path))?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn finish(path: &Path) -> io::Result<()> {
    fs::rename(unfinished(path), path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_same_at_every_start_and_its_own_in_every_file() {
        let data = tempfile::tempdir().unwrap();
        let read = |name: &str| open(&data.path().join(name), "").unwrap();
        assert_eq!(read("a.key"), read("a.key"));
        assert_ne!(read("a.key"), read("b.key"));
        let mode = data.path().join("a.key").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_key_that_is_cut_or_open_to_others_is_refused() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("a.key");
        open(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(open(&path, ""), Err(KeyFileError::TooOpen { .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "short").unwrap();
        let refused = open(&path, "and all ends").unwrap_err();
        assert!(matches!(refused, KeyFileError::Malformed { .. }));
        assert!(refused.to_string().ends_with("or remove it, and all ends"), "{refused}");
    }
}
