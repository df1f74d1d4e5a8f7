//! R02: messages that no client of the contract writes, byte by byte.

use std::collections::{BTreeMap, BTreeSet};

use api::agbox::{
    DESCRIPTOR,
    v1::{self, sandbox_event::Details},
};
use prost::{Message as _, encoding::encode_varint};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use tonic::Code;

use crate::{
    caller::{Connection, framed, refusal},
    sandboxed::{Sandboxed, get},
};

fn number(field: u64, value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_varint(field << 3, &mut bytes);
    encode_varint(value, &mut bytes);
    bytes
}

fn content(field: u64, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_varint(field << 3 | 2, &mut bytes);
    encode_varint(u64::try_from(content.len()).unwrap(), &mut bytes);
    [bytes, content.to_vec()].concat()
}

/// Writes the request of a sandbox that publishes a port, whose protocol is written like this.
fn publishing(protocol: &[u8]) -> Vec<u8> {
    let port = [number(1, 80), number(2, 18_080), protocol.to_vec()].concat();
    content(1, &[content(1, b"host"), content(9, &port)].concat())
}

#[tokio::test]
async fn r02_a_value_that_an_enum_does_not_have_is_refused_by_its_field() {
    let server = Sandboxed::start().await;
    let connection = Connection::unix(&server.socket).await;
    let path = "/agbox.v1.SandboxService/CreateSandbox";
    let unknown = "InvalidArgument INVALID_ARGUMENT field=ports[0].protocol";
    let unreadable = "InvalidArgument INVALID_ARGUMENT";
    let rows = [
        (number(3, 3), unknown),
        (number(3, 99), unknown),
        (number(3, u64::from(i32::MAX.unsigned_abs())), unknown),
        // Minus one.
        (number(3, u64::MAX), unknown),
        // Of a value that is there twice the last one counts.
        ([number(3, 0), number(3, 7)].concat(), unknown),
        (content(3, b"TCP"), unreadable),
        (vec![3 << 3 | 5, 0, 0, 0, 0], unreadable),
        (vec![3 << 3, 0xff], unreadable),
    ];
    for (protocol, expected) in rows {
        let status = connection.raw(path, framed(&publishing(&protocol))).await;
        assert_eq!(refusal(&status), expected, "{protocol:?}");
    }
    // These it has: what is said of them is another matter.
    for protocol in [1, 2] {
        let status = connection.raw(path, framed(&publishing(&number(3, protocol)))).await;
        assert_ne!(refusal(&status), unknown, "{protocol}");
    }
    let mut client = server.local().await;
    let listed = client.list_sandboxes(v1::ListSandboxesRequest::default()).await.unwrap();
    assert!(listed.into_inner().sandboxes.is_empty(), "nothing of it was taken");
}

/// Returns which messages are in this one, however deep.
fn within<'a>(name: &'a str, all: &'a BTreeMap<String, DescriptorProto>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut left = vec![name];
    while let Some(name) = left.pop() {
        if let Some((name, message)) = all.get_key_value(name)
            && found.insert(name.as_str())
        {
            left.extend(message.field.iter().map(FieldDescriptorProto::type_name));
        }
    }
    found
}

/// The answers have one, the requests have none, so that nobody can send two of its members.
#[test]
fn r02_no_request_has_a_oneof_and_of_two_members_in_an_answer_the_last_counts() {
    let files = FileDescriptorSet::decode(DESCRIPTOR).unwrap();
    let service = files.file.iter().flat_map(|file| &file.service).next().unwrap();
    let all: BTreeMap<_, _> = files
        .file
        .iter()
        .flat_map(|file| file.message_type.iter().map(move |it| (file.package(), it.clone())))
        .map(|(package, it)| (format!(".{package}.{}", it.name()), it))
        .collect();
    let has_oneof = |name: &&str| {
        let real =
            |field: &FieldDescriptorProto| field.oneof_index.is_some() && !field.proto3_optional();
        all[*name].field.iter().any(real)
    };
    for method in &service.method {
        let with: Vec<_> =
            within(method.input_type(), &all).into_iter().filter(has_oneof).collect();
        assert_eq!(with, Vec::<&str>::new(), "{}", method.name());
    }
    let with: Vec<_> =
        within(".agbox.v1.SandboxEvent", &all).into_iter().filter(has_oneof).collect();
    assert_eq!(with, [".agbox.v1.SandboxEvent"]);

    let phase = content(9, &content(1, b"materialize"));
    let exec = content(10, &content(1, b"run-1"));
    let both = v1::SandboxEvent::decode([phase, exec].concat().as_slice()).unwrap();
    let expected = v1::ExecEventDetails { exec_id: "run-1".into(), ..Default::default() };
    assert_eq!(both.details, Some(Details::Exec(expected)));
}

#[tokio::test]
async fn r02_what_is_in_a_message_twice_counts_as_the_contract_of_messages_says() {
    let server = Sandboxed::start().await;
    let connection = Connection::unix(&server.socket).await;
    // The parts of a message that is there twice are put together; of a name the last one counts.
    let label = content(6, &[content(1, b"team"), content(2, b"red")].concat());
    let request = [
        content(1, &content(1, b"host")),
        content(2, b"first-box"),
        content(1, &label),
        content(2, b"my-box"),
    ];
    let path = "/agbox.v1.SandboxService/CreateSandbox";
    let status = connection.raw(path, framed(&request.concat())).await;
    assert_eq!(status.code(), Code::Ok, "{status:?}");
    let sandbox = get(&mut server.local().await, "my-box").await;
    assert_eq!(sandbox.labels, BTreeMap::from([("team".to_owned(), "red".to_owned())]));
    let names = |names: [&[u8]; 2]| framed(&names.map(|name| content(1, name)).concat());
    let path = "/agbox.v1.SandboxService/GetSandbox";
    let last = connection.raw(path, names([b"nobodys", b"my-box"])).await;
    assert_eq!(last.code(), Code::Ok);
    let last = connection.raw(path, names([b"my-box", b"nobodys"])).await;
    assert_eq!(refusal(&last), "NotFound SANDBOX_NOT_FOUND sandbox_id=nobodys");
}
