//! `ringfence exec`.

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::Context as _;
use clap::Args;
use client::sandboxes::{
    NewExec, Sandboxes,
    events::Next,
    record::{Exec as Record, ExecState, Started},
};
use serde_json::json;

use crate::{
    arguments::read_variable,
    output::{OUR_FAILURE, complain, say},
    outputs::{Outputs, Piece, Stream, Text},
    sandboxes::{Interrupt, block_on, connect, explain},
    server::Server,
};

/// Runs a command in a sandbox, shows what it writes, and exits with its exit code.
///
/// The command has no terminal and no standard input. What it writes is read from the files that
/// the server keeps, so that it is shown on the server's machine alone, to whoever may read them.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  ringfence exec demo -- python3 -c 'print(6 * 7)'
  ringfence exec demo --env NAME=world --cwd /tmp -- sh -c 'echo hello $NAME; pwd'
  ringfence exec demo --detach -- sh -c 'sleep 60; echo done'

JSON: one object per line, by `type`: started {exec_id, sandbox_id, stdout_log_path,
stderr_log_path}, stdout and stderr {data, lost_bytes}, ended {exec_id, sandbox_id, state,
exit_code, error}. With --detach the first alone.

Exit codes: the command's own; 128 + N if signal N killed it; 130 if it was cancelled, by Ctrl-C
or by somebody else; 143 if it was cancelled because this was told to end; 125 if it failed without
an exit code, or could not be run.")]
pub(crate) struct Exec {
    /// The sandbox
    name: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// An environment variable; may be given many times
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = read_variable)]
    env: Vec<(String, String)>,
    /// Where it runs [default: /workspace]
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Do not wait: print the id of the command, for `ringfence logs`
    #[arg(short, long)]
    detach: bool,
    /// Write lines of JSON instead of the command's output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

impl Exec {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        block_on(self.act())
    }

    async fn act(self) -> anyhow::Result<ExitCode> {
        let sandboxes = connect(&self.server).await?;
        // From here on a signal is not lost: it is seen when the command has an id.
        let interrupt = Interrupt::new()?;
        let new = NewExec {
            sandbox: self.name.clone(),
            command: self.command.clone(),
            cwd: self.cwd.clone(),
            env: self.env.iter().cloned().collect(),
        };
        let started = sandboxes.exec(new).await;
        let started = started.map_err(|error| explain(error, &self.name))?;
        if self.json {
            say(&json!({
                "type": "started",
                "exec_id": started.id,
                "sandbox_id": self.name,
                "stdout_log_path": started.stdout,
                "stderr_log_path": started.stderr,
            })
            .to_string())?;
        } else if self.detach {
            say(&started.id)?;
        }
        if self.detach {
            return Ok(ExitCode::SUCCESS);
        }
        let shown = self.show(&sandboxes, &started, interrupt).await;
        if shown.is_err() {
            // Nobody listens any more. It may have ended, and the server may be gone.
            let _ = sandboxes.cancel(&started.id).await;
        }
        shown
    }

    /// Shows what the command writes until it has ended.
    async fn show(
        &self,
        sandboxes: &Sandboxes,
        started: &Started,
        mut interrupt: Interrupt,
    ) -> anyhow::Result<ExitCode> {
        let mut screen = if self.json { Screen::json() } else { Screen::Both };
        let mut outputs = open(started);
        let end = sandboxes.wait_for_exec(&started.id, |next| {
            if let Next::Broken { .. } = next {
                complain("the connection broke; the command goes on, connecting again");
            }
        });
        tokio::pin!(end);
        let mut cancelled = None;
        let ended = loop {
            tokio::select! {
                ended = &mut end => break ended?,
                piece = next(&mut outputs) => screen.show(&piece.context(UNREADABLE)?)?,
                code = interrupt.next() => {
                    if let Some(code) = cancelled.replace(code) {
                        return Ok(ExitCode::from(code));
                    }
                    // One that has just ended by itself tells how in a moment.
                    if let Err(error) = sandboxes.cancel(&started.id).await
                        && error.code() != Some("EXEC_ALREADY_TERMINAL")
                    {
                        return Err(error).context("the command could not be cancelled and goes on");
                    }
                }
            }
        };
        if let Some(outputs) = outputs {
            outputs.rest(|piece| screen.show(&piece)).context(UNREADABLE)?;
        }
        screen.finish()?;
        self.tell_end(&ended)?;
        Ok(ExitCode::from(match (ended.state, cancelled) {
            (ExecState::Cancelled, Some(code)) => code,
            _ => exit_code(&ended),
        }))
    }

    fn tell_end(&self, ended: &Record) -> anyhow::Result<()> {
        if self.json {
            say(&json!({
                "type": "ended",
                "exec_id": ended.id,
                "sandbox_id": ended.sandbox,
                "state": ended.state.word(),
                "exit_code": ended.exit_code,
                "error": ended.error,
            })
            .to_string())?;
        }
        match ended.state {
            ExecState::Cancelled => complain("cancelled"),
            ExecState::Failed if ended.exit_code.is_none() => complain(&ended.error),
            // It succeeded, and not all that it wrote is there.
            ExecState::Finished if !ended.error.is_empty() => complain(&ended.error),
            _ => {}
        }
        Ok(())
    }
}

pub(crate) const UNREADABLE: &str = "cannot show the output";

/// Opens the output, or says why there is none to see.
fn open(started: &Started) -> Option<Outputs> {
    let (stdout, stderr) = (Path::new(&started.stdout), Path::new(&started.stderr));
    match Outputs::follow(&[(Stream::Stdout, stdout), (Stream::Stderr, stderr)]) {
        Ok(outputs) => Some(outputs),
        Err(error) => {
            complain(&format!(
                "the output cannot be shown here: {}: {error}\n  it is on the server's machine, \
                 for its root and the user of the server; the command runs, and its exit code is \
                 passed on",
                stdout.parent().unwrap_or(stdout).display()
            ));
            None
        }
    }
}

async fn next(outputs: &mut Option<Outputs>) -> io::Result<Piece> {
    match outputs {
        Some(outputs) => outputs.next().await,
        None => std::future::pending().await,
    }
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

    pub(crate) fn show(&mut self, piece: &Piece) -> io::Result<()> {
        let Piece { stream, lost, bytes } = piece;
        if let Self::Json([stdout, stderr]) = self {
            let text = match stream {
                Stream::Stdout => stdout,
                Stream::Stderr => stderr,
            };
            return say_json(*stream, &text.push(bytes), *lost);
        }
        if *lost > 0 {
            complain(&format!("{lost} bytes of {} are no longer kept", stream.word()));
        }
        match (stream, self) {
            (Stream::Stderr, Self::Both) => pass_on(io::stderr(), bytes),
            (Stream::Stdout | Stream::Stderr, _) => pass_on(io::stdout(), bytes),
        }
    }

    /// Shows what was held back because it could have become a character.
    pub(crate) fn finish(self) -> io::Result<()> {
        let Self::Json(texts) = self else { return Ok(()) };
        for (mut text, stream) in texts.into_iter().zip([Stream::Stdout, Stream::Stderr]) {
            let data = text.finish();
            if !data.is_empty() {
                say_json(stream, &data, 0)?;
            }
        }
        Ok(())
    }
}

fn say_json(stream: Stream, data: &str, lost: u64) -> io::Result<()> {
    say(&json!({ "type": stream.word(), "data": data, "lost_bytes": lost }).to_string())
}

fn pass_on(mut stream: impl Write, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}

fn exit_code(ended: &Record) -> u8 {
    match (ended.state, ended.exit_code) {
        (ExecState::Cancelled, _) => 130,
        (_, Some(code)) => u8::try_from(code & 0xff).unwrap_or(OUR_FAILURE),
        (_, None) => OUR_FAILURE,
    }
}
