//! What the API says is there, and what the machine has.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use history::entry::{
    Answer, Call, ExecView, Has, Machine, Outcome, Output, Resource, SandboxView, Says, What, Which,
};
use history::event::State;
use rusqlite::{Connection, OpenFlags};
use tokio::time::sleep;

use crate::{
    client::{Client, Wire, list},
    server::Place,
};

/// How long the last commands and sandboxes may take to come to rest.
const REST: Duration = Duration::from_mins(1);

impl Client {
    async fn must(&mut self, call: Call, wire: Wire) -> anyhow::Result<Answer> {
        match self.call(call, wire).await? {
            Some(Outcome::Acknowledged(answer)) => Ok(answer),
            other => bail!("the server does not answer as it should: {other:?}"),
        }
    }

    pub(crate) async fn all(&mut self) -> anyhow::Result<Vec<SandboxView>> {
        self.listed(Which::All).await
    }

    async fn listed(&mut self, which: Which) -> anyhow::Result<Vec<SandboxView>> {
        let (call, wire) = list(which);
        match self.must(call, wire).await? {
            Answer::Sandboxes(views) => Ok(views),
            other => bail!("not a list: {other:?}"),
        }
    }

    pub(crate) async fn active(&mut self) -> anyhow::Result<Vec<ExecView>> {
        match self.must(Call::ListActive { sandbox: None }, Wire::ListActive(None)).await? {
            Answer::Execs(views) => Ok(views),
            other => bail!("not a list: {other:?}"),
        }
    }

    /// Waits until nothing is on its way: no command runs, no sandbox is between two states.
    pub(crate) async fn rest(&mut self) -> anyhow::Result<Vec<SandboxView>> {
        self.rest_of(Which::All).await
    }

    /// The same, without a word of those that were deleted.
    pub(crate) async fn rest_of(&mut self, which: Which) -> anyhow::Result<Vec<SandboxView>> {
        let until = Instant::now() + REST;
        loop {
            let (all, active) = (self.listed(which).await?, self.active().await?);
            let moving =
                |view: &&SandboxView| matches!(view.state, State::Pending | State::Deleting);
            if active.is_empty() && !all.iter().any(|view| moving(&view)) {
                return Ok(all);
            }
            if Instant::now() > until {
                bail!("these never came to rest: {active:?} {:?}", all.iter().find(moving));
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Writes down what the API says and what the machine has.
    pub(crate) async fn look(&mut self, place: &Place, ready: Instant) -> anyhow::Result<()> {
        let names = names(place)?;
        let mut says: BTreeMap<String, Says> = BTreeMap::new();
        for view in self.all().await? {
            let says_it =
                Says { sandbox: view.sandbox.clone(), state: view.state, execs: Vec::new() };
            says.insert(view.sandbox, says_it);
        }
        for exec in self.active().await? {
            if let Some(sandbox) = says.get_mut(&exec.sandbox) {
                sandbox.execs.push(exec.exec);
            }
        }
        let has = has(place, &names)?;
        let since_ready = u64::try_from(ready.elapsed().as_micros()).unwrap_or(u64::MAX);
        let machine = Machine { since_ready, says: says.into_values().collect(), has };
        let start = self.run.recorder.now();
        self.run.recorder.record(self.number, None, start, What::Machine(machine))?;
        Ok(())
    }

    /// Says whether the machine has anything although nothing is to live.
    pub(crate) async fn look_for_nothing(&mut self, place: &Place) -> anyhow::Result<()> {
        self.rest().await?;
        let has = has(place, &HashMap::new())?;
        if !has.is_empty() {
            bail!("this is left: {has:?}");
        }
        Ok(())
    }

    /// Writes down what the output of a command is.
    pub(crate) fn read_output(&mut self, place: &Place, exec: &str) -> anyhow::Result<()> {
        let name = format!("{exec}.stdout.log");
        for sandbox in fs::read_dir(place.sandboxes())?.filter_map(Result::ok) {
            let path = sandbox.path().join("out").join(&name);
            let Ok(file) = fs::File::open(path) else { continue };
            let output = Output::of_numbers(exec, std::io::BufReader::new(file))?;
            let start = self.run.recorder.now();
            self.run.recorder.record(self.number, None, start, What::Output(output))?;
        }
        Ok(())
    }

    /// The final audit: everything is read from the beginning.
    pub(crate) async fn close(&mut self) -> anyhow::Result<()> {
        for view in self.rest().await? {
            let events = self.replay(&view.sandbox, view.last_event_sequence).await?;
            let start = self.run.recorder.now();
            let what = What::Replay { sandbox: view.sandbox, events };
            self.run.recorder.record(self.number, None, start, what)?;
        }
        let start = self.run.recorder.now();
        self.run.recorder.record(self.number, None, start, What::Closed)?;
        Ok(())
    }
}

/// Returns the caller's name of every sandbox, by ours: what is on the machine has ours.
fn names(place: &Place) -> anyhow::Result<HashMap<String, String>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let store = Connection::open_with_flags(place.data.join("ringfence.db"), flags)?;
    let mut rows = store.prepare("SELECT id, alias FROM sandboxes WHERE alias IS NOT NULL")?;
    let names = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(names.collect::<Result<_, _>>()?)
}

/// Looks up what the machine has of sandboxes: folders, control groups, supervisors.
fn has(place: &Place, names: &HashMap<String, String>) -> anyhow::Result<Vec<Has>> {
    let mut has = Vec::new();
    // A companion's body is named after its sandbox.
    let named = |own: &str| names.get(own.split('-').next().unwrap_or(own)).cloned();
    for entry in fs::read_dir(place.sandboxes()).context("no folder of sandboxes")? {
        let entry = entry?;
        let own = entry.file_name().to_string_lossy().into_owned();
        if own.starts_with('.') {
            continue;
        }
        let name = entry.path().display().to_string();
        has.push(Has { resource: Resource::Directory, name, sandbox: named(&own), exec: None });
    }
    has.extend(groups(place)?.into_iter().map(|(own, name)| Has {
        resource: Resource::Cgroup,
        name,
        sandbox: named(&own),
        exec: None,
    }));
    has.extend(processes(place)?.into_iter().map(|(own, pid)| Has {
        resource: Resource::Process,
        name: pid,
        sandbox: named(&own),
        exec: None,
    }));
    Ok(has)
}

/// Finds the control groups of this server's sandboxes, by the name that its folder gives them.
fn groups(place: &Place) -> anyhow::Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    // Below the base each tenant has a group with those of its sandboxes.
    let tenants = bases(place)?.into_iter().flat_map(fs::read_dir).flatten();
    for tenant in tenants.filter_map(Result::ok).filter(|entry| entry.path().is_dir()) {
        // It goes with the last of its sandboxes.
        for entry in fs::read_dir(tenant.path()).into_iter().flatten().filter_map(Result::ok) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let waits = place.sandboxes().join(".waiting").join(name.trim_end_matches(".init"));
            // What waits for a sandbox belongs to none.
            if entry.path().is_dir() && !waits.exists() {
                let own = name.trim_end_matches(".init").to_owned();
                found.push((own, entry.path().display().to_string()));
            }
        }
    }
    Ok(found)
}

fn bases(place: &Place) -> anyhow::Result<Vec<std::path::PathBuf>> {
    use std::os::linux::fs::MetadataExt as _;
    let folder = fs::metadata(place.sandboxes())?;
    let name = format!("ringfence-sandboxes-{:x}-{:x}", folder.st_dev(), folder.st_ino());
    let mut bases = Vec::new();
    find(Path::new("/sys/fs/cgroup"), &name, 8, &mut bases);
    Ok(bases)
}

fn find(at: &Path, name: &str, depth: u32, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(at).into_iter().flatten().filter_map(Result::ok) {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && entry.file_name() == name {
            found.push(entry.path());
        } else if is_folder && depth > 0 {
            find(&entry.path(), name, depth - 1, found);
        }
    }
}

/// Returns the supervisor of every sandbox, by pid and start.
pub(crate) fn supervisors(place: &Place) -> anyhow::Result<BTreeMap<String, (u64, String)>> {
    let started = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let after_name = stat.rsplit(')').next()?;
        after_name.split_whitespace().nth(19)?.parse::<u64>().ok()
    };
    let mut oldest: BTreeMap<String, (u64, String)> = BTreeMap::new();
    for (own, pid) in processes(place)? {
        // What is being made for sandboxes to come has groups before it has a folder.
        if !place.sandboxes().join(&own).is_dir() {
            continue;
        }
        // A command is beside its supervisor for a moment, before it is among the others.
        let Some(start) = started(&pid) else { continue };
        let known = oldest.entry(own).or_insert_with(|| (start, pid.clone()));
        if (start, &pid) < (known.0, &known.1) {
            *known = (start, pid);
        }
    }
    Ok(oldest)
}

/// Finds the supervisors: those who are in the groups beside the commands'.
fn processes(place: &Place) -> anyhow::Result<Vec<(String, String)>> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for (own, path) in groups(place)? {
        if path.trim_end_matches(".init") != path {
            let pids =
                fs::read_to_string(Path::new(&path).join("cgroup.procs")).unwrap_or_default();
            for pid in pids.lines() {
                found.insert(pid.to_owned(), own.clone());
            }
        }
    }
    Ok(found.into_iter().map(|(pid, own)| (own, pid)).collect())
}
