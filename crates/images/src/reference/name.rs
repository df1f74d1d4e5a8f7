//! Names in registries, in their full form: registry, repository, tag, digest.

use std::{fmt, str::FromStr};

use super::ReferenceError;
use crate::digest::Digest;

/// Where a name without a registry leads, as everybody expects.
const DEFAULT_REGISTRY: &str = "docker.io";

const LONGEST_REPOSITORY: usize = 255;

/// An image in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Name {
    /// Returns host and port as they were written, in lower case.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    pub fn repository(&self) -> &str {
        &self.repository
    }

    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }
}

impl FromStr for Name {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let (registry, rest) = split_registry(text)?;
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse()?)),
            None => (rest, None),
        };
        let (repository, tag) = match rest.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (rest, None),
        };
        let is_official = registry == DEFAULT_REGISTRY && !repository.contains('/');
        let folder = if is_official { "library/" } else { "" };
        // As it is written out: what is understood once is understood again.
        let full = format!("{folder}{repository}");
        if !is_repository(&full) {
            return Err(ReferenceError::Repository(repository.to_owned()));
        }
        if let Some(tag) = tag.filter(|tag| !is_tag(tag)) {
            return Err(ReferenceError::Tag(tag.to_owned()));
        }
        // A digest says which one; without it a name means the newest.
        let tag = tag.or(if digest.is_none() { Some("latest") } else { None });
        Ok(Self { registry, repository: full, tag: tag.map(str::to_owned), digest })
    }
}

/// What stands before the first slash is a registry if it cannot be part of a repository's name.
fn split_registry(text: &str) -> Result<(String, &str), ReferenceError> {
    let Some((first, rest)) = text.split_once('/') else {
        return Ok((DEFAULT_REGISTRY.to_owned(), text));
    };
    if !first.contains(['.', ':']) && first != "localhost" {
        return Ok((DEFAULT_REGISTRY.to_owned(), text));
    }
    if !is_registry(first) {
        // Components of dots alone are an attempt at a path, not at a host.
        return Err(ReferenceError::Registry(first.to_owned()));
    }
    let registry = first.to_ascii_lowercase();
    let registry =
        if registry == "index.docker.io" { DEFAULT_REGISTRY.to_owned() } else { registry };
    Ok((registry, rest))
}

fn is_registry(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let port_fits = port.is_none_or(|it| it.parse::<u16>().is_ok_and(|port| port > 0));
    port_fits && (is_host_name(host) || is_bracketed_address(host))
}

fn is_host_name(host: &str) -> bool {
    host.len() <= 253 && host.split('.').all(is_host_label)
}

fn is_host_label(label: &str) -> bool {
    let ends_fit = !label.starts_with('-') && !label.ends_with('-');
    let fits = label.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-');
    !label.is_empty() && label.len() <= 63 && ends_fit && fits
}

fn is_bracketed_address(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner.is_some_and(|it| it.parse::<std::net::Ipv6Addr>().is_ok())
}

fn is_repository(text: &str) -> bool {
    text.len() <= LONGEST_REPOSITORY && text.split('/').all(is_repository_component)
}

/// Words of lower-case letters and digits with `.`, `_`, `__` or hyphens between them.
fn is_repository_component(text: &str) -> bool {
    let is_word = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit();
    let edges_fit = text.starts_with(is_word) && text.ends_with(is_word);
    let mut separators = text.split(is_word).filter(|it| !it.is_empty());
    edges_fit
        && separators
            .all(|it| it == "." || it == "_" || it == "__" || it.bytes().all(|c| c == b'-'))
}

pub(super) fn is_tag(text: &str) -> bool {
    let is_word = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let rest_fits = text.chars().all(|it| is_word(it) || it == '.' || it == '-');
    text.len() <= 128 && text.starts_with(is_word) && rest_fits
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(formatter, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(formatter, "@{digest}")?;
        }
        Ok(())
    }
}
