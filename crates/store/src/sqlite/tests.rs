use std::{fs, path::Path};

use futures_util::FutureExt as _;
use model::transition::Observation;

use super::*;
use crate::suite::{advance, at, create, creation, creation_with, end};

fn open_with(path: &Path, setting: &str) -> Sqlite {
    let mut connection = Connection::open(path).unwrap();
    schema::prepare(&mut connection).unwrap();
    // Whether a setting gives a row is its own affair.
    connection.prepare(setting).unwrap().query(()).unwrap().next().unwrap();
    Sqlite::start(connection, path).unwrap()
}

/// F15.
#[tokio::test]
async fn a_full_store_says_so_goes_on_reading_and_takes_writes_when_there_is_room() {
    let directory = tempfile::tempdir().unwrap();
    let sqlite = open_with(&directory.path().join("s.db"), "PRAGMA max_page_count = 120");
    let store = crate::Store::Sqlite(sqlite.clone());
    let mut kept = 0;
    while kept < 10 {
        // Big enough to have pages of its own.
        let (big, sandbox) = creation_with(kept, |spec| spec.command = vec!["x".repeat(20_000)]);
        store.create_sandbox(big).await.unwrap();
        end(&store, sandbox).await;
        kept += 1;
    }
    let refused = loop {
        match store.create_sandbox(creation(kept).0).await {
            Ok(()) => kept += 1,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, StoreError::Full), "{refused:?}");
    assert_eq!(sqlite.health(), Health::Good);
    let last = creation(kept - 1).1;
    assert_eq!(store.sandbox(&last.id).await.unwrap(), Some(last));

    // Forgetting what has ended makes room, and the next is kept again.
    assert_eq!(store.purge_sandboxes(at(1_000_000), 10).await.unwrap().len(), 10);
    store.create_sandbox(creation(kept).0).await.unwrap();
}

const DISK: &str = "RINGFENCE_TEST_DISK";

/// F15 on a real disk of 40 MiB, which this test mounts in a namespace of its own.
#[test]
fn on_a_full_disk_new_work_is_refused_and_what_ends_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let output = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-ec"])
        .arg("mount -t tmpfs -o size=40m tmpfs \"$1\" && shift && exec \"$@\"")
        .arg("sh")
        .arg(directory.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "sqlite::tests::a_process_fills_its_disk"])
        .env(DISK, directory.path())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("1 passed"), "{told}{errors}");
}

/// The other process of the test above; does nothing by itself.
#[tokio::test]
async fn a_process_fills_its_disk() {
    let Some(disk) = std::env::var_os(DISK).map(std::path::PathBuf::from) else { return };
    let store = crate::Store::open(&disk.join("s.db")).unwrap();
    let mut sandboxes = Vec::new();
    for number in 0..100 {
        let sandbox = create(&store, number).await;
        sandboxes.push(advance(&store, &sandbox, Observation::Ready).await);
    }
    let balloon = disk.join("balloon");
    assert!(fs::write(&balloon, vec![1; 48 << 20]).is_err(), "the disk has an end");

    let mut number = 1000;
    while let Ok(()) = store.create_sandbox(creation(number).0).await {
        number += 1;
    }
    for number in 2000..2010 {
        let refused = store.create_sandbox(creation(number).0).await;
        assert!(matches!(refused, Err(StoreError::Full)), "{refused:?}");
    }
    for sandbox in sandboxes {
        let ended = end(&store, sandbox).await;
        assert_eq!(store.sandbox(&ended.id).await.unwrap(), Some(ended));
    }
    assert_eq!(store.health(), Health::Good);

    fs::remove_file(&balloon).unwrap();
    store.create_sandbox(creation(3000).0).await.unwrap();
    assert!(disk.join("s.db-reserve").exists());
}

/// F21.
#[tokio::test]
async fn a_store_whose_file_is_replaced_takes_no_more_writes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.db");
    let store = crate::Store::open(&path).unwrap();
    let (creation, sandbox) = creation(1);
    store.create_sandbox(creation).await.unwrap();

    let mut stopped = Box::pin(store.until_read_only());
    assert_eq!(stopped.as_mut().now_or_never(), None);
    fs::rename(&path, directory.path().join("moved.db")).unwrap();
    fs::write(&path, b"").unwrap();
    for _ in 0..2 {
        let ready = sandbox.observe(Observation::Ready, at(2)).unwrap();
        let refused = store.change_sandbox(ready).await;
        assert!(matches!(refused, Err(StoreError::ReadOnly { .. })), "{refused:?}");
    }
    assert!(matches!(store.health(), Health::ReadOnly { .. }));
    stopped.await;
    assert!(store.sandbox(&sandbox.id).await.unwrap().is_some());
}

#[tokio::test]
async fn a_reader_does_not_wait_for_a_writer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.db");
    let store = crate::Store::open(&path).unwrap();
    let (creation, sandbox) = creation(1);
    store.create_sandbox(creation).await.unwrap();

    let mut other = Connection::open(&path).unwrap();
    let writing = other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    writing.execute("UPDATE sandboxes SET phase = 'failed'", ()).unwrap();
    let read = store.sandbox(&sandbox.id).await.unwrap();
    assert_eq!(read.as_ref(), Some(&sandbox));
    writing.rollback().unwrap();
    advance(&store, &sandbox, Observation::Ready).await;
}

#[tokio::test]
async fn only_its_owner_can_read_the_store() {
    use std::os::unix::fs::PermissionsExt as _;

    let directory = tempfile::tempdir().unwrap();
    let store = crate::Store::open(&directory.path().join("s.db")).unwrap();
    store.create_sandbox(creation(1).0).await.unwrap();
    for file in ["s.db", "s.db-wal"] {
        let metadata = fs::metadata(directory.path().join(file)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600, "{file}");
    }
}

/// F13: whatever became of the end of the log, what is read is one of the states that were.
#[tokio::test]
async fn a_log_that_is_cut_or_followed_by_rubbish_opens_at_a_whole_step() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.db");
    // Closed once, so that the log begins with the first event.
    crate::Store::open(&path).unwrap().close().await;
    let store = crate::Store::open(&path).unwrap();
    let mut sandbox = create(&store, 1).await;
    for seconds in 0..9 {
        let cause = model::life::EndCause::HardTtl;
        sandbox = advance(&store, &sandbox, Observation::EndsSoon { cause, seconds }).await;
    }
    let file = fs::read(&path).unwrap();
    let log = fs::read(directory.path().join("s.db-wal")).unwrap();
    let latest = async |log: &[u8]| latest_of(&file, log, &sandbox.id).await;

    let mut before = 0;
    for cut in (0..log.len()).step_by(log.len() / 60) {
        let after = latest(&log[..cut]).await;
        assert!(before <= after, "{before} events, then {after} of a longer log");
        before = after;
    }
    for rubbish in [[0; 5000], [0xa5; 5000]] {
        assert_eq!(latest(&[log.as_slice(), &rubbish].concat()).await, 10);
    }
}

/// Opens a copy and returns its last event, after checking that all before are there.
async fn latest_of(file: &[u8], log: &[u8], id: &SandboxId) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.db");
    fs::write(&path, file).unwrap();
    fs::write(directory.path().join("s.db-wal"), log).unwrap();
    let store = crate::Store::open(&path).unwrap();
    let Some(sandbox) = store.sandbox(id).await.unwrap() else { return 0 };
    let told = store.events(id, Sequence::ZERO, crate::sandboxes::PAGE).await.unwrap();
    assert_eq!(model::life::Life::replay(&told.events), Ok(sandbox.life));
    told.latest.0
}

/// I/O errors that mean the disk is not to be trusted stop the store; a lack of room does not.
#[test]
fn errors_are_told_apart_by_what_can_be_done_about_them() {
    let error = |code| rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
    let broken = |code, at| Broken::by(&error(code), at);
    assert!(matches!(broken(rusqlite::ffi::SQLITE_FULL, At::Commit), Broken::Full));
    for fatal in [rusqlite::ffi::SQLITE_IOERR_FSYNC, rusqlite::ffi::SQLITE_CORRUPT] {
        assert!(matches!(broken(fatal, At::Statement), Broken::Stop(_)));
        assert!(matches!(broken(fatal, At::Commit), Broken::Stop(_)));
    }
    assert!(matches!(broken(rusqlite::ffi::SQLITE_BUSY, At::Commit), Broken::Refused(_)));
    assert!(matches!(broken(rusqlite::ffi::SQLITE_ERROR, At::Statement), Broken::Refused(_)));
    assert!(matches!(broken(rusqlite::ffi::SQLITE_ERROR, At::Commit), Broken::Stop(_)));
}
