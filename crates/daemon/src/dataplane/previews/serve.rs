//! What a browser gets on the host of a preview.

use std::num::NonZeroU16;

use api::errors::ErrorCode;
use axum::{
    body::Body,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
        header::{CACHE_CONTROL, COOKIE, HOST, LOCATION, ORIGIN, REFERRER_POLICY, SET_COOKIE},
    },
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use model::{ids::SandboxId, sandbox::WhenStopped, units::Timestamp};
use tokio::select;

use super::{
    super::ports::{
        body::Cut,
        cookies,
        headers::{Asker, Ground, Page},
        location::Places,
        proxy::{Passage, upgrade::wants_websocket},
        refuse, target,
    },
    host::{self, Domain, ENTRANCE, Found},
    tickets::Ticket,
};
use crate::{
    auth::{Caller, too_fast},
    clock,
    http::{App, hosts, problem::ApiError},
    serve::{Peer, Phase, Place},
    tokens::{Tokens, masters::KeyAge, preview::Preview},
    ws::connection::until,
};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_PURPOSE: HeaderName = HeaderName::from_static("sec-purpose");

/// Answers what is for the host of a preview, and what is for nobody here; all else goes on to the routes of the
/// API.
pub(crate) async fn divert(State(app): State<App>, request: Request, next: Next) -> Response {
    if let Err(astray) = app.hosts.check(&request) {
        return hosts::refuse(&request, astray);
    }
    let Some(domain) = app.previews.domain.clone() else { return next.run(request).await };
    let asked = host::asked(request.uri(), request.headers());
    let answer = match asked.and_then(|host| domain.find(host)) {
        None => return next.run(request).await,
        Some(Found::Nobody) => Err(nobody()),
        Some(Found::Port { sandbox, port }) => answer(app, &domain, sandbox, port, request).await,
    };
    answer.unwrap_or_else(ApiError::into_response)
}

fn nobody() -> ApiError {
    ApiError::new(ErrorCode::NotFound, "there is no such preview")
}

async fn answer(
    app: App,
    domain: &Domain,
    sandbox: SandboxId,
    port: NonZeroU16,
    request: Request,
) -> Result<Response, ApiError> {
    if request.uri().path() == ENTRANCE {
        return enter(&app, domain, &sandbox, port, &request);
    }
    let (Some(sandboxes), Some(tokens)) = (app.sandboxes.clone(), app.tokens.clone()) else {
        return Err(nobody());
    };
    let (now, age) = (clock::timestamp(), tokens.age_of(&sandbox));
    let seen = {
        let mut cookies = request.headers().get_all(COOKIE).iter().flat_map(cookies::ours);
        cookies.find_map(|text| tokens.read_preview(text, &sandbox, port, now))
    };
    let granted = seen.and_then(|seen| Some((app.keyring.known(&seen.key)?, seen.until)));
    let (caller, until) = granted.ok_or_else(|| {
        let message = "this preview has ended or was not opened here; ask for a new link";
        ApiError::new(ErrorCode::Unauthenticated, message)
    })?;
    app.keyring.count_for(&caller.key_id().0).map_err(too_fast)?;
    let page = page(request.method(), request.headers())?;
    let host = request.headers().get(HOST).cloned();
    let peer = request.extensions().get::<Peer>().map(|peer| peer.address);
    let path = request.uri().path();
    let (places, target) =
        (Places::new(String::new(), port.get(), path), target(path, request.uri().query())?);
    let connected = sandboxes.connect(&sandbox, port, WhenStopped::Resume).await;
    let connection = connected.map_err(refuse)?;
    let held = request.extensions().get::<Place>().cloned();
    let passage = Passage {
        asker: Asker { peer, scheme: domain.scheme(), host, page },
        places,
        ground: Ground::Sandbox,
        target,
        timing: app.settings.ports,
        tasks: app.tasks.clone(),
        cut: Box::new(move || cut(&app, (&tokens, &sandbox, age), &caller, until)),
    };
    passage.carry(request, connection, held).await.map_err(ApiError::from)
}

/// Opens a link: leaves the cookie, and leads to where the link is for.
fn enter(
    app: &App,
    domain: &Domain,
    sandbox: &SandboxId,
    port: NonZeroU16,
    request: &Request,
) -> Result<Response, ApiError> {
    if request.method() != Method::GET {
        return Err(ApiError::new(ErrorCode::MethodNotAllowed, "open the link in a browser"));
    }
    // A browser that only prepares for a click must not use up what is good for one.
    if request.headers().contains_key(SEC_PURPOSE) {
        return Err(ApiError::new(ErrorCode::Forbidden, "the link is for opening it"));
    }
    let query = request.uri().query().unwrap_or_default();
    let parameter = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name));
    let tokens = app.tokens.as_ref().ok_or_else(nobody)?;
    let shown = match parameter("token=") {
        // The URL of LangSmith's clients can be opened again until its end.
        Some(text) => tokens
            .read_preview(text, sandbox, port, clock::timestamp())
            .map(|preview| (preview, "/".to_owned())),
        None => redeem(app, tokens, sandbox, port, parameter("ticket=")),
    };
    let is_valid = |(preview, _): &(Preview, String)| app.keyring.known(&preview.key).is_some();
    let Some((preview, path)) = shown.filter(is_valid) else {
        let message = "this link was opened before, or is too old; ask for a new one";
        return Err(ApiError::new(ErrorCode::Unauthenticated, message));
    };
    let left = preview.until.as_millis().saturating_sub(clock::timestamp().as_millis()) / 1000;
    let (name, secure) =
        if domain.is_secure() { (cookies::SECURE, "; Secure") } else { (cookies::PLAIN, "") };
    let text = tokens.sign_preview(sandbox, port, &preview);
    let cookie = format!("{name}={text}; Path=/; Max-Age={left}; HttpOnly; SameSite=Lax{secure}");
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let headers = response.headers_mut();
    headers.insert(LOCATION, written(&path)?);
    headers.insert(SET_COOKIE, written(&cookie)?);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Ok(response)
}

/// Returns what a link was made for that is opened once.
fn redeem(
    app: &App,
    tokens: &Tokens,
    sandbox: &SandboxId,
    port: NonZeroU16,
    secret: Option<&str>,
) -> Option<(Preview, String)> {
    let ticket = app.previews.tickets.redeem(secret?)?;
    let age = tokens.age_of(sandbox);
    let is_for = |it: &Ticket| it.sandbox == *sandbox && it.port == port && age == it.age;
    let Ticket { until, path, key, .. } = Some(ticket).filter(is_for)?;
    Some((Preview { until, key }, path))
}

fn written(text: &str) -> Result<HeaderValue, ApiError> {
    HeaderValue::from_str(text).map_err(|error| ApiError::internal(&error))
}

/// Refuses what the page of another origin has the browser send: hosts of other sandboxes are of the
/// same site, so that the cookie comes along. Following a link from there is well.
fn page(method: &Method, headers: &HeaderMap) -> Result<Page, ApiError> {
    let foreign = || ApiError::new(ErrorCode::Forbidden, "another page may not use this preview");
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let is_safe = matches!(*method, Method::GET | Method::HEAD) && !wants_websocket(headers);
    let own = match (text(ORIGIN), text(HOST)) {
        (Some(origin), Some(host)) => {
            let authority = origin.split_once("://").map(|(_, authority)| authority);
            Some(authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host)))
        }
        (Some(_), None) => Some(false),
        (None, _) => None,
    };
    let is_visit = is_safe && text(SEC_FETCH_MODE) == Some("navigate");
    match (text(SEC_FETCH_SITE), own) {
        (Some("same-origin" | "none"), Some(false)) => Err(foreign()),
        (Some("same-origin" | "none") | None, Some(true)) => Ok(Page::Own),
        (Some("same-origin" | "none"), None) => Ok(Page::Other),
        (Some(_), _) if is_visit => Ok(Page::Other),
        (Some(_), _) => Err(foreign()),
        // Browsers that do not say where a request comes from say the origin of all that changes
        // anything, and of every WebSocket.
        (None, Some(false)) => Err(foreign()),
        (None, None) if is_safe => Ok(Page::Other),
        (None, None) => Err(foreign()),
    }
}

/// Returns what ends with the preview, with the key of its sandbox, with the API key that it was made with, or
/// with the server.
fn cut(
    app: &App,
    (tokens, sandbox, age): (&Tokens, &SandboxId, KeyAge),
    caller: &Caller,
    end: Timestamp,
) -> Cut {
    let (mut phase, tokens, sandbox) = (app.phase.clone(), tokens.clone(), sandbox.clone());
    let revoked = caller.revoked();
    Box::pin(async move {
        select! {
            () = clock::until(|| end) => {}
            () = until(revoked, |revoked| *revoked) => {}
            () = tokens.until_rotated(&sandbox, age) => {}
            _ = phase.wait_for(|phase| *phase == Phase::Closing) => {}
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_pages_can_lead_to_a_preview_and_do_nothing_else_with_it() {
        type Row = (Method, Vec<(&'static str, &'static str)>, Option<Page>);
        let host = ("host", "80--sb-a.p.example");
        let own = ("origin", "https://80--sb-a.p.example");
        let sibling = ("origin", "https://80--sb-b.p.example");
        let site = |site| ("sec-fetch-site", site);
        let navigate = ("sec-fetch-mode", "navigate");
        let upgrade = [("connection", "upgrade"), ("upgrade", "websocket")];
        let rows: [Row; 15] = [
            (Method::GET, vec![host], Some(Page::Other)),
            (Method::GET, vec![host, site("none")], Some(Page::Other)),
            (Method::GET, vec![host, site("same-origin")], Some(Page::Other)),
            (Method::POST, vec![host, site("same-origin"), own], Some(Page::Own)),
            (Method::POST, vec![host, own], Some(Page::Own)),
            (Method::GET, vec![host, site("cross-site"), navigate], Some(Page::Other)),
            (Method::GET, vec![host, site("same-site"), navigate], Some(Page::Other)),
            (Method::POST, vec![host, site("same-site"), navigate, sibling], None),
            (Method::GET, vec![host, site("same-site")], None),
            (Method::GET, vec![host, site("cross-site")], None),
            (Method::POST, vec![host, sibling], None),
            (Method::POST, vec![host], None),
            (Method::GET, vec![host, own, upgrade[0], upgrade[1]], Some(Page::Own)),
            (Method::GET, vec![host, sibling, upgrade[0], upgrade[1]], None),
            (Method::GET, vec![host, upgrade[0], upgrade[1]], None),
        ];
        for (method, lines, expected) in rows {
            let headers: HeaderMap = lines
                .iter()
                .map(|(name, value)| {
                    (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
                })
                .collect();
            assert_eq!(page(&method, &headers).ok(), expected, "{method} {lines:?}");
        }
    }
}
