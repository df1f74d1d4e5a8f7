//! Tokens that are genuine, and all kinds that are not.

use model::{
    actor::{Actor, ActorKind},
    capability::Capabilities,
    reach::Reach,
    token::Generation,
    units::Timestamp,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn tokens() -> Tokens {
    Tokens::new(&[7; 32])
}

fn claims() -> Claims {
    Claims {
        id: "tok_1".to_owned(),
        actor: Actor { kind: ActorKind::Human, id: "ada".to_owned() },
        key: "key_1".to_owned(),
        sandbox: SandboxId::from_random([1; 16]),
        capabilities: Capabilities::of_scope("fs:rw shell"),
        reach: Reach::Everywhere,
        thread: None,
        generation: Generation::FIRST,
        issued_at: Timestamp::from_millis(1_800_000_000_000),
        expires_at: Timestamp::from_millis(1_800_000_900_000),
        parents: Vec::new(),
    }
}

/// What another implementation of RFC 2104, 5869 and 7515 makes of these claims and this key.
const KNOWN: &str = concat!(
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6InNiXzAxMDQwZzIwODEwNDBnMjA4MTA0MGcyMDgxLjEi",
    "fQ.",
    "eyJpc3MiOiJyaW5nZmVuY2UiLCJzdWIiOiJodW1hbjphZGEiLCJhdWQiOiJzYl8wMTA0MGcyMDgxMDQwZzIwODEw",
    "NDBnMjA4MSIsInNjb3BlIjoiZnM6cncgc2hlbGwiLCJhY3QiOnsic3ViIjoia2V5XzEifSwiZ2VuIjoxLCJpYXQi",
    "OjE4MDAwMDAwMDAsImV4cCI6MTgwMDAwMDkwMCwianRpIjoidG9rXzEifQ.",
    "jclcx_ig00s49iAAEmn1ut5we536nYbrCrZkvHDLRJ0",
);

/// Signs whatever it is given, as one who has the key of the sandbox.
fn forge(header: &str, payload: &str) -> String {
    let (_, key) = tokens().inner.masters.newest_of(&claims().sandbox, 1);
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let signed = format!("{}.{}", encode(header), encode(payload));
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes())))
}

fn own_header() -> String {
    header::write(&header::key_name(&claims().sandbox, 1, 1))
}

/// Our own claims, one of them changed; none stays if it becomes null.
fn changed(name: &str, value: Value) -> String {
    let mut payload: Value = serde_json::from_slice(&claims::write(&claims()).unwrap()).unwrap();
    let fields = payload.as_object_mut().unwrap();
    fields.remove(name);
    if !value.is_null() {
        fields.insert(name.to_owned(), value);
    }
    forge(&own_header(), &payload.to_string())
}

#[test]
fn a_token_is_what_the_standards_say() {
    assert_eq!(tokens().sign(&claims()).unwrap().reveal(), KNOWN);
    assert_eq!(tokens().read(KNOWN), Ok(claims()));
}

/// J10: to the byte.
#[test]
fn j10_a_token_has_so_many_bytes() {
    let long = |length: usize| changed("thread_id", json!("x".repeat(length)));
    let first = (0..MAX_BYTES).find(|length| long(*length).len() > MAX_BYTES).unwrap();
    let (fits, does_not) = (long(first - 1), long(first));
    assert!(fits.len() + 2 >= does_not.len(), "{} {}", fits.len(), does_not.len());
    assert!(tokens().read(&fits).is_ok());
    assert_eq!(tokens().read(&does_not), Err(NotGenuine::Form));
    // A header of a megabyte is not even looked at.
    let header = own_header().replace("JWT", &"J".repeat(1 << 20));
    assert_eq!(tokens().read(&forge(&header, "{}")), Err(NotGenuine::Form));
}

/// J14: a signature that is wrong at its beginning takes as long as one that is wrong at its end. A difference would be
/// there every time, and noise is not.
#[test]
fn j14_where_a_signature_is_wrong_makes_no_difference() {
    let tokens = tokens();
    let good = KNOWN.rsplit_once('.').unwrap().1;
    let with = |signature: String| format!("{}.{signature}", KNOWN.rsplit_once('.').unwrap().0);
    // Both are what some signature could be.
    let early = with(format!("A{}", good.get(1..).unwrap()));
    let late = with(format!("{}A", good.get(..good.len() - 1).unwrap()));
    let time = |token: &str| {
        let begun = std::time::Instant::now();
        for _ in 0..500 {
            assert_eq!(tokens.read(token), Err(NotGenuine::Signature));
        }
        begun.elapsed().as_secs_f64()
    };
    let median = |_| {
        let mut ratios: Vec<f64> = (0..100).map(|_| time(&early) / time(&late)).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(50).copied().unwrap()
    };
    assert!((0..20).map(median).any(|it| (0.9..1.1).contains(&it)), "they differ every time");
}

#[test]
fn a_token_says_what_was_signed() {
    let full = Claims {
        actor: Actor { kind: ActorKind::Agent, id: "a:b \u{e9}\"".to_owned() },
        thread: Some("thr_1".to_owned()),
        reach: Reach::below(["/workspace/a", "/tmp"]).unwrap(),
        generation: Generation(7),
        parents: vec!["tok_a".to_owned(), "tok_b".to_owned()],
        ..claims()
    };
    let none = Claims { capabilities: Capabilities::NONE, ..claims() };
    for claims in [claims(), full, none] {
        let token = tokens().sign(&claims).unwrap();
        assert_eq!(tokens().read(token.reveal()), Ok(claims));
    }
}

#[test]
fn secrets_are_not_in_debug_texts() {
    let token = tokens().sign(&claims()).unwrap();
    assert_eq!(format!("{token:?} {:?}", tokens()), "Token(…) Tokens(…)");
}

#[test]
fn a_sandbox_has_a_key_of_its_own_in_every_installation() {
    let other = Claims { sandbox: SandboxId::from_random([2; 16]), ..claims() };
    let (ours, theirs) = (tokens().sign(&claims()).unwrap(), tokens().sign(&other).unwrap());
    let (ours, theirs) = (ours.reveal(), theirs.reveal());
    let elsewhere = Tokens::new(&[8; 32]);
    assert_eq!(elsewhere.read(ours), Err(NotGenuine::Signature));
    // The claims of one with the signature of the other, and the header of one with the other's rest.
    let (signed, _) = ours.rsplit_once('.').unwrap();
    let (_, signature) = theirs.rsplit_once('.').unwrap();
    assert_eq!(tokens().read(&format!("{signed}.{signature}")), Err(NotGenuine::Signature));
    let (header, _) = ours.split_once('.').unwrap();
    let (_, rest) = theirs.split_once('.').unwrap();
    assert_eq!(tokens().read(&format!("{header}.{rest}")), Err(NotGenuine::Signature));
    // Whoever has the key of one sandbox cannot speak for another by it.
    assert_eq!(tokens().read(&changed("aud", json!(other.sandbox))), Err(NotGenuine::Claims));
}

#[test]
fn j01_to_j04_whatever_has_not_the_form_of_ours_is_refused_before_anything_is_computed() {
    let (signed, signature) = KNOWN.rsplit_once('.').unwrap();
    let (header, payload) = signed.split_once('.').unwrap();
    let padded = format!("{header}=.{payload}.{signature}");
    let forms = [
        String::new(),
        ".".to_owned(),
        "..".to_owned(),
        "rf_0123456789abcdef".to_owned(),
        signed.to_owned(),
        format!("{signed}."),
        format!("{KNOWN}."),
        format!(".{KNOWN}"),
        format!("{KNOWN}.x"),
        format!("{KNOWN}="),
        format!("{signed}.{signature}A"),
        format!("{header}.x.{payload}.{signature}"),
        format!("{signed}.{}", "!".repeat(SIGNATURE)),
        format!(r#"{{"payload":"{payload}"}}"#),
        "x".repeat(MAX_BYTES + 1),
        format!("{}.{payload}.{signature}", "x".repeat(1 << 20)),
    ];
    for token in forms {
        assert_eq!(tokens().read(&token), Err(NotGenuine::Form), "{token}");
    }
    let payload = String::from_utf8(claims::write(&claims()).unwrap()).unwrap();
    let none = format!("{}.", forge(r#"{"alg":"none"}"#, &payload).rsplit_once('.').unwrap().0);
    assert_eq!(tokens().read(&none), Err(NotGenuine::Form));
    let kid = header::key_name(&claims().sandbox, 1, 1);
    for header in [
        format!(r#"{{"alg":"none","typ":"JWT","kid":"{kid}"}}"#),
        format!(r#"{{"alg":"RS256","typ":"JWT","kid":"{kid}"}}"#),
        format!(r#"{{"alg":"HS256","typ":"JWS","kid":"{kid}"}}"#),
        format!(r#"{{"alg":"HS256","typ":"JWT","kid":"{kid}","jku":"https://x"}}"#),
        r#"{"alg":"HS256","typ":"JWT","kid":"key_1"}"#.to_owned(),
    ] {
        assert_eq!(tokens().read(&forge(&header, &payload)), Err(NotGenuine::Header), "{header}");
    }
    assert_eq!(tokens().read(&padded), Err(NotGenuine::Header));
    for (epoch, master) in [(2, 1), (1, 2)] {
        let later = header::write(&header::key_name(&claims().sandbox, epoch, master));
        assert_eq!(tokens().read(&forge(&later, &payload)), Err(NotGenuine::Key));
    }
}

#[test]
fn j05_to_j10_claims_are_all_there_and_of_their_type() {
    let aud = claims().sandbox.to_string();
    let rows = [
        ("iss", vec![json!(null), json!("other"), json!(""), json!(1)]),
        ("sub", vec![json!(null), json!(""), json!("ada"), json!("human:"), json!("root:ada")]),
        ("aud", vec![json!(null), json!(""), json!(7), json!([aud]), json!([aud, "x"])]),
        ("scope", vec![json!(null), json!(["fs:rw"]), json!(1)]),
        ("act", vec![json!(null), json!("key_1"), json!({}), json!({"sub": ""})]),
        ("gen", vec![json!(null), json!(-1), json!("1"), json!(1.5)]),
        ("iat", vec![json!(null), json!("1800000000"), json!(1.8e9), json!(1e300)]),
        ("exp", vec![json!(null), json!("1800000900"), json!(1.5), json!(u64::MAX), json!([1])]),
        ("jti", vec![json!(null), json!(""), json!(1)]),
        ("paths", vec![json!([]), json!("/"), json!(["a"]), json!(["/a/../b"]), json!([1])]),
        ("thread_id", vec![json!(1)]),
        ("parents", vec![json!("tok_0"), json!([1]), json!(vec!["t"; 9])]),
        // What we do not know might be meant to confine.
        ("nbf", vec![json!(1), json!("1")]),
        ("cnf", vec![json!({})]),
    ];
    for (name, values) in rows {
        for value in values {
            let token = changed(name, value.clone());
            assert_eq!(tokens().read(&token), Err(NotGenuine::Claims), "{name}: {value}");
        }
    }
    let payload = String::from_utf8(claims::write(&claims()).unwrap()).unwrap();
    let twice = payload.replacen('{', r#"{"scope":"fs:ro","#, 1);
    for payload in [twice, format!("{payload} x"), "null".into(), "[]".into(), String::new()] {
        assert_eq!(tokens().read(&forge(&own_header(), &payload)), Err(NotGenuine::Claims));
    }
    // A name that nobody knows grants nothing.
    let odd = tokens().read(&changed("scope", json!("fs:rwx * SHELL"))).unwrap();
    assert!(odd.capabilities.is_empty());
}

#[test]
fn what_does_not_fit_is_not_signed() {
    let long = format!("/{}", "x".repeat(4000));
    let claims = Claims { reach: Reach::below([long.as_str()]).unwrap(), ..claims() };
    assert!(matches!(tokens().sign(&claims), Err(SignError::TooLong)));
}

#[test]
fn keys_are_remembered_within_bounds_and_never_for_strangers() {
    let tokens = tokens();
    let count = || tokens.inner.keys.read().unwrap().len();
    let (signed, _) = KNOWN.rsplit_once('.').unwrap();
    let forged = format!("{signed}.{}", "A".repeat(SIGNATURE));
    assert_eq!(tokens.read(&forged), Err(NotGenuine::Signature));
    assert_eq!(count(), 0);
    for number in 0..=u16::try_from(MAX_KEYS).unwrap() {
        let mut random = [0; 16];
        random[..2].copy_from_slice(&number.to_be_bytes());
        tokens.sign(&Claims { sandbox: SandboxId::from_random(random), ..claims() }).unwrap();
        assert!(count() <= MAX_KEYS);
    }
    assert_eq!(tokens.read(KNOWN), Ok(claims()));
}

/// A store of its own, and tokens that are kept in it.
async fn kept() -> (tempfile::TempDir, Store, Tokens) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("s.db")).unwrap();
    let tokens = Tokens::kept(&[7; 32], store.clone(), Vec::new()).await.unwrap();
    (directory, store, tokens)
}

fn fresh(id: &str) -> Claims {
    let (issued_at, expires_at) = model::token::Lifetime::USUAL.from(clock::timestamp());
    Claims { id: id.to_owned(), issued_at, expires_at, ..claims() }
}

/// What a token is to whoever shows it: nothing, ended, or good.
async fn shown(tokens: &Tokens, token: &Token) -> Option<bool> {
    let held = tokens.held(token.reveal()).await.ok()?;
    Some(!held.is_revoked())
}

#[tokio::test]
async fn what_has_ended_stays_so_after_a_restart() {
    let (directory, store, tokens) = kept().await;
    let other = Claims { sandbox: SandboxId::from_random([2; 16]), ..fresh("tok_other") };
    let (one, two) = (tokens.sign(&fresh("tok_1")).unwrap(), tokens.sign(&other).unwrap());
    let opaque = [fresh("tok_3"), fresh("tok_4")];
    let opaque = [tokens.keep(&opaque[0]).await.unwrap(), tokens.keep(&opaque[1]).await.unwrap()];
    tokens.revoke(&claims().sandbox, "tok_1").await.unwrap();
    tokens.revoke(&claims().sandbox, "tok_3").await.unwrap();
    tokens.rotate(&other.sandbox).await.unwrap();
    let three = tokens.sign(&other).unwrap();
    let expected = [Some(false), None, Some(true), Some(false), Some(true)];
    let all = [&one, &two, &three, &opaque[0], &opaque[1]];
    store.close().await;
    let store = Store::open(&directory.path().join("s.db")).unwrap();
    let again = Tokens::kept(&[7; 32], store.clone(), Vec::new()).await.unwrap();
    for tokens in [&tokens, &again] {
        for (token, expected) in all.iter().zip(expected) {
            assert_eq!(shown(tokens, token).await, expected);
        }
    }
    // Another key ends them all, also those whose text was seen here before.
    again.rotate(&claims().sandbox).await.unwrap();
    assert_eq!(shown(&again, &opaque[1]).await, Some(false));
    store.close().await;
    let store = Store::open(&directory.path().join("s.db")).unwrap();
    let last = Tokens::kept(&[7; 32], store, Vec::new()).await.unwrap();
    assert_eq!(shown(&last, &opaque[1]).await, None);
}

#[tokio::test]
async fn what_one_server_ends_ends_at_the_others_that_share_its_store() {
    let (_directory, store, tokens) = kept().await;
    let other = Tokens::kept(&[7; 32], store, Vec::new()).await.unwrap();
    let (one, two) = (other.sign(&fresh("tok_1")).unwrap(), other.sign(&fresh("tok_2")).unwrap());
    let (one, two) =
        (other.held(one.reveal()).await.unwrap(), other.held(two.reveal()).await.unwrap());
    let opaque = tokens.keep(&fresh("tok_3")).await.unwrap();
    let opaque = other.held(opaque.reveal()).await.unwrap();
    let ends = async {
        tokens.revoke(&claims().sandbox, "tok_1").await.unwrap();
        one.until_revoked().await;
        assert!(!two.is_revoked() && !opaque.is_revoked());
        tokens.rotate(&claims().sandbox).await.unwrap();
        tokio::join!(two.until_revoked(), opaque.until_revoked());
    };
    let patience = std::time::Duration::from_mins(1);
    tokio::select! {
        ended = tokio::time::timeout(patience, ends) => ended.unwrap(),
        () = other.follow() => panic!("it follows no more"),
    }
}

#[tokio::test]
async fn streams_of_a_token_that_is_replaced_go_on_with_the_next() {
    let (_directory, _store, tokens) = kept().await;
    let text = tokens.sign(&fresh("tok_1")).unwrap();
    let held = tokens.held(text.reveal()).await.unwrap();
    let minute = std::time::Duration::from_mins(1);
    let later = |id: &str, seconds: i64| {
        let end = fresh(id).expires_at.as_millis() + seconds * 1000;
        Claims { expires_at: Timestamp::from_millis(end), ..fresh(id) }
    };
    let (second, third) = (later("tok_2", 100), later("tok_3", 200));
    let pending = async |held: &Held| {
        let brief = std::time::Duration::from_millis(50);
        tokio::time::timeout(brief, held.until_revoked()).await.is_err()
    };
    tokens.revoke_after(&fresh("tok_1"), &second, minute).await.unwrap();
    tokens.revoke_after(&second, &third, minute).await.unwrap();
    assert!(pending(&held).await);
    assert_eq!(held.expires_at(), third.expires_at);
    // For requests the first is good for that minute, and not from the first moment after it.
    assert_eq!(shown(&tokens, &text).await, Some(true));
    tokens.revoke_after(&fresh("tok_1"), &second, std::time::Duration::ZERO).await.unwrap();
    assert_eq!(shown(&tokens, &text).await, Some(false));
    assert!(pending(&held).await);
    tokens.revoke(&claims().sandbox, "tok_3").await.unwrap();
    held.until_revoked().await;
    // Who gets less than he had has streams that end with the token they were opened with.
    let text = tokens.sign(&fresh("tok_5")).unwrap();
    let held = tokens.held(text.reveal()).await.unwrap();
    let less = Claims { capabilities: Capabilities::of_scope("fs:ro"), ..later("tok_6", 100) };
    tokens.revoke_after(&fresh("tok_5"), &less, std::time::Duration::ZERO).await.unwrap();
    held.until_revoked().await;
    // And so do those of whoever made his token of the one that is replaced.
    let child = Claims { parents: vec!["tok_7".to_owned()], ..fresh("tok_8") };
    let text = tokens.sign(&child).unwrap();
    let held = tokens.held(text.reveal()).await.unwrap();
    tokens.revoke_after(&fresh("tok_7"), &third, std::time::Duration::ZERO).await.unwrap();
    held.until_revoked().await;
}

#[tokio::test]
async fn all_tokens_of_an_actor_end_and_the_next_is_good() {
    let (_directory, _store, tokens) = kept().await;
    let ada = claims().actor;
    let bob = Actor { id: "bob".to_owned(), ..ada.clone() };
    let bobs = Claims { actor: bob.clone(), ..fresh("tok_2") };
    let (hers, his) = (tokens.sign(&fresh("tok_1")).unwrap(), tokens.sign(&bobs).unwrap());
    tokens.revoke_actor(&claims().sandbox, &ada).await.unwrap();
    assert_eq!(shown(&tokens, &hers).await, Some(false));
    assert_eq!(shown(&tokens, &his).await, Some(true));
    let (issued_at, expires_at) =
        model::token::Lifetime::USUAL.from(tokens.date(&claims().sandbox, &ada).await);
    let next = Claims { issued_at, expires_at, ..claims() };
    let next_text = tokens.sign(&next).unwrap();
    assert_eq!(shown(&tokens, &next_text).await, Some(true));
    let now = clock::timestamp();
    assert_eq!(next.check(now, &claims().sandbox, Generation::FIRST), Ok(()));
}

#[tokio::test]
async fn a_text_that_was_never_given_out_is_not_looked_for() {
    let (_directory, store, tokens) = kept().await;
    let text = tokens.keep(&fresh("tok_1")).await.unwrap().reveal().to_owned();
    let elsewhere = Tokens::kept(&[8; 32], store.clone(), Vec::new()).await.unwrap();
    // With a store that is closed, whoever looks is told so.
    store.close().await;
    let sealed = elsewhere.held(&text).await;
    assert!(matches!(sealed, Err(FindError::NotGenuine(NotGenuine::Signature))), "{sealed:?}");
    for bad in
        ["rfo_", "rfo_x", "rfo_ ", &text.replace("rfo_", "rfo_A"), &format!("{text}A"), "rf_x"]
    {
        assert!(matches!(tokens.held(bad).await, Err(FindError::NotGenuine(_))), "{bad}");
    }
    // What was seen here is known without the store.
    assert_eq!(tokens.held(&text).await.unwrap().claims().id, "tok_1");
    assert!(Tokens::new(&[7; 32]).held(&text).await.is_err());
}

proptest! {
    #[test]
    fn a_token_with_any_bit_flipped_is_refused(place in 0..KNOWN.len(), bit in 0_u8..7) {
        let mut bytes = KNOWN.as_bytes().to_vec();
        bytes[place] ^= 1 << bit;
        let text = String::from_utf8(bytes).unwrap();
        prop_assert!(tokens().read(&text).is_err(), "{}", text);
    }

    #[test]
    fn a_token_with_something_cut_out_or_put_in_is_refused(
        from in 0..KNOWN.len(), length in 0..9_usize, put in "[A-Za-z0-9_.=-]{0,8}",
    ) {
        let end = (from + length).min(KNOWN.len());
        let cut = KNOWN.get(from..end).unwrap();
        prop_assume!(cut != put);
        let (before, after) = (KNOWN.get(..from).unwrap(), KNOWN.get(end..).unwrap());
        let text = format!("{before}{put}{after}");
        prop_assume!(text != KNOWN);
        prop_assert!(tokens().read(&text).is_err(), "{}", text);
    }

    #[test]
    fn random_texts_are_no_tokens(text in ".{0,300}", dots in "[A-Za-z0-9_-]{0,90}[.][A-Za-z0-9_-]{0,90}[.][A-Za-z0-9_-]{43}") {
        prop_assert!(tokens().read(&text).is_err());
        prop_assert!(tokens().read(&dots).is_err());
    }
}

/// What was granted with a key ends with it: here, at others, and after a restart.
#[tokio::test]
async fn tokens_of_a_revoked_key_stay_ended_after_a_restart() {
    let (directory, store, tokens) = kept().await;
    let keyring = crate::auth::Keyring::open(store.clone()).await.unwrap();
    let other = Tokens::kept(&[7; 32], store.clone(), Vec::new()).await.unwrap();
    let new = crate::keys::NewKey::named("ci", store::keys::Role::User).unwrap();
    let secret = crate::keys::Secret::random().unwrap();
    let key = keyring.create(new, &secret).await.unwrap().id;
    let of_key = |id: &str| Claims { key: key.0.clone(), ..fresh(id) };
    let signed = tokens.sign(&of_key("tok_1")).unwrap();
    let opaque = tokens.keep(&of_key("tok_2")).await.unwrap();
    let spared = tokens.sign(&fresh("tok_3")).unwrap();
    let held = other.held(signed.reveal()).await.unwrap();
    let heard = async {
        keyring.revoke(key.clone()).await.unwrap();
        held.until_revoked().await;
    };
    let patience = std::time::Duration::from_mins(1);
    tokio::select! {
        heard = tokio::time::timeout(patience, heard) => heard.unwrap(),
        () = other.follow() => panic!("it follows no more"),
    }
    tokens.end_key(&key.0);
    let rows = [(&signed, false), (&opaque, false), (&spared, true)];
    let all_are_as_expected = async |tokens: &Tokens| {
        for (token, expected) in rows {
            assert_eq!(shown(tokens, token).await, Some(expected));
        }
    };
    all_are_as_expected(&tokens).await;
    all_are_as_expected(&other).await;
    store.close().await;
    let store = Store::open(&directory.path().join("s.db")).unwrap();
    all_are_as_expected(&Tokens::kept(&[7; 32], store, Vec::new()).await.unwrap()).await;
    // Who asked for one while the key was being revoked gets nothing of it.
    let late = tokens.sign(&of_key("tok_4")).unwrap();
    assert_eq!(shown(&tokens, &late).await, Some(false));
}
