//! The checker, tried on histories that are right and on histories that are not.

mod rules;
mod tape;
