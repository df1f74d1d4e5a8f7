//! Lies about what subscriptions got.

use history::{
    entry::{Ending, Entry, What},
    rule::Rule,
};

use super::{event_mut, place, two_events};
use crate::simulation::Chance;

pub(super) fn drop_an_event(
    entries: &mut Vec<Entry>,
    chance: &mut Chance,
) -> Option<&'static [Rule]> {
    let (first, _) = two_events(entries, chance)?;
    entries.remove(first);
    Some(&[Rule::SequencesAreWhole])
}

pub(super) fn repeat_an_event(
    entries: &mut Vec<Entry>,
    chance: &mut Chance,
) -> Option<&'static [Rule]> {
    let (first, _) = two_events(entries, chance)?;
    entries.insert(first, entries[first].clone());
    Some(&[Rule::SequencesAreWhole])
}

pub(super) fn swap_two_events(
    entries: &mut Vec<Entry>,
    chance: &mut Chance,
) -> Option<&'static [Rule]> {
    let (first, second) = two_events(entries, chance)?;
    let (one, other) = (entries[first].what.clone(), entries[second].what.clone());
    (entries[first].what, entries[second].what) = (other, one);
    Some(&[Rule::SequencesAreWhole])
}

/// Changes from where a subscription was to begin that got an event.
fn shift_beginning(
    entries: &mut [Entry],
    chance: &mut Chance,
    shift: impl Fn(u64) -> Option<u64>,
) -> Option<()> {
    let (first, _) = two_events(entries, chance)?;
    let What::Event { subscription: wanted, .. } = entries[first].what else { return None };
    entries.iter_mut().find_map(|entry| match &mut entry.what {
        What::Subscribed(subscribed) if subscribed.subscription == wanted => {
            subscribed.from_sequence = shift(subscribed.from_sequence)?;
            Some(())
        }
        _ => None,
    })
}

pub(super) fn begin_earlier(
    entries: &mut Vec<Entry>,
    chance: &mut Chance,
) -> Option<&'static [Rule]> {
    shift_beginning(entries, chance, |from| from.checked_sub(1))?;
    Some(&[Rule::SequencesAreWhole])
}

pub(super) fn begin_later(
    entries: &mut Vec<Entry>,
    chance: &mut Chance,
) -> Option<&'static [Rule]> {
    shift_beginning(entries, chance, |from| from.checked_add(1))?;
    Some(&[Rule::SequencesAreWhole])
}

pub(super) fn change_an_event(
    entries: &mut Vec<Entry>,
    chance: &mut Chance,
) -> Option<&'static [Rule]> {
    let (first, _) = two_events(entries, chance)?;
    let event = event_mut(&mut entries[first])?;
    if chance.one_in(2) {
        event.occurred_at += 1;
    } else {
        event.details.push('!');
    }
    Some(&[Rule::EveryoneSeesTheSame])
}

pub(super) fn late_snapshot(
    entries: &mut Vec<Entry>,
    chance: &mut Chance,
) -> Option<&'static [Rule]> {
    let (_, second) = two_events(entries, chance)?;
    event_mut(&mut entries[second])?.snapshot = true;
    Some(&[Rule::SnapshotsComeFirst])
}

pub(super) fn unmarked_snapshot(
    entries: &mut Vec<Entry>,
    chance: &mut Chance,
) -> Option<&'static [Rule]> {
    let is_first = |what: &What| match what {
        What::Event { event, .. } => event.snapshot && event.replay,
        _ => false,
    };
    let place = place(entries, chance, is_first)?;
    event_mut(&mut entries[place])?.snapshot = false;
    Some(&[Rule::SnapshotsComeFirst])
}

pub(super) fn missing_kill(entries: &mut Vec<Entry>, _: &mut Chance) -> Option<&'static [Rule]> {
    let broke =
        |entry: &Entry| matches!(entry.what, What::Ended { how: Ending::ConnectionBroke, .. });
    if !entries.iter().any(broke) {
        return None;
    }
    entries.retain(|entry| entry.what != What::Killed);
    Some(&[Rule::ConnectionsEndForAReason])
}
