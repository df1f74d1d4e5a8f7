//! Lies about what was found on the machine.

use history::{
    entry::{Entry, Has, Resource, What},
    rule::Rule,
};

use super::place;
use crate::simulation::Chance;

pub(super) fn missing_output(
    entries: &mut Vec<Entry>,
    chance: &mut Chance,
) -> Option<&'static [Rule]> {
    let place = place(entries, chance, |what| matches!(what, What::Output(_)))?;
    let What::Output(output) = &mut entries[place].what else { return None };
    if chance.one_in(2) {
        output.lines += 100;
    } else {
        output.wrong_line = Some(1);
    }
    Some(&[Rule::OutputIsWhole])
}

pub(super) fn other_pid(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let place = place(entries, chance, |what| matches!(what, What::Processes(_)))?;
    let mut again = entries[place].clone();
    let What::Processes(processes) = &mut again.what else { return None };
    let process = chance.below(processes.processes.len());
    if chance.one_in(2) {
        processes.processes[process].pid += 1;
    } else {
        processes.processes[process].started += 1;
    }
    entries.insert(place + 1, again);
    Some(&[Rule::SandboxesOutliveTheServer])
}

pub(super) fn ghost(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let place = place(entries, chance, |what| matches!(what, What::Machine(_)))?;
    let What::Machine(machine) = &mut entries[place].what else { return None };
    let kinds = [Resource::Process, Resource::Cgroup, Resource::Mount, Resource::Directory];
    let resource = chance.pick(&kinds)?;
    let sandbox = chance.one_in(2).then(|| "box-none".to_owned());
    machine.has.push(Has { resource, name: "left".into(), sandbox, exec: None });
    Some(&[Rule::NoGhosts])
}

pub(super) fn phantom(entries: &mut Vec<Entry>, chance: &mut Chance) -> Option<&'static [Rule]> {
    let place = place(entries, chance, |what| match what {
        What::Machine(machine) => machine.has.iter().any(|has| has.resource == Resource::Process),
        _ => false,
    })?;
    let What::Machine(machine) = &mut entries[place].what else { return None };
    machine.has.retain(|has| has.resource != Resource::Process);
    Some(&[Rule::NoPhantoms])
}
