//! The closed set of what can be written, and the way to whoever writes it.

use std::time::SystemTime;

use model::{
    audit::Entry,
    event::Sequence,
    ids::{SandboxId, SnapshotId, Tenant},
    life::Phase,
    revocation::Revocation as TokenRevocation,
    snapshot::SnapshotState,
    token::Epoch,
    transition::{Creation, Transition},
    units::Timestamp,
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    StoreError,
    condition::Condition,
    keys::{ApiKey, KeyHash, KeyId, Revocation},
    sessions::Binding,
    snapshots::NewSnapshot,
    tokens::OpaqueToken,
    tools::{ToolWrite, ToolWritten},
};

/// Callers wait when this many commands are queued.
const QUEUE: usize = 1024;
/// The most commands that are carried out together.
pub(crate) const BATCH: usize = 1024;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

#[derive(Debug)]
pub(crate) enum Command {
    /// What follows is recorded if it is done, and it is done only if it is recorded.
    CreateKey(ApiKey, KeyHash, Vec<Entry>, Reply<()>),
    RevokeKey(KeyId, SystemTime, Vec<Entry>, Reply<Revocation>),
    CreateSandbox(Box<Creation>, Vec<Entry>, Option<Condition>, Reply<()>),
    Change(Box<Transition>, Reply<()>),
    Bind(Box<Binding>, Option<Condition>, Reply<()>),
    ForgetKeys(Timestamp, Reply<()>),
    Trim(SandboxId, Sequence, Reply<()>),
    Purge(Timestamp, u32, Reply<Vec<SandboxId>>),
    RotateKey(SandboxId, Reply<Epoch>),
    RevokeTokens(Box<TokenRevocation>, Timestamp, Reply<()>),
    KeepToken(Box<OpaqueToken>, Timestamp, Reply<()>),
    Record(Vec<Entry>, Reply<()>),
    CreateSnapshot(Box<NewSnapshot>, Reply<()>),
    SettleSnapshot(SnapshotId, SnapshotState, Timestamp, Reply<()>),
    DeleteSnapshot(Tenant, SnapshotId, Reply<()>),
    Tool(Box<ToolWrite>, Reply<ToolWritten>),
    Close(oneshot::Sender<()>),
}

impl Command {
    /// Says whether it asks for something new, rather than ending something or telling what has
    /// happened already.
    pub(crate) fn is_new_work(&self) -> bool {
        match self {
            Self::CreateKey(..)
            | Self::CreateSandbox(..)
            | Self::KeepToken(..)
            | Self::CreateSnapshot(..)
            | Self::Record(..) => true,
            Self::Change(transition, _) => {
                transition.started().is_some() || transition.life().phase == Phase::Resuming
            }
            Self::Bind(binding, ..) => binding.begun().is_some(),
            Self::Tool(write, _) => write.is_new_work(),
            Self::RevokeKey(..)
            | Self::ForgetKeys(..)
            | Self::Trim(..)
            | Self::Purge(..)
            | Self::RotateKey(..)
            | Self::RevokeTokens(..)
            | Self::SettleSnapshot(..)
            | Self::DeleteSnapshot(..)
            | Self::Close(_) => false,
        }
    }
}

/// The way to the writer of a backend. Every answer comes after the commit.
#[derive(Clone, Debug)]
pub(crate) struct Commands(mpsc::Sender<Command>);

impl Commands {
    pub(crate) fn channel() -> (Self, mpsc::Receiver<Command>) {
        let (sender, queue) = mpsc::channel(QUEUE);
        (Self(sender), queue)
    }

    pub(crate) async fn create_key(
        &self,
        key: ApiKey,
        hash: KeyHash,
        records: Vec<Entry>,
    ) -> Result<(), StoreError> {
        self.ask(|reply| Command::CreateKey(key, hash, records, reply)).await
    }

    pub(crate) async fn revoke_key(
        &self,
        id: KeyId,
        at: SystemTime,
        records: Vec<Entry>,
    ) -> Result<Revocation, StoreError> {
        self.ask(|reply| Command::RevokeKey(id, at, records, reply)).await
    }

    pub(crate) async fn create_sandbox(
        &self,
        creation: Creation,
        records: Vec<Entry>,
        condition: Option<Condition>,
    ) -> Result<(), StoreError> {
        let creation = Box::new(creation);
        self.ask(|reply| Command::CreateSandbox(creation, records, condition, reply)).await
    }

    pub(crate) async fn record(&self, entries: Vec<Entry>) -> Result<(), StoreError> {
        self.ask(|reply| Command::Record(entries, reply)).await
    }

    pub(crate) async fn change(&self, transition: Transition) -> Result<(), StoreError> {
        self.ask(|reply| Command::Change(Box::new(transition), reply)).await
    }

    pub(crate) async fn bind(
        &self,
        binding: Binding,
        condition: Option<Condition>,
    ) -> Result<(), StoreError> {
        self.ask(|reply| Command::Bind(Box::new(binding), condition, reply)).await
    }

    pub(crate) async fn forget_keys(&self, now: Timestamp) -> Result<(), StoreError> {
        self.ask(|reply| Command::ForgetKeys(now, reply)).await
    }

    pub(crate) async fn trim(&self, id: SandboxId, keep: Sequence) -> Result<(), StoreError> {
        self.ask(|reply| Command::Trim(id, keep, reply)).await
    }

    pub(crate) async fn purge(
        &self,
        before: Timestamp,
        limit: u32,
    ) -> Result<Vec<SandboxId>, StoreError> {
        self.ask(|reply| Command::Purge(before, limit, reply)).await
    }

    pub(crate) async fn rotate_key(&self, sandbox: SandboxId) -> Result<Epoch, StoreError> {
        self.ask(|reply| Command::RotateKey(sandbox, reply)).await
    }

    pub(crate) async fn revoke_tokens(
        &self,
        revocation: TokenRevocation,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.ask(|reply| Command::RevokeTokens(Box::new(revocation), now, reply)).await
    }

    pub(crate) async fn keep_token(
        &self,
        token: OpaqueToken,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.ask(|reply| Command::KeepToken(Box::new(token), now, reply)).await
    }

    pub(crate) async fn create_snapshot(&self, new: NewSnapshot) -> Result<(), StoreError> {
        self.ask(|reply| Command::CreateSnapshot(Box::new(new), reply)).await
    }

    pub(crate) async fn settle_snapshot(
        &self,
        id: SnapshotId,
        state: SnapshotState,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.ask(|reply| Command::SettleSnapshot(id, state, at, reply)).await
    }

    pub(crate) async fn delete_snapshot(
        &self,
        tenant: Tenant,
        id: SnapshotId,
    ) -> Result<(), StoreError> {
        self.ask(|reply| Command::DeleteSnapshot(tenant, id, reply)).await
    }

    pub(crate) async fn write_tool(&self, write: ToolWrite) -> Result<ToolWritten, StoreError> {
        self.ask(|reply| Command::Tool(Box::new(write), reply)).await
    }

    pub(crate) async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.0.send(Command::Close(reply)).await.is_ok() {
            // An error means that the writer has ended, which is what is asked for.
            let _ = closed.await;
        }
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.0.send(command(reply)).await.map_err(|_closed| StoreError::Closed)?;
        answer.await.map_err(|_closed| StoreError::Closed)?
    }
}
