//! Who may use a route, as the document says it.
//!
//! A requirement names what has to be shown, and with it the capability or the role that it must have: whoever
//! reads the document can tell from it alone who is let in. The authorization matrix of the tests does.

use api::errors::ErrorCode;
use model::capability::Capability;
use serde_json::{Value, json};

use crate::dataplane::{ports::headers::SERVICE_TOKEN, routes::Credentials};

/// What opens a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opens {
    /// Nothing has to be shown.
    Public,
    /// An API key of any role.
    Key,
    /// An API key of any role, or a token of any sandbox.
    KeyOrToken,
    /// An API key of the role `admin`.
    Admin,
    /// An API key of the role `admin` or `broker`.
    Broker,
    /// What is shown stands in the body.
    InBody,
    /// What the credentials of the sandbox that the path names are.
    Sandbox { needs: Option<Capability>, credentials: Credentials, is_in_band: bool },
}

/// The two headers that a credential may come in.
const KEY: [&str; 2] = ["key", "key_header"];
const TOKEN: [&str; 2] = ["token", "token_header"];

impl Opens {
    /// Returns the alternatives, one of which has to be fulfilled.
    pub(super) fn requirements(self) -> Value {
        let by = |schemes: [&str; 2], words: &[&str]| schemes.map(|scheme| json!({scheme: words}));
        match self {
            Self::Public | Self::InBody | Self::Sandbox { credentials: Credentials::Link, .. } => {
                json!([])
            }
            Self::Key => json!(by(KEY, &[])),
            Self::KeyOrToken => json!([by(KEY, &[]), by(TOKEN, &[])].concat()),
            Self::Admin => json!(by(KEY, &["admin"])),
            Self::Broker => json!(by(KEY, &["broker"])),
            Self::Sandbox { needs, credentials, is_in_band } => {
                let words: Vec<&str> = needs.map(Capability::name).into_iter().collect();
                let mut all = by(TOKEN, &words).to_vec();
                if credentials == Credentials::TokenOrKey {
                    all.extend(by(KEY, &words));
                }
                if credentials == Credentials::TokenOrServiceToken {
                    all.push(json!({"service_token": []}));
                }
                if is_in_band {
                    all.push(json!({}));
                }
                json!(all)
            }
        }
    }

    /// Returns where the credential stands, if that is no header.
    pub(super) const fn place(self) -> Option<&'static str> {
        match self {
            Self::InBody => Some("body"),
            Self::Sandbox { credentials: Credentials::Link, .. } => Some("path"),
            Self::Public | Self::Key | Self::KeyOrToken | Self::Admin | Self::Broker => None,
            Self::Sandbox { .. } => None,
        }
    }

    /// Returns how whoever may not use the route is refused.
    pub(super) fn refusals(self) -> &'static [ErrorCode] {
        use ErrorCode::{
            BindingSuperseded, CapabilityDenied, Forbidden, InternalError, NotFound, RateLimited,
            TokenExpired, Unauthenticated, Unavailable,
        };
        match self {
            Self::Public => &[],
            Self::InBody => &[RateLimited],
            Self::Key => &[Unauthenticated, RateLimited, InternalError, Unavailable],
            Self::KeyOrToken => &[
                Unauthenticated,
                TokenExpired,
                NotFound,
                BindingSuperseded,
                RateLimited,
                InternalError,
                Unavailable,
            ],
            Self::Admin | Self::Broker => {
                &[Unauthenticated, Forbidden, RateLimited, InternalError, Unavailable]
            }
            Self::Sandbox { credentials: Credentials::Link, .. } => {
                &[Unauthenticated, NotFound, RateLimited, InternalError, Unavailable]
            }
            Self::Sandbox { credentials: Credentials::TokenOrKey, .. } => &[
                Unauthenticated,
                TokenExpired,
                CapabilityDenied,
                Forbidden,
                NotFound,
                BindingSuperseded,
                RateLimited,
                InternalError,
                Unavailable,
            ],
            Self::Sandbox { .. } => &[
                Unauthenticated,
                TokenExpired,
                CapabilityDenied,
                NotFound,
                BindingSuperseded,
                RateLimited,
                InternalError,
                Unavailable,
            ],
        }
    }
}

/// Returns what can be shown, and how.
pub(super) fn schemes() -> Value {
    let key = "An API key, made by `ringfence key create`. The words of a requirement are the role that it must \
        have at least (`broker`, `admin`), or the capability that the policy must give it.";
    let token = "A token of one sandbox, as sessions and `POST /oauth/token` give them out. The words of a \
        requirement are the capability that it must have.";
    let service =
        "What `POST …/boxes/{name}/service-url` gives out: it opens one port of one sandbox.";
    let bearer = |about| json!({"type": "http", "scheme": "bearer", "description": about});
    let header = |about| json!({"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": about});
    json!({
        "key": bearer(key),
        "key_header": header(key),
        "token": bearer(token),
        "token_header": header(token),
        "service_token": {
            "type": "apiKey", "in": "header", "name": SERVICE_TOKEN.as_str(), "description": service,
        },
    })
}
