//! What a route of the data plane is: where it is, what it needs, what it takes.

use std::{fmt, sync::Arc};

use axum::{
    Extension, Router,
    extract::DefaultBodyLimit,
    handler::Handler,
    middleware,
    routing::{self, MethodRouter},
};
use model::capability::{Capabilities, Capability};

use super::{
    access::Plane,
    gate::{self, Gate},
    shape::Shape,
};
use crate::{
    http::{App, strict::MostBytes},
    openapi::{Doc, Opens, Operation},
};

/// The largest message that is read into memory.
const MAX_MESSAGE: usize = 1 << 20;

/// A route as it is declared. It has to say everything: what is left out does not compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub spelling: Spelling,
    pub method: Method,
    /// What follows the base, with the slash. Handlers get `{sandbox_id}` as the first parameter of
    /// the path and their own after it.
    pub path: &'static str,
    pub needs: Needs,
    pub body: Body,
}

/// Which contract a route belongs to. It decides where the route is, which credentials it takes and
/// in which shape it refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// Of the session protocol: below `/dp/{sandbox_id}/v1`, tokens only.
    Session,
    /// Of the token exchange, and our own: below `/dp/{sandbox_id}`, tokens only.
    Endpoint,
    /// A server in the sandbox: below `/dp/{sandbox_id}`, also by the token of a service URL.
    Service,
    /// A URL that opens one file by itself: below `/dp/{sandbox_id}`, with no other credential.
    Link,
    /// Of LangSmith: below both. Below `/dp/{sandbox_id}` a key of the sandbox's tenant will do too.
    LangSmith,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// And `HEAD`.
    Get,
    Put,
    Post,
    Delete,
    /// Whatever it is.
    Any,
    /// The request that becomes a WebSocket.
    Socket,
}

/// What has to be shown before the handler is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Any valid credential for the sandbox.
    Credential,
    Capability(Capability),
    /// A credential with at least this capability, in the upgrade or in the first frame: the handler
    /// gets an [`super::access::Unproven`].
    InBand(Capability),
}

/// How much a request may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// A message, read into memory: at most 1 MiB.
    Message,
    /// As much as the handler takes; it reads it piece by piece and keeps its own bound.
    Streamed,
}

/// Which credentials a route takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials {
    Token,
    TokenOrKey,
    /// A token of the sandbox, or one that is for this port alone.
    TokenOrServiceToken,
    /// What the path ends with.
    Link,
}

impl Spelling {
    /// Returns where the routes are, and what each place takes.
    fn places(self) -> &'static [(&'static str, Credentials)] {
        const BASE: &str = "/dp/{sandbox_id}";
        const BELOW: &str = "/dp/{sandbox_id}/v1";
        match self {
            Self::Session => &[(BELOW, Credentials::Token)],
            Self::Endpoint => &[(BASE, Credentials::Token)],
            Self::Service => &[(BASE, Credentials::TokenOrServiceToken)],
            Self::Link => &[(BASE, Credentials::Link)],
            Self::LangSmith => &[(BASE, Credentials::TokenOrKey), (BELOW, Credentials::Token)],
        }
    }

    /// Returns in which shape its routes refuse.
    pub(super) const fn shape(self) -> Shape {
        match self {
            Self::Session | Self::Endpoint | Self::Service => Shape::Envelope,
            Self::LangSmith | Self::Link => Shape::Detail,
        }
    }
}

impl Method {
    fn router<H, T>(self, handler: H) -> MethodRouter<App>
    where
        H: Handler<T, App>,
        T: 'static,
    {
        match self {
            Self::Get | Self::Socket => routing::get(handler),
            Self::Put => routing::put(handler),
            Self::Post => routing::post(handler),
            Self::Delete => routing::delete(handler),
            Self::Any => routing::any(handler),
        }
    }

    /// Returns the methods that the document has.
    const fn documented(self) -> &'static [&'static str] {
        match self {
            Self::Get | Self::Socket => &["get"],
            Self::Put => &["put"],
            Self::Post => &["post"],
            Self::Delete => &["delete"],
            Self::Any => &["get", "put", "post", "delete", "options", "patch"],
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Put => "PUT",
            Self::Post => "POST",
            Self::Delete => "DELETE",
            Self::Any => "ANY",
            Self::Socket => "WS",
        }
    }
}

impl Needs {
    /// Returns the capability that must be there, wherever it is shown.
    pub const fn capability(self) -> Option<Capability> {
        match self {
            Self::Credential => None,
            Self::Capability(capability) | Self::InBand(capability) => Some(capability),
        }
    }
}

/// Routes that have been declared.
#[derive(Default)]
pub struct Routes(Vec<(Route, Doc, MethodRouter<App>)>);

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(route, ..)| route)).finish()
    }
}

impl Routes {
    /// Adds a route, with what the document says of it.
    #[must_use]
    pub(crate) fn with<H, T>(mut self, route: Route, doc: Doc, handler: H) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        self.0.push((route, doc, route.method.router(handler)));
        self
    }

    /// Adds all routes of another module.
    #[must_use]
    pub(crate) fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Puts a gate in front of each route.
    pub(super) fn router(self, plane: &Plane) -> Router<App> {
        let mut router = Router::new();
        let most = Extension(MostBytes(MAX_MESSAGE));
        for (route, _, handler) in self.0 {
            let limit = match route.body {
                Body::Message => DefaultBodyLimit::max(MAX_MESSAGE),
                Body::Streamed => DefaultBodyLimit::disable(),
            };
            for (base, credentials) in route.spelling.places() {
                let gate = Arc::new(Gate::new(plane.clone(), &route, *credentials));
                let enter = middleware::from_fn_with_state(gate, gate::enter);
                let guarded = handler.clone().layer((most, limit)).layer(enter);
                router = router.route(&format!("{base}{}", route.path), guarded);
            }
        }
        router
    }

    pub(super) fn list(&self) -> Vec<Listed> {
        let mut listed: Vec<Listed> = Vec::new();
        for (route, ..) in &self.0 {
            for (base, credentials) in route.spelling.places() {
                listed.push(Listed {
                    method: route.method.name(),
                    path: format!("{base}{}", route.path),
                    needs: route.needs,
                    credentials: *credentials,
                });
            }
        }
        listed
    }

    /// Returns what is said of the routes. One that takes every method is there under each.
    pub(super) fn operations(&self) -> Vec<Operation> {
        let mut operations = Vec::new();
        for (route, doc, _) in &self.0 {
            for (base, credentials) in route.spelling.places() {
                let path = format!("{base}{}", route.path);
                let opens = Opens::Sandbox {
                    needs: route.needs.capability(),
                    credentials: *credentials,
                    is_in_band: matches!(route.needs, Needs::InBand(_)),
                };
                let (shape, doc) = (route.spelling.shape(), doc.clone());
                operations.extend(route.method.documented().iter().map(|method| Operation {
                    method,
                    path: path.clone(),
                    opens,
                    shape,
                    doc: doc.clone(),
                }));
            }
        }
        operations
    }
}

/// A route, for those who look at all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// `WS` for one that becomes a WebSocket, `ANY` for one that takes every method.
    pub method: &'static str,
    pub path: String,
    pub credentials: Credentials,
    needs: Needs,
}

impl Listed {
    /// Returns the capability that the credential must have.
    pub fn capability(&self) -> Option<Capability> {
        self.needs.capability()
    }

    /// Tells whether a token that has these capabilities and no others opens the route.
    pub fn opens_with(&self, held: Capabilities) -> bool {
        self.credentials != Credentials::Link
            && self.capability().is_none_or(|needed| held.allows(needed))
    }

    /// Tells whether a credential may come in the first frame instead of the request.
    pub fn is_in_band(&self) -> bool {
        matches!(self.needs, Needs::InBand(_))
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let needs = self.needs.capability().map_or("a credential", Capability::name);
        let how = if self.is_in_band() { " in band" } else { "" };
        let takes = match self.credentials {
            Credentials::Token => "token",
            Credentials::TokenOrKey => "token or key",
            Credentials::TokenOrServiceToken => "token or service token",
            Credentials::Link => "link",
        };
        write!(f, "{} {}: {needs}{how}, by {takes}", self.method, self.path)
    }
}
