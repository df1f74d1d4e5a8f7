//! Checking an export, with nothing else at hand.

use std::io;

use store::audit::{Broken, Chain, Link, NotALink};

/// A log that is as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub records: u64,
    /// Where it ends.
    pub checkpoint: String,
}

/// Why an export is not known to be good.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("cannot read the export")]
    Read(#[source] io::Error),
    #[error(transparent)]
    Checkpoint(#[from] NotALink),
    #[error("the audit log is not as it was written: {0}")]
    Broken(#[from] Broken),
}

/// Checks lines that begin after this checkpoint (without one: with the first record) and must have
/// that one among them.
pub fn verify(
    lines: impl IntoIterator<Item = io::Result<String>>,
    after: Option<&str>,
    checkpoint: Option<&str>,
) -> Result<Verified, VerifyError> {
    let after: Link = after.map_or(Ok(Link::START), str::parse)?;
    let checkpoint = checkpoint.map(str::parse).transpose()?;
    let mut chain = Chain::after(after).with_checkpoint(checkpoint);
    for line in lines {
        chain.add(&line.map_err(VerifyError::Read)?)?;
    }
    let end = chain.end()?;
    let records = end.sequence.saturating_sub(after.sequence);
    Ok(Verified { records, checkpoint: end.to_string() })
}
