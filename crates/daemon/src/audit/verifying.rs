//! Checks an export of the audit log: the chain, checkpoints that were kept elsewhere, and seals.

use std::{collections::BTreeMap, io};

use store::audit::{Broken, Chain, Hash, Link, NotALink, Record};

use super::seal::{EpochKey, Seal, VerificationKey};

/// The most epochs that the first seal of a partial export may be away from the verification key. At one seal a minute this is 19 years.
const MAX_EPOCHS: u64 = 10_000_000;

/// What a log is checked against.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// The checkpoint that the export begins after. None: it begins with the first record.
    pub after: Option<String>,
    /// Checkpoints that must be in it.
    pub checkpoints: Vec<String>,
    /// Verification keys of the servers that wrote it. None: seals are not checked.
    pub keys: Vec<VerificationKey>,
}

/// A log that is as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub records: u64,
    /// Where it ends.
    pub checkpoint: String,
    /// The last record that a seal covers, if seals were checked.
    pub sealed: Option<u64>,
}

/// Why an export is not known to be good.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("cannot read the export")]
    Read(#[source] io::Error),
    #[error(transparent)]
    Checkpoint(#[from] NotALink),
    #[error("the audit log is not as it was written")]
    Broken(#[from] Broken),
    #[error("the audit log is not as it was written")]
    Seal(#[from] BadSeal),
}

/// Why a seal does not prove anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSeal {
    #[error("record {sequence} is not a seal as the server writes it")]
    Form { sequence: u64 },
    #[error("record {sequence} is a seal with the key {key}, which is none of the given ones")]
    Key { sequence: u64, key: String },
    #[error(
        "record {sequence} has the seal of epoch {found} where that of epoch {expected} belongs"
    )]
    Epoch { sequence: u64, expected: u64, found: u64 },
    #[error("record {sequence} has a seal that does not fit the records before it")]
    Code { sequence: u64 },
    #[error("it has no seal")]
    Missing,
}

/// Checks lines of an export.
pub fn verify(
    lines: impl IntoIterator<Item = io::Result<String>>,
    expected: &Expected,
) -> Result<Verified, VerifyError> {
    let after: Link = expected.after.as_deref().map_or(Ok(Link::START), str::parse)?;
    let checkpoints: Result<_, NotALink> =
        expected.checkpoints.iter().map(|text| text.parse()).collect();
    let mut chain = Chain::after(after).with_checkpoints(checkpoints?);
    let mut seals = Seals::new(&expected.keys, after);
    for line in lines {
        let record = chain.add(&line.map_err(VerifyError::Read)?)?;
        seals.add(&record, chain.last())?;
    }
    let end = chain.end()?;
    let records = end.sequence.saturating_sub(after.sequence);
    Ok(Verified { records, checkpoint: end.to_string(), sealed: seals.end()? })
}

/// Follows the seals of a log.
struct Seals {
    keys: Vec<Expecting>,
    /// Records that no seal covers yet.
    unsealed: BTreeMap<u64, Hash>,
    sealed: Option<u64>,
}

struct Expecting {
    key: EpochKey,
    seen: Seen,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// The export begins with the first record of the log, so its first seal is that of epoch 0.
    Start,
    /// The export begins later, with any epoch.
    Nothing,
    Seal,
}

impl Seals {
    fn new(keys: &[VerificationKey], after: Link) -> Self {
        let seen = if after == Link::START { Seen::Start } else { Seen::Nothing };
        let keys = keys.iter().map(|key| Expecting { key: key.first_epoch(), seen }).collect();
        let unsealed = BTreeMap::from([(after.sequence, after.hash)]);
        Self { keys, unsealed, sealed: None }
    }

    fn add(&mut self, record: &Record, link: Link) -> Result<(), BadSeal> {
        if self.keys.is_empty() {
            return Ok(());
        }
        if Seal::is_one(record) {
            let sequence = link.sequence;
            let seal = Seal::of(record).ok_or(BadSeal::Form { sequence })?;
            self.check(&seal, sequence)?;
        }
        self.unsealed.insert(link.sequence, link.hash);
        Ok(())
    }

    fn check(&mut self, seal: &Seal, sequence: u64) -> Result<(), BadSeal> {
        let unknown = || BadSeal::Key { sequence, key: seal.key.clone() };
        let of_key = self.keys.iter_mut().find(|it| it.key.id == seal.key);
        let expecting = of_key.ok_or_else(unknown)?;
        expecting.advance_to(seal.epoch, sequence)?;
        let link = self.unsealed.get(&seal.checkpoint.sequence);
        if link != Some(&seal.checkpoint.hash) || !expecting.key.verifies(seal) {
            return Err(BadSeal::Code { sequence });
        }
        self.sealed = Some(seal.checkpoint.sequence);
        // The sealed record itself stays: a second seal of the same checkpoint may follow.
        self.unsealed = self.unsealed.split_off(&seal.checkpoint.sequence);
        Ok(())
    }

    fn end(self) -> Result<Option<u64>, BadSeal> {
        match (self.keys.is_empty(), self.sealed) {
            (false, None) => Err(BadSeal::Missing),
            (_, sealed) => Ok(sealed),
        }
    }
}

impl Expecting {
    /// Takes the key of the epoch of the next seal. An epoch has two seals if the server was killed before it could replace the key.
    fn advance_to(&mut self, epoch: u64, sequence: u64) -> Result<(), BadSeal> {
        let current = self.key.epoch;
        let is_expected = match self.seen {
            Seen::Start => epoch == 0,
            Seen::Nothing => epoch <= MAX_EPOCHS,
            Seen::Seal => epoch == current || epoch == current.saturating_add(1),
        };
        if !is_expected {
            let expected = if self.seen == Seen::Seal { current.saturating_add(1) } else { 0 };
            return Err(BadSeal::Epoch { sequence, expected, found: epoch });
        }
        while self.key.epoch < epoch {
            self.key = self.key.next();
        }
        self.seen = Seen::Seal;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use model::{
        audit::{Action, Entry, Outcome},
        units::Timestamp,
    };
    use store::{
        Store,
        audit::{Order, Part},
    };

    use super::*;

    fn verification_key() -> VerificationKey {
        VerificationKey::new([7; crate::key_file::LENGTH])
    }

    /// Writes `epochs` times three records and a seal, as a server does that has this key.
    async fn write(store: &Store, mut key: EpochKey, epochs: usize) -> EpochKey {
        for _ in 0..epochs {
            let entry = Entry::new(Timestamp::from_millis(1), Action::ExecStart, Outcome::Granted);
            store.record(vec![entry.clone(), entry.clone(), entry]).await.unwrap();
            let checkpoint = store.audit_end().await.unwrap();
            let seal = key.seal(&checkpoint, Timestamp::from_millis(2));
            store.record(vec![seal]).await.unwrap();
            key = key.next();
        }
        key
    }

    async fn lines(store: &Store) -> Vec<String> {
        let part = Part { order: Order::OldestFirst, beyond: None, limit: 1000 };
        let records = store.audit(part).await.unwrap();
        records.iter().map(|record| record.line().unwrap()).collect()
    }

    fn check(lines: &[String], keys: &[VerificationKey]) -> Result<Verified, VerifyError> {
        let expected = Expected { keys: keys.to_vec(), ..Expected::default() };
        verify(lines.iter().cloned().map(Ok), &expected)
    }

    fn bad_seal(lines: &[String]) -> BadSeal {
        match check(lines, &[verification_key()]) {
            Err(VerifyError::Seal(bad)) => bad,
            other => panic!("{other:?}"),
        }
    }

    fn new_store(folder: &tempfile::TempDir, name: &str) -> Store {
        Store::open(&folder.path().join(name)).unwrap()
    }

    #[tokio::test]
    async fn a_sealed_log_is_verified_as_a_whole_and_from_a_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let store = new_store(&folder, "good.db");
        let last = write(&store, verification_key().first_epoch(), 3).await;
        assert_eq!(last.epoch, 3);
        let lines = lines(&store).await;
        let verified = check(&lines, &[verification_key()]).unwrap();
        assert_eq!((verified.records, verified.sealed), (12, Some(11)));
        assert_eq!(check(&lines, &[]).unwrap().sealed, None);
        let after = check(&lines[..6], &[]).unwrap().checkpoint;
        let expected =
            Expected { after: Some(after), keys: vec![verification_key()], ..Expected::default() };
        let rest = verify(lines[6..].iter().cloned().map(Ok), &expected).unwrap();
        assert_eq!((rest.records, rest.sealed), (6, Some(11)));
    }

    /// The attack that a chain without keys does not show: the whole log is written again with correct hashes.
    #[tokio::test]
    async fn a_log_that_was_written_again_by_an_intruder_is_found_out() {
        let folder = tempfile::tempdir().unwrap();
        let store = new_store(&folder, "good.db");
        let stolen = write(&store, verification_key().first_epoch(), 3).await;

        // The intruder leaves out all seals.
        let without = new_store(&folder, "without.db");
        let entry = Entry::new(Timestamp::from_millis(1), Action::ExecStart, Outcome::Granted);
        without.record(vec![entry]).await.unwrap();
        assert!(check(&lines(&without).await, &[]).is_ok());
        assert_eq!(bad_seal(&lines(&without).await), BadSeal::Missing);

        // The intruder seals with the key that is on the machine, which is that of a later epoch.
        let again = new_store(&folder, "again.db");
        write(&again, stolen.clone(), 2).await;
        let found = bad_seal(&lines(&again).await);
        assert_eq!(found, BadSeal::Epoch { sequence: 4, expected: 0, found: 3 });

        // The intruder claims an earlier epoch.
        let claimed = new_store(&folder, "claimed.db");
        write(&claimed, EpochKey { epoch: 0, ..stolen.clone() }, 2).await;
        assert_eq!(bad_seal(&lines(&claimed).await), BadSeal::Code { sequence: 4 });

        // The intruder cuts off the end, and the server goes on.
        let cut = new_store(&folder, "cut.db");
        write(&cut, verification_key().first_epoch(), 1).await;
        write(&cut, stolen, 1).await;
        let found = bad_seal(&lines(&cut).await);
        assert_eq!(found, BadSeal::Epoch { sequence: 8, expected: 1, found: 3 });

        // The intruder makes a key pair of its own.
        let other = VerificationKey::new([8; crate::key_file::LENGTH]);
        let own = new_store(&folder, "own.db");
        write(&own, other.first_epoch(), 2).await;
        assert!(check(&lines(&own).await, &[other]).is_ok());
        assert!(matches!(bad_seal(&lines(&own).await), BadSeal::Key { sequence: 4, .. }));
    }

    #[tokio::test]
    async fn an_epoch_that_was_sealed_twice_because_of_a_crash_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let store = new_store(&folder, "crash.db");
        let first = verification_key().first_epoch();
        write(&store, first.clone(), 1).await;
        write(&store, first.clone(), 1).await;
        write(&store, first.next(), 1).await;
        let verified = check(&lines(&store).await, &[verification_key()]).unwrap();
        assert_eq!(verified.sealed, Some(11));
    }
}
