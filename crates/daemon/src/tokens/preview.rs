//! What lets a browser see one port of one sandbox: a text of another kind than tokens are, signed
//! with a key of its own, good for nothing else.

use std::num::NonZeroU16;

use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use model::{ids::SandboxId, units::Timestamp};

use super::Tokens;
use crate::clock;

/// Keeps the keys of previews apart from those of tokens.
const KIND: &[u8] = b"preview";
/// What every such text begins with. No token and no API key does.
pub(super) const PREFIX: &str = "rfp1.";
/// No such text is longer.
const MAX_BYTES: usize = 128;

/// The right to see a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// To the second.
    pub until: Timestamp,
    /// The API key that it was given out with: it ends with it. Its id has no dot.
    pub key: String,
}

impl Tokens {
    /// Signs the right to see a port.
    pub fn sign_preview(&self, sandbox: &SandboxId, port: NonZeroU16, preview: &Preview) -> String {
        let Preview { until, key: given_with } = preview;
        let seconds = until.as_millis().div_euclid(1000);
        let key = self.with_preview_info(sandbox, |info| self.inner.masters.first(info));
        let tag = hmac::sign(&key, &signed(port, seconds, given_with));
        format!("{PREFIX}{seconds}.{given_with}.{}", URL_SAFE_NO_PAD.encode(tag))
    }

    /// Returns what a text lets somebody see of this port, if it does now and its API key is valid.
    pub fn read_preview(
        &self,
        text: &str,
        sandbox: &SandboxId,
        port: NonZeroU16,
        now: Timestamp,
    ) -> Option<Preview> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let (said, tag) = text.strip_prefix(PREFIX)?.rsplit_once('.')?;
        let (seconds, given_with) = said.split_once('.')?;
        let seconds: i64 = seconds.parse().ok()?;
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        // It does not say which of the server's keys it is of.
        let today = clock::timestamp();
        let keys = self.with_preview_info(sandbox, |info| self.inner.masters.all(info, today));
        let signed = signed(port, seconds, given_with);
        keys.iter().find(|key| hmac::verify(key, &signed, &tag).is_ok())?;
        let until = Timestamp::from_millis(seconds.checked_mul(1000)?);
        (now < until).then(|| Preview { until, key: given_with.to_owned() })
    }

    fn with_preview_info<T>(&self, sandbox: &SandboxId, act: impl FnOnce(&[&[u8]]) -> T) -> T {
        let epoch = self.epoch_of(sandbox).0.to_be_bytes();
        act(&[KIND, sandbox.as_str().as_bytes(), &epoch])
    }
}

fn signed(port: NonZeroU16, seconds: i64, given_with: &str) -> Vec<u8> {
    [&port.get().to_be_bytes()[..], &seconds.to_be_bytes(), given_with.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preview_is_for_one_port_of_one_sandbox_for_a_while_and_is_no_token() {
        let (tokens, others) = (Tokens::new(&[1; 32]), Tokens::new(&[2; 32]));
        let (sandbox, other) = (SandboxId::from_random([1; 16]), SandboxId::from_random([2; 16]));
        let [port, next] = [80, 81].map(|port| NonZeroU16::new(port).unwrap());
        let at = Timestamp::from_millis;
        let of = |millis| Preview { until: at(millis), key: "key_1".to_owned() };
        let text = tokens.sign_preview(&sandbox, port, &of(9_500));
        assert_eq!(tokens.read_preview(&text, &sandbox, port, at(8_999)), Some(of(9_000)));
        assert_eq!(tokens.read_preview(&text, &sandbox, port, at(9_000)), None);
        assert_eq!(tokens.read_preview(&text, &sandbox, next, at(0)), None);
        assert_eq!(tokens.read_preview(&text, &other, port, at(0)), None);
        assert_eq!(others.read_preview(&text, &sandbox, port, at(0)), None);
        assert!(tokens.read(&text).is_err());
        let later = text.replacen("rfp1.9.", "rfp1.10.", 1);
        assert_eq!(tokens.read_preview(&later, &sandbox, port, at(0)), None);
        for index in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[index] ^= 1;
            let bent = String::from_utf8(bytes).unwrap();
            // The last letter has bits that stand for nothing, and is refused all the same.
            assert_eq!(tokens.read_preview(&bent, &sandbox, port, at(0)), None, "{index}");
        }
    }
}
