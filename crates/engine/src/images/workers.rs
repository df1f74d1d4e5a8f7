//! One worker at a time: started when it is wanted, let go when it is not.

use std::{sync::Arc, time::Duration};

use isolate::plan::Identity;
use model::outbound::Endpoint;
use tokio::{
    sync::Mutex,
    time::{sleep, timeout},
};

use super::{
    ImageError, Settings,
    link::{Link, Use},
};
use crate::{outbound::Connector, spawner::Spawner, tasks::Tasks};

/// Longer than a worker takes to start on a busy machine, also if much is to be deleted first.
const START: Duration = Duration::from_mins(1);

/// The worker of this node. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Workers {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    settings: Settings,
    identity: Identity,
    spawner: Spawner,
    tasks: Tasks,
    connector: Connector,
    /// Locked while one is started, so that all who want one wait for the same.
    current: Mutex<Option<Link>>,
}

impl Workers {
    pub(super) fn new(
        settings: Settings,
        identity: Identity,
        spawner: Spawner,
        tasks: Tasks,
    ) -> Self {
        let (connector, current) = (Connector::new(settings.rules()), Mutex::default());
        let inner = Inner { settings, identity, spawner, tasks, connector, current };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the host and port of the registry in an image's name.
    pub(super) fn endpoint_of(&self, registry: &str) -> Option<Endpoint> {
        self.inner.settings.endpoint_of(registry)
    }

    /// Returns why work on an image failed. A worker that ends with its server is no failure of the image.
    pub(super) fn cause_of(&self, error: ImageError) -> ImageError {
        if self.inner.spawner.is_ending() { ImageError::SpawnerGone } else { error }
    }

    /// Returns the link to the worker, which is started if there is none.
    pub(super) async fn link(&self) -> Result<Use, ImageError> {
        let mut current = self.inner.current.lock().await;
        if let Some(link) = current.as_ref().filter(|link| !link.is_gone()) {
            return Ok(link.begin());
        }
        let link = self.start().await?;
        *current = Some(link.clone());
        let using = link.begin();
        let workers = self.clone();
        let idle = async move { workers.let_go_when_idle(link).await };
        self.inner.tasks.start("idle image worker", idle);
        Ok(using)
    }

    async fn start(&self) -> Result<Link, ImageError> {
        let inner = self.inner.clone();
        let hello = tokio::task::spawn_blocking(move || inner.settings.hello(inner.identity));
        let hello =
            hello.await.map_err(|error| ImageError::Worker { message: error.to_string() })??;
        let opened = async {
            let socket = self.inner.spawner.start_image_worker().await?;
            let (connector, tasks) = (self.inner.connector.clone(), self.inner.tasks.clone());
            Link::open(socket, hello, connector, tasks).await
        };
        let late = |_elapsed| ImageError::Worker { message: "it did not start in time".into() };
        timeout(START, opened).await.map_err(late)?
    }

    async fn let_go_when_idle(&self, link: Link) {
        let mut uses = link.uses();
        while !link.is_gone() {
            if *uses.borrow_and_update() > 0 {
                drop(uses.changed().await);
                continue;
            }
            tokio::select! {
                // Somebody has begun to use it, or it is gone.
                _ = uses.changed() => {}
                () = sleep(self.inner.settings.idle) => {
                    let mut current = self.inner.current.lock().await;
                    if *uses.borrow() == 0 {
                        *current = None;
                        link.close();
                        return;
                    }
                }
            }
        }
    }
}
