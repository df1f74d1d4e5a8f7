//! Wrong keys and tokens, by who shows them: who shows too many waits (J14). `model::guesses` says when.

use std::{
    cell::Cell,
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use api::errors::ErrorCode;
use axum::http::{HeaderName, Request};
use model::guesses::{Comer, Guesses, Shown};

use crate::{http::problem::ApiError, serve::Peer};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// What is said to who has to wait, and how long.
pub(crate) const TOO_MANY: &str = "too many wrong credentials from this address; wait";

/// What the request that is being answered has shown so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Nothing,
    Wrong,
    /// Whoever has shown something good is no stranger, whatever else he shows.
    Good,
}

tokio::task_local! {
    static SEEN: Cell<Seen>;
}

/// Notes that a key is somebody's, or a token one that was given out.
pub(crate) fn note_good() {
    see(|_| Seen::Good);
}

/// Notes that a key is nobody's, or a token one that nobody gave out.
pub(crate) fn note_wrong() {
    see(|seen| if seen == Seen::Good { seen } else { Seen::Wrong });
}

fn see(next: impl FnOnce(Seen) -> Seen) {
    // Where no request is answered, nobody counts.
    let _ = SEEN.try_with(|seen| seen.set(next(seen.get())));
}

async fn watch<F: Future>(work: F) -> (F::Output, Shown) {
    let watched = async {
        let done = work.await;
        let shown = SEEN.with(|seen| match seen.get() {
            Seen::Wrong => Shown::Wrong,
            Seen::Nothing | Seen::Good => Shown::Fair,
        });
        (done, shown)
    };
    SEEN.scope(Cell::new(Seen::Nothing), watched).await
}

/// All who have shown something wrong lately. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Strangers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    guesses: Mutex<Guesses>,
    is_behind_proxy: bool,
    /// What times are counted from.
    since: Instant,
}

impl Strangers {
    /// Lets each network show so many wrong ones in a second.
    pub(crate) fn new(per_second: u32, is_behind_proxy: bool) -> Self {
        let guesses = Mutex::new(Guesses::new(per_second));
        Self(Arc::new(Inner { guesses, is_behind_proxy, since: Instant::now() }))
    }

    /// Returns who sends a request, if that can be told.
    pub(crate) fn guest<B>(&self, request: &Request<B>) -> Option<Guest> {
        let peer = request.extensions().get::<Peer>()?;
        let said = request.headers().get_all(X_FORWARDED_FOR).iter().next_back();
        let said = said.map(|line| line.to_str().unwrap_or_default());
        match Comer::of(peer.address, self.0.is_behind_proxy, said) {
            Comer::Unknown => None,
            comer @ (Comer::Direct(_) | Comer::Forwarded(_)) => {
                let was_wrong = Arc::clone(&peer.was_wrong);
                Some(Guest { strangers: self.clone(), comer, was_wrong })
            }
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Guesses) -> T) -> T {
        // No code panics while it holds the lock, so a poisoned one is as good as any.
        act(&mut self.0.guesses.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whoever sends a request.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    strangers: Strangers,
    comer: Comer,
    /// Whether the last request of the connection has shown something wrong.
    was_wrong: Arc<AtomicBool>,
}

impl Guest {
    /// Does what a credential is shown for, or says how long to wait: before it, where nobody else can be meant,
    /// and after it, if what was shown was wrong once too often.
    pub(crate) async fn judge<F: Future>(&self, work: F) -> Result<F::Output, Duration> {
        self.judge_at(self.strangers.0.since.elapsed(), work).await
    }

    async fn judge_at<F: Future>(&self, now: Duration, work: F) -> Result<F::Output, Duration> {
        let was_wrong = self.was_wrong.load(Ordering::Relaxed);
        let last = if was_wrong { Shown::Wrong } else { Shown::Fair };
        self.strangers.with(|guesses| guesses.hear(self.comer, last, now))?;
        let (done, shown) = watch(work).await;
        self.was_wrong.store(shown == Shown::Wrong, Ordering::Relaxed);
        match shown {
            Shown::Fair => {}
            Shown::Wrong => self.strangers.with(|guesses| guesses.count(self.comer, now))?,
        }
        Ok(done)
    }
}

/// Answers who has to wait. It is never longer than a second, which is what such an answer says anyway.
pub(crate) fn too_many() -> ApiError {
    ApiError::new(ErrorCode::RateLimited, TOO_MANY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::again::LastGiven;

    fn request(was_wrong: &Arc<AtomicBool>, address: &str) -> Request<()> {
        let address = address.parse().unwrap();
        let mut request = Request::new(());
        let was_wrong = Arc::clone(was_wrong);
        let last_given = LastGiven::default();
        let peer = Peer { address, reached: address, was_wrong, last_given };
        request.extensions_mut().insert(peer);
        request
    }

    /// J14.
    #[tokio::test]
    async fn j14_the_connection_of_a_flood_waits_before_anything_is_looked_at() {
        const NOW: Duration = Duration::from_secs(7);
        let strangers = Strangers::new(3, false);
        let (flood, other) = (Arc::default(), Arc::default());
        let at = |connection, address| strangers.guest(&request(connection, address)).unwrap();
        let flooding = at(&flood, "203.0.113.7");
        for _ in 0..3 {
            assert_eq!(flooding.judge_at(NOW, async { note_wrong() }).await, Ok(()));
        }
        // It is not even asked whether this one would be good.
        let unheard = async { panic!("this is heard") };
        assert_eq!(flooding.judge_at(NOW, unheard).await, Err(Duration::from_millis(334)));
        // Another connection of the same address goes on, as long as what it shows is good.
        let fair = at(&other, "203.0.113.7");
        assert_eq!(fair.judge_at(NOW, async { note_good() }).await, Ok(()));
        assert_eq!(fair.judge_at(NOW, async {}).await, Ok(()));
        assert!(fair.judge_at(NOW, async { note_wrong() }).await.is_err());
        assert!(fair.judge_at(NOW, async { note_good() }).await.is_err());
        let elsewhere = at(&Arc::default(), "203.0.113.8");
        assert_eq!(elsewhere.judge_at(NOW, async { note_wrong() }).await, Ok(()));
        let later = NOW + Duration::from_secs(1);
        assert_eq!(fair.judge_at(later, async { note_good() }).await, Ok(()));
        // A good credential together with a wrong one is no guess.
        for _ in 0..10 {
            let both = async {
                note_good();
                note_wrong();
            };
            assert_eq!(fair.judge_at(later, both).await, Ok(()));
        }
        assert!(strangers.guest(&request(&flood, "127.0.0.1")).is_none());
    }
}
