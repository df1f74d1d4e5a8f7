//! What lets a browser see one port of one sandbox: a text of another kind than tokens are, signed
//! with a key of its own, good for nothing else.

use std::num::NonZeroU16;

use aws_lc_rs::hmac::{self, HMAC_SHA256};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use model::{ids::SandboxId, units::Timestamp};

use super::Tokens;

/// Keeps the keys of previews apart from those of tokens.
const KIND: &[u8] = b"preview";
/// What every such text begins with. No token and no API key does.
const PREFIX: &str = "rfp1.";
/// No such text is longer.
const MAX_BYTES: usize = 128;

impl Tokens {
    /// Signs the right to see a port until this time, to the second.
    pub fn sign_preview(&self, sandbox: &SandboxId, port: NonZeroU16, until: Timestamp) -> String {
        let seconds = until.as_millis().div_euclid(1000);
        let tag = hmac::sign(&self.preview_key(sandbox), &signed(port, seconds));
        format!("{PREFIX}{seconds}.{}", URL_SAFE_NO_PAD.encode(tag))
    }

    /// Returns until when a text lets somebody see this port, if it does now.
    pub fn read_preview(
        &self,
        text: &str,
        sandbox: &SandboxId,
        port: NonZeroU16,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let (seconds, tag) = text.strip_prefix(PREFIX)?.split_once('.')?;
        if text.len() > MAX_BYTES {
            return None;
        }
        let seconds: i64 = seconds.parse().ok()?;
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        hmac::verify(&self.preview_key(sandbox), &signed(port, seconds), &tag).ok()?;
        let until = Timestamp::from_millis(seconds.checked_mul(1000)?);
        (now < until).then_some(until)
    }

    fn preview_key(&self, sandbox: &SandboxId) -> hmac::Key {
        let epoch = self.epoch_of(sandbox).0.to_be_bytes();
        let info = [KIND, sandbox.as_str().as_bytes(), &epoch];
        // It fails if more than 255 blocks are asked for, and one is.
        let derived = self.inner.master.expand(&info, HMAC_SHA256);
        derived.expect("one block can always be derived").into()
    }
}

fn signed(port: NonZeroU16, seconds: i64) -> Vec<u8> {
    [&port.get().to_be_bytes()[..], &seconds.to_be_bytes()].concat()
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
        let text = tokens.sign_preview(&sandbox, port, at(9_500));
        assert_eq!(tokens.read_preview(&text, &sandbox, port, at(8_999)), Some(at(9_000)));
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
