//! `ringfence logs`.

use std::{cell::RefCell, io, process::ExitCode};

use anyhow::Context as _;
use clap::Args;
use client::commands::{Commands, Local, Output, Size, Stream, Update};
use tokio::sync::{mpsc, watch};

use super::exec::Screen;
use crate::{
    output::complain,
    sandboxes::{Interrupt, address, block_on, connect, explain},
    server::Server,
};

/// Shows what a command wrote, as long as its sandbox is there.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  ringfence logs ex_0123456789abcdef
  ringfence logs --follow $(ringfence exec demo --detach -- sh -c 'sleep 5; echo done')
  ringfence logs --stderr ex_0123456789abcdef

JSON: one object per line: {type: stdout or stderr, data, lost_bytes}.

Exit codes: 0; 130 and 143 if it was interrupted; 125 if there is no output to show.")]
pub(crate) struct Logs {
    /// The id of the command, as `ringfence exec --detach` and `ringfence events` show it
    exec: String,
    /// Go on until the command has ended
    #[arg(short, long)]
    follow: bool,
    /// Show what it wrote to stderr instead of stdout
    #[arg(long)]
    stderr: bool,
    /// Write lines of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

impl Logs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        block_on(self.act())
    }

    async fn act(self) -> anyhow::Result<ExitCode> {
        // The protocol names the sandbox of a command.
        let exec = connect(&self.server).await?.get_exec(&self.exec).await;
        let exec = exec.map_err(|error| explain(error, &self.exec))?;
        let address = address(&self.server).await?;
        let commands = Commands::new(address, &self.server.key()?, &exec.sandbox);
        let screen = RefCell::new(if self.json { Screen::json() } else { Screen::Stdout });
        let (failed, mut failure) = mpsc::channel(1);
        let show = |output: &Output<'_>| {
            if let Err(error) = Self::show(&screen, output) {
                // The first failure ends this.
                let _ = failed.try_send(error);
            }
        };
        let mut interrupt = Interrupt::new()?;
        tokio::select! {
            biased;
            code = interrupt.next() => return Ok(ExitCode::from(code)),
            Some(error) = failure.recv() => return Err(error).context("cannot show the output"),
            shown = self.read(&commands, show) => {
                shown.map_err(|error| explain(error, &exec.sandbox))?;
            }
        }
        screen.borrow_mut().finish()?;
        Ok(ExitCode::SUCCESS)
    }

    async fn read(
        &self,
        commands: &Commands,
        show: impl Fn(&Output<'_>),
    ) -> Result<(), client::ClientError> {
        let stream = if self.stderr { Stream::Stderr } else { Stream::Stdout };
        if !self.follow {
            return commands.read(&self.exec, stream, |output| show(&output)).await;
        }
        // Nothing is sent; the sender is kept, so that the client does not leave.
        let (_sender, input) = mpsc::channel(1);
        let (_resized, size) = watch::channel(Size { rows: 24, columns: 80 });
        let mut local = Local { input, size };
        let followed = commands.follow(&self.exec, &mut local, |update| match update {
            Update::Output(output) if output.stream == stream => show(&output),
            Update::Output(_) | Update::Started(_) => {}
            Update::Broken => complain("the connection broke; connecting again"),
        });
        followed.await.map(drop)
    }

    fn show(screen: &RefCell<Screen>, output: &Output<'_>) -> io::Result<()> {
        if output.bytes.is_empty() && output.lost == 0 {
            return Ok(());
        }
        screen.borrow_mut().show(output)
    }
}
