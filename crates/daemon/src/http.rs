//! The routes over HTTP, and what they share.

mod a2a;
mod audit;
mod boxes;
mod documents;
mod form;
mod health;
pub(crate) mod hosts;
mod keys;
pub(crate) mod limits;
mod mcp;
pub(crate) mod oauth;
pub(crate) mod problem;
pub(crate) mod request;
pub(crate) mod routes;
mod sessions;
pub(crate) mod strict;
mod threads;
mod tokens;

use std::{ops::Deref, sync::Arc};

use api::errors::ErrorCode;
use axum::{
    Extension, Router,
    extract::DefaultBodyLimit,
    http::{HeaderValue, Method, header::ALLOW},
    middleware,
};
use engine::{sandboxes::Sandboxes, sessions::Sessions, tasks::Tasks};
use tokio::sync::watch;

use crate::{
    audit::Audit,
    auth::{Caller, Keyring},
    dataplane::{
        self,
        access::Plane,
        previews::{self, Previews},
        shape::Shape,
    },
    executor::Executor,
    guesses::Strangers,
    metrics::Metrics,
    openapi::Operation,
    serve::{Phase, Settings},
    tokens::Tokens,
    ws::{self, Origins, connection::Given},
};

use hosts::Hosts;
use problem::ApiError;
use routes::Routes;
use strict::MostBytes;

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
    /// What this server is called.
    pub(crate) hosts: Arc<Hosts>,
    pub(crate) strangers: Strangers,
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

/// Every route but those of the data plane. Each module beside this one adds its own.
fn all() -> Routes {
    Routes::new(Shape::Envelope)
        .and(a2a::routes())
        .and(audit::routes())
        .and(boxes::routes())
        .and(documents::routes())
        .and(health::routes())
        .and(keys::routes())
        .and(limits::routes())
        .and(mcp::routes())
        .and(oauth::routes())
        .and(sessions::routes())
        .and(threads::routes())
        .and(tokens::routes())
        .and(ws::routes())
}

/// Returns what is said of every route that there is.
pub(crate) fn operations() -> Vec<Operation> {
    let mut operations = all().operations().to_vec();
    operations.extend(dataplane::operations());
    operations
}

/// What leads elsewhere has no path, and is no route of any method (H15).
async fn no_route(method: Method) -> ApiError {
    if method == Method::CONNECT {
        let all = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
        let error = ApiError::new(ErrorCode::MethodNotAllowed, "this server leads nowhere else");
        return error.with_header(ALLOW, all);
    }
    ApiError::new(ErrorCode::NotFound, "there is no such route")
}

pub(crate) fn router(app: App) -> Router {
    all()
        .into_router()
        .merge(dataplane::router(&app))
        .fallback(no_route)
        .method_not_allowed_fallback(async || {
            ApiError::new(ErrorCode::MethodNotAllowed, "this route has other methods")
        })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(Extension(MostBytes(MAX_BODY)))
        .layer(middleware::from_fn_with_state(app.clone(), previews::divert))
        .layer(middleware::from_fn_with_state(app.clone(), request::number))
        .with_state(app)
}
