//! `ringfence logs`.

use std::{fs, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use clap::Args;
use client::sandboxes::record::Exec;
use tokio::time::timeout;

use super::exec::{Screen, UNREADABLE};
use crate::{
    outputs::{Outputs, Stream, Watch},
    sandboxes::{Interrupt, block_on, connect, explain},
    server::Server,
};

/// Shows what a command wrote.
///
/// The output is in the server's data directory: this works on the server's machine, for whoever
/// may read it there (root, and the user of the server).
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  ringfence logs ex_0123456789abcdef
  ringfence logs --follow $(ringfence exec demo --detach -- sh -c 'sleep 5; echo done')
  ringfence logs --stderr --data /srv/ringfence ex_0123456789abcdef

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
        let sandboxes = connect(&self.server).await?;
        let exec = sandboxes.get_exec(&self.exec).await;
        let exec = exec.map_err(|error| explain(error, &self.exec))?;
        let stream = if self.stderr { Stream::Stderr } else { Stream::Stdout };
        // The server knows this id, so that it is one and no path.
        let file = Place { folder: self.server.data()?.join("sandboxes"), stream, exec: &exec };
        let file = file.find().await?;
        let mut outputs = Outputs::follow(&[(stream, &file)]).context(UNREADABLE)?;
        let mut screen = if self.json { Screen::json() } else { Screen::Stdout };
        if self.follow {
            let mut interrupt = Interrupt::new()?;
            let end = sandboxes.wait_for_exec(&exec.id, |_| {});
            tokio::pin!(end);
            loop {
                tokio::select! {
                    ended = &mut end => {
                        ended?;
                        break;
                    }
                    piece = outputs.next() => screen.show(&piece.context(UNREADABLE)?)?,
                    code = interrupt.next() => return Ok(ExitCode::from(code)),
                }
            }
        }
        outputs.rest(|piece| screen.show(&piece)).context(UNREADABLE)?;
        screen.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// How long the file of a command that was just accepted may take to be there.
const SOON: Duration = Duration::from_secs(2);

/// Where the output of a command is looked for.
struct Place<'a> {
    folder: PathBuf,
    stream: Stream,
    exec: &'a Exec,
}

impl Place<'_> {
    /// Finds the file. The protocol tells where it is only to who starts the command, and a
    /// sandbox's folder has another name than the one it was given.
    async fn find(&self) -> anyhow::Result<PathBuf> {
        let found = self.look()?;
        if found.is_some() || self.exec.state.is_terminal() {
            return found.with_context(|| self.nothing());
        }
        // It is made a moment after the command was accepted.
        let watch = Watch::new(&self.folders()?).context(UNREADABLE)?;
        let appears = async {
            loop {
                if let Some(file) = self.look()? {
                    return Ok(file);
                }
                watch.changed().await.context(UNREADABLE)?;
            }
        };
        timeout(SOON, appears).await.unwrap_or_else(|_elapsed| bail!(self.nothing()))
    }

    fn look(&self) -> anyhow::Result<Option<PathBuf>> {
        let name = format!("{}.{}.log", self.exec.id, self.stream.word());
        let files = self.folders()?.into_iter().map(|folder| folder.join(&name));
        let mut found: Vec<PathBuf> = files.filter(|file| file.is_file()).collect();
        let file = found.pop();
        if !found.is_empty() {
            bail!("more than one command has the id {}", self.exec.id);
        }
        Ok(file)
    }

    /// Returns the folders of output, one of each sandbox.
    fn folders(&self) -> anyhow::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(&self.folder).with_context(|| {
            let folder = self.folder.display();
            format!("{WHERE}\n  cannot look for the output in {folder}")
        })?;
        let folders = entries.filter_map(|entry| Some(entry.ok()?.path().join("out")));
        Ok(folders.filter(|folder| folder.is_dir()).collect())
    }

    fn nothing(&self) -> String {
        format!(
            "{} has no output in {}\n  it goes when its sandbox ({}) is deleted\n  {WHERE}",
            self.exec.id,
            self.folder.display(),
            self.exec.sandbox
        )
    }
}

const WHERE: &str = "run this on the server's machine, as root or the server's user, and name the \
    server's data directory with --data or RINGFENCE_DATA";
