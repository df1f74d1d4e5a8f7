//! A server that keeps its promises, and clients of it: `model` decides what happens, chance decides
//! when, and the entries are what the clients can see of it. It is killed now and then.

use std::collections::{BTreeMap, VecDeque};

use history::{
    entry::{
        Answer, Call, Doubt, Ending, Entry, ExecView, Expectation, Outcome, Refusal, SandboxView,
        Subscribed, Time, What, Which,
    },
    event::{Event, ExecState, Kind, State},
};
use model::{
    execution::Exit,
    ids::{ExecId, SandboxId},
    image::UsedImages,
    life::{Crash, EndCause, Failure, FailureCause, Phase, SuspendReason},
    sandbox::{self, Request, Sandbox, WhenStopped},
    spec::{ExecSpec, SandboxSpec},
    transition::{Creation, Observation, Transition},
    units::Timestamp,
};

use crate::agbox;

mod machine;

/// Numbers that look random and are the same for the same seed.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) >> 33).unwrap_or(0) % bound.max(1)
    }

    pub(crate) fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[self.below(from.len())].clone()) }
    }
}

struct Box {
    id: String,
    sandbox: Sandbox,
    events: Vec<Event>,
}

#[derive(Clone)]
struct Exec {
    sandbox: usize,
    code: i32,
    lines: u64,
    expected: bool,
}

struct Flight {
    call: Call,
    start: Time,
    outcome: Option<Outcome>,
}

struct Stream {
    number: u64,
    sandbox: usize,
    waiting: VecDeque<Event>,
    next: usize,
}

/// The server and its clients.
pub(crate) struct World {
    chance: Chance,
    now: u64,
    life: u32,
    boxes: Vec<Box>,
    names: BTreeMap<String, usize>,
    execs: BTreeMap<String, Exec>,
    clients: Vec<Option<Flight>>,
    /// Calls whose clients gave up waiting.
    lingering: Vec<Call>,
    streams: Vec<Stream>,
    numbers: u64,
    ready_since: u64,
    /// Whether the server was killed since each exec was asked for.
    killed_since: BTreeMap<String, bool>,
    pub(crate) entries: Vec<Entry>,
}

/// Returns the history of a run of so many steps.
pub(crate) fn run(seed: u64, steps: usize) -> Vec<Entry> {
    let mut world = World {
        chance: Chance::new(seed),
        now: 0,
        life: 1,
        boxes: Vec::new(),
        names: BTreeMap::new(),
        execs: BTreeMap::new(),
        clients: (0..3).map(|_| None).collect(),
        lingering: Vec::new(),
        streams: Vec::new(),
        numbers: 0,
        ready_since: 0,
        killed_since: BTreeMap::new(),
        entries: Vec::new(),
    };
    for _ in 0..steps {
        world.step();
    }
    world.finish();
    world.entries
}

impl World {
    fn step(&mut self) {
        self.now += 10;
        match self.chance.below(100) {
            0..45 => self.move_client(),
            45..65 => self.see_something(),
            65..88 => self.move_stream(),
            88..89 => self.kill(),
            89..90 => self.harm(),
            90..92 => self.move_stream(),
            92..94 => self.apply_lingering(),
            94..96 => self.record_processes(),
            96..98 => self.record_machine(),
            _ => self.record_output(),
        }
    }

    fn record(&mut self, client: usize, start: Time, what: What) {
        let client = u32::try_from(client).unwrap_or(0);
        let is_answer = matches!(&what, What::Call { outcome: Outcome::Acknowledged(_), .. });
        let life = is_answer.then_some(self.life);
        self.entries.push(Entry { client, life, start, end: Time(self.now), what });
    }

    fn note(&mut self, what: What) {
        let now = Time(self.now);
        self.record(9, now, what);
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_millis(i64::try_from(self.now).unwrap_or(0))
    }

    fn move_client(&mut self) {
        let client = self.chance.below(self.clients.len());
        let Some(mut flight) = self.clients[client].take() else {
            let call = self.choose_call();
            self.note_asked(&call);
            let start = Time(self.now);
            self.clients[client] = Some(Flight { call, start, outcome: None });
            return;
        };
        if let Some(outcome) = flight.outcome.take() {
            self.record(client, flight.start, What::Call { call: flight.call, outcome });
        } else if self.chance.one_in(12) {
            let outcome = Outcome::Unknown(Doubt::DeadlinePassed);
            self.lingering.push(flight.call.clone());
            self.record(client, flight.start, What::Call { call: flight.call, outcome });
        } else {
            flight.outcome = Some(self.carry_out(&flight.call));
            self.clients[client] = Some(flight);
        }
    }

    fn note_asked(&mut self, call: &Call) {
        if let Call::Exec { exec: Some(exec), .. } = call {
            self.killed_since.entry(exec.clone()).or_insert(false);
        }
    }

    fn choose_call(&mut self) -> Call {
        // Mostly the last ones, which live; now and then one that is not there yet.
        let oldest = self.boxes.len().saturating_sub(3);
        let sandbox = format!("box-{}", oldest + self.chance.below(self.boxes.len().min(3) + 1));
        let oldest_exec = self.execs.len().saturating_sub(4);
        let exec = format!("exec-{}", oldest_exec + self.chance.below(6));
        if self.boxes.is_empty() && self.chance.one_in(2) {
            return Call::Create { sandbox: Some("box-0".into()) };
        }
        match self.chance.below(18) {
            0 if self.chance.one_in(2) => {
                Call::Create { sandbox: Some(format!("box-{}", self.boxes.len())) }
            }
            0 => Call::Create { sandbox: Some(sandbox) },
            1..=5 | 16 | 17 => {
                let exec = format!("exec-{}", self.execs.len() + self.chance.below(3));
                let (exit_code, lines) = expected_end(&exec);
                let expect = Expectation { exit_code, lines: Some(lines), digest: None };
                let expect = (!self.chance.one_in(4)).then_some(expect);
                Call::Exec { sandbox, exec: Some(exec), expect }
            }
            6 => Call::Cancel { exec },
            7 => Call::Stop { sandbox },
            8 | 9 => Call::Resume { sandbox },
            10 if self.chance.one_in(3) => Call::Delete { sandbox },
            10..=12 => Call::Get { sandbox },
            13 => {
                let all = [Which::Live, Which::All, Which::Chosen];
                Call::List { which: self.chance.pick(&all).unwrap_or(Which::All) }
            }
            14 => Call::GetExec { exec },
            _ if self.chance.one_in(2) => Call::ListActive { sandbox: None },
            _ => Call::ListActive { sandbox: Some(sandbox) },
        }
    }

    /// Does what a call asks for, at this moment.
    fn carry_out(&mut self, call: &Call) -> Outcome {
        match self.answer(call) {
            Ok(answer) => Outcome::Acknowledged(answer),
            Err(refusal) => Outcome::Refused(refusal),
        }
    }

    fn answer(&mut self, call: &Call) -> Result<Answer, Refusal> {
        match call {
            Call::Create { sandbox } => {
                let id = sandbox.clone().unwrap_or_default();
                let number = self.create(id)?;
                Ok(Answer::Sandbox(self.view(number)))
            }
            Call::Exec { sandbox, exec, .. } => {
                let number = self.find(sandbox)?;
                let id = exec.clone().unwrap_or_default();
                if self.execs.contains_key(&id) {
                    return Err(Refusal::AlreadyExists);
                }
                self.start(number, &id, call)?;
                Ok(Answer::Started { exec: id })
            }
            Call::Cancel { exec } => {
                let number = self.execs.get(exec).ok_or(Refusal::NotFound)?.sandbox;
                self.ask(number, Request::CancelExec(exec_id(exec)))
                    .map_err(|_refused| Refusal::AlreadyTerminal)?;
                Ok(Answer::Accepted)
            }
            Call::Stop { sandbox } => {
                let number = self.find(sandbox)?;
                self.ask(number, Request::Stop(SuspendReason::Requested))
                    .map_err(|_refused| Refusal::InvalidState)?;
                Ok(Answer::Accepted)
            }
            Call::Resume { sandbox } => {
                let number = self.find(sandbox)?;
                self.ask(number, Request::Resume).map_err(|_refused| Refusal::InvalidState)?;
                Ok(Answer::Accepted)
            }
            Call::Delete { sandbox } => {
                let number = self.find(sandbox)?;
                self.ask(number, Request::Delete(EndCause::Requested))
                    .map_err(|_refused| Refusal::InvalidState)?;
                Ok(Answer::Accepted)
            }
            Call::Get { sandbox } => {
                let number = self.find(sandbox)?;
                Ok(Answer::Sandbox(self.view(number)))
            }
            Call::List { which } => {
                let mut views: Vec<SandboxView> =
                    (0..self.boxes.len()).map(|number| self.view(number)).collect();
                match which {
                    Which::All => {}
                    Which::Live => views.retain(|view| view.state != State::Deleted),
                    Which::Chosen => views.truncate(1),
                }
                Ok(Answer::Sandboxes(views))
            }
            Call::GetExec { exec } => {
                self.execs.get(exec).ok_or(Refusal::NotFound)?;
                Ok(Answer::Exec(self.exec_view(exec)))
            }
            Call::ListActive { sandbox } => {
                let only = sandbox.as_ref().map(|id| self.find(id)).transpose()?;
                let mut views = Vec::new();
                for (number, it) in self.boxes.iter().enumerate() {
                    if only.is_none_or(|only| only == number) {
                        let running = it.sandbox.life.running.keys();
                        views.extend(running.map(|exec| self.exec_view(exec.as_str())));
                    }
                }
                Ok(Answer::Execs(views))
            }
        }
    }

    fn find(&self, id: &str) -> Result<usize, Refusal> {
        self.names.get(id).copied().ok_or(Refusal::NotFound)
    }

    fn phase(&self, number: usize) -> Phase {
        self.boxes[number].sandbox.life.phase
    }

    fn view(&self, number: usize) -> SandboxView {
        let it = &self.boxes[number];
        SandboxView {
            sandbox: it.id.clone(),
            state: agbox::state(it.sandbox.life.phase),
            last_event_sequence: it.sandbox.life.sequence.0,
        }
    }

    fn exec_view(&self, exec: &str) -> ExecView {
        let it = &self.boxes[self.execs[exec].sandbox];
        let last = it.events.iter().rev().find(|event| event.exec.as_deref() == Some(exec));
        let last = last.expect("an exec has events");
        ExecView {
            exec: exec.to_owned(),
            sandbox: it.id.clone(),
            state: ExecState::after(last.kind),
            exit_code: last.exit_code,
            last_event_sequence: it.sandbox.life.sequence.0,
        }
    }

    fn create(&mut self, id: String) -> Result<usize, Refusal> {
        if self.names.contains_key(&id) {
            return Err(Refusal::AlreadyExists);
        }
        let number = self.boxes.len();
        let creation = Creation::new(
            SandboxId::from_random([u8::try_from(number % 250).unwrap_or(0); 16]),
            "default".parse().expect("a tenant"),
            None,
            "node".parse().expect("a node"),
            SandboxSpec::default(),
            self.at(),
        );
        let events = creation.events().iter().map(|event| agbox::event(&id, event)).collect();
        self.names.insert(id.clone(), number);
        self.boxes.push(Box { id, sandbox: creation.into_sandbox(), events });
        Ok(number)
    }

    fn start(&mut self, number: usize, id: &str, call: &Call) -> Result<(), Refusal> {
        if self.phase(number) == Phase::Frozen {
            self.see(number, Observation::Thawed);
        }
        let request = Request::StartExec {
            exec: exec_id(id),
            spec: ExecSpec::default(),
            when_stopped: WhenStopped::Refuse,
        };
        self.ask(number, request).map_err(|_refused| Refusal::NotReady)?;
        let (code, lines) = expected_end(id);
        let expected = matches!(call, Call::Exec { expect: Some(_), .. });
        self.execs.insert(id.to_owned(), Exec { sandbox: number, code, lines, expected });
        Ok(())
    }

    fn ask(&mut self, number: usize, request: Request) -> Result<(), sandbox::Refusal> {
        use model::transition::Answer::{Act, AlreadySo, First, Record};
        match self.boxes[number].sandbox.request(request, self.at())? {
            Record(transition) => self.keep(number, &transition),
            Act | AlreadySo | First(_) => {}
        }
        Ok(())
    }

    fn see(&mut self, number: usize, observation: Observation) {
        if let Some(transition) = self.boxes[number].sandbox.observe(observation, self.at()) {
            self.keep(number, &transition);
        }
    }

    fn keep(&mut self, number: usize, transition: &Transition) {
        let it = &mut self.boxes[number];
        it.events.extend(transition.events().iter().map(|event| agbox::event(&it.id, event)));
        it.sandbox = it.sandbox.clone().after(transition);
    }

    fn see_something(&mut self) {
        if self.boxes.is_empty() {
            return;
        }
        let number = self.boxes.len() - 1 - self.chance.below(self.boxes.len().min(3));
        let running: Vec<ExecId> =
            self.boxes[number].sandbox.life.running.keys().cloned().collect();
        let observation = match self.chance.below(14) {
            0 => Observation::Preparing { step: "materialize".into(), images: UsedImages::new() },
            1..=4 => Observation::Ready,
            5 | 6 => Observation::Stopped,
            7 => Observation::Deleted,
            8 | 9 if self.chance.one_in(2) => Observation::Frozen(SuspendReason::Idle),
            8 | 9 => Observation::Thawed,
            10 => Observation::EndsSoon { cause: EndCause::HardTtl, seconds: 60 },
            11 if self.chance.one_in(2) => Observation::CompanionReady { name: "db".into() },
            11 => {
                let _ = self.ask(number, Request::Use(WhenStopped::Refuse));
                return;
            }
            _ => match self.chance.pick(&running) {
                Some(exec) => self.end_of(exec),
                None => return,
            },
        };
        self.see(number, observation);
    }

    /// Commands end as they must, or never began because the server was killed in between.
    fn end_of(&mut self, exec: ExecId) -> Observation {
        let killed = self.killed_since.get(exec.as_str()).copied().unwrap_or(false);
        if killed && self.chance.one_in(5) {
            return Observation::ExecNotStarted { exec, message: "killed".into(), exit_code: None };
        }
        let code = self.execs[exec.as_str()].code;
        Observation::ExecExited { exec, exit: Exit::Code(code) }
    }

    fn move_stream(&mut self) {
        if self.streams.is_empty() || (self.streams.len() < 6 && self.chance.one_in(5)) {
            self.subscribe();
            return;
        }
        let place = self.chance.below(self.streams.len());
        let stream = &mut self.streams[place];
        let (number, it) = (stream.number, &self.boxes[stream.sandbox]);
        if let Some(event) = stream.waiting.pop_front() {
            self.note(What::Event { subscription: number, event });
        } else if let Some(event) = it.events.get(stream.next) {
            stream.next += 1;
            let event = event.clone();
            self.note(What::Event { subscription: number, event });
        } else if it.sandbox.life.phase == Phase::Terminated {
            self.streams.remove(place);
            self.note(What::Ended { subscription: number, how: Ending::Clean });
        } else if self.chance.one_in(6) {
            self.streams.remove(place);
            self.note(What::Ended { subscription: number, how: Ending::Dropped });
        }
    }

    fn subscribe(&mut self) {
        self.numbers += 1;
        let subscription = self.numbers;
        let sandbox = format!("box-{}", self.chance.below(self.boxes.len() + 1));
        let found = self.find(&sandbox);
        let last = found.as_ref().map_or(0, |number| self.boxes[*number].events.len());
        let from = self.chance.below(last + 2);
        let snapshot = self.chance.one_in(3);
        let from_sequence = u64::try_from(from).unwrap_or(0);
        let subscribed = Subscribed { subscription, sandbox, from_sequence, snapshot };
        self.note(What::Subscribed(subscribed));
        self.now += 3;
        match found {
            Err(refusal) => {
                self.note(What::Ended { subscription, how: Ending::Refused(refusal) });
            }
            Ok(_) if from > last => {
                self.note(What::Ended { subscription, how: Ending::OutOfRange });
            }
            Ok(number) => {
                let waiting = if snapshot { self.snapshot(number) } else { VecDeque::new() };
                let stream = Stream { number: subscription, sandbox: number, waiting, next: from };
                self.streams.push(stream);
            }
        }
    }

    fn snapshot(&self, number: usize) -> VecDeque<Event> {
        let it = &self.boxes[number];
        let last = it.events.last().expect("a sandbox has events").clone();
        let running = it.sandbox.life.running.keys().map(|exec| Event {
            kind: Kind::ExecStarted,
            exec: Some(exec.as_str().to_owned()),
            exit_code: None,
            loss: None,
            snapshot: true,
            ..last.clone()
        });
        let first = Event { snapshot: true, replay: true, ..last.clone() };
        std::iter::once(first).chain(running).collect()
    }

    fn kill(&mut self) {
        let killed = Time(self.now);
        self.lingering.clear();
        self.now += 1;
        for client in 0..self.clients.len() {
            if let Some(flight) = self.clients[client].take() {
                let outcome = Outcome::Unknown(Doubt::ConnectionBroke);
                self.record(client, flight.start, What::Call { call: flight.call, outcome });
            }
        }
        for stream in std::mem::take(&mut self.streams) {
            let how = Ending::ConnectionBroke;
            self.note(What::Ended { subscription: stream.number, how });
        }
        self.now += 100;
        self.killed_since.values_mut().for_each(|killed| *killed = true);
        for number in 0..self.boxes.len() {
            let pending = matches!(self.phase(number), Phase::Provisioning | Phase::Resuming);
            if pending && self.chance.one_in(4) {
                let message = "interrupted".to_owned();
                let cause = FailureCause::CreateFailed;
                self.see(number, Observation::Failed(Failure { cause, message }));
            }
        }
        self.record(9, killed, What::Killed);
        self.life += 1;
        self.ready_since = self.now;
    }

    fn harm(&mut self) {
        if self.boxes.is_empty() || !self.chance.one_in(4) {
            return;
        }
        let number = self.chance.below(self.boxes.len());
        self.note(What::Harmed { sandbox: self.boxes[number].id.clone() });
        self.now += 1;
        let crashes = [Crash::SupervisorLost, Crash::HostRebooted];
        if let Some(crash) = self.chance.pick(&crashes).filter(|_| self.chance.one_in(2)) {
            return self.see(number, Observation::Crashed(crash));
        }
        let cause = FailureCause::MainProcessCrashed;
        self.see(number, Observation::Failed(Failure { cause, message: "broken".into() }));
    }

    fn apply_lingering(&mut self) {
        if let Some(call) = self.lingering.pop() {
            self.carry_out(&call);
        }
    }

    /// Lets everything come to its end, and reads it all.
    fn finish(&mut self) {
        for client in 0..self.clients.len() {
            self.now += 10;
            if let Some(flight) = self.clients[client].take() {
                let outcome = flight.outcome.unwrap_or_else(|| self.carry_out(&flight.call));
                self.record(client, flight.start, What::Call { call: flight.call, outcome });
            }
        }
        for number in 0..self.boxes.len() {
            let running: Vec<ExecId> =
                self.boxes[number].sandbox.life.running.keys().cloned().collect();
            for exec in running {
                let end = self.end_of(exec);
                self.see(number, end);
            }
            for last in [Observation::Ready, Observation::Stopped, Observation::Deleted] {
                self.see(number, last);
            }
        }
        self.now += 10;
        let list = Call::List { which: Which::All };
        let outcome = self.carry_out(&list);
        self.note(What::Call { call: list, outcome });
        for number in 0..self.boxes.len() {
            self.now += 10;
            let it = &self.boxes[number];
            let (sandbox, events) = (it.id.clone(), it.events.clone());
            self.note(What::Replay { sandbox: sandbox.clone(), events });
            self.now += 10;
            let get = Call::Get { sandbox };
            let outcome = self.carry_out(&get);
            self.note(What::Call { call: get, outcome });
        }
        self.now += 10;
        self.note(What::Closed);
    }
}

/// Returns with which code the command of an exec exits and how many lines it prints.
fn expected_end(exec: &str) -> (i32, u64) {
    let sum: u32 = exec.bytes().map(u32::from).sum();
    let code = [0, 7, 0, 3][usize::try_from(sum % 4).unwrap_or(0)];
    (code, u64::from(sum % 50) + 2)
}

fn exec_id(id: &str) -> ExecId {
    id.parse().expect("an id of an exec")
}
