//! Requests that are being answered, by the names that their clients know them by: a client takes one back in
//! a message of its own.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;
use tokio::sync::Notify;

use super::call::Who;

/// Whose request it is: the credential, what the client calls itself by, what it calls the request by.
type Name = (String, String, String);

/// All that are being answered. There are no more of them than there is work being done.
#[derive(Clone, Debug, Default)]
pub(super) struct Running(Arc<Mutex<HashMap<Name, Arc<Notify>>>>);

/// The place of one of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    running: Running,
    name: Name,
    cancelled: Arc<Notify>,
}

fn name(who: &Who, client: String, id: &Value) -> Name {
    (who.credential().to_owned(), client, id.to_string())
}

impl Running {
    pub(super) fn enter(&self, who: &Who, client: String, id: &Value) -> Arc<Place> {
        let (name, cancelled) = (name(who, client, id), Arc::<Notify>::default());
        self.with(|all| all.insert(name.clone(), Arc::clone(&cancelled)));
        Arc::new(Place { running: self.clone(), name, cancelled })
    }

    pub(super) fn cancel(&self, who: &Who, client: String, id: &Value) {
        if let Some(cancelled) = self.with(|all| all.get(&name(who, client, id)).cloned()) {
            cancelled.notify_one();
        }
    }

    /// No code panics while it holds the lock, so a poisoned one is as good as any.
    fn with<T>(&self, act: impl FnOnce(&mut HashMap<Name, Arc<Notify>>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Place {
    /// Returns when the client wants no answer any more.
    pub(super) async fn cancelled(&self) {
        self.cancelled.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.running.with(|all| {
            // A client that uses a name twice at once has the later one under it.
            if all.get(&self.name).is_some_and(|it| Arc::ptr_eq(it, &self.cancelled)) {
                all.remove(&self.name);
            }
        });
    }
}
