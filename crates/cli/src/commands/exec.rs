//! `ringfence exec`.

use std::{
    cell::RefCell,
    io::{self, IsTerminal as _, Read as _, Write},
    process::ExitCode,
    thread,
};

use anyhow::{Context as _, bail};
use clap::Args;
use client::{
    commands::{Commands, Ended, Input, Local, NewCommand, Output, Size, Stream, Update},
    sandboxes::NewExec,
};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use crate::{
    arguments::read_variable,
    output::{OUR_FAILURE, complain, say},
    sandboxes::{address, block_on, connect, explain},
    server::Server,
    terminal::{Raw, Signals, Told, size},
    text::Text,
};

/// Input that waits to be sent, in pieces.
const WAITING: usize = 16;

/// How much input is read at once.
const PIECE: usize = 32 << 10;

/// Runs a command in a sandbox, shows what it writes, and exits with its exit code.
///
/// The command has no standard input unless -i is given, and no terminal unless -t is given. A stopped
/// sandbox is started.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  ringfence exec demo -- python3 -c 'print(6 * 7)'
  ringfence exec demo --env NAME=world --cwd /tmp -- sh -c 'echo hello $NAME; pwd'
  tar c . | ringfence exec -i demo -- tar x -C /workspace
  ringfence exec -it demo -- python3
  ringfence exec demo --detach -- sh -c 'sleep 60; echo done'

If the connection breaks, the command goes on and output continues at the next byte.

JSON: one object per line, by `type`: started {exec_id, sandbox_id}, stdout and stderr {data,
lost_bytes}, ended {exec_id, sandbox_id, state, exit_code, error}. With --detach only the first.

Exit codes: the command's own; 128 + N if signal N killed it; 127 if there is no such command; 126 if
it cannot be executed; 130 if it was cancelled, by Ctrl-C or by another client; 143 if it was cancelled
because this process was told to end; 125 if it failed without an exit code, or could not be run.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Exec {
    /// The sandbox
    name: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Pass standard input on, up to its end
    #[arg(short, long)]
    interactive: bool,
    /// Give the command a terminal; with -i, this terminal
    #[arg(short, long)]
    tty: bool,
    /// An environment variable; may be given many times
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = read_variable)]
    env: Vec<(String, String)>,
    /// Where it runs [default: /workspace]
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Do not wait: print the id of the command, for `ringfence logs`
    #[arg(short, long, conflicts_with_all = ["interactive", "tty"])]
    detach: bool,
    /// Write lines of JSON instead of the command's output
    #[arg(long, conflicts_with = "tty")]
    json: bool,
    #[command(flatten)]
    server: Server,
}

impl Exec {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        block_on(async {
            if self.detach { self.start_detached().await } else { self.run_attached().await }
        })
    }

    async fn start_detached(&self) -> anyhow::Result<ExitCode> {
        let sandboxes = connect(&self.server).await?;
        let new = NewExec {
            sandbox: self.name.clone(),
            command: self.command.clone(),
            cwd: self.cwd.clone(),
            env: self.env.iter().cloned().collect(),
        };
        let started = sandboxes.exec(new).await.map_err(|error| explain(error, &self.name))?;
        if self.json {
            self.say_started(&started.id)?;
        } else {
            say(&started.id)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn run_attached(&self) -> anyhow::Result<ExitCode> {
        let address = address(&self.server).await?;
        let commands = Commands::new(address, &self.server.key()?, &self.name);
        // From here on a signal is not lost: it is handled when the command has an id.
        let signals = Signals::new().context("cannot listen for signals")?;
        let raw = self.take_terminal()?;
        let (sender, input) = mpsc::channel(WAITING);
        if self.interactive {
            forward_stdin(sender.clone());
        }
        let (resized, size) = watch::channel(terminal_size());
        let mut local = Local { input, size };
        let shown = self.attend(&commands, &mut local, &resized, signals).await;
        // What is written from here on goes to a terminal in its usual mode.
        drop((raw, sender));
        match shown? {
            Over::Ended { exec, ended } => {
                self.tell_end(&exec, &ended)?;
                Ok(ExitCode::from(exit_code(&ended)))
            }
            Over::Told { code, is_cancelled } => {
                if is_cancelled {
                    complain("cancelled");
                }
                Ok(ExitCode::from(code))
            }
        }
    }

    /// Puts this terminal into raw mode if the command gets it.
    fn take_terminal(&self) -> anyhow::Result<Option<Raw>> {
        if !(self.tty && self.interactive) {
            return Ok(None);
        }
        match Raw::enter().context("cannot take over the terminal")? {
            Some(raw) => Ok(Some(raw)),
            None => {
                bail!("-it needs a terminal as standard input and output; use -i alone in a pipe")
            }
        }
    }

    fn new_command(&self) -> NewCommand {
        NewCommand {
            command: self.command.clone(),
            cwd: self.cwd.clone(),
            env: self.env.iter().cloned().collect(),
            has_stdin: self.interactive,
            terminal: self.tty.then(terminal_size),
        }
    }

    /// Shows what the command writes until it has ended, or this is told to end.
    async fn attend(
        &self,
        commands: &Commands,
        local: &mut Local,
        resized: &watch::Sender<Size>,
        mut signals: Signals,
    ) -> anyhow::Result<Over> {
        let screen = RefCell::new(if self.json { Screen::json() } else { Screen::Both });
        let (started, mut exec) = watch::channel(None::<String>);
        let (failed, mut failure) = mpsc::channel(1);
        let run = commands.run(self.new_command(), local, |update| {
            if let Err(error) = self.show(&screen, &started, update) {
                // The first failure ends the command.
                let _ = failed.try_send(error);
            }
        });
        tokio::pin!(run);
        let (mut cancelled, mut is_asked) = (None, false);
        let ended = loop {
            tokio::select! {
                biased;
                told = signals.next() => match told {
                    Told::Resized => drop(resized.send_replace(terminal_size())),
                    Told::End(code) => if cancelled.replace(code).is_some() {
                        return Ok(Over::Told { code, is_cancelled: false });
                    },
                },
                Some(error) = failure.recv() => {
                    // It may have ended, and the server may be gone.
                    let _ = self.cancel(exec.borrow().as_deref()).await;
                    return Err(error).context("cannot show the output");
                }
                Ok(()) = is_started(&mut exec), if cancelled.is_some() && !is_asked => {
                    is_asked = true;
                    let id = exec.borrow().clone();
                    self.cancel(id.as_deref()).await?;
                }
                ended = &mut run => {
                    break ended.map_err(|error| explain(error, &self.name))?;
                }
            }
        };
        if let Ok(error) = failure.try_recv() {
            return Err(error).context("cannot show the output");
        }
        screen.borrow_mut().finish()?;
        let exec = exec.borrow().clone().unwrap_or_default();
        let ended = ended.context("the connection was closed before the command ended")?;
        Ok(match cancelled {
            Some(code) if ended.reason == "cancelled" && !self.json => {
                Over::Told { code, is_cancelled: true }
            }
            _ => Over::Ended { exec, ended },
        })
    }

    fn show(
        &self,
        screen: &RefCell<Screen>,
        started: &watch::Sender<Option<String>>,
        update: Update<'_>,
    ) -> io::Result<()> {
        match update {
            Update::Started(exec) => {
                started.send_replace(Some(exec.to_owned()));
                if self.json { self.say_started(exec) } else { Ok(()) }
            }
            Update::Output(output) => screen.borrow_mut().show(&output),
            Update::Broken => {
                complain("the connection broke; the command goes on, connecting again");
                Ok(())
            }
        }
    }

    async fn cancel(&self, exec: Option<&str>) -> anyhow::Result<()> {
        let Some(exec) = exec else { return Ok(()) };
        let failed = "the command could not be cancelled and goes on";
        let sandboxes = connect(&self.server).await.context(failed)?;
        match sandboxes.cancel(exec).await {
            // One that has just ended by itself reports it in a moment.
            Err(error) if error.code() == Some("EXEC_ALREADY_TERMINAL") => Ok(()),
            cancelled => cancelled.map(drop).context(failed),
        }
    }

    fn say_started(&self, exec: &str) -> io::Result<()> {
        say(&json!({ "type": "started", "exec_id": exec, "sandbox_id": self.name }).to_string())
    }

    fn tell_end(&self, exec: &str, ended: &Ended) -> anyhow::Result<()> {
        let message = self.explain_end(ended);
        if self.json {
            say(&json!({
                "type": "ended",
                "exec_id": exec,
                "sandbox_id": self.name,
                "state": state(ended),
                "exit_code": ended.exit_code.or(ended.signal.map(|signal| 128 + signal)),
                "error": message,
            })
            .to_string())?;
        }
        if !message.is_empty() {
            complain(&message);
        }
        Ok(())
    }

    /// Says why a command did not end by itself, or what is missing of it.
    fn explain_end(&self, ended: &Ended) -> String {
        let program = self.command.first().map(String::as_str).unwrap_or_default();
        let message = ended.message.clone().unwrap_or_default();
        match (ended.reason.as_str(), exit_code(ended)) {
            ("cancelled", _) => "cancelled".to_owned(),
            ("not_started", 127) => format!("{program}: command not found"),
            ("not_started", 126) => format!("{program}: cannot be executed"),
            ("not_started", _) => format!("the command could not be started: {message}"),
            _ => message,
        }
    }
}

/// How the time with a command ended.
enum Over {
    Ended {
        exec: String,
        ended: Ended,
    },
    /// By a signal to this process.
    Told {
        code: u8,
        is_cancelled: bool,
    },
}

async fn is_started(
    exec: &mut watch::Receiver<Option<String>>,
) -> Result<(), watch::error::RecvError> {
    exec.wait_for(Option::is_some).await.map(drop)
}

/// Reads standard input in a thread of its own, because it may be a file, a pipe or a terminal, and passes on
/// that it has ended. The thread ends with the process.
fn forward_stdin(sender: mpsc::Sender<Input>) {
    thread::spawn(move || {
        let mut buffer = vec![0; PIECE];
        loop {
            let input = match io::stdin().lock().read(&mut buffer) {
                Ok(0) => Input::End,
                Ok(length) => Input::Bytes(buffer[..length].to_vec()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // A terminal that was hung up.
                Err(_) => Input::End,
            };
            let is_last = input == Input::End;
            if sender.blocking_send(input).is_err() || is_last {
                return;
            }
        }
    });
}

/// The size of this terminal, or the usual one.
fn terminal_size() -> Size {
    let found = if io::stdout().is_terminal() { size().ok() } else { None };
    let (rows, columns) = found.unwrap_or((24, 80));
    Size { rows, columns }
}

/// Where output goes.
#[derive(Debug)]
pub(crate) enum Screen {
    /// Each stream to ours of the same name.
    Both,
    /// All to standard output.
    Stdout,
    /// To lines of JSON, from the text of each stream.
    Json([Text; 2]),
}

impl Screen {
    pub(crate) fn json() -> Self {
        Self::Json(<[Text; 2]>::default())
    }

    pub(crate) fn show(&mut self, output: &Output<'_>) -> io::Result<()> {
        let Output { stream, lost, bytes, end: _ } = output;
        if let Self::Json([stdout, stderr]) = self {
            let text = match stream {
                Stream::Stdout => stdout,
                Stream::Stderr => stderr,
            };
            return say_json(*stream, &text.push(bytes), *lost);
        }
        if *lost > 0 {
            complain(&format!("{lost} bytes of {} are no longer kept", stream.name()));
        }
        match (stream, self) {
            (Stream::Stderr, Self::Both) => pass_on(io::stderr(), bytes),
            (Stream::Stdout | Stream::Stderr, _) => pass_on(io::stdout(), bytes),
        }
    }

    /// Shows what was held back because it could have become a character.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        let Self::Json(texts) = self else { return Ok(()) };
        for (text, stream) in texts.iter_mut().zip([Stream::Stdout, Stream::Stderr]) {
            let data = text.finish();
            if !data.is_empty() {
                say_json(stream, &data, 0)?;
            }
        }
        Ok(())
    }
}

fn say_json(stream: Stream, data: &str, lost: u64) -> io::Result<()> {
    say(&json!({ "type": stream.name(), "data": data, "lost_bytes": lost }).to_string())
}

fn pass_on(mut stream: impl Write, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}

fn state(ended: &Ended) -> &'static str {
    match (ended.reason.as_str(), ended.exit_code) {
        ("cancelled", _) => "CANCELLED",
        (_, Some(0)) => "FINISHED",
        _ => "FAILED",
    }
}

fn exit_code(ended: &Ended) -> u8 {
    if ended.reason == "cancelled" {
        return 130;
    }
    let code = ended.exit_code.or(ended.signal.map(|signal| 128 + signal));
    // A command that was killed at the end of its time ends as one that was killed.
    let code = code.or((ended.reason == "timed_out").then_some(137));
    code.and_then(|code| u8::try_from(code & 0xff).ok()).unwrap_or(OUR_FAILURE)
}
