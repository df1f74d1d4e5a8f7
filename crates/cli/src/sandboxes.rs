//! What the commands about sandboxes share: reaching the server, waiting, and what to do next when
//! something is refused.

use std::{process::ExitCode, time::Duration};

use anyhow::Context as _;
use client::{
    ClientError,
    address::Address,
    sandboxes::{
        Sandboxes,
        events::Next,
        record::{Event, Sandbox, State},
    },
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::sleep,
};

use crate::{output::complain, server::Server};

/// What takes no longer needs no words.
const QUICK: Duration = Duration::from_millis(500);

/// Runs a command that talks to the server.
pub(crate) fn block_on(
    command: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}

/// Connects to the server, or says how to have one.
pub(crate) async fn connect(server: &Server) -> anyhow::Result<Sandboxes> {
    Ok(Sandboxes::connect(&address(server).await?, &server.key()?).await?)
}

/// Returns where the server is, which answers there.
pub(crate) async fn address(server: &Server) -> anyhow::Result<Address> {
    let address = server.address()?;
    if address.answers().await { Ok(address) } else { no_server(server) }
}

fn no_server<T>(server: &Server) -> anyhow::Result<T> {
    let url = server.url();
    let start = if server.is_named() {
        "is it running, and is this its URL? (--url, RINGFENCE_URL)"
    } else {
        "start a server with `ringfence serve`, or name one that runs with --url or RINGFENCE_URL"
    };
    anyhow::bail!("nothing answers at {url}\n  {start}")
}

/// Adds to a refusal what can be done about it.
pub(crate) fn explain(error: ClientError, name: &str) -> anyhow::Error {
    let advice = if error.is_broken() {
        Some(UNKNOWN.to_owned())
    } else {
        error.code().and_then(|code| advice(code, name))
    };
    let error = anyhow::Error::from(error);
    match advice {
        Some(advice) => anyhow::anyhow!("{error:#}\n  {advice}"),
        None => error,
    }
}

const UNKNOWN: &str = "is a Ringfence server at this URL? if it has just gone away, it is not known \
    whether this was done: `ringfence ps` tells when it is back";

fn advice(code: &str, name: &str) -> Option<String> {
    Some(match code {
        "SANDBOX_NOT_FOUND" | "NOT_FOUND" => {
            "`ringfence ps -a` lists the sandboxes there are".to_owned()
        }
        "SANDBOX_ID_ALREADY_EXISTS" => {
            "choose another name with --name, or remove that sandbox with `ringfence rm`".to_owned()
        }
        "SANDBOX_NOT_READY" | "SANDBOX_INVALID_STATE" => format!(
            "`ringfence ps -a` shows how it stands; `ringfence resume {name}` starts a stopped one"
        ),
        "SANDBOX_EVENT_SEQUENCE_EXPIRED" => {
            "begin where events are kept: without --from, or with another number".to_owned()
        }
        "EXEC_NOT_FOUND" => {
            "`ringfence events NAME` shows the commands of a sandbox with their ids".to_owned()
        }
        "UNAUTHENTICATED" => {
            "set RINGFENCE_API_KEY to a valid key; `ringfence key create NAME` makes one".to_owned()
        }
        "IMAGE_IN_USE" => "`ringfence ps` shows the sandboxes, with their images".to_owned(),
        "IMAGE_REQUIRED" => "name an image, such as --image host".to_owned(),
        _ => return None,
    })
}

/// Waits until a sandbox is at its goal, and says what it waits for if that takes a while.
pub(crate) async fn wait(
    sandboxes: &Sandboxes,
    sandbox: Sandbox,
    goal: State,
) -> anyhow::Result<Sandbox> {
    let name = sandbox.name.clone();
    let mut step = format!("waiting for {name} to be {}", goal.word());
    let (tell, mut told) = tokio::sync::watch::channel(step.clone());
    let waited = sandboxes.wait(sandbox, goal, |next| {
        if let Some(text) = progress(next) {
            tell.send_replace(format!("{name}: {text}"));
        }
    });
    tokio::pin!(waited);
    let mut interrupt = Interrupt::new()?;
    tokio::select! {
        waited = &mut waited => return arrived(waited, goal),
        code = interrupt.next() => return Err(Interrupted::new(&name, goal, code).into()),
        () = sleep(QUICK) => {}
    }
    loop {
        complain(&format!("{step} …"));
        tokio::select! {
            waited = &mut waited => return arrived(waited, goal),
            code = interrupt.next() => return Err(Interrupted::new(&name, goal, code).into()),
            Ok(()) = told.changed() => step.clone_from(&told.borrow_and_update()),
        }
    }
}

fn arrived(waited: Result<Sandbox, ClientError>, goal: State) -> anyhow::Result<Sandbox> {
    let sandbox = waited?;
    if sandbox.state == goal {
        return Ok(sandbox);
    }
    let (name, state) = (&sandbox.name, sandbox.state.word());
    match &sandbox.error {
        Some(error) => anyhow::bail!(
            "{name} is {state}, not {}: {} ({})\n  `ringfence rm {name}` removes it",
            goal.word(),
            error.message,
            error.code
        ),
        None => anyhow::bail!("{name} is {state}, not {}: somebody changed it", goal.word()),
    }
}

/// Says in a few words what goes on.
fn progress(next: &Next) -> Option<String> {
    match next {
        Next::Broken { .. } => Some("the connection broke; connecting again".to_owned()),
        Next::Progress(event) => Some(format!("{} {}", event.phase, event.reason)),
        Next::Event(event) => {
            let Event { kind, phase, .. } = event.as_ref();
            let words = kind.trim_start_matches("SANDBOX_").to_lowercase().replace('_', " ");
            let is_of_note = kind.starts_with("SANDBOX_");
            let phase = if phase.is_empty() { String::new() } else { format!(" ({phase})") };
            is_of_note.then(|| format!("{words}{phase}"))
        }
    }
}

/// The user did not want to wait. What was accepted goes on.
#[derive(Debug)]
pub(crate) struct Interrupted {
    name: String,
    goal: State,
    pub(crate) code: u8,
}

impl Interrupted {
    fn new(name: &str, goal: State, code: u8) -> Self {
        Self { name: name.to_owned(), goal, code }
    }
}

impl std::error::Error for Interrupted {}

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, goal, code: _ } = self;
        let goal = goal.word();
        write!(f, "not waiting any more; {name} goes on to be {goal}\n  `ringfence ps` shows it")
    }
}

/// Ctrl-C and a request to end, with the exit code that tells of each.
#[derive(Debug)]
pub(crate) struct Interrupt {
    int: Signal,
    term: Signal,
}

impl Interrupt {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self { int: listen(SignalKind::interrupt())?, term: listen(SignalKind::terminate())? })
    }

    /// Returns the exit code for the next signal. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.int.recv() => 130,
            _ = self.term.recv() => 143,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_come_with_what_to_do() {
        let refused =
            |code: &str| ClientError::Refused { code: code.to_owned(), message: "no".to_owned() };
        let said = explain(refused("SANDBOX_NOT_READY"), "demo").to_string();
        assert!(said.contains("(SANDBOX_NOT_READY)\n  "), "{said}");
        assert!(said.contains("ringfence resume demo"), "{said}");
        assert_eq!(explain(refused("X"), "demo").to_string(), "the server refused: no (X)");
    }
}
