//! A WebSocket whose client watches one command, or has joined a shell.
//!
//! One task does it all. While the client does not take what it was sent, no more is read for it; and
//! while the command does not read what was sent to it, nothing more is taken from the client.

pub(super) mod session;
mod stdin;
mod text;
pub(super) mod words;

use std::{future::poll_fn, pin::pin, sync::Arc, time::Duration};

use api::errors::ErrorCode;
use axum::{extract::Request, response::Response};
use engine::sandboxes::{
    SandboxError,
    attach::{Attached, Output, Part, Stream},
    shells::{Painting, Resized, Shell, ShellTerminal},
};
use futures_util::future::BoxFuture;
use model::spec::{OnFull, TerminalSize};
use tokio::{
    select,
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_tungstenite::tungstenite::Message;

use crate::{
    http::{App, problem::ApiError},
    serve::{Phase, Settings},
    ws::{
        self,
        connection::until,
        end::End,
        health::Health,
        socket::{Socket, Step},
    },
};
use stdin::Stdin;
use words::Words;

/// Turns a request into a WebSocket that is served by this, and says good-bye on it in the end.
pub(super) fn converse<S>(app: &App, request: Request, serve: S) -> Result<Response, ApiError>
where
    S: for<'a> FnOnce(&'a mut Socket) -> BoxFuture<'a, End> + Send + 'static,
{
    ws::upgrade_to(app, request, async move |stream| {
        let mut socket = Socket::with_limit(stream, session::MAX_MESSAGE).await;
        let end = serve(&mut socket).await;
        end.tell(socket).await;
    })
}

/// What a client wants of the command that it watches.
pub(super) enum Wish {
    Input(Vec<u8>),
    CloseInput,
    Resize(TerminalSize),
    Signal(i32),
    Kill,
}

/// What a client said, as whoever knows its spelling understands it.
pub(super) enum Heard {
    Wish(Wish),
    /// It was answered, or there is nothing to do.
    Nothing,
    End(End),
}

/// Understands what a client says while it watches a command.
pub(super) trait Listener {
    /// Takes one message.
    async fn hear(&mut self, message: &str, socket: &mut Socket) -> Heard;

    /// Takes a binary message, which is input.
    fn hear_bytes(&mut self, bytes: Vec<u8>, socket: &mut Socket) -> Heard;

    /// Returns whether input is taken from it.
    fn may_write(&self) -> bool;

    /// Says now and then what it has done.
    fn report(&mut self);

    /// Returns when something has to be said or done by itself: a warning, or the end.
    async fn wait(&mut self) -> Due;

    /// Says what is due. Returns why the connection ends, if it does.
    fn tell(&mut self, due: Due, socket: &mut Socket) -> Option<End>;
}

/// What time brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Warning,
    Cut(u16, &'static str),
}

pub(super) struct Conversation {
    pub(super) attached: Attached,
    pub(super) words: Words,
    outputs: Outputs,
    /// Of a shell.
    terminal: Option<Terminal>,
    stdin: Stdin,
    settings: Arc<Settings>,
    phase: watch::Receiver<Phase>,
    /// What is said when the server ends.
    restarting: u16,
}

/// The terminal of a shell, as the client knows it.
struct Terminal {
    shell: ShellTerminal,
    size: TerminalSize,
}

/// For so long what a client wrote last can be taken after it has left.
const PARTING: Duration = Duration::from_secs(1);

/// EOF, as people type it.
const END_OF_INPUT: &[u8] = b"\x04";

/// Both streams, each until it has come to its end.
struct Outputs {
    stdout: Option<Output>,
    stderr: Option<Output>,
}

impl Conversation {
    pub(super) fn new(
        app: &App,
        attached: Attached,
        words: Words,
        [stdout, stderr]: [u64; 2],
        on_full: OnFull,
    ) -> Self {
        let outputs = Outputs {
            stdout: Some(attached.output(Stream::Stdout, stdout, on_full)),
            stderr: Some(attached.output(Stream::Stderr, stderr, on_full)),
        };
        let restarting = match &words {
            Words::Session { .. } => 1012,
            // Its clients come back at once after this.
            Words::LangSmith { .. } => 1001,
        };
        Self {
            attached,
            words,
            outputs,
            terminal: None,
            stdin: Stdin::default(),
            settings: Arc::clone(&app.settings),
            phase: app.phase.clone(),
            restarting,
        }
    }

    /// Tells everything until the command is over or the client is gone.
    pub(super) async fn run(&mut self, socket: &mut Socket, listener: &mut impl Listener) -> End {
        let pid = self.attached.started().await;
        self.words.started(socket, self.attached.id().as_str(), pid);
        self.go_on(socket, listener).await
    }

    /// Shows a shell that was joined, from this byte on or as it is, and does what the client has
    /// wanted before; then tells everything until it is over or the client is gone.
    pub(super) async fn run_shell(
        app: &App,
        shell: Shell,
        (words, from): (Words, Option<u64>),
        first: Option<Wish>,
        socket: &mut Socket,
        listener: &mut impl Listener,
    ) -> End {
        let Shell { mut attached, terminal } = shell;
        let pid = attached.started().await;
        let painting = terminal.paint().await.ok();
        let size = painting.as_ref().map(|it| it.size).or(attached.exec().spec.terminal);
        let size = size.unwrap_or(TerminalSize::USUAL);
        words::joined(socket, attached.exec(), pid, size, listener.may_write());
        let [stdout, _] = attached.flow().extents;
        // Of one that has just ended there is nothing to show but its end.
        let by_now = painting.as_ref().map_or(stdout.end, |painting| painting.at);
        if from.is_some_and(|from| from > stdout.end.max(by_now)) {
            words.error(socket, ErrorCode::InvalidRequest, "stdout_offset is beyond the output");
            return End::Closed(4400, "beyond the output");
        }
        if let (None, Some(painting)) = (from, &painting) {
            words.screen(socket, painting);
        }
        let from = [from.unwrap_or(by_now), 0];
        let mut conversation = Self::new(app, attached, words, from, OnFull::Drop);
        conversation.terminal = Some(Terminal { shell: terminal, size });
        if let Some(wish) = first {
            let done = conversation.grant(wish).await;
            conversation.note_input(done);
        }
        conversation.go_on(socket, listener).await
    }

    async fn go_on(&mut self, socket: &mut Socket, listener: &mut impl Listener) -> End {
        match self.converse(socket, listener).await {
            Ok(end) => end,
            Err(Broken::End(end)) => {
                self.write_rest().await;
                end
            }
            // How it ended is known all the same.
            Err(Broken::Sandbox(error @ SandboxError::OutputGone)) => {
                self.words.error(socket, ErrorCode::OutputGone, &error.to_string());
                if let Some((end, usage)) = self.attached.ended().await {
                    self.words.ended(socket, &end, usage);
                }
                End::Closed(1000, "done")
            }
            Err(Broken::Sandbox(error)) => {
                tracing::debug!(%error, "a command cannot be watched any more");
                self.words.error(socket, ErrorCode::Unavailable, &error.to_string());
                End::Closed(1011, "the command cannot be watched")
            }
        }
    }

    async fn converse(
        &mut self,
        socket: &mut Socket,
        listener: &mut impl Listener,
    ) -> Result<End, Broken> {
        let mut tick = interval(self.settings.timing.tick);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut health = Health::new(Instant::now());
        let mut draining = pin!(until(self.phase.clone(), |phase| *phase != Phase::Serving));
        while !self.outputs.are_over() {
            let has_room = socket.has_room();
            let may_read = !self.stdin.is_full();
            let at = self.outputs.at();
            select! {
                biased;
                () = &mut draining => return Ok(End::Closed(self.restarting, "restarting")),
                due = listener.wait() => {
                    if let Some(end) = listener.tell(due, socket) {
                        return Ok(end);
                    }
                }
                step = step(socket, may_read) => match step {
                    Step::Message(message) => self.hear(message, socket, listener).await?,
                    Step::Flushed => {}
                    Step::Gone(gone) => return Err(Broken::End(gone.into())),
                },
                flushed = self.stdin.flush(&self.attached), if self.stdin.is_busy() => {
                    self.note_input(flushed);
                }
                told = self.outputs.next(), if has_room => {
                    let (stream, part) = told?;
                    let is_gap = matches!(part, Part::Gap { .. });
                    self.words.part(socket, stream, part);
                    if is_gap {
                        self.show_anew(socket).await;
                    }
                }
                resized = next_size(self.terminal.as_ref(), at), if has_room => {
                    words::resized(socket, resized);
                    if let Some(terminal) = &mut self.terminal {
                        terminal.size = resized.size;
                    }
                }
                _ = tick.tick() => {
                    if !may_read {
                        health.excuse(&self.settings.timing);
                    }
                    listener.report();
                    if let Err(reason) = health.check(&self.settings.timing, socket) {
                        return Ok(End::Closed(4408, reason));
                    }
                }
            }
        }
        if let Some((end, usage)) = self.attached.ended().await {
            self.words.ended(socket, &end, usage);
        }
        Ok(End::Closed(1000, "done"))
    }

    async fn hear(
        &mut self,
        message: Message,
        socket: &mut Socket,
        listener: &mut impl Listener,
    ) -> Result<(), Broken> {
        let heard = match message {
            Message::Text(text) => listener.hear(&text, socket).await,
            Message::Binary(bytes) => listener.hear_bytes(bytes.to_vec(), socket),
            Message::Close(_) => Heard::End(End::Peer),
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => Heard::Nothing,
        };
        match heard {
            Heard::Nothing => Ok(()),
            Heard::End(end) => Err(Broken::End(end)),
            Heard::Wish(wish) => {
                let done = self.grant(wish).await;
                self.note_input(done);
                Ok(())
            }
        }
    }

    async fn grant(&mut self, wish: Wish) -> Result<(), SandboxError> {
        match (wish, &self.terminal) {
            (Wish::Input(bytes), _) => self.stdin.push(&bytes),
            // Others may write to it after this one.
            (Wish::CloseInput, Some(_)) => self.stdin.push(END_OF_INPUT),
            (Wish::CloseInput, None) => self.stdin.close(),
            (Wish::Resize(size), Some(terminal)) => terminal.shell.resize(size),
            (Wish::Resize(size), None) => self.stdin.resize(&self.attached, size).await?,
            (Wish::Signal(signal), _) => self.attached.signal(signal).await?,
            (Wish::Kill, _) => self.attached.cancel().await?,
        }
        Ok(())
    }

    /// Writes what a client sent before it left, as far as it is taken soon.
    async fn write_rest(&mut self) {
        let written = timeout(PARTING, async {
            while self.stdin.is_busy() {
                let flushed = self.stdin.flush(&self.attached).await;
                self.note_input(flushed);
            }
        });
        if written.await.is_err() {
            tracing::debug!("a command did not take what its client wrote last");
        }
    }

    /// After bytes that are missing nothing fits what the client shows: it is shown a shell anew.
    async fn show_anew(&mut self, socket: &mut Socket) {
        let Some(terminal) = &mut self.terminal else { return };
        // One that has ended meanwhile has nothing more to show than what is still told of it.
        if let Ok(painting) = terminal.shell.paint().await {
            self.words.screen(socket, &painting);
            terminal.size = painting.size;
            let Painting { at, .. } = *painting;
            self.outputs.stdout = Some(self.attached.output(Stream::Stdout, at, OnFull::Drop));
        }
    }

    /// A command that is over takes nothing more, and its end is told anyway.
    fn note_input(&mut self, done: Result<(), SandboxError>) {
        if let Err(error) = done {
            tracing::debug!(%error, "a command takes no more input");
            self.stdin = Stdin::default();
        }
    }
}

/// Why a conversation breaks off.
enum Broken {
    /// The client left, or was sent away for what it said.
    End(End),
    Sandbox(SandboxError),
}

impl From<SandboxError> for Broken {
    fn from(error: SandboxError) -> Self {
        Self::Sandbox(error)
    }
}

impl Outputs {
    fn are_over(&self) -> bool {
        self.stdout.is_none() && self.stderr.is_none()
    }

    /// Returns the place of the next byte of stdout.
    fn at(&self) -> u64 {
        self.stdout.as_ref().map_or(u64::MAX, Output::at)
    }

    /// Returns the next part of either stream. May be dropped and called again.
    async fn next(&mut self) -> Result<(Stream, Part), SandboxError> {
        let (stream, part) = select! {
            part = next(&mut self.stdout) => (Stream::Stdout, part?),
            part = next(&mut self.stderr) => (Stream::Stderr, part?),
        };
        if matches!(part, Part::End { .. }) {
            match stream {
                Stream::Stdout => self.stdout = None,
                Stream::Stderr => self.stderr = None,
            }
        }
        Ok((stream, part))
    }
}

/// Waits until the terminal has another size than the client knows, and the client was told all that
/// was written before.
async fn next_size(terminal: Option<&Terminal>, at: u64) -> Resized {
    let Some(Terminal { shell, size }) = terminal else { return std::future::pending().await };
    let resized = shell.resized(*size).await;
    if resized.at > at {
        // It is looked at again after the next part.
        return std::future::pending().await;
    }
    resized
}

async fn next(output: &mut Option<Output>) -> Result<Part, SandboxError> {
    match output {
        Some(output) => output.next().await,
        None => std::future::pending().await,
    }
}

/// Waits for a message, if one may be taken, or until something was written.
async fn step(socket: &mut Socket, may_read: bool) -> Step {
    if may_read {
        return socket.step().await;
    }
    poll_fn(|context| socket.poll_written(context)).await
}
