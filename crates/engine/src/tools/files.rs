//! Files of sessions, on this server's disk: uploaded once, given to every step.
//!
//! Each session has a folder with one file per upload and a manifest that names them. The manifest is replaced
//! in one step, so a session has the old files or the new ones, never some of each.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use model::tool::ids::ToolId;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use store::tools::SessionKey;

const MANIFEST: &str = "manifest.json";

/// A file that a user uploads. Clones share its content.
#[derive(Clone, PartialEq, Eq)]
pub struct Upload {
    pub name: String,
    pub bytes: Arc<[u8]>,
}

/// Uploads are the user's: their content never appears in a log line.
impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upload").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

/// A file of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionFile {
    pub name: String,
    pub bytes: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Manifest {
    /// The number in the names of the files, so that new ones do not overwrite those that are in use.
    generation: u64,
    files: Vec<SessionFile>,
}

/// The folder of all sessions.
#[derive(Clone, Debug)]
pub(super) struct SessionFiles {
    folder: PathBuf,
    /// Held while files are read or replaced. Sessions share locks by the first byte of their names.
    locks: Arc<[Mutex<()>; LOCKS]>,
}

const LOCKS: usize = 32;

impl SessionFiles {
    pub(super) fn open(folder: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        Ok(Self { folder, locks: Arc::new(std::array::from_fn(|_| Mutex::default())) })
    }

    pub(super) async fn list(&self, key: &SessionKey) -> io::Result<Vec<SessionFile>> {
        let folder = self.of(key).folder;
        blocking(move || Ok(read_manifest(&folder)?.unwrap_or_default().files)).await
    }

    /// Returns the files with their content. This counts as a use of them.
    pub(super) async fn read(&self, key: &SessionKey) -> io::Result<Vec<Upload>> {
        let session = self.of(key);
        blocking(move || {
            let _held = session.lock();
            let folder = &session.folder;
            let Some(manifest) = read_manifest(folder)? else { return Ok(Vec::new()) };
            let mut files = Vec::new();
            for (index, file) in manifest.files.iter().enumerate() {
                let bytes = fs::read(folder.join(blob(manifest.generation, index)))?;
                files.push(Upload { name: file.name.clone(), bytes: bytes.into() });
            }
            write_manifest(folder, &manifest)?;
            Ok(files)
        })
        .await
    }

    /// Replaces the files of a session.
    pub(super) async fn replace(&self, key: &SessionKey, files: Vec<Upload>) -> io::Result<()> {
        let session = self.of(key);
        blocking(move || {
            let _held = session.lock();
            let folder = &session.folder;
            let generation = read_manifest(folder)?.map_or(1, |old| old.generation + 1);
            fs::create_dir_all(folder)?;
            for (index, file) in files.iter().enumerate() {
                fs::write(folder.join(blob(generation, index)), &file.bytes)?;
            }
            let bytes = |file: &Upload| u64::try_from(file.bytes.len()).unwrap_or(u64::MAX);
            let files = files
                .iter()
                .map(|file| SessionFile { name: file.name.clone(), bytes: bytes(file) });
            write_manifest(folder, &Manifest { generation, files: files.collect() })?;
            remove_other_generations(folder, generation)
        })
        .await
    }

    /// Removes the files of all sessions with a tool.
    pub(super) async fn remove_tool(&self, tool: &ToolId) -> io::Result<()> {
        let folder = self.folder.join(tool.as_str());
        blocking(move || or_missing(fs::remove_dir_all(folder))).await
    }

    /// Removes files that were not used for so long.
    pub(super) async fn forget(&self, unused: Duration) -> io::Result<()> {
        let (folder, locks) = (self.folder.clone(), Arc::clone(&self.locks));
        blocking(move || {
            for tool in folders_in(&folder)? {
                for folder in folders_in(&tool)? {
                    let session = SessionFolder { folder, locks: Arc::clone(&locks) };
                    session.forget(unused)?;
                }
            }
            Ok(())
        })
        .await
    }

    fn of(&self, key: &SessionKey) -> SessionFolder {
        let mut hash = Sha256::new();
        hash.update(key.user.as_bytes());
        hash.update([0]);
        hash.update(key.context.as_str().as_bytes());
        let name: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let folder = self.folder.join(key.tool.as_str()).join(name);
        SessionFolder { folder, locks: Arc::clone(&self.locks) }
    }
}

/// The folder of one session.
struct SessionFolder {
    folder: PathBuf,
    locks: Arc<[Mutex<()>; LOCKS]>,
}

impl SessionFolder {
    fn lock(&self) -> Option<std::sync::MutexGuard<'_, ()>> {
        let name = self.folder.file_name().unwrap_or_default().to_string_lossy();
        let first = name.get(..2).and_then(|digits| usize::from_str_radix(digits, 16).ok());
        let lock = self.locks.get(first.unwrap_or_default() % LOCKS)?;
        // The lock guards no data, so a poisoned one is as good as any.
        Some(lock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Removes the files if they were not used for so long; also those of an upload that was never finished.
    fn forget(&self, unused: Duration) -> io::Result<()> {
        let _held = self.lock();
        let manifest = fs::metadata(self.folder.join(MANIFEST));
        let last_use = manifest.or_else(|_missing| fs::metadata(&self.folder))?.modified()?;
        if last_use.elapsed().is_ok_and(|age| age > unused) {
            or_missing(fs::remove_dir_all(&self.folder))?;
        }
        Ok(())
    }
}

/// Lists the folders in a folder; nothing if it is gone.
fn folders_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    entries.map(|entry| Ok(entry?.path())).collect()
}

fn blob(generation: u64, index: usize) -> String {
    format!("{generation}-{index}")
}

fn read_manifest(folder: &Path) -> io::Result<Option<Manifest>> {
    match fs::read(folder.join(MANIFEST)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn write_manifest(folder: &Path, manifest: &Manifest) -> io::Result<()> {
    let new = folder.join("manifest.new");
    let mut file = File::create(&new)?;
    file.write_all(&serde_json::to_vec(manifest)?)?;
    file.sync_all()?;
    fs::rename(new, folder.join(MANIFEST))
}

fn remove_other_generations(folder: &Path, generation: u64) -> io::Result<()> {
    let kept = format!("{generation}-");
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != MANIFEST && !name.to_string_lossy().starts_with(&kept) {
            or_missing(fs::remove_file(entry.path()))?;
        }
    }
    Ok(())
}

pub(super) fn or_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Works on the disk without holding up other tasks.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use model::tool::session::Context;

    use super::*;

    fn key(user: &str, context: &str) -> SessionKey {
        let tool = ToolId::from_random([1; 16]);
        SessionKey { tool, user: user.to_owned(), context: context.parse::<Context>().unwrap() }
    }

    fn upload(name: &str, content: &str) -> Upload {
        Upload { name: name.to_owned(), bytes: content.as_bytes().into() }
    }

    #[tokio::test]
    async fn files_of_a_session_are_replaced_together_and_are_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let files = SessionFiles::open(folder.path().join("files")).unwrap();
        let (ada, bob) = (key("ada", "default"), key("bob", "default"));
        assert_eq!(files.read(&ada).await.unwrap(), []);
        let first =
            vec![upload("meta.json", "{}"), upload("manifest.json", "x"), upload("1-0", "y")];
        files.replace(&ada, first.clone()).await.unwrap();
        assert_eq!(files.read(&ada).await.unwrap(), first);
        assert_eq!(files.read(&bob).await.unwrap(), []);
        assert_eq!(
            files.list(&ada).await.unwrap()[1],
            SessionFile { name: "manifest.json".to_owned(), bytes: 1 }
        );
        let second = vec![upload("a", "2")];
        files.replace(&ada, second.clone()).await.unwrap();
        assert_eq!(files.read(&ada).await.unwrap(), second);
        let left = fs::read_dir(files.of(&ada).folder).unwrap().count();
        assert_eq!(left, 2, "the manifest and one file");
        files.forget(Duration::from_hours(1)).await.unwrap();
        assert_eq!(files.read(&ada).await.unwrap(), second);
        files.forget(Duration::ZERO).await.unwrap();
        assert_eq!(files.read(&ada).await.unwrap(), []);
        // An upload that was cut off before its manifest is forgotten as well.
        fs::create_dir_all(files.of(&ada).folder.join("x")).unwrap();
        files.forget(Duration::ZERO).await.unwrap();
        assert!(!files.of(&ada).folder.exists());
        files.replace(&bob, second).await.unwrap();
        files.remove_tool(&bob.tool).await.unwrap();
        files.remove_tool(&bob.tool).await.unwrap();
        assert_eq!(files.read(&bob).await.unwrap(), []);
    }
    #[tokio::test]
    async fn files_that_are_replaced_at_once_are_never_mixed() {
        let folder = tempfile::tempdir().unwrap();
        let files = SessionFiles::open(folder.path().join("files")).unwrap();
        let key = key("ada", "default");
        let set = |number: usize| -> Vec<Upload> {
            (0..5).map(|index| upload(&index.to_string(), &number.to_string())).collect()
        };
        let replaces = (0..20).map(|number| files.replace(&key, set(number)));
        let reads = (0..20).map(|_| files.read(&key));
        let (replaced, read) = tokio::join!(
            futures_util::future::join_all(replaces),
            futures_util::future::join_all(reads)
        );
        assert!(replaced.iter().all(Result::is_ok));
        for found in read.into_iter().map(Result::unwrap).chain([files.read(&key).await.unwrap()]) {
            assert!(found.is_empty() || (0..20).any(|number| found == set(number)), "{found:?}");
        }
    }
}
