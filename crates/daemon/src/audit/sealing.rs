//! Seals the audit log at intervals and exports each checkpoint.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use model::units::Timestamp;
use store::{
    Store, StoreError,
    audit::{Link, Order, Part},
};

use super::seal::{EpochKey, Seal, VerificationKey, from_hex, to_hex};
use crate::{
    clock,
    key_file::{self, KeyFileError},
};

/// The key of the current epoch, below the data directory.
const SEALING_KEY: &str = "audit-seal.key";
/// The verification key, until the operator takes it away.
const VERIFICATION_KEY: &str = "audit-verification.key";
const FIRST_LINE: &str = "ringfence audit sealing key";

/// When the log is sealed, and where checkpoints go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealSettings {
    pub interval: Duration,
    /// A file to which each checkpoint is appended.
    pub checkpoints: Option<PathBuf>,
}

/// The log could not be sealed.
#[derive(Debug, thiserror::Error)]
enum SealError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Key(#[from] KeyFileError),
    #[error("cannot append a checkpoint to {path}")]
    Export { path: PathBuf, source: io::Error },
}

/// Seals the log of one server.
#[derive(Debug)]
pub struct Sealer {
    settings: SealSettings,
    path: PathBuf,
    key: EpochKey,
}

impl Sealer {
    /// Reads the sealing key; at the first start it is made, with the verification key beside it.
    pub fn open(data: &Path, settings: SealSettings) -> Result<Self, KeyFileError> {
        let path = data.join(SEALING_KEY);
        let key = match read(&path)? {
            Some(key) => key,
            None => make(data, &path)?,
        };
        Ok(Self { settings, path, key })
    }

    pub(super) fn interval(&self) -> Duration {
        self.settings.interval
    }

    /// Seals what was recorded since the last seal. Failures are logged: the next seal covers the same records.
    pub(super) async fn seal(&mut self, store: &Store) {
        match self.try_seal(store, clock::timestamp()).await {
            Ok(Some(checkpoint)) => {
                tracing::info!(%checkpoint, "the audit log is sealed");
            }
            Ok(None) => {}
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::error!(error, "cannot seal the audit log");
            }
        }
    }

    async fn try_seal(&mut self, store: &Store, now: Timestamp) -> Result<Option<Link>, SealError> {
        let last = Part { order: Order::NewestFirst, beyond: None, limit: 1 };
        match store.audit(last).await?.first() {
            Some(record) if !Seal::is_one(record) => {}
            Some(_) | None => return Ok(None),
        }
        let checkpoint = store.audit_end().await?;
        store.record(vec![self.key.seal(&checkpoint, now)]).await?;
        // Only now: a key that is gone before its seal is on disk would leave a gap.
        let next = self.key.next();
        key_file::replace_and_erase(&self.path, text_of(&next).as_bytes())?;
        self.key = next;
        self.export(&checkpoint, now)?;
        Ok(Some(checkpoint))
    }

    fn export(&self, checkpoint: &Link, now: Timestamp) -> Result<(), SealError> {
        let Some(path) = &self.settings.checkpoints else { return Ok(()) };
        let line = format!("{} {checkpoint}\n", clock::text_of_millis(now.as_millis()));
        let append = || {
            let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
            file.write_all(line.as_bytes())?;
            file.sync_all()
        };
        append().map_err(|source| SealError::Export { path: path.clone(), source })
    }
}

/// Returns the verification key and removes it from this machine.
pub fn take_verification_key(data: &Path) -> io::Result<Option<String>> {
    let path = data.join(VERIFICATION_KEY);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    key_file::erase(&path)?;
    fs::remove_file(&path)?;
    File::open(data)?.sync_all()?;
    Ok(Some(text.trim().to_owned()))
}

fn make(data: &Path, path: &Path) -> Result<EpochKey, KeyFileError> {
    let bytes = key_file::random()
        .map_err(|source| KeyFileError::File { path: path.to_owned(), source })?;
    let verification = VerificationKey::new(bytes);
    // First, because seals that nothing can verify are worth nothing.
    key_file::replace(
        &data.join(VERIFICATION_KEY),
        format!("{}\n", verification.text()).as_bytes(),
    )?;
    let key = verification.first_epoch();
    key_file::replace(path, text_of(&key).as_bytes())?;
    Ok(key)
}

/// Reads the file of the sealing key, if it is there.
fn read(path: &Path) -> Result<Option<EpochKey>, KeyFileError> {
    let Some(bytes) = key_file::read_or_recover(path)? else { return Ok(None) };
    let without_it = "which starts a new sealing key with a verification key of its own";
    let malformed = || KeyFileError::Malformed { path: path.to_owned(), without_it };
    let text = str::from_utf8(&bytes).map_err(|_not_text| malformed())?;
    key_of(text).map(Some).ok_or_else(malformed)
}

fn text_of(key: &EpochKey) -> String {
    format!("{FIRST_LINE}\n{} {} {}\n", key.id, key.epoch, to_hex(&key.key))
}

fn key_of(text: &str) -> Option<EpochKey> {
    let line = text.strip_prefix(FIRST_LINE)?.trim();
    let mut words = line.split(' ');
    let (id, epoch, key) = (words.next()?, words.next()?, words.next()?);
    Some(EpochKey { id: id.to_owned(), epoch: epoch.parse().ok()?, key: from_hex(key)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(data: &Path) -> Sealer {
        let interval = Duration::from_mins(5);
        Sealer::open(data, SealSettings { interval, checkpoints: None }).unwrap()
    }

    #[test]
    fn the_sealing_key_continues_after_a_restart_and_the_verification_key_is_taken_once() {
        let data = tempfile::tempdir().unwrap();
        let first = open(data.path()).key;
        assert_eq!(open(data.path()).key, first);
        let taken = take_verification_key(data.path()).unwrap().unwrap();
        let verification: VerificationKey = taken.parse().unwrap();
        assert_eq!(verification.first_epoch(), first);
        assert_eq!(take_verification_key(data.path()).unwrap(), None);
        assert_eq!(open(data.path()).key, first);
        assert!(!data.path().join(VERIFICATION_KEY).exists());
    }

    #[test]
    fn after_a_crash_while_a_key_was_replaced_the_new_key_is_used() {
        let data = tempfile::tempdir().unwrap();
        let mut sealer = open(data.path());
        let next = sealer.key.next();
        fs::write(sealer.path.with_extension("key.new"), text_of(&next)).unwrap();
        key_file::erase(&sealer.path).unwrap();
        sealer = open(data.path());
        assert_eq!(sealer.key, next);
        assert!(!sealer.path.with_extension("key.new").exists());
    }

    #[tokio::test]
    async fn an_old_key_is_not_on_disk_after_a_seal_and_an_unchanged_log_is_not_sealed_again() {
        let data = tempfile::tempdir().unwrap();
        let store = Store::open(&data.path().join("s.db")).unwrap();
        let entry = |action| {
            model::audit::Entry::new(clock::timestamp(), action, model::audit::Outcome::Granted)
        };
        store.record(vec![entry(model::audit::Action::KeyCreate)]).await.unwrap();
        let checkpoints = data.path().join("checkpoints");
        let mut sealer = open(data.path());
        sealer.settings.checkpoints = Some(checkpoints.clone());
        let old = to_hex(&sealer.key.key);
        sealer.seal(&store).await;
        sealer.seal(&store).await;
        assert_eq!(sealer.key.epoch, 1);
        let kept = fs::read_to_string(&sealer.path).unwrap();
        assert!(!kept.contains(&old) && kept.contains(&to_hex(&sealer.key.key)));
        let exported = fs::read_to_string(&checkpoints).unwrap();
        assert_eq!(exported.lines().count(), 1, "{exported}");
        store.record(vec![entry(model::audit::Action::KeyRevoke)]).await.unwrap();
        sealer.seal(&store).await;
        assert_eq!(fs::read_to_string(&checkpoints).unwrap().lines().count(), 2);
    }
}
