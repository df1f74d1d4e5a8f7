//! Pulls under way. Whoever wants what is on its way already waits for the same.

use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ::images::worker::wire::{Answer, Ask};
use model::outbound::Endpoint;
use tokio::sync::{RwLock, Semaphore, watch};

use super::{
    Image, ImageError, Listener, OwnedName, Pinned, confused, from_unanswered,
    link::{Along, Use},
    pins::Pins,
    workers::Workers,
};
use crate::tasks::Tasks;

/// Pulls that are known of at once, and that are worked on at once.
const MOST: usize = 64;
const AT_ONCE: usize = 4;

/// Where an image comes from.
#[derive(Debug)]
pub(super) enum Source {
    /// The registry of the image's name.
    Registry(Endpoint),
    Archive(OwnedFd),
    Layout {
        folder: OwnedFd,
        tag: Option<String>,
    },
}

/// All pulls under way. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Flights {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    workers: Workers,
    pins: Pins,
    gate: Arc<RwLock<()>>,
    tasks: Tasks,
    turns: Semaphore,
    under_way: Mutex<HashMap<String, Flight>>,
}

type Outcome = Result<Pinned, ImageError>;

/// One pull, as those see it who wait for it.
#[derive(Clone, Debug)]
struct Flight {
    progress: Listener,
    outcome: watch::Sender<Option<Outcome>>,
}

impl Flights {
    pub(super) fn new(workers: Workers, pins: Pins, gate: Arc<RwLock<()>>, tasks: Tasks) -> Self {
        let (turns, under_way) = (Semaphore::new(AT_ONCE), Mutex::default());
        Self { inner: Arc::new(Inner { workers, pins, gate, tasks, turns, under_way }) }
    }

    /// Waits for the pull of this key, which is begun if there is none.
    pub(super) async fn join(
        &self,
        key: String,
        owned: &OwnedName,
        source: Source,
        listener: &Listener,
    ) -> Outcome {
        let name = &owned.name;
        let key = format!("{} {key}", owned.tenant);
        let (mut progress, mut outcome) = self.enter(key, owned, source)?;
        loop {
            tokio::select! {
                biased;
                done = outcome.wait_for(Option::is_some) => {
                    let done = done.ok().and_then(|done| done.clone());
                    listener.send_replace(progress.borrow().clone());
                    return done.unwrap_or_else(|| Err(interrupted(name)));
                }
                Ok(()) = progress.changed() => {
                    let now = progress.borrow_and_update().clone();
                    listener.send_replace(now);
                }
            }
        }
    }

    fn enter(
        &self,
        key: String,
        owned: &OwnedName,
        source: Source,
    ) -> Result<(watch::Receiver<super::Progress>, watch::Receiver<Option<Outcome>>), ImageError>
    {
        let mut under_way = self.under_way();
        if let Some(flight) = under_way.get(&key) {
            return Ok((flight.progress.subscribe(), flight.outcome.subscribe()));
        }
        if under_way.len() >= MOST {
            return Err(ImageError::Busy);
        }
        let flight = Flight { progress: Listener::default(), outcome: watch::Sender::new(None) };
        let ends = (flight.progress.subscribe(), flight.outcome.subscribe());
        under_way.insert(key.clone(), flight.clone());
        drop(under_way);
        let (flights, owned) = (self.clone(), owned.clone());
        self.inner.tasks.start("image pull", async move {
            let mut landing = Landing { flights, key, flight, done: Err(interrupted(&owned.name)) };
            if let Some(done) = landing.fly(&owned, source).await {
                landing.done = done;
            }
        });
        Ok(ends)
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<String, Flight>> {
        self.inner.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn interrupted(name: &str) -> ImageError {
    ImageError::Interrupted { image: name.to_owned() }
}

/// The end of a pull, however it comes: nobody waits for ever.
struct Landing {
    flights: Flights,
    key: String,
    flight: Flight,
    done: Outcome,
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut under_way = self.flights.under_way();
        // Another of the same key may be under way since this one was left by all.
        if under_way.get(&self.key).is_some_and(|it| it.outcome.same_channel(&self.flight.outcome))
        {
            under_way.remove(&self.key);
        }
        drop(under_way);
        let done = std::mem::replace(&mut self.done, Err(ImageError::Busy));
        self.flight.outcome.send_replace(Some(done));
    }
}

impl Landing {
    /// Pulls. Returns nothing if nobody wants it any more.
    async fn fly(&self, owned: &OwnedName, source: Source) -> Option<Outcome> {
        let name = &owned.name;
        let inner = &self.flights.inner;
        let starting = async {
            let turn = inner.turns.acquire().await;
            inner.workers.link().await.map(|worker| (turn, worker))
        };
        let (_turn, worker) = tokio::select! {
            biased;
            started = starting => match started {
                Ok(started) => started,
                Err(error) => return Some(Err(error)),
            },
            () = self.left_by_all() => return None,
        };
        let (listener, tenant) = (Some(self.flight.progress.clone()), owned.tenant.to_string());
        let (ask, along) = match source {
            Source::Registry(registry) => (
                Ask::Pull { tenant, name: name.clone() },
                Along { listener, registry: Some(registry), ..Along::default() },
            ),
            Source::Archive(file) => (
                Ask::PullArchive { tenant, name: name.clone() },
                Along { listener, file: Some(file), ..Along::default() },
            ),
            Source::Layout { folder, tag } => (
                Ask::PullLayout { tenant, name: name.clone(), tag },
                Along { listener, layout: Some(Arc::new(folder)), ..Along::default() },
            ),
        };
        let mut pending = match worker.ask(ask, along).await {
            Ok(pending) => pending,
            Err(unanswered) => return Some(Err(from_unanswered(name, unanswered))),
        };
        let answer = tokio::select! {
            biased;
            answer = pending.answer() => answer,
            () = self.left_by_all() => {
                worker.say(pending.number, Ask::Cancel).await;
                return None;
            }
        };
        Some(match answer {
            Ok(Answer::Image(Some(record))) => match Image::new(name, *record) {
                Ok(image) => Ok(self.keep(image, &worker, pending.number).await),
                Err(error) => {
                    worker.say(pending.number, Ask::Release).await;
                    Err(error)
                }
            },
            Ok(_) => Err(confused()),
            Err(unanswered) => Err(from_unanswered(name, unanswered)),
        })
    }

    /// Keeps the image here before the worker lets it go, and while nobody deletes.
    async fn keep(&self, image: Image, worker: &Use, number: u64) -> Pinned {
        let inner = &self.flights.inner;
        let _shared = inner.gate.read().await;
        let pinned = inner.pins.pin(image);
        worker.say(number, Ask::Release).await;
        pinned
    }

    /// Returns when nobody waits any more. The next who wants the same begins anew.
    async fn left_by_all(&self) {
        loop {
            self.flight.outcome.closed().await;
            let mut under_way = self.flights.under_way();
            if self.flight.outcome.receiver_count() == 0 {
                under_way.remove(&self.key);
                return;
            }
        }
    }
}
