//! The checker, tried on histories that are right and on histories that are not.

mod agbox;
mod files;
mod mutations;
mod page;
mod paths;
mod properties;
mod rules;
mod simulation;
mod tape;
