//! Makes the layers that are missing, each once however many want it.

use std::{
    io::{self, Read},
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::{StreamExt as _, stream};

use super::{
    Listener, Made, PullError, Puller,
    blob::Fetch,
    local::{Blobs, Part},
    manifest::Descriptor,
    registry::Registry,
    tell,
};
use crate::{
    digest::{Digest, HashingReader},
    store::{Origin, Room, Store, StoreError},
    unpack::{
        Limits,
        error::{Limit, UnpackError},
        uncompressed, unpack,
    },
};

/// Layers of one image that are made at once.
const AT_ONCE: usize = 3;

/// Where the blobs of an image are.
pub(super) enum Source<'pull> {
    Registry(&'pull Registry<'pull>),
    Local(Arc<Blobs>),
}

impl Puller {
    /// Makes those of the layers that the store has not.
    pub(super) async fn make_layers(
        &self,
        wanted: Vec<(Digest, Descriptor)>,
        source: &Source<'_>,
        tenant: &str,
        made: &Made,
        listener: &Listener,
    ) -> Result<(), PullError> {
        for (diff_id, blob) in &wanted {
            tell(listener, *diff_id, 0, blob.size);
        }
        let stop = &Stop::default();
        let _guard = StopOnDrop(stop.clone());
        let making = wanted.into_iter().map(|(diff_id, blob)| async move {
            let layer = Wanted { diff_id, blob: &blob, source, tenant, listener, stop };
            if self.make_layer(layer).await? {
                made.lock().unwrap_or_else(PoisonError::into_inner).push(diff_id);
            }
            tell(listener, diff_id, blob.size, blob.size);
            Ok(())
        });
        let mut making = stream::iter(making).buffer_unordered(AT_ONCE);
        let mut first_error = None;
        // After an error the others are stopped and waited for, so that nothing goes on behind the
        // answer.
        while let Some(result) = making.next().await {
            if let Err(error) = result {
                stop.stop();
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Tells whether the layer was not there before. If it was, the tenant must be one that may have it.
    async fn make_layer(&self, wanted: Wanted<'_>) -> Result<bool, PullError> {
        let Wanted { diff_id, stop, .. } = wanted;
        // Tasks of this process wait here, and no thread waits with them; one of them at a time then
        // waits for other processes.
        let slot =
            self.0.making.get(usize::from(diff_id.first_byte())).cloned().unwrap_or_default();
        let _turn = slot.lock().await;
        stop.check().map_err(PullError::Scratch)?;
        let lock = self.blocking(move |store| Ok(store.lock_layer(diff_id)?)).await?;
        let is_here = self.blocking(move |store| Ok(store.layer(diff_id)?)).await?.is_some();
        let (tenant, origin) = (wanted.tenant.to_owned(), wanted.origin());
        if is_here {
            let (tenant, origin) = (tenant.clone(), origin.clone());
            let proven =
                move |store: &Store| Ok(store.is_proven(&tenant, diff_id, origin.as_ref())?);
            if self.blocking(proven).await? {
                return Ok(false);
            }
        }
        let blob = self.fetch(&wanted).await?;
        let reader = Stoppable { inner: blob, stop: stop.clone() };
        let (limits, quota) = (self.0.settings.limits, self.0.settings.quota);
        let installed = move |store: &Store| {
            if is_here {
                check_content(diff_id, reader, &limits)?;
            } else {
                let room = store.room_for(&tenant, quota)?;
                let within = Limits {
                    bytes: limits.bytes.min(room.bytes),
                    entries: limits.entries.min(room.entries),
                    ..limits
                };
                install(store, diff_id, reader, within)
                    .map_err(|error| outgrown(error, &limits, &within, room))?;
            }
            if let Some(origin) = origin {
                store.note_origin(diff_id, origin)?;
            }
            Ok(!is_here)
        };
        let is_new = self.blocking(installed).await;
        drop(lock);
        is_new
    }

    /// Returns a blob that has the digest that it must have.
    async fn fetch(&self, wanted: &Wanted<'_>) -> Result<Part, PullError> {
        let Wanted { diff_id, blob, source, listener, stop, .. } = *wanted;
        match source {
            Source::Registry(registry) => {
                let fetch = Fetch { registry, blob, layer: diff_id, listener, stop };
                Ok(Part::whole_of(&Arc::new(fetch.to_file(&self.0.store).await?)))
            }
            Source::Local(blobs) => {
                let (blobs, blob) = (blobs.clone(), blob.clone());
                self.blocking(move |_store| blobs.open(&blob)).await
            }
        }
    }
}

/// A layer that an image has, and what a pull needs to make it.
#[derive(Clone, Copy)]
struct Wanted<'pull> {
    diff_id: Digest,
    blob: &'pull Descriptor,
    source: &'pull Source<'pull>,
    tenant: &'pull str,
    listener: &'pull Listener,
    stop: &'pull Stop,
}

impl Wanted<'_> {
    fn origin(&self) -> Option<Origin> {
        match self.source {
            Source::Registry(registry) => Some(registry.origin(self.blob.digest)),
            Source::Local(_) => None,
        }
    }
}

/// Says that there is no room, if a layer broke a limit only because of that.
fn outgrown(error: PullError, own: &Limits, within: &Limits, room: Room) -> PullError {
    let is_too_much = matches!(
        &error,
        PullError::Unpack {
            source: UnpackError::TooLarge(Limit::Bytes(_) | Limit::Entries(_)),
            ..
        }
    );
    if is_too_much && own != within {
        return room.outgrown().into();
    }
    error
}

/// Reads a whole layer, and checks that its content has this digest.
fn check_content(diff_id: Digest, reader: impl Read, limits: &Limits) -> Result<(), PullError> {
    let refused = |source| PullError::Unpack { layer: diff_id, source };
    let reader = uncompressed(reader, limits).map_err(refused)?;
    let mut reader = HashingReader::new(reader);
    io::copy(&mut reader, &mut io::sink()).map_err(PullError::Scratch)?;
    let (found, _size) = reader.finish();
    let expected = diff_id;
    if found == expected { Ok(()) } else { Err(StoreError::Mismatch { expected, found }.into()) }
}

fn install(
    store: &Store,
    diff_id: Digest,
    reader: impl Read,
    limits: Limits,
) -> Result<(), PullError> {
    let new = store.begin_layer()?;
    let unpacked = unpack(reader, new.target(), &store.rules(limits));
    let report = unpacked.map_err(|source| PullError::Unpack { layer: diff_id, source })?;
    new.commit(&report, diff_id)?;
    Ok(())
}

/// Tells threads that nobody waits for them any more. They see it at their next read.
#[derive(Debug, Clone, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn check(&self) -> io::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(io::Error::other("nobody wants it any more"));
        }
        Ok(())
    }
}

/// A dropped future cannot wait, but it can tell.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

struct Stoppable<R> {
    inner: R,
    stop: Stop,
}

impl<R: Read> Read for Stoppable<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stop.check()?;
        self.inner.read(buffer)
    }
}
