//! Arguments that several commands have.

use std::time::Duration;

pub(crate) fn read_timeout(text: &str) -> Result<Duration, String> {
    daemon::config::read_duration(text).ok_or_else(|| "write it like 30s or 500ms".to_owned())
}

/// Reads a duration for which zero is a word of its own.
pub(crate) fn read_idle(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let wrong = || "write it like 10m or 1h; 0 is never".to_owned();
    daemon::config::read_duration(text).ok_or_else(wrong)
}

pub(crate) fn read_variable(text: &str) -> Result<(String, String), String> {
    read_pair(text).ok_or_else(|| "write it like NAME=VALUE".to_owned())
}

pub(crate) fn read_label(text: &str) -> Result<(String, String), String> {
    read_pair(text).ok_or_else(|| "write it like KEY=VALUE".to_owned())
}

fn read_pair(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    (!name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_cut_at_the_first_sign_and_have_a_name() {
        assert_eq!(read_label("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(read_label("a="), Ok(("a".to_owned(), String::new())));
        assert!(read_label("a").is_err() && read_variable("=b").is_err());
    }

    #[test]
    fn never_is_a_duration_of_zero() {
        assert_eq!(read_idle("0"), Ok(Duration::ZERO));
        assert_eq!(read_idle("10m"), Ok(Duration::from_mins(10)));
        assert!(read_idle("soon").is_err());
    }
}
