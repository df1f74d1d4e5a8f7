//! The routes over HTTP, and what they share.

mod a2a;
mod audit;
mod boxes;
mod form;
mod health;
mod keys;
mod mcp;
mod oauth;
pub(crate) mod problem;
pub(crate) mod request;
mod sessions;
mod strict;
mod threads;
mod tokens;

use std::{ops::Deref, sync::Arc};

use api::errors::ErrorCode;
use axum::{Router, extract::DefaultBodyLimit, middleware};
use engine::{sandboxes::Sandboxes, sessions::Sessions, tasks::Tasks};
use tokio::sync::watch;

use crate::{
    audit::Audit,
    auth::{Caller, Keyring},
    dataplane::{
        self,
        access::Plane,
        previews::{self, Previews},
    },
    executor::Executor,
    metrics::Metrics,
    serve::{Phase, Settings},
    tokens::Tokens,
    ws::{self, Origins, connection::Given},
};

use problem::ApiError;

/// The largest JSON body. The routes so far need far less.
const MAX_BODY: usize = 64 << 10;

/// What handlers work with. It is cloned for every layer that a request passes, so that it is one count and no
/// more.
#[derive(Clone, Debug)]
pub(crate) struct App(Arc<Parts>);

impl Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) keyring: Keyring,
    pub(crate) audit: Audit,
    pub(crate) executor: Executor,
    pub(crate) settings: Arc<Settings>,
    pub(crate) origins: Arc<Origins>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) tasks: Tasks,
    /// A server that keeps nothing has none.
    pub(crate) sandboxes: Option<Sandboxes>,
    pub(crate) tokens: Option<Tokens>,
    pub(crate) sessions: Option<Sessions>,
    /// What every URL begins with that is handed out, without a slash at its end.
    pub(crate) base_url: Arc<str>,
    pub(crate) previews: Previews,
}

impl App {
    pub(crate) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// Returns what rights to sandboxes are checked with, if there are any.
    pub(crate) fn plane(&self) -> Option<Plane> {
        Some(Plane {
            audit: self.audit.clone(),
            sandboxes: self.sandboxes.clone()?,
            tokens: self.tokens.clone()?,
            sessions: self.sessions.clone()?,
            keyring: self.keyring.clone(),
            base_url: Arc::clone(&self.base_url),
        })
    }

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
        .merge(a2a::router())
        .merge(audit::router())
        .merge(boxes::router())
        .merge(health::router())
        .merge(keys::router())
        .merge(mcp::router(&app))
        .merge(oauth::router())
        .merge(sessions::router())
        .merge(threads::router())
        .merge(tokens::router())
        .merge(ws::router())
        .merge(dataplane::router(&app))
        .fallback(async || ApiError::new(ErrorCode::NotFound, "there is no such route"))
        .method_not_allowed_fallback(async || {
            ApiError::new(ErrorCode::MethodNotAllowed, "this route has other methods")
        })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(app.clone(), previews::divert))
        .layer(middleware::from_fn(request::number))
        .with_state(app)
}
