//! `GET /v1/access`: what the credential of a request may do, and until when.

use api::tokens::AccessShown;
use axum::Json;

use super::{
    access::Access,
    routes::{Body, Method, Needs, Route, Routes, Spelling},
};
use crate::{
    openapi::{Doc, Tag},
    to_wire,
};

pub(super) fn routes() -> Routes {
    let route = Route {
        spelling: Spelling::Session,
        method: Method::Get,
        path: "/access",
        needs: Needs::Credential,
        body: Body::Message,
    };
    let doc = Doc::new(Tag::Tokens, "Tells what the credential of this request may do")
        .answers::<AccessShown>(200, "What it may do, and until when.");
    Routes::default().with(route, doc, show)
}

async fn show(access: Access) -> Json<AccessShown> {
    Json(to_wire::access(&access))
}
