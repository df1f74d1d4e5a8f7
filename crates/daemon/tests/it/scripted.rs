//! An executor that follows scripts instead of running code, one step a line.
//!
//! It is a fake of the engine's contract, not of its work: events come in the promised order
//! through a bounded channel, and a stop reason ends the script.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use daemon::executor::{Account, Executor, Running};
use engine::{executions::Event, tasks::Tasks};
use model::{
    admission::{Load, Overloaded},
    execution::{Execution, Exit, Facts, Outcome, StopReason, Stream, Usage},
    limits::LimitPolicy,
    units::ByteSize,
};
use tokio::sync::{mpsc, watch};

/// The most executions of one connection; more are refused.
pub(crate) const CAPACITY: usize = 20;

/// What was asked of the executor.
#[derive(Clone, Default)]
pub(crate) struct Scripted {
    seen: Arc<Mutex<Vec<Execution>>>,
    /// Reasons for which scripts ended before their end.
    stops: Arc<watch::Sender<Vec<StopReason>>>,
    tasks: Tasks,
}

impl Scripted {
    pub(crate) fn executor(&self) -> Executor {
        let scripted = self.clone();
        Executor::new(
            LimitPolicy::default(),
            |name| (name == "script").then_some(ByteSize::mib(16)),
            || Load { running: 3, queued: 1 },
            move |_tenant| {
                let scripted = scripted.clone();
                let here = Arc::new(Mutex::new(0));
                Account::new(move |execution| scripted.submit(execution, &here))
            },
        )
    }

    /// Returns all executions that were submitted.
    pub(crate) fn seen(&self) -> Vec<Execution> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until this many scripts were stopped; returns why.
    pub(crate) async fn stops(&self, count: usize) -> Vec<StopReason> {
        let mut stops = self.stops.subscribe();
        let enough = stops.wait_for(|stops| stops.len() >= count);
        tokio::time::timeout(crate::support::PATIENCE, enough).await.unwrap().unwrap().clone()
    }

    fn submit(
        &self,
        execution: Execution,
        here: &Arc<Mutex<usize>>,
    ) -> Result<Running, Overloaded> {
        let mut count = here.lock().unwrap();
        if *count >= CAPACITY {
            return Err(Overloaded::Client(*count));
        }
        *count += 1;
        self.seen.lock().unwrap().push(execution.clone());
        let (events, receiver) = mpsc::channel(8);
        let (stop, stopped) = watch::channel(None);
        let stop = Arc::new(stop);
        let (stops, here, kept) = (Arc::clone(&self.stops), Arc::clone(here), Arc::clone(&stop));
        self.tasks.start("script", async move {
            let reason = play(&execution.code, &events, stopped).await;
            stops.send_modify(|stops| stops.extend(reason));
            *here.lock().unwrap() -= 1;
            drop(kept);
        });
        let stop = move |reason| {
            stop.send_if_modified(|first| first.is_none() && first.replace(reason).is_none());
        };
        Ok(Running::new(receiver, stop))
    }
}

/// Plays a script to its end. Returns why it was stopped, if it was.
async fn play(
    script: &str,
    events: &mpsc::Sender<Event>,
    mut stopped: watch::Receiver<Option<StopReason>>,
) -> Option<StopReason> {
    let mut facts = Facts { stopped_for: None, oom_kills: 0, exit: Some(Exit::Code(0)) };
    let mut output_bytes = 0;
    for line in script.lines() {
        let step = step(line, events, &mut facts, &mut output_bytes);
        tokio::select! {
            biased;
            reason = stopped.wait_for(Option::is_some) => {
                facts.stopped_for = *reason.unwrap();
                facts.exit = Some(Exit::Signal(9));
                break;
            }
            ends = step => if ends { return None },
        }
    }
    let outcome = Outcome {
        status: facts.status(),
        exit: facts.exit,
        stopped_for: facts.stopped_for,
        duration: Duration::from_millis(5),
        usage: Usage { peak_memory: ByteSize::mib(3), cpu_time: Duration::from_millis(2) },
        output_bytes,
        truncated: facts.stopped_for == Some(StopReason::OutputLimit),
    };
    drop(events.send(Event::Ended(outcome)).await);
    facts.stopped_for
}

/// Plays one line. Tells whether the execution is over without an outcome.
async fn step(
    line: &str,
    events: &mpsc::Sender<Event>,
    facts: &mut Facts,
    output_bytes: &mut u64,
) -> bool {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let stream = if word.starts_with("err") { Stream::Stderr } else { Stream::Stdout };
    let mut outputs = Vec::new();
    match word {
        "start" => drop(events.send(Event::Started).await),
        "out" | "err" => outputs.push(rest.as_bytes().to_vec()),
        "hex" => outputs.push(bytes(rest)),
        "large" => outputs.push(vec![b'x'; rest.parse().unwrap()]),
        // Goes on until nobody takes it any more.
        "flood" => loop {
            let data = vec![b'y'; 32 << 10];
            *output_bytes += 32 << 10;
            if events.send(Event::Output { stream, data }).await.is_err() {
                return true;
            }
        },
        "exit" => facts.exit = Some(Exit::Code(rest.parse().unwrap())),
        "signal" => facts.exit = Some(Exit::Signal(rest.parse().unwrap())),
        "oom" => facts.oom_kills = 1,
        "stop" => {
            facts.exit = Some(Exit::Signal(9));
            facts.stopped_for = Some(match rest {
                "deadline" => StopReason::Deadline,
                "output" => StopReason::OutputLimit,
                other => panic!("{other}"),
            });
        }
        "hang" => std::future::pending().await,
        "lost" => return true,
        "break" => {
            drop(events.send(Event::Broken { message: "the engine's words".into() }).await);
            return true;
        }
        other => panic!("no step is called {other}"),
    }
    for data in outputs {
        *output_bytes += u64::try_from(data.len()).unwrap();
        drop(events.send(Event::Output { stream, data }).await);
    }
    false
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}
