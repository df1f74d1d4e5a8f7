//! The daemon's side of the spawner: orders out, notices in.

use std::{
    collections::{HashMap, HashSet},
    io,
    os::fd::{BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
};

use isolate::{
    collect::CollectReport,
    plan::{Program, SlotSpec},
    posture::{Posture, Volumes},
    sandbox::{SandboxAnswer, SandboxOrder},
    slot::SlotEnds,
    socket::{Packet, PacketSocket},
    wire::{self, CgroupFile, Notice, Order},
};
use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags},
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::{oneshot, watch},
};

use crate::{EngineError, tasks::Tasks};

/// The connection to the spawner. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Spawner {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    socket: AsyncFd<PacketSocket>,
    state: Mutex<State>,
    posture: watch::Sender<Option<Posture>>,
    volumes: watch::Sender<Option<Volumes>>,
    gone: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    next_slot: u64,
    being_made: HashMap<u64, oneshot::Sender<Result<SlotEnds, EngineError>>>,
    is_closing: bool,
    next_zygote: u64,
    zygotes: HashSet<u64>,
    next_ticket: u64,
    asked: HashMap<u64, oneshot::Sender<Answered>>,
    workers: HashMap<u64, oneshot::Sender<Result<OwnedFd, EngineError>>>,
}

/// What the spawner answers about a sandbox, and the descriptors that come along.
type Answered = (SandboxAnswer, Vec<OwnedFd>);

/// The number of a slot, by which the spawner knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotNumber(u64);

/// Takes the socket over and starts reading notices from it.
pub(crate) fn connect(socket: PacketSocket, tasks: &Tasks) -> Result<Spawner, EngineError> {
    let socket = register(socket).map_err(EngineError::Socket)?;
    let state = Mutex::new(State::default());
    let (posture, volumes) = (watch::Sender::new(None), watch::Sender::new(None));
    let gone = watch::Sender::new(false);
    let spawner = Spawner { shared: Arc::new(Shared { socket, state, posture, volumes, gone }) };
    let reader = spawner.clone();
    tasks.start("spawner notices", async move { reader.read_notices().await });
    Ok(spawner)
}

impl Spawner {
    /// Returns what slots are made of here, once the spawner has said so.
    pub(crate) async fn posture(&self) -> Result<Posture, EngineError> {
        let mut said = self.shared.posture.subscribe();
        tokio::select! {
            posture = said.wait_for(Option::is_some) => {
                posture.ok().and_then(|posture| posture.clone()).ok_or(EngineError::SpawnerGone)
            }
            () = self.gone() => Err(EngineError::SpawnerGone),
        }
    }

    /// Returns what holds the limits of sandboxes' files, once the spawner has found that out.
    pub(crate) async fn volumes(&self) -> Result<Volumes, EngineError> {
        let mut said = self.shared.volumes.subscribe();
        tokio::select! {
            volumes = said.wait_for(Option::is_some) => {
                volumes.ok().and_then(|volumes| volumes.clone()).ok_or(EngineError::SpawnerGone)
            }
            () = self.gone() => Err(EngineError::SpawnerGone),
        }
    }

    /// Returns when the spawner is gone.
    pub(crate) async fn gone(&self) {
        // The sender is our own, so this ends only when it has said so.
        let _ = self.shared.gone.subscribe().wait_for(|gone| *gone).await;
    }

    /// Asks for a slot and returns its ends. Its init says on its own when it is ready.
    pub(crate) async fn make(&self, spec: SlotSpec) -> Result<(SlotNumber, SlotEnds), EngineError> {
        let (made, is_made) = oneshot::channel();
        if *self.shared.gone.borrow() {
            return Err(EngineError::SpawnerGone);
        }
        let slot = {
            let mut state = self.state();
            state.next_slot += 1;
            let slot = state.next_slot;
            state.being_made.insert(slot, made);
            slot
        };
        self.order(&Order::Make { slot, spec }).await?;
        let ends = is_made.await.unwrap_or(Err(EngineError::SpawnerGone))?;
        Ok((SlotNumber(slot), ends))
    }

    /// Gives an order about a sandbox and returns the answer.
    pub(crate) async fn sandbox(&self, order: SandboxOrder) -> Result<Answered, EngineError> {
        self.sandbox_with(order, &[]).await
    }

    /// The same, with descriptors that the order needs.
    pub(crate) async fn sandbox_with(
        &self,
        order: SandboxOrder,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Answered, EngineError> {
        let (answer, answered) = oneshot::channel();
        if *self.shared.gone.borrow() {
            return Err(EngineError::SpawnerGone);
        }
        let ticket = {
            let mut state = self.state();
            state.next_ticket += 1;
            let ticket = state.next_ticket;
            state.asked.insert(ticket, answer);
            ticket
        };
        self.order_with(&Order::Sandbox { ticket, order }, fds).await?;
        answered.await.map_err(|_gone| EngineError::SpawnerGone)
    }

    /// Has a worker for images started, and returns the socket to it. One that is there ends.
    pub(crate) async fn start_image_worker(&self) -> Result<OwnedFd, EngineError> {
        let (answer, answered) = oneshot::channel();
        if *self.shared.gone.borrow() {
            return Err(EngineError::SpawnerGone);
        }
        let ticket = {
            let mut state = self.state();
            state.next_ticket += 1;
            let ticket = state.next_ticket;
            state.workers.insert(ticket, answer);
            ticket
        };
        self.order(&Order::StartImageWorker { ticket }).await?;
        answered.await.unwrap_or(Err(EngineError::SpawnerGone))
    }

    /// Adds a file to the root of all slots that are made from now on.
    pub(crate) async fn add_file(&self, path: &str, content: &[u8]) -> Result<(), EngineError> {
        let (path, content) = (path.to_owned(), content.to_vec());
        self.order(&Order::AddFile { path, content }).await
    }

    /// Returns a number for a zygote, which counts as there from now on.
    pub(crate) fn new_zygote(&self) -> u64 {
        let mut state = self.state();
        state.next_zygote += 1;
        let zygote = state.next_zygote;
        state.zygotes.insert(zygote);
        zygote
    }

    pub(crate) fn has_zygote(&self, zygote: u64) -> bool {
        self.state().zygotes.contains(&zygote)
    }

    pub(crate) async fn start_zygote(
        &self,
        zygote: u64,
        program: Program,
    ) -> Result<(), EngineError> {
        self.order(&Order::StartZygote { zygote, program }).await
    }

    pub(crate) async fn end_zygote(&self, zygote: u64) -> Result<(), EngineError> {
        self.order(&Order::EndZygote { zygote }).await
    }

    /// Lets the spawner go. It ends every slot, and then itself.
    pub(crate) fn close(&self) {
        self.state().is_closing = true;
        // It may be gone already.
        let _ = rustix::net::shutdown(self.shared.socket.get_ref(), rustix::net::Shutdown::Both);
    }

    /// Tells whether the spawner is ending or gone: whatever fails from now on fails because of that.
    pub(crate) fn is_ending(&self) -> bool {
        self.state().is_closing || *self.shared.gone.borrow()
    }

    /// Has a slot ended that does not end by itself.
    pub(crate) async fn destroy(&self, slot: SlotNumber) -> Result<(), EngineError> {
        self.order(&Order::Destroy { slot: slot.0 }).await
    }

    async fn order(&self, order: &Order) -> Result<(), EngineError> {
        self.order_with(order, &[]).await
    }

    async fn order_with(&self, order: &Order, fds: &[BorrowedFd<'_>]) -> Result<(), EngineError> {
        let packet = wire::encode(order).map_err(EngineError::InitConfused)?;
        self.shared
            .socket
            .async_io(Interest::WRITABLE, |socket| {
                Ok(socket.send(&packet, fds, SendFlags::DONTWAIT)?)
            })
            .await
            .map_err(EngineError::Socket)
    }

    async fn read_notices(&self) {
        loop {
            let received = self
                .shared
                .socket
                .async_io(Interest::READABLE, |socket| Ok(socket.receive(RecvFlags::DONTWAIT)?))
                .await;
            match received {
                Ok(Some(packet)) => match wire::decode(&packet.bytes) {
                    Ok(notice) => self.take(notice, packet.fds),
                    Err(error) => return self.lose(&error),
                },
                Ok(None) => return self.lose(&"its socket is closed"),
                Err(error) => return self.lose(&error),
            }
        }
    }

    fn take(&self, notice: Notice, fds: Vec<OwnedFd>) {
        match notice {
            Notice::Hello { posture } => drop(self.shared.posture.send_replace(Some(posture))),
            Notice::Volumes { posture } => self.note_volumes(posture),
            Notice::Made { slot, cgroup } => self.answer(slot, || ends(cgroup, fds)),
            Notice::Failed { slot, broken } => self.answer(slot, || Err(broken.into())),
            Notice::ZygoteGone { zygote } => {
                tracing::debug!(zygote, "zygote gone");
                self.state().zygotes.remove(&zygote);
            }
            Notice::Sandbox { ticket, answer } => {
                if let Some(waiting) = self.state().asked.remove(&ticket) {
                    // Whoever asked may have gone on without it.
                    drop(waiting.send((answer, fds)));
                }
            }
            Notice::ImageWorker { ticket, started } => {
                if let Some(waiting) = self.state().workers.remove(&ticket) {
                    let socket = fds.into_iter().next().ok_or(EngineError::MissingDescriptors);
                    // Whoever asked may have gone on without it; it ends when its socket is closed.
                    drop(waiting.send(started.map_err(EngineError::Slot).and(socket)));
                }
            }
            Notice::Gone { slot } => tracing::trace!(slot, "slot gone"),
        }
    }

    fn note_volumes(&self, volumes: Volumes) {
        match &volumes {
            Volumes::Held { kind, refused } => {
                let refused: Vec<String> =
                    refused.iter().map(|it| format!("{}: {}", it.kind, it.why)).collect();
                tracing::info!(%kind, ?refused, "what holds the files of sandboxes to their limits");
            }
            Volumes::None { why } => tracing::warn!(why, "there can be no sandboxes"),
            Volumes::Broken { why } => tracing::error!(why, "the files of sandboxes cannot be had"),
        }
        self.shared.volumes.send_replace(Some(volumes));
    }

    fn answer(&self, slot: u64, answer: impl FnOnce() -> Result<SlotEnds, EngineError>) {
        if let Some(waiting) = self.state().being_made.remove(&slot) {
            // Whoever asked may have gone on without it; the slot ends when its ends are dropped.
            drop(waiting.send(answer()));
        }
    }

    /// Without its spawner an engine can make no slots; whoever waits for one is told.
    fn lose(&self, why: &dyn std::fmt::Display) {
        if self.state().is_closing {
            tracing::debug!("the spawner has ended");
        } else {
            tracing::error!(%why, "the spawner is gone");
        }
        self.shared.gone.send_replace(true);
        let mut state = self.state();
        state.being_made.clear();
        state.asked.clear();
        state.workers.clear();
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ends(kinds: Vec<CgroupFile>, fds: Vec<OwnedFd>) -> Result<SlotEnds, EngineError> {
    SlotEnds::new(kinds, fds).ok_or(EngineError::MissingDescriptors)
}

pub(crate) fn register(socket: PacketSocket) -> io::Result<AsyncFd<PacketSocket>> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    #[expect(
        deprecated,
        reason = "a PacketSocket owns its descriptor and always returns the same one, which is \
                  what the unsafe successor of this function asks for"
    )]
    AsyncFd::new(socket)
}

/// A control socket of an init, read and written without blocking.
#[derive(Debug)]
pub(crate) struct Control {
    socket: AsyncFd<PacketSocket>,
}

impl Control {
    pub(crate) fn new(socket: PacketSocket) -> io::Result<Self> {
        Ok(Self { socket: register(socket)? })
    }

    pub(crate) fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        Self::new(PacketSocket::from_fd(fd))
    }

    /// Sends a command. It is small and the socket is empty, so this never has to wait.
    pub(crate) fn send(&self, command: &wire::Command) -> Result<(), EngineError> {
        let packet = wire::encode(command).map_err(EngineError::InitConfused)?;
        match self.socket.get_ref().send(&packet, &[], SendFlags::DONTWAIT) {
            // Init is gone; the next read says so.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            Err(errno) => Err(EngineError::System { doing: "command init", source: errno.into() }),
        }
    }

    /// Whether init is gone. A slot that waits has nothing else to say.
    pub(crate) fn is_closed(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        !matches!(rustix::net::recv(self.socket.get_ref(), &mut [0; 1], flags), Err(Errno::AGAIN))
    }

    /// Returns the next report.
    pub(crate) async fn receive(&self) -> Result<wire::Report, EngineError> {
        let packet = self.read(RecvFlags::empty()).await?;
        wire::decode(&packet.bytes).map_err(EngineError::InitConfused)
    }

    /// Returns the next report, and leaves it to whoever receives it.
    pub(crate) async fn peek(&self) -> Result<wire::Report, EngineError> {
        let packet = self.read(RecvFlags::PEEK).await?;
        wire::decode(&packet.bytes).map_err(EngineError::InitConfused)
    }

    /// Returns the next packet about collected files, with the descriptor of a file.
    pub(crate) async fn receive_collected(
        &self,
    ) -> Result<(CollectReport, Option<OwnedFd>), EngineError> {
        let packet = self.read(RecvFlags::empty()).await?;
        let report = wire::decode(&packet.bytes).map_err(EngineError::InitConfused)?;
        Ok((report, packet.fds.into_iter().next()))
    }

    async fn read(&self, how: RecvFlags) -> Result<Packet, EngineError> {
        let flags = RecvFlags::DONTWAIT | how;
        let read = self.socket.async_io(Interest::READABLE, |s| Ok(s.receive(flags)?));
        match read.await {
            Ok(Some(packet)) => Ok(packet),
            Ok(None) => Err(EngineError::InitGone),
            Err(source) => Err(EngineError::System { doing: "listen to init", source }),
        }
    }
}
