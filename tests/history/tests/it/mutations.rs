//! One lie in a history that was right: each changes what a client can have seen of a server that
//! keeps its promises into what it cannot.
#![expect(clippy::ptr_arg, reason = "all lies have one form, and some add or take away entries")]

use std::collections::BTreeSet;

use history::{
    entry::{Answer, Call, Entry, Expectation, Outcome, Refusal, Time, What, Which},
    event::{Event, Kind, Loss, State},
    rule::Rule,
};

use crate::simulation::Chance;

mod machine;
mod streams;

/// Changes a history and says which rules may tell; nothing if there is no place for it.
pub(crate) type Mutation = fn(&mut Vec<Entry>, &mut Chance) -> Option<&'static [Rule]>;

pub(crate) const ALL: [(&str, Mutation); 39] = [
    ("drop an event", streams::drop_an_event),
    ("repeat an event", streams::repeat_an_event),
    ("swap two events", streams::swap_two_events),
    ("begin a subscription earlier", streams::begin_earlier),
    ("begin a subscription later", streams::begin_later),
    ("change an event for one subscriber", streams::change_an_event),
    ("drop an event from a replay", drop_from_replay),
    ("cut off the tail of a replay", cut_replay),
    ("a second end of an exec", second_end),
    ("an event after the deletion", event_after_deletion),
    ("a companion told of twice", second_outcome),
    ("another exit code", other_exit_code),
    ("an exit code in an answer", other_exit_code_in_answer),
    ("a loss nobody caused", unexplained_loss),
    ("a sandbox that is not found", not_found),
    ("an exec that is not found", exec_not_found),
    ("a sandbox missing in a list", missing_in_list),
    ("an exec missing in a list", missing_in_active),
    ("an answer older than the replay", older_answer),
    ("another state", other_state),
    ("a stop without effect", lost_stop),
    ("a delete without effect", lost_delete),
    ("an exec without effect", lost_exec),
    ("a cancel without effect", lost_cancel),
    ("a refused create that happened", refused_create),
    ("an exec nobody asked for", unasked_exec),
    ("a second acknowledgement", acknowledged_twice),
    ("a refusal without reason", refused_stop),
    ("a late snapshot", streams::late_snapshot),
    ("a snapshot that is not marked", streams::unmarked_snapshot),
    ("a missing kill", streams::missing_kill),
    ("an exec without an end", endless_exec),
    ("missing output", machine::missing_output),
    ("another pid", machine::other_pid),
    ("a ghost", machine::ghost),
    ("a phantom", machine::phantom),
    ("an old life", old_life),
    ("a failure nobody caused", unexplained_failure),
    ("a life that cannot be", illegal_phase),
];

fn places(entries: &[Entry], wanted: impl Fn(&What) -> bool) -> Vec<usize> {
    let found = entries.iter().enumerate().filter(|(_, entry)| wanted(&entry.what));
    found.map(|(place, _)| place).collect()
}

fn place(entries: &[Entry], chance: &mut Chance, wanted: impl Fn(&What) -> bool) -> Option<usize> {
    chance.pick(&places(entries, wanted))
}

/// Returns an event that is no snapshot, and the next one of its subscription.
fn two_events(entries: &[Entry], chance: &mut Chance) -> Option<(usize, usize)> {
    let plain = |what: &What| match what {
        What::Event { subscription, event } if !event.snapshot => Some(*subscription),
        _ => None,
    };
    let first = place(entries, chance, |what| plain(what).is_some())?;
    let subscription = plain(&entries[first].what);
    let mut after = (first + 1..entries.len()).filter(|it| plain(&entries[*it].what).is_some());
    let second = after.find(|it| plain(&entries[*it].what) == subscription)?;
    Some((first, second))
}

fn event_mut(entry: &mut Entry) -> Option<&mut Event> {
    match &mut entry.what {
        What::Event { event, .. } => Some(event),
        _ => None,
    }
}

/// Returns the place of a final replay whose events fit.
fn replay(
    entries: &[Entry],
    chance: &mut Chance,
    wanted: impl Fn(&[Event]) -> bool,
) -> Option<usize> {
    place(entries, chance, |what| match what {
        What::Replay { events, .. } => wanted(events),
        _ => false,
    })
}

fn events_mut(entry: &mut Entry) -> Option<&mut Vec<Event>> {
    match &mut entry.what {
        What::Replay { events, .. } => Some(events),
        _ => None,
    }
}

fn drop_from_replay(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let place = replay(entries, chance, |events| events.len() > 1)?;
    let events = events_mut(&mut entries[place])?;
    events.remove(chance.below(events.len() - 1));
    Some(&[Rule::SequencesAreWhole])
}

fn cut_replay(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let place = replay(entries, chance, |events| events.len() > 1)?;
    events_mut(&mut entries[place])?.pop();
    // The final list was before it.
    Some(&[Rule::ReadsNeverGoBack, Rule::AcknowledgedIsKept])
}

/// Adds an event to the end of a replay, and to the answers about the sandbox after it.
fn append(entries: &mut [Entry], place: usize, mut event: Event) -> Option<()> {
    let events = events_mut(&mut entries[place])?;
    let last = events.last()?.sequence;
    event.sequence = last + 1;
    event.sandbox.clone_from(&events.last()?.sandbox);
    let sandbox = event.sandbox.clone();
    events.push(event);
    for entry in &mut entries[place..] {
        if let What::Call { outcome: Outcome::Acknowledged(Answer::Sandbox(view)), .. } =
            &mut entry.what
            && view.sandbox == sandbox
        {
            view.last_event_sequence = last + 1;
        }
    }
    Some(())
}

fn second_end(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let place = replay(entries, chance, |events| events.iter().any(|it| it.kind.is_exec_end()))?;
    let events = events_mut(&mut entries[place])?;
    let gone = events.last()?.kind == Kind::Deleted;
    let ends: Vec<Event> = events.iter().filter(|it| it.kind.is_exec_end()).cloned().collect();
    let end = Event { state: None, ..chance.pick(&ends)? };
    append(entries, place, end)?;
    Some(if gone { &[Rule::SandboxesEndOnce] } else { &[Rule::ExecsEndOnce] })
}

fn second_outcome(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let is_told = |events: &[Event]| {
        let last = events.iter().rev().find(|it| {
            matches!(it.kind, Kind::Accepted | Kind::CompanionReady | Kind::CompanionFailed)
        });
        last.is_some_and(|it| it.kind == Kind::CompanionReady) && last_is(events, State::Ready)
    };
    let place = replay(entries, chance, is_told)?;
    let mut events = events_mut(&mut entries[place])?.iter().rev();
    let told = events.find(|it| it.kind == Kind::CompanionReady)?.clone();
    append(entries, place, told)?;
    Some(&[Rule::CompanionsHaveOneOutcome])
}

fn event_after_deletion(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let is_gone = |events: &[Event]| events.last().is_some_and(|last| last.kind == Kind::Deleted);
    let place = replay(entries, chance, is_gone)?;
    let last = events_mut(&mut entries[place])?.last()?.clone();
    let kind = chance.pick(&[Kind::Deleted, Kind::Note, Kind::Accepted])?;
    append(entries, place, Event { kind, ..last })?;
    Some(&[Rule::SandboxesEndOnce])
}

/// Changes every copy of every event.
fn each_event(entries: &mut [Entry], mut change: impl FnMut(&mut Event)) {
    for entry in entries {
        match &mut entry.what {
            What::Event { event, .. } => change(event),
            What::Replay { events, .. } => events.iter_mut().for_each(&mut change),
            _ => {}
        }
    }
}

/// Returns an exec that was asked for with an expectation and ended by itself.
fn exited(entries: &[Entry], chance: &mut Chance) -> Option<String> {
    let mut expected = BTreeSet::new();
    let mut ended = Vec::new();
    for entry in entries {
        match &entry.what {
            What::Call { call: Call::Exec { exec: Some(exec), expect: Some(_), .. }, outcome }
                if !matches!(outcome, Outcome::Refused(_)) =>
            {
                expected.insert(exec.clone());
            }
            What::Replay { events, .. } => {
                let exits = events.iter().filter(|event| event.exit_code.is_some());
                ended.extend(exits.filter_map(|event| event.exec.clone()));
            }
            _ => {}
        }
    }
    ended.retain(|exec| expected.contains(exec));
    chance.pick(&ended)
}

fn other_exit_code(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let exec = exited(entries, chance)?;
    each_event(entries, |event| {
        if event.exec.as_ref() == Some(&exec) && event.kind.is_exec_end() {
            (event.kind, event.exit_code) = (Kind::ExecFailed, Some(99));
        }
    });
    Some(&[Rule::EndsAreTrue])
}

fn other_exit_code_in_answer(
    entries: &mut Vec<Entry>,
    chance: &mut Chance,
) -> Option<&'static [Rule]> {
    let place = place(entries, chance, |what| match what {
        What::Call { outcome: Outcome::Acknowledged(Answer::Exec(view)), .. } => {
            view.exit_code.is_some()
        }
        _ => false,
    })?;
    let What::Call { outcome: Outcome::Acknowledged(Answer::Exec(view)), .. } =
        &mut entries[place].what
    else {
        return None;
    };
    view.exit_code = view.exit_code.map(|code| code + 1);
    Some(&[Rule::StateIsTheSum])
}

fn unexplained_loss(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let exec = exited(entries, chance)?;
    let loss = chance.pick(&[Loss::ServerRestarted, Loss::Unnamed])?;
    each_event(entries, |event| {
        if event.exec.as_ref() == Some(&exec) && event.kind.is_exec_end() {
            (event.kind, event.exit_code, event.loss) = (Kind::ExecFailed, None, Some(loss));
        }
    });
    Some(&[Rule::EndsAreTrue])
}

/// Adds an entry just before the first final replay.
fn before_the_end(entries: &mut Vec<Entry>, call: Call, outcome: Outcome) -> Option<()> {
    let place = *places(entries, |what| matches!(what, What::Replay { .. })).first()?;
    let before = entries[place - 1].end.0;
    let (start, end) = (Time(before + 1), Time(before + 2));
    let what = What::Call { call, outcome };
    entries.insert(place, Entry { client: 1, life: None, start, end, what });
    Some(())
}

/// Returns the id of a sandbox whose replay fits.
fn sandbox(
    entries: &[Entry],
    chance: &mut Chance,
    wanted: impl Fn(&[Event]) -> bool,
) -> Option<String> {
    let place = replay(entries, chance, wanted)?;
    match &entries[place].what {
        What::Replay { sandbox, .. } => Some(sandbox.clone()),
        _ => None,
    }
}

fn not_found(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let sandbox = sandbox(entries, chance, |_| true)?;
    let calls = [
        Call::Get { sandbox: sandbox.clone() },
        Call::Stop { sandbox: sandbox.clone() },
        Call::Delete { sandbox },
    ];
    let call = chance.pick(&calls)?;
    before_the_end(entries, call, Outcome::Refused(Refusal::NotFound))?;
    Some(&[Rule::AcknowledgedIsKept])
}

fn exec_not_found(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let exec = exited(entries, chance)?;
    let calls = [Call::GetExec { exec: exec.clone() }, Call::Cancel { exec }];
    let call = chance.pick(&calls)?;
    before_the_end(entries, call, Outcome::Refused(Refusal::NotFound))?;
    Some(&[Rule::AcknowledgedIsKept])
}

fn missing_in_list(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let lists = places(entries, |what| {
        matches!(what, What::Call { call: Call::List { which: Which::All }, .. })
    });
    // The list of the final audit; everything is known by then but what nobody was ever shown.
    let last = *lists.last()?;
    let shown: BTreeSet<String> =
        entries[..last].iter().flat_map(|entry| shown_by(&entry.what)).collect();
    let What::Call { outcome: Outcome::Acknowledged(Answer::Sandboxes(views)), .. } =
        &mut entries[last].what
    else {
        return None;
    };
    let known: Vec<usize> =
        (0..views.len()).filter(|place| shown.contains(&views[*place].sandbox)).collect();
    views.remove(chance.pick(&known)?);
    Some(&[Rule::AcknowledgedIsKept])
}

/// Returns the sandboxes that an entry shows to be there.
fn shown_by(what: &What) -> Vec<String> {
    match what {
        What::Event { event, .. } => vec![event.sandbox.clone()],
        What::Call { outcome: Outcome::Acknowledged(Answer::Sandbox(view)), .. } => {
            vec![view.sandbox.clone()]
        }
        _ => Vec::new(),
    }
}

fn missing_in_active(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    // Between a list without the exec and a later answer in which it runs there is no truth.
    let place = place(entries, chance, |what| match what {
        What::Call { outcome: Outcome::Acknowledged(Answer::Execs(views)), .. } => {
            !views.is_empty()
        }
        _ => false,
    })?;
    let What::Call { outcome: Outcome::Acknowledged(Answer::Execs(views)), .. } =
        &mut entries[place].what
    else {
        return None;
    };
    let gone = views.remove(chance.below(views.len()));
    let (end, client) = (entries[place].end, entries[place].client);
    let at = Time(end.0 + 1);
    let what = What::Call {
        call: Call::GetExec { exec: gone.exec.clone() },
        outcome: Outcome::Acknowledged(Answer::Exec(gone.clone())),
    };
    let known = entries[..place].iter().any(|entry| match &entry.what {
        What::Event { event, .. } => {
            event.sandbox == gone.sandbox && event.exec.as_ref() == Some(&gone.exec)
        }
        What::Call { outcome: Outcome::Acknowledged(Answer::Started { exec }), .. } => {
            *exec == gone.exec
        }
        _ => false,
    } && entry.end < entries[place].start);
    let life = entries[place].life;
    entries.insert(place + 1, Entry { client, life, start: at, end: at, what });
    // If more had been acknowledged by then, that is the better witness.
    known.then_some(&[Rule::ReadsNeverGoBack, Rule::AcknowledgedIsKept])
}

fn older_answer(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let place = replay(entries, chance, |events| events.len() > 1)?;
    // The final get follows the replay.
    let What::Call { outcome: Outcome::Acknowledged(Answer::Sandbox(view)), .. } =
        &mut entries[place + 1].what
    else {
        return None;
    };
    view.last_event_sequence -= 1;
    Some(&[Rule::ReadsNeverGoBack, Rule::AcknowledgedIsKept])
}

fn other_state(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let place = place(entries, chance, |what| {
        matches!(what, What::Call { outcome: Outcome::Acknowledged(Answer::Sandbox(_)), .. })
    })?;
    let What::Call { outcome: Outcome::Acknowledged(Answer::Sandbox(view)), .. } =
        &mut entries[place].what
    else {
        return None;
    };
    view.state = if view.state == State::Ready { State::Stopped } else { State::Ready };
    Some(&[Rule::StateIsTheSum])
}

fn last_is(events: &[Event], state: State) -> bool {
    events.iter().rev().find_map(|event| event.state) == Some(state)
}

fn lost_stop(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let sandbox = sandbox(entries, chance, |events| last_is(events, State::Ready))?;
    before_the_end(entries, Call::Stop { sandbox }, Outcome::Acknowledged(Answer::Accepted))?;
    Some(&[Rule::AcknowledgedIsKept])
}

fn lost_delete(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let sandbox = sandbox(entries, chance, |events| !last_is(events, State::Deleted))?;
    before_the_end(entries, Call::Delete { sandbox }, Outcome::Acknowledged(Answer::Accepted))?;
    Some(&[Rule::AcknowledgedIsKept])
}

fn lost_exec(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let sandbox = sandbox(entries, chance, |_| true)?;
    let exec = "exec-lost".to_owned();
    let expect = Some(Expectation::default());
    let call = Call::Exec { sandbox, exec: Some(exec.clone()), expect };
    before_the_end(entries, call, Outcome::Acknowledged(Answer::Started { exec }))?;
    Some(&[Rule::AcknowledgedIsKept])
}

fn lost_cancel(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let exec = exited(entries, chance)?;
    before_the_end(entries, Call::Cancel { exec }, Outcome::Acknowledged(Answer::Accepted))?;
    Some(&[Rule::AcknowledgedIsKept])
}

fn refused_create(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let wanted = sandbox(entries, chance, |_| true)?;
    for entry in entries {
        if let What::Call { call: Call::Create { sandbox: Some(sandbox) }, outcome } =
            &mut entry.what
            && *sandbox == wanted
        {
            *outcome = Outcome::Refused(Refusal::Other("QUOTA".into()));
        }
    }
    Some(&[Rule::RefusalsAreTrue])
}

fn unasked_exec(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let wanted = exited(entries, chance)?;
    entries.retain(|entry| match &entry.what {
        What::Call { call: Call::Exec { exec, .. }, .. } => *exec != Some(wanted.clone()),
        _ => true,
    });
    Some(&[Rule::UnknownIsOnceOrNever])
}

fn acknowledged_twice(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let place = place(entries, chance, |what| match what {
        What::Call { call: Call::Create { .. } | Call::Exec { .. }, outcome } => {
            matches!(outcome, Outcome::Acknowledged(_))
        }
        _ => false,
    })?;
    entries.insert(place, entries[place].clone());
    Some(&[Rule::UnknownIsOnceOrNever])
}

fn refused_stop(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let place = replay(entries, chance, |events| last_is(events, State::Ready))?;
    let What::Replay { sandbox, .. } = &entries[place].what else { return None };
    // After the replay it is known to be ready, and stays so.
    let call = Call::Stop { sandbox: sandbox.clone() };
    let outcome = Outcome::Refused(Refusal::InvalidState);
    let end = Time(entries[place].end.0 + 1);
    let what = What::Call { call, outcome };
    entries.insert(place + 1, Entry { client: 1, life: None, start: end, end, what });
    Some(&[Rule::RefusalsAreTrue])
}

fn endless_exec(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let takes = |events: &[Event]| {
        let last = events.iter().rev().find(|event| event.kind.names_its_state());
        last.is_some_and(|event| event.kind == Kind::Ready)
            && events.last().is_some_and(|event| event.kind.is_exec_end())
    };
    let place = replay(entries, chance, takes)?;
    let last = events_mut(&mut entries[place])?.last()?.clone();
    let exec = Some("exec-endless".to_owned());
    let started =
        Event { kind: Kind::ExecStarted, exec, exit_code: None, loss: None, ..last.clone() };
    append(entries, place, started)?;
    let call =
        Call::Exec { sandbox: last.sandbox, exec: Some("exec-endless".into()), expect: None };
    let doubt = history::entry::Doubt::DeadlinePassed;
    before_the_end(entries, call, Outcome::Unknown(doubt))?;
    // A sandbox on its way to sleep takes no command.
    Some(&[Rule::EverythingEnds, Rule::PhasesAreLegal])
}

fn old_life(entries: &mut Vec<Entry>, _: &mut Chance) -> Option<&'static [Rule]> {
    let last = entries.iter().rposition(|entry| entry.life.is_some())?;
    let start = entries[last].start;
    let before =
        entries.iter().filter(|entry| entry.end < start).filter_map(|entry| entry.life).max()?;
    entries[last].life = Some(before - 1);
    Some(&[Rule::OneServerAtATime])
}

fn unexplained_failure(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let harmed: BTreeSet<String> = entries
        .iter()
        .filter_map(|entry| match &entry.what {
            What::Harmed { sandbox } => Some(sandbox.clone()),
            _ => None,
        })
        .collect();
    let fits =
        |events: &[Event]| last_is(events, State::Ready) && !harmed.contains(&events[0].sandbox);
    let place = replay(entries, chance, fits)?;
    let last = events_mut(&mut entries[place])?.last()?.clone();
    let failed = Event {
        kind: Kind::Failed,
        state: Some(State::Failed),
        exec: None,
        exit_code: None,
        loss: None,
        ..last
    };
    append(entries, place, failed)?;
    Some(&[Rule::SandboxesOutliveTheServer])
}

fn illegal_phase(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let wanted =
        sandbox(entries, chance, |events| events.iter().any(|event| event.kind == Kind::Ready))?;
    each_event(entries, |event| {
        if event.sandbox == wanted && event.kind == Kind::Ready {
            (event.kind, event.state) = (Kind::Stopped, Some(State::Stopped));
        }
    });
    Some(&[Rule::PhasesAreLegal])
}
