//! Named tasks that are joined on shutdown. The only place that spawns onto the runtime.

use std::{future::Future, sync::Arc};

use tokio::sync::Notify;
use tracing::Instrument as _;

/// A group of tasks that can be waited for.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    running: std::sync::atomic::AtomicUsize,
    one_ended: Notify,
}

/// Counts one running task, also when it panics or is dropped.
struct Running(Arc<Shared>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, std::sync::atomic::Ordering::AcqRel);
        self.0.one_ended.notify_waiters();
    }
}

impl Tasks {
    /// Starts a task under a name that shows in its log lines.
    pub fn start<F>(&self, name: &'static str, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.shared.running.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
        let running = Running(Arc::clone(&self.shared));
        let span = tracing::debug_span!("task", name);
        #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
        tokio::spawn(
            async move {
                let _running = running;
                task.await;
            }
            .instrument(span),
        );
    }

    /// Returns when every task has ended.
    pub async fn join(&self) {
        loop {
            let ended = self.shared.one_ended.notified();
            if self.shared.running.load(std::sync::atomic::Ordering::Acquire) == 0 {
                return;
            }
            ended.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn join_waits_for_every_task() {
        let tasks = Tasks::default();
        let (release, held) = tokio::sync::oneshot::channel::<()>();
        let (done, was_done) = tokio::sync::oneshot::channel();
        tasks.start("held", async move {
            held.await.unwrap();
            done.send(()).unwrap();
        });
        release.send(()).unwrap();
        tasks.join().await;
        was_done.await.unwrap();
    }
}
