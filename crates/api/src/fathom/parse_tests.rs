//! Rows W04 to W12 of the bad-input table, as data, and random frames.

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;
use crate::fathom::{AskedLimits, Execute, Freshness, fuzz_one};

const TS: &str = "2025-12-27T11:30:00.000Z";

fn execute() -> Json {
    json!({
        "v": 1, "type": "execute", "id": "exec_1", "ts": TS, "language": "python",
        "code": "print(1)", "limits": {"timeout_ms": 1000, "memory_mb": 64},
    })
}

/// Returns the valid `execute` with one field set.
fn with(field: &str, value: impl Into<Json>) -> String {
    let mut frame = execute();
    frame[field] = value.into();
    frame.to_string()
}

/// Returns the valid `execute` without one field.
fn without(field: &str) -> String {
    let mut frame = execute();
    frame.as_object_mut().unwrap().remove(field);
    frame.to_string()
}

fn with_limit(field: &str, value: impl Into<Json>) -> String {
    let mut frame = execute();
    frame["limits"][field] = value.into();
    frame.to_string()
}

fn with_env(key: &str, value: impl Into<Json>) -> String {
    with("env", json!({ key: value.into() }))
}

/// Returns code, part and id of the refusal.
fn refusal(text: &str) -> (ErrorCode, Part, Option<String>) {
    let shown: String = text.chars().take(200).collect();
    let refused = parse(text).expect_err(&shown);
    (refused.code, refused.part, refused.id)
}

fn refuses(part: Part, rows: &[String]) {
    for text in rows {
        let (code, found, _) = refusal(text);
        let shown: String = text.chars().take(200).collect();
        assert_eq!((code, found), (ErrorCode::InvalidRequest, part), "{shown}");
    }
}

fn accepts(rows: &[String]) {
    for text in rows {
        let shown: String = text.chars().take(200).collect();
        assert!(parse(text).is_ok(), "{shown}: {:?}", parse(text).err());
    }
}

#[test]
fn a_full_execute_is_read_field_by_field() {
    let text = json!({
        "v": 1, "type": "execute", "id": "exec_a1b2c3d4", "ts": TS, "language": "shell",
        "code": "a\u{0}b\r\nü", "stdin": "in", "env": {"LD_PRELOAD": "x", "A": ""},
        "limits": {"timeout_ms": 1, "memory_mb": 2, "cpu_shares": 3, "max_output_bytes": 4,
            "processes": 5, "disk_mb": 6, "inodes": 7},
        "freshness": "strict", "posture": true, "network": "none", "new_in_v1_7": {"a": [1, {}]},
    });
    let expected = Execute {
        v: 1,
        id: "exec_a1b2c3d4".into(),
        ts: TS.into(),
        language: "shell".into(),
        code: "a\0b\r\nü".into(),
        stdin: Some("in".into()),
        env: vec![("A".into(), String::new()), ("LD_PRELOAD".into(), "x".into())],
        limits: AskedLimits {
            timeout_ms: 1,
            memory_mb: 2,
            cpu_shares: Some(3),
            max_output_bytes: Some(4),
            processes: Some(5),
            disk_mb: Some(6),
            inodes: Some(7),
        },
        freshness: Freshness::Strict,
        posture: true,
    };
    assert_eq!(parse(&text.to_string()), Ok(ClientFrame::Execute(expected)));
}

#[test]
fn w04_the_version_is_the_integer_one() {
    refuses(
        Part::Envelope,
        &[
            without("v"),
            with("v", "1"),
            with("v", 1.0),
            with("v", 2),
            with("v", -1),
            with("v", Json::Null),
            with("v", true),
            execute().to_string().replace("\"v\":1", "\"v\":1e0"),
        ],
    );
    let refused = parse(&with("v", 2)).unwrap_err();
    assert_eq!(
        refused.message,
        "protocol version 2 is not supported; this server speaks version 1"
    );
    assert_eq!(refused.id.as_deref(), Some("exec_1"));
}

#[test]
fn w05_the_type_is_one_that_clients_send() {
    refuses(
        Part::Envelope,
        &[
            without("type"),
            with("type", "explode"),
            with("type", "ack"),
            with("type", "Execute"),
            with("type", 7),
        ],
    );
}

#[test]
fn w06_an_id_is_1_to_128_printable_characters() {
    let invisible =
        ["a\n", "\u{0}", "\u{7f}", "\u{85}", "a\u{202e}b", "\u{2028}", "\u{200b}", "\u{feff}"];
    let bad = [json!(""), json!("x".repeat(129)), json!("ä".repeat(129)), json!(7)];
    for id in bad.into_iter().chain(invisible.map(Json::from)) {
        assert_eq!(refusal(&with("id", id)), (ErrorCode::InvalidRequest, Part::Envelope, None));
    }
    refuses(Part::Envelope, &[without("id")]);
    let good = [
        "A-z_09",
        "a b",
        "run.1:2/3",
        "ä",
        "\"",
        "日本語",
        "🦀",
        &"x".repeat(128),
        &"€".repeat(128),
    ];
    for id in good {
        accepts(&[with("id", id)]);
        // A mistake elsewhere is answered by the same id.
        let text = with("id", id).replace("print(1)", r"\ud800");
        assert_eq!(refusal(&text).2.as_deref(), Some(id));
    }
}

#[test]
fn w07_a_timestamp_has_a_shape_and_no_meaning() {
    refuses(Part::Envelope, &[without("ts"), with("ts", "now"), with("ts", 1_766_835_000)]);
    accepts(&[
        with("ts", "100000-01-01T00:00:00.000Z"),
        with("ts", "9999-12-31T23:59:60.000Z"),
        with("ts", "2025-12-27T11:30:00Z"),
    ]);
}

#[test]
fn w08_a_language_that_is_no_string_is_an_invalid_request() {
    for language in [json!(["python"]), json!(1), json!(null), json!({})] {
        assert_eq!(
            refusal(&with("language", language)),
            (ErrorCode::InvalidRequest, Part::Request, Some("exec_1".into()))
        );
    }
    refuses(Part::Request, &[without("language")]);
}

#[test]
fn w09_code_is_a_string_of_bounded_size() {
    refuses(
        Part::Request,
        &[
            without("code"),
            with("code", Json::Null),
            with("code", 1),
            with("code", "x".repeat(MAX_CODE + 1)),
            with("code", "é".repeat(MAX_CODE / 2) + "x"),
        ],
    );
    accepts(&[
        with("code", ""),
        with("code", "x".repeat(MAX_CODE)),
        with("code", "\u{0}\u{feff}\r\n"),
    ]);
}

const MAX_CODE: usize = crate::fathom::MAX_CODE_BYTES;

#[test]
fn w09_a_lone_surrogate_is_refused_and_the_id_is_still_told() {
    let text = execute().to_string().replace("print(1)", r"\ud800");
    assert_eq!(refusal(&text), (ErrorCode::InvalidRequest, Part::Envelope, Some("exec_1".into())));
    let whole = execute().to_string().replace("print(1)", r"\ud83d\ude00");
    accepts(&[whole]);
}

#[test]
fn w10_env_is_bounded_and_cannot_touch_our_own_names() {
    let many = |count: usize| {
        let env: serde_json::Map<_, _> = (0..count).map(|i| (format!("K{i}"), "".into())).collect();
        with("env", env)
    };
    refuses(
        Part::Request,
        &[
            with_env("A=B", "x"),
            with_env("A\u{0}", "x"),
            with_env("", "x"),
            with_env("A", "x\u{0}"),
            with_env("A", 1),
            with_env("A", Json::Null),
            with_env("RINGFENCE_KEY", "x"),
            with_env(&"k".repeat(257), "x"),
            with_env("A", "x".repeat((32 << 10) + 1)),
            with("env", json!(["A=B"])),
            with("env", "A=B"),
            many(257),
        ],
    );
    let large: serde_json::Map<_, _> =
        (0..5).map(|i| (format!("K{i}"), "x".repeat(27 << 10).into())).collect();
    refuses(Part::Request, &[with("env", large)]);
    refuses(Part::Envelope, &[many(100_000)]);
    accepts(&[
        with_env("LD_PRELOAD", "x"),
        with_env("PATH", "x"),
        with_env("BASH_ENV", "x"),
        with_env("PYTHONSTARTUP", "x"),
        with_env("1A", "x"),
        with("env", Json::Null),
        many(256),
    ]);
}

#[test]
fn w11_limits_are_integers_and_nothing_else() {
    refuses(
        Part::Request,
        &[
            without("limits"),
            with("limits", Json::Null),
            with("limits", json!([])),
            with("limits", json!({"timeout_ms": 1})),
            with("limits", json!({"memory_mb": 1})),
            with_limit("timeout_ms", -1),
            with_limit("timeout_ms", 1.5),
            with_limit("timeout_ms", "1000"),
            with_limit("timeout_ms", Json::Null),
            with_limit("memory_mb", 1e300),
            with_limit("memory_mb", json!({})),
            with_limit("cpu_shares", -1),
            with_limit("max_output_bytes", "1"),
            with_limit("max_processes", 1),
            execute().to_string().replace("1000", "99999999999999999999999"),
        ],
    );
    accepts(&[
        with_limit("cpu_shares", Json::Null),
        with_limit("memory_mb", 1_u64 << 54),
        with_limit("timeout_ms", 0),
    ]);
}

#[test]
fn w12_stdin_is_a_string_of_bounded_size() {
    refuses(
        Part::Request,
        &[with("stdin", 1), with("stdin", json!([])), with("stdin", "x".repeat((1 << 20) + 1))],
    );
    accepts(&[with("stdin", Json::Null), with("stdin", ""), with("stdin", "x".repeat(1 << 20))]);
}

#[test]
fn asking_for_a_network_is_a_network_error() {
    for network in [json!("host"), json!(true), json!({"allow": ["*"]}), json!(1)] {
        assert_eq!(
            refusal(&with("network", network)),
            (ErrorCode::NetworkError, Part::Request, Some("exec_1".into()))
        );
    }
    accepts(&[with("network", Json::Null), with("network", false), with("network", "none")]);
}

#[test]
fn posture_is_asked_for_or_not() {
    refuses(Part::Request, &[with("posture", "yes"), with("posture", 1)]);
    accepts(&[with("posture", true), with("posture", false), with("posture", Json::Null)]);
}

#[test]
fn freshness_is_one_of_two_words() {
    refuses(Part::Request, &[with("freshness", "new"), with("freshness", 1)]);
    accepts(&[with("freshness", "shared"), with("freshness", "strict")]);
}

#[test]
fn what_is_not_one_json_object_is_refused() {
    let deep = |levels: usize| {
        let nested = "[".repeat(levels) + &"]".repeat(levels);
        execute().to_string().replacen('{', &format!("{{\"x\":{nested},"), 1)
    };
    let valid = execute().to_string();
    refuses(
        Part::Envelope,
        &[
            String::new(),
            "null".into(),
            "[]".into(),
            "7".into(),
            "\u{feff}".to_owned() + &valid,
            valid.clone() + "x",
            valid.clone() + &valid,
            valid.replacen('{', "{\"v\":1,", 1),
            valid.replacen('{', "{\"x\":1,\"x\":2,", 1),
            valid.replacen('{', "{\"x\":{\"y\":1,\"y\":2},", 1),
            valid.replace("\"memory_mb\":64", "\"memory_mb\":64,\"memory_mb\":65"),
            deep(64),
            deep(100_000),
        ],
    );
    accepts(&[deep(63), valid + " \n"]);
}

#[test]
fn cancel_wants_an_id_and_ping_does_not() {
    let cancel = json!({"v": 1, "type": "cancel", "id": "a", "ts": TS});
    let expected = Cancel { v: 1, id: "a".into(), ts: TS.into() };
    assert_eq!(parse(&cancel.to_string()), Ok(ClientFrame::Cancel(expected)));
    refuses(Part::Envelope, &[json!({"v": 1, "type": "cancel", "ts": TS}).to_string()]);
    let ping = json!({"v": 1, "type": "ping", "ts": TS, "id": 7, "x": []});
    let expected = Ping { v: 1, ts: TS.into() };
    assert_eq!(parse(&ping.to_string()), Ok(ClientFrame::Ping(expected)));
}

#[test]
fn a_refusal_does_not_repeat_what_the_client_sent() {
    let rows = [
        with("code", json!({"canary": 1})),
        with_env("canary", 1),
        with_env("canary=", "canary"),
        with_limit("canary", 1),
        with("canary", "x").replace("\"v\":1", "\"v\":1,\"canary\":2"),
        with("type", "canary"),
        with("ts", "canary"),
        "canary".into(),
        execute().to_string().replace("print(1)", r"canary\ud800"),
    ];
    for text in rows {
        let message = parse(&text).unwrap_err().message;
        assert!(!message.contains("canary"), "{message}");
    }
}

#[test]
fn debug_text_of_an_execute_hides_code_env_and_stdin() {
    let mut frame = execute();
    frame["code"] = "canary".into();
    frame["stdin"] = "canary".into();
    frame["env"] = json!({"canary": "canary"});
    let text = format!("{:?}", parse(&frame.to_string()).unwrap());
    assert!(text.contains("exec_1") && !text.contains("canary"), "{text}");
}

/// Valid frames to start mutations from.
fn corpus() -> Vec<String> {
    vec![
        execute().to_string(),
        with("env", json!({"A": "b", "C": "\u{1F600}"})),
        with_limit("max_output_bytes", 5),
        with("stdin", "line\n"),
        with("freshness", "strict"),
        json!({"v": 1, "type": "cancel", "id": "a", "ts": TS}).to_string(),
        json!({"v": 1, "type": "ping", "ts": TS}).to_string(),
        json!({"v": 1, "type": "ping", "ts": TS, "x": [[[{"y": null}]], 1.5e3, "\\"]}).to_string(),
    ]
}

/// Pieces of JSON that parsers trip over.
const PIECES: [&str; 20] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    "\\u",
    "\\ud800",
    ":",
    ",",
    "null",
    "1e999",
    "-0",
    "\u{0}",
    "\u{7f}",
    "\"v\":1,",
    "\u{10ffff}",
    "99999999999999999999",
    "\"id\":",
    " ",
];

#[derive(Clone, Debug)]
enum Mutation {
    Insert(prop::sample::Index, usize),
    Delete(prop::sample::Index, usize),
    Flip(prop::sample::Index, u8),
    Repeat(prop::sample::Index, usize),
}

fn mutate(mut bytes: Vec<u8>, mutations: &[Mutation]) -> Vec<u8> {
    for mutation in mutations {
        let length = bytes.len().max(1);
        match mutation {
            Mutation::Insert(at, piece) => {
                let at = at.index(length).min(bytes.len());
                bytes.splice(at..at, PIECES[piece % PIECES.len()].bytes());
            }
            Mutation::Delete(at, count) => {
                let at = at.index(length).min(bytes.len());
                let end = (at + count).min(bytes.len());
                bytes.drain(at..end);
            }
            Mutation::Flip(at, bit) => {
                if let Some(byte) = bytes.get_mut(at.index(length)) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Mutation::Repeat(at, count) => {
                let at = at.index(length).min(bytes.len());
                let end = (at + count).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        (at(), 0..PIECES.len()).prop_map(|(at, piece)| Mutation::Insert(at, piece)),
        (at(), 1..20_usize).prop_map(|(at, count)| Mutation::Delete(at, count)),
        (at(), 0..8_u8).prop_map(|(at, bit)| Mutation::Flip(at, bit)),
        (at(), 1..60_usize).prop_map(|(at, count)| Mutation::Repeat(at, count)),
    ]
}

proptest! {
    // A fixed seed: the same frames each time, so that a red run can be repeated.
    #![proptest_config(ProptestConfig {
        cases: 4000,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn mutated_frames_never_panic_the_parser(
        start in 0..8_usize,
        mutations in prop::collection::vec(mutation(), 0..6),
    ) {
        fuzz_one(&mutate(corpus()[start].clone().into_bytes(), &mutations));
    }

    #[test]
    fn random_bytes_never_panic_the_parser(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzz_one(&bytes);
    }

    #[test]
    fn what_is_written_is_read_back(code in ".*", key in "[A-Z]{1,9}", value in "[^\u{0}]*") {
        let mut frame = execute();
        frame["code"] = code.into();
        frame["env"] = json!({ key: value });
        fuzz_one(frame.to_string().as_bytes());
        prop_assert!(parse(&frame.to_string()).is_ok());
    }
}
