//! Commands that write while the server is killed again and again: every byte, exit code and process
//! must be what it was.

use std::{fs, sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use api::agbox::v1;
use history::entry::{Answer, Call, Outcome, Output, Which};
use history::event::{ExecState, State};
use tokio::time::sleep;

use crate::{
    audit::supervisors,
    client::{Client, Run, Wire},
    load,
    server::Place,
};

/// How many numbers each of them prints, in steps with a pause after each.
const LINES: u64 = 6000;
const STEP: u64 = 10;

pub(crate) async fn run(
    place: &Place,
    run: &Arc<Run>,
    sandboxes: u32,
    kills: u32,
) -> anyhow::Result<()> {
    let mut server = place.start(None)?.context("the server did not start")?;
    let mut client = run.client();
    let names: Vec<String> = (0..sandboxes).map(|number| format!("stream-{number:03}")).collect();
    for name in &names {
        client.create(name).await?;
    }
    client.rest().await?;
    for (name, code) in names.iter().zip(1..) {
        client.start_stream(name, code).await?;
    }
    let before = supervisors(place)?;
    for _ in 0..kills {
        sleep(Duration::from_millis(fastrand::u64(100..700))).await;
        let (again, end) = (place.clone(), place.next_end());
        server = tokio::task::spawn_blocking(move || {
            server.end(end)?;
            again.start(None)?.context("the server did not start")
        })
        .await??;
    }
    let mut client = run.client();
    let still_running = client.active().await?.len();
    client.rest().await?;
    ensure!(supervisors(place)? == before, "the supervisors are not those that they were");
    for (name, code) in names.iter().zip(1..) {
        client.check_stream(place, name, code).await?;
    }
    crate::say(&format!(
        "{sandboxes} commands wrote {LINES} lines each over {kills} kills; {still_running} of them \
         ran on after the last: bytes, codes and processes are right"
    ));
    for name in &names {
        let call = Call::Delete { sandbox: name.clone() };
        client.call(call, Wire::Delete(name.clone())).await?;
    }
    client.rest().await?;
    tokio::task::spawn_blocking(|| server.stop()).await?
}

fn exec_of(sandbox: &str) -> String {
    format!("{sandbox}-exec")
}

impl Client {
    pub(crate) async fn create(&mut self, name: &str) -> anyhow::Result<()> {
        let call = Call::Create { sandbox: Some(name.to_owned()) };
        let outcome = self.call(call, Wire::Create(Box::new(load::host(name)))).await?;
        ensure!(matches!(outcome, Some(Outcome::Acknowledged(_))), "not created: {outcome:?}");
        Ok(())
    }

    async fn start_stream(&mut self, sandbox: &str, code: i32) -> anyhow::Result<()> {
        let script = format!(
            "echo $$ >&2; i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo $i; \
             [ $((i % {STEP})) = 0 ] && sleep 0.02; done; echo $$ >&2; exit {code}"
        );
        let request = v1::CreateExecRequest {
            sandbox_id: sandbox.to_owned(),
            command: ["/bin/sh", "-c", &script].map(str::to_owned).to_vec(),
            exec_id: exec_of(sandbox),
            ..v1::CreateExecRequest::default()
        };
        let (sandbox, exec) = (sandbox.to_owned(), Some(exec_of(sandbox)));
        let call = Call::Exec { sandbox, exec, expect: None };
        let outcome = self.call(call, Wire::Exec(request)).await?;
        ensure!(matches!(outcome, Some(Outcome::Acknowledged(_))), "not started: {outcome:?}");
        Ok(())
    }

    async fn check_stream(
        &mut self,
        place: &Place,
        sandbox: &str,
        code: i32,
    ) -> anyhow::Result<()> {
        let exec = exec_of(sandbox);
        let call = Call::GetExec { exec: exec.clone() };
        let outcome = self.call(call, Wire::GetExec(exec.clone())).await?;
        let Some(Outcome::Acknowledged(Answer::Exec(view))) = outcome else {
            anyhow::bail!("{exec} is not found: {outcome:?}");
        };
        ensure!(
            (view.state, view.exit_code) == (ExecState::Failed, Some(code)),
            "{exec} ended with {:?} {:?}, not with {code}",
            view.state,
            view.exit_code
        );
        let path = |stream: &str| -> anyhow::Result<std::path::PathBuf> {
            let folders = fs::read_dir(place.sandboxes())?.filter_map(Result::ok);
            let name = format!("out/{exec}.{stream}.log");
            let mut found = folders.map(|folder| folder.path().join(&name));
            found.find(|path| path.exists()).with_context(|| format!("{exec} has no {stream}"))
        };
        let stdout = fs::File::open(path("stdout")?)?;
        let output = Output::of_numbers(&exec, std::io::BufReader::new(stdout))?;
        ensure!(
            (output.lines, output.wrong_line) == (LINES, None),
            "{exec} has {} lines, and line {:?} is wrong",
            output.lines,
            output.wrong_line
        );
        let pids = fs::read_to_string(path("stderr")?)?;
        let pids: Vec<&str> = pids.lines().collect();
        ensure!(
            matches!(pids.as_slice(), [one, other] if one == other),
            "{exec} was another process at its end: {pids:?}"
        );
        Ok(())
    }
}

/// Creates and deletes sandboxes, and holds what is left against what was there.
pub(crate) async fn cycle(place: &Place, run: &Arc<Run>, cycles: u32) -> anyhow::Result<()> {
    let server = place.start(None)?.context("the server did not start")?;
    // What is loaded and cached once is there after some.
    let warm = (cycles / 2).max(1);
    create_and_delete(run, 0..warm).await?;
    let before = server.weight()?;
    create_and_delete(run, warm..cycles).await?;
    let after = server.weight()?;
    let mut client = run.client();
    client.look_for_nothing(place).await?;
    crate::say(&format!(
        "{cycles} sandboxes created and deleted; before and after: {before:?} {after:?}"
    ));
    for (process, (descriptors, memory)) in &after {
        let (had, had_memory) = before.get(process).context("another process")?;
        ensure!(
            descriptors <= &(had + 4),
            "{process} has {descriptors} descriptors, and had {had}"
        );
        ensure!(
            memory * 100 <= had_memory * 105,
            "{process} has {memory} KiB of memory, and had {had_memory}"
        );
    }
    tokio::task::spawn_blocking(|| server.stop()).await?
}

async fn create_and_delete(run: &Arc<Run>, numbers: std::ops::Range<u32>) -> anyhow::Result<()> {
    const AT_ONCE: usize = 8;
    let mut client = run.client();
    let names: Vec<String> = numbers.map(|number| format!("cycle-{number:06}")).collect();
    for batch in names.chunks(AT_ONCE) {
        for name in batch {
            client.create(name).await?;
        }
        let all = client.rest_of(Which::Live).await?;
        ensure!(!all.iter().any(|view| view.state == State::Failed), "a sandbox has failed");
        for name in batch {
            let call = Call::Delete { sandbox: name.clone() };
            client.call(call, Wire::Delete(name.clone())).await?;
        }
    }
    client.rest_of(Which::Live).await.map(drop)
}
