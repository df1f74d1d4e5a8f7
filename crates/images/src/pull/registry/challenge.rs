//! How a registry asks who is there, and what is answered.

use serde::Deserialize;

use crate::pull::Credentials;

/// What a registry wants to see.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    /// A token, which is fetched from the realm.
    Bearer {
        realm: String,
        service: String,
    },
}

impl Challenge {
    /// Reads the header. The scope in it is left aside: what is asked for is always reading one
    /// repository.
    pub(super) fn read(header: &str) -> Option<Self> {
        let (scheme, rest) = header.split_once(' ').unwrap_or((header, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let realm = parameter(rest, "realm")?;
        let service = parameter(rest, "service").unwrap_or_default();
        Some(Self::Bearer { realm, service })
    }
}

/// Finds `name="value"` in a list. No value of these has an escaped quote in it.
fn parameter(list: &str, name: &str) -> Option<String> {
    let mut rest = list;
    while let Some((key, after)) = rest.split_once("=\"") {
        let (value, after) = after.split_once('"')?;
        if key.trim_start_matches([',', ' ']).eq_ignore_ascii_case(name) {
            return Some(value.to_owned());
        }
        rest = after;
    }
    None
}

pub(super) fn with_query(path: &str, service: &str, repository: &str) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    let scope = format!("repository:{repository}:pull");
    format!("{path}{separator}service={}&scope={}", encoded(service), encoded(&scope))
}

fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte: u8| match byte {
        plain if is_plain(plain) => char::from(plain).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(encode).collect()
}

pub(super) fn basic(credentials: &Credentials) -> String {
    let Credentials { username, password } = credentials;
    format!("Basic {}", base64(format!("{username}:{password}").as_bytes()))
}

/// Returns the header for a token that a realm answered with.
pub(super) fn token(answer: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Token {
        #[serde(default)]
        token: Option<String>,
        #[serde(default)]
        access_token: Option<String>,
    }
    let answer: Token = serde_json::from_slice(answer).ok()?;
    let token = answer.token.or(answer.access_token)?;
    let is_header = token.bytes().all(|byte| byte.is_ascii_graphic());
    is_header.then(|| format!("Bearer {token}"))
}

/// Eleven lines, so that no dependency is needed for one header.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | u32::from(*chunk.get(at).unwrap_or(&0)));
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit) & 63) as usize;
            let is_there = digit <= chunk.len();
            text.push(if is_there { char::from(DIGITS[index]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_as_registries_write_them() {
        let bearer = |realm: &str, service: &str| {
            Some(Challenge::Bearer { realm: realm.into(), service: service.into() })
        };
        let rows = [
            ("Basic realm=\"x\"", Some(Challenge::Basic)),
            ("basic", Some(Challenge::Basic)),
            (
                r#"Bearer realm="https://auth.example.com/token",service="registry",scope="a,b""#,
                bearer("https://auth.example.com/token", "registry"),
            ),
            (r#"bearer service="s", realm="r""#, bearer("r", "s")),
            (r#"Bearer realm="r"#, None),
            ("Bearer", None),
            ("Negotiate x", None),
            ("", None),
        ];
        for (header, expected) in rows {
            assert_eq!(Challenge::read(header), expected, "{header}");
        }
    }

    #[test]
    fn base64_has_its_padding() {
        let rows = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("user:pä~", "dXNlcjpww6R+"),
        ];
        for (text, expected) in rows {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }

    #[test]
    fn a_token_must_fit_into_a_header() {
        assert_eq!(token(br#"{"token":"abc"}"#).as_deref(), Some("Bearer abc"));
        assert_eq!(token(br#"{"access_token":"abc"}"#).as_deref(), Some("Bearer abc"));
        for wrong in [&br#"{"token":"a\r\nb"}"#[..], b"{}", b"x"] {
            assert_eq!(token(wrong), None);
        }
    }

    #[test]
    fn a_scope_is_encoded() {
        let query = with_query("/token", "my service", "library/a");
        assert_eq!(query, "/token?service=my%20service&scope=repository%3Alibrary%2Fa%3Apull");
    }
}
