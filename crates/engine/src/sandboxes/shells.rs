//! Shells: commands with a terminal and a name, which run on without anybody and which several can
//! join. Whoever joins is shown the screen as it is, and then every byte after it.

mod checkpoint;
mod keeper;
mod screen;

use std::{collections::HashSet, path::Path, sync::Arc, time::Duration};

use model::{
    exec::Exec,
    ids::{ExecId, SandboxId, ShellName, Tenant},
    sandbox::{Sandbox, WhenStopped},
    spec::{ElseIn, ExecSpec, Input, OnFull, TerminalSize, Variables},
};

use super::{SandboxError, Sandboxes, Shared, attach::Attached, feeds::Feed, random};
pub(super) use keeper::{Keeper, Painters};
pub use keeper::{Painting, Resized};
#[doc(hidden)]
pub use screen::fuzz_one as fuzz_screen;

/// What a shell is started with, if it is not there.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ShellSpec {
    /// Empty for the usual one.
    pub command: Vec<String>,
    pub working_directory: String,
    pub env: Variables,
    pub user: Option<String>,
    pub size: Option<TerminalSize>,
}

/// Command and env are the user's: they never appear in a log line.
impl std::fmt::Debug for ShellSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShellSpec").field("size", &self.size).finish_non_exhaustive()
    }
}

/// What is run if nobody says: the shell that people expect, where the image has it.
const USUAL: [&str; 3] =
    ["/bin/sh", "-c", "if [ -x /bin/bash ]; then exec /bin/bash; else exec /bin/sh; fi"];

/// What the screen that is kept understands, and every terminal of today.
const TERM: (&str, &str) = ("TERM", "xterm-256color");

/// How long the last output stays for those who are still reading it.
const LAST_WORDS: Duration = Duration::from_mins(1);

/// How often one is looked for that ends whenever it is found.
const TRIES: usize = 8;

impl ShellSpec {
    fn named(self, name: &ShellName) -> ExecSpec {
        let Self { command, working_directory, mut env, user, size } = self;
        env.entry(TERM.0.to_owned()).or_insert_with(|| TERM.1.to_owned());
        let usual = || USUAL.map(str::to_owned).to_vec();
        ExecSpec {
            command: if command.is_empty() { usual() } else { command },
            working_directory,
            else_in: ElseIn::Workspace,
            env,
            user,
            input: Input::Open,
            terminal: Some(size.unwrap_or(TerminalSize::USUAL).of_shell()),
            timeout: None,
            unattended: None,
            readable: Some(LAST_WORDS),
            // For whoever keeps the screen, and nobody else.
            on_full: OnFull::Wait,
            shell: Some(name.clone()),
        }
    }
}

/// A shell that somebody has joined. Whoever drops both parts has left it.
#[derive(Debug)]
pub struct Shell {
    pub attached: Attached,
    pub terminal: ShellTerminal,
}

/// The terminal of a shell, as those see it who have joined it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ShellTerminal(Arc<Keeper>);

impl Sandboxes {
    /// Joins the shell of this name, which is started if it is not there. Of those who come at once
    /// one starts it and all join the same.
    pub async fn start_shell(
        &self,
        tenant: &Tenant,
        sandbox: &SandboxId,
        name: &ShellName,
        spec: ShellSpec,
        when_stopped: WhenStopped,
    ) -> Result<Shell, SandboxError> {
        let spec = spec.named(name);
        for _ in 0..TRIES {
            let exec = ExecId::from_random(random()?);
            let begun = self.begin(tenant, sandbox, &exec, spec.clone(), when_stopped).await?;
            let joined = match begun {
                Some(attached) => Shell::of(&self.shared, attached),
                None => self.join_shell(tenant, sandbox, name).await,
            };
            // It was there a moment ago.
            if !matches!(joined, Err(SandboxError::ShellNotFound)) {
                return joined;
            }
        }
        Err(SandboxError::Unavailable("the shell ends whenever it is joined".to_owned()))
    }

    /// Joins the shell of this name, if it is there.
    pub async fn join_shell(
        &self,
        tenant: &Tenant,
        sandbox: &SandboxId,
        name: &ShellName,
    ) -> Result<Shell, SandboxError> {
        let found = self.shared.store.sandbox(sandbox).await?;
        let found = found.filter(|found| found.tenant == *tenant).ok_or(SandboxError::NotFound)?;
        let exec = found.life.shells.get(name).ok_or(SandboxError::ShellNotFound)?;
        self.join_shell_by_id(tenant, sandbox, exec).await
    }

    /// Joins a shell by the id that it has as a command.
    pub async fn join_shell_by_id(
        &self,
        tenant: &Tenant,
        sandbox: &SandboxId,
        exec: &ExecId,
    ) -> Result<Shell, SandboxError> {
        match self.attach_any(tenant, sandbox, exec).await {
            Ok(attached) => Shell::of(&self.shared, attached),
            Err(SandboxError::ExecNotFound) => Err(SandboxError::ShellNotFound),
            Err(error) => Err(error),
        }
    }
}

impl Shell {
    /// One that is over is none any more.
    fn of(shared: &Arc<Shared>, attached: Attached) -> Result<Self, SandboxError> {
        let is_shell = attached.exec().spec.shell.is_some() && attached.flow().end.is_none();
        let feed = attached.feed().filter(|_| is_shell).ok_or(SandboxError::ShellNotFound)?;
        let terminal = ShellTerminal(keeper::keep(shared, attached.exec(), feed));
        Ok(Self { attached, terminal })
    }

    pub fn name(&self) -> Option<&ShellName> {
        self.attached.exec().spec.shell.as_ref()
    }
}

impl ShellTerminal {
    /// Returns what the terminal shows by now.
    pub async fn paint(&self) -> Result<Arc<Painting>, SandboxError> {
        self.0.paint().await
    }

    /// Makes the terminal this large, soon. Of several wishes the last counts.
    pub fn resize(&self, size: TerminalSize) {
        self.0.resize(size.of_shell());
    }

    /// Waits until the terminal is of another size than this.
    pub async fn resized(&self, from: TerminalSize) -> Resized {
        self.0.resized(from).await
    }
}

/// Has the screen of a command be kept that is a shell.
pub(super) fn keep_if_shell(shared: &Arc<Shared>, exec: &Exec, feed: &Arc<Feed>) {
    if exec.spec.shell.is_some() {
        keeper::keep(shared, exec, feed);
    }
}

/// Removes the screens of shells that are over.
pub(super) async fn tidy(folder: &Path, sandboxes: &[Sandbox]) {
    let shells = sandboxes.iter().flat_map(|sandbox| sandbox.life.shells.values().cloned());
    let (shells, folder): (HashSet<ExecId>, _) = (shells.collect(), folder.to_owned());
    let tidied = tokio::task::spawn_blocking(move || checkpoint::tidy(&folder, &shells));
    if let Ok(Err(error)) = tidied.await {
        tracing::warn!(%error, "cannot tidy the folder of screens");
    }
}
