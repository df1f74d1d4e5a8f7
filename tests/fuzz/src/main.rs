//! Feeds the parsers of what strangers send with bytes that libFuzzer makes up. `FUZZ` names the parser; see `make fuzz`.
//!
//! Each promises more than to return: what it promises is said, and asserted, where it is (`fuzz_one`).

#![no_main]

use std::sync::LazyLock;

use daemon::{dataplane, grpc, serve, tokens::Tokens};
use engine::sandboxes::shells;
use images::{
    archive::{Bounds, Reader},
    reference::Reference,
};
use isolate::wire::{Order, decode, encode};
use libfuzzer_sys::fuzz_target;

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 10] = [
    ("archive", archive),
    ("authority", grpc::fuzz_authority),
    ("fathom", api::fathom::fuzz_one),
    ("framing", serve::fuzz_framing),
    ("order", order),
    ("reference", reference),
    ("screen", shells::fuzz_screen),
    ("token", token),
    ("tunnel", dataplane::fuzz_tunnel),
    ("yaml", grpc::fuzz_yaml),
];

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let wanted = std::env::var("FUZZ").unwrap_or_default();
    let found = TARGETS.iter().find(|(name, _)| *name == wanted);
    let names = TARGETS.map(|(name, _)| name).join(" ");
    assert!(found.is_some(), "FUZZ has to be one of: {names}");
    found.map_or(token, |(_, target)| *target)
});

static TOKENS: LazyLock<Tokens> = LazyLock::new(|| Tokens::new(&[7; 32]));

fuzz_target!(|bytes: &[u8]| TARGET(bytes));

/// Layers of images: every entry that is read has a name, and no more is read than was said.
fn archive(bytes: &[u8]) {
    let mut reader = Reader::new(bytes, Bounds::default());
    while let Ok(Some(entry)) = reader.next_entry() {
        assert!(!entry.name.is_empty(), "an entry has no name");
    }
}

/// What the spawner is told: what is understood is the same after it was written.
fn order(bytes: &[u8]) {
    if let Ok(order) = decode::<Order>(bytes) {
        let written = encode(&order).unwrap_or_default();
        assert_eq!(decode::<Order>(&written).ok(), Some(order));
    }
}

/// Names of images: what is understood says the same when it is written out.
fn reference(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(reference) = text.parse::<Reference>() {
        let written = reference.to_string();
        assert_eq!(written.parse().ok(), Some(reference), "{written}");
    }
}

/// Tokens: nothing is genuine that nobody has signed.
fn token(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    assert!(TOKENS.read(text).is_err(), "it was signed by nobody");
}
