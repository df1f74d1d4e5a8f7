//! Images: which a caller may choose, and bringing them here.
//!
//! What strangers packed is read in another process, the *image worker*, which the spawner starts
//! when the first image is wanted and which is let go when none has been for a while. This is the
//! daemon's side of it.

mod error;
mod flights;
mod link;
mod local;
mod pins;
mod settings;
mod workers;

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    path::PathBuf,
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ::images::worker::wire::{Answer, Ask, Record};
use isolate::{plan::Identity, sandbox::MAX_LAYERS};
use model::ids::Tenant;
use tokio::sync::{RwLock, RwLockWriteGuard, oneshot};

pub use ::images::{
    config::Run,
    digest::Digest,
    pull::{Listener, Part, Progress, Scheme},
    reference::{
        Kind, Reference, ReferenceError,
        allowed::{Allowed, Refusal},
    },
    store::{Collected, InUse, Quota},
    unpack::Limits,
    worker::wire::Summary,
};
pub use error::ImageError;
pub use pins::Pinned;
pub use settings::{Login, Network, NetworkError, Registry, Settings};

use crate::{spawner::Spawner, tasks::Tasks};
use flights::{Flights, Source};
use link::{Along, Unanswered};
use local::{Opened, Stamp};
use pins::Pins;
use workers::Workers;

/// An image that is wanted.
#[derive(Debug)]
pub struct Wanted {
    pub reference: Reference,
    /// The file or folder that the reference names, if the caller has opened it with rights of its
    /// own. Without it, paths are opened with the server's rights, beneath what is allowed.
    pub opened: Option<OwnedFd>,
    pub policy: Policy,
}

/// What is done about an image from a registry that is here already under its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// It is used.
    #[default]
    Missing,
    /// The registry is asked, unless the name has a digest: it means the same for ever.
    Refresh,
}

impl FromStr for Wanted {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, ImageError> {
        Ok(Self { reference: text.parse()?, opened: None, policy: Policy::default() })
    }
}

/// What an image is called, and by which tenant: tenants share layers, and never names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OwnedName {
    pub(crate) tenant: Tenant,
    /// In its full form.
    pub(crate) name: String,
}

/// What a sandbox is made from.
#[derive(Debug)]
pub enum Found {
    /// The machine's own programs.
    Host,
    /// A directory that is used in place, read-only.
    Directory {
        path: PathBuf,
        folder: OwnedFd,
    },
    Image(Pinned),
}

/// An image whose layers are all here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its full name, as it was asked for.
    pub name: String,
    pub id: Digest,
    /// The digest by which a registry knows it.
    pub manifest: Option<Digest>,
    /// Lowest first.
    pub layers: Vec<Digest>,
    /// How it wants to be run: variables, command, user, folder.
    pub run: Run,
    /// Bytes in the files of all layers.
    pub size: u64,
}

impl Image {
    fn new(name: &str, Record(image): Record) -> Result<Self, ImageError> {
        let layers = image.layers().len();
        if layers > MAX_LAYERS {
            let message = format!("it has {layers} layers; a sandbox takes {MAX_LAYERS} at most");
            return Err(ImageError::Unsupported { image: name.to_owned(), message });
        }
        Ok(Self {
            name: name.to_owned(),
            id: image.id,
            manifest: image.manifest,
            layers: image.layers().to_vec(),
            run: image.config.config,
            size: image.size,
        })
    }

    /// Returns what the layers are called in the folder `layers` of the folder of images, lowest
    /// first. The files of each are in `fs` there.
    pub fn layer_names(&self) -> Vec<String> {
        self.layers.iter().map(Digest::hex).collect()
    }
}

/// The images of this node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Images {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    allowed: Allowed,
    workers: Workers,
    flights: Flights,
    pins: Pins,
    /// Held by whoever pins something; by whoever deletes, alone.
    gate: Arc<RwLock<()>>,
    known: Mutex<BTreeMap<OwnedName, Known>>,
    tasks: Tasks,
}

/// An image of which we know that it is here: only we have the worker change anything.
#[derive(Clone, Debug)]
struct Known {
    image: Image,
    /// The file that it was made from.
    stamp: Option<Stamp>,
}

/// Held while something is deleted. At its end nothing is known any more, also not what somebody
/// came to know meanwhile.
struct Alone<'images> {
    images: &'images Images,
    _gate: RwLockWriteGuard<'images, ()>,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.images.known().clear();
    }
}

/// Names that are remembered. With more, all are asked for again.
const MOST_KNOWN: usize = 1024;

impl Images {
    pub(crate) fn new(
        settings: Settings,
        identity: Identity,
        spawner: Spawner,
        tasks: Tasks,
    ) -> Self {
        let allowed = settings.allowed.clone();
        let (pins, gate) = (Pins::default(), Arc::<RwLock<()>>::default());
        let workers = Workers::new(settings, identity, spawner, tasks.clone());
        let flights = Flights::new(workers.clone(), pins.clone(), gate.clone(), tasks.clone());
        let known = Mutex::default();
        Self { inner: Arc::new(Inner { allowed, workers, flights, pins, gate, known, tasks }) }
    }

    /// Refuses what the operator does not let callers choose.
    pub fn check(&self, reference: &Reference) -> Result<(), ImageError> {
        Ok(self.inner.allowed.check(reference)?)
    }

    /// Finds what a sandbox is to be made from, and brings it here if it is not. Those who want the
    /// same at once share the work, and it stops when none of them does any more.
    pub async fn get(
        &self,
        tenant: &Tenant,
        wanted: Wanted,
        listener: &Listener,
    ) -> Result<Found, ImageError> {
        let found = self.find_or_pull(tenant, wanted, listener).await;
        found.map_err(|error| self.inner.workers.cause_of(error))
    }

    async fn find_or_pull(
        &self,
        tenant: &Tenant,
        wanted: Wanted,
        listener: &Listener,
    ) -> Result<Found, ImageError> {
        let Wanted { reference, opened, policy } = wanted;
        if opened.is_none() {
            self.check(&reference)?;
        }
        let owned = OwnedName { tenant: tenant.clone(), name: reference.to_string() };
        let name = owned.name.clone();
        match reference {
            Reference::Host => Ok(Found::Host),
            Reference::Directory(path) => {
                let folder = self.open(&name, &path, opened).await?.folder()?;
                Ok(Found::Directory { path, folder })
            }
            Reference::Archive(path) => {
                let (file, stamp) = self.open(&name, &path, opened).await?.file()?;
                self.local(owned, stamp, Source::Archive(file), listener).await
            }
            Reference::Layout { path, tag } => {
                let (folder, stamp) = self.open(&name, &path, opened).await?.layout()?;
                self.local(owned, stamp, Source::Layout { folder, tag }, listener).await
            }
            Reference::Registry(registry_name) => {
                let stays = registry_name.digest().is_some();
                if (stays || policy == Policy::Missing)
                    && let Some(here) = self.find(&owned).await?
                {
                    return Ok(Found::Image(here));
                }
                let registry = self.inner.workers.endpoint_of(registry_name.registry());
                let source = Source::Registry(registry.ok_or_else(|| {
                    let registry = registry_name.registry().to_owned();
                    ImageError::Reference(ReferenceError::Registry(registry))
                })?);
                let pulled = self.inner.flights.join(name, &owned, source, listener).await?;
                self.remember(owned, &pulled, None);
                Ok(Found::Image(pulled))
            }
        }
    }

    /// Brings an image here, or brings what is here up to date.
    pub async fn pull(
        &self,
        tenant: &Tenant,
        wanted: Wanted,
        listener: &Listener,
    ) -> Result<Pinned, ImageError> {
        let image = wanted.reference.to_string();
        match self.get(tenant, Wanted { policy: Policy::Refresh, ..wanted }, listener).await? {
            Found::Image(pinned) => Ok(pinned),
            Found::Host | Found::Directory { .. } => Err(ImageError::InPlace { image }),
        }
    }

    /// Returns an image that is here, by its name or by its id.
    pub async fn inspect(&self, tenant: &Tenant, name: &str) -> Result<Pinned, ImageError> {
        let owned = OwnedName { tenant: tenant.clone(), name: full_name(name)? };
        self.find(&owned).await?.ok_or(ImageError::Unknown { image: owned.name })
    }

    /// Returns every image that a tenant has, by name.
    pub async fn list(&self, tenant: &Tenant) -> Result<Vec<Summary>, ImageError> {
        match self.ask(Ask::List { tenant: tenant.to_string() }, "images").await? {
            Answer::Images(images) => Ok(images),
            _ => Err(confused()),
        }
    }

    /// Takes a name of a tenant away, or all its names of the image with that id, and deletes what
    /// nothing needs any more. An image that a sandbox of the tenant (`own`) uses keeps its last name.
    pub async fn remove(
        &self,
        tenant: &Tenant,
        name: &str,
        own: &InUse,
        in_use: &InUse,
    ) -> Result<Collected, ImageError> {
        let owned = OwnedName { tenant: tenant.clone(), name: full_name(name)? };
        let (images, own, in_use) = (self.clone(), own.clone(), in_use.clone());
        self.undisturbed(async move { images.remove_alone(owned, &own, &in_use).await }).await
    }

    async fn remove_alone(
        &self,
        owned: OwnedName,
        own: &InUse,
        in_use: &InUse,
    ) -> Result<Collected, ImageError> {
        let OwnedName { tenant, name } = owned;
        let _alone = self.alone().await;
        let id = name.parse::<Digest>().ok();
        let is_it = |it: &Summary| id.map_or_else(|| it.names.contains(&name), |id| it.id == id);
        let found = self.list(&tenant).await?.into_iter().find(is_it);
        let found = found.ok_or_else(|| ImageError::Unknown { image: name.clone() })?;
        let names = if id.is_some() { found.names.clone() } else { vec![name.clone()] };
        let is_used = own.images.contains(&found.id) || self.inner.pins.holds(found.id);
        if is_used && names.len() == found.names.len() {
            return Err(ImageError::InUse { image: name });
        }
        let tenant = tenant.to_string();
        self.ask(Ask::RemoveNames { tenant, names }, &name).await?;
        self.collect_alone(in_use).await
    }

    /// Deletes what no name, no pin and nobody who is named here can reach.
    pub async fn collect(&self, in_use: &InUse) -> Result<Collected, ImageError> {
        let (images, in_use) = (self.clone(), in_use.clone());
        let collecting = async move {
            let _alone = images.alone().await;
            images.collect_alone(&in_use).await
        };
        self.undisturbed(collecting).await
    }

    /// Keeps everybody from pinning what is about to be deleted.
    async fn alone(&self) -> Alone<'_> {
        Alone { images: self, _gate: self.inner.gate.write().await }
    }

    /// Deletes to the end, also if the caller goes away: nobody may pin before it is over.
    async fn undisturbed<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ImageError>> + Send + 'static,
    ) -> Result<T, ImageError> {
        let (done, is_done) = oneshot::channel();
        self.inner.tasks.start("image removal", async move { drop(done.send(work.await)) });
        is_done.await.unwrap_or(Err(ImageError::SpawnerGone))
    }

    async fn collect_alone(&self, in_use: &InUse) -> Result<Collected, ImageError> {
        let mut in_use = in_use.clone();
        self.inner.pins.add_to(&mut in_use);
        match self.ask(Ask::Collect { in_use }, "images").await? {
            Answer::Collected(collected) => Ok(collected),
            _ => Err(confused()),
        }
    }

    /// Looks for an image that is here already, and keeps it.
    async fn find(&self, owned: &OwnedName) -> Result<Option<Pinned>, ImageError> {
        let name = &owned.name;
        let _shared = self.inner.gate.read().await;
        if let Some(known) = self.known_as(owned, None) {
            return Ok(Some(self.inner.pins.pin(known)));
        }
        let tenant = owned.tenant.to_string();
        match self.ask(Ask::Find { tenant, name: name.clone() }, name).await? {
            Answer::Image(Some(record)) => {
                let pinned = self.inner.pins.pin(Image::new(name, *record)?);
                self.remember(owned.clone(), &pinned, None);
                Ok(Some(pinned))
            }
            Answer::Image(None) => Ok(None),
            _ => Err(confused()),
        }
    }

    async fn open(
        &self,
        name: &str,
        path: &std::path::Path,
        opened: Option<OwnedFd>,
    ) -> Result<Opened, ImageError> {
        let prefix = self.inner.allowed.prefix_of(path).map(ToOwned::to_owned);
        local::open(name, path, opened, prefix).await
    }

    /// Brings an image from a file in, unless the file is the one that it was made from before.
    async fn local(
        &self,
        owned: OwnedName,
        stamp: Stamp,
        source: Source,
        listener: &Listener,
    ) -> Result<Found, ImageError> {
        {
            let _shared = self.inner.gate.read().await;
            if let Some(known) = self.known_as(&owned, Some(stamp)) {
                return Ok(Found::Image(self.inner.pins.pin(known)));
            }
        }
        // Two callers may see different files under one name.
        let key = format!("{} {stamp:?}", owned.name);
        let pulled = self.inner.flights.join(key, &owned, source, listener).await?;
        self.remember(owned, &pulled, Some(stamp));
        Ok(Found::Image(pulled))
    }

    /// Asks what can be asked twice: if the worker is gone, the next one is.
    async fn ask(&self, ask: Ask, image: &str) -> Result<Answer, ImageError> {
        match self.ask_once(ask.clone(), image).await {
            Err(ImageError::Interrupted { .. }) => self.ask_once(ask, image).await,
            done => done,
        }
    }

    async fn ask_once(&self, ask: Ask, image: &str) -> Result<Answer, ImageError> {
        let link = self.inner.workers.link().await?;
        let asked = match link.ask(ask, Along::default()).await {
            Ok(mut pending) => pending.answer().await,
            Err(unanswered) => Err(unanswered),
        };
        asked.map_err(|unanswered| from_unanswered(image, unanswered))
    }

    fn known_as(&self, name: &OwnedName, stamp: Option<Stamp>) -> Option<Image> {
        self.known().get(name).filter(|known| known.stamp == stamp).map(|it| it.image.clone())
    }

    /// What is pinned is here, and stays so until somebody deletes, who forgets everything after.
    fn remember(&self, name: OwnedName, pinned: &Pinned, stamp: Option<Stamp>) {
        let mut known = self.known();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(name, Known { image: (**pinned).clone(), stamp });
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<OwnedName, Known>> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn from_unanswered(image: &str, unanswered: Unanswered) -> ImageError {
    match unanswered {
        Unanswered::Failed(failure) => ImageError::from_worker(image, &failure),
        Unanswered::Gone => ImageError::Interrupted { image: image.to_owned() },
    }
}

fn confused() -> ImageError {
    ImageError::Worker { message: "it answers something else than it was asked".into() }
}

/// An id stays as it is; a name is brought into its full form.
fn full_name(name: &str) -> Result<String, ImageError> {
    match name.parse::<Digest>() {
        Ok(_) => Ok(name.to_owned()),
        Err(_) => Ok(name.parse::<Reference>()?.to_string()),
    }
}
