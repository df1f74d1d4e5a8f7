//! What a test needs of the machine. A test that lacks it fails by name; it never passes without having tested anything.
//!
//! Stages whose machine or user lacks something leave tests out by the rows of `tests/needs`.

/// Fails the test unless the machine has this feature, which is a word of `tests/needs`.
#[track_caller]
pub fn require(feature: &str, is_there: bool) {
    assert!(
        is_there,
        "this test needs `{feature}`, which is missing here. A stage that does without it leaves \
         the test out by a row in tests/needs"
    );
}

/// Fails the test unless it runs as root.
#[track_caller]
pub fn require_root() {
    require("root", rustix::process::geteuid().is_root());
}
