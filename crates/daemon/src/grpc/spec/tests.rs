use model::spec::{Access, Companion, Healthcheck};
use proptest::prelude::*;
use prost_types::Duration as Time;

use super::*;

fn local() -> Origin {
    Origin { home: Some("/home/me".into()), host_paths: HostPaths::Any }
}

fn remote(prefixes: &[&str]) -> Origin {
    let prefixes = prefixes.iter().map(Into::into).collect();
    Origin { home: None, host_paths: HostPaths::Below(prefixes) }
}

fn spec() -> v1::CreateSpec {
    v1::CreateSpec { image: "host".into(), ..v1::CreateSpec::default() }
}

fn mount(source: &str, target: &str) -> v1::MountSpec {
    v1::MountSpec { source: source.into(), target: target.into(), writable: false }
}

fn copy(source: &str, target: &str) -> v1::CopySpec {
    let (source, target) = (source.into(), target.into());
    v1::CopySpec { source, target, exclude_patterns: vec!["*.o".into()] }
}

fn port(container_port: u32, host_port: u32, protocol: i32) -> v1::PortMapping {
    v1::PortMapping { container_port, host_port, protocol }
}

fn companion(name: &str) -> v1::CompanionContainerSpec {
    let (name, image) = (name.into(), "redis".into());
    v1::CompanionContainerSpec { name, image, ..v1::CompanionContainerSpec::default() }
}

fn checked(test: &[&str]) -> v1::CompanionContainerSpec {
    let test = words(test);
    let healthcheck = Some(v1::HealthcheckConfig { test, ..v1::HealthcheckConfig::default() });
    v1::CompanionContainerSpec { healthcheck, ..companion("db") }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn seconds(seconds: i64) -> Time {
    Time { seconds, nanos: 0 }
}

#[test]
fn what_is_asked_for_is_converted() {
    let wire = v1::CreateSpec {
        image: "docker.io/library/python:3.12".into(),
        mounts: vec![v1::MountSpec { writable: true, ..mount("~/work", "~/work/") }],
        copies: vec![copy("/src//./lib", "/dst")],
        builtin_tools: words(&["git"]),
        companion_containers: vec![v1::CompanionContainerSpec {
            envs: map(&[("A", "1")]),
            command: words(&["run"]),
            cpu_limit: "0.25".into(),
            memory_limit: "64m".into(),
            disk_limit: "1g".into(),
            post_start_on_primary: words(&["echo", "up"]),
            healthcheck: Some(v1::HealthcheckConfig {
                test: words(&["CMD", "ping"]),
                interval: Some(seconds(3)),
                timeout: Some(seconds(0)),
                retries: 0,
                start_period: None,
                start_interval: Some(seconds(1)),
            }),
            ..companion("db")
        }],
        labels: map(&[("a", "b")]),
        envs: map(&[("PATH", "/bin")]),
        idle_ttl: Some(seconds(90)),
        ports: vec![port(80, 8080, 0), port(80, 8080, 1)],
        command: words(&["sleep", "1"]),
        cpu_limit: "1.5".into(),
        memory_limit: "512m".into(),
        disk_limit: "4g".into(),
        gpus: String::new(),
    };
    let expected = SandboxSpec {
        provider: Provider::Local,
        image: "docker.io/library/python:3.12".into(),
        labels: map(&[("a", "b")]),
        env: map(&[("PATH", "/bin")]),
        command: words(&["sleep", "1"]),
        mounts: vec![Mount {
            source: "/home/me/work".into(),
            target: "/home/agbox/work".into(),
            access: Access::Writable,
        }],
        copies: vec![Copy {
            source: "/src/lib".into(),
            target: "/dst".into(),
            exclude_patterns: words(&["*.o"]),
        }],
        ports: vec![
            Port { inside: 80, host: 8080, protocol: Protocol::Tcp },
            Port { inside: 80, host: 8080, protocol: Protocol::Udp },
        ],
        tools: words(&["git"]),
        companions: vec![Companion {
            name: "db".into(),
            image: "redis".into(),
            env: map(&[("A", "1")]),
            command: words(&["run"]),
            resources: Resources {
                millicores: Some(250),
                memory: Some(ByteSize::mib(64)),
                disk: Some(ByteSize::mib(1024)),
                processes: None,
            },
            healthcheck: Some(Healthcheck {
                test: words(&["CMD", "ping"]),
                interval: Some(Duration::from_secs(3)),
                timeout: None,
                retries: None,
                start_period: None,
                start_interval: Some(Duration::from_secs(1)),
            }),
            post_start_on_primary: words(&["echo", "up"]),
        }],
        resources: Resources {
            millicores: Some(1500),
            memory: Some(ByteSize::mib(512)),
            disk: Some(ByteSize::mib(4096)),
            processes: None,
        },
        idle: Some(Idle { after: Duration::from_secs(90), then: Suspend::Stop }),
        ..SandboxSpec::default()
    };
    let read = read(Some(wire), b"", &local()).unwrap();
    assert!(read == expected, "{read:?}");
}

#[test]
fn an_absent_idle_time_is_ten_minutes_and_zero_is_never() {
    let rows = [(None, Some(600)), (Some(seconds(0)), None), (Some(seconds(5)), Some(5))];
    for (idle_ttl, expected) in rows {
        let spec = read(Some(v1::CreateSpec { idle_ttl, ..spec() }), b"", &local()).unwrap();
        let expected =
            expected.map(|after| Idle { after: Duration::from_secs(after), then: Suspend::Stop });
        assert_eq!(spec.idle, expected);
    }
}

/// Each row breaks one rule: what is asked for, and the field and problem that it is refused with.
#[test]
fn every_rule_names_the_field_that_breaks_it() {
    type Row = (v1::CreateSpec, &'static str);
    let s = spec;
    let one = |it: v1::CompanionContainerSpec| v1::CreateSpec {
        companion_containers: vec![it],
        ..spec()
    };
    let c = companion;
    let rows: Vec<Row> = vec![
        (v1::CreateSpec::default(), "image: is required: there is no default image"),
        (v1::CreateSpec { image: " ".into(), ..s() }, "image: is required"),
        (v1::CreateSpec { idle_ttl: Some(seconds(-1)), ..s() }, "idle_ttl: must not be negative"),
        (v1::CreateSpec { gpus: "all".into(), ..s() }, "gpus: this server gives no GPUs"),
        (v1::CreateSpec { gpus: "1".into(), ..s() }, "gpus: must be"),
        (
            v1::CreateSpec { envs: map(&[("AGENTS_SANDBOX_SUPPLEMENTAL_GROUPS", "1")]), ..s() },
            "envs: must not set AGENTS_SANDBOX_SUPPLEMENTAL_GROUPS",
        ),
        (v1::CreateSpec { envs: map(&[("", "1")]), ..s() }, "envs: the name of a variable"),
        (v1::CreateSpec { envs: map(&[("A=B", "1")]), ..s() }, "envs: the name of a variable"),
        (v1::CreateSpec { envs: map(&[("A", "\0")]), ..s() }, "envs: must not have a NUL"),
        (v1::CreateSpec { labels: map(&[("", "1")]), ..s() }, "labels: a label must have a name"),
        (v1::CreateSpec { labels: map(&[("a", "\0")]), ..s() }, "labels: must not have a NUL"),
        (v1::CreateSpec { command: words(&["a", ""]), ..s() }, "command[1]: must not be empty"),
        (v1::CreateSpec { mounts: vec![mount("", "/a")], ..s() }, "mounts[0].source: is required"),
        (
            v1::CreateSpec { mounts: vec![mount("a", "/a")], ..s() },
            "mounts[0].source: must be absolute",
        ),
        (
            v1::CreateSpec { mounts: vec![mount("~you/a", "/a")], ..s() },
            "mounts[0].source: must not name the home of another user",
        ),
        (
            v1::CreateSpec { mounts: vec![mount("/a/../b", "/a")], ..s() },
            "mounts[0].source: must not have \"..\"",
        ),
        (v1::CreateSpec { mounts: vec![mount("/a", "")], ..s() }, "mounts[0].target: is required"),
        (
            v1::CreateSpec { mounts: vec![mount("/a", "b")], ..s() },
            "mounts[0].target: must be absolute",
        ),
        (
            v1::CreateSpec { mounts: vec![mount("/a", "~you")], ..s() },
            "mounts[0].target: must not name the home of another user",
        ),
        (
            v1::CreateSpec { mounts: vec![mount("/a", "/t"), mount("/b", "/t/")], ..s() },
            "mounts[1].target: is the target of another",
        ),
        (
            v1::CreateSpec {
                mounts: vec![mount("/a", "~/t")],
                copies: vec![copy("/b", "/home/agbox/t")],
                ..s()
            },
            "copies[0].target: is the target of another",
        ),
        (
            v1::CreateSpec { copies: vec![copy("/", "/t")], ..s() },
            "copies[0].source: must not be the root",
        ),
        (
            v1::CreateSpec { ports: vec![port(0, 8080, 0)], ..s() },
            "ports[0].container_port: must be from 1 to 65535",
        ),
        (
            v1::CreateSpec { ports: vec![port(80, 65_536, 0)], ..s() },
            "ports[0].host_port: must be from 1 to 65535",
        ),
        (
            v1::CreateSpec { ports: vec![port(80, 80, 0)], ..s() },
            "ports[0].host_port: must be 1024 or above",
        ),
        (
            v1::CreateSpec { ports: vec![port(80, 8080, 3)], ..s() },
            "ports[0].protocol: must be TCP, UDP or SCTP",
        ),
        (
            v1::CreateSpec { ports: vec![port(80, 8080, 0), port(81, 8080, 0)], ..s() },
            "ports[1].host_port: is published twice",
        ),
        (one(c("")), "companion_containers[0].name: must be 1 to 63"),
        (one(c("a b")), "companion_containers[0].name: must be 1 to 63"),
        (one(c("-a")), "companion_containers[0].name: must be 1 to 63"),
        (
            one(v1::CompanionContainerSpec { image: String::new(), ..c("a") }),
            "companion_containers[0].image: is required",
        ),
        (
            v1::CreateSpec { companion_containers: vec![c("a"), c("a")], ..s() },
            "companion_containers[1].name: is the name of another companion",
        ),
        (
            one(v1::CompanionContainerSpec { post_start_on_primary: words(&["a"]), ..c("a") }),
            "companion_containers[0].post_start_on_primary: needs a healthcheck",
        ),
        (
            one(v1::CompanionContainerSpec { command: words(&[""]), ..c("a") }),
            "companion_containers[0].command[0]: must not be empty",
        ),
        (
            one(v1::CompanionContainerSpec { cpu_limit: "0".into(), ..c("a") }),
            "companion_containers[0].cpu_limit: must be a number of cores",
        ),
        (one(checked(&[])), "companion_containers[0].healthcheck.test: must begin with"),
        (one(checked(&["RUN"])), "companion_containers[0].healthcheck.test: must begin with"),
        (one(checked(&["CMD"])), "companion_containers[0].healthcheck.test: CMD and CMD-SHELL"),
        (one(checked(&["NONE", "a"])), "companion_containers[0].healthcheck.test: NONE takes"),
        (v1::CreateSpec { cpu_limit: "0".into(), ..s() }, "cpu_limit: must be a number of cores"),
        (v1::CreateSpec { cpu_limit: "0.0001".into(), ..s() }, "cpu_limit: must be"),
        (v1::CreateSpec { cpu_limit: "many".into(), ..s() }, "cpu_limit: must be"),
        (v1::CreateSpec { memory_limit: "0".into(), ..s() }, "memory_limit: must be a size"),
        (v1::CreateSpec { memory_limit: "1z".into(), ..s() }, "memory_limit: must be a size"),
        (v1::CreateSpec { disk_limit: "-1g".into(), ..s() }, "disk_limit: must be a size"),
        (
            v1::CreateSpec { builtin_tools: words(&["vim"]), ..s() },
            "builtin_tools: must be among claude, codex, git",
        ),
        (
            v1::CreateSpec { builtin_tools: words(&["git", "git"]), ..s() },
            "create_spec.builtin_tools: names a tool twice",
        ),
        (
            v1::CreateSpec { builtin_tools: words(&[""]), ..s() },
            "create_spec.builtin_tools: the name of a tool must not be empty",
        ),
    ];
    for (spec, expected) in rows {
        let problem = read(Some(spec), b"", &local()).unwrap_err().to_string();
        assert!(problem.starts_with(expected), "{problem:?} is not {expected:?}");
    }
    let problem = read(None, b"", &local()).unwrap_err().to_string();
    assert!(problem.starts_with("create_spec: is required"), "{problem}");
}

#[test]
fn health_tests_that_fit_are_taken() {
    for test in [&["NONE"][..], &["CMD", "a"], &["CMD-SHELL", "a b"]] {
        let spec = v1::CreateSpec { companion_containers: vec![checked(test)], ..spec() };
        let read = read(Some(spec), b"", &local()).unwrap();
        assert_eq!(read.companions[0].healthcheck.as_ref().unwrap().test, words(test));
    }
}

#[test]
fn the_request_wins_over_the_configuration() {
    let yaml = br#"
image: base
mounts: [{source: /m1, target: /m1}]
copies: [{source: /c1, target: /c1}]
ports: [{container_port: 1, host_port: 2001}]
builtin_tools: [git, uv]
companion_containers: {b: {image: redis}, a: {image: redis}}
labels: {x: base, y: base}
envs: {X: base, Y: base}
idle_ttl: 5s
command: [base]
cpu_limit: "1"
memory_limit: 1g
"#;
    let over = v1::CreateSpec {
        image: "over".into(),
        mounts: vec![mount("/m2", "/m2")],
        copies: vec![copy("/c2", "/c2")],
        ports: vec![port(1, 2002, 0)],
        builtin_tools: words(&["npm", "git"]),
        companion_containers: vec![companion("c")],
        labels: map(&[("y", "over")]),
        envs: map(&[("Y", "over"), ("Z", "over")]),
        idle_ttl: Some(seconds(0)),
        command: words(&["over", "it"]),
        memory_limit: "2g".into(),
        ..v1::CreateSpec::default()
    };
    let merged = read(Some(over), yaml, &local()).unwrap();
    assert_eq!(merged.image, "over");
    let sources: Vec<_> = merged.mounts.iter().map(|it| it.source.as_str()).collect();
    assert_eq!(sources, ["/m1", "/m2"]);
    let sources: Vec<_> = merged.copies.iter().map(|it| it.source.as_str()).collect();
    assert_eq!(sources, ["/c1", "/c2"]);
    let hosts: Vec<_> = merged.ports.iter().map(|it| it.host).collect();
    assert_eq!(hosts, [2001, 2002]);
    assert_eq!(merged.tools, ["git", "uv", "npm"]);
    let names: Vec<_> = merged.companions.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(merged.labels, map(&[("x", "base"), ("y", "over")]));
    assert_eq!(merged.env, map(&[("X", "base"), ("Y", "over"), ("Z", "over")]));
    assert_eq!(merged.idle, None);
    assert_eq!(merged.command, ["over", "it"]);
    assert_eq!(merged.resources.millicores, Some(1000));
    assert_eq!(merged.resources.memory, Some(ByteSize::mib(2048)));

    let alone = read(Some(v1::CreateSpec::default()), yaml, &local()).unwrap();
    assert_eq!((alone.image.as_str(), alone.command), ("base", words(&["base"])));
    assert_eq!(alone.idle.map(|idle| idle.after), Some(Duration::from_secs(5)));
    assert!(read(None, yaml, &local()).is_ok());
}

#[test]
fn over_the_network_paths_of_the_host_are_refused_but_for_those_allowed() {
    let with_mount = |source: &str| v1::CreateSpec { mounts: vec![mount(source, "/t")], ..spec() };
    let with_image = |image: &str| v1::CreateSpec { image: image.into(), ..spec() };
    let rows = [
        (with_mount("/srv/data"), &[][..], false),
        (with_mount("/srv/data"), &["/srv"], true),
        (with_mount("/srv"), &["/srv"], true),
        (with_mount("/srvx"), &["/srv"], false),
        (with_mount("~/x"), &["/"], false),
        (with_image("host"), &[], true),
        (with_image("docker.io/library/python:3.12"), &[], true),
        (with_image("dir:/srv/root"), &[], false),
        (with_image("dir:/srv/root"), &["/srv"], true),
        (with_image("dir:/srv/../root"), &["/srv"], false),
        (with_image("dir:root"), &["/srv"], false),
        (with_image("tar:/etc/shadow"), &["/srv"], false),
        (with_image("oci:/srv/layout:tag"), &["/srv"], true),
        (v1::CreateSpec { copies: vec![copy("/etc", "/t")], ..spec() }, &["/srv"], false),
        (v1::CreateSpec { builtin_tools: words(&["git"]), ..spec() }, &["/"], false),
    ];
    for (number, (spec, prefixes, is_allowed)) in rows.into_iter().enumerate() {
        let read = read(Some(spec), b"", &remote(prefixes));
        assert_eq!(read.is_ok(), is_allowed, "row {number}: {read:?}");
    }
    let refused = read(Some(with_mount("/srv")), b"", &remote(&[])).unwrap_err();
    assert_eq!(refused.reason, Reason::PermissionDenied);
}

proptest! {
    #[test]
    fn a_target_has_one_form_and_is_absolute(text in "[~/.a]{0,12}") {
        if let Ok(target) = paths::target("t", &text) {
            prop_assert!(target.starts_with('/'));
            prop_assert_eq!(paths::target("t", &target), Ok(target.clone()));
        }
    }
}
