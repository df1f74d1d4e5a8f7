//! What is written to the terminal.

use std::io::{self, Write as _};

/// The exit code when the command itself could not do its work.
pub(crate) const OUR_FAILURE: u8 = 125;

/// Writes one line to standard output.
pub(crate) fn say(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}

/// Writes one line to standard error. There is nowhere to complain if that is gone too.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "ringfence: {line}");
}

/// Writes output of a program at once, as it came.
pub(crate) fn pass_on(mut stream: impl io::Write, text: &str) -> io::Result<()> {
    stream.write_all(text.as_bytes())?;
    stream.flush()
}
