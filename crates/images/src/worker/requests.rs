//! What the worker does for each request.

use std::{
    error::Error,
    fs::File,
    io,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use isolate::spawner::IMAGE_FOLDER;
use tokio::runtime::Handle;

use super::{
    WorkerError,
    serve::Line,
    wire::{Answer, Ask, Failure, FailureKind, Record, Summary, Tell},
};
use crate::{
    digest::Digest,
    pull::{Listener, Opener, PullError, Pulled, Puller},
    reference::Reference,
    store::{Store, StoreError, TenantName},
    unpack::error::UnpackError,
};

/// How often progress is told at most.
const PROGRESS: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub(super) struct Requests {
    puller: Puller,
    line: Line,
}

impl Requests {
    pub(super) fn new(puller: Puller, line: Line) -> Self {
        Self { puller, line }
    }

    pub(super) async fn answer(
        &self,
        number: u64,
        ask: Ask,
        fds: Vec<OwnedFd>,
    ) -> Result<(), WorkerError> {
        let done = match ask {
            Ask::Pull { .. } | Ask::PullArchive { .. } | Ask::PullLayout { .. } => {
                self.pull_and_tell(number, ask, fds).await?
            }
            Ask::Find { tenant, name } => {
                self.blocking(move |store| find(store, &tenant, &name)).await
            }
            Ask::List { tenant } => self.blocking(move |store| list(store, &tenant)).await,
            Ask::RemoveNames { tenant, names } => {
                self.blocking(move |store| {
                    for name in &names {
                        store.remove_name(&tenant, name)?;
                    }
                    Ok(Answer::Removed)
                })
                .await
            }
            Ask::Collect { in_use } => {
                self.blocking(move |store| Ok(Answer::Collected(store.collect(&in_use)?))).await
            }
            // These have been obeyed already.
            Ask::Opened { .. } | Ask::Connected { .. } | Ask::Cancel | Ask::Release => {
                return Ok(());
            }
        };
        let done = done.map_err(|error| failure(&error));
        self.line.tell(Tell::Done { number, done }).await
    }

    /// Pulls, and tells how far it has come: now and then, and at the end in any case.
    async fn pull_and_tell(
        &self,
        number: u64,
        ask: Ask,
        fds: Vec<OwnedFd>,
    ) -> Result<Result<Answer, PullError>, WorkerError> {
        let listener = Listener::default();
        let mut events = listener.subscribe();
        let mut last_told = Instant::now();
        let mut pulling = Box::pin(self.pull(number, ask, fds, &listener));
        let pulled = loop {
            tokio::select! {
                biased;
                pulled = &mut pulling => break pulled,
                _ = events.changed() => {
                    if last_told.elapsed() >= PROGRESS {
                        last_told = Instant::now();
                        let progress = events.borrow_and_update().clone();
                        self.line.tell(Tell::Progress { number, progress }).await?;
                    }
                }
            }
        };
        let progress = events.borrow().clone();
        self.line.tell(Tell::Progress { number, progress }).await?;
        Ok(pulled.map(|Pulled { image, pin }| {
            self.line.keep(number, pin);
            Answer::Image(Some(Box::new(Record(image))))
        }))
    }

    async fn pull(
        &self,
        number: u64,
        ask: Ask,
        fds: Vec<OwnedFd>,
        listener: &Listener,
    ) -> Result<Pulled, PullError> {
        match ask {
            Ask::PullArchive { tenant, name } => {
                let file = fds.into_iter().next().ok_or_else(|| no_file(&name))?;
                let name = TenantName { tenant, name };
                self.puller.pull_archive(File::from(file), &name, listener).await
            }
            Ask::PullLayout { tenant, name, tag } => {
                let name = TenantName { tenant, name };
                let open = self.opener(number);
                self.puller.pull_layout(open, tag.as_deref(), &name, listener).await
            }
            Ask::Pull { tenant, name } => match name.parse() {
                Ok(reference @ Reference::Registry(_)) => {
                    let connector = self.line.connector(number);
                    self.puller.pull(&tenant, &reference, &connector, listener).await
                }
                // Paths of the machine are none of the worker's.
                Ok(_) | Err(_) => Err(PullError::InPlace(name)),
            },
            _ => Err(PullError::Stopped("this is no pull".to_owned())),
        }
    }

    /// Has the daemon open the parts of a layout. It is called where waiting holds up nobody.
    fn opener(&self, number: u64) -> Opener {
        let (line, runtime) = (self.line.clone(), Handle::current());
        Arc::new(move |name: &str| {
            runtime.block_on(line.open_part(number, name.to_owned())).map(File::from)
        })
    }

    async fn blocking(
        &self,
        work: impl FnOnce(&Store) -> Result<Answer, StoreError> + Send + 'static,
    ) -> Result<Answer, PullError> {
        let store = self.puller.store().clone();
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        Ok(done.map_err(|error| PullError::Stopped(error.to_string()))??)
    }
}

fn no_file(name: &str) -> PullError {
    PullError::Read { path: name.into(), source: io::ErrorKind::NotFound.into() }
}

fn find(store: &Store, tenant: &str, name: &str) -> Result<Answer, StoreError> {
    let image = match name.parse::<Digest>() {
        Ok(id) => store.image_of(tenant, id)?,
        Err(_) => store.named(tenant, name)?,
    };
    Ok(Answer::Image(image.map(|image| Box::new(Record(image)))))
}

fn list(store: &Store, tenant: &str) -> Result<Answer, StoreError> {
    let listed = store.images(tenant)?.into_iter();
    let summary = listed.map(|it| Summary {
        id: it.image.id,
        manifest: it.image.manifest,
        names: it.names,
        size: it.image.size,
    });
    Ok(Answer::Images(summary.collect()))
}

/// Puts an error into the form in which it goes to the daemon.
pub(super) fn failure(error: &PullError) -> Failure {
    // Where the folder is in here is not where it is for anybody else.
    let message = chain(error).replace(&format!("{IMAGE_FOLDER}/"), "images/");
    Failure { kind: kind_of(error), message }
}

fn kind_of(error: &PullError) -> FailureKind {
    match error {
        PullError::NotFound { .. } => FailureKind::NotFound,
        PullError::Unauthorized { .. } | PullError::Challenge { .. } => FailureKind::Unauthorized,
        PullError::Unreachable { .. }
        | PullError::Timeout { .. }
        | PullError::Broken { .. }
        | PullError::Status { .. } => FailureKind::Unreachable,
        PullError::NotAllowed { .. } | PullError::ForeignTokenService { .. } => {
            FailureKind::NotAllowed
        }
        PullError::Certificates(_)
        | PullError::InPlace(_)
        | PullError::MediaType(_)
        | PullError::Platform(_)
        | PullError::Several { .. } => FailureKind::Unsupported,
        PullError::Downgrade { .. }
        | PullError::Redirects { .. }
        | PullError::Address { .. }
        | PullError::TooLarge { .. }
        | PullError::Size { .. }
        | PullError::Digest { .. }
        | PullError::Manifest(_)
        | PullError::Config(_)
        | PullError::Layers
        | PullError::NotAnImage { .. } => FailureKind::Refused,
        PullError::Unpack { source: UnpackError::Write { source, .. }, .. }
            if is_the_disks(source) =>
        {
            FailureKind::Store
        }
        PullError::Unpack { .. } => FailureKind::Refused,
        PullError::Read { .. } => FailureKind::Unreadable,
        PullError::Store(StoreError::TenantFull { .. } | StoreError::StoreFull { .. }) => {
            FailureKind::Full
        }
        PullError::Store(StoreError::Mismatch { .. } | StoreError::Config(_)) => {
            FailureKind::Refused
        }
        PullError::Scratch(_) | PullError::Store(_) => FailureKind::Store,
        PullError::Stopped(_) => FailureKind::Stopped,
    }
}

/// Tells whether a file could not be written for a reason that is not in the layer.
fn is_the_disks(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::PermissionDenied
    )
}

/// Returns an error with its causes, in one line of a bounded length.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text.chars().take(LONGEST).collect()
}

const LONGEST: usize = 2000;
