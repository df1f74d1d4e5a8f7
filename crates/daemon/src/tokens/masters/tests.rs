//! Changes of the server's own key: what goes on, what ends, and what a restart makes of it.

use std::{num::NonZeroU16, path::Path};

use model::{
    actor::{Actor, ActorKind},
    capability::Capabilities,
    reach::Reach,
    token::{Claims, Generation, Lifetime},
};
use store::Store;

use super::*;
use crate::tokens::{
    Token,
    link::{Disposition, Download},
    preview::Preview,
};

fn fresh(id: &str) -> Claims {
    let (issued_at, expires_at) = Lifetime::USUAL.from(clock::timestamp());
    Claims {
        id: id.to_owned(),
        actor: Actor { kind: ActorKind::Human, id: "ada".to_owned() },
        key: "key_1".to_owned(),
        sandbox: SandboxId::from_random([1; 16]),
        capabilities: Capabilities::of_scope("fs:rw shell"),
        reach: Reach::Everywhere,
        thread: None,
        generation: Generation::FIRST,
        issued_at,
        expires_at,
        parents: Vec::new(),
    }
}

async fn open_in(data: &Path) -> Tokens {
    let store = Store::open(&data.join("s.db")).unwrap();
    Tokens::open(data, store, Vec::new()).await.unwrap()
}

/// All that is signed with the server's key.
struct Signed {
    token: Token,
    opaque: Token,
    preview: String,
    link: String,
}

const PORT: NonZeroU16 = NonZeroU16::new(80).unwrap();

impl Signed {
    async fn by(tokens: &Tokens) -> Self {
        let sandbox = fresh("").sandbox;
        let until = clock::timestamp().plus(Duration::from_hours(1));
        let link = Download {
            path: "/a".to_owned(),
            until: None,
            content_type: None,
            disposition: Disposition::Inline,
            key: "key_1".to_owned(),
        };
        let preview = Preview { until, key: "key_1".to_owned() };
        Self {
            token: tokens.sign(&fresh("tok_1")).unwrap(),
            opaque: tokens.keep(&fresh("tok_2")).await.unwrap(),
            preview: tokens.sign_preview(&sandbox, PORT, &preview),
            link: tokens.sign_download(&sandbox, &link).unwrap(),
        }
    }

    /// Returns what of it is good.
    async fn is_good(&self, tokens: &Tokens) -> [bool; 4] {
        let (sandbox, now) = (fresh("").sandbox, clock::timestamp());
        [
            tokens.held(self.token.reveal()).await.is_ok_and(|held| !held.is_revoked()),
            tokens.held(self.opaque.reveal()).await.is_ok_and(|held| !held.is_revoked()),
            tokens.read_preview(&self.preview, &sandbox, PORT, now).is_some(),
            tokens.read_download(&self.link, &sandbox, now).is_some(),
        ]
    }
}

/// F72: with an overlap all that was signed goes on, open streams too; what is new has the new key.
#[tokio::test]
async fn f72_with_an_overlap_both_keys_are_good_also_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let tokens = open_in(data.path()).await;
    let before = Signed::by(&tokens).await;
    let held = tokens.held(before.token.reveal()).await.unwrap();
    let age = tokens.age_of(&fresh("").sandbox);
    let changed = tokens.change_master(Overlap::Day).await.unwrap();
    assert_eq!(changed.number, 2);
    assert!(changed.previous_until.unwrap() > fresh("").expires_at);
    let after = Signed::by(&tokens).await;
    assert_ne!(before.token.reveal().split('.').next(), after.token.reveal().split('.').next());
    assert!(!held.is_revoked());
    assert_eq!(tokens.age_of(&fresh("").sandbox), age);
    let again = open_in(data.path()).await;
    for tokens in [&tokens, &again] {
        assert_eq!(before.is_good(tokens).await, [true; 4]);
        assert_eq!(after.is_good(tokens).await, [true; 4]);
    }
}

/// F72: when the time of the key before is over, what it has signed is worth nothing.
#[tokio::test]
async fn f72_a_retired_key_verifies_nothing() {
    let data = tempfile::tempdir().unwrap();
    let tokens = open_in(data.path()).await;
    let before = Signed::by(&tokens).await;
    // As if a day had passed since.
    let day = i64::try_from(OVERLAP.as_millis()).unwrap();
    let yesterday = Timestamp::from_millis(clock::timestamp().as_millis() - day);
    let changed = tokens.inner.masters.change(Overlap::Day, yesterday).unwrap();
    assert!(changed.previous_until.unwrap() <= clock::timestamp());
    let after = Signed::by(&tokens).await;
    let again = open_in(data.path()).await;
    for tokens in [&tokens, &again] {
        assert_eq!(before.is_good(tokens).await, [false; 4]);
        assert_eq!(after.is_good(tokens).await, [true; 4]);
    }
}

/// F72: in an emergency nothing of what was signed is good, and whoever streams is told.
#[tokio::test]
async fn f72_without_an_overlap_all_ends_at_once_and_stays_so() {
    let data = tempfile::tempdir().unwrap();
    let tokens = open_in(data.path()).await;
    let first = Signed::by(&tokens).await;
    tokens.change_master(Overlap::Day).await.unwrap();
    let second = Signed::by(&tokens).await;
    let sandbox = fresh("").sandbox;
    let age = tokens.age_of(&sandbox);
    let held = [
        tokens.held(first.token.reveal()).await.unwrap(),
        tokens.held(second.opaque.reveal()).await.unwrap(),
    ];
    let ended = async {
        tokio::join!(
            held[0].until_revoked(),
            held[1].until_revoked(),
            tokens.until_rotated(&sandbox, age),
            async { assert_eq!(tokens.change_master(Overlap::None).await.unwrap().number, 3) },
        );
    };
    tokio::time::timeout(Duration::from_mins(1), ended).await.unwrap();
    let third = Signed::by(&tokens).await;
    let again = open_in(data.path()).await;
    for tokens in [&tokens, &again] {
        assert_eq!(first.is_good(tokens).await, [false; 4]);
        assert_eq!(second.is_good(tokens).await, [false; 4]);
        assert_eq!(third.is_good(tokens).await, [true; 4]);
    }
}

#[tokio::test]
async fn only_so_many_keys_are_good_at_once_and_an_emergency_finds_room() {
    let tokens = Tokens::new(&[7; 32]);
    for number in 2..=u32::try_from(MOST).unwrap() {
        assert_eq!(tokens.change_master(Overlap::Day).await.unwrap().number, number);
    }
    let refused = tokens.change_master(Overlap::Day).await;
    assert!(matches!(refused, Err(ChangeError::TooMany { .. })), "{refused:?}");
    tokens.change_master(Overlap::None).await.unwrap();
    tokens.change_master(Overlap::Day).await.unwrap();
}
