//! URLs that download one file of one sandbox, for whoever has them: texts of another kind than tokens are,
//! signed with a key of their own, good for nothing else.

use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use model::{ids::SandboxId, units::Timestamp};
use serde::{Deserialize, Serialize};

use super::Tokens;
use crate::clock;

/// Keeps the keys of links apart from those of tokens and previews.
const KIND: &[u8] = b"download";
/// What every such text begins with. No token, no API key and no preview does.
pub(super) const PREFIX: &str = "rfd1.";
/// No such text is longer: a path has 4096 bytes at most.
const MAX_BYTES: usize = 8 << 10;

/// What a link leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Download {
    /// From the root of the sandbox.
    pub path: String,
    /// In seconds since 1970. Without it the link ends with the sandbox, or with its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    #[serde(default)]
    pub disposition: Disposition,
    /// The API key that it was given out with: it ends with it.
    pub key: String,
}

/// What a browser is to do with the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disposition {
    #[default]
    Attachment,
    Inline,
}

impl Disposition {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Attachment => "attachment",
            Self::Inline => "inline",
        }
    }
}

impl Tokens {
    /// Signs the right to download a file. Nothing if it would be too long.
    pub fn sign_download(&self, sandbox: &SandboxId, link: &Download) -> Option<String> {
        let payload = serde_json::to_vec(link).ok()?;
        let key = self.with_download_info(sandbox, |info| self.inner.masters.first(info));
        let tag = hmac::sign(&key, &payload);
        let text =
            format!("{PREFIX}{}.{}", URL_SAFE_NO_PAD.encode(&payload), URL_SAFE_NO_PAD.encode(tag));
        (text.len() <= MAX_BYTES).then_some(text)
    }

    /// Returns what a text lets somebody download from this sandbox, if it does now.
    pub fn read_download(
        &self,
        text: &str,
        sandbox: &SandboxId,
        now: Timestamp,
    ) -> Option<Download> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let (payload, tag) = text.strip_prefix(PREFIX)?.split_once('.')?;
        let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        // It does not say which of the server's keys it is of.
        let today = clock::timestamp();
        let keys = self.with_download_info(sandbox, |info| self.inner.masters.all(info, today));
        keys.iter().find(|key| hmac::verify(key, &payload, &tag).is_ok())?;
        let link: Download = serde_json::from_slice(&payload).ok()?;
        let is_over = link.until.is_some_and(|until| now.as_millis() >= until.saturating_mul(1000));
        (!is_over).then_some(link)
    }

    fn with_download_info<T>(&self, sandbox: &SandboxId, act: impl FnOnce(&[&[u8]]) -> T) -> T {
        let epoch = self.epoch_of(sandbox).0.to_be_bytes();
        act(&[KIND, sandbox.as_str().as_bytes(), &epoch])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_for_one_file_of_one_sandbox_and_nothing_of_it_can_be_changed() {
        let (tokens, others) = (Tokens::new(&[1; 32]), Tokens::new(&[2; 32]));
        let (sandbox, other) = (SandboxId::from_random([1; 16]), SandboxId::from_random([2; 16]));
        let at = Timestamp::from_millis;
        let link = Download {
            path: "/home/agbox/ü".to_owned(),
            until: Some(9),
            content_type: Some("text/plain".to_owned()),
            disposition: Disposition::Inline,
            key: "key_1".to_owned(),
        };
        let text = tokens.sign_download(&sandbox, &link).unwrap();
        assert_eq!(tokens.read_download(&text, &sandbox, at(8_999)), Some(link.clone()));
        assert_eq!(tokens.read_download(&text, &sandbox, at(9_000)), None);
        assert_eq!(tokens.read_download(&text, &other, at(0)), None);
        assert_eq!(others.read_download(&text, &sandbox, at(0)), None);
        assert!(tokens.read(&text).is_err());
        for index in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[index] ^= 1;
            let bent = String::from_utf8(bytes).unwrap();
            assert_eq!(tokens.read_download(&bent, &sandbox, at(0)), None, "{index}");
        }
        let for_ever = Download { until: None, ..link.clone() };
        let text = tokens.sign_download(&sandbox, &for_ever).unwrap();
        assert_eq!(tokens.read_download(&text, &sandbox, at(i64::MAX)), Some(for_ever));
        let long = Download { path: "/".repeat(MAX_BYTES), ..link };
        assert_eq!(tokens.sign_download(&sandbox, &long), None);
    }
}
