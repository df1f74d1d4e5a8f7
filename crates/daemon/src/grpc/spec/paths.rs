//! Paths of the host and paths inside, as callers write them.

use std::path::{Component, Path, PathBuf};

use api::errors::agbox::Reason;
use engine::sandboxes::Caller;

use super::{Invalid, no_nul};

/// The home directory inside.
const HOME_INSIDE: &str = "/home/agbox";

/// Where a request comes from, as far as paths of the host are concerned.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// What `~` stands for. Nobody has a home over the network.
    pub(crate) home: Option<PathBuf>,
    pub(crate) host_paths: HostPaths,
}

/// Which paths of the host a caller may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostPaths {
    /// They are opened with his own rights, so the machine's own permissions decide.
    Any,
    /// Those below one of these.
    Below(Vec<PathBuf>),
}

impl HostPaths {
    /// Somebody for whom these are opened with the server's own rights.
    pub(crate) fn stranger(&self) -> Caller {
        match self {
            Self::Any => Caller::nobody(),
            Self::Below(allowed) => Caller::Stranger { allowed: allowed.clone() },
        }
    }
}

impl Origin {
    /// Reads a source: absolute, or by `~` below the caller's home.
    pub(crate) fn source(&self, path: &str, text: &str) -> Result<String, Invalid> {
        let whole = match (text.strip_prefix('~'), &self.home) {
            (None, _) => text.to_owned(),
            (Some(_), None) => {
                return Err(Invalid::new(path, "\"~\" stands for nothing here; write it out"));
            }
            (Some(rest), Some(home)) => format!("{}{}", home.display(), below_home(path, rest)?),
        };
        let whole = clean(path, &whole)?;
        self.check(path, &whole)?;
        Ok(whole)
    }

    /// Refuses a path of the host that the caller may not name.
    pub(crate) fn check(&self, path: &str, source: &str) -> Result<(), Invalid> {
        let HostPaths::Below(prefixes) = &self.host_paths else { return Ok(()) };
        let source = Path::new(source);
        let goes_up = source.components().any(|part| part == Component::ParentDir);
        if !goes_up && prefixes.iter().any(|prefix| source.starts_with(prefix)) {
            return Ok(());
        }
        let problem = if prefixes.is_empty() {
            "paths of the host cannot be used here; use the Unix socket, or have the operator allow \
             some with agbox.host_paths"
        } else {
            "is not below a path that the operator allows with agbox.host_paths"
        };
        Err(Invalid::new(path, problem).because(Reason::PermissionDenied))
    }

    /// Refuses what uses directories of the caller's home for who has none or may not name them.
    pub(crate) fn check_home(&self, path: &str) -> Result<(), Invalid> {
        if let Some(home) = &self.home {
            return self.check(path, &home.to_string_lossy());
        }
        let problem = "are in the caller's home, and over the network nobody has one here; use the \
                       Unix socket";
        Err(Invalid::new(path, problem).because(Reason::PermissionDenied))
    }
}

/// Reads a path inside: absolute, or by `~` below the home there.
pub(super) fn target(path: &str, text: &str) -> Result<String, Invalid> {
    match text.strip_prefix('~') {
        None => clean(path, text),
        Some(rest) => clean(path, &format!("{HOME_INSIDE}{}", below_home(path, rest)?)),
    }
}

/// Takes what follows `~`: nothing or a path, never the name of a user.
fn below_home<'text>(path: &str, rest: &'text str) -> Result<&'text str, Invalid> {
    if rest.is_empty() || rest.starts_with('/') {
        return Ok(rest);
    }
    Err(Invalid::new(path, "must not name the home of another user; \"~\" and \"~/…\" are yours"))
}

/// Writes an absolute path in its one form: no empty, `.` or last empty component.
fn clean(path: &str, text: &str) -> Result<String, Invalid> {
    if text.is_empty() {
        return Err(Invalid::new(path, "is required"));
    }
    no_nul(path, text)?;
    if !text.starts_with('/') {
        return Err(Invalid::new(path, "must be absolute, or begin with \"~/\""));
    }
    if text.split('/').any(|part| part == "..") {
        return Err(Invalid::new(path, "must not have \"..\" in it; write the path without it"));
    }
    let parts = text.split('/').filter(|part| !part.is_empty() && *part != ".");
    let clean: String = parts.flat_map(|part| ["/", part]).collect();
    Ok(if clean.is_empty() { "/".to_owned() } else { clean })
}
