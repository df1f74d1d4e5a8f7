//! For each rule, small histories that break it and nothing else, and their neighbours that do not.

mod acknowledged;
mod ends;
mod machine;
mod once;
mod reads;
mod streams;

use crate::tape;

#[test]
fn a_history_of_everything_is_right() {
    tape::whole().is_right();
}

#[test]
fn an_empty_history_is_right() {
    tape::Tape::default().is_right();
}
