//! `/oauth/…`: tokens exchanged (RFC 8693), looked at (RFC 7662) and ended (RFC 7009).

use std::{borrow::Cow, time::Duration};

use api::{
    errors::ErrorCode,
    tokens::{ExchangeToken, ExchangedToken, Introspection, NameToken, OauthProblem, TokenFormat},
};
use axum::{
    Json,
    extract::State,
    http::{
        HeaderMap, HeaderName, HeaderValue, StatusCode,
        header::{CACHE_CONTROL, PRAGMA, RETRY_AFTER, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
};
use model::{
    audit::{Action, Entry, Outcome},
    capability::Asked,
    reach::Reach,
    token::Narrowing,
};
use serde_json::json;
use store::StoreError;

use super::{
    App,
    form::Form,
    problem::ApiError,
    routes::Routes,
    tokens::{find, introspect},
};
use crate::{
    audit,
    auth::{self, Caller, KeyRefusal},
    dataplane::{access::Access, refusal::Refusal, shape::Shape},
    from_wire,
    openapi::{Doc, Opens, Tag},
    to_wire,
    tokens::{
        self,
        mint::{Format, MintError, Minted, Wish, mint, narrow},
    },
};

const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";
/// What a key is called that is exchanged for a token.
const API_KEY: &str = "urn:ringfence:params:oauth:token-type:api-key";

pub(super) fn routes() -> Routes {
    const OURS: [ErrorCode; 3] =
        [ErrorCode::InvalidRequest, ErrorCode::InternalError, ErrorCode::Unavailable];
    let exchanged = Doc::new(Tag::OAuth, "Exchanges a key or a token for a token of one sandbox")
        .takes_form::<ExchangeToken>(&json!({
            "grant_type": EXCHANGE,
            "subject_token": "CREDENTIAL",
            "subject_token_type": ACCESS_TOKEN,
            "resource": "sandbox:SANDBOX",
            "scope": "fs:ro",
        }))
        .answers::<ExchangedToken>(200, "The token.")
        .refuses(&OURS)
        .refuses(&[ErrorCode::Forbidden]);
    let looked = Doc::new(Tag::OAuth, "Tells what a token of the key's tenant is worth now")
        .takes_form::<NameToken>(&json!({"token": "TOKEN"}))
        .answers::<Introspection>(200, "What it says; of one that is worth nothing, that alone.")
        .refuses(&OURS);
    let revoked = Doc::new(Tag::OAuth, "Ends a token for whoever has it")
        .takes_form::<NameToken>(&json!({"token": "TOKEN"}))
        .answers_nothing(200, "It is worth nothing, whatever it was.")
        .refuses(&OURS);
    Routes::new(Shape::OAuth)
        .post("/oauth/token", Opens::InBody, exchanged, exchange)
        .post("/oauth/introspect", Opens::Broker, looked, look)
        .post("/oauth/revoke", Opens::InBody, revoked, revoke)
}

/// No answer with a token in it is to be kept by anybody in between.
type Private<T> = ([(HeaderName, HeaderValue); 2], Json<T>);

fn private<T>(answer: T) -> Private<T> {
    let not_kept = [
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (PRAGMA, HeaderValue::from_static("no-cache")),
    ];
    (not_kept, Json(answer))
}

/// Gives out a token for one sandbox, to whoever has a key of its tenant, or a token that has at
/// least as much.
async fn exchange(State(app): State<App>, form: Form) -> Result<Private<ExchangedToken>, Refused> {
    if form.required("grant_type")? != EXCHANGE {
        let message = format!("the only grant_type is {EXCHANGE}");
        return Err(Refused::new("unsupported_grant_type", message));
    }
    let asked = Exchange::read(&form)?;
    let (minted, entry) = match asked.subject(&app).await? {
        Subject::Key(caller) => {
            let entry = audit::by(&caller, Action::TokenExchange);
            (asked.of_key(&app, &caller).await?, entry)
        }
        Subject::Token(access) => {
            let entry = access.entry(Action::TokenExchange);
            // What it was made of; what it is called itself comes with the grant.
            let entry = Entry { object: entry.jti.clone(), ..entry };
            (asked.of_token(&app, &access).await?, entry)
        }
    };
    app.audit.record(audit::granting(entry, &minted.claims)).await?;
    Ok(private(to_wire::exchanged(&minted)))
}

/// Tells what a token says that opens a sandbox of the caller's tenant now.
async fn look(
    State(app): State<App>,
    headers: HeaderMap,
    form: Form,
) -> Result<Private<Introspection>, Refused> {
    let caller = app.keyring.authenticate(&app.audit, auth::credential(&headers))?;
    if !caller.may_act_for_others() {
        let message = "this takes a key with the role admin or broker";
        return Err(Refused::new("access_denied", message).with_status(StatusCode::FORBIDDEN));
    }
    let told = introspect(&app, &caller, form.required("token")?).await?;
    app.audit.note(audit::by(&caller, Action::TokenIntrospect));
    Ok(private(told))
}

/// Ends a token for whoever has it, with all that were made of it. What is no token, or none any more,
/// is ended already.
async fn revoke(State(app): State<App>, form: Form) -> Result<StatusCode, Refused> {
    let token = form.required("token")?;
    let Some(plane) = app.plane() else { return Ok(StatusCode::OK) };
    if !tokens::is_token(token) {
        return match app.keyring.authenticate(&app.audit, Ok(token)) {
            Err(refusal @ KeyRefusal::TooFast(_)) => Err(refusal.into()),
            // Revocation of a key by this route would look as if it had worked.
            Ok(_) => Err(Refused::new(
                "unsupported_token_type",
                "API keys are revoked by `ringfence key revoke` or DELETE /v1/admin/keys/ID",
            )),
            Err(KeyRefusal::Invalid(_)) => Ok(StatusCode::OK),
        };
    }
    match plane.presented(token).await {
        // A row for what has ended would change nothing.
        Ok(held) if held.is_revoked() || held.is_over() => Ok(StatusCode::OK),
        Ok(held) => {
            let claims = held.claims();
            plane.tokens.revoke(&claims.sandbox, &claims.id).await?;
            app.audit.note(Entry {
                actor: Some(claims.actor.clone()),
                key: Some(claims.key.clone()),
                sandbox: Some(claims.sandbox.to_string()),
                jti: Some(claims.id.clone()),
                ..audit::entry(Action::TokenRevoke, Outcome::Granted)
            });
            Ok(StatusCode::OK)
        }
        Err(refusal @ (Refusal::Unclear(_) | Refusal::TooFast(_))) => {
            Err(ApiError::from(refusal).into())
        }
        Err(_) => Ok(StatusCode::OK),
    }
}

/// What somebody shows to get a token.
enum Subject {
    Key(Caller),
    Token(Access),
}

/// What somebody asks for.
struct Exchange<'a> {
    credential: &'a str,
    credential_type: &'a str,
    sandbox: Option<&'a str>,
    asked: Option<Asked>,
    reach: Reach,
    ttl: Option<u64>,
    format: Option<Format>,
}

impl<'a> Exchange<'a> {
    /// Names that nobody knows are passed over, as the standard wants it; those that it knows and we
    /// do not are refused, because they change what is asked for.
    fn read(form: &'a Form) -> Result<Self, Refused> {
        for name in ["actor_token", "actor_token_type", "audience"] {
            if form.one(name)?.is_some() {
                return Err(Refused::invalid(format!("{name} is not supported")));
            }
        }
        let sandbox = match form.one("resource") {
            Ok(resource) => resource.map(|it| it.strip_prefix("sandbox:").ok_or_else(no_target)),
            Err(_several) => return Err(no_target()),
        };
        let mut paths = form.all("path").peekable();
        let reach = match paths.peek() {
            None => Reach::Everywhere,
            Some(_) => Reach::below(paths).map_err(|error| Refused::invalid(error.to_string()))?,
        };
        let asked = form.one("scope")?.map(Asked::scope).transpose();
        let ttl = form.one("ttl_seconds")?.map(str::parse).transpose();
        Ok(Self {
            credential: form.required("subject_token")?,
            credential_type: form.required("subject_token_type")?,
            sandbox: sandbox.transpose()?,
            asked: asked.map_err(|error| Refused::new("invalid_scope", error.to_string()))?,
            reach,
            ttl: ttl.map_err(|_not_a_number| Refused::invalid("ttl_seconds is a number"))?,
            format: format(form)?,
        })
    }

    /// Checks what is shown. Nobody is told what is wrong with it.
    async fn subject(&self, app: &App) -> Result<Subject, Refused> {
        let not_good = || Refused::invalid("the subject_token is not valid");
        let is_token = tokens::is_token(self.credential);
        match self.credential_type {
            API_KEY if is_token => Err(not_good()),
            JWT if !self.credential.contains('.') => Err(not_good()),
            ACCESS_TOKEN | JWT if is_token => {
                let plane = app.plane().ok_or_else(no_target)?;
                match plane.own(self.credential).await {
                    Ok(access) => Ok(Subject::Token(access)),
                    Err(refusal @ (Refusal::Unclear(_) | Refusal::TooFast(_))) => {
                        Err(ApiError::from(refusal).into())
                    }
                    Err(_) => Err(not_good()),
                }
            }
            ACCESS_TOKEN | API_KEY => {
                match app.keyring.authenticate(&app.audit, Ok(self.credential)) {
                    Ok(caller) => Ok(Subject::Key(caller)),
                    Err(KeyRefusal::Invalid(_)) => Err(not_good()),
                    Err(refusal @ KeyRefusal::TooFast(_)) => Err(refusal.into()),
                }
            }
            _ => Err(Refused::invalid(format!(
                "subject_token_type is {ACCESS_TOKEN}, {JWT} or {API_KEY}"
            ))),
        }
    }

    async fn of_key(self, app: &App, caller: &Caller) -> Result<Minted, Refused> {
        let name = self.sandbox.ok_or_else(no_target)?;
        let (plane, sandbox) =
            find(app, caller, name).await.map_err(|error| match error.code() {
                ErrorCode::NotFound => no_target(),
                _ => error.into(),
            })?;
        let lifetime = caller.policy().lifetime(self.ttl);
        let wish = Wish {
            generation: plane.sessions.generation(&sandbox),
            sandbox,
            actor: None,
            asked: self.asked,
            reach: self.reach,
            lifetime: lifetime.map_err(|error| Refused::invalid(error.to_string()))?,
            thread: None,
            format: self.format,
        };
        Ok(mint(&plane.tokens, caller, wish).await?)
    }

    async fn of_token(self, app: &App, access: &Access) -> Result<Minted, Refused> {
        let (Some(plane), Some(held)) = (app.plane(), access.token()) else {
            return Err(no_target());
        };
        if self.sandbox.is_some_and(|sandbox| sandbox != access.sandbox().as_str()) {
            return Err(no_target());
        }
        let ttl = self.ttl.map(Duration::from_secs);
        let narrowing = Narrowing { asked: self.asked, reach: self.reach, ttl };
        let tenant = access.tenant().as_str();
        Ok(narrow(&plane.tokens, held, narrowing, tenant, self.format).await?)
    }
}

fn format(form: &Form) -> Result<Option<Format>, Refused> {
    let named = match form.one("format")? {
        None => None,
        Some(name) => {
            let format = TokenFormat::named(name);
            Some(format.ok_or_else(|| Refused::invalid("format is jwt or opaque"))?)
        }
    };
    match (form.one("requested_token_type")?, named) {
        (None | Some(ACCESS_TOKEN), named) => Ok(named.map(from_wire::format)),
        (Some(JWT), None | Some(TokenFormat::Jwt)) => Ok(Some(Format::Jwt)),
        (Some(_), _) => Err(Refused::invalid(format!(
            "requested_token_type is {ACCESS_TOKEN}, or {JWT} with the format jwt"
        ))),
    }
}

fn no_target() -> Refused {
    Refused::new("invalid_target", "resource names one sandbox that there is: sandbox:ID")
}

/// A refusal as OAuth writes it.
#[derive(Debug)]
pub(super) struct Refused {
    status: StatusCode,
    error: &'static str,
    description: Cow<'static, str>,
    /// How long to wait, if that is known.
    retry_after: Option<HeaderValue>,
}

impl Refused {
    fn new(error: &'static str, description: impl Into<Cow<'static, str>>) -> Self {
        let (status, description) = (StatusCode::BAD_REQUEST, description.into());
        Self { status, error, description, retry_after: None }
    }

    pub(super) fn invalid(description: impl Into<Cow<'static, str>>) -> Self {
        Self::new("invalid_request", description)
    }

    fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        tracing::debug!(error = self.error, reason = %self.description, "request refused");
        let problem = OauthProblem {
            error: self.error.to_owned(),
            error_description: self.description.into_owned(),
        };
        let mut response = (self.status, private(problem)).into_response();
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        let passing = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS];
        if passing.contains(&self.status) {
            let shortest = HeaderValue::from_static("1");
            headers.insert(RETRY_AFTER, self.retry_after.unwrap_or(shortest));
        }
        response
    }
}

/// Returns how OAuth calls what went wrong elsewhere, and the status that goes with it.
pub(crate) fn told(code: ErrorCode) -> (&'static str, StatusCode) {
    match code.http_status() {
        503 => ("temporarily_unavailable", StatusCode::SERVICE_UNAVAILABLE),
        500 => ("server_error", StatusCode::INTERNAL_SERVER_ERROR),
        401 => ("invalid_client", StatusCode::UNAUTHORIZED),
        403 => ("access_denied", StatusCode::FORBIDDEN),
        429 => ("temporarily_unavailable", StatusCode::TOO_MANY_REQUESTS),
        _ => ("invalid_request", StatusCode::BAD_REQUEST),
    }
}

/// What went wrong elsewhere: nothing of ours, or all of it.
impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Self {
        let (name, status) = told(error.code());
        let retry_after = error.header(&RETRY_AFTER).cloned();
        Self { retry_after, ..Self::new(name, error.message().to_owned()).with_status(status) }
    }
}

impl From<KeyRefusal> for Refused {
    fn from(refusal: KeyRefusal) -> Self {
        ApiError::from(refusal).into()
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        ApiError::from(error).into()
    }
}

impl From<MintError> for Refused {
    fn from(error: MintError) -> Self {
        use model::token::WiderThanParent;
        match &error {
            MintError::Nothing(_) | MintError::Wider(WiderThanParent::Scope { .. }) => {
                Self::new("invalid_scope", error.to_string())
            }
            MintError::Wider(_)
            | MintError::Format
            | MintError::Ended
            | MintError::NotYourself(_) => Self::invalid(error.to_string()),
            MintError::Sign(_) | MintError::Store(_) | MintError::Random(_) => {
                ApiError::from(error).into()
            }
        }
    }
}
