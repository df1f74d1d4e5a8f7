//! Who keeps the screen of one shell, whether anybody has joined it or not.
//!
//! The screen is made from the shell's output when somebody wants to see it, when the terminal gets
//! another size, and whenever so much output has come that the next server should not have to read
//! it all again. Each time it is put in a file, with the place in the output that it is from
//! (`checkpoint`); while nobody has joined it is nowhere else. What comes after that place
//! is kept by the supervisor, which has the shell wait rather than throw away what was not shown.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use isolate::supervisor::wire::Ask as Say;
use model::{exec::Exec, spec::TerminalSize};
use tokio::{
    select,
    sync::{Semaphore, mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};

use super::{checkpoint, screen::Screen};
use crate::sandboxes::{
    SandboxError, Shared,
    actor::Ask,
    attach::{Flow, Output, Part, Stream, minding::until},
    feeds::Feed,
};

/// What a terminal shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Painting {
    pub size: TerminalSize,
    /// The place in the shell's output of the first byte that does not show yet.
    pub at: u64,
    /// How many bytes before it were not kept, so that they could not be shown.
    pub lost: u64,
    /// What makes a terminal of this size show the same.
    pub text: String,
}

/// What a terminal shows is the user's: it never appears in a log line.
impl std::fmt::Debug for Painting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Painting").field("at", &self.at).finish_non_exhaustive()
    }
}

/// The size of a terminal from a byte of its shell's output on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resized {
    pub size: TerminalSize,
    pub at: u64,
}

/// So much output is shown at once at most, after which it is another shell's turn.
const SLICE: usize = 16 << 10;

/// After so much output the screen is kept anew, or earlier if less of it is kept.
const STEP: u64 = 256 << 10;

/// What part of the output that is kept that is at most.
const PART: u64 = 8;

/// A terminal gets another size at most this often.
const STEADY: Duration = Duration::from_millis(20);

/// Those who want to see the screen at once; more wait to ask.
const ASKS: usize = 64;

/// How many screens are being made at the same time: what is in them is anybody's, and may take long.
#[derive(Debug)]
pub(in crate::sandboxes) struct Painters(Semaphore);

impl Default for Painters {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self(Semaphore::new((processors / 2).max(1)))
    }
}

/// How the others reach who keeps a screen.
#[derive(Debug)]
pub(in crate::sandboxes) struct Keeper {
    asks: mpsc::Sender<oneshot::Sender<Arc<Painting>>>,
    wanted: watch::Sender<Option<TerminalSize>>,
    shown: watch::Receiver<Option<Resized>>,
}

/// Returns who keeps the screen of a shell, who begins to if nobody does.
pub(super) fn keep(shared: &Arc<Shared>, exec: &Exec, feed: &Arc<Feed>) -> Arc<Keeper> {
    let keeper = feed.keeper.get_or_init(|| {
        let (asks, asked) = mpsc::channel(ASKS);
        let (wanted, wants) = watch::channel(None);
        let (show, shown) = watch::channel(None);
        let keeping = Keeping::new(shared, exec, feed, show);
        shared.tasks.start("screen of a shell", keeping.run(asked, wants));
        Arc::new(Keeper { asks, wanted, shown })
    });
    Arc::clone(keeper)
}

impl Keeper {
    pub(super) async fn paint(&self) -> Result<Arc<Painting>, SandboxError> {
        let (answer, painted) = oneshot::channel();
        // Whoever keeps it does so until the shell is over.
        self.asks.send(answer).await.map_err(|_over| SandboxError::ExecEnded)?;
        painted.await.map_err(|_over| SandboxError::ExecEnded)
    }

    pub(super) fn resize(&self, size: TerminalSize) {
        self.wanted.send_replace(Some(size));
    }

    pub(super) async fn resized(&self, from: TerminalSize) -> Resized {
        let mut shown = self.shown.clone();
        let differs = |shown: &Option<Resized>| shown.is_some_and(|shown| shown.size != from);
        let found = shown.wait_for(differs).await.ok().and_then(|shown| *shown);
        match found {
            Some(resized) => resized,
            // It is over.
            None => std::future::pending().await,
        }
    }
}

struct Keeping {
    shared: Weak<Shared>,
    exec: Exec,
    feed: Arc<Feed>,
    /// Its number among those for whom the shell waits.
    reader: u64,
    flow: watch::Receiver<Flow>,
    show: watch::Sender<Option<Resized>>,
    size: TerminalSize,
    /// The first byte that the screen was not fed.
    at: u64,
    lost: u64,
    /// What `at` and `lost` were of the screen that is in the file.
    kept: (u64, u64),
    /// From where on it is counted how much has come since.
    counted_from: u64,
    /// While somebody has joined, or something is being done with it.
    screen: Option<Screen>,
    /// What it shows, if that was asked for since it last changed.
    painting: Option<Arc<Painting>>,
    /// Before this the terminal does not get another size.
    steady_until: Instant,
}

/// There is nothing more to keep: the shell is over, or this server.
struct Over;

impl Keeping {
    fn new(
        shared: &Arc<Shared>,
        exec: &Exec,
        feed: &Arc<Feed>,
        show: watch::Sender<Option<Resized>>,
    ) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            exec: exec.clone(),
            feed: Arc::clone(feed),
            reader: feed.number(),
            flow: feed.flow.subscribe(),
            show,
            size: exec.spec.terminal.unwrap_or(TerminalSize::USUAL).of_shell(),
            at: 0,
            lost: 0,
            kept: (0, 0),
            counted_from: 0,
            screen: None,
            painting: None,
            steady_until: Instant::now(),
        }
    }

    async fn run(
        mut self,
        mut asked: mpsc::Receiver<oneshot::Sender<Arc<Painting>>>,
        mut wants: watch::Receiver<Option<TerminalSize>>,
    ) {
        if self.take_over().await.is_ok() {
            while self.step(&mut asked, &mut wants).await.is_ok() {}
        }
        if self.flow.borrow().end.is_some()
            && let Some(shared) = self.shared.upgrade()
        {
            let (folder, exec) = (shared.settings.screens.clone(), self.exec.id.clone());
            let removed = tokio::task::spawn_blocking(move || checkpoint::remove(&folder, &exec));
            // The runtime may end, and this server with it.
            let _ = removed.await;
        }
    }

    /// Goes on where an earlier server was.
    async fn take_over(&mut self) -> Result<(), Over> {
        let kept = self.read().await?;
        if let Some(Painting { size, at, lost, text: _ }) = &kept {
            (self.size, self.at, self.lost) = (*size, *at, *lost);
            (self.kept, self.counted_from) = ((*at, *lost), *at);
        }
        let shared = self.shared.upgrade().ok_or(Over)?;
        let output = shared.settings.defaults.output.as_bytes();
        // What cannot be said now is said with the first output that is read.
        self.feed.want(self.reader, (Stream::Stdout, self.at), output, |wanted| {
            let say = Say::Pace { exec: self.exec.id.to_string(), wanted: Some(wanted) };
            shared.try_send(&self.exec.sandbox, Ask::Say(say))
        });
        drop(shared);
        until(&mut self.flow, |flow| flow.pid.is_some() || flow.end.is_some()).await;
        if kept.is_some() {
            // It may have been kept and not been set any more.
            self.set_window().await;
        }
        self.show.send_replace(Some(Resized { size: self.size, at: self.at }));
        Ok(())
    }

    /// Waits for the next thing to do, and does it.
    async fn step(
        &mut self,
        asked: &mut mpsc::Receiver<oneshot::Sender<Arc<Painting>>>,
        wants: &mut watch::Receiver<Option<TerminalSize>>,
    ) -> Result<(), Over> {
        let due = self.counted_from.saturating_add(self.stride());
        let is_due = |flow: &Flow| flow.end.is_some() || end_of(flow) >= due;
        let mut attended = self.feed.attended.subscribe();
        let (size, steady_until) = (self.size, self.steady_until);
        let next_size = async {
            until(wants, |wanted| wanted.is_some_and(|wanted| wanted != size)).await;
            sleep_until(steady_until).await;
        };
        select! {
            biased;
            ask = asked.recv() => {
                let answer = ask.ok_or(Over)?;
                self.catch_up().await?;
                let painting = self.paint().await?;
                // Whoever asked may have gone.
                let _ = answer.send(painting);
            }
            () = next_size => {
                let wanted = *wants.borrow();
                if let Some(wanted) = wanted {
                    self.resize(wanted).await?;
                }
            }
            () = until(&mut self.flow, is_due) => {
                if self.flow.borrow().end.is_some() {
                    return Err(Over);
                }
                self.catch_up().await?;
                self.keep().await?;
            }
            () = until(&mut attended, |count| *count == 0), if self.screen.is_some() => {
                self.keep().await?;
                (self.at, self.lost) = self.kept;
                (self.screen, self.painting) = (None, None);
            }
        }
        Ok(())
    }

    fn stride(&self) -> u64 {
        let kept = self.shared.upgrade().map(|it| it.settings.defaults.output.as_bytes());
        STEP.min(kept.unwrap_or(STEP) / PART)
    }

    /// Shows everything that has been written by now.
    async fn catch_up(&mut self) -> Result<(), Over> {
        let end = end_of(&self.flow.borrow());
        self.wake().await?;
        if self.at >= end {
            return Ok(());
        }
        let shared = self.shared.upgrade().ok_or(Over)?;
        let seat = Some((Arc::clone(&self.feed), self.reader));
        let flow = self.flow.clone();
        let mut output = Output::new(&shared, &self.exec, Stream::Stdout, self.at, flow, seat);
        while self.at < end {
            match output.next().await {
                Ok(Part::Bytes { bytes, .. }) => self.feed(&shared, bytes).await?,
                Ok(Part::Gap { length, .. }) => self.lose(length),
                Ok(Part::End { .. }) => break,
                Err(error) => {
                    tracing::error!(exec = %self.exec.id, %error, "a screen cannot be kept");
                    self.lose(end - self.at);
                }
            }
        }
        Ok(())
    }

    async fn feed(&mut self, shared: &Shared, bytes: Vec<u8>) -> Result<(), Over> {
        self.painting = None;
        for slice in bytes.chunks(SLICE) {
            let Some(mut screen) = self.screen.take() else { return Err(Over) };
            let turn = shared.painters.0.acquire().await;
            let length = u64::try_from(slice.len()).unwrap_or_default();
            let slice = slice.to_vec();
            let fed = tokio::task::spawn_blocking(move || {
                screen.feed(&slice);
                screen
            });
            let fed = fed.await;
            drop(turn);
            match fed {
                Ok(screen) => {
                    self.screen = Some(screen);
                    self.at += length;
                }
                Err(error) if error.is_panic() => self.lose(length),
                // The runtime ends, and this server with it.
                Err(_) => return Err(Over),
            }
        }
        Ok(())
    }

    /// Begins anew after so many bytes that nobody can show: what was before fits nothing after it.
    fn lose(&mut self, length: u64) {
        self.at += length;
        self.lost += length;
        self.painting = None;
        self.screen = Screen::new(self.size);
    }

    /// Has the screen in memory.
    async fn wake(&mut self) -> Result<(), Over> {
        if self.screen.is_some() {
            return Ok(());
        }
        let kept = match self.at {
            0 => None,
            _ => self.read().await?,
        };
        let size = self.size;
        let screen = match kept.filter(|kept| kept.at == self.at) {
            Some(kept) => {
                let painted = tokio::task::spawn_blocking(move || {
                    let mut screen = Screen::painted(kept.size, &kept.text)?;
                    screen.resize(size);
                    Some(screen)
                });
                painted.await.ok().flatten()
            }
            None if self.at == 0 => Screen::new(size),
            None => None,
        };
        match screen {
            Some(screen) => self.screen = Some(screen),
            None => self.begin_again(),
        }
        Ok(())
    }

    /// The screen that was kept is not to be had: what is left of the output is shown on another.
    fn begin_again(&mut self) {
        tracing::warn!(exec = %self.exec.id, "the screen of a shell was not kept");
        (self.at, self.lost) = (0, 0);
        self.screen = Screen::new(self.size);
    }

    async fn paint(&mut self) -> Result<Arc<Painting>, Over> {
        if let Some(painting) = &self.painting {
            return Ok(Arc::clone(painting));
        }
        let screen = self.screen.take().ok_or(Over)?;
        let painted = tokio::task::spawn_blocking(move || (screen.paint(), screen)).await;
        let (text, screen) = painted.map_err(|_runtime_ends| Over)?;
        let at = self.at.saturating_sub(screen.behind());
        let painting = Arc::new(Painting { size: self.size, at, lost: self.lost, text });
        self.screen = Some(screen);
        self.painting = Some(Arc::clone(&painting));
        Ok(painting)
    }

    /// Gives the terminal another size. That is kept first: whatever the shell writes
    /// because of it is shown at this size, by this server or the next.
    async fn resize(&mut self, size: TerminalSize) -> Result<(), Over> {
        self.steady_until = Instant::now() + STEADY;
        if size == self.size {
            return Ok(());
        }
        self.catch_up().await?;
        let mut screen = self.screen.take().ok_or(Over)?;
        let resized = tokio::task::spawn_blocking(move || {
            screen.resize(size);
            screen
        });
        self.painting = None;
        self.size = size;
        match resized.await {
            Ok(screen) => self.screen = Some(screen),
            Err(_) => self.lose(0),
        }
        self.keep().await?;
        self.set_window().await;
        self.show.send_replace(Some(Resized { size, at: self.at }));
        Ok(())
    }

    async fn set_window(&self) {
        let Some(shared) = self.shared.upgrade() else { return };
        match shared.open_input(&self.exec).await {
            Ok(terminal) => terminal.resize(self.size),
            // It is over, or its sandbox not reached: then whoever goes on does it.
            Err(error) => tracing::debug!(exec = %self.exec.id, %error, "not resized"),
        }
    }

    /// Puts the screen in its file.
    async fn keep(&mut self) -> Result<(), Over> {
        let painting = self.paint().await?;
        self.counted_from = self.at;
        let shared = self.shared.upgrade().ok_or(Over)?;
        let (folder, exec) = (shared.settings.screens.clone(), self.exec.id.clone());
        let kept = (painting.at, painting.lost);
        let written =
            tokio::task::spawn_blocking(move || checkpoint::write(&folder, &exec, &painting));
        match written.await {
            Ok(Ok(())) => self.kept = kept,
            // Then more is read again from the one before.
            Ok(Err(error)) => {
                tracing::error!(exec = %self.exec.id, %error, "cannot keep the screen of a shell");
            }
            Err(_runtime_ends) => return Err(Over),
        }
        Ok(())
    }

    async fn read(&self) -> Result<Option<Painting>, Over> {
        let shared = self.shared.upgrade().ok_or(Over)?;
        let (folder, exec) = (shared.settings.screens.clone(), self.exec.id.clone());
        let read = tokio::task::spawn_blocking(move || checkpoint::read(&folder, &exec));
        read.await.map_err(|_runtime_ends| Over)
    }
}

fn end_of(flow: &Flow) -> u64 {
    let [stdout, _] = flow.extents;
    stdout.end
}
