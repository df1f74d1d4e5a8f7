//! The service `ringfence.v1.ImageService`: extract, convert, call the engine, convert.

use std::{pin::Pin, time::Duration};

use api::{
    errors::agbox::Reason,
    ringfence::v1::{self, image_service_server::ImageService, pull_image_response::Told},
};
use engine::{
    images::{Image, ImageError, Images, Pinned, Progress, Wanted},
    sandboxes::{SandboxError, Sandboxes},
};
use futures_util::{Stream, stream};
use model::{
    audit::{Action, Entry, Outcome},
    ids::Tenant,
};
use tokio::{
    select,
    sync::watch,
    time::{Instant, sleep_until},
};
use tonic::{Request, Response, Status};

use super::{
    call::{Deadline, Who},
    errors::{About, image_reason, of_image, of_sandbox},
    events::Until,
    progress,
};
use crate::{audit::Audit, serve::Phase};

/// How often progress is told at most.
const SELDOM: Duration = Duration::from_millis(100);

/// Answers the calls. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ImageSurface {
    /// A server that keeps nothing has none.
    sandboxes: Option<Sandboxes>,
    phase: watch::Receiver<Phase>,
    audit: Audit,
}

type Answer<T> = Result<Response<T>, Status>;

/// What a pull tells.
pub(crate) type Pulls = Pin<Box<dyn Stream<Item = Result<v1::PullImageResponse, Status>> + Send>>;

#[tonic::async_trait]
impl ImageService for ImageSurface {
    type PullImageStream = Pulls;

    async fn pull_image(&self, request: Request<v1::PullImageRequest>) -> Answer<Pulls> {
        let deadline = request.extensions().get::<Deadline>().map(|deadline| deadline.0);
        let (sandboxes, who, v1::PullImageRequest { name }) = self.take(request)?;
        let entry = who.entry(Action::ImagePull);
        let images = sandboxes.images().clone();
        let wanted = name.parse::<Wanted>().and_then(|wanted| {
            images.check(&wanted.reference)?;
            Ok(wanted)
        });
        let wanted = wanted.map_err(|error| refuse(&self.audit, &entry, &error))?;
        let entry = Entry { object: Some(shown(&wanted.reference.to_string())), ..entry };
        let until = Until { deadline, revoked: who.revoked, phase: self.phase.clone() };
        let pulling =
            Pulling::new(images, (who.tenant, wanted), until, (self.audit.clone(), entry));
        let told = stream::unfold(Some(pulling), async |pulling| {
            let mut pulling = pulling?;
            let told = pulling.next().await;
            let is_last = !matches!(told, Ok(Told::Progress(_)));
            let told = told.map(|told| v1::PullImageResponse { told: Some(told) });
            Some((told, (!is_last).then_some(pulling)))
        });
        Ok(Response::new(Box::pin(told)))
    }

    async fn list_images(
        &self,
        request: Request<v1::ListImagesRequest>,
    ) -> Answer<v1::ListImagesResponse> {
        let (sandboxes, who, _) = self.take(request)?;
        let listed =
            sandboxes.images().list(&who.tenant).await.map_err(|error| of_image(&error, "name"))?;
        let images = listed.into_iter().map(|image| v1::Image {
            id: image.id.to_string(),
            manifest: image.manifest.map(|digest| digest.to_string()).unwrap_or_default(),
            names: image.names,
            size: image.size,
        });
        Ok(Response::new(v1::ListImagesResponse { images: images.collect() }))
    }

    async fn remove_image(
        &self,
        request: Request<v1::RemoveImageRequest>,
    ) -> Answer<v1::RemoveImageResponse> {
        let (sandboxes, who, v1::RemoveImageRequest { name }) = self.take(request)?;
        let entry = who.entry(Action::ImageRemove);
        let removed = sandboxes.remove_image(&who.tenant, &name).await;
        let removed = removed.map_err(|error| match &error {
            SandboxError::Image(error) => refuse(&self.audit, &entry, error),
            other => {
                self.audit.note(denied(&entry, Reason::Unavailable));
                of_sandbox(other, "", About::Life)
            }
        })?;
        self.audit.note(Entry { object: Some(shown(&name)), ..entry });
        Ok(Response::new(v1::RemoveImageResponse {
            images_deleted: removed.images,
            layers_deleted: removed.layers,
            bytes_deleted: removed.bytes,
        }))
    }
}

impl ImageSurface {
    pub(crate) fn new(
        sandboxes: Option<Sandboxes>,
        phase: watch::Receiver<Phase>,
        audit: Audit,
    ) -> Self {
        Self { sandboxes, phase, audit }
    }

    /// Takes a call apart: what answers it, who makes it, what he says.
    fn take<T>(&self, request: Request<T>) -> Result<(Sandboxes, Who, T), Status> {
        super::call::take(self.sandboxes.as_ref(), request)
    }
}

/// Notes why something is not done with an image, and returns the answer that says so.
fn refuse(audit: &Audit, entry: &Entry, error: &ImageError) -> Status {
    audit.note(denied(entry, image_reason(error)));
    of_image(error, "name")
}

/// Returns the entry of what was not done. Of what was asked for, nothing is repeated.
fn denied(entry: &Entry, reason: Reason) -> Entry {
    let outcome = match reason {
        Reason::Unavailable | Reason::ResourceExhausted => Outcome::Failed,
        _ => Outcome::Denied,
    };
    Entry { outcome, reason: Some(reason.row().0.to_owned()), ..entry.clone() }
}

/// Returns what records call an image. Paths of the host are in none.
fn shown(name: &str) -> String {
    name.split_once(":/").map_or(name, |(kind, _path)| kind).to_owned()
}

/// A pull that somebody watches. It ends with him, unless others want the same.
struct Pulling {
    pull: Pin<Box<dyn Future<Output = Result<Pinned, ImageError>> + Send>>,
    progress: watch::Receiver<Progress>,
    /// Nothing is told before.
    from: Instant,
    until: Until,
    record: PullRecord,
}

/// The record of a pull, which is written when the pull has ended: with its outcome, or as failed if the caller went
/// away before.
struct PullRecord {
    audit: Audit,
    entry: Option<Entry>,
}

impl PullRecord {
    fn granted(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.audit.note(entry);
        }
    }

    fn refused(&mut self, error: &ImageError) -> Status {
        match self.entry.take() {
            Some(entry) => refuse(&self.audit, &entry, error),
            None => of_image(error, "name"),
        }
    }
}

impl Drop for PullRecord {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            let reason = Some("the caller went away".to_owned());
            self.audit.note(Entry { outcome: Outcome::Failed, reason, ..entry });
        }
    }
}

impl Pulling {
    fn new(
        images: Images,
        (tenant, wanted): (Tenant, Wanted),
        until: Until,
        record: (Audit, Entry),
    ) -> Self {
        let (listener, progress) = watch::channel(Progress::default());
        let pull = Box::pin(async move { images.pull(&tenant, wanted, &listener).await });
        let record = PullRecord { audit: record.0, entry: Some(record.1) };
        Self { pull, progress, from: Instant::now(), until, record }
    }

    async fn next(&mut self) -> Result<Told, Status> {
        let changed = async {
            if self.progress.changed().await.is_err() {
                // The pull is about to tell its end.
                std::future::pending::<()>().await;
            }
            sleep_until(self.from).await;
        };
        select! {
            biased;
            ended = self.until.reached() => return Err(ended),
            pulled = &mut self.pull => {
                return match pulled {
                    Ok(pulled) => {
                        self.record.granted();
                        Ok(Told::Image(show(&pulled)))
                    }
                    Err(error) => Err(self.record.refused(&error)),
                };
            }
            () = changed => {}
        }
        self.from = Instant::now() + SELDOM;
        Ok(Told::Progress(progress::sum(&self.progress.borrow_and_update())))
    }
}

fn show(image: &Image) -> v1::Image {
    v1::Image {
        id: image.id.to_string(),
        manifest: image.manifest.map(|digest| digest.to_string()).unwrap_or_default(),
        names: vec![image.name.clone()],
        size: image.size,
    }
}
