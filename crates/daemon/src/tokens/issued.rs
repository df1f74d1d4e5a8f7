//! Recognises credentials that this server issues, wherever they are in a text.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{header, link, opaque, preview};

/// The fewest characters after the prefix of a key or an opaque token.
const MIN_SECRET: usize = 4;

/// Tells whether a text, such as the value of a header, has an API key, a token, a link or a preview cookie of ours in
/// it. Credentials that others issue are not recognised: they belong to the application that they are sent to.
pub(crate) fn holds_credential(text: &str) -> bool {
    has_one(text) || basic(text).is_some_and(|text| has_one(&text))
}

fn has_one(text: &str) -> bool {
    let is_of_word = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    text.split(|it: char| !is_of_word(it)).any(is_credential)
}

fn is_credential(word: &str) -> bool {
    let after = |prefix: &str| word.strip_prefix(prefix).filter(|rest| rest.len() >= MIN_SECRET);
    let is_key = after("rf_").is_some_and(|rest| rest.bytes().all(|it| it.is_ascii_hexdigit()));
    is_key
        || after(opaque::PREFIX).is_some()
        || [preview::PREFIX, link::PREFIX].iter().any(|prefix| word.starts_with(prefix))
        || word.split_once('.').is_some_and(|(head, _)| header::read(head).is_some())
}

/// Returns what `Basic` credentials say.
fn basic(text: &str) -> Option<String> {
    let (scheme, encoded) = text.trim().split_once(' ')?;
    let decoded =
        STANDARD.decode(encoded.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    Some(String::from_utf8_lossy(&decoded).into_owned())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use model::{ids::SandboxId, units::Timestamp};

    use super::*;
    use crate::{
        keys::Secret,
        tokens::{Tokens, preview::Preview},
    };

    #[test]
    fn credentials_of_ours_are_recognised_wherever_they_are_and_others_are_not() {
        let sandbox = SandboxId::from_random([1; 16]);
        let head = URL_SAFE_NO_PAD.encode(header::write(&header::key_name(&sandbox, 7, 2)));
        let key = Secret::random().unwrap();
        let preview = Preview { until: Timestamp::from_millis(9_000), key: "key_1".to_owned() };
        let port = NonZeroU16::new(80).unwrap();
        let cookie = Tokens::new(&[1; 32]).sign_preview(&sandbox, port, &preview);
        for ours in
            [key.reveal(), &format!("{head}.e30.c2ln"), "rfo_AbCd-_01", &cookie, "rfd1.e30.x"]
        {
            for text in [
                ours.to_owned(),
                format!("Bearer {ours}"),
                format!("bearer, {ours}, chat"),
                format!("a=1; session={ours}"),
                format!("https://host/enter?token={ours}&x=1"),
                format!("Basic {}", STANDARD.encode(format!("user:{ours}"))),
                format!("{{\"token\":\"{ours}\"}}"),
            ] {
                assert!(holds_credential(&text), "{text}");
            }
        }
        let other = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT","kid":"1"}"#);
        let theirs = format!("Bearer {other}.eyJzdWIiOiJ1In0.c2ln");
        let basic = format!("Basic {}", STANDARD.encode("user:password"));
        for text in
            ["", "Bearer sk-0123456789", "rf_", "surf_0123", "rfo_", "Basic x", &theirs, &basic]
        {
            assert!(!holds_credential(text), "{text}");
        }
    }
}
