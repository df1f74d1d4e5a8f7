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
    let key = tokens().derive(&claims().sandbox, 1);
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let signed = format!("{}.{}", encode(header), encode(payload));
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes())))
}

fn own_header() -> String {
    header::write(&header::key_name(&claims().sandbox, 1))
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

#[test]
fn a_token_says_what_was_signed() {
    let full = Claims {
        actor: Actor { kind: ActorKind::Agent, id: "a:b \u{e9}\"".to_owned() },
        thread: Some("thr_1".to_owned()),
        reach: Reach::below(["/workspace/a", "/tmp"]).unwrap(),
        generation: Generation(7),
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
    let kid = header::key_name(&claims().sandbox, 1);
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
    let later = header::write(&header::key_name(&claims().sandbox, 2));
    assert_eq!(tokens().read(&forge(&later, &payload)), Err(NotGenuine::Key));
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
