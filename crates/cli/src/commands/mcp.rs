//! `ringfence mcp`.

use std::{
    io::{self, BufRead, Read as _, Write as _},
    process::ExitCode,
    thread,
};

use clap::Args;
use client::mcp::{MAX_MESSAGE, Relay};
use tokio::sync::mpsc;

use crate::{output::complain, server::Server};

/// Messages that wait on either side.
const WAITING: usize = 16;

/// Serves the Model Context Protocol on standard input and output, for an agent that starts it.
///
/// Hands everything to the server that is running, at its route /mcp: the tools, and what they may, are the
/// same. Ends when standard input does.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  In the configuration of an agent:
    {\"mcpServers\": {\"ringfence\": {\"command\": \"ringfence\", \"args\": [\"mcp\"]}}}
  With another server and a key of its own:
    {\"mcpServers\": {\"ringfence\": {\"command\": \"ringfence\",
      \"args\": [\"mcp\", \"--url\", \"https://sandboxes.example.com\"],
      \"env\": {\"RINGFENCE_API_KEY\": \"rf_…\"}}}}
  By hand:
    echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}' | ringfence mcp

The key may also be a token of one sandbox (ringfence token mint): then the tools act in that sandbox, as far
as the token's scope goes.")]
pub(crate) struct Mcp {
    #[command(flatten)]
    server: Server,
}

impl Mcp {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let (address, key) = (self.server.address()?, self.server.key()?);
        let (lines_in, lines) = mpsc::channel(WAITING);
        let (answers, answers_out) = mpsc::channel(WAITING);
        // Reading cannot be broken off: the process ends with whoever waits in it.
        thread::Builder::new().name("stdin".into()).spawn(move || read(&lines_in))?;
        let writer = thread::Builder::new().name("stdout".into()).spawn(|| write(answers_out))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(Relay::new(address, &key).run(lines, answers));
        drop(runtime);
        if writer.join().is_err() {
            complain("what was to be written could not be");
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads lines until the end. One that is too long is handed on as far as it may go, and is no message then.
fn read(lines: &mpsc::Sender<String>) {
    let mut input = io::stdin().lock();
    loop {
        let mut line = Vec::new();
        let most = u64::try_from(MAX_MESSAGE).unwrap_or(u64::MAX);
        match input.by_ref().take(most).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if !line.ends_with(b"\n") && line.len() >= MAX_MESSAGE && !skip(&mut input) {
            return;
        }
        if lines.blocking_send(String::from_utf8_lossy(&line).into_owned()).is_err() {
            return;
        }
    }
}

/// Skips the rest of a line; tells whether there may be another.
fn skip(input: &mut impl BufRead) -> bool {
    loop {
        let Ok(held) = input.fill_buf() else { return false };
        let end = held.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(held.len(), |at| at + 1);
        let is_over = held.is_empty();
        input.consume(used);
        if end.is_some() || is_over {
            return !is_over;
        }
    }
}

/// Writes lines until nobody reads them.
fn write(mut answers: mpsc::Receiver<String>) {
    while let Some(answer) = answers.blocking_recv() {
        let mut output = io::stdout().lock();
        if writeln!(output, "{answer}").and_then(|()| output.flush()).is_err() {
            return;
        }
    }
}
