//! Carries out what `model` decides, through `isolate`.
//!
//! Knows no HTTP, WebSocket or gRPC: surfaces translate to and from these types.

pub mod executions;
pub mod tasks;

use std::sync::Arc;

use model::{admission::Load, limits::LimitPolicy, units::ByteSize};

/// The engine of this node. Cheap to clone; all clones are the same engine.
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {}

/// What went wrong on our side.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("the spawner is gone")]
    SpawnerGone,
}

/// A language that executions can be written in, as this machine has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Language {
    pub name: String,
    /// Below this the runtime cannot start.
    pub min_memory: ByteSize,
}

impl Engine {
    /// Returns the language of that name, if its runtime is installed.
    pub fn language(&self, _name: &str) -> Option<&Language> {
        None
    }

    /// Returns what the operator allows at most.
    pub fn limit_policy(&self) -> LimitPolicy {
        LimitPolicy::default()
    }

    pub fn load(&self) -> Load {
        let _inner = &self.inner;
        Load::default()
    }

    /// Opens an account for one connection: its executions are counted and limited together.
    pub fn client(&self) -> executions::Client {
        executions::Client::new(self.clone())
    }
}
