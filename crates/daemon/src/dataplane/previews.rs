//! Previews: a server in a sandbox seen by a browser, on an origin that is that server's own.
//!
//! Every port of every sandbox has a host of its own, `{port}--{sandbox}.{domain}`. Whoever has a
//! token asks for a link; opening it, once, leaves a cookie of that host, which lets in there and
//! nowhere else. Pages of other sandboxes, of the API and of the console are of other origins.

pub(crate) mod host;
mod serve;
pub(crate) mod tickets;

use std::{num::NonZeroU16, sync::Arc, time::Duration};

use api::{
    errors::ErrorCode,
    previews::{CreatePreview, Preview},
};
use axum::{Json, extract::State};
use model::{capability::Capability, ids::SandboxId, units::Timestamp};
use serde_json::json;

use super::{
    access::Access,
    ports::{no_port, read_port},
    routes::{Body, Method, Needs, Route, Routes, Spelling},
};
use crate::{
    clock,
    http::{
        App,
        problem::{self, ApiError, Path},
    },
    openapi::{Doc, Tag},
    tokens::masters::KeyAge,
};
use host::Domain;
pub(crate) use serve::divert;
use tickets::{Ticket, Tickets};

/// Where previews are on this server, and which are about to be opened. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Previews {
    domain: Option<Arc<Domain>>,
    tickets: Tickets,
}

impl Previews {
    /// Has previews below this URL, or nowhere.
    pub(crate) fn below(url: Option<&str>) -> Self {
        let domain = url.and_then(Domain::read).map(Arc::new);
        Self { domain, tickets: Tickets::default() }
    }
}

impl Previews {
    /// Returns the URL by which a browser sees a port with this token; none if previews have no address.
    pub(crate) fn url(&self, sandbox: &SandboxId, port: NonZeroU16, token: &str) -> Option<String> {
        let origin = self.domain.as_ref()?.origin_of(sandbox, port);
        Some(format!("{origin}{}?token={token}", host::ENTRANCE))
    }
}

/// Tells whether previews can be below this URL.
pub(crate) fn is_domain(url: &str) -> bool {
    Domain::read(url).is_some()
}

/// How long somebody may see a port after one link: at least, at most, and if nobody says.
const SHORTEST: u64 = 60;
const LONGEST: u64 = 3600;
const USUAL: u64 = 900;
/// How long a link can be opened.
const LINK: Duration = Duration::from_mins(1);
/// The longest path that a link leads to.
const MAX_PATH: usize = 2048;

pub(super) fn routes() -> Routes {
    let route = Route {
        spelling: Spelling::Session,
        method: Method::Post,
        path: "/ports/{port}/preview",
        needs: Needs::Capability(Capability::Ports),
        body: Body::Message,
    };
    let doc = Doc::new(Tag::Ports, "Makes a link that lets one browser see one port")
        .takes::<CreatePreview>(&json!({"path": "/"}))
        .answers::<Preview>(200, "The link, which can be opened once.");
    Routes::default().with(route, doc, create)
}

/// Makes a link that lets one browser see one port.
async fn create(
    State(app): State<App>,
    access: Access,
    Path((_, port)): Path<(String, String)>,
    problem::Body(request): problem::Body<CreatePreview>,
) -> Result<Json<Preview>, ApiError> {
    let port = read_port(&port).ok_or_else(no_port)?;
    let domain = app.previews.domain.as_ref().ok_or_else(|| {
        let message = "previews have no address here; set previews.url in the configuration";
        ApiError::new(ErrorCode::NotFound, message)
    })?;
    let seconds = request.expires_in_seconds.unwrap_or(USUAL);
    if !(SHORTEST..=LONGEST).contains(&seconds) {
        let message = format!("expires_in_seconds must be {SHORTEST} to {LONGEST}");
        return Err(ApiError::new(ErrorCode::InvalidRequest, message));
    }
    let path = request.path.unwrap_or_else(|| "/".to_owned());
    if !is_path(&path) {
        let message = "path must begin with one slash and hold no blank and no backslash";
        return Err(ApiError::new(ErrorCode::InvalidRequest, message));
    }
    let now = clock::timestamp();
    let (until, link_until) = (after(now, Duration::from_secs(seconds)), after(now, LINK));
    let sandbox = access.sandbox().clone();
    let url = domain.origin_of(&sandbox, port);
    let age = app.tokens.as_ref().map_or(KeyAge::FIRST, |tokens| tokens.age_of(&sandbox));
    let key = access.key_id().to_owned();
    let ticket = Ticket { sandbox, port, until, path, age, key };
    let secret = app.previews.tickets.issue(ticket, LINK)?;
    tracing::info!(
        sandbox = %access.sandbox(), port, credential = access.credential_id(), "preview made"
    );
    Ok(Json(Preview {
        url: format!("{url}{}?ticket={secret}", host::ENTRANCE),
        url_expires_at: clock::text(link_until.into()),
        expires_at: clock::text(until.into()),
    }))
}

fn after(time: Timestamp, passed: Duration) -> Timestamp {
    let passed = i64::try_from(passed.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(time.as_millis().saturating_add(passed))
}

/// A path of the same host, and nothing that a browser could take for another's.
fn is_path(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    path.len() <= MAX_PATH
        && path.starts_with('/')
        && !path.starts_with("//")
        && path.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_to_a_path_of_its_own_host() {
        for good in ["/", "/a?b=c#d", "/a//b", "/%5c"] {
            assert!(is_path(good), "{good}");
        }
        for bad in
            ["", "a", "//evil.example", "/\\evil.example", "/a b", "/\t/e", "https://e/", "/ü"]
        {
            assert!(!is_path(bad), "{bad}");
        }
    }
}
