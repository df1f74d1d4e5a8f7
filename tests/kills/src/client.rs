//! One client: makes calls and subscribes, and writes down what it was told.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use api::agbox::v1::{self, sandbox_service_client::SandboxServiceClient};
use history::{
    entry::{
        Answer, Call, Doubt, Ending, ExecView, Expectation, Outcome, Refusal, SandboxView,
        Subscribed, What, Which,
    },
    event::{Event, ExecState, Kind, Loss, State},
    recorder::Recorder,
};
use hyper_util::rt::TokioIo;
use tokio::{net::UnixStream, time::timeout};
use tonic::{
    Code, Request, Status,
    transport::{Channel, Endpoint, Uri},
};
use tonic_types::StatusExt as _;
use tower::service_fn;

/// A call that takes longer has an unknown outcome.
const DEADLINE: Duration = Duration::from_secs(20);

/// What all clients of a run share.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) recorder: Recorder,
    pub(crate) socket: PathBuf,
    next_client: AtomicU32,
    next_subscription: AtomicU64,
}

impl Run {
    pub(crate) fn new(history: &Path, socket: PathBuf) -> anyhow::Result<Arc<Self>> {
        let recorder = Recorder::create(history).context("cannot write a history")?;
        let (next_client, next_subscription) = (AtomicU32::new(1), AtomicU64::new(1));
        Ok(Arc::new(Self { recorder, socket, next_client, next_subscription }))
    }

    pub(crate) fn client(self: &Arc<Self>) -> Client {
        let number = self.next_client.fetch_add(1, Ordering::Relaxed);
        Client { run: Arc::clone(self), number, channel: None }
    }
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) run: Arc<Run>,
    pub(crate) number: u32,
    channel: Option<SandboxServiceClient<Channel>>,
}

/// What a subscription was told.
#[derive(Debug)]
pub(crate) enum Followed {
    /// So far, without an end.
    UpTo(u64),
    /// The connection broke, or the server was not there.
    Broken(u64),
    Over,
}

impl Client {
    /// Connects, if it is not connected. `None`: nobody is there.
    async fn connected(&mut self) -> Option<SandboxServiceClient<Channel>> {
        if self.channel.is_none() {
            let socket = self.run.socket.clone();
            let connect = service_fn(move |_: Uri| {
                let socket = socket.clone();
                async move { UnixStream::connect(socket).await.map(TokioIo::new) }
            });
            let endpoint = Endpoint::from_static("http://localhost");
            let channel = endpoint.connect_with_connector(connect).await.ok()?;
            self.channel = Some(SandboxServiceClient::new(channel));
        }
        self.channel.clone()
    }

    /// Makes a call and writes down what came of it. `None`: nobody was there to be asked.
    pub(crate) async fn call(&mut self, call: Call, wire: Wire) -> anyhow::Result<Option<Outcome>> {
        let Some(channel) = self.connected().await else { return Ok(None) };
        let start = self.run.recorder.now();
        let outcome = match timeout(DEADLINE, wire.send(channel)).await {
            Ok(Ok(answer)) => Outcome::Acknowledged(answer),
            Ok(Err(status)) => outcome_of(&status),
            Err(_elapsed) => Outcome::Unknown(Doubt::DeadlinePassed),
        };
        if matches!(outcome, Outcome::Unknown(_)) {
            self.channel = None;
        }
        let what = What::Call { call, outcome: outcome.clone() };
        self.run.recorder.record(self.number, None, start, what)?;
        Ok(Some(outcome))
    }

    /// Follows a sandbox until this many events were seen, or nothing comes for a while.
    pub(crate) async fn follow(
        &mut self,
        sandbox: &str,
        from_sequence: u64,
        snapshot: bool,
        events: usize,
        patience: Duration,
    ) -> anyhow::Result<Followed> {
        let Some(mut channel) = self.connected().await else {
            return Ok(Followed::Broken(from_sequence));
        };
        let subscription = self.run.next_subscription.fetch_add(1, Ordering::Relaxed);
        let subscribed =
            Subscribed { subscription, sandbox: sandbox.to_owned(), from_sequence, snapshot };
        let start = self.run.recorder.now();
        self.record(start, What::Subscribed(subscribed))?;
        let request = v1::SubscribeSandboxEventsRequest {
            sandbox_id: sandbox.to_owned(),
            from_sequence,
            include_current_snapshot: snapshot,
        };
        let mut last = from_sequence;
        let mut stream = match timeout(DEADLINE, channel.subscribe_sandbox_events(request)).await {
            Ok(Ok(stream)) => stream.into_inner(),
            Ok(Err(status)) => return self.ended(subscription, last, &status),
            Err(_elapsed) => {
                let status = Status::unavailable("no answer");
                return self.ended(subscription, last, &status);
            }
        };
        for _ in 0..events {
            match timeout(patience, stream.message()).await {
                Ok(Ok(Some(event))) => {
                    let start = self.run.recorder.now();
                    let event = event_of(&event);
                    if !event.snapshot {
                        last = last.max(event.sequence);
                    }
                    self.record(start, What::Event { subscription, event })?;
                }
                Ok(Ok(None)) => {
                    self.end(subscription, Ending::Clean)?;
                    return Ok(Followed::Over);
                }
                Ok(Err(status)) => return self.ended(subscription, last, &status),
                Err(_nothing_came) => break,
            }
        }
        self.end(subscription, Ending::Dropped)?;
        Ok(Followed::UpTo(last))
    }

    fn ended(&mut self, subscription: u64, last: u64, status: &Status) -> anyhow::Result<Followed> {
        let (how, followed) = match outcome_of(status) {
            Outcome::Unknown(_) => (Ending::ConnectionBroke, Followed::Broken(last)),
            _ if status.code() == Code::OutOfRange => (Ending::OutOfRange, Followed::Over),
            Outcome::Refused(refusal) => (Ending::Refused(refusal), Followed::Over),
            Outcome::Acknowledged(_) => (Ending::Clean, Followed::Over),
        };
        if matches!(followed, Followed::Broken(_)) {
            self.channel = None;
        }
        self.end(subscription, how)?;
        Ok(followed)
    }

    fn end(&self, subscription: u64, how: Ending) -> anyhow::Result<()> {
        self.record(self.run.recorder.now(), What::Ended { subscription, how })
    }

    fn record(&self, start: history::entry::Time, what: What) -> anyhow::Result<()> {
        self.run.recorder.record(self.number, None, start, what)?;
        Ok(())
    }

    /// Reads all events that there are of a sandbox, from the first.
    pub(crate) async fn replay(
        &mut self,
        sandbox: &str,
        latest: u64,
    ) -> anyhow::Result<Vec<Event>> {
        let mut channel = self.connected().await.context("the server is gone")?;
        let request = v1::SubscribeSandboxEventsRequest {
            sandbox_id: sandbox.to_owned(),
            ..v1::SubscribeSandboxEventsRequest::default()
        };
        let mut stream = channel.subscribe_sandbox_events(request).await?.into_inner();
        let mut events = Vec::new();
        while events.last().is_none_or(|event: &Event| event.sequence < latest) {
            let event = timeout(DEADLINE, stream.message()).await??;
            let Some(event) = event else { break };
            events.push(event_of(&event));
        }
        Ok(events)
    }
}

/// A call as it goes over the wire.
#[derive(Clone, Debug)]
pub(crate) enum Wire {
    Create(Box<v1::CreateSandboxRequest>),
    Exec(v1::CreateExecRequest),
    Cancel(String),
    Stop(String),
    Resume(String),
    Delete(String),
    Get(String),
    List { include_deleted: bool },
    GetExec(String),
    ListActive(Option<String>),
}

impl Wire {
    async fn send(self, mut channel: SandboxServiceClient<Channel>) -> Result<Answer, Status> {
        match self {
            Self::Create(request) => {
                let answer = channel.create_sandbox(Request::new(*request)).await?.into_inner();
                sandbox_view(answer.sandbox).map(Answer::Sandbox)
            }
            Self::Exec(request) => {
                let exec = channel.create_exec(request).await?.into_inner().exec_id;
                Ok(Answer::Started { exec })
            }
            Self::Cancel(exec_id) => {
                channel.cancel_exec(v1::CancelExecRequest { exec_id }).await?;
                Ok(Answer::Accepted)
            }
            Self::Stop(sandbox_id) => {
                channel.stop_sandbox(v1::StopSandboxRequest { sandbox_id }).await?;
                Ok(Answer::Accepted)
            }
            Self::Resume(sandbox_id) => {
                channel.resume_sandbox(v1::ResumeSandboxRequest { sandbox_id }).await?;
                Ok(Answer::Accepted)
            }
            Self::Delete(sandbox_id) => {
                channel.delete_sandbox(v1::DeleteSandboxRequest { sandbox_id }).await?;
                Ok(Answer::Accepted)
            }
            Self::Get(sandbox_id) => {
                let request = v1::GetSandboxRequest { sandbox_id };
                let answer = channel.get_sandbox(request).await?.into_inner();
                sandbox_view(answer.sandbox).map(Answer::Sandbox)
            }
            Self::List { include_deleted } => {
                let request = v1::ListSandboxesRequest {
                    include_deleted,
                    ..v1::ListSandboxesRequest::default()
                };
                let answer = channel.list_sandboxes(request).await?.into_inner();
                let views = answer.sandboxes.into_iter().map(|handle| sandbox_view(Some(handle)));
                views.collect::<Result<_, _>>().map(Answer::Sandboxes)
            }
            Self::GetExec(exec_id) => {
                let answer = channel.get_exec(v1::GetExecRequest { exec_id }).await?.into_inner();
                exec_view(answer.exec).map(Answer::Exec)
            }
            Self::ListActive(sandbox_id) => {
                let request = v1::ListActiveExecsRequest { sandbox_id };
                let answer = channel.list_active_execs(request).await?.into_inner();
                let views = answer.execs.into_iter().map(|exec| exec_view(Some(exec)));
                views.collect::<Result<_, _>>().map(Answer::Execs)
            }
        }
    }
}

pub(crate) fn list(which: Which) -> (Call, Wire) {
    (Call::List { which }, Wire::List { include_deleted: which == Which::All })
}

/// A command whose end is known: it prints the numbers up to this and exits with this code.
pub(crate) fn numbers(sandbox: &str, exec: &str, lines: u64, code: i32) -> (Call, Wire) {
    let script =
        format!("i=0; while [ $i -lt {lines} ]; do i=$((i+1)); echo $i; done; exit {code}");
    let expect = Expectation { exit_code: code, lines: Some(lines), digest: None };
    let request = v1::CreateExecRequest {
        sandbox_id: sandbox.to_owned(),
        command: ["/bin/sh", "-c", &script].map(str::to_owned).to_vec(),
        exec_id: exec.to_owned(),
        ..v1::CreateExecRequest::default()
    };
    let (sandbox, exec) = (sandbox.to_owned(), Some(exec.to_owned()));
    (Call::Exec { sandbox, exec, expect: Some(expect) }, Wire::Exec(request))
}

fn sandbox_view(handle: Option<v1::SandboxHandle>) -> Result<SandboxView, Status> {
    let handle = handle.ok_or_else(|| Status::data_loss("an answer without its sandbox"))?;
    let state = State::from_agbox(handle.state)
        .ok_or_else(|| Status::data_loss("a sandbox without a state"))?;
    let last_event_sequence = handle.last_event_sequence;
    Ok(SandboxView { sandbox: handle.sandbox_id, state, last_event_sequence })
}

fn exec_view(exec: Option<v1::ExecStatus>) -> Result<ExecView, Status> {
    let exec = exec.ok_or_else(|| Status::data_loss("an answer without its exec"))?;
    let state = ExecState::from_agbox(exec.state)
        .ok_or_else(|| Status::data_loss("an exec without a state"))?;
    Ok(ExecView {
        exec: exec.exec_id,
        sandbox: exec.sandbox_id,
        state,
        exit_code: state.exit_code(exec.exit_code),
        last_event_sequence: exec.last_event_sequence,
    })
}

/// A status with a reason of the protocol is the server's word; anything else says nothing of what
/// was done.
fn outcome_of(status: &Status) -> Outcome {
    match status.get_details_error_info() {
        Some(info) if status.code() != Code::Unavailable => {
            Outcome::Refused(Refusal::from_reason(&info.reason))
        }
        _ if status.code() == Code::DeadlineExceeded => Outcome::Unknown(Doubt::DeadlinePassed),
        _ => Outcome::Unknown(Doubt::ConnectionBroke),
    }
}

fn event_of(event: &v1::SandboxEvent) -> Event {
    use v1::sandbox_event::Details;
    let mut phase = "";
    let (mut exec, mut exit_code, mut loss, mut details) = (None, None, None, String::new());
    let mut companion = None;
    match &event.details {
        Some(Details::SandboxPhase(told)) => {
            phase = &told.phase;
            details = format!("{told:?}");
        }
        Some(Details::Exec(told)) => {
            exec = Some(told.exec_id.clone());
            let state = ExecState::from_agbox(told.exec_state);
            exit_code = state.and_then(|state| state.exit_code(told.exit_code));
            let is_lost = state == Some(ExecState::Failed) && exit_code.is_none();
            loss = is_lost.then(|| Loss::from_code(&told.error_code));
            details = format!("{} {}", told.error_code, told.error_message);
        }
        Some(Details::CompanionContainer(told)) => {
            companion = Some(told.name.clone());
            details = format!("{told:?}");
        }
        None => {}
    }
    let at = event.occurred_at.unwrap_or_default();
    Event {
        sandbox: event.sandbox_id.clone(),
        sequence: event.sequence,
        kind: Kind::from_agbox(event.event_type, phase).unwrap_or(Kind::Note),
        state: State::from_agbox(event.sandbox_state),
        exec,
        exit_code,
        loss,
        companion,
        occurred_at: at.seconds * 1_000_000_000 + i64::from(at.nanos),
        details,
        replay: event.replay,
        snapshot: event.snapshot,
    }
}
