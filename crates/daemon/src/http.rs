//! The routes over HTTP, and what they share.

mod health;
mod keys;
pub(crate) mod problem;

use std::sync::Arc;

use api::errors::ErrorCode;
use axum::{Router, extract::DefaultBodyLimit};
use engine::tasks::Tasks;
use tokio::sync::watch;

use crate::{
    auth::{Caller, Keyring},
    executor::Executor,
    metrics::Metrics,
    serve::{Phase, Settings},
    ws::{self, Origins, connection::Given},
};

use problem::ApiError;

/// The largest JSON body. The routes so far need far less.
const MAX_BODY: usize = 64 << 10;

/// What handlers work with. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub(crate) keyring: Keyring,
    pub(crate) executor: Executor,
    pub(crate) settings: Arc<Settings>,
    pub(crate) origins: Arc<Origins>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) tasks: Tasks,
}

impl App {
    pub(crate) fn given(&self, caller: Caller) -> Given {
        Given {
            caller,
            executor: self.executor.clone(),
            settings: Arc::clone(&self.settings),
            metrics: Arc::clone(&self.metrics),
            phase: self.phase.clone(),
        }
    }
}

pub(crate) fn router(app: App) -> Router {
    Router::new()
        .merge(health::router())
        .merge(keys::router())
        .merge(ws::router())
        .fallback(async || ApiError::new(ErrorCode::NotFound, "there is no such route"))
        .method_not_allowed_fallback(async || {
            ApiError::new(ErrorCode::MethodNotAllowed, "this route has other methods")
        })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(app)
}
