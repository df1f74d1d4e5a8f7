//! The files of a sandbox, which only processes inside it open: they are asked, and what they hand out
//! is read and written here.

mod agent;
mod crew;
mod error;
mod reading;
mod searching;
mod watching;
mod writing;

use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

use isolate::{
    files::wire::{self, Answer, Ask, At, Kind, Stat},
    supervisor::wire::User,
};
use model::{
    file::{Condition, FileKind, FileStat, FileTime, Occurrences, Tags, edit},
    ids::{SandboxId, Tenant},
    path::CleanPath,
    sandbox::{Request, WhenStopped},
    spec::RunAs,
};
use tokio::time::timeout;

use super::{Sandboxes, Shared, command, link};
use agent::Agent;
pub(super) use crew::Crews;
use crew::{Counted, Crew};
pub use error::FileError;
pub use reading::OpenFile;
pub use searching::{Entry, Found, Line, Page};
pub use watching::{Breadth, Watching};
pub use writing::Writing;

/// Returns what a path is from that does not begin at the root: the home of the sandbox's user.
pub fn home(run: &RunAs) -> &'static str {
    command::home(run)
}

/// The largest file that is written.
pub const MAX_FILE: u64 = 4 << 30;

/// The largest file that is edited as a text.
pub const MAX_EDITED: u64 = 16 << 20;

/// How long a single thing may take.
const SOON: Duration = Duration::from_secs(30);

/// How long it may take until everything is on disk, or a whole tree is gone.
const LONG: Duration = Duration::from_mins(5);

/// How often an edit is done anew because the file has changed meanwhile.
const EDITS: usize = 3;

/// The files of one sandbox. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Files {
    shared: Arc<Shared>,
    sandbox: SandboxId,
    when_stopped: WhenStopped,
}

/// A path, and the folder that must not be left on the way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    folder: Vec<u8>,
    path: CleanPath,
}

impl Place {
    /// Nothing if the path is not below the folder.
    pub fn new(folder: &str, path: CleanPath) -> Option<Self> {
        path.below(folder.as_bytes())?;
        Some(Self { folder: folder.as_bytes().to_vec(), path })
    }

    pub fn path(&self) -> &CleanPath {
        &self.path
    }

    fn at(&self) -> At {
        let path = self.path.below(&self.folder).unwrap_or_default().to_vec();
        At { root: self.folder.clone(), path }
    }
}

/// Whether directories on the way are made if they are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parents {
    Make,
    Need,
}

/// What is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// A file, or an empty directory.
    One,
    /// A directory with everything in it.
    All,
}

/// Whether a file may be where another is moved to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onto {
    Nothing,
    File,
}

/// What is looked at where a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    Follow,
    Keep,
}

impl Sandboxes {
    /// Returns the files of a sandbox of this tenant.
    pub async fn files(
        &self,
        tenant: &Tenant,
        name: &str,
        when_stopped: WhenStopped,
    ) -> Result<Files, FileError> {
        let sandbox = match self.shared.served(tenant, name) {
            Some(sandbox) => sandbox,
            None => self.get(tenant, name).await?.id,
        };
        Ok(Files { shared: Arc::clone(&self.shared), sandbox, when_stopped })
    }

    /// Returns the home of the user that the files of a sandbox are used by, who is the user that its
    /// commands are run as.
    pub fn home(&self, sandbox: &SandboxId) -> &'static str {
        home(&self.shared.run_of(sandbox))
    }
}

impl Shared {
    /// Returns how commands of a sandbox are run, if it has a task here. Another has no files to use.
    fn run_of(&self, sandbox: &SandboxId) -> RunAs {
        self.living().get(sandbox).map(|contact| contact.run.clone()).unwrap_or_default()
    }
}

impl Files {
    /// Returns what is known of a file.
    pub async fn stat(&self, place: &Place, links: Links) -> Result<FileStat, FileError> {
        let ask = Ask::Stat { at: place.at(), follow: links == Links::Follow };
        match self.once(&ask, SOON).await? {
            (Answer::Stat(stat), _) => Ok(known(&stat)),
            _ => Err(FileError::Lost),
        }
    }

    /// Opens a file to read it.
    pub async fn open(&self, place: &Place) -> Result<OpenFile, FileError> {
        match self.once(&Ask::Open { at: place.at() }, SOON).await? {
            (Answer::Opened(stat), fd) => {
                let counted = self.crew().count();
                Ok(OpenFile::new(known(&stat), agent::regular(fd)?, counted))
            }
            _ => Err(FileError::Lost),
        }
    }

    /// Makes a directory.
    pub async fn make_directory(
        &self,
        place: &Place,
        parents: Parents,
        mode: Option<u32>,
    ) -> Result<FileStat, FileError> {
        let parents = parents == Parents::Make;
        let ask = Ask::MakeDirectory { at: place.at(), parents, mode };
        self.change(&ask, SOON).await?.ok_or(FileError::Lost)
    }

    /// Moves what this condition holds for.
    pub async fn rename(
        &self,
        from: &Place,
        to: &Place,
        condition: &Condition,
        onto: Onto,
    ) -> Result<FileStat, FileError> {
        let (from, to) = (from.at(), to.at());
        let replace = onto == Onto::File;
        let ask = Ask::Move { from, to, condition: told(condition), replace };
        self.change(&ask, SOON).await?.ok_or(FileError::Lost)
    }

    /// Removes what this condition holds for.
    pub async fn remove(
        &self,
        place: &Place,
        depth: Depth,
        condition: &Condition,
    ) -> Result<(), FileError> {
        let recursive = depth == Depth::All;
        let ask = Ask::Remove { at: place.at(), recursive, condition: told(condition) };
        self.change(&ask, LONG).await.map(drop)
    }

    /// Puts one text in the place of another. If the file changes meanwhile it is done anew, unless
    /// the condition was about that. Returns how often it was there, too.
    pub async fn edit(
        &self,
        place: &Place,
        [old, new]: [&[u8]; 2],
        which: Occurrences,
        condition: &Condition,
    ) -> Result<(FileStat, usize), FileError> {
        for _ in 0..EDITS {
            let file = self.open(place).await?;
            let stat = file.stat().clone();
            let current = Some(stat.tag.clone());
            if !holds(condition, &stat) {
                return Err(FileError::Precondition { current });
            }
            let text = file.read_whole(MAX_EDITED).await?;
            let (edited, count) = edit(&text, old, new, which)?;
            let unchanged = Condition::is(&stat.tag);
            let written = async {
                let mut writing = self.write(place, &unchanged, Parents::Need).await?;
                writing.write(edited).await?;
                writing.commit(None).await
            };
            match written.await {
                Err(FileError::Precondition { .. }) if condition.is_any() => {}
                done => return Ok((done?, count)),
            }
        }
        Err(FileError::Conflict)
    }

    /// Asks for one thing that changes names, and has it to itself until that is done.
    async fn change(&self, ask: &Ask, within: Duration) -> Result<Option<FileStat>, FileError> {
        let mut hired = self.hire().await?;
        let crew = Arc::clone(&hired.crew);
        let _changing = crew.changing.lock().await;
        match hired.answer(ask, within).await? {
            (Answer::Done(stat), _) => Ok(stat.map(|stat| known(&stat))),
            _ => Err(FileError::Lost),
        }
    }

    /// Asks for one thing that changes nothing. An agent that was kept may have been ended by anybody
    /// inside: then another is asked.
    async fn once(
        &self,
        ask: &Ask,
        within: Duration,
    ) -> Result<(Answer, Option<OwnedFd>), FileError> {
        let mut hired = self.hire().await?;
        match hired.answer(ask, within).await {
            Err(FileError::Lost) if hired.was_kept => {
                drop(hired);
                self.hire_new().await?.answer(ask, within).await
            }
            answered => answered,
        }
    }

    fn crew(&self) -> Arc<Crew> {
        self.shared.files.of(&self.sandbox, &self.shared)
    }

    /// Uses the sandbox: a frozen one thaws, and a stopped one is resumed if it is to be.
    async fn wake(&self) -> Result<(), FileError> {
        let request = Request::Use(self.when_stopped);
        self.shared.request(&self.sandbox, request).await.map(drop).map_err(FileError::from)
    }

    /// Returns an agent that has nothing else to do.
    async fn hire(&self) -> Result<Hired, FileError> {
        self.wake().await?;
        let crew = self.crew();
        let Some(agent) = crew.waiting(self.user()?) else { return self.hire_new().await };
        Ok(Hired::new(&self.shared, crew, agent, true))
    }

    /// Returns the user that agents have: the one that commands of the sandbox are run as.
    fn user(&self) -> Result<User, FileError> {
        Ok(command::user_of(&self.shared.run_of(&self.sandbox))?)
    }

    /// Has another agent started.
    async fn hire_new(&self) -> Result<Hired, FileError> {
        let crew = self.crew();
        let room = crew.room().await?;
        let user = self.user()?;
        let (folder, secret) = self.shared.machine.door(self.sandbox.as_str());
        let asked = async {
            let _turn = crew.asking.acquire().await.ok();
            link::files_inside(&folder, secret, user).await
        };
        let socket = match timeout(SOON, asked).await {
            Ok(Ok(Some(socket))) => socket,
            Ok(Ok(None)) => return Err(FileError::Old),
            Ok(Err(error)) => {
                tracing::warn!(sandbox = %self.sandbox, %error, "no agent for files was started");
                return Err(FileError::Lost);
            }
            Err(_) => return Err(FileError::Late),
        };
        let agent = Agent::new(socket, user, room).map_err(FileError::Kernel)?;
        Ok(Hired::new(&self.shared, crew, agent, false))
    }
}

/// An agent that works for one call.
#[derive(Debug)]
struct Hired {
    shared: Arc<Shared>,
    crew: Arc<Crew>,
    /// Gone when it must not be kept.
    agent: Option<Agent>,
    was_kept: bool,
    /// Whether it has said everything that it was asked for.
    is_done: bool,
    _counted: Counted,
}

impl Hired {
    fn new(shared: &Arc<Shared>, crew: Arc<Crew>, agent: Agent, was_kept: bool) -> Self {
        let counted = crew.count();
        let (shared, agent) = (Arc::clone(shared), Some(agent));
        Self { shared, crew, agent, was_kept, is_done: false, _counted: counted }
    }

    fn agent(&self) -> Result<&Agent, FileError> {
        self.agent.as_ref().ok_or(FileError::Lost)
    }

    /// Asks for what has one answer. After it the agent has nothing to do.
    async fn answer(
        &mut self,
        ask: &Ask,
        within: Duration,
    ) -> Result<(Answer, Option<OwnedFd>), FileError> {
        self.is_done = false;
        let answered = self.agent()?.answer(ask, within).await;
        // What it answers after it was given up would be taken for the answer to something else.
        self.is_done = !matches!(answered, Err(FileError::Late | FileError::Lost));
        answered
    }
}

impl Drop for Hired {
    fn drop(&mut self) {
        if self.is_done
            && let Some(agent) = self.agent.take()
        {
            self.crew.keep(agent, &self.shared.tasks);
        }
    }
}

fn known(stat: &Stat) -> FileStat {
    FileStat {
        kind: kind(stat.kind),
        size: stat.size,
        mode: stat.mode,
        user: stat.user,
        group: stat.group,
        modified: FileTime { seconds: stat.modified.seconds, nanos: stat.modified.nanos },
        tag: stat.tag(),
    }
}

fn kind(kind: Kind) -> FileKind {
    match kind {
        Kind::File => FileKind::File,
        Kind::Directory => FileKind::Directory,
        Kind::Symlink => FileKind::Symlink,
        Kind::Fifo => FileKind::Fifo,
        Kind::Socket => FileKind::Socket,
        Kind::Device => FileKind::Device,
        Kind::Unknown => FileKind::Unknown,
    }
}

fn told(condition: &Condition) -> wire::Condition {
    let tags = |tags: &Tags| match tags {
        Tags::Any => wire::Tags::Any,
        Tags::These(these) => wire::Tags::These(these.clone()),
    };
    wire::Condition {
        is: condition.is.as_ref().map(tags),
        is_not: condition.is_not.as_ref().map(tags),
    }
}

fn holds(condition: &Condition, stat: &FileStat) -> bool {
    let has = |tags: &Tags| match tags {
        Tags::Any => true,
        Tags::These(these) => these.contains(&stat.tag),
    };
    condition.is.as_ref().is_none_or(has) && !condition.is_not.as_ref().is_some_and(has)
}
