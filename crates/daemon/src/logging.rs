//! Where log lines go: to standard error, as text or as JSON.

use std::io;

use tracing::{Level, Metadata};
use tracing_subscriber::{
    EnvFilter, filter::filter_fn, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use crate::config::{Log, LogFormat};

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    #[error("log.filter is not understood; use one such as \"info\" or \"warn,daemon=debug\"")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    #[error("logging is set up already")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Reads which lines are written. The library of HTTP/2 warns of every frame that it did not
/// expect, with which strangers would fill the log: unless it is named, only its errors are
/// written.
pub fn filter(text: &str) -> Result<EnvFilter, LoggingError> {
    let filter = EnvFilter::try_new(text)?;
    if text.contains("h2") { Ok(filter) } else { Ok(filter.add_directive("h2=error".parse()?)) }
}

/// Tells whether a line may be written at all. The library of MCP writes whole messages at the lower levels, and
/// they hold code, tokens and contents of files: nobody can have those lines.
pub fn is_discreet(line: &Metadata<'_>) -> bool {
    !line.target().starts_with("rmcp") || *line.level() == Level::ERROR
}

/// Sets up logging for the process. Code, env, stdin and keys are never logged, at any level.
pub fn init(log: &Log) -> Result<(), LoggingError> {
    let registry = tracing_subscriber::registry().with(filter(&log.filter)?);
    let registry = registry.with(filter_fn(is_discreet));
    match log.format {
        LogFormat::Text => registry.with(fmt::layer().with_writer(io::stderr)).try_init()?,
        LogFormat::Json => registry.with(fmt::layer().json().with_writer(io::stderr)).try_init()?,
    }
    // What a panic says may hold a piece of a request; where it was does not.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "a part of the server broke: this is a mistake in the server");
    }));
    Ok(())
}
