//! One module per command.

pub(crate) mod doctor;
pub(crate) mod key;
pub(crate) mod run;
pub(crate) mod serve;
