//! The companions of a sandbox: one task for each has it made, keeps its command running and finds
//! out whether it is healthy. What that means for the sandbox is its own task's to say.

mod body;

use std::sync::Arc;

use model::sandbox::Sandbox;
use tokio::sync::{mpsc, watch};

use super::Shared;
use body::Body;

/// What becomes of a companion.
#[derive(Debug)]
pub(super) struct News {
    pub(super) number: usize,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// It runs, and its check has passed if it has one.
    Healthy,
    Failed(String),
}

/// What is wanted of companions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Run,
    Stop,
}

/// The companions of one sandbox. Whoever drops this leaves them to themselves.
#[derive(Debug)]
pub(super) struct Companions {
    wish: watch::Sender<Wish>,
    news: mpsc::Receiver<News>,
}

impl Companions {
    /// Finds the companions of a sandbox that is ready, and has those made that are not there.
    pub(super) fn begin(shared: &Arc<Shared>, sandbox: &Sandbox) -> Self {
        let (wish, wished) = watch::channel(Wish::Run);
        let count = sandbox.spec.companions.len();
        // Each has at most two things to say.
        let (tell, news) = mpsc::channel(2 * count.max(1));
        for (number, companion) in sandbox.spec.companions.iter().enumerate() {
            let told = sandbox.life.companions.get(&companion.name).copied();
            let (wished, tell) = (wished.clone(), tell.clone());
            let body = Body::new(Arc::clone(shared), sandbox.clone(), number, told, wished, tell);
            if let Some(body) = body {
                shared.tasks.start("companion", body.run());
            }
        }
        Self { wish, news }
    }

    /// Returns what becomes of one of them, when something does.
    pub(super) async fn next(&mut self) -> News {
        match self.news.recv().await {
            Some(news) => news,
            None => std::future::pending().await,
        }
    }

    /// Asks their processes to end.
    pub(super) fn stop(&self) {
        self.wish.send_replace(Wish::Stop);
    }

    /// Returns when they have ended, or have had their time for it.
    pub(super) async fn stopped(mut self) {
        self.stop();
        while self.news.recv().await.is_some() {}
    }
}
