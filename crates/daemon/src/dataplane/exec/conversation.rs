//! A WebSocket whose client watches one command.
//!
//! One task does it all. While the client does not take what it was sent, no more is read for it; and
//! while the command does not read what was sent to it, nothing more is taken from the client.

use std::{future::poll_fn, pin::pin, sync::Arc};

use api::errors::ErrorCode;
use engine::sandboxes::{
    SandboxError,
    attach::{Attached, Output, Stream},
};
use model::spec::{OnFull, TerminalSize};
use tokio::{
    select,
    sync::watch,
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_tungstenite::tungstenite::Message;

use super::{stdin::Stdin, words::Words};
use crate::{
    http::App,
    serve::{Phase, Settings},
    ws::{
        connection::until,
        health::Health,
        socket::{Gone, Socket, Step},
    },
};

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Peer,
    Closed(u16, &'static str),
}

impl From<Gone> for End {
    fn from(gone: Gone) -> Self {
        match gone {
            Gone::Peer => Self::Peer,
            Gone::Framing => Self::Closed(1002, "protocol error"),
            Gone::NotUtf8 => Self::Closed(1007, "text is not UTF-8"),
            Gone::TooBig => Self::Closed(1009, "message too big"),
        }
    }
}

pub(super) async fn say_goodbye(socket: Socket, end: End) {
    match end {
        End::Peer => socket.hang_up().await,
        End::Closed(code, reason) => socket.close(code, reason).await,
    }
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
    stdin: Stdin,
    settings: Arc<Settings>,
    phase: watch::Receiver<Phase>,
    /// What is said when the server ends.
    restarting: u16,
}

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
        match self.converse(socket, listener).await {
            Ok(end) | Err(Broken::End(end)) => end,
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
                    Step::Gone(gone) => return Ok(gone.into()),
                },
                flushed = self.stdin.flush(&self.attached), if self.stdin.is_busy() => {
                    self.note_input(flushed);
                }
                told = self.outputs.next(), if has_room => {
                    let (stream, part) = told?;
                    self.words.part(socket, stream, part);
                }
                _ = tick.tick() => {
                    if !may_read {
                        health.excuse(&self.settings.timing);
                    }
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
            Message::Binary(bytes) => Heard::Wish(Wish::Input(bytes.to_vec())),
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
        match wish {
            Wish::Input(bytes) => self.stdin.push(&bytes),
            Wish::CloseInput => self.stdin.close(),
            Wish::Resize(size) => self.stdin.resize(&self.attached, size).await?,
            Wish::Signal(signal) => self.attached.signal(signal).await?,
            Wish::Kill => self.attached.cancel().await?,
        }
        Ok(())
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

    /// Returns the next part of either stream. May be dropped and called again.
    async fn next(&mut self) -> Result<(Stream, engine::sandboxes::attach::Part), SandboxError> {
        let (stream, part) = select! {
            part = next(&mut self.stdout) => (Stream::Stdout, part?),
            part = next(&mut self.stderr) => (Stream::Stderr, part?),
        };
        if matches!(part, engine::sandboxes::attach::Part::End { .. }) {
            match stream {
                Stream::Stdout => self.stdout = None,
                Stream::Stderr => self.stderr = None,
            }
        }
        Ok((stream, part))
    }
}

async fn next(
    output: &mut Option<Output>,
) -> Result<engine::sandboxes::attach::Part, SandboxError> {
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
