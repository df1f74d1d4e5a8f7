//! Removes the output of commands that are over, when its time is up or a sandbox has too much of it.
//!
//! One task does it for all sandboxes of this node. What is to go is decided by [`model::outputs`]; the
//! files are removed by the sandbox's supervisor, or by the spawner if none lives. What a server did not
//! come to do the next one finds on disk.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use isolate::sandbox::folder;
use model::{
    ids::{ExecId, SandboxId, Tenant},
    outputs::{Kept, LEAST, surplus},
    units::{ByteSize, Timestamp},
};
use tokio::{
    select,
    sync::{Notify, mpsc},
    time::sleep,
};

use super::{Shared, actor::Ask, clock, outputs_in};

/// Ends that may wait to be looked at. If there are more, everything is looked at.
const WAITING: usize = 1024;

/// After so long it is looked whether what was to be removed is gone; and the time of day may be set
/// while somebody waits for it.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// What the others tell the task.
#[derive(Debug)]
pub(super) struct Outputs {
    notes: mpsc::Sender<Note>,
    /// There were more notes than could wait.
    is_behind: AtomicBool,
    watched: Arc<Watched>,
}

/// What the task is told.
#[derive(Debug)]
pub(super) enum Note {
    /// A command is over.
    Ended { sandbox: SandboxId, tenant: Tenant, exec: ExecId },
    /// A sandbox is gone, with all that was in it.
    Gone(SandboxId),
}

/// Who watches which command.
#[derive(Debug, Default)]
struct Watched {
    counts: Mutex<HashMap<ExecId, usize>>,
    /// Somebody watches one no more.
    left: Notify,
}

impl Watched {
    fn counts(&self) -> MutexGuard<'_, HashMap<ExecId, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outputs {
    pub(super) fn new() -> (Self, mpsc::Receiver<Note>) {
        let (notes, told) = mpsc::channel(WAITING);
        (Self { notes, is_behind: AtomicBool::new(false), watched: Arc::default() }, told)
    }

    /// Notes that a command is over.
    pub(super) fn end(&self, sandbox: &SandboxId, tenant: &Tenant, exec: &ExecId) {
        let (sandbox, tenant, exec) = (sandbox.clone(), tenant.clone(), exec.clone());
        self.note(Note::Ended { sandbox, tenant, exec });
    }

    /// Notes that a sandbox is gone.
    pub(super) fn forget(&self, sandbox: &SandboxId) {
        self.note(Note::Gone(sandbox.clone()));
    }

    fn note(&self, note: Note) {
        if self.notes.try_send(note).is_err() {
            self.is_behind.store(true, Ordering::Relaxed);
        }
    }

    /// Keeps the output of a command from being removed to make room, until this is dropped.
    pub(super) fn hold(&self, exec: &ExecId) -> Hold {
        *self.watched.counts().entry(exec.clone()).or_default() += 1;
        Hold { watched: Arc::clone(&self.watched), exec: exec.clone() }
    }
}

/// A place among those who watch.
#[derive(Debug)]
pub(super) struct Hold {
    watched: Arc<Watched>,
    exec: ExecId,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut counts = self.watched.counts();
        let is_last = counts.get_mut(&self.exec).is_none_or(|count| {
            *count = count.saturating_sub(1);
            *count == 0
        });
        if is_last {
            counts.remove(&self.exec);
            self.watched.left.notify_one();
        }
    }
}

/// Removes what is to go, for as long as there are sandboxes.
pub(super) async fn keep(shared: Weak<Shared>, mut notes: mpsc::Receiver<Note>) {
    let Some(watched) = shared.upgrade().map(|shared| Arc::clone(&shared.outputs.watched)) else {
        return;
    };
    let (mut shelves, mut is_behind) = (Shelves::new(), true);
    while let Some(now) = shared.upgrade() {
        if is_behind {
            shelves.find_all(&now).await;
        }
        shelves.tidy(&now).await;
        is_behind = now.outputs.is_behind.swap(false, Ordering::Relaxed);
        drop(now);
        if is_behind {
            continue;
        }
        let again = shelves.look_again_in();
        select! {
            note = notes.recv() => {
                let (Some(note), Some(now)) = (note, shared.upgrade()) else { return };
                shelves.take(&now, note).await;
                // Those that wait as well are looked at together.
                while let Ok(note) = notes.try_recv() {
                    shelves.take(&now, note).await;
                }
            }
            () = watched.left.notified() => shelves.touch_crowded(),
            () = sleep(again.unwrap_or_default()), if again.is_some() => shelves.touch_asked(),
        }
    }
}

/// What is kept, by its sandbox.
#[derive(Debug)]
struct Shelves {
    all: HashMap<SandboxId, Shelf>,
    /// When the time of which is up.
    ends: BTreeSet<(Timestamp, SandboxId, ExecId)>,
    /// Those that something happened to since they were tidied.
    touched: HashSet<SandboxId>,
    /// Those that have more than they may, because somebody watches.
    crowded: HashSet<SandboxId>,
    /// Those from which something was asked to be removed.
    asked: HashSet<SandboxId>,
    /// A clock that is set ahead makes no output older than it is.
    clock: clock::Steady,
}

/// What is kept of the commands of one sandbox.
#[derive(Debug, Default)]
struct Shelf {
    kept: HashMap<ExecId, Kept>,
    /// Those that were asked to be removed, until they are seen to be gone.
    asked: HashSet<ExecId>,
    /// What all of them take.
    size: ByteSize,
}

impl Shelves {
    fn new() -> Self {
        Self {
            all: HashMap::new(),
            ends: BTreeSet::new(),
            touched: HashSet::new(),
            crowded: HashSet::new(),
            asked: HashSet::new(),
            clock: clock::Steady::begin(),
        }
    }

    /// Looks at everything that is on disk.
    async fn find_all(&mut self, shared: &Shared) {
        let clock = self.clock;
        *self = Self { clock, ..Self::new() };
        let living: Vec<(SandboxId, Tenant)> = {
            let living = shared.living();
            living.iter().map(|(id, contact)| (id.clone(), contact.tenant.clone())).collect()
        };
        for (sandbox, tenant) in living {
            let folder = shared.settings.folder.join(sandbox.as_str()).join(folder::OUTPUTS);
            let execs = tokio::task::spawn_blocking(move || execs_in(&folder)).await;
            for exec in execs.unwrap_or_default() {
                self.add(shared, sandbox.clone(), &tenant, exec).await;
            }
        }
    }

    async fn take(&mut self, shared: &Shared, note: Note) {
        match note {
            Note::Ended { sandbox, tenant, exec } => {
                self.add(shared, sandbox, &tenant, exec).await;
            }
            Note::Gone(sandbox) => {
                self.all.remove(&sandbox);
                self.ends.retain(|(_, other, _)| *other != sandbox);
            }
        }
    }

    /// Adds what a command has left, if it is over.
    async fn add(&mut self, shared: &Shared, sandbox: SandboxId, tenant: &Tenant, exec: ExecId) {
        // Without a record nobody can ask for it, and what still runs is told of at its end.
        let Ok(Some(found)) = shared.store.exec(tenant, &exec).await else { return };
        let Some(size) = size_of(shared, &sandbox, &exec).await else { return };
        let Some(kept) = Kept::of(&found.exec, size) else { return };
        if let Some(readable) = kept.readable {
            let end = kept.ended_at.plus(readable);
            self.ends.insert((end, sandbox.clone(), exec.clone()));
        }
        let shelf = self.all.entry(sandbox.clone()).or_default();
        if shelf.kept.insert(exec, kept).is_none() {
            shelf.size = shelf.size.saturating_add(size.max(LEAST));
        }
        self.touched.insert(sandbox);
    }

    /// Somebody has gone: there may be room now.
    fn touch_crowded(&mut self) {
        self.touched.extend(self.crowded.drain());
    }

    /// What was not removed is asked for again.
    fn touch_asked(&mut self) {
        self.touched.extend(self.asked.drain());
    }

    /// Has everything removed that is to go.
    async fn tidy(&mut self, shared: &Shared) {
        let (now, most) = (self.clock.now(), shared.settings.defaults.outputs);
        let mut due = HashSet::new();
        while let Some((end, sandbox, exec)) = self.ends.pop_first() {
            if end > now {
                self.ends.insert((end, sandbox, exec));
                break;
            }
            due.insert(sandbox);
        }
        self.touched.extend(due.iter().cloned());
        for sandbox in std::mem::take(&mut self.touched) {
            let Some(shelf) = self.all.get_mut(&sandbox) else { continue };
            let was_asked = shelf.forget_the_removed(shared, &sandbox).await;
            if shelf.size > most || was_asked || due.contains(&sandbox) {
                shelf.remove_surplus(shared, &sandbox, now);
            }
            if shelf.size > most {
                self.crowded.insert(sandbox.clone());
            }
            if !shelf.asked.is_empty() {
                self.asked.insert(sandbox);
            }
        }
    }

    /// Returns after how long something is to be done although nothing happens.
    fn look_again_in(&self) -> Option<Duration> {
        let next = self.ends.first().map(|(end, _, _)| end.since(self.clock.now()));
        let asked = (!self.asked.is_empty()).then_some(LOOK_AGAIN);
        next.into_iter().chain(asked).min().map(|next| next.min(LOOK_AGAIN))
    }
}

impl Shelf {
    /// Forgets what was asked to be removed, if it is gone. Returns whether something is not, which is
    /// asked for anew.
    async fn forget_the_removed(&mut self, shared: &Shared, sandbox: &SandboxId) -> bool {
        let mut is_there = false;
        for exec in std::mem::take(&mut self.asked) {
            if size_of(shared, sandbox, &exec).await.is_some() {
                is_there = true;
            } else if let Some(kept) = self.kept.remove(&exec) {
                let rest = self.size.as_bytes().saturating_sub(kept.size.max(LEAST).as_bytes());
                self.size = ByteSize::bytes(rest);
            }
        }
        is_there
    }

    fn remove_surplus(&mut self, shared: &Shared, sandbox: &SandboxId, now: Timestamp) {
        {
            let counts = shared.outputs.watched.counts();
            for kept in self.kept.values_mut() {
                kept.is_watched = counts.contains_key(&kept.exec);
            }
        }
        let most = shared.settings.defaults.outputs;
        for exec in surplus(self.kept.values().collect(), now, most) {
            tracing::debug!(%sandbox, %exec, "its output goes");
            // What the sandbox has no time for now it is asked for again.
            shared.try_send(sandbox, Ask::ClearOutput(exec.clone()));
            self.asked.insert(exec);
        }
    }
}

/// Returns what the output of a command takes on disk, if there is any.
async fn size_of(shared: &Shared, sandbox: &SandboxId, exec: &ExecId) -> Option<ByteSize> {
    /// What the kernel counts in, whatever a file system does.
    const BLOCK: u64 = 512;
    let paths = outputs_in(&shared.settings.folder, sandbox, exec);
    let sizes = move || {
        let blocks = paths.iter().filter_map(|path| path.symlink_metadata().ok()?.blocks().into());
        blocks.reduce(|one: u64, other| one.saturating_add(other))
    };
    let blocks = tokio::task::spawn_blocking(sizes).await.ok()??;
    Some(ByteSize::bytes(blocks.saturating_mul(BLOCK)))
}

/// Names the commands whose output is in a folder.
fn execs_in(folder: &Path) -> Vec<ExecId> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries
        .filter_map(|entry| {
            let name = entry.file_name();
            name.to_str()?.strip_suffix(".stdout.log")?.parse().ok()
        })
        .collect()
}
