//! Arguments that several commands have.

use std::time::Duration;

use client::sandboxes::Mount;

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

/// Reads a mount: source and target with a colon between them, and `:rw` if it can be written to.
pub(crate) fn read_mount(text: &str) -> Result<Mount, String> {
    let (pair, is_writable) = match text.strip_suffix(":rw") {
        Some(pair) => (pair, true),
        None => (text.strip_suffix(":ro").unwrap_or(text), false),
    };
    let wrong = || "write it like SOURCE:TARGET, or SOURCE:TARGET:rw to write to it".to_owned();
    let (source, target) = read_places(pair).ok_or_else(wrong)?;
    Ok(Mount { source, target, is_writable })
}

pub(crate) fn read_copy(text: &str) -> Result<(String, String), String> {
    read_places(text).ok_or_else(|| "write it like SOURCE:TARGET".to_owned())
}

/// A relative source is one of the folder that the command runs in.
fn read_places(text: &str) -> Option<(String, String)> {
    let (source, target) = text.split_once(':')?;
    if source.is_empty() || target.is_empty() || target.contains(':') {
        return None;
    }
    let source = match source.strip_prefix('~') {
        Some(_) => source.to_owned(),
        None => std::path::absolute(source).ok()?.into_os_string().into_string().ok()?,
    };
    Some((source, target.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_have_a_source_and_a_target_and_are_read_only_unless_told() {
        let mount = |source: &str, is_writable| {
            Ok(Mount { source: source.to_owned(), target: "/t".to_owned(), is_writable })
        };
        assert_eq!(read_mount("/a:/t"), mount("/a", false));
        assert_eq!(read_mount("/a:/t:ro"), mount("/a", false));
        assert_eq!(read_mount("~/a:/t:rw"), mount("~/a", true));
        let here = std::env::current_dir().unwrap().join("a").display().to_string();
        assert_eq!(read_mount("a:/t"), mount(&here, false));
        for wrong in ["", "/a", ":/t", "/a:", "/a:/b:/c"] {
            assert!(read_mount(wrong).is_err() && read_copy(wrong).is_err(), "{wrong}");
        }
    }

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
