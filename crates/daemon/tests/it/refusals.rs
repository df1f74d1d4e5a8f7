//! R08: whatever call is refused, for whatever reason, says who refuses it, why, and about what.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use api::{agbox::v1, ringfence};
use daemon::grpc::door::Peers;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use prost::Message;
use tonic::{Code, Status, body::Body};

use crate::{
    agbox::{other_key, with_socket},
    caller::{Connection, framed, refusal, subscribe},
    sandboxed::{Sandboxed, create, exec, get, run, shell, until},
};

const PROTOCOLS: [(&str, &str); 2] = [
    ("agbox.v1.SandboxService", include_str!("../../../../proto/agbox/v1/service.proto")),
    ("ringfence.v1.ImageService", include_str!("../../../../proto/ringfence/v1/images.proto")),
];

const PING: &str = "/agbox.v1.SandboxService/Ping";

/// What these ask for cannot be wrong: they ask for nothing.
const ASK_FOR_NOTHING: [&str; 3] = [
    PING,
    "/ringfence.v1.ImageService/ListImages",
    // Nothing runs in a sandbox that is not there.
    "/agbox.v1.SandboxService/ListActiveExecs",
];

/// Every call there is, as the protocol files have them.
fn calls() -> BTreeSet<String> {
    let of_service = |(service, text): (&'static str, &'static str)| {
        let names = text.lines().filter_map(|line| line.trim().strip_prefix("rpc "));
        names.map(move |line| format!("/{service}/{}", line.split('(').next().unwrap()))
    };
    PROTOCOLS.into_iter().flat_map(of_service).collect()
}

/// Something to ask for, and the refusal that is the answer.
struct Row {
    call: String,
    message: Vec<u8>,
    expected: String,
}

fn row(call: &str, message: &impl Message, expected: &str) -> Row {
    let service = if call.ends_with("Image") { PROTOCOLS[1].0 } else { PROTOCOLS[0].0 };
    let (call, message) = (format!("/{service}/{call}"), message.encode_to_vec());
    Row { call, message, expected: expected.to_owned() }
}

async fn check(connection: &Connection, rows: &[Row]) {
    for Row { call, message, expected } in rows {
        let status = connection.raw(call, framed(message)).await;
        assert_eq!(&refusal(&status), expected, "{call}");
    }
}

/// Makes a call that never comes to its end: its message does not.
async fn without_end(connection: &Connection, call: &str) -> Status {
    let nothing = stream::pending::<Result<Frame<Bytes>, Status>>();
    connection.send(call, Body::new(StreamBody::new(nothing))).await
}

#[tokio::test]
async fn r08_what_any_call_can_be_refused_for_is_told_by_every_call() {
    let (_folder, path, daemon) = with_socket(Peers::default()).await;
    let tcp = async |more: &[(&'static str, &str)]| {
        let key = [("x-api-key", daemon.key.as_str())];
        Connection::tcp(daemon.address, &[&key[..], more].concat()).await
    };
    let stranger = Connection::tcp(daemon.address, &[]).await;
    let (local, known) = (Connection::unix(&path).await, tcp(&[]).await);
    let packed = tcp(&[("grpc-encoding", "gzip")]).await;
    let hurried = tcp(&[("grpc-timeout", "20m")]).await;
    let unreadable = "InvalidArgument INVALID_ARGUMENT";
    let rows = [
        (&stranger, framed(&[]), "Unauthenticated UNAUTHENTICATED"),
        (&local, framed(&[]), "PermissionDenied PERMISSION_DENIED"),
        (&known, framed(&[0xff; 20]), unreadable),
        (&known, vec![], unreadable),
        (&known, framed(&[])[..3].to_vec(), unreadable),
        (&known, framed(&vec![0; (4 << 20) + 1]), "ResourceExhausted MESSAGE_TOO_LARGE"),
        (&packed, vec![1, 0, 0, 0, 0], "Unimplemented UNIMPLEMENTED"),
        (&known, framed(&[]), "Unavailable UNAVAILABLE"),
    ];
    let all = calls();
    assert_eq!(all.len(), 16);
    for call in &all {
        for (number, (connection, body, expected)) in rows.iter().enumerate() {
            let status = connection.raw(call, body.clone()).await;
            // Who only asks whether somebody is there needs no sandboxes.
            if call == PING && *expected == "Unavailable UNAVAILABLE" {
                assert_eq!(status.code(), Code::Ok);
            } else {
                assert_eq!(&refusal(&status), expected, "{call} {number}");
            }
        }
        let late = without_end(&hurried, call).await;
        assert_eq!(refusal(&late), "DeadlineExceeded DEADLINE_EXCEEDED", "{call}");
    }
    drop((stranger, local, known, packed, hurried));
    daemon.stop().await;
}

#[tokio::test]
async fn r08_every_call_that_is_refused_for_what_it_asks_names_it() {
    let server = Sandboxed::start().await;
    let mut client = server.local().await;
    for name in ["my-box", "old-box", "gone-box"] {
        client.create_sandbox(create(name)).await.unwrap();
        until(&mut client, name, v1::SandboxState::Ready).await;
    }
    run(&mut client, shell("my-box", "true", "run-1")).await;
    client.stop_sandbox(v1::StopSandboxRequest { sandbox_id: "old-box".into() }).await.unwrap();
    let latest = until(&mut client, "old-box", v1::SandboxState::Stopped).await.last_event_sequence;
    client
        .delete_sandbox(v1::DeleteSandboxRequest { sandbox_id: "gone-box".into() })
        .await
        .unwrap();
    until(&mut client, "gone-box", v1::SandboxState::Deleted).await;

    let mut rows = unknown("nobodys");
    rows.extend(malformed());
    rows.extend(in_the_wrong_state(latest));
    let refused: BTreeSet<_> =
        rows.iter().map(|row| row.call.clone()).chain(ASK_FOR_NOTHING.map(str::to_owned)).collect();
    assert_eq!(refused, calls(), "every call has a row");
    let local = Connection::unix(&server.socket).await;
    check(&local, &rows).await;

    // What is another tenant's does not exist for the caller.
    let key = other_key(server.daemon(), "another").await;
    let other = Connection::tcp(server.daemon().address, &[("x-api-key", &key)]).await;
    let mut rows = unknown("my-box");
    rows.retain(|row| !row.call.ends_with("Image"));
    let image = ringfence::v1::RemoveImageRequest { name: "nobodys".into() };
    let missing = "NotFound IMAGE_NOT_FOUND image=docker.io/library/nobodys:latest";
    rows.push(row("RemoveImage", &image, missing));
    check(&other, &rows).await;
}

/// Asks for what is not there, or not the caller's.
fn unknown(name: &str) -> Vec<Row> {
    let sandbox_id = || name.to_owned();
    let nowhere = format!("NotFound SANDBOX_NOT_FOUND sandbox_id={name}");
    let exec_id = || "run-1".replace("run", if name == "my-box" { "run" } else { "walk" });
    let never = format!("NotFound EXEC_NOT_FOUND exec_id={}", exec_id());
    // By its whole name.
    let image = format!("NotFound IMAGE_NOT_FOUND image=docker.io/library/{name}:latest");
    vec![
        row("GetSandbox", &v1::GetSandboxRequest { sandbox_id: sandbox_id() }, &nowhere),
        row("ResumeSandbox", &v1::ResumeSandboxRequest { sandbox_id: sandbox_id() }, &nowhere),
        row("StopSandbox", &v1::StopSandboxRequest { sandbox_id: sandbox_id() }, &nowhere),
        row("DeleteSandbox", &v1::DeleteSandboxRequest { sandbox_id: sandbox_id() }, &nowhere),
        row("SubscribeSandboxEvents", &subscribe(name, 0), &nowhere),
        row("CreateExec", &shell(name, "true", ""), &nowhere),
        row("CancelExec", &v1::CancelExecRequest { exec_id: exec_id() }, &never),
        row("GetExec", &v1::GetExecRequest { exec_id: exec_id() }, &never),
        row("RemoveImage", &ringfence::v1::RemoveImageRequest { name: sandbox_id() }, &image),
    ]
}

fn with_image(image: &str) -> v1::CreateSandboxRequest {
    let mut request = create("");
    image.clone_into(&mut request.create_spec.as_mut().unwrap().image);
    request
}

/// Asks for what cannot be asked for.
fn malformed() -> Vec<Row> {
    let nul = BTreeMap::from([("team".to_owned(), "\0".to_owned())]);
    let selector = "InvalidArgument INVALID_ARGUMENT field=label_selector";
    let command = v1::CreateExecRequest { sandbox_id: "my-box".into(), ..Default::default() };
    vec![
        row(
            "CreateSandbox",
            &v1::CreateSandboxRequest::default(),
            "InvalidArgument INVALID_ARGUMENT field=create_spec",
        ),
        row("CreateSandbox", &create("-"), "InvalidArgument INVALID_ARGUMENT field=sandbox_id"),
        row(
            "ListSandboxes",
            &v1::ListSandboxesRequest { include_deleted: true, label_selector: nul.clone() },
            selector,
        ),
        row("DeleteSandboxes", &v1::DeleteSandboxesRequest::default(), selector),
        row("DeleteSandboxes", &v1::DeleteSandboxesRequest { label_selector: nul }, selector),
        row("CreateExec", &command, "InvalidArgument INVALID_ARGUMENT field=command"),
        row(
            "CreateExec",
            &shell("my-box", "true", "-"),
            "InvalidArgument INVALID_ARGUMENT field=exec_id",
        ),
        row("CancelExec", &v1::CancelExecRequest::default(), "NotFound EXEC_NOT_FOUND exec_id="),
        row("GetExec", &v1::GetExecRequest::default(), "NotFound EXEC_NOT_FOUND exec_id="),
        row("CreateSandbox", &with_image("A B"), "InvalidArgument INVALID_ARGUMENT field=image"),
        row(
            "PullImage",
            &ringfence::v1::PullImageRequest { name: "A B".into() },
            "InvalidArgument INVALID_ARGUMENT field=name",
        ),
    ]
}

/// Asks for what cannot be as things stand: `my-box` is READY, `old-box` STOPPED with this many
/// events, `gone-box` DELETED.
fn in_the_wrong_state(latest: u64) -> Vec<Row> {
    let box_of = |name: &str| name.to_owned();
    let state = |name| format!("FailedPrecondition SANDBOX_INVALID_STATE sandbox_id={name}");
    let mut rows = vec![
        row(
            "CreateSandbox",
            &create("my-box"),
            "AlreadyExists SANDBOX_ID_ALREADY_EXISTS sandbox_id=my-box",
        ),
        row(
            "CreateSandbox",
            &create("sb_00000000000000000000000000"),
            "AlreadyExists SANDBOX_ID_ALREADY_EXISTS sandbox_id=sb_00000000000000000000000000",
        ),
        row(
            "CreateExec",
            &shell("my-box", "true", "run-1"),
            "AlreadyExists EXEC_ID_ALREADY_EXISTS exec_id=run-1",
        ),
        row(
            "CancelExec",
            &v1::CancelExecRequest { exec_id: "run-1".into() },
            "FailedPrecondition EXEC_ALREADY_TERMINAL exec_id=run-1",
        ),
        row(
            "SubscribeSandboxEvents",
            &subscribe("old-box", 99),
            &format!(
                "OutOfRange SANDBOX_EVENT_SEQUENCE_EXPIRED from_sequence=99,\
                 latest_sequence={latest},oldest_sequence=1,sandbox_id=old-box"
            ),
        ),
    ];
    for name in ["old-box", "gone-box"] {
        let not_ready = format!("FailedPrecondition SANDBOX_NOT_READY sandbox_id={name}");
        rows.push(row("CreateExec", &shell(name, "true", ""), &not_ready));
    }
    let stop = v1::StopSandboxRequest { sandbox_id: box_of("gone-box") };
    rows.push(row("StopSandbox", &stop, &state("gone-box")));
    let resume = v1::ResumeSandboxRequest { sandbox_id: box_of("gone-box") };
    rows.push(row("ResumeSandbox", &resume, &state("gone-box")));
    rows
}

#[tokio::test]
async fn r08_calls_that_change_something_say_that_the_store_takes_no_writes() {
    let server = Sandboxed::start().await;
    let mut client = server.local().await;
    let labels = BTreeMap::from([("team".to_owned(), "red".to_owned())]);
    for name in ["my-box", "old-box"] {
        let mut request = create(name);
        request.create_spec.as_mut().unwrap().labels = labels.clone();
        client.create_sandbox(request).await.unwrap();
        until(&mut client, name, v1::SandboxState::Ready).await;
    }
    client.create_exec(shell("my-box", "sleep 1000", "run-1")).await.unwrap();
    client.stop_sandbox(v1::StopSandboxRequest { sandbox_id: "old-box".into() }).await.unwrap();
    until(&mut client, "old-box", v1::SandboxState::Stopped).await;

    // What is written to a file that nobody finds again is not kept.
    let store = server.store();
    fs::rename(&store, store.with_extension("moved")).unwrap();
    fs::write(&store, b"").unwrap();
    let name = |name: &str| name.to_owned();
    let refused = "Unavailable UNAVAILABLE";
    let rows = [
        row("CreateSandbox", &create("new-box"), refused),
        row("ResumeSandbox", &v1::ResumeSandboxRequest { sandbox_id: name("old-box") }, refused),
        row("StopSandbox", &v1::StopSandboxRequest { sandbox_id: name("my-box") }, refused),
        row("DeleteSandbox", &v1::DeleteSandboxRequest { sandbox_id: name("my-box") }, refused),
        row("DeleteSandboxes", &v1::DeleteSandboxesRequest { label_selector: labels }, refused),
        row("CreateExec", &shell("my-box", "true", ""), refused),
        row("CancelExec", &v1::CancelExecRequest { exec_id: name("run-1") }, refused),
    ];
    check(&Connection::unix(&server.socket).await, &rows).await;
    // Nothing was begun, and all of it is still there to read.
    assert_eq!(get(&mut client, "my-box").await.state(), v1::SandboxState::Ready);
    assert_eq!(get(&mut client, "old-box").await.state(), v1::SandboxState::Stopped);
    assert_eq!(exec(&mut client, "run-1").await.state(), v1::ExecState::Running);
}
