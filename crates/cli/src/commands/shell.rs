//! `ringfence shell`.

use std::{io, pin::pin, process::ExitCode, time::Duration};

use anyhow::Context as _;
use clap::Args;
use client::{
    ClientError,
    shells::{End, Ended, Input, Local, Role, Size, Update, Wanted},
};
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};

use crate::{
    output::{OUR_FAILURE, complain},
    sandboxes::{address, block_on, connect, explain},
    server::Server,
    terminal::{Keys, Raw, Signals, Told, size},
};

/// So much that was typed waits to be sent, in pieces.
const WAITING: usize = 16;

/// Who leaves does not wait for a server that is away.
const PARTING: Duration = Duration::from_secs(1);

/// Opens a terminal in a sandbox, and exits with the exit code of its shell.
///
/// The shell runs on in the sandbox when it is left with Ctrl-], when this is closed, and when
/// the server is restarted; the same command comes back to it, and so can others, who then see and
/// type the same. A stopped sandbox is started.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  ringfence shell demo                      the usual shell; leave it with Ctrl-]
  ringfence shell demo --name build         another one beside it
  ringfence shell demo --observe            watch it; nothing that is typed goes to it
  ringfence shell demo --detach-key ctrl-q  leave it with Ctrl-Q, so that Ctrl-] goes to it

If the connection breaks or the server goes away it connects anew, for ten minutes, and shows the
screen as it is then.

Exit codes: the shell's own; 128 + N if signal N ended it, or this; 0 if it was left; 125 if it
could not be joined, or nobody knows how it ended.")]
pub(crate) struct Shell {
    /// The sandbox
    #[arg(value_name = "NAME")]
    sandbox: String,
    /// Which of its shells; started if it does not run
    #[arg(long, value_name = "SHELL", default_value = "default")]
    name: String,
    /// Only watch a shell that runs
    #[arg(long)]
    observe: bool,
    /// The key that leaves the shell: ctrl- and a letter or one of [ \ ] ^ _, or none
    #[arg(long, value_name = "KEY", default_value = "ctrl-]", value_parser = read_key)]
    detach_key: DetachKey,
    #[command(flatten)]
    server: Server,
}

/// The byte that leaves the shell, if any does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DetachKey(Option<u8>);

fn read_key(text: &str) -> Result<DetachKey, String> {
    let wrong = || "write it like ctrl-] or ctrl-q, or none".to_owned();
    if text == "none" {
        return Ok(DetachKey(None));
    }
    match text.to_ascii_lowercase().strip_prefix("ctrl-").map(str::as_bytes) {
        Some([key @ (b'a'..=b'z' | b'[' | b'\\' | b']' | b'^' | b'_')]) => {
            Ok(DetachKey(Some(key & 0x1f)))
        }
        _ => Err(wrong()),
    }
}

impl DetachKey {
    /// Cuts off what was typed at the key, if it was.
    fn cut(self, typed: &mut Vec<u8>) -> bool {
        let place = self.0.and_then(|key| typed.iter().position(|typed| *typed == key));
        if let Some(place) = place {
            typed.truncate(place);
        }
        place.is_some()
    }
}

impl Shell {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        block_on(self.act())
    }

    async fn act(self) -> anyhow::Result<ExitCode> {
        let address = address(&self.server).await?;
        let wanted = Wanted {
            sandbox: self.sandbox.clone(),
            name: self.name.clone(),
            role: if self.observe { Role::Observe } else { Role::Write },
        };
        let shell = client::shells::Shell::new(address, &self.server.key()?, wanted);
        let mut signals = Signals::new().context("cannot listen for signals")?;
        let raw = Raw::enter().context("cannot take over the terminal")?.context(NO_TERMINAL)?;
        let (typed, local) = mpsc::channel(WAITING);
        let (resized, size) = watch::channel(here()?);
        let run = shell.run(Local { input: local, size }, |update| self.tell(&raw, update));
        let over = self.attend(run, typed, &resized, &mut signals).await;
        // What is said from here on is said to a terminal as it was.
        drop(raw);
        match over? {
            Over::End(end) => {
                self.finish(end.map_err(|error| explain(error, &self.sandbox))?).await
            }
            Over::Left => Ok(self.left()),
            Over::Told(code) => Ok(ExitCode::from(code)),
        }
    }

    fn tell(&self, raw: &Raw, update: Update<'_>) {
        let leaves = if self.detach_key.0.is_some() { "; the detach key leaves" } else { "" };
        let shown = match update {
            Update::Output(bytes) => raw.show(bytes),
            Update::Broken => {
                let note = "ringfence: the connection broke; connecting again";
                raw.show(format!("\r\n[{note}{leaves}]\r\n").as_bytes())
            }
        };
        // Who cannot be shown anything is told so by a signal, or by the end of what is typed.
        let _ = shown;
    }

    /// Carries what is typed to the shell, until it ends or is left.
    async fn attend(
        &self,
        run: impl Future<Output = Result<End, ClientError>>,
        to_shell: mpsc::Sender<Input>,
        resized: &watch::Sender<Size>,
        signals: &mut Signals,
    ) -> anyhow::Result<Over> {
        let mut run = pin!(run);
        let keys = Keys::new().context("cannot read from the terminal")?;
        let (mut typed, mut is_leaving) = (Vec::new(), false);
        loop {
            tokio::select! {
                biased;
                told = signals.next() => match told {
                    Told::Resized => drop(resized.send_replace(here()?)),
                    Told::End(code) => return Ok(Over::Told(code)),
                },
                end = &mut run => return Ok(Over::End(end)),
                read = keys.next(), if typed.is_empty() => {
                    typed = read.context("cannot read from the terminal")?;
                    if typed.is_empty() {
                        return Ok(Over::Told(HUNG_UP));
                    }
                    is_leaving = self.detach_key.cut(&mut typed);
                    if is_leaving && typed.is_empty() {
                        break;
                    }
                }
                Ok(room) = to_shell.reserve(), if !typed.is_empty() => {
                    room.send(Input::Bytes(std::mem::take(&mut typed)));
                    if is_leaving {
                        break;
                    }
                }
            }
        }
        drop(to_shell);
        // It makes no difference to who leaves whether the server has heard of it.
        Ok(match timeout(PARTING, run).await {
            Ok(Ok(End::Ended(ended))) => Over::End(Ok(End::Ended(ended))),
            Ok(_) | Err(_) => Over::Left,
        })
    }

    async fn finish(&self, end: End) -> anyhow::Result<ExitCode> {
        match end {
            End::Ended(ended) => Ok(ExitCode::from(exit_code(&ended))),
            End::EndedUnseen { exec } => {
                let ended = connect(&self.server).await?.get_exec(&exec).await?;
                complain("the shell ended while there was no connection to it");
                let code = ended.exit_code.and_then(|code| u8::try_from(code).ok());
                Ok(ExitCode::from(code.unwrap_or(OUR_FAILURE)))
            }
            End::Left => Ok(self.left()),
        }
    }

    fn left(&self) -> ExitCode {
        let name = match self.name.as_str() {
            "default" => String::new(),
            name => format!(" --name {name}"),
        };
        complain(&format!("left; `ringfence shell {}{name}` comes back", self.sandbox));
        ExitCode::SUCCESS
    }
}

/// How the time in the shell ended.
enum Over {
    End(Result<End, ClientError>),
    Left,
    /// By a signal, or because the terminal went away.
    Told(u8),
}

const HUNG_UP: u8 = 129;

const NO_TERMINAL: &str = "a shell is for a terminal, and this has none at both ends\n  \
    `ringfence exec NAME -- COMMAND` runs a command without one";

fn here() -> io::Result<Size> {
    let (rows, columns) = size()?;
    Ok(Size { rows, columns })
}

fn exit_code(ended: &Ended) -> u8 {
    let code = ended.exit_code.or_else(|| Some(128 + ended.signal?));
    if let (None, Some(message)) = (code, &ended.message) {
        complain(message);
    }
    code.and_then(|code| u8::try_from(code & 0xff).ok()).unwrap_or(OUR_FAILURE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_that_leaves_is_one_of_control() {
        let rows = [("ctrl-]", Some(0x1d)), ("Ctrl-Q", Some(0x11)), ("none", None)];
        for (text, key) in rows {
            assert_eq!(read_key(text), Ok(DetachKey(key)), "{text}");
        }
        for wrong in ["", "q", "ctrl-", "ctrl-ä", "ctrl-1", "ctrl-]]"] {
            assert!(read_key(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_was_typed_before_the_key_still_goes_out() {
        let mut typed = b"exit\r\x1dmore".to_vec();
        assert!(DetachKey(Some(0x1d)).cut(&mut typed));
        assert_eq!(typed, b"exit\r");
        assert!(!DetachKey(None).cut(&mut b"\x1d".to_vec()));
    }
}
