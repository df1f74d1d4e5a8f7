//! What a request says of the version that it means, and of the part that it wants.

use std::ops::Range;

use api::errors::ErrorCode;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use model::file::{Condition, FileStat, FileTime, Tags};

use crate::http::problem::ApiError;

/// Versions that one header may name.
const MOST_TAGS: usize = 64;

/// Returns the version of a file as a header has it.
pub(super) fn etag(stat: &FileStat) -> HeaderValue {
    // A tag is hexadecimal digits, dots and dashes.
    HeaderValue::from_str(&format!("\"{}\"", stat.tag)).unwrap_or(HeaderValue::from_static("\"\""))
}

/// Reads what has to be so for a change to be made.
pub(super) fn condition(headers: &HeaderMap) -> Result<Condition, ApiError> {
    Ok(Condition {
        is: tags(headers, &header::IF_MATCH, Comparison::Strong)?,
        is_not: tags(headers, &header::IF_NONE_MATCH, Comparison::Weak)?,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    /// What is marked as weak is like nothing.
    Strong,
    Weak,
}

fn tags(
    headers: &HeaderMap,
    name: &HeaderName,
    comparison: Comparison,
) -> Result<Option<Tags>, ApiError> {
    if !headers.contains_key(name) {
        return Ok(None);
    }
    let bad = || {
        let text = format!("{name} is * or a list of ETags, each in double quotes");
        ApiError::new(ErrorCode::InvalidRequest, text)
    };
    let mut all = Vec::new();
    for value in headers.get_all(name) {
        let text = value.to_str().map_err(|_not_ascii| bad())?;
        if text.trim() == "*" {
            return Ok(Some(Tags::Any));
        }
        for tag in text.split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
            let (is_weak, tag) = match tag.strip_prefix("W/") {
                Some(tag) => (true, tag),
                None => (false, tag),
            };
            let tag =
                tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).ok_or_else(bad)?;
            if !is_weak || comparison == Comparison::Weak {
                all.push(tag.to_owned());
            }
        }
        if all.len() > MOST_TAGS {
            return Err(bad());
        }
    }
    Ok(Some(Tags::These(all)))
}

/// How a request to read is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Whole,
    Part(Range<u64>),
    /// The client has it already.
    NotModified,
    /// It is not the version that the client means.
    Failed,
    /// There is nothing at the asked place.
    Unsatisfiable,
}

/// Decides in the order of RFC 9110, section 13.2.2.
pub(super) fn answer(headers: &HeaderMap, stat: &FileStat) -> Result<Answer, ApiError> {
    let Condition { is, is_not } = condition(headers)?;
    let has = |tags: &Tags| match tags {
        Tags::Any => true,
        Tags::These(these) => these.contains(&stat.tag),
    };
    if is.is_some_and(|tags| !has(&tags)) {
        return Ok(Answer::Failed);
    }
    match is_not {
        Some(tags) if has(&tags) => return Ok(Answer::NotModified),
        Some(_) => {}
        None => {
            let since = headers.get(header::IF_MODIFIED_SINCE).and_then(|it| it.to_str().ok());
            if since == Some(date(stat.modified).as_str()) {
                return Ok(Answer::NotModified);
            }
        }
    }
    let Some(range) = headers.get(header::RANGE).and_then(|value| value.to_str().ok()) else {
        return Ok(Answer::Whole);
    };
    let is_meant = headers.get(header::IF_RANGE).is_none_or(|value| *value == etag(stat));
    Ok(if is_meant { part(range, stat.size) } else { Answer::Whole })
}

/// Reads a range. One of another unit than bytes is no range to us; of several none is answered.
fn part(text: &str, size: u64) -> Answer {
    let Some((unit, range)) = text.split_once('=') else { return Answer::Unsatisfiable };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Answer::Whole;
    }
    read_range(range.trim(), size).map_or(Answer::Unsatisfiable, Answer::Part)
}

fn read_range(range: &str, size: u64) -> Option<Range<u64>> {
    let (first, last) = range.split_once('-')?;
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(first) || !is_number(last) {
        return None;
    }
    // A number that does not fit is larger than any file.
    let number = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX);
    let range = match (first, last) {
        ("", "") => return None,
        ("", last) => size.saturating_sub(number(last))..size,
        (first, "") => number(first)..size,
        (first, last) if number(first) > number(last) => return None,
        (first, last) => number(first)..number(last).saturating_add(1).min(size),
    };
    (range.start < range.end).then_some(range)
}

/// Returns a time as HTTP writes it.
pub(super) fn date(time: FileTime) -> String {
    let time = jiff::Timestamp::from_second(time.seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[cfg(test)]
mod tests {
    use model::file::FileKind;

    use super::*;

    fn stat() -> FileStat {
        FileStat {
            kind: FileKind::File,
            size: 100,
            mode: 0o644,
            user: 0,
            group: 0,
            modified: FileTime { seconds: 784_111_777, nanos: 5 },
            tag: "1-64".to_owned(),
        }
    }

    fn decide(pairs: &[(&'static str, &str)]) -> Result<Answer, ApiError> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        answer(&headers, &stat())
    }

    #[test]
    fn p11_one_range_of_bytes_is_answered_and_nothing_else() {
        let rows = [
            ("bytes=0-9", Answer::Part(0..10)),
            ("bytes=0-0", Answer::Part(0..1)),
            ("Bytes= 90-", Answer::Part(90..100)),
            ("bytes=-10", Answer::Part(90..100)),
            ("bytes=-1000", Answer::Part(0..100)),
            ("bytes=50-1000", Answer::Part(50..100)),
            ("bytes=50-99999999999999999999999", Answer::Part(50..100)),
            ("bytes=-0", Answer::Unsatisfiable),
            ("bytes=100-", Answer::Unsatisfiable),
            ("bytes=99999999999999999999999-", Answer::Unsatisfiable),
            ("bytes=9-3", Answer::Unsatisfiable),
            ("bytes=-", Answer::Unsatisfiable),
            ("bytes=--1", Answer::Unsatisfiable),
            ("bytes=+1-2", Answer::Unsatisfiable),
            ("bytes=0-1,2-3", Answer::Unsatisfiable),
            ("bytes=0-5,0-5", Answer::Unsatisfiable),
            ("bytes", Answer::Unsatisfiable),
            ("items=0-5", Answer::Whole),
        ];
        for (range, expected) in rows {
            assert_eq!(decide(&[("range", range)]).unwrap(), expected, "{range}");
        }
        let thousand = format!("bytes={}", vec!["0-1"; 1000].join(","));
        assert_eq!(decide(&[("range", &thousand)]).unwrap(), Answer::Unsatisfiable);
    }

    #[test]
    fn versions_and_dates_decide_in_their_order() {
        let rows: [(&[(&'static str, &str)], Answer); 12] = [
            (&[], Answer::Whole),
            (&[("if-match", "\"1-64\"")], Answer::Whole),
            (&[("if-match", "\"other\", \"1-64\"")], Answer::Whole),
            (&[("if-match", "W/\"1-64\"")], Answer::Failed),
            (&[("if-match", "*"), ("if-none-match", "*")], Answer::NotModified),
            (&[("if-none-match", "W/\"1-64\"")], Answer::NotModified),
            (&[("if-none-match", "\"other\""), ("range", "bytes=0-1")], Answer::Part(0..2)),
            (&[("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT")], Answer::NotModified),
            (&[("if-modified-since", "Sun, 06 Nov 1994 08:49:38 GMT")], Answer::Whole),
            (&[("if-range", "\"1-64\""), ("range", "bytes=0-1")], Answer::Part(0..2)),
            (&[("if-range", "\"old\""), ("range", "bytes=0-1")], Answer::Whole),
            (
                &[("if-range", "Sun, 06 Nov 1994 08:49:37 GMT"), ("range", "bytes=0-1")],
                Answer::Whole,
            ),
        ];
        for (headers, expected) in rows {
            assert_eq!(decide(headers).unwrap(), expected, "{headers:?}");
        }
        for bad in ["1-64", "\"1-64", "W/1-64"] {
            assert!(decide(&[("if-match", bad)]).is_err(), "{bad}");
        }
    }
}
