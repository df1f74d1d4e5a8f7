//! `GET /v1/access`: what the credential of a request may do, and until when.

use api::tokens::AccessShown;
use axum::Json;

use super::{
    access::Access,
    routes::{Body, Method, Needs, Route, Routes, Spelling},
};
use crate::to_wire;

pub(super) fn routes() -> Routes {
    let route = Route {
        spelling: Spelling::Session,
        method: Method::Get,
        path: "/access",
        needs: Needs::Credential,
        body: Body::Message,
    };
    Routes::default().with(route, show)
}

async fn show(access: Access) -> Json<AccessShown> {
    Json(to_wire::access(&access))
}
