//! `agbox.v1`: by the Unix socket and by the main port.

use std::{collections::BTreeMap, time::Duration};

use api::agbox::v1::{self, sandbox_event::Details};
use daemon::{grpc::door::Peers, serve::Settings};
use prost::Message as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    time::timeout,
};
use tonic::Code;

use crate::{
    caller::{Connection, end_of, framed, next, refusal, refused, subscribe, within},
    http2::{self, DATA, END_HEADERS, END_STREAM, GO_AWAY, HEADERS, RESET, field, frame},
    sandboxed::{Sandboxed, create, door, exec, get, own, run, shell, until},
    scripted::Scripted,
    support::{self, Daemon, PATIENCE},
};

async fn ping(connection: &Connection) -> Result<v1::PingResponse, tonic::Status> {
    connection.client().ping(v1::PingRequest {}).await.map(tonic::Response::into_inner)
}

/// Starts a daemon that has a socket and no sandboxes.
pub(crate) async fn with_socket(peers: Peers) -> (tempfile::TempDir, std::path::PathBuf, Daemon) {
    let folder = tempfile::tempdir().unwrap();
    let (path, lifecycle) = door(&folder, peers);
    let scripted = Scripted::default();
    let executor = scripted.executor();
    let daemon = Daemon::start_all(executor, lifecycle, scripted, support::settings()).await;
    (folder, path, daemon)
}

/// Sends what a client of the socket sends, byte by byte, and returns the answers to its calls.
async fn pings_with_authority(path: &std::path::Path, authority: &str) -> Vec<v1::PingResponse> {
    let first = [
        vec![0x83, 0x86],
        field(":path", "/agbox.v1.SandboxService/Ping"),
        field(":authority", authority),
        field("content-type", "application/grpc"),
        field("te", "trailers"),
    ]
    .concat();
    // The second call is made of references to the first.
    let second = vec![0x83, 0x86, 0xc1, 0xc0, 0xbf, 0xbe];
    let mut socket = UnixStream::connect(path).await.unwrap();
    let sent = [
        http2::hello(),
        frame(HEADERS, END_HEADERS, 1, &first),
        frame(DATA, END_STREAM, 1, &framed(&[])),
        frame(HEADERS, END_HEADERS, 3, &second),
        frame(DATA, END_STREAM, 3, &framed(&[])),
    ];
    socket.write_all(&sent.concat()).await.unwrap();
    let mut answers = BTreeMap::new();
    while answers.len() < 2 {
        let frame = http2::next(&mut socket).await.unwrap();
        assert!(![RESET, GO_AWAY].contains(&frame.kind), "the server resets a call or goes away");
        if frame.kind == DATA && !frame.content.is_empty() {
            let answer = v1::PingResponse::decode(&frame.content[5..]).unwrap();
            answers.insert(frame.stream, answer);
        }
    }
    answers.into_values().collect()
}

#[tokio::test]
async fn clients_that_send_the_path_of_the_socket_as_authority_are_answered() {
    let (_folder, path, daemon) = with_socket(own()).await;
    let expected =
        v1::PingResponse { version: env!("CARGO_PKG_VERSION").into(), daemon: "agboxd".into() };
    let as_path = path.display().to_string().trim_start_matches('/').replace('/', "%2F");
    for authority in [as_path.as_str(), "localhost", ""] {
        let answers = pings_with_authority(&path, authority).await;
        assert_eq!(answers, [expected.clone(), expected.clone()], "{authority}");
    }
    assert_eq!(ping(&Connection::unix(&path).await).await.unwrap(), expected);
    daemon.stop().await;
}

#[tokio::test]
async fn whoever_may_not_use_the_socket_is_told_so() {
    let (_folder, path, daemon) = with_socket(Peers::default()).await;
    let connection = Connection::unix(&path).await;
    assert_eq!(refused(ping(&connection).await), "PermissionDenied PERMISSION_DENIED");
    // A key opens the main port and not the socket.
    let address = daemon.address;
    let connection = Connection::tcp(address, &[("x-api-key", &daemon.key)]).await;
    assert!(ping(&connection).await.is_ok());
    daemon.stop().await;
}

#[tokio::test]
async fn what_is_not_http_2_is_closed_at_the_socket() {
    let (_folder, path, daemon) = with_socket(own()).await;
    for bytes in ["GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", "\0\0\0"] {
        let mut socket = UnixStream::connect(&path).await.unwrap();
        socket.write_all(bytes.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        timeout(PATIENCE, socket.read_to_end(&mut answer)).await.unwrap().unwrap();
        assert!(answer.is_empty(), "{answer:?}");
    }
    assert_eq!(Connection::unix(&path).await.page("/healthz").await.0, 415);
    daemon.stop().await;
}

#[tokio::test]
async fn r01_the_main_port_takes_one_valid_key() {
    let daemon = Daemon::start().await;
    let bearer = format!("Bearer {}", daemon.key);
    let key = daemon.key.as_str();
    let rows: [(&[(&'static str, &str)], bool); 7] = [
        (&[("authorization", &bearer)], true),
        (&[("x-api-key", key)], true),
        (&[], false),
        (&[("authorization", "Bearer wrong")], false),
        (&[("authorization", key)], false),
        (&[("x-api-key", key), ("x-api-key", key)], false),
        (&[("authorization", "Bearer wrong"), ("x-api-key", key)], false),
    ];
    for (metadata, is_let_in) in rows {
        let answer = ping(&Connection::tcp(daemon.address, metadata).await).await;
        if is_let_in {
            assert!(answer.is_ok(), "{metadata:?}");
        } else {
            assert_eq!(refused(answer), "Unauthenticated UNAUTHENTICATED");
        }
    }
    // What nobody asked for is no mistake, whatever is in it. Too much of it is.
    let strange = [("x-api-key", key), ("garbage-bin", "%%%"), ("x-two", "a"), ("x-two", "b")];
    let connection = Connection::tcp(daemon.address, &strange).await;
    assert!(ping(&connection).await.is_ok());
    let large = "x".repeat(256 << 10);
    let too_much =
        Connection::tcp(daemon.address, &[("x-api-key", key), ("x-large", &large)]).await;
    assert!(ping(&too_much).await.is_err());
    assert!(ping(&connection).await.is_ok());
    drop((connection, too_much));
    daemon.stop().await;
}

#[tokio::test]
async fn one_port_has_grpc_and_http_of_both_versions() {
    let daemon = Daemon::start().await;
    let connection = Connection::tcp(daemon.address, &[("x-api-key", &daemon.key)]).await;
    assert!(ping(&connection).await.is_ok());
    let (status, body) = connection.page("/healthz").await;
    assert_eq!((status, body.as_ref()), (200, &b"{\"status\":\"ok\"}"[..]));
    assert_eq!(connection.page("/nowhere").await.0, 404);
    assert_eq!(daemon.ask("GET", "/healthz", &[], "").await.status, 200);
    drop(connection);
    daemon.stop().await;
}

#[tokio::test]
async fn a_connection_without_a_call_is_closed_and_one_with_a_call_is_not() {
    let settings = Settings { head_deadline: Duration::from_secs(2), ..support::settings() };
    let daemon = Daemon::start_with(settings).await;
    let metadata = [("x-api-key", daemon.key.as_str())];
    let busy = Connection::tcp(daemon.address, &metadata).await;
    assert!(ping(&busy).await.is_ok());
    let silent = Connection::tcp(daemon.address, &metadata).await;
    timeout(PATIENCE, silent.closed()).await.unwrap();
    assert!(ping(&busy).await.is_ok());
    drop((busy, silent));
    daemon.stop().await;
}

#[tokio::test]
async fn r09_health_is_told_to_everybody_and_there_is_no_reflection() {
    let daemon = Daemon::start().await;
    let connection = Connection::tcp(daemon.address, &[]).await;
    let healthy = connection.raw("/grpc.health.v1.Health/Check", framed(&[])).await;
    assert_eq!(healthy.code(), Code::Ok);
    for version in ["v1", "v1alpha"] {
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        let status = connection.raw(&path, Vec::new()).await;
        assert_eq!(refusal(&status), "Unimplemented UNIMPLEMENTED");
    }
    drop(connection);
    daemon.stop().await;
}

#[tokio::test]
async fn r02_messages_that_cannot_be_read_are_refused_with_details() {
    let daemon = Daemon::start().await;
    let connection = Connection::tcp(daemon.address, &[("x-api-key", &daemon.key)]).await;
    let nested = |levels: usize| [vec![0x0b; levels], vec![0x0c; levels]].concat();
    let unreadable = "InvalidArgument INVALID_ARGUMENT";
    let rows = [
        ("Ping", framed(&[0xff; 20]), unreadable),
        ("GetSandbox", framed(&[0x0a, 0x05, b'a']), unreadable),
        ("GetSandbox", framed(&[0x08, 0x05]), unreadable),
        ("GetSandbox", framed(&[0x0a, 0x01, 0xff]), unreadable),
        ("GetSandbox", framed(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]), unreadable),
        ("Ping", framed(&nested(101)), unreadable),
        ("Ping", vec![0, 0, 0, 0, 9, 1], unreadable),
        ("Ping", Vec::new(), unreadable),
        ("Ping", vec![7, 0, 0, 0, 0], unreadable),
        ("CreateSandbox", framed(&vec![0; (4 << 20) + 1]), "ResourceExhausted MESSAGE_TOO_LARGE"),
        ("Nothing", framed(&[]), "Unimplemented UNIMPLEMENTED"),
    ];
    for (method, body, expected) in rows {
        let path = format!("/agbox.v1.SandboxService/{method}");
        let first = body.iter().take(12).copied().collect::<Vec<u8>>();
        let status = connection.raw(&path, body).await;
        assert_eq!(refusal(&status), expected, "{method} {first:?}");
    }
    // A field that nobody knows is no mistake.
    let path = "/agbox.v1.SandboxService/Ping";
    let status = connection.raw(path, framed(&[0xfa, 0x3f, 0x01, b'x'])).await;
    assert_eq!(status.code(), Code::Ok);
    drop(connection);
    daemon.stop().await;
}

#[tokio::test]
async fn a_sandbox_lives_and_its_events_tell_it() {
    let server = Sandboxed::start().await;
    let mut client = server.local().await;
    let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
    let mut request = create("my-box");
    request.config_yaml = b"labels: {team: b, kind: test}\nenvs: {COLOUR: red}\n".to_vec();
    request.create_spec.as_mut().unwrap().labels = labels;
    let accepted = client.create_sandbox(request).await.unwrap().into_inner().sandbox.unwrap();
    assert_eq!(accepted.state(), v1::SandboxState::Pending);
    assert_eq!((accepted.sandbox_id.as_str(), accepted.last_event_sequence), ("my-box", 2));
    let expected = [("kind", "test"), ("team", "a")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(accepted.labels, BTreeMap::from(expected));
    until(&mut client, "my-box", v1::SandboxState::Ready).await;

    let (first, output) = run(&mut client, shell("my-box", "echo $COLOUR; exit 7", "run-1")).await;
    assert_eq!((first.state(), first.exit_code), (v1::ExecState::Failed, 7));
    assert_eq!((first.exec_id.as_str(), first.sandbox_id.as_str()), ("run-1", "my-box"));
    assert_eq!((first.last_event_sequence, output.as_str()), (5, "red\n"));
    let (second, _) = run(&mut client, shell("my-box", "kill -9 $$", "run-2")).await;
    assert_eq!((second.state(), second.exit_code), (v1::ExecState::Failed, 137));

    let sandbox_id = "my-box".to_owned();
    client.stop_sandbox(v1::StopSandboxRequest { sandbox_id: sandbox_id.clone() }).await.unwrap();
    until(&mut client, "my-box", v1::SandboxState::Stopped).await;
    let stopped = client.create_exec(shell("my-box", "true", "")).await;
    assert_eq!(refused(stopped), "FailedPrecondition SANDBOX_NOT_READY sandbox_id=my-box");
    let twice = v1::StopSandboxRequest { sandbox_id: sandbox_id.clone() };
    // It is stopped already, which is what was asked for.
    assert!(client.stop_sandbox(twice).await.unwrap().into_inner().accepted);
    let resume = || v1::ResumeSandboxRequest { sandbox_id: sandbox_id.clone() };
    client.resume_sandbox(resume()).await.unwrap();
    until(&mut client, "my-box", v1::SandboxState::Ready).await;
    assert!(client.resume_sandbox(resume()).await.unwrap().into_inner().accepted);
    for _ in 0..2 {
        let delete = v1::DeleteSandboxRequest { sandbox_id: sandbox_id.clone() };
        assert!(client.delete_sandbox(delete).await.unwrap().into_inner().accepted);
    }
    let deleted = until(&mut client, "my-box", v1::SandboxState::Deleted).await;

    let mut events =
        client.subscribe_sandbox_events(subscribe("my-box", 0)).await.unwrap().into_inner();
    let mut told = Vec::new();
    for sequence in 1..=deleted.last_event_sequence {
        let event = next(&mut events).await;
        assert_eq!((event.sequence, event.replay), (sequence, true));
        assert_eq!(event.event_id, format!("my-box-{sequence}"));
        assert!(event.occurred_at.is_some());
        let kind = event.event_type().as_str_name();
        let state = event.sandbox_state().as_str_name().trim_start_matches("SANDBOX_STATE_");
        told.push(match event.details.unwrap() {
            Details::SandboxPhase(it) => format!("{kind} {state} {}{}", it.phase, it.reason),
            Details::Exec(it) => format!("{kind} {state} {} {}", it.exit_code, it.error_code),
            Details::CompanionContainer(it) => format!("{kind} {state} {}", it.name),
        });
    }
    let expected = [
        "SANDBOX_ACCEPTED PENDING ",
        "SANDBOX_PREPARING PENDING materialize",
        "SANDBOX_READY READY ",
        "EXEC_STARTED READY 0 ",
        "EXEC_FAILED READY 7 EXEC_RUN_FAILED",
        "EXEC_STARTED READY 0 ",
        "EXEC_FAILED READY 137 EXEC_RUN_FAILED",
        "SANDBOX_STOP_REQUESTED READY stop_requested",
        "SANDBOX_STOPPED STOPPED stop_requested",
        "SANDBOX_ACCEPTED PENDING ",
        "SANDBOX_READY READY ",
        "SANDBOX_DELETE_REQUESTED DELETING delete_requested",
        "SANDBOX_DELETED DELETED delete_requested",
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_subscription_begins_with_the_state_and_goes_on_live() {
    let server = Sandboxed::start().await;
    let mut client = server.local().await;
    client.create_sandbox(create("my-box")).await.unwrap();
    until(&mut client, "my-box", v1::SandboxState::Ready).await;
    client.create_exec(shell("my-box", "sleep 1000", "long-run")).await.unwrap();
    let now = get(&mut client, "my-box").await.last_event_sequence;
    let request = v1::SubscribeSandboxEventsRequest {
        include_current_snapshot: true,
        ..subscribe("my-box", now)
    };
    let mut events = client.subscribe_sandbox_events(request).await.unwrap().into_inner();
    let (last, running) = (next(&mut events).await, next(&mut events).await);
    assert_eq!((last.sequence, last.event_type()), (now, v1::EventType::ExecStarted));
    assert_eq!((running.sequence, running.event_type()), (now, v1::EventType::ExecStarted));
    assert_eq!(running.event_id, "my-box-snapshot-long-run");
    assert!(last.snapshot && last.replay && running.snapshot);
    let nowhere = v1::ListActiveExecsRequest { sandbox_id: Some("nowhere".into()) };
    let nothing = client.list_active_execs(nowhere).await.unwrap().into_inner().execs;
    assert_eq!(nothing, [], "nothing runs in a sandbox that is not there");
    let active = v1::ListActiveExecsRequest { sandbox_id: None };
    let active = client.list_active_execs(active).await.unwrap().into_inner().execs;
    assert_eq!(active.iter().map(|it| it.exec_id.as_str()).collect::<Vec<_>>(), ["long-run"]);

    let cancel = || v1::CancelExecRequest { exec_id: "long-run".into() };
    client.cancel_exec(cancel()).await.unwrap();
    assert_eq!(exec(&mut client, "long-run").await.state(), v1::ExecState::Cancelled);
    let live = next(&mut events).await;
    assert_eq!((live.sequence, live.event_type()), (now + 1, v1::EventType::ExecCancelled));
    assert!(!live.replay && !live.snapshot);
    let twice = client.cancel_exec(cancel()).await;
    assert_eq!(refused(twice), "FailedPrecondition EXEC_ALREADY_TERMINAL exec_id=long-run");

    let latest = get(&mut client, "my-box").await.last_event_sequence;
    for from in [latest + 1, latest + 2, u64::MAX] {
        let future = client.subscribe_sandbox_events(subscribe("my-box", from)).await;
        let expected = format!(
            "OutOfRange SANDBOX_EVENT_SEQUENCE_EXPIRED from_sequence={from},\
             latest_sequence={latest},oldest_sequence=1,sandbox_id=my-box"
        );
        assert_eq!(refused(future), expected);
    }
    // A stream that has a deadline keeps it. It has to have begun by then.
    let late = within(subscribe("my-box", latest), Duration::from_secs(3));
    let late = client.subscribe_sandbox_events(late).await.unwrap().into_inner();
    assert_eq!(end_of(late).await.code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn r03_r08_what_cannot_be_done_is_refused_with_its_reason() {
    let server = Sandboxed::start().await;
    let mut client = server.local().await;
    client.create_sandbox(create("my-box")).await.unwrap();
    until(&mut client, "my-box", v1::SandboxState::Ready).await;
    run(&mut client, shell("my-box", "true", "run-1")).await;

    let long = "x".repeat(100_000);
    for name in ["", "nobodys", "a\0b", "'; --", long.as_str()] {
        let sandbox_id = name.to_owned();
        let answer = client.get_sandbox(v1::GetSandboxRequest { sandbox_id }).await;
        assert!(refused(answer).starts_with("NotFound SANDBOX_NOT_FOUND sandbox_id="), "{name}");
        let answer = client.subscribe_sandbox_events(subscribe(name, 0)).await;
        assert!(refused(answer).starts_with("NotFound SANDBOX_NOT_FOUND"), "{name}");
        let answer = client.create_exec(shell(name, "true", "")).await;
        assert!(refused(answer).starts_with("NotFound SANDBOX_NOT_FOUND"), "{name}");
        let answer = client.get_exec(v1::GetExecRequest { exec_id: name.to_owned() }).await;
        assert!(refused(answer).starts_with("NotFound EXEC_NOT_FOUND exec_id="), "{name}");
    }
    let twice = client.create_sandbox(create("my-box")).await;
    assert_eq!(refused(twice), "AlreadyExists SANDBOX_ID_ALREADY_EXISTS sandbox_id=my-box");
    let twice = client.create_exec(shell("my-box", "true", "run-1")).await;
    assert_eq!(refused(twice), "AlreadyExists EXEC_ID_ALREADY_EXISTS exec_id=run-1");
    let ended = client.cancel_exec(v1::CancelExecRequest { exec_id: "run-1".into() }).await;
    assert_eq!(refused(ended), "FailedPrecondition EXEC_ALREADY_TERMINAL exec_id=run-1");

    let with = |change: fn(&mut v1::CreateSandboxRequest)| {
        let mut request = create("");
        change(&mut request);
        request
    };
    let rows = [
        (with(|it| it.create_spec = None), "INVALID_ARGUMENT field=create_spec"),
        (with(|it| it.create_spec = Some(v1::CreateSpec::default())), "IMAGE_REQUIRED field=image"),
        (with(|it| it.sandbox_id = "-bad".into()), "INVALID_ARGUMENT field=sandbox_id"),
        (with(|it| it.config_yaml = b"a: b".to_vec()), "INVALID_ARGUMENT field=config_yaml"),
        (
            with(|it| it.config_yaml = vec![b' '; (1 << 20) + 1]),
            "INVALID_ARGUMENT field=config_yaml",
        ),
        (
            with(|it| it.create_spec.as_mut().unwrap().gpus = "all".into()),
            "NOT_SUPPORTED field=gpus",
        ),
        (
            with(|it| {
                let tcp = v1::PortMapping { container_port: 80, host_port: 20_000, protocol: 0 };
                let udp = v1::PortMapping { host_port: 20_001, ..tcp };
                it.create_spec.as_mut().unwrap().ports = vec![tcp, udp];
                let udp = it.create_spec.as_mut().unwrap().ports.last_mut().unwrap();
                udp.set_protocol(v1::PortProtocol::Udp);
            }),
            "NOT_SUPPORTED field=ports[1].protocol",
        ),
        (
            with(|it| {
                let mount = |source: &str, target: &str| v1::MountSpec {
                    source: source.into(),
                    target: target.into(),
                    writable: false,
                };
                let mounts = vec![mount("/etc", "/workspace/a"), mount("/none", "/workspace/b")];
                it.create_spec.as_mut().unwrap().mounts = mounts;
            }),
            "INVALID_ARGUMENT field=mounts[1].source",
        ),
        (
            with(|it| {
                let copy = v1::CopySpec {
                    source: "/none".into(),
                    target: "/workspace/a".into(),
                    ..Default::default()
                };
                it.create_spec.as_mut().unwrap().copies = vec![copy];
            }),
            "INVALID_ARGUMENT field=copies[0].source",
        ),
        (
            with(|it| it.create_spec.as_mut().unwrap().image = "tar:/none.tar".into()),
            "INVALID_ARGUMENT field=image",
        ),
        (
            with(|it| it.create_spec.as_mut().unwrap().disk_limit = "1k".into()),
            "INVALID_ARGUMENT field=disk_limit",
        ),
    ];
    for (request, expected) in rows {
        let answer = client.create_sandbox(request).await;
        assert_eq!(refused(answer), format!("InvalidArgument {expected}"));
    }
    let all = client.delete_sandboxes(v1::DeleteSandboxesRequest::default()).await;
    assert_eq!(refused(all), "InvalidArgument INVALID_ARGUMENT field=label_selector");
    let nothing = v1::CreateExecRequest { sandbox_id: "my-box".into(), ..Default::default() };
    let nothing = client.create_exec(nothing).await;
    assert_eq!(refused(nothing), "InvalidArgument INVALID_ARGUMENT field=command");
}

#[tokio::test]
async fn sandboxes_are_listed_and_deleted_by_their_labels() {
    let server = Sandboxed::start().await;
    let mut client = server.local().await;
    for (name, team) in [("box-c", "red"), ("box-a", "red"), ("box-b", "blue")] {
        let mut request = create(name);
        request.create_spec.as_mut().unwrap().labels =
            BTreeMap::from([("team".to_owned(), team.to_owned())]);
        client.create_sandbox(request).await.unwrap();
    }
    let red = || BTreeMap::from([("team".to_owned(), "red".to_owned())]);
    let delete = v1::DeleteSandboxesRequest { label_selector: red() };
    let deleted = client.delete_sandboxes(delete.clone()).await.unwrap().into_inner();
    assert_eq!(deleted.deleted_sandbox_ids, ["box-a", "box-c"]);
    assert_eq!(deleted.deleted_count, 2);
    for name in ["box-a", "box-c"] {
        until(&mut client, name, v1::SandboxState::Deleted).await;
    }
    let again = client.delete_sandboxes(delete).await.unwrap().into_inner();
    assert_eq!((again.deleted_sandbox_ids.len(), again.deleted_count), (0, 0));

    let rows = [
        (false, BTreeMap::new(), vec!["box-b"]),
        (false, red(), vec![]),
        (true, red(), vec!["box-a", "box-c"]),
        (true, BTreeMap::new(), vec!["box-b", "box-a", "box-c"]),
    ];
    for (include_deleted, label_selector, expected) in rows {
        let request = v1::ListSandboxesRequest { include_deleted, label_selector };
        let listed = client.list_sandboxes(request).await.unwrap().into_inner().sandboxes;
        let key = |it: &v1::SandboxHandle| {
            let created = it.created_at.unwrap();
            (std::cmp::Reverse((created.seconds, created.nanos)), it.sandbox_id.clone())
        };
        assert!(listed.is_sorted_by_key(key), "{listed:?}");
        let mut names: Vec<_> = listed.iter().map(|it| it.sandbox_id.as_str()).collect();
        let mut expected = expected;
        names.sort_unstable();
        expected.sort_unstable();
        assert_eq!(names, expected);
    }
}

#[tokio::test]
async fn both_doors_show_the_same_and_a_tenant_sees_its_own_only() {
    let server = Sandboxed::start().await;
    let daemon = server.daemon();
    let (mut local, mut remote) = (server.local().await, server.remote(&daemon.key).await);
    local.create_sandbox(create("my-box")).await.unwrap();
    let ready = until(&mut remote, "my-box", v1::SandboxState::Ready).await;
    assert_eq!(get(&mut local, "my-box").await, ready);

    // Paths of the host are for who is on it.
    let mount = v1::MountSpec { source: "/etc".into(), target: "/t".into(), writable: false };
    let mut request = create("");
    request.create_spec.as_mut().unwrap().mounts = vec![mount];
    let answer = remote.create_sandbox(request).await;
    let expected = "PermissionDenied PERMISSION_DENIED field=mounts[0].source";
    assert_eq!(refused(answer), expected);

    let key = other_key(daemon, "another").await;
    let mut other = server.remote(&key).await;
    let request = v1::GetSandboxRequest { sandbox_id: "my-box".into() };
    let answer = other.get_sandbox(request).await;
    assert_eq!(refused(answer), "NotFound SANDBOX_NOT_FOUND sandbox_id=my-box");
    let listed = other.list_sandboxes(v1::ListSandboxesRequest::default()).await.unwrap();
    assert!(listed.into_inner().sandboxes.is_empty());
    // Names are each tenant's own.
    other.create_sandbox(create("my-box")).await.unwrap();
}

#[tokio::test]
async fn r01_a_revoked_key_and_a_shutdown_end_streams_with_their_reason() {
    let mut server = Sandboxed::start().await;
    let mut local = server.local().await;
    local.create_sandbox(create("my-box")).await.unwrap();
    let ready = until(&mut local, "my-box", v1::SandboxState::Ready).await;
    let from = || subscribe("my-box", ready.last_event_sequence);

    let daemon = server.daemon();
    let secret = other_key(daemon, "default").await;
    let mut remote = server.remote(&secret).await;
    let followed = remote.subscribe_sandbox_events(from()).await.unwrap().into_inner();
    let keys = daemon.keyring.list().await.unwrap();
    daemon.keyring.revoke(keys.last().unwrap().id.clone()).await.unwrap();
    assert_eq!(refusal(&end_of(followed).await), "Unauthenticated UNAUTHENTICATED");
    let answer = remote.subscribe_sandbox_events(from()).await;
    assert_eq!(refused(answer), "Unauthenticated UNAUTHENTICATED");

    let followed = local.subscribe_sandbox_events(from()).await.unwrap().into_inner();
    let stopped = server.daemon.take().unwrap().begin_stop();
    assert_eq!(refusal(&end_of(followed).await), "Unavailable UNAVAILABLE");
    drop((local, remote));
    stopped.await;
}

#[tokio::test]
async fn r05_a_creation_whose_caller_is_gone_is_done_or_is_not() {
    let server = Sandboxed::start().await;
    let mut client = server.local().await;
    for number in 0..20_u64 {
        let name = format!("box-{number}");
        let request = within(create(&name), Duration::from_micros(number * 200));
        let _ = client.create_sandbox(request).await;
    }
    let request = v1::ListSandboxesRequest::default();
    let listed = client.list_sandboxes(request).await.unwrap().into_inner().sandboxes;
    for sandbox in listed {
        until(&mut client, &sandbox.sandbox_id, v1::SandboxState::Ready).await;
    }
}

/// Makes a key of this tenant.
pub(crate) async fn other_key(daemon: &Daemon, tenant: &str) -> String {
    let body = format!("{{\"name\":\"other\",\"role\":\"user\",\"tenant\":\"{tenant}\"}}");
    let bearer = format!("Bearer {}", daemon.key);
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let answer = daemon.ask("POST", "/v1/admin/keys", &headers, &body).await;
    answer.json()["secret"].as_str().unwrap().to_owned()
}
