//! How routes are mounted: each together with what opens it and what the document says of it.

use axum::{
    Router,
    handler::Handler,
    middleware,
    response::Response,
    routing::{self, MethodFilter},
};

use super::App;
use crate::{
    dataplane::shape::{self, Shape},
    openapi::{Doc, Opens, Operation},
};

/// Routes that have been mounted, and what is said of them.
#[derive(Debug)]
pub(crate) struct Routes {
    router: Router<App>,
    operations: Vec<Operation>,
    shape: Shape,
}

impl Routes {
    /// Begins a set of routes that refuse in this shape.
    pub(crate) fn new(shape: Shape) -> Self {
        Self { router: Router::new(), operations: Vec::new(), shape }
    }

    #[must_use]
    pub(crate) fn get<H, T>(self, path: &str, opens: Opens, doc: Doc, handler: H) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        self.on((MethodFilter::GET, "get"), path, opens, doc, handler)
    }

    #[must_use]
    pub(crate) fn post<H, T>(self, path: &str, opens: Opens, doc: Doc, handler: H) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        self.on((MethodFilter::POST, "post"), path, opens, doc, handler)
    }

    #[must_use]
    pub(crate) fn patch<H, T>(self, path: &str, opens: Opens, doc: Doc, handler: H) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        self.on((MethodFilter::PATCH, "patch"), path, opens, doc, handler)
    }

    #[must_use]
    pub(crate) fn delete<H, T>(self, path: &str, opens: Opens, doc: Doc, handler: H) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        self.on((MethodFilter::DELETE, "delete"), path, opens, doc, handler)
    }

    fn on<H, T>(
        mut self,
        (filter, method): (MethodFilter, &'static str),
        path: &str,
        opens: Opens,
        doc: Doc,
        handler: H,
    ) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        self.router = self.router.route(path, routing::on(filter, handler));
        let (path, shape) = (path.to_owned(), self.shape);
        self.operations.push(Operation { method, path, opens, shape, doc });
        self
    }

    /// Adds all routes of another module, each in its own shape.
    #[must_use]
    pub(crate) fn and(mut self, others: Self) -> Self {
        self.operations.extend(others.operations.iter().cloned());
        self.router = self.router.merge(others.into_router());
        self
    }

    /// Returns what is said of the routes.
    pub(crate) fn operations(&self) -> &[Operation] {
        &self.operations
    }

    pub(crate) fn into_router(self) -> Router<App> {
        match self.shape {
            Shape::Envelope | Shape::OAuth => self.router,
            Shape::Detail => {
                self.router.layer(middleware::map_response(async |answer: Response| {
                    shape::of(Shape::Detail, answer)
                }))
            }
        }
    }
}
