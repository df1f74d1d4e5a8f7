//! `/openapi.json` and `/docs`: what there is over HTTP, for programs and for people.

use axum::{
    http::{
        HeaderName, HeaderValue,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
            X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
        },
    },
    response::{IntoResponse as _, Response},
};

use super::routes::Routes;
use crate::{
    dataplane::shape::Shape,
    openapi::{self, Doc, Opens, Tag, page},
};

pub(super) fn routes() -> Routes {
    let document = Doc::new(Tag::Server, "Returns this document").answers_as(
        200,
        "OpenAPI 3.1.",
        "application/json",
    );
    let shown = Doc::new(Tag::Server, "Shows this document to people").answers_as(
        200,
        "A page without scripts.",
        "text/html",
    );
    Routes::new(Shape::Envelope).get("/openapi.json", Opens::Public, document, give).get(
        "/docs",
        Opens::Public,
        shown,
        show,
    )
}

/// It is the same for everybody and says nothing of this server.
async fn give() -> Response {
    let text = openapi::text();
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-cache")], text).into_response()
}

/// The page is read and nothing else: it runs no script, loads nothing and is shown in no frame.
async fn show() -> Response {
    let page = page::page();
    let fixed: [(HeaderName, &'static str); 5] = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CACHE_CONTROL, "no-cache"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
    ];
    let mut answer = (fixed, page.html.as_str()).into_response();
    if let Ok(policy) = HeaderValue::from_str(&page.policy) {
        answer.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    }
    answer
}
