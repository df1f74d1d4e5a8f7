//! One call: who makes it, and which service answers it.

use std::{convert::Infallible, fmt, time::Duration};

use api::{
    agbox::{MAX_MESSAGE_BYTES, v1::sandbox_service_server::SandboxServiceServer},
    errors::agbox::Reason,
    ringfence::v1::image_service_server::ImageServiceServer,
};
use axum::{
    body::Body,
    http::{
        HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE,
    },
};
use engine::sandboxes::{Caller, Sandboxes};
use model::{
    actor::Actor,
    audit::{Action, Entry, Outcome},
    ids::Tenant,
    policy::Quotas,
};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tonic::{Code, Status, codegen::Service};
use tonic_health::{pb::health_server::HealthServer, server::HealthService};

use super::{
    errors::{complete, status},
    images::ImageSurface,
    service::Surface,
    spec::{HostPaths, Origin},
};
use crate::{
    audit::{self, Audit},
    auth::{self, KeyRefusal, Keyring},
    guesses::{self, Guest},
    http::{hosts::Astray, request},
};

/// No call takes longer, whatever its deadline says; a stream goes on for as long as it likes.
const MAX_CALL: Duration = Duration::from_mins(1);

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const SANDBOXES: &str = "/agbox.v1.SandboxService/";
const IMAGES: &str = "/ringfence.v1.ImageService/";
const HEALTH: &str = "/grpc.health.v1.Health/";

/// Tells whether a request is a call of gRPC.
pub(crate) fn is_call<B>(request: &Request<B>) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// Refuses a call because too many are open.
pub(crate) fn overloaded(message: &'static str) -> Response<Body> {
    status(Reason::ResourceExhausted, message, &[]).into_http()
}

/// Answers a call that is not for this server.
pub(crate) fn astray(astray: &Astray) -> Response<Body> {
    status(astray.reason(), &*astray.message(), &[]).into_http()
}

/// Who makes a call, and what that means for what he may ask for.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    pub(crate) tenant: Tenant,
    pub(crate) origin: Origin,
    /// With whose rights paths of the host are opened.
    pub(crate) caller: Caller,
    pub(crate) actor: Actor,
    /// The key that was shown; whoever is on the machine itself needs none.
    pub(crate) key: Option<String>,
    /// What his tenant may have.
    pub(crate) quotas: Quotas,
    /// Turns true when he may not go on; nobody takes that from who is on the machine itself.
    pub(crate) revoked: Option<watch::Receiver<bool>>,
}

impl Who {
    /// Returns the entry of something that is done by him.
    pub(crate) fn entry(&self, action: Action) -> Entry {
        Entry {
            actor: Some(self.actor.clone()),
            key: self.key.clone(),
            tenant: Some(self.tenant.to_string()),
            ..audit::entry(action, Outcome::Granted)
        }
    }
}

/// How a connection came in.
#[derive(Clone, Debug)]
pub(crate) enum Entrance {
    /// Over the main port: each call carries a key.
    Network,
    /// Over the Unix socket: the kernel says who is at its other end.
    Socket(Box<Who>),
    /// Over the Unix socket, by somebody who may not.
    Refused,
}

/// When a call must have ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(pub(crate) Instant);

/// The services. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Grpc {
    keyring: Keyring,
    audit: Audit,
    /// What callers over the network may name of the host.
    host_paths: HostPaths,
    sandboxes: SandboxServiceServer<Surface>,
    images: ImageServiceServer<ImageSurface>,
    health: HealthServer<HealthService>,
}

impl fmt::Debug for Grpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grpc").field("host_paths", &self.host_paths).finish_non_exhaustive()
    }
}

impl Grpc {
    pub(crate) async fn new(keyring: Keyring, host_paths: HostPaths, surface: Surface) -> Self {
        let health = surface.health(keyring.clone()).await;
        let audit = surface.audit().clone();
        let images = ImageServiceServer::new(surface.images());
        let sandboxes = SandboxServiceServer::new(surface)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        Self { keyring, audit, host_paths, sandboxes, images, health }
    }

    pub(crate) fn host_paths(&self) -> &HostPaths {
        &self.host_paths
    }

    /// Answers what is no call, where nothing else is served.
    pub(crate) fn not_a_call() -> Response<Body> {
        let mut answer = Response::new(Body::from("this socket speaks gRPC\n"));
        *answer.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        answer
    }

    /// Answers a call over the network, unless it is of somebody who shows too much that is wrong.
    pub(crate) async fn answer_guest<B>(
        &self,
        guest: Option<Guest>,
        request: Request<B>,
    ) -> Response<Body>
    where
        B: hyper::body::Body<Data = hyper::body::Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let answered = self.answer(request, &Entrance::Network);
        let Some(guest) = guest else { return answered.await };
        let judged = guest.judge(answered).await;
        judged.unwrap_or_else(|_wait| {
            status(Reason::ResourceExhausted, guesses::TOO_MANY, &[]).into_http()
        })
    }

    /// Answers a call under an id of its own, which the answer names. A call that changes something is always recorded.
    pub(crate) async fn answer<B>(&self, request: Request<B>, entrance: &Entrance) -> Response<Body>
    where
        B: hyper::body::Body<Data = hyper::body::Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let path = request.uri().path().to_owned();
        let to_record = (!only_reads(&path)).then_some(path.as_str());
        let answered = Box::pin(self.serve(request, entrance));
        let (mut answer, id) = request::recorded(&self.audit, to_record, answered, outcome).await;
        if let Ok(id) = HeaderValue::try_from(id) {
            answer.headers_mut().insert(X_REQUEST_ID, id);
        }
        answer
    }

    /// Has a call answered by the service that its path names.
    async fn serve<B>(&self, request: Request<B>, entrance: &Entrance) -> Response<Body>
    where
        B: hyper::body::Body<Data = hyper::body::Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let path = request.uri().path();
        let answer = if path.starts_with(SANDBOXES) {
            match self.who(request.headers(), entrance) {
                Ok(who) => call_for(self.sandboxes.clone(), request, who).await,
                Err(refused) => refused.into_http(),
            }
        } else if path.starts_with(IMAGES) {
            match self.who(request.headers(), entrance) {
                Ok(who) => call_for(self.images.clone(), request, who).await,
                Err(refused) => refused.into_http(),
            }
        } else if path.starts_with(HEALTH) {
            let request = request.map(tonic::body::Body::new);
            self.health.clone().call(request).await.unwrap_or_else(|never| match never {})
        } else {
            let message = "there is no such service; this server has agbox.v1.SandboxService and \
                           ringfence.v1.ImageService";
            status(Reason::Unimplemented, message, &[]).into_http()
        };
        with_details(answer).map(Body::new)
    }

    fn note_denied(&self, entry: Entry) {
        let reason = Some(Reason::PermissionDenied.row().0.to_owned());
        self.audit.note(Entry { outcome: Outcome::Denied, reason, ..entry });
    }

    fn who(&self, headers: &HeaderMap, entrance: &Entrance) -> Result<Who, Status> {
        let refuse = |message| status(Reason::Unauthenticated, message, &[]);
        match entrance {
            Entrance::Socket(who) => {
                request::identify(who.entry(Action::Access));
                let quotas = self.keyring.quotas(who.tenant.as_str());
                Ok(Who { quotas, ..Who::clone(who) })
            }
            Entrance::Refused => {
                let message = "this socket is for the server's own user, root and the group that \
                               agbox.group names";
                self.note_denied(audit::entry(Action::Access, Outcome::Denied));
                Err(status(Reason::PermissionDenied, message, &[]))
            }
            Entrance::Network => {
                let secret = auth::credential(headers);
                let caller =
                    self.keyring.authenticate(&self.audit, secret).map_err(
                        |refusal| match refusal {
                            KeyRefusal::Invalid(reason) => refuse(reason),
                            KeyRefusal::TooFast(_) => {
                                let message = "too many requests with this key; wait";
                                status(Reason::ResourceExhausted, message, &[])
                            }
                        },
                    )?;
                if !caller.as_holder().reaches_all() {
                    let message = "the key reaches some scopes of its tenant only, and what is here is of \
                                   the whole tenant: use sessions";
                    self.note_denied(audit::by(&caller, Action::Access));
                    return Err(status(Reason::PermissionDenied, message, &[]));
                }
                let tenant = caller.tenant().parse();
                let tenant = tenant.map_err(|_bad_name| refuse("the key belongs to no tenant"))?;
                let origin = Origin { home: None, host_paths: self.host_paths.clone() };
                let stranger = self.host_paths.stranger();
                let revoked = Some(caller.revoked());
                let (actor, key) = (caller.actor().clone(), Some(caller.key_id().0.clone()));
                let quotas = caller.quotas();
                Ok(Who { tenant, origin, caller: stranger, actor, key, quotas, revoked })
            }
        }
    }
}

/// Tells whether the call of this path changes nothing.
fn only_reads(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    path.starts_with(HEALTH)
        || name == "Ping"
        || ["Get", "List", "Subscribe"].iter().any(|verb| name.starts_with(verb))
}

/// Returns how a call ended, as the audit log says it.
fn outcome(answer: &Response<Body>) -> (Outcome, Option<String>) {
    match Status::from_header_map(answer.headers()).map(|status| status.code()) {
        None | Some(Code::Ok) => (Outcome::Granted, None),
        Some(
            code @ (Code::Internal | Code::Unavailable | Code::DeadlineExceeded | Code::Unknown),
        ) => (Outcome::Failed, Some(format!("{code:?}"))),
        Some(code) => (Outcome::Denied, Some(format!("{code:?}"))),
    }
}

/// Calls the service for somebody, within the deadline.
async fn call_for<S, B>(
    mut service: S,
    mut request: Request<B>,
    who: Who,
) -> Response<tonic::body::Body>
where
    S: Service<
            Request<tonic::body::Body>,
            Response = Response<tonic::body::Body>,
            Error = Infallible,
        >,
    B: hyper::body::Body<Data = hyper::body::Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let asked = request.headers().get("grpc-timeout").and_then(|text| text.to_str().ok());
    let asked = asked.and_then(read_timeout);
    if let Some(deadline) = asked.and_then(|asked| Instant::now().checked_add(asked)) {
        request.extensions_mut().insert(Deadline(deadline));
    }
    request.extensions_mut().insert(who);
    let within = asked.map_or(MAX_CALL, |asked| asked.min(MAX_CALL));
    let answer = service.call(request.map(tonic::body::Body::new));
    if let Ok(answer) = timeout(within, Box::pin(answer)).await {
        return answer.unwrap_or_else(|never| match never {});
    }
    let message = "the call took longer than its deadline; what was accepted goes on";
    status(Reason::DeadlineExceeded, message, &[]).into_http()
}

/// Returns when a call that is no stream ends: at its own deadline, or when it takes too long.
pub(crate) fn deadline<T>(request: &tonic::Request<T>) -> Instant {
    let longest = Instant::now() + MAX_CALL;
    request.extensions().get().map_or(longest, |Deadline(own)| longest.min(*own))
}

/// Takes a call apart: what answers it, who makes it, what he says.
pub(crate) fn take<T>(
    sandboxes: Option<&Sandboxes>,
    request: tonic::Request<T>,
) -> Result<(Sandboxes, Who, T), Status> {
    let (_, mut extensions, message) = request.into_parts();
    let Some(who) = extensions.remove::<Who>() else {
        return Err(status(Reason::Unauthenticated, "nobody makes this call", &[]));
    };
    let Some(sandboxes) = sandboxes.cloned() else {
        return Err(status(Reason::Unavailable, "this server has no sandboxes", &[]));
    };
    Ok((sandboxes, who, message))
}

/// Sees to it that every error has its details, also those that are not ours.
fn with_details(answer: Response<tonic::body::Body>) -> Response<tonic::body::Body> {
    match Status::from_header_map(answer.headers()) {
        Some(own) if own.code() != Code::Ok && own.details().is_empty() => {
            complete(&own).into_http()
        }
        Some(_) | None => answer,
    }
}

/// Reads a deadline as gRPC writes it: at most eight digits and a unit.
fn read_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_read_as_grpc_writes_them() {
        let rows = [
            ("5S", Some(Duration::from_secs(5))),
            ("99999999H", Some(Duration::from_hours(99_999_999))),
            ("2M", Some(Duration::from_mins(2))),
            ("100m", Some(Duration::from_millis(100))),
            ("7u", Some(Duration::from_micros(7))),
            ("7n", Some(Duration::from_nanos(7))),
            ("", None),
            ("S", None),
            ("5", None),
            ("-5S", None),
            ("999999999S", None),
            ("5é", None),
        ];
        for (text, expected) in rows {
            assert_eq!(read_timeout(text), expected, "{text}");
        }
    }
}
