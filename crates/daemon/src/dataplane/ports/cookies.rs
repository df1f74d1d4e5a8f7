//! Cookies on an origin that a sandbox has for itself: its own, and the one that lets people in.

use axum::http::HeaderValue;

use crate::tokens::issued::holds_credential;

/// The name of our cookie over plain HTTP.
pub(crate) const PLAIN: &str = "ringfence_preview";
/// Its name over TLS: a browser takes a cookie of such a name from the host itself alone.
pub(crate) const SECURE: &str = "__Host-ringfence_preview";

/// Returns what is in our cookies, whoever put it there: a host beside this one may have.
pub(crate) fn ours(value: &HeaderValue) -> impl Iterator<Item = &str> {
    let pairs = value.to_str().unwrap_or_default().split(';').map(str::trim);
    pairs.filter_map(|pair| match pair.split_once('=') {
        Some((name, token)) if is_ours(name) => Some(token.trim()),
        Some(_) | None => None,
    })
}

/// Returns the cookies of a request without ours; nothing if there are no others.
pub(super) fn without_ours(value: &HeaderValue) -> Option<HeaderValue> {
    let text = value.to_str().ok()?;
    let kept: Vec<&str> = text
        .split(';')
        .map(str::trim)
        .filter(|pair| {
            let name = pair.split('=').next().unwrap_or_default();
            !pair.is_empty() && !is_ours(name) && !holds_credential(pair)
        })
        .collect();
    HeaderValue::from_str(&kept.join("; ")).ok().filter(|value| !value.is_empty())
}

/// Returns a cookie that a server sets, for its own host alone: hosts beside it are other sandboxes.
/// Ours are not for it to set.
pub(super) fn kept_to_its_host(value: &HeaderValue) -> Option<HeaderValue> {
    let text = value.to_str().ok()?;
    let (pair, attributes) = text.split_once(';').unwrap_or((text, ""));
    if is_ours(pair.split('=').next().unwrap_or_default()) {
        return None;
    }
    let mut kept = pair.trim().to_owned();
    for attribute in attributes.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let name = attribute.split('=').next().unwrap_or_default().trim();
        if !name.eq_ignore_ascii_case("domain") {
            kept.push_str("; ");
            kept.push_str(attribute);
        }
    }
    HeaderValue::from_str(&kept).ok()
}

fn is_ours(name: &str) -> bool {
    let name = name.trim();
    name.eq_ignore_ascii_case(PLAIN) || name.eq_ignore_ascii_case(SECURE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> HeaderValue {
        HeaderValue::from_str(text).unwrap()
    }

    #[test]
    fn our_cookie_is_read_and_taken_out() {
        let sent = value("a=1; ringfence_preview=t1; b=2;__host-Ringfence_Preview=t2");
        assert_eq!(ours(&sent).collect::<Vec<_>>(), ["t1", "t2"]);
        assert_eq!(without_ours(&sent).unwrap(), "a=1; b=2");
        assert_eq!(without_ours(&value("ringfence_preview=t")), None);
    }

    #[test]
    fn a_server_can_set_neither_our_cookie_nor_one_of_another_host() {
        let rows = [
            ("a=1", Some("a=1")),
            ("a=1; Path=/x; HttpOnly", Some("a=1; Path=/x; HttpOnly")),
            ("a=1; domain=example; Secure", Some("a=1; Secure")),
            ("a=1;DOMAIN = .example", Some("a=1")),
            ("ringfence_preview=x; Path=/", None),
            (" RINGFENCE_PREVIEW =x", None),
        ];
        for (set, kept) in rows {
            assert_eq!(kept_to_its_host(&value(set)), kept.map(value), "{set}");
        }
    }
}
