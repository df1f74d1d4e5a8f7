//! `ringfence events`.

use std::process::ExitCode;

use clap::Args;
use client::sandboxes::{
    events::Next,
    record::{Event, State},
};

use crate::{
    output::{complain, say},
    sandboxes::{Interrupt, block_on, connect, explain},
    server::Server,
    shown::{event_json, event_line},
};

/// Shows what happened to a sandbox, one line per event.
///
/// Events are numbered 1, 2, 3, … in each sandbox. With --follow this goes on until the sandbox is
/// deleted, also over a restart of the server: none is missed and none comes twice.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  ringfence events demo
  ringfence events demo --follow
  ringfence events demo --from 12 --follow --json

JSON: one object per line {sandbox_id, sequence, event_type, occurred_at, sandbox_state, phase,
reason, exec_id, exec_state, exit_code, companion, error_code, error_message}; what an event does
not have is null.

Exit codes: 0; 130 and 143 if it was interrupted; 125 if there are no such events, or the server
was away for more than a minute.")]
pub(crate) struct Events {
    /// The sandbox
    name: String,
    /// Begin after this event
    #[arg(long, value_name = "SEQUENCE", default_value_t = 0)]
    from: u64,
    /// Go on with what happens from now on
    #[arg(short, long)]
    follow: bool,
    /// Write lines of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

impl Events {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        block_on(self.act())
    }

    async fn act(self) -> anyhow::Result<ExitCode> {
        let sandboxes = connect(&self.server).await?;
        let explained = |error| explain(error, &self.name);
        let sandbox = sandboxes.get(&self.name).await.map_err(explained)?;
        let is_over =
            self.from == sandbox.sequence && (!self.follow || sandbox.state == State::Deleted);
        if is_over {
            return Ok(ExitCode::SUCCESS);
        }
        let mut interrupt = Interrupt::new()?;
        let mut events = sandboxes.events(&self.name, self.from);
        loop {
            let next = tokio::select! {
                next = events.next() => next.map_err(explained)?,
                code = interrupt.next() => return Ok(ExitCode::from(code)),
            };
            match next {
                // The server has forgotten the sandbox.
                None => return Ok(ExitCode::SUCCESS),
                Some(Next::Broken { after }) => {
                    complain(&format!("the connection broke; going on after event {after}"));
                }
                // It is not among the events.
                Some(Next::Progress(_)) => {}
                Some(Next::Event(event)) => {
                    self.show(&event)?;
                    let is_last = event.sequence >= sandbox.sequence && !self.follow;
                    if is_last || event.state == State::Deleted {
                        return Ok(ExitCode::SUCCESS);
                    }
                }
            }
        }
    }

    fn show(&self, event: &Event) -> anyhow::Result<()> {
        let line = if self.json { event_json(event).to_string() } else { event_line(event) };
        Ok(say(&line)?)
    }
}
