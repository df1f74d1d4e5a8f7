//! Places where a test lets the store break. There are none in a release build, unless it has the
//! feature `failpoints`.
//!
//! `RF_FAILPOINT=s.pre_fsync=kill` ends the process there without unwinding, and
//! `=error` makes the step fail. `=kill:3` does it the third time.

/// Passes, or breaks as the environment says.
#[cfg(not(any(test, feature = "failpoints", debug_assertions)))]
#[expect(clippy::unnecessary_wraps, reason = "with the feature it may fail")]
#[inline]
pub(crate) fn pass(_name: &'static str) -> Result<(), String> {
    Ok(())
}

#[cfg(any(test, feature = "failpoints", debug_assertions))]
pub(crate) use armed::pass;

#[cfg(any(test, feature = "failpoints", debug_assertions))]
mod armed {
    use std::sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    };

    struct Armed {
        name: String,
        action: String,
        left: AtomicU32,
    }

    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

    pub(crate) fn pass(name: &'static str) -> Result<(), String> {
        let Some(armed) = ARMED.get_or_init(read).as_ref().filter(|armed| armed.name == name)
        else {
            return Ok(());
        };
        if armed.left.fetch_sub(1, Ordering::Relaxed) != 1 {
            return Ok(());
        }
        match armed.action.as_str() {
            "kill" => std::process::abort(),
            _ => Err(format!("the failpoint {name} is set")),
        }
    }

    fn read() -> Option<Armed> {
        let text = std::env::var("RF_FAILPOINT").ok()?;
        let (name, action) = text.split_once('=')?;
        let (action, times) = action.split_once(':').unwrap_or((action, "1"));
        let left = AtomicU32::new(times.parse().ok()?);
        Some(Armed { name: name.to_owned(), action: action.to_owned(), left })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{env, path::Path, process::Command};

    use model::{event::Sequence, life::EndCause, life::Life, transition::Observation};

    use crate::{
        Store, StoreError,
        sandboxes::PAGE,
        suite::{Place, at, creation},
    };

    const STORE: &str = "RINGFENCE_TEST_STORE";

    /// What a process that wrote until its end had told, and what the store then holds.
    #[derive(Debug, PartialEq, Eq)]
    pub(crate) struct Told {
        pub(crate) answered: usize,
        pub(crate) refused: Vec<String>,
        pub(crate) kept: u64,
    }

    /// The other process of the tests below; does nothing by itself.
    #[tokio::test]
    async fn a_process_writes_ten_events_and_tells_each_answer() {
        let Ok(place) = env::var(STORE) else { return };
        let store = if place.contains("host=") {
            Store::connect(&place).await.unwrap()
        } else {
            Store::open(Path::new(&place)).unwrap()
        };
        let (creation, mut sandbox) = creation(1);
        store.create_sandbox(creation).await.unwrap();
        println!("answered");
        for seconds in 2..=10 {
            let seen = Observation::EndsSoon { cause: EndCause::HardTtl, seconds };
            let transition = sandbox.observe(seen, at(1)).unwrap();
            match store.change_sandbox(transition.clone()).await {
                Ok(()) => {
                    println!("answered");
                    sandbox = sandbox.after(&transition);
                }
                Err(StoreError::Commit { .. }) => println!("refused Commit"),
                Err(StoreError::ReadOnly { .. }) => println!("refused ReadOnly"),
                Err(error) => println!("refused {error:?}"),
            }
        }
    }

    async fn write_with(failpoint: &str) -> Told {
        let place = Place::sqlite();
        write_to(&place, failpoint).await
    }

    /// Lets another process write, which breaks where it is told.
    pub(crate) async fn write_to(place: &Place, failpoint: &str) -> Told {
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("failpoint::tests::a_process_writes_ten_events_and_tells_each_answer")
            .env("RF_FAILPOINT", failpoint)
            .env(STORE, place.address())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        // The name of the test stands on the line of the first answer.
        let answered = text.lines().filter(|line| line.ends_with("answered")).count();
        let refused = text.lines().filter_map(|line| line.strip_prefix("refused "));
        let refused = refused.map(str::to_owned).collect();
        Told { answered, refused, kept: kept(&place.open().await).await }
    }

    /// Returns the last event, after checking that state and events are in accord.
    async fn kept(store: &Store) -> u64 {
        let id = creation(1).1.id;
        let sandbox = store.sandbox(&id).await.unwrap().unwrap();
        let told = store.events(&id, Sequence::ZERO, PAGE).await.unwrap();
        assert_eq!(Life::replay(&told.events), Ok(sandbox.life));
        told.latest.0
    }

    /// I1, F12.
    #[tokio::test]
    async fn what_was_answered_is_kept_when_the_process_is_killed_at_any_point() {
        for (failpoint, kept) in [
            ("s.append=kill:2", 1),
            ("s.append=kill:7", 6),
            ("s.pre_fsync=kill:2", 1),
            ("s.pre_fsync=kill:7", 6),
            // On disk, but nobody was told: the one case where more is kept than was answered.
            ("s.post_fsync_pre_ack=kill:7", 7),
        ] {
            let answered =
                if failpoint.contains("post") { 6 } else { usize::try_from(kept).unwrap() };
            let expected = Told { answered, refused: vec![], kept };
            assert_eq!(write_with(failpoint).await, expected, "{failpoint}");
        }
    }

    /// F58: no event, no change.
    #[tokio::test]
    async fn an_event_that_cannot_be_appended_refuses_its_step_and_no_other() {
        let expected = Told { answered: 9, refused: vec!["Commit".into()], kept: 9 };
        assert_eq!(write_with("s.append=error:3").await, expected);
    }

    /// F18.
    #[tokio::test]
    async fn a_store_that_cannot_reach_its_disk_takes_no_more_writes() {
        let expected = Told { answered: 3, refused: vec!["ReadOnly".into(); 7], kept: 3 };
        assert_eq!(write_with("s.pre_fsync=error:4").await, expected);
    }
}
