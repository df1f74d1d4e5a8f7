//! What a tool answers: a text for whoever reads it, and the same as values. Both have a bound, and say when
//! something was left out.

use api::{
    errors::ErrorCode,
    mcp::{Streams, ToolError},
};
use model::capability::Capability;
use rmcp::{
    ErrorData,
    model::{CallToolResult, ContentBlock, ErrorCode as RpcCode},
};
use serde_json::{Value, json};

use super::results::without_nulls;
use crate::http::problem::ApiError;

/// A refusal of ours, as JSON-RPC counts errors.
const REFUSED: RpcCode = RpcCode(-32000);

/// What a tool has done.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) text: String,
    pub(super) values: Value,
    pub(super) is_error: bool,
}

impl Told {
    pub(super) fn done(text: impl Into<String>, values: Value) -> Self {
        Self { text: text.into(), values, is_error: false }
    }
}

impl From<Told> for CallToolResult {
    fn from(told: Told) -> Self {
        let content = vec![ContentBlock::text(told.text)];
        let mut result = if told.is_error { Self::error(content) } else { Self::success(content) };
        result.structured_content = Some(without_nulls(told.values));
        result
    }
}

/// Why a tool did not do it.
#[derive(Debug)]
pub(super) struct Refused {
    error: ApiError,
    /// What whoever asked would have to have.
    lacks: Option<Capability>,
}

impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Self {
        Self { error, lacks: None }
    }
}

impl Refused {
    /// A refusal of what takes a capability.
    pub(super) fn lacking(error: ApiError, needed: Capability) -> Self {
        let lacks = (error.code() == ErrorCode::CapabilityDenied).then_some(needed);
        Self { error, lacks }
    }

    fn values(&self, request: &str) -> Value {
        let code = self.error.code();
        json!(ToolError {
            code: code.wire_name(),
            message: self.error.message().to_owned(),
            retryable: code.is_retryable(),
            request_id: Some(request.to_owned()),
            missing_capability: self.lacks.map(Capability::name),
            binding: self.error.binding().cloned().map(Box::new),
        })
    }

    /// Returns it as the answer of a tool, which whoever called the tool reads.
    pub(super) fn told(&self, request: &str) -> Told {
        let text = format!("{}: {}", self.error.code().wire_name(), self.error.message());
        Told { text, values: json!({"error": self.values(request)}), is_error: true }
    }

    /// Returns it as the answer to a method.
    pub(super) fn answer(&self, request: &str) -> ErrorData {
        ErrorData::new(REFUSED, self.error.message().to_owned(), Some(self.values(request)))
    }
}

/// What is shown of bytes that somebody wrote.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) text: String,
    /// Bytes that are left out.
    pub(super) omitted: u64,
    /// Whether bytes that are no text were replaced.
    pub(super) is_lossy: bool,
}

/// Shows the beginning and the end of something, of which so much is left out.
pub(super) fn shown(head: &[u8], tail: &[u8], omitted: u64) -> Shown {
    let begin = tail.iter().position(|byte| byte & 0xc0 != 0x80).unwrap_or(tail.len());
    let (cut, tail) = tail.split_at(begin);
    let omitted = omitted.saturating_add(u64::try_from(cut.len()).unwrap_or(u64::MAX));
    let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
    let is_lossy = [&head, &tail].iter().any(|text| matches!(text, std::borrow::Cow::Owned(_)));
    let text = match omitted {
        0 => format!("{head}{tail}"),
        _ => format!("{head}\n[… {omitted} bytes are left out here …]\n{tail}"),
    };
    Shown { text, omitted, is_lossy }
}

/// Shows bytes of which no more than this may be shown.
pub(super) fn fitted(bytes: &[u8], most: usize) -> Shown {
    if bytes.len() <= most {
        return shown(bytes, &[], 0);
    }
    let half = most / 2;
    let head = whole(bytes.get(..half).unwrap_or_default());
    let tail = bytes.get(bytes.len() - half..).unwrap_or_default();
    let omitted = bytes.len() - head.len() - tail.len();
    shown(head, tail, u64::try_from(omitted).unwrap_or(u64::MAX))
}

/// Leaves out a character at the end of which a part is missing.
fn whole(bytes: &[u8]) -> &[u8] {
    match str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => {
            bytes.get(..error.valid_up_to()).unwrap_or_default()
        }
        _ => bytes,
    }
}

/// Returns both streams of a program as values.
pub(super) fn values(stdout: Shown, stderr: Shown) -> Streams {
    Streams {
        stdout_omitted_bytes: stdout.omitted,
        stderr_omitted_bytes: stderr.omitted,
        replaced: stdout.is_lossy || stderr.is_lossy,
        stdout: stdout.text,
        stderr: stderr.text,
    }
}

/// Returns why a program was ended.
pub(super) fn cut_short(code: ErrorCode, message: &str) -> ToolError {
    ToolError {
        code: code.wire_name(),
        message: message.to_owned(),
        retryable: false,
        request_id: None,
        missing_capability: None,
        binding: None,
    }
}

/// Puts both streams of a program below a line that says how it ended.
pub(super) fn streams(end: &str, stdout: &Shown, stderr: &Shown) -> String {
    let mut text = end.to_owned();
    for (name, stream) in [("stdout", stdout), ("stderr", stderr)] {
        if !stream.text.is_empty() {
            text.extend(["\n--- ", name, "\n", &stream.text]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_counted_and_no_character_is_split() {
        assert_eq!(fitted(b"abc", 3).text, "abc");
        let cut = fitted(b"0123456789", 4);
        assert_eq!(
            (cut.text.as_str(), cut.omitted),
            ("01\n[… 6 bytes are left out here …]\n89", 6)
        );
        let cut = fitted("üüüüü".as_bytes(), 6);
        assert_eq!((cut.omitted, cut.is_lossy), (6, false));
        assert_eq!(cut.text, "ü\n[… 6 bytes are left out here …]\nü");
        assert!(fitted(b"a\xffb", 9).is_lossy);
    }
}
