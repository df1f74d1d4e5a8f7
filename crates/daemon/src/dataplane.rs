//! The data plane: everything under `/dp/{sandbox_id}`, for whoever shows a right to that sandbox.
//!
//! [`routes::Routes`] is the only way to a route here. A route says what it needs, and the gate in
//! front of it checks that before the handler is called: a handler that gets an [`access::Access`]
//! has been let in.

pub mod access;
mod conversation;
mod ending;
mod errors;
mod events;
pub(crate) mod exec;
pub(crate) mod files;
mod gate;
pub mod ports;
pub(crate) mod previews;
pub mod refusal;
pub mod routes;
pub(crate) mod shape;
mod shell;
mod tunnel;
mod who;

#[cfg(test)]
mod tests;

use axum::Router;

use crate::{http::App, openapi::Operation};
use routes::{Listed, Routes};
#[doc(hidden)]
pub use tunnel::fuzz_tunnel;

/// Every route of the data plane. Each module beside this one adds its own.
fn all() -> Routes {
    Routes::default()
        .and(who::routes())
        .and(exec::routes())
        .and(events::routes())
        .and(shell::routes())
        .and(files::routes())
        .and(ports::routes())
        .and(tunnel::routes())
        .and(previews::routes())
}

/// Returns the routes for a server that has sandboxes; others have none.
pub(crate) fn router(app: &App) -> Router<App> {
    match app.plane() {
        Some(plane) => all().router(&plane),
        None => Router::new(),
    }
}

/// Returns what is said of every route.
pub(crate) fn operations() -> Vec<Operation> {
    all().operations()
}

/// Lists every route with what it needs and which credentials it takes.
pub fn list() -> Vec<Listed> {
    all().list()
}
