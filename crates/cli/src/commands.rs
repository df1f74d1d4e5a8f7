//! One module per command; those that change the state of sandboxes share one.

pub(crate) mod audit;
pub(crate) mod change;
pub(crate) mod create;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod image;
pub(crate) mod key;
pub(crate) mod logs;
pub(crate) mod mcp;
pub(crate) mod ps;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod shell;
pub(crate) mod token;
