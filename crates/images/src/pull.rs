//! Brings images into the store: from registries, from archives, from layouts on disk.
//!
//! A registry is a stranger too. Every blob is checked against its digest before anything reads it,
//! and every layer against the digest of its content before it gets a name. Dropping a future stops
//! its work and leaves nothing half.

mod blob;
mod connection;
pub mod connector;
mod error;
mod layers;
mod local;
mod manifest;
mod registry;
mod settings;
mod transport;

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
};

use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, watch};

use self::{connector::Connector, layers::Source, registry::Registry, transport::Transport};
pub use self::{
    error::PullError,
    local::{Opener, open_in},
    registry::endpoint_of,
    settings::{Certificates, Credentials, Registry as RegistrySettings, Scheme, Settings},
};
use crate::{
    config::Config,
    digest::Digest,
    reference::{Reference, name::Name},
    store::{Image, Pin, Store, TenantName},
};

/// How far a pull has come. Whether it has ended is told by its result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Every layer of the image, by the digest of its content.
    pub layers: BTreeMap<Digest, Part>,
}

/// How far a layer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Bytes that were fetched, of how many. All of them, if the layer was there already.
    pub done: u64,
    pub total: u64,
}

/// Takes what is told on the way: the latest state, so that whoever looks seldom misses nothing
/// that matters.
pub type Listener = watch::Sender<Progress>;

fn tell(listener: &Listener, layer: Digest, done: u64, total: u64) {
    listener.send_modify(|progress| {
        progress.layers.insert(layer, Part { done, total });
    });
}

/// An image in the store, kept from being collected until the pin is dropped.
#[derive(Debug)]
pub struct Pulled {
    pub image: Image,
    pub pin: Pin,
}

/// Brings images into one store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Puller(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    settings: Settings,
    transport: Transport,
    /// One for each first byte of a digest: who makes a layer here keeps others waiting for it.
    making: Vec<Arc<Mutex<()>>>,
}

impl Puller {
    pub fn new(store: Store, settings: Settings) -> Self {
        let transport = Transport::new(&settings);
        let making = (0..=u8::MAX).map(|_| Arc::default()).collect();
        Self(Arc::new(Inner { store, settings, transport, making }))
    }

    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Brings an image into the store under its full name. `host` and `dir:` are used in place, so
    /// there is nothing to bring. Registries are reached by the connector alone.
    pub async fn pull(
        &self,
        tenant: &str,
        reference: &Reference,
        connector: &Connector,
        listener: &Listener,
    ) -> Result<Pulled, PullError> {
        let name = TenantName { tenant: tenant.to_owned(), name: reference.to_string() };
        match reference {
            Reference::Host | Reference::Directory(_) => Err(PullError::InPlace(name.name)),
            Reference::Archive(path) => {
                let path = path.clone();
                let file = self.blocking(move |_store| local::open_file(&path)).await?;
                self.pull_archive(file, &name, listener).await
            }
            Reference::Layout { path, tag } => {
                let path = path.clone();
                let folder = self.blocking(move |_store| local::open_folder(&path)).await?;
                let open: Opener = Arc::new(move |part: &str| open_in(&folder, part));
                self.pull_layout(open, tag.as_deref(), &name, listener).await
            }
            Reference::Registry(registry_name) => {
                self.pull_registry(registry_name, &name, connector, listener).await
            }
        }
    }

    async fn pull_registry(
        &self,
        name: &Name,
        full_name: &TenantName,
        connector: &Connector,
        listener: &Listener,
    ) -> Result<Pulled, PullError> {
        let (settings, transport) = (&self.0.settings, &self.0.transport);
        let registry = Registry::new(name, settings, transport, connector.clone());
        let (digest, manifest) = registry.manifest().await?;
        let config = registry.small_blob(&manifest.config).await?;
        let source = Source::Registry(&registry);
        let found = Found { config, manifest: Some(digest), layers: manifest.layers };
        self.install(found, &source, full_name, listener).await
    }

    /// Makes the layers of an image that are missing, then records it.
    async fn install(
        &self,
        found: Found,
        source: &Source<'_>,
        name: &TenantName,
        listener: &Listener,
    ) -> Result<Pulled, PullError> {
        let config: Config = serde_json::from_slice(&found.config).map_err(PullError::Config)?;
        manifest::check_platform(&config)?;
        let diff_ids = &config.rootfs.diff_ids;
        if diff_ids.len() != found.layers.len() {
            return Err(PullError::Layers);
        }
        let pin = self.blocking({
            let diff_ids = diff_ids.clone();
            move |store| Ok(store.pin(&diff_ids)?)
        });
        let mut pin = pin.await?;
        let wanted: Vec<_> = diff_ids.iter().copied().zip(found.layers).collect();
        let made = Made::default();
        let layers = self.make_layers(wanted, source, &name.tenant, &made, listener).await;
        let (name, quota) = (name.clone(), self.0.settings.quota);
        let made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
        let recorded = move |store: &Store| {
            let added = layers.and_then(|()| {
                Ok(store.add_image(&mut pin, &found.config, found.manifest, &name, quota)?)
            });
            match added {
                Ok(image) => Ok(Pulled { image, pin }),
                Err(error) => {
                    drop(pin);
                    // What stays is collected with the next image.
                    drop(store.discard(&made));
                    Err(error)
                }
            }
        };
        self.blocking(recorded).await
    }

    /// Runs what waits for the disk where it holds up nobody.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T, PullError> + Send + 'static,
    ) -> Result<T, PullError> {
        let store = self.0.store.clone();
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        done.map_err(|error| PullError::Stopped(error.to_string()))?
    }
}

/// The layers that a pull has made, and that were not there before.
type Made = std::sync::Mutex<Vec<Digest>>;

/// What a manifest leads to.
struct Found {
    config: Vec<u8>,
    manifest: Option<Digest>,
    /// Lowest first, as many as the configuration names.
    layers: Vec<manifest::Descriptor>,
}
