use proptest::prelude::*;
use prost_types::Duration;

use super::*;

fn refused(text: &str) -> String {
    read(text.as_bytes()).unwrap_err().to_string()
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn every_key_is_read() {
    let text = r#"
image: host
mounts:
  - {source: ~/work, target: /work, writable: true}
  - {source: /etc/ssl, target: "~/ssl"}
copies:
  - source: /src
    target: /dst
    exclude_patterns: ["*.pyc", node_modules]
ports:
  - {container_port: 80, host_port: 8080}
  - {container_port: 53, host_port: 5353, protocol: UDP}
builtin_tools: [git, uv]
companion_containers:
  zeta:
    image: redis
  alpha:
    image: postgres
    envs: {POSTGRES_PASSWORD: 1234}
    healthcheck:
      test: [CMD, pg_isready]
      interval: 1m30s
      timeout: 500ms
      retries: 3
      start_period: 5s
      start_interval: 1s
    post_start_on_primary: [echo, up]
    command: [postgres, -c, fsync=off]
    cpu_limit: "0.5"
    memory_limit: 256m
    disk_limit: 1g
labels: {team: a, number: 7}
envs: {DEBUG: true, PORT: 8080, EMPTY: , NAME: "x"}
idle_ttl: 0
command: [sleep, infinity]
cpu_limit: 2
memory_limit: 4g
disk_limit: 10g
gpus: ""
"#;
    let healthcheck = v1::HealthcheckConfig {
        test: vec!["CMD".into(), "pg_isready".into()],
        interval: Some(Duration { seconds: 90, nanos: 0 }),
        timeout: Some(Duration { seconds: 0, nanos: 500_000_000 }),
        retries: 3,
        start_period: Some(Duration { seconds: 5, nanos: 0 }),
        start_interval: Some(Duration { seconds: 1, nanos: 0 }),
    };
    let alpha = v1::CompanionContainerSpec {
        name: "alpha".into(),
        image: "postgres".into(),
        envs: map(&[("POSTGRES_PASSWORD", "1234")]),
        healthcheck: Some(healthcheck),
        post_start_on_primary: vec!["echo".into(), "up".into()],
        command: vec!["postgres".into(), "-c".into(), "fsync=off".into()],
        cpu_limit: "0.5".into(),
        memory_limit: "256m".into(),
        disk_limit: "1g".into(),
    };
    let zeta = v1::CompanionContainerSpec {
        name: "zeta".into(),
        image: "redis".into(),
        ..v1::CompanionContainerSpec::default()
    };
    let mount = |source: &str, target: &str, writable| v1::MountSpec {
        source: source.into(),
        target: target.into(),
        writable,
    };
    let port = |container_port, host_port, protocol: v1::PortProtocol| v1::PortMapping {
        container_port,
        host_port,
        protocol: protocol.into(),
    };
    let expected = v1::CreateSpec {
        image: "host".into(),
        mounts: vec![mount("~/work", "/work", true), mount("/etc/ssl", "~/ssl", false)],
        copies: vec![v1::CopySpec {
            source: "/src".into(),
            target: "/dst".into(),
            exclude_patterns: vec!["*.pyc".into(), "node_modules".into()],
        }],
        builtin_tools: vec!["git".into(), "uv".into()],
        companion_containers: vec![alpha, zeta],
        labels: map(&[("team", "a"), ("number", "7")]),
        envs: map(&[("DEBUG", "true"), ("PORT", "8080"), ("EMPTY", ""), ("NAME", "x")]),
        idle_ttl: Some(Duration { seconds: 0, nanos: 0 }),
        ports: vec![port(80, 8080, v1::PortProtocol::Tcp), port(53, 5353, v1::PortProtocol::Udp)],
        command: vec!["sleep".into(), "infinity".into()],
        cpu_limit: "2".into(),
        memory_limit: "4g".into(),
        disk_limit: "10g".into(),
        gpus: String::new(),
    };
    let spec = read(text.as_bytes()).unwrap();
    assert!(spec == expected, "{:?}", spec.companion_containers == expected.companion_containers);
}

#[test]
fn nothing_and_keys_without_a_value_are_an_empty_configuration() {
    for text in
        ["", "\n", "# only a comment\n", "---\n", "{}", "image:\nmounts:\nenvs:\ncommand:\n"]
    {
        assert!(read(text.as_bytes()).unwrap() == v1::CreateSpec::default(), "{text:?}");
    }
}

#[test]
fn mistakes_are_refused_with_their_place() {
    let rows = [
        ("imagee: x", "unknown key \"imagee\""),
        ("mounts: [{src: /a}]", "unknown key \"src\""),
        ("companion_containers: {a: {imag: x}}", "unknown key \"imag\""),
        ("image: a\nimage: b", "the key \"image\" is there twice (line 2"),
        ("envs: {A: 1, A: 2}", "the key \"A\" is there twice"),
        ("command: []", "config_yaml.command: must not be empty"),
        (
            "companion_containers: {a: {command: []}}",
            "config_yaml.companion_containers.a.command: must not be empty",
        ),
        ("idle_ttl: 10", "config_yaml.idle_ttl: must be a duration"),
        ("idle_ttl: soon", "config_yaml.idle_ttl: must be a duration"),
        ("ports: [{protocol: icmp}]", "config_yaml.ports[0].protocol: must be tcp, udp or sctp"),
        (
            "companion_containers: {a: {healthcheck: {interval: 5}}}",
            "config_yaml.companion_containers.a.healthcheck.interval: must be a duration",
        ),
        ("ports: [{host_port: many}]", "config_yaml: "),
        ("image: [a", "config_yaml: "),
        ("- a\n- b", "config_yaml: "),
        ("text", "config_yaml: "),
        ("image: a\n---\nimage: b", "config_yaml: must be one document"),
        ("image: a\n---\nimage: b\n---\nimage: c", "config_yaml: must be one document"),
        ("image: *missing", "config_yaml: "),
    ];
    for (text, expected) in rows {
        let problem = refused(text);
        assert!(problem.contains(expected), "{text:?} was refused with {problem:?}");
    }
    assert!(read(b"image: \xff").is_err());
}

#[test]
fn a_message_never_repeats_a_value() {
    for text in [
        "ports: [{host_port: hunter2}]",
        "mounts: hunter2",
        "idle_ttl: hunter2",
        "envs: [hunter2]",
        "envs: hunter2",
        "labels: {a: [hunter2]}",
        "image: \"hunter2",
        "envs: {A: !!binary hunter2}",
        "hunter2",
    ] {
        let problem = refused(text);
        assert!(!problem.contains("hunter2"), "{text:?} was refused with {problem:?}");
    }
}

#[test]
fn small_texts_that_make_much_of_themselves_are_refused() {
    let words = "x, ".repeat(10_000);
    let again: String = (0..900).map(|number| format!("  c{number}: *a\n")).collect();
    let copies = format!("companion_containers:\n  a: &a {{command: [{words}]}}\n{again}");
    let pair = |level: usize| format!("m{level}: &m{level} {{<<: [*m{0}, *m{0}]}}\n", level - 1);
    let merges: String = (1..200).map(pair).collect();
    let merges = format!("envs: &m0 {{A: b}}\n{merges}");
    let deep = format!("image: {}{}", "[".repeat(10_000), "]".repeat(10_000));
    let deep_blocks: String = (0..5000).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
    let large = format!("image: \"{}\"", "x".repeat(MAX_CONFIG_BYTES));
    assert!(refused(&copies).contains("too deep, too large or refers to itself too often"));
    for text in [copies, merges, deep, deep_blocks, large] {
        assert!(read(text.as_bytes()).is_err());
    }
}

proptest! {
    #[test]
    fn any_bytes_at_all_are_read_or_refused(bytes: Vec<u8>, text in "[a-z:{}\\[\\]&*!\\-\n ,\"]{0,60}") {
        let _ = read(&bytes);
        let _ = read(text.as_bytes());
    }
}
