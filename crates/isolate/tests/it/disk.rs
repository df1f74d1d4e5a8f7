//! Volumes on this machine's kernel, judged by effect.
//!
//! Limits on disk need real root. An ordinary user has volumes in memory or without a limit, and is
//! told why there are no others.

mod crash;
mod ladder;
mod limits;
mod place;
mod removal;
