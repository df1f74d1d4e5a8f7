//! R05: callers that go away at any moment of a call. What they asked for is done or it is not.

use std::path::Path;

use api::agbox::v1;
use prost::Message;
use tokio::{io::AsyncWriteExt as _, net::UnixStream};

use crate::{
    caller::{framed, next, refusal, subscribe},
    http2::{self, DATA, END_HEADERS, END_STREAM, Frame, HEADERS, RESET, frame},
    sandboxed::{Sandboxed, create, ended, run, shell, until},
};

/// When a caller goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// After so many frames of the request, which has four.
    Asked(usize),
    /// When the server has answered so many pings after the whole request.
    Waited(usize),
    /// After so many frames of the answer, which has three.
    Answered(usize),
}

/// How he goes.
#[derive(Clone, Copy, Debug)]
enum Going {
    /// He takes the call back.
    Reset,
    /// He closes the connection.
    Close,
}

/// What was heard of the answer until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Nothing,
    Something,
}

/// Makes a call and goes away.
async fn leave(
    socket: &Path,
    call: &str,
    message: &impl Message,
    (moment, going): (Moment, Going),
) -> Heard {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    stream.write_all(&http2::hello()).await.unwrap();
    let block = http2::call(&format!("/agbox.v1.SandboxService/{call}"), &[]);
    let body = framed(&message.encode_to_vec());
    let (first, rest) = body.split_at(3);
    let (second, third) = rest.split_at(rest.len() / 2);
    let request = [
        frame(HEADERS, END_HEADERS, 1, &block),
        frame(DATA, 0, 1, first),
        frame(DATA, 0, 1, second),
        frame(DATA, END_STREAM, 1, third),
    ];
    let asked = if let Moment::Asked(frames) = moment { frames } else { request.len() };
    stream.write_all(&request[..asked].concat()).await.unwrap();
    let is_answer = |frame: &Frame| frame.stream == 1 && [DATA, HEADERS].contains(&frame.kind);
    let mut heard = 0;
    match moment {
        Moment::Asked(_) => {}
        Moment::Waited(pings) => {
            for _ in 0..pings {
                let before = http2::ping(&mut stream).await.unwrap();
                heard += before.iter().filter(|frame| is_answer(frame)).count();
            }
        }
        Moment::Answered(frames) => {
            while heard < frames {
                heard += usize::from(is_answer(&http2::next(&mut stream).await.unwrap()));
            }
        }
    }
    if let Going::Reset = going {
        stream.write_all(&frame(RESET, 0, 1, &[0, 0, 0, 8])).await.unwrap();
        http2::ping(&mut stream).await.unwrap();
    }
    if heard == 0 { Heard::Nothing } else { Heard::Something }
}

/// Goes through the moments of a call, until one at which the answer is there.
struct Moments {
    left: Vec<(Moment, Going)>,
}

impl Moments {
    fn new() -> Self {
        let asked = (1..=4).map(Moment::Asked);
        let all = asked.chain((1..=3).map(Moment::Answered)).chain([Moment::Waited(1)]);
        let left = all.flat_map(|moment| [(moment, Going::Reset), (moment, Going::Close)]);
        Self { left: left.rev().collect() }
    }

    fn next(&mut self) -> Option<(Moment, Going)> {
        self.left.pop()
    }

    /// Whoever waited and heard nothing is followed by one who waits longer.
    fn heard(&mut self, (moment, going): (Moment, Going), heard: Heard) {
        if let (Moment::Waited(pings), Heard::Nothing) = (moment, heard) {
            assert!(pings < 1 << 16, "a call is not answered");
            self.left.push((Moment::Waited(pings + pings.div_ceil(2)), going));
        }
    }
}

/// Checks that a call which is made again was taken now, or before, as it must be at this moment.
fn was_taken_once<T: std::fmt::Debug>(
    again: Result<T, tonic::Status>,
    before: &str,
    moment: Moment,
) {
    match again {
        // A request that was not whole is none, and one that was answered is one.
        Ok(_) => assert!(!matches!(moment, Moment::Answered(_)), "{moment:?} was not taken"),
        Err(status) => {
            assert_eq!(refusal(&status), before, "{moment:?}");
            assert!(!matches!(moment, Moment::Asked(0..4)), "{moment:?} was taken");
        }
    }
}

#[tokio::test]
async fn r05_a_creation_whose_caller_goes_at_any_moment_is_done_or_is_not() {
    let server = Sandboxed::start().await;
    let mut client = server.local().await;
    let mut moments = Moments::new();
    let mut number = 0;
    while let Some(moment) = moments.next() {
        let name = format!("box-{number}");
        number += 1;
        let heard = leave(&server.socket, "CreateSandbox", &create(&name), moment).await;
        moments.heard(moment, heard);
        let before = format!("AlreadyExists SANDBOX_ID_ALREADY_EXISTS sandbox_id={name}");
        was_taken_once(client.create_sandbox(create(&name)).await, &before, moment.0);
        let ready = until(&mut client, &name, v1::SandboxState::Ready).await;
        assert_eq!(ready.last_event_sequence, 3, "{moment:?}: it was made once");
        let delete = v1::DeleteSandboxRequest { sandbox_id: name.clone() };
        client.delete_sandbox(delete).await.unwrap();
        until(&mut client, &name, v1::SandboxState::Deleted).await;
    }
    let request = v1::ListSandboxesRequest { include_deleted: true, ..Default::default() };
    let listed = client.list_sandboxes(request).await.unwrap().into_inner().sandboxes;
    assert_eq!(listed.len(), number);
}

#[tokio::test]
async fn r05_a_command_whose_caller_goes_at_any_moment_runs_once_or_not_at_all() {
    let server = Sandboxed::start().await;
    let mut client = server.local().await;
    client.create_sandbox(create("my-box")).await.unwrap();
    until(&mut client, "my-box", v1::SandboxState::Ready).await;
    let mut moments = Moments::new();
    let mut number = 0;
    while let Some(moment) = moments.next() {
        let id = format!("run-{number}");
        number += 1;
        let request = || shell("my-box", &format!("echo once >> /tmp/{id}"), &id);
        let heard = leave(&server.socket, "CreateExec", &request(), moment).await;
        moments.heard(moment, heard);
        let before = format!("AlreadyExists EXEC_ID_ALREADY_EXISTS exec_id={id}");
        was_taken_once(client.create_exec(request()).await, &before, moment.0);
        let end = ended(&mut client, "my-box", &id).await;
        assert_eq!((end.state(), end.exit_code), (v1::ExecState::Finished, 0), "{moment:?}");
        let (_, said) = run(&mut client, shell("my-box", &format!("cat /tmp/{id}"), "")).await;
        assert_eq!(said, "once\n", "{moment:?}");
    }
}

#[tokio::test]
async fn r05_a_deletion_whose_caller_goes_at_any_moment_is_done_once_or_not_at_all() {
    let server = Sandboxed::start().await;
    let mut client = server.local().await;
    let mut moments = Moments::new();
    let mut number = 0;
    while let Some(moment) = moments.next() {
        let name = format!("box-{number}");
        number += 1;
        client.create_sandbox(create(&name)).await.unwrap();
        let ready = until(&mut client, &name, v1::SandboxState::Ready).await;
        let request = v1::DeleteSandboxRequest { sandbox_id: name.clone() };
        let heard = leave(&server.socket, "DeleteSandbox", &request, moment).await;
        moments.heard(moment, heard);
        if let Moment::Asked(0..4) = moment.0 {
            let now = ready.last_event_sequence;
            let (state, _) = run(&mut client, shell(&name, "true", "")).await;
            assert_eq!(state.state(), v1::ExecState::Finished, "{moment:?}: it is still there");
            assert_eq!(state.last_event_sequence, now + 2);
        }
        if let Moment::Answered(_) = moment.0 {
            until(&mut client, &name, v1::SandboxState::Deleted).await;
        }
        assert!(client.delete_sandbox(request).await.unwrap().into_inner().accepted);
        let deleted = until(&mut client, &name, v1::SandboxState::Deleted).await;
        let events = client.subscribe_sandbox_events(subscribe(&name, 0)).await.unwrap();
        let mut events = events.into_inner();
        let mut asked = 0;
        for _ in 0..deleted.last_event_sequence {
            let kind = next(&mut events).await.event_type();
            asked += usize::from(kind == v1::EventType::SandboxDeleteRequested);
        }
        assert_eq!(asked, 1, "{moment:?}");
    }
}
