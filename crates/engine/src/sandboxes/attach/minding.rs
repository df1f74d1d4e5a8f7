//! What happens to a command that nobody watches.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use isolate::supervisor::wire::Ask as Say;
use model::{
    exec::Exec,
    ids::{ExecId, Tenant},
    sandbox::Request,
};
use tokio::{select, sync::watch, time::sleep};

use crate::sandboxes::{Shared, actor::Ask, feeds::Feed, shells};

/// How long what somebody wanted to read is kept for it after it has gone.
const COMES_BACK: Duration = Duration::from_mins(1);

/// How long a command is left alone that is to end with its client, if the server has just begun: the
/// client comes back at once if it does.
const RECOVERS: Duration = Duration::from_secs(10);

/// Minds a command that runs, unless somebody does so already.
pub(in crate::sandboxes) fn begin(shared: &Arc<Shared>, exec: &Exec, feed: &Arc<Feed>) {
    if feed.mind() {
        let (weak, feed) = (Arc::downgrade(shared), Arc::clone(feed));
        shared.tasks.start("watchers of an exec", mind(weak, exec.clone(), feed));
    }
}

/// Minds a command that another server has left.
pub(in crate::sandboxes) fn begin_again(
    shared: &Arc<Shared>,
    tenant: &Tenant,
    exec: &ExecId,
    feed: &Arc<Feed>,
) {
    if !feed.mind() {
        return;
    }
    let (weak, feed) = (Arc::downgrade(shared), Arc::clone(feed));
    let (store, tenant, exec) = (shared.store.clone(), tenant.clone(), exec.clone());
    shared.tasks.start("watchers of an exec", async move {
        // Without its record it is not known how long it may be left alone.
        let Ok(Some(found)) = store.exec(&tenant, &exec).await else { return };
        let mut exec = found.exec;
        if let Some(shared) = weak.upgrade() {
            shells::keep_if_shell(&shared, &exec, &feed);
        }
        exec.spec.unattended = exec.spec.unattended.map(|unattended| unattended.max(RECOVERS));
        mind(weak, exec, feed).await;
    });
}

async fn mind(shared: Weak<Shared>, exec: Exec, feed: Arc<Feed>) {
    let mut flow = feed.flow.subscribe();
    let over = until(&mut flow, |flow| flow.end.is_some());
    let left = until_left(&feed, exec.spec.unattended);
    tokio::pin!(over, left);
    loop {
        select! {
            biased;
            () = &mut over => return,
            () = &mut left => return cancel(&shared, &exec).await,
            () = until_unwanted(&feed) => let_go(&shared, &exec, &feed).await,
        }
    }
}

/// Waits until nobody has watched for longer than it may be left alone.
async fn until_left(feed: &Feed, unattended: Option<Duration>) {
    let Some(unattended) = unattended else { return std::future::pending().await };
    let mut attended = feed.attended.subscribe();
    loop {
        until(&mut attended, |count| *count == 0).await;
        select! {
            biased;
            () = until(&mut attended, |count| *count > 0) => {}
            () = sleep(unattended) => return,
        }
    }
}

/// Waits until it is held up for somebody who has not come back.
async fn until_unwanted(feed: &Feed) {
    let mut awaited = feed.awaited.subscribe();
    loop {
        until(&mut awaited, |count| *count == 0).await;
        select! {
            biased;
            () = until(&mut awaited, |count| *count > 0) => {}
            () = sleep(COMES_BACK) => {
                if feed.is_held() {
                    return;
                }
                // Somebody has to come first.
                until(&mut awaited, |count| *count > 0).await;
            }
        }
    }
}

/// Lets a command go on that waited for those to read who have gone.
async fn let_go(shared: &Weak<Shared>, exec: &Exec, feed: &Feed) {
    if feed.forget_the_gone()
        && let Some(shared) = shared.upgrade()
    {
        let say = Say::Pace { exec: exec.id.to_string(), wanted: None };
        // A sandbox that is gone holds nothing.
        let _ = shared.send(&exec.sandbox, Ask::Say(say)).await;
    }
}

async fn cancel(shared: &Weak<Shared>, exec: &Exec) {
    if let Some(shared) = shared.upgrade() {
        // It may have ended by itself meanwhile.
        let _ = shared.request(&exec.sandbox, Request::CancelExec(exec.id.clone())).await;
    }
}

/// Waits for a value that will do. If nobody is left to send one, it is never there.
pub(in crate::sandboxes) async fn until<T>(
    receiver: &mut watch::Receiver<T>,
    will_do: impl FnMut(&T) -> bool,
) {
    if receiver.wait_for(will_do).await.is_err() {
        std::future::pending::<()>().await;
    }
}
