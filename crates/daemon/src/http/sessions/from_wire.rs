//! What is asked about sessions.

use std::time::Duration;

use api::{errors::ErrorCode, sessions::SandboxLimits};
use axum::http::{HeaderMap, HeaderName};
use engine::sessions::{Acquire, Records, RequestKey, Which};
use model::{
    actor::{Actor, ActorKind},
    capability::Asked,
    reach::Reach,
    scope::{Scope, ScopeIdError, ScopeKind},
    session::Request,
    spec::{Idle, Provider, Resources, SandboxSpec, Suspend},
    text::check_name,
    units::ByteSize,
};
use store::sessions::KeyName;

use super::{Desk, Terms, refusals::Names};
use crate::http::{problem::ApiError, strict::Object};

/// How long a sandbox is waited for, if nobody says, and at most.
const WAIT: u64 = 10;
const LONGEST_WAIT: u64 = 60;

/// Fields that could be meant to confine, and that this route does not know.
const CONFINING: [&str; 3] = ["capabilities", "mounts", "env"];

/// A request for a session.
pub(crate) struct Asking {
    pub(crate) acquire: Acquire,
    pub(crate) terms: Terms,
    pub(crate) names: Names,
}

/// A token that shows that its holder had a right before.
pub(crate) struct Proof(pub(crate) String);

/// Reads `POST /v1/sandbox/sessions`.
pub(crate) fn acquire(
    desk: &Desk,
    mut body: Object,
    key: Option<RequestKey>,
    image: Option<&str>,
) -> Result<Asking, ApiError> {
    body.refuse(&CONFINING)?;
    let (request, mode) = mode(&mut body)?;
    let (scope, is_plain) = scope(&mut body)?;
    let asked = capabilities(&mut body, "requested_capabilities")?;
    let actor = desk.acting(actor(&mut body)?)?;
    let hint = body.text("sandbox_hint")?;
    let is_plain = is_plain && matches!(mode, Mode::Plain);
    let names = if is_plain { Names::Session } else { Names::Binding };
    let lifetime = desk.session_lifetime();
    let terms = Terms { actor, asked, reach: Reach::Everywhere, lifetime };
    let acquire = wanted(desk, &mut body, Wanted { scope, request, hint, key }, image)?;
    Ok(Asking { acquire, terms, names })
}

/// Reads `POST /threads/{thread_id}/sandbox`.
pub(crate) fn thread(
    desk: &Desk,
    thread: &str,
    mut body: Object,
    key: Option<RequestKey>,
    image: Option<&str>,
) -> Result<Asking, ApiError> {
    body.refuse(&CONFINING)?;
    body.refuse(&["scope"])?;
    let scope = thread_scope(thread)?;
    if body.text("thread_id")?.is_some_and(|other| other != thread) {
        return Err(body.wrong("thread_id", "the path names another thread"));
    }
    let asked = capabilities(&mut body, "scopes")?;
    let actor = desk.acting(actor(&mut body)?)?;
    let hint = body.text("sandbox_id")?;
    let lifetime = desk.thread_lifetime(body.whole("ttl")?);
    let lifetime = lifetime.map_err(|error| body.wrong("ttl", &error.to_string()))?;
    let terms = Terms { actor, asked, reach: Reach::Everywhere, lifetime };
    let wanted_of = Wanted { scope, request: Request::Ensure, hint, key };
    let acquire = wanted(desk, &mut body, wanted_of, image)?;
    Ok(Asking { acquire, terms, names: Names::Session })
}

/// What both routes have in common.
struct Wanted {
    scope: Scope,
    request: Request,
    hint: Option<String>,
    key: Option<RequestKey>,
}

fn wanted(
    desk: &Desk,
    body: &mut Object,
    wanted: Wanted,
    image: Option<&str>,
) -> Result<Acquire, ApiError> {
    let Wanted { scope, request, hint, key } = wanted;
    let named = body.text("image")?;
    if named.as_ref().is_some_and(String::is_empty) {
        return Err(body.wrong("image", "must name an image"));
    }
    let resources = limits(body)?;
    let wait = match body.whole("wait_seconds")? {
        None => WAIT,
        Some(seconds) if seconds <= LONGEST_WAIT => seconds,
        Some(_) => return Err(body.wrong("wait_seconds", "must be 0 to 60")),
    };
    // A wish, but for one that this server knows; the answer says where the sandbox is.
    let provider = body.text("provider_preference")?;
    let provider = provider.as_deref().map_or(Provider::default(), Provider::preferred);
    let usual = match provider {
        Provider::Local => image,
        Provider::Docker => desk.docker_image.as_deref(),
    };
    let usual = usual.filter(|image| !image.is_empty());
    let image = match (named.as_deref().or(usual), request) {
        (Some(image), _) => image.to_owned(),
        (None, Request::Attach) => String::new(),
        (None, _) => {
            let checked = desk.sessions.check_enabled(provider);
            checked.map_err(|error| Names::Session.refuse(error))?;
            let message = "name an image, or have the operator set sessions.image (for containers \
                           providers.docker.image)";
            return Err(ApiError::new(ErrorCode::ImageRequired, message));
        }
    };
    let idle = desk.sessions.settings().idle.map(|after| Idle { after, then: Suspend::Freeze });
    Ok(Acquire {
        tenant: desk.tenant.clone(),
        scope,
        request,
        spec: SandboxSpec { provider, image, idle, resources, ..SandboxSpec::default() },
        image: named,
        hint,
        quotas: desk.caller.quotas(),
        created_by: desk.caller.key_id().0.clone(),
        wait: Duration::from_secs(wait),
        key,
        records: Records::none(),
    })
}

fn limits(body: &mut Object) -> Result<Resources, ApiError> {
    let Some(limits) = body.object("limits")? else { return Ok(Resources::default()) };
    let SandboxLimits { memory_mb, cpu_millicores, processes, disk_mb } = limits.message()?;
    Ok(Resources {
        millicores: cpu_millicores,
        memory: memory_mb.map(ByteSize::mib),
        disk: disk_mb.map(ByteSize::mib),
        processes,
    })
}

/// Which protocol a mode is of.
enum Mode {
    Plain,
    Full,
}

fn mode(body: &mut Object) -> Result<(Request, Mode), ApiError> {
    const EXPECTED: &str = "must be \"get\", \"ensure\", \"attach_only\" or \"create_only\"";
    match body.text("mode")?.as_deref() {
        Some("get") => Ok((Request::Attach, Mode::Plain)),
        Some("ensure") => Ok((Request::Ensure, Mode::Plain)),
        Some("attach_only") => Ok((Request::Attach, Mode::Full)),
        Some("create_only") => Ok((Request::CreateOnly, Mode::Full)),
        Some(_) | None => Err(body.wrong("mode", EXPECTED)),
    }
}

/// Reads the scope, and whether it is given as a thread.
fn scope(body: &mut Object) -> Result<(Scope, bool), ApiError> {
    match (body.text("thread_id")?, body.object("scope")?) {
        (Some(thread), None) => {
            let id = thread.parse().map_err(|error| wrong_id(body, "thread_id", error))?;
            Ok((Scope::thread(id), true))
        }
        (None, Some(mut scope)) => {
            const KINDS: &str =
                "must be \"thread\", \"workspace\", \"assistant\" or \"deployment\"";
            let kind = scope.text("type")?;
            let kind = kind.as_deref().and_then(ScopeKind::named);
            let kind = kind.ok_or_else(|| scope.wrong("type", KINDS))?;
            let id = scope.text("id")?.unwrap_or_default();
            let id = id.parse().map_err(|error| wrong_id(&scope, "id", error))?;
            Ok((Scope { kind, id }, false))
        }
        (Some(_), Some(_)) => Err(body.wrong("scope", "give either thread_id or scope")),
        (None, None) => Err(body.wrong("thread_id", "give either thread_id or scope")),
    }
}

fn wrong_id(body: &Object, name: &str, error: ScopeIdError) -> ApiError {
    body.wrong(name, &error.to_string())
}

/// Reads a thread out of a path.
pub(crate) fn thread_scope(thread: &str) -> Result<Scope, ApiError> {
    let refused = |error: ScopeIdError| {
        ApiError::new(ErrorCode::InvalidRequest, format!("thread_id: {error}"))
    };
    thread.parse().map(Scope::thread).map_err(refused)
}

/// Reads a session out of a path. What is no id of ours names nothing.
pub(crate) fn which(id: &str, names: Names) -> Result<Which, ApiError> {
    id.parse().map(Which::Id).map_err(|_not_an_id| names.not_found())
}

fn actor(body: &mut Object) -> Result<Option<Actor>, ApiError> {
    let Some(mut actor) = body.object("actor")? else { return Ok(None) };
    let kind = actor.text("type")?;
    let kind = kind.as_deref().and_then(ActorKind::read);
    let kind = kind.ok_or_else(|| actor.wrong("type", "must be \"human\" or \"agent\""))?;
    let id = actor.text("id")?.unwrap_or_default();
    check_name(&id).map_err(|error| actor.wrong("id", &error.to_string()))?;
    Ok(Some(Actor { kind, id }))
}

fn capabilities(body: &mut Object, name: &str) -> Result<Option<Asked>, ApiError> {
    let Some(names) = body.texts(name)? else { return Ok(None) };
    Asked::list(names).map(Some).map_err(|error| body.wrong(name, &error.to_string()))
}

/// Reads the token that somebody had before.
pub(crate) fn proof(body: &mut Object) -> Result<Option<Proof>, ApiError> {
    Ok(body.text("current_token")?.map(Proof))
}

/// Reads what the caller calls his request.
pub(crate) fn request_key(
    desk: &Desk,
    headers: &HeaderMap,
    request: [u8; 32],
) -> Result<Option<RequestKey>, ApiError> {
    const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let is_visible = |byte: &u8| (0x21..=0x7e).contains(byte);
    let bytes = value.as_bytes();
    let is_good = (1..=255).contains(&bytes.len()) && bytes.iter().all(is_visible);
    let text = value.to_str().ok().filter(|_| is_good && values.next().is_none());
    let Some(name) = text else {
        let message = "Idempotency-Key must be given once, with 1 to 255 visible characters";
        return Err(ApiError::new(ErrorCode::InvalidRequest, message));
    };
    let (tenant, principal) = (desk.tenant.clone(), desk.caller.key_id().0.clone());
    let name = KeyName { tenant, principal, name: name.to_owned() };
    Ok(Some(RequestKey { name, request }))
}
