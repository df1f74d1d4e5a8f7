//! Makes the layers that are missing, each once however many want it.

use std::{
    io::{self, Read},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::{StreamExt as _, stream};

use super::{
    Listener, PullError, Puller,
    blob::Fetch,
    local::{Blobs, Part},
    manifest::Descriptor,
    registry::Registry,
    tell,
};
use crate::{
    digest::Digest,
    store::Store,
    unpack::{Limits, unpack},
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
        listener: &Listener,
    ) -> Result<(), PullError> {
        for (diff_id, blob) in &wanted {
            tell(listener, *diff_id, 0, blob.size);
        }
        let stop = &Stop::default();
        let _guard = StopOnDrop(stop.clone());
        let made = wanted.into_iter().map(|(diff_id, blob)| async move {
            self.make_layer(diff_id, &blob, source, listener, stop).await?;
            tell(listener, diff_id, blob.size, blob.size);
            Ok(())
        });
        let mut made = stream::iter(made).buffer_unordered(AT_ONCE);
        let mut first_error = None;
        // After an error the others are stopped and waited for, so that nothing goes on behind the
        // answer.
        while let Some(result) = made.next().await {
            if let Err(error) = result {
                stop.stop();
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    async fn make_layer(
        &self,
        diff_id: Digest,
        blob: &Descriptor,
        source: &Source<'_>,
        listener: &Listener,
        stop: &Stop,
    ) -> Result<(), PullError> {
        // Tasks of this process wait here, and no thread waits with them; one of them at a time then
        // waits for other processes.
        let slot =
            self.0.making.get(usize::from(diff_id.first_byte())).cloned().unwrap_or_default();
        let _turn = slot.lock().await;
        stop.check().map_err(PullError::Scratch)?;
        let lock = self.blocking(move |store| Ok(store.lock_layer(diff_id)?)).await?;
        if self.blocking(move |store| Ok(store.layer(diff_id)?)).await?.is_some() {
            return Ok(());
        }
        let blob = match source {
            Source::Registry(registry) => {
                let fetch = Fetch { registry, blob, layer: diff_id, listener, stop };
                Part::whole_of(&Arc::new(fetch.to_file(&self.0.store).await?))
            }
            Source::Local(blobs) => {
                let (blobs, blob) = (blobs.clone(), blob.clone());
                self.blocking(move |_store| blobs.open(&blob)).await?
            }
        };
        self.install_layer(diff_id, blob, stop).await?;
        drop(lock);
        Ok(())
    }

    /// Unpacks a blob that was checked, and gives it its name.
    async fn install_layer(
        &self,
        diff_id: Digest,
        blob: Part,
        stop: &Stop,
    ) -> Result<(), PullError> {
        let reader = Stoppable { inner: blob, stop: stop.clone() };
        let limits = self.0.settings.limits;
        self.blocking(move |store| install(store, diff_id, reader, limits)).await
    }
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
