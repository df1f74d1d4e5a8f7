//! Which headers go from a client to a server in a sandbox, and which come back.
//!
//! Inwards everything passes but what belongs to the connection, to us, or could pretend to be from
//! us. No credential that we issued passes, whichever header carries it. Outwards it depends on whose origin shows the answer: on the API's only what can do nothing
//! there passes, on an origin that is the sandbox's own everything that stays within it.

use std::net::IpAddr;

use axum::http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        ACCEPT_RANGES, ALLOW, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_DISPOSITION,
        CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
        CONTENT_TYPE, COOKIE, DATE, ETAG, EXPECT, FORWARDED, HOST, LAST_MODIFIED, LOCATION, ORIGIN,
        PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, REFERRER_POLICY, RETRY_AFTER,
        SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_PROTOCOL, SET_COOKIE, TE,
        TRAILER, TRANSFER_ENCODING, UPGRADE, VARY, VIA, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
    },
};

use super::{cookies, location::Places};
use crate::tokens::issued::holds_credential;

/// On whose origin the answers of a sandbox are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// That of the API, where a page from a sandbox must be able to do nothing.
    Api,
    /// One that nobody else has.
    Sandbox,
}

/// What a server in a sandbox is told of who asks.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) peer: Option<IpAddr>,
    /// `http` or `https`, as the client has it.
    pub(crate) scheme: &'static str,
    /// The host that the client has asked.
    pub(crate) host: Option<HeaderValue>,
    /// Whether the page that asks, if one does, is of the origin that it asks.
    pub(crate) page: Page,
}

/// The web page that a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// Of the very origin that shows the sandbox, or one that may use the API.
    Own,
    /// Of another, or none.
    Other,
}

/// Headers of one connection, which end where it does.
const OF_THE_CONNECTION: [HeaderName; 11] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    // It is said anew from what the body is.
    CONTENT_LENGTH,
];

/// Credentials. On the API's origin they are ours; on its own a sandbox may have some itself.
const CREDENTIALS: [HeaderName; 2] = [AUTHORIZATION, HeaderName::from_static("x-api-key")];

/// What no server in a sandbox is told as it was sent: only we may say it.
const NEVER_INWARDS: [HeaderName; 6] =
    [COOKIE, EXPECT, FORWARDED, HOST, HeaderName::from_static("x-real-ip"), SERVICE_TOKEN];

/// Where LangSmith's clients put the token of a service URL.
pub(crate) const SERVICE_TOKEN: HeaderName =
    HeaderName::from_static("x-langsmith-sandbox-service-token");

/// All that comes out on the origin of the API, besides what begins with `x-`.
const OUTWARDS_TO_API: [HeaderName; 16] = [
    ACCEPT_RANGES,
    ALLOW,
    CONTENT_DISPOSITION,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_RANGE,
    CONTENT_TYPE,
    DATE,
    ETAG,
    LAST_MODIFIED,
    RETRY_AFTER,
    SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_EXTENSIONS,
    SEC_WEBSOCKET_PROTOCOL,
    VARY,
    HeaderName::from_static("grpc-status"),
];

/// What reaches beyond the origin that it is said on: other ports or hosts of the name, the site, or
/// the browser as a whole.
const NEVER_OUTWARDS: [&str; 9] = [
    "alt-svc",
    "clear-site-data",
    "expect-ct",
    "nel",
    "origin-agent-cluster",
    "public-key-pins",
    "report-to",
    "reporting-endpoints",
    "strict-transport-security",
];

/// Orders to a proxy in front of us, such as to send a file of its own, or to keep an answer.
const ORDERS_TO_PROXIES: [&str; 8] = [
    "x-accel-",
    "x-sendfile",
    "x-lighttpd-",
    "x-litespeed-",
    "x-reproxy-",
    "surrogate-",
    "cdn-cache-control",
    "x-envoy-",
];

/// A page of this kind has no origin, runs nothing, and is shown in no frame.
const SANDBOXED: HeaderValue =
    HeaderValue::from_static("sandbox; default-src 'none'; frame-ancestors 'none'");

/// Returns what a server in a sandbox is told. Length, upgrade and host are not in it.
pub(super) fn inwards(
    headers: &HeaderMap,
    asker: &Asker,
    places: &Places,
    ground: Ground,
) -> HeaderMap {
    let mut told = HeaderMap::with_capacity(headers.len() + 5);
    let named = named_by_connection(headers);
    for (name, value) in headers {
        // Many servers cannot tell `_` from `-`, so that it would be a way to say what is ours to say.
        let is_doubtful = name.as_str().contains('_');
        let is_ours = name.as_str().starts_with("x-forwarded-");
        if is_doubtful
            || is_ours
            || OF_THE_CONNECTION.contains(name)
            || NEVER_INWARDS.contains(name)
            || named.contains(&name.as_str().to_owned())
            || CREDENTIALS.contains(name) && ground == Ground::Api
            || *name != COOKIE && holds_credential(&String::from_utf8_lossy(value.as_bytes()))
        {
            continue;
        }
        if *name == ORIGIN && asker.page == Page::Own {
            // To the server inside, a page of its own is one of the host that it is asked as.
            told.append(ORIGIN, places.inside_origin());
            continue;
        }
        told.append(name.clone(), value.clone());
    }
    if ground == Ground::Sandbox {
        for cookie in headers.get_all(COOKIE).iter().filter_map(cookies::without_ours) {
            told.append(COOKIE, cookie);
        }
    }
    told.insert(HOST, places.inside_host());
    tell_of(asker, places, &mut told);
    told
}

fn tell_of(asker: &Asker, places: &Places, told: &mut HeaderMap) {
    let peer = asker.peer.and_then(|peer| HeaderValue::from_str(&peer.to_string()).ok());
    let entries = [
        ("x-forwarded-for", peer),
        ("x-forwarded-proto", Some(HeaderValue::from_static(asker.scheme))),
        ("x-forwarded-host", asker.host.clone()),
        ("x-forwarded-prefix", HeaderValue::from_str(places.prefix()).ok()),
    ];
    for (name, value) in entries {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            told.insert(HeaderName::from_static(name), value);
        }
    }
}

/// Returns what a client is told. Length and upgrade are not in it.
pub(super) fn outwards(headers: &HeaderMap, places: &Places, ground: Ground) -> HeaderMap {
    let mut told = HeaderMap::with_capacity(headers.len() + 6);
    let named = named_by_connection(headers);
    for (name, value) in headers {
        let text = name.as_str();
        if OF_THE_CONNECTION.contains(name)
            || NEVER_OUTWARDS.contains(&text)
            || ORDERS_TO_PROXIES.iter().any(|order| text.starts_with(order))
            || named.contains(&text.to_owned())
        {
            continue;
        }
        let passed = match ground {
            Ground::Api if *name == LOCATION => places.moved(value),
            Ground::Api if text.starts_with("x-") || OUTWARDS_TO_API.contains(name) => {
                Some(value.clone())
            }
            Ground::Api => None,
            Ground::Sandbox if *name == LOCATION => Some(places.moved_within(value)),
            Ground::Sandbox if *name == SET_COOKIE => cookies::kept_to_its_host(value),
            Ground::Sandbox => Some(value.clone()),
        };
        if let Some(value) = passed {
            told.append(name.clone(), value);
        }
    }
    told.insert(VIA, HeaderValue::from_static("1.1 ringfence"));
    if ground == Ground::Api {
        told.insert(CONTENT_SECURITY_POLICY, SANDBOXED);
        told.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        told.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        told.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        // Whoever keeps answers must not give them to those who have no token.
        told.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let resource_policy = HeaderName::from_static("cross-origin-resource-policy");
        told.insert(resource_policy, HeaderValue::from_static("same-origin"));
    }
    told
}

/// Returns the headers that `Connection` names: they end with it too.
fn named_by_connection(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| !name.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

    use super::*;

    fn places() -> Places {
        Places::new("/dp/sb_x/ports/8000".to_owned(), 8000, "/a/b")
    }

    fn asker(page: Page) -> Asker {
        Asker {
            peer: Some(Ipv4Addr::new(192, 0, 2, 7).into()),
            scheme: "https",
            host: Some(HeaderValue::from_static("box.example")),
            page,
        }
    }

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let lines = lines.iter();
        lines
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn listed(headers: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn a_server_inside_sees_no_credential_and_nothing_that_pretends_to_be_from_us() {
        let sent = headers(&[
            ("accept", "text/html"),
            ("authorization", "Bearer secret"),
            ("x-api-key", "secret"),
            ("cookie", "a=1"),
            ("host", "box.example"),
            ("connection", "keep-alive, X-Hop"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("trailer", "x-end"),
            ("transfer-encoding", "chunked"),
            ("content-length", "3"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABk"),
            ("expect", "100-continue"),
            ("proxy-authorization", "Basic x"),
            ("forwarded", "for=1.2.3.4"),
            ("x-real-ip", "1.2.3.4"),
            ("x-forwarded-for", "1.2.3.4"),
            ("x-forwarded-port", "1"),
            ("x_forwarded_for", "1.2.3.4"),
            ("x-app", "yes"),
            ("origin", "https://evil.example"),
        ]);
        let told = inwards(&sent, &asker(Page::Other), &places(), Ground::Api);
        let expected = [
            "accept: text/html",
            "host: localhost:8000",
            "origin: https://evil.example",
            "x-app: yes",
            "x-forwarded-for: 192.0.2.7",
            "x-forwarded-host: box.example",
            "x-forwarded-prefix: /dp/sb_x/ports/8000",
            "x-forwarded-proto: https",
        ];
        assert_eq!(listed(&told), expected);
    }

    #[test]
    fn on_its_own_origin_a_sandbox_has_its_cookies_and_its_pages_are_its_own() {
        let ours = format!("{}=token; a=1; b=2", cookies::PLAIN);
        let mut sent = headers(&[
            ("origin", "http://8000--sb-x.localhost"),
            ("authorization", "Basic app"),
            ("x-api-key", "rf_0123"),
        ]);
        sent.insert(COOKIE, HeaderValue::from_str(&ours).unwrap());
        let told = inwards(&sent, &asker(Page::Own), &places(), Ground::Sandbox);
        assert_eq!(told[COOKIE], "a=1; b=2");
        assert_eq!(told[ORIGIN], "http://localhost:8000");
        assert_eq!(told[AUTHORIZATION], "Basic app");
        assert!(!told.contains_key("x-api-key"));
    }

    #[test]
    fn no_credential_that_we_issued_reaches_a_sandbox_in_any_header() {
        let sandbox = model::ids::SandboxId::from_random([1; 16]);
        let claims = format!(r#"{{"alg":"HS256","typ":"JWT","kid":"{sandbox}.1"}}"#);
        let token = format!("{}.e30.c2ln", URL_SAFE_NO_PAD.encode(claims));
        let theirs = "Bearer eyJhbGciOiJIUzI1NiJ9.e30.c2ln";
        for ours in
            [token.as_str(), "rfo_0123456789abcdef", "rf_0123456789abcdef", "rfp1.9.key_1.x"]
        {
            let mut sent = headers(&[("x-app", "yes")]);
            for (name, value) in [
                ("authorization", format!("Bearer {ours}")),
                ("x-api-key", ours.to_owned()),
                ("x-custom", format!("token={ours}")),
                ("referer", format!("http://host/?token={ours}")),
                ("sec-websocket-protocol", format!("bearer, {ours}")),
                ("cookie", format!("a=1; session={ours}; b=2")),
            ] {
                let value = HeaderValue::try_from(value).unwrap();
                sent.insert(name.parse::<HeaderName>().unwrap(), value);
            }
            for ground in [Ground::Api, Ground::Sandbox] {
                let told = inwards(&sent, &asker(Page::Other), &places(), ground);
                assert!(listed(&told).iter().all(|line| !line.contains(ours)), "{told:?}");
                assert_eq!(told["x-app"], "yes");
            }
            let told = inwards(&sent, &asker(Page::Other), &places(), Ground::Sandbox);
            assert_eq!(told[COOKIE], "a=1; b=2");
            // The application's own credentials pass on its own origin.
            sent.insert(AUTHORIZATION, HeaderValue::from_static(theirs));
            let told = inwards(&sent, &asker(Page::Other), &places(), Ground::Sandbox);
            assert_eq!(told[AUTHORIZATION], theirs);
        }
    }

    const ANSWERED: [(&str, &str); 24] = [
        ("content-type", "text/html"),
        ("content-length", "9"),
        ("transfer-encoding", "chunked"),
        ("connection", "close, x-hop"),
        ("x-hop", "1"),
        ("x-app", "yes"),
        ("etag", "\"1\""),
        ("cache-control", "public, max-age=99"),
        ("set-cookie", "a=1; Domain=example; Path=/"),
        ("content-security-policy", "default-src *"),
        ("access-control-allow-origin", "*"),
        ("access-control-allow-credentials", "true"),
        ("service-worker-allowed", "/"),
        ("clear-site-data", "\"*\""),
        ("strict-transport-security", "max-age=99; includeSubDomains"),
        ("alt-svc", "h3=\":1\""),
        ("x-accel-redirect", "/etc/passwd"),
        ("x-sendfile", "/etc/passwd"),
        ("refresh", "0; url=https://evil.example"),
        ("link", "<https://evil.example>; rel=preload"),
        ("www-authenticate", "Basic"),
        ("x-content-type-options", "sniff"),
        ("x-frame-options", "ALLOWALL"),
        ("location", "/next"),
    ];

    #[test]
    fn on_the_origin_of_the_api_an_answer_can_do_nothing() {
        let told = outwards(&headers(&ANSWERED), &places(), Ground::Api);
        let expected = [
            "cache-control: no-store",
            "content-security-policy: sandbox; default-src 'none'; frame-ancestors 'none'",
            "content-type: text/html",
            "cross-origin-resource-policy: same-origin",
            "etag: \"1\"",
            "location: /dp/sb_x/ports/8000/next",
            "referrer-policy: no-referrer",
            "via: 1.1 ringfence",
            "x-app: yes",
            "x-content-type-options: nosniff",
            "x-frame-options: DENY",
        ];
        assert_eq!(listed(&told), expected);
    }

    #[test]
    fn on_its_own_origin_an_answer_passes_as_far_as_it_stays_there() {
        let own = Places::new(String::new(), 8000, "/a/b");
        let told = outwards(&headers(&ANSWERED), &own, Ground::Sandbox);
        let expected = [
            "access-control-allow-credentials: true",
            "access-control-allow-origin: *",
            "cache-control: public, max-age=99",
            "content-security-policy: default-src *",
            "content-type: text/html",
            "etag: \"1\"",
            "link: <https://evil.example>; rel=preload",
            "location: /next",
            "refresh: 0; url=https://evil.example",
            "service-worker-allowed: /",
            "set-cookie: a=1; Path=/",
            "via: 1.1 ringfence",
            "www-authenticate: Basic",
            "x-app: yes",
            "x-content-type-options: sniff",
            "x-frame-options: ALLOWALL",
        ];
        assert_eq!(listed(&told), expected);
    }
}
