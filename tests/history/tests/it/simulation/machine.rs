//! What a look at the machine finds while the server keeps its promises.

use history::{
    entry::{Has, Machine, Output, Process, Processes, Resource, Says, What},
    event::{ExecState, Kind, State},
};
use model::life::Phase;

use super::{Exec, World};
use crate::agbox;

impl World {
    pub(super) fn record_processes(&mut self) {
        let Some(number) = self.choose_box(|phase| phase == Phase::Active) else { return };
        let it = &self.boxes[number];
        let start = it.events.iter().rposition(|event| event.kind == Kind::Accepted).unwrap_or(0);
        let init = Process { exec: None, pid: pid(number, start), started: 7 };
        let running = it.sandbox.life.running.keys().map(|exec| {
            let pid = pid(number, exec.as_str().len() + self.execs[exec.as_str()].sandbox);
            Process { exec: Some(exec.as_str().to_owned()), pid, started: 8 }
        });
        let processes = std::iter::once(init).chain(running).collect();
        let (sandbox, last) = (it.id.clone(), it.sandbox.life.sequence.0);
        self.note(What::Processes(Processes { sandbox, last_event_sequence: last, processes }));
    }

    fn choose_box(&mut self, wanted: impl Fn(Phase) -> bool) -> Option<usize> {
        let fitting: Vec<usize> =
            (0..self.boxes.len()).filter(|number| wanted(self.phase(*number))).collect();
        self.chance.pick(&fitting)
    }

    pub(super) fn record_machine(&mut self) {
        let mut machine = Machine { since_ready: 5_000_000, says: Vec::new(), has: Vec::new() };
        for it in &self.boxes {
            let execs: Vec<String> =
                it.sandbox.life.running.keys().map(|exec| exec.as_str().to_owned()).collect();
            let state = agbox::state(it.sandbox.life.phase);
            let has = |resource, exec: Option<&String>| Has {
                resource,
                name: "found".into(),
                sandbox: Some(it.id.clone()),
                exec: exec.cloned(),
            };
            if state != State::Deleted {
                machine.has.push(has(Resource::Directory, None));
            }
            if state == State::Ready {
                machine.has.push(has(Resource::Cgroup, None));
                machine.has.push(has(Resource::Process, None));
            }
            let processes = execs.iter().map(|exec| has(Resource::Process, Some(exec)));
            machine.has.extend(processes);
            machine.says.push(Says { sandbox: it.id.clone(), state, execs });
        }
        self.note(What::Machine(machine));
    }

    pub(super) fn record_output(&mut self) {
        let ended: Vec<(String, Exec)> = self
            .execs
            .iter()
            .filter(|(id, it)| it.expected && self.exec_view(id).state != ExecState::Running)
            .map(|(id, it)| (id.clone(), it.clone()))
            .collect();
        let Some((exec, it)) = self.chance.pick(&ended) else { return };
        let exited = self.exec_view(&exec).exit_code.is_some();
        let lines = if exited { it.lines } else { it.lines / 2 };
        self.note(What::Output(Output { exec, lines, ..Output::default() }));
    }
}

fn pid(sandbox: usize, what: usize) -> u32 {
    u32::try_from(1000 + sandbox * 100 + what).unwrap_or(1)
}
