//! URLs that open one port or one file of a sandbox.

use std::{num::NonZeroU16, time::Duration};

use api::{
    boxes::{CreateDownloadUrl, CreateServiceUrl, DownloadUrl, ServiceUrl},
    errors::ErrorCode,
};
use axum::{Json, extract::State, http::HeaderValue};
use engine::sandboxes::files::home;
use model::{
    audit::{Action, Entry, Grant},
    capability::Capability,
    path::CleanPath,
    units::Timestamp,
};

use super::{Body, Mine, docs, from_wire::wrong};
use crate::{
    audit,
    auth::Caller,
    clock,
    dataplane::shape::Shape,
    http::{
        App,
        problem::{ApiError, Path},
        routes::Routes,
    },
    openapi::Opens,
    tokens::{
        Tokens,
        claims::subject,
        link::{Disposition, Download},
        preview::Preview,
    },
};

/// How long a URL is good for, if nobody says, and at most.
const USUAL: u64 = 600;
const LONGEST: u64 = 86_400;
/// A file may be shared for longer.
const LONGEST_FILE: u64 = 10 * 365 * 24 * 3600;

pub(super) fn routes(prefix: &str) -> Routes {
    let below = |path| format!("{prefix}/boxes/{{name}}/{path}");
    Routes::new(Shape::Detail)
        .post(&below("service-url"), Opens::Key, docs::service_url(), service)
        .post(&below("download-url"), Opens::Key, docs::download_url(), download)
}

/// Gives out a URL to a server in a sandbox.
async fn service(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    Body(asked): Body<CreateServiceUrl>,
) -> Result<Json<ServiceUrl>, ApiError> {
    let mine = Mine::of(&app, &caller)?;
    let (sandbox, tokens) = (mine.find(&name).await?.id, tokens(&app)?);
    let port = port(&asked)?;
    let seconds = asked.expires_in_seconds.unwrap_or(USUAL);
    if !(1..=LONGEST).contains(&seconds) {
        return Err(wrong("expires_in_seconds", "must be 1 to 86400"));
    }
    let entry = Entry {
        sandbox: Some(sandbox.to_string()),
        object: Some(format!("port {port}")),
        ..audit::by(&caller, Action::LinkMint)
    };
    app.audit.refusal(&entry, caller.as_holder().gives(Capability::Ports))?;
    // To the second, as it is signed.
    let until = whole(clock::timestamp().plus(Duration::from_secs(seconds)));
    app.audit.record(granting(entry, &caller, Capability::Ports, until)).await?;
    let preview = Preview { until, key: caller.key_id().0.clone() };
    let token = tokens.sign_preview(&sandbox, port, &preview);
    Ok(Json(ServiceUrl {
        browser_url: app.previews.url(&sandbox, port, &token).unwrap_or_default(),
        service_url: format!("{}/dp/{sandbox}/ports/{port}", app.base_url),
        token,
        expires_at: clock::text(until.into()),
        embed_url: String::new(),
        embed_origins: Vec::new(),
    }))
}

fn port(asked: &CreateServiceUrl) -> Result<NonZeroU16, ApiError> {
    match asked.access.as_deref() {
        None | Some("off") => {}
        Some("restricted" | "workspace") => {
            let message = "access: nobody logs in here; leave it out to get a token";
            let refused = ApiError::new(ErrorCode::InvalidRequest, message);
            return Err(refused.with_kind("SandboxConfig"));
        }
        Some(_) => return Err(wrong("access", "must be left out, or off")),
    }
    if asked.embed_origins.as_ref().is_some_and(|origins| !origins.is_empty()) {
        return Err(wrong("embed_origins", "no other page may show a service in a frame"));
    }
    let port = asked.port.and_then(|port| u16::try_from(port).ok()).and_then(NonZeroU16::new);
    port.ok_or_else(|| wrong("port", "must be 1 to 65535"))
}

/// Gives out a URL that downloads one file.
async fn download(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    Body(asked): Body<CreateDownloadUrl>,
) -> Result<Json<DownloadUrl>, ApiError> {
    let mine = Mine::of(&app, &caller)?;
    let (found, tokens) = (mine.find(&name).await?, tokens(&app)?);
    let link = link(&asked, home(&found.spec.run), &caller)?;
    let sandbox = found.id;
    let entry = Entry {
        sandbox: Some(sandbox.to_string()),
        object: Some(link.path.clone()),
        ..audit::by(&caller, Action::LinkMint)
    };
    app.audit.refusal(&entry, caller.as_holder().gives(Capability::FsRead))?;
    let too_long = || wrong("path", "it is too long for a URL");
    let token = tokens.sign_download(&sandbox, &link).ok_or_else(too_long)?;
    let until = link.until.map(|until| Timestamp::from_millis(until.saturating_mul(1000)));
    let grant = until.unwrap_or(Timestamp::from_millis(i64::MAX));
    app.audit.record(granting(entry, &caller, Capability::FsRead, grant)).await?;
    Ok(Json(DownloadUrl {
        download_url: format!("{}/dp/{sandbox}/link/{token}", app.base_url),
        token,
        expires_at: until.map(|until| clock::text(until.into())),
    }))
}

fn link(asked: &CreateDownloadUrl, home: &str, caller: &Caller) -> Result<Download, ApiError> {
    let path = asked.path.as_deref().ok_or_else(|| wrong("path", "it is missing"))?;
    let clean = CleanPath::read(path.as_bytes(), home);
    let clean = clean.map_err(|error| wrong("path", &error.to_string()))?;
    let not_text = |_bytes| wrong("path", "it is not text");
    let until = match asked.expires_in_seconds {
        None => None,
        Some(seconds) if (1..=LONGEST_FILE).contains(&seconds) => {
            Some(whole(clock::timestamp().plus(Duration::from_secs(seconds))).as_millis() / 1000)
        }
        Some(_) => return Err(wrong("expires_in_seconds", "must be 1 to 315360000")),
    };
    if asked.content_type.as_deref().is_some_and(|kind| !is_media_type(kind)) {
        return Err(wrong("content_type", "must be like text/plain"));
    }
    Ok(Download {
        path: String::from_utf8(clean.as_bytes().to_vec()).map_err(not_text)?,
        until,
        content_type: asked.content_type.clone(),
        disposition: match asked.content_disposition.as_deref() {
            None | Some("attachment") => Disposition::Attachment,
            Some("inline") => Disposition::Inline,
            Some(_) => {
                return Err(wrong("content_disposition", "must be attachment or inline"));
            }
        },
        key: caller.key_id().0.clone(),
    })
}

fn is_media_type(kind: &str) -> bool {
    let is_token = |text: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        !text.is_empty() && text.bytes().all(is_plain)
    };
    let (essence, _parameters) = kind.split_once(';').unwrap_or((kind, ""));
    let parts = essence.trim().split_once('/');
    let is_type = parts.is_some_and(|(one, other)| is_token(one) && is_token(other));
    is_type && kind.len() <= 255 && HeaderValue::from_str(kind).is_ok()
}

fn tokens(app: &App) -> Result<&Tokens, ApiError> {
    let missing = || ApiError::new(ErrorCode::NotFound, "this server keeps no sandboxes");
    app.tokens.as_ref().ok_or_else(missing)
}

fn whole(time: Timestamp) -> Timestamp {
    Timestamp::from_millis(time.as_millis().div_euclid(1000).saturating_mul(1000))
}

fn granting(entry: Entry, caller: &Caller, capability: Capability, until: Timestamp) -> Entry {
    let audience = entry.sandbox.clone().unwrap_or_default();
    let grant = Grant {
        subject: subject(caller.actor()),
        audience,
        capabilities: capability.name().to_owned(),
        expires_at: until,
    };
    Entry { grant: Some(grant), ..entry }
}
