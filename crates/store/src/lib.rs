//! Keeps state behind one [`Store`]. The only crate that has SQL; nothing of it leaks out.

pub mod audit;
mod command;
mod condition;
mod error;
mod failpoint;
pub mod keys;
pub mod lock;
mod postgres;
mod row;
pub mod sandboxes;
pub mod sessions;
pub mod snapshots;
mod sql;
mod sqlite;
#[cfg(test)]
mod suite;
pub mod tokens;
pub mod tools;
pub mod watch;

use std::{path::Path, time::SystemTime};

use model::{
    audit::Entry,
    event::Sequence,
    ids::{ExecId, NodeId, SandboxId, SessionId, SnapshotId, Tenant},
    revocation::{Revocation as TokenRevocation, Standing},
    sandbox::Sandbox,
    scope::Scope,
    session::Session,
    snapshot::{Snapshot, SnapshotRef, SnapshotState},
    token::Epoch,
    transition::{Creation, Transition},
    units::Timestamp,
};

use self::{
    audit::{Link, Part, Record},
    keys::{ApiKey, KeyHash, KeyId, Revocation},
    sandboxes::{Events, ExecAt, Filter, Health, Page},
    sessions::{Binding, KeyName},
    snapshots::{NewSnapshot, Tagged},
    tokens::{Changes, OpaqueToken},
    watch::Watch,
};
pub use self::{
    condition::{Condition, Met},
    error::StoreError,
};

/// Where state is kept. Cheap to clone; all clones are the same store.
#[derive(Clone, Debug)]
pub enum Store {
    Sqlite(sqlite::Sqlite),
    Postgres(postgres::Postgres),
}

/// Hands a call to the backend.
macro_rules! backend {
    ($store:expr, $backend:ident => $call:expr) => {
        match $store {
            Self::Sqlite($backend) => $call,
            Self::Postgres($backend) => $call,
        }
    };
}

impl Store {
    /// Opens the embedded store in this file, and brings its schema up to date.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        sqlite::Sqlite::open(path).map(Self::Sqlite)
    }

    /// Connects to the database at this address (`postgres://…`), which any number of daemons may
    /// share, and brings its schema up to date.
    pub async fn connect(address: &str) -> Result<Self, StoreError> {
        postgres::Postgres::connect(address).await.map(Self::Postgres)
    }

    /// Says whether writes are still taken.
    pub fn health(&self) -> Health {
        backend!(self, backend => backend.health())
    }

    /// Returns when writes are not taken any more, which may be never.
    pub async fn until_read_only(&self) {
        backend!(self, backend => backend.until_read_only().await);
    }

    /// Keeps a new key.
    pub async fn create_key(&self, key: ApiKey, hash: KeyHash) -> Result<(), StoreError> {
        backend!(self, backend => backend.commands().create_key(key, hash, Vec::new()).await)
    }

    /// Keeps a new key and the record of it, or neither.
    pub async fn create_key_recorded(
        &self,
        key: ApiKey,
        hash: KeyHash,
        entry: Entry,
    ) -> Result<(), StoreError> {
        backend!(self, backend => backend.commands().create_key(key, hash, vec![entry]).await)
    }

    /// Returns every key with its hash, oldest first, revoked ones too.
    pub async fn keys(&self) -> Result<Vec<(ApiKey, KeyHash)>, StoreError> {
        backend!(self, backend => backend.keys().await)
    }

    /// Returns the key that has this hash, revoked or not.
    pub async fn key_by_hash(&self, hash: KeyHash) -> Result<Option<ApiKey>, StoreError> {
        backend!(self, backend => backend.key_by_hash(hash).await)
    }

    /// Marks a key as revoked. The time of the first revocation stays.
    pub async fn revoke_key(&self, id: KeyId, at: SystemTime) -> Result<Revocation, StoreError> {
        backend!(self, backend => backend.commands().revoke_key(id, at, Vec::new()).await)
    }

    /// Marks a key as revoked, with the record of it if it was not before.
    pub async fn revoke_key_recorded(
        &self,
        id: KeyId,
        at: SystemTime,
        entry: Entry,
    ) -> Result<Revocation, StoreError> {
        backend!(self, backend => backend.commands().revoke_key(id, at, vec![entry]).await)
    }

    /// Adds entries to the audit log, in this order and after all that was answered before. They are
    /// on disk when this returns. What is asked for at the same time is kept in the same
    /// transaction.
    pub async fn record(&self, entries: Vec<Entry>) -> Result<(), StoreError> {
        backend!(self, backend => backend.commands().record(entries).await)
    }

    /// Returns records of the audit log. One that does not fit its hash is
    /// [`StoreError::Damaged`].
    pub async fn audit(&self, part: Part) -> Result<Vec<Record>, StoreError> {
        backend!(self, backend => backend.audit(part).await)
    }

    /// Returns where the audit log ends.
    pub async fn audit_end(&self) -> Result<Link, StoreError> {
        backend!(self, backend => backend.audit_end().await)
    }

    /// Keeps a new sandbox and its first event. An id or alias that was ever used is a
    /// [`StoreError::Conflict`].
    pub async fn create_sandbox(&self, creation: Creation) -> Result<(), StoreError> {
        self.create_sandbox_if(creation, Vec::new(), None).await
    }

    /// Keeps a new sandbox and the record of it, or neither.
    pub async fn create_sandbox_recorded(
        &self,
        creation: Creation,
        entry: Entry,
    ) -> Result<(), StoreError> {
        self.create_sandbox_if(creation, vec![entry], None).await
    }

    /// Does the same, if this is true in the end.
    pub async fn create_sandbox_if(
        &self,
        creation: Creation,
        entries: Vec<Entry>,
        condition: Option<Condition>,
    ) -> Result<(), StoreError> {
        sandboxes::check_labels(&creation)?;
        backend!(self, backend => backend.commands().create_sandbox(creation, entries, condition).await)
    }

    /// Keeps the next step of a sandbox: state, events and execs together or not at all. If it has
    /// gone on meanwhile, the answer is [`StoreError::Stale`] with what it is now; if the exec that
    /// starts has an id that was ever used, [`StoreError::Conflict`].
    pub async fn change_sandbox(&self, transition: Transition) -> Result<(), StoreError> {
        backend!(self, backend => backend.commands().change(transition).await)
    }

    /// Returns a sandbox, deleted or not, until it is purged.
    pub async fn sandbox(&self, id: &SandboxId) -> Result<Option<Sandbox>, StoreError> {
        backend!(self, backend => backend.sandbox(id.clone()).await)
    }

    /// Returns the sandbox of this tenant that has this alias or id.
    pub async fn find_sandbox(
        &self,
        tenant: &Tenant,
        name: &str,
    ) -> Result<Option<Sandbox>, StoreError> {
        backend!(self, backend => backend.find(tenant.clone(), name.to_owned()).await)
    }

    /// Returns sandboxes of a tenant, newest first, then by id.
    pub async fn sandboxes(&self, filter: Filter) -> Result<Page, StoreError> {
        backend!(self, backend => backend.list(filter).await)
    }

    /// Returns everything on a node that has not come to its end, oldest first, on one page.
    pub async fn unfinished_sandboxes(&self, node: &NodeId) -> Result<Page, StoreError> {
        backend!(self, backend => backend.unfinished(node.clone()).await)
    }

    /// Returns events of a sandbox that follow this one, in order and without a gap. What is no
    /// longer or not yet there is [`StoreError::OutOfRange`].
    pub async fn events(
        &self,
        sandbox: &SandboxId,
        after: Sequence,
        limit: u32,
    ) -> Result<Events, StoreError> {
        backend!(self, backend => backend.events(sandbox.clone(), after, limit).await)
    }

    /// Follows a sandbox, whether it exists or not.
    pub fn watch(&self, sandbox: &SandboxId) -> Watch {
        backend!(self, backend => backend.watch(sandbox.clone()))
    }

    /// Returns an exec of this tenant.
    pub async fn exec(&self, tenant: &Tenant, id: &ExecId) -> Result<Option<ExecAt>, StoreError> {
        backend!(self, backend => backend.exec(tenant.clone(), id.clone()).await)
    }

    /// Returns the execs of a tenant that run, in one sandbox or in all, by id.
    pub async fn running_execs(
        &self,
        tenant: &Tenant,
        sandbox: Option<&SandboxId>,
    ) -> Result<Vec<ExecAt>, StoreError> {
        backend!(self, backend => backend.running_execs(tenant.clone(), sandbox.cloned()).await)
    }

    /// Keeps a step of the bindings of a scope: that, a new sandbox and the key of the request together
    /// or not at all. If the scope has gone on meanwhile the answer is [`StoreError::Bound`] with its
    /// binding; if the key was used, [`StoreError::KeyUsed`]; if the sandbox has another binding,
    /// [`StoreError::Conflict`].
    pub async fn bind(&self, binding: Binding) -> Result<(), StoreError> {
        self.bind_if(binding, None).await
    }

    /// Does the same, if this is true in the end.
    pub async fn bind_if(
        &self,
        binding: Binding,
        condition: Option<Condition>,
    ) -> Result<(), StoreError> {
        if let Some(creation) = &binding.creation {
            sandboxes::check_labels(creation)?;
        }
        backend!(self, backend => backend.commands().bind(binding, condition).await)
    }

    /// Returns a session, ended or not, until its sandbox is purged.
    pub async fn session(&self, id: &SessionId) -> Result<Option<Session>, StoreError> {
        backend!(self, backend => backend.session(id.clone()).await)
    }

    /// Returns the last session of a scope.
    pub async fn session_of(
        &self,
        tenant: &Tenant,
        scope: &Scope,
    ) -> Result<Option<Session>, StoreError> {
        backend!(self, backend => backend.session_of(tenant.clone(), scope.clone()).await)
    }

    /// Returns the last session that a sandbox had.
    pub async fn session_with(&self, sandbox: &SandboxId) -> Result<Option<Session>, StoreError> {
        backend!(self, backend => backend.session_with(sandbox.clone()).await)
    }

    /// Returns the sessions with sandboxes of a node that have not ended.
    pub async fn unfinished_sessions(&self, node: &NodeId) -> Result<Vec<Session>, StoreError> {
        backend!(self, backend => backend.unfinished_sessions(node.clone()).await)
    }

    /// Returns what tells the request apart that had this key, and the session that it got.
    pub async fn used_key(
        &self,
        name: &KeyName,
        now: Timestamp,
    ) -> Result<Option<([u8; 32], SessionId)>, StoreError> {
        backend!(self, backend => backend.used_key(name.clone(), now).await)
    }

    /// Forgets the keys of requests whose time is over.
    pub async fn forget_used_keys(&self, now: Timestamp) -> Result<(), StoreError> {
        backend!(self, backend => backend.commands().forget_keys(now).await)
    }

    /// Says whether other daemons may write to it at the same time.
    pub const fn is_shared(&self) -> bool {
        match self {
            Self::Sqlite(_) => false,
            Self::Postgres(_) => true,
        }
    }

    /// Forgets the events of a sandbox before this one, but never its last.
    pub async fn trim_events(
        &self,
        sandbox: &SandboxId,
        keep_from: Sequence,
    ) -> Result<(), StoreError> {
        backend!(self, backend => backend.commands().trim(sandbox.clone(), keep_from).await)
    }

    /// Forgets sandboxes that ended before that time, with their events and execs, the oldest
    /// first, at most so many. Their ids and aliases stay taken.
    pub async fn purge_sandboxes(
        &self,
        ended_before: Timestamp,
        limit: u32,
    ) -> Result<Vec<SandboxId>, StoreError> {
        backend!(self, backend => backend.commands().purge(ended_before, limit).await)
    }

    /// Keeps a new snapshot under its name and tag. If its tag must be free and is not, the answer is
    /// [`StoreError::Conflict`]; if its tenant has as many as it may, [`StoreError::TooMany`].
    pub async fn create_snapshot(&self, new: NewSnapshot) -> Result<(), StoreError> {
        backend!(self, backend => backend.commands().create_snapshot(new).await)
    }

    /// Keeps what became of a snapshot whose image was on its way. One that is settled or gone stays so.
    pub async fn settle_snapshot(
        &self,
        id: &SnapshotId,
        state: SnapshotState,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        backend!(self, backend => backend.commands().settle_snapshot(id.clone(), state, at).await)
    }

    /// Deletes a snapshot of this tenant. Its tags lead nowhere any more.
    pub async fn delete_snapshot(
        &self,
        tenant: &Tenant,
        id: &SnapshotId,
    ) -> Result<(), StoreError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        backend!(self, backend => backend.commands().delete_snapshot(tenant, id).await)
    }

    /// Returns the snapshots of a tenant, newest first.
    pub async fn snapshots(&self, tenant: &Tenant) -> Result<Vec<Tagged>, StoreError> {
        backend!(self, backend => backend.snapshots(tenant.clone()).await)
    }

    /// Returns the snapshot of this tenant that is meant.
    pub async fn find_snapshot(
        &self,
        tenant: &Tenant,
        reference: &SnapshotRef,
    ) -> Result<Option<Tagged>, StoreError> {
        let (tenant, reference) = (tenant.clone(), reference.clone());
        backend!(self, backend => backend.find_snapshot(tenant, reference).await)
    }

    /// Returns the snapshots whose images a node is bringing here.
    pub async fn snapshots_to_build(&self, node: &NodeId) -> Result<Vec<Snapshot>, StoreError> {
        backend!(self, backend => backend.snapshots_to_build(node.clone()).await)
    }

    /// Returns the snapshots of all tenants that sandboxes can be made from.
    pub async fn ready_snapshots(&self) -> Result<Vec<Snapshot>, StoreError> {
        backend!(self, backend => backend.ready_snapshots().await)
    }

    /// Raises the epoch of a sandbox's key, and returns it. Its opaque tokens are forgotten.
    pub async fn rotate_key(&self, sandbox: &SandboxId) -> Result<Epoch, StoreError> {
        backend!(self, backend => backend.commands().rotate_key(sandbox.clone()).await)
    }

    /// Keeps that tokens end, and forgets what is over.
    pub async fn revoke_tokens(
        &self,
        revocation: TokenRevocation,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        backend!(self, backend => backend.commands().revoke_tokens(revocation, now).await)
    }

    /// Keeps an opaque token, and forgets those that are over.
    pub async fn keep_token(&self, token: OpaqueToken, now: Timestamp) -> Result<(), StoreError> {
        backend!(self, backend => backend.commands().keep_token(token, now).await)
    }

    /// Returns the opaque token that has this hash.
    pub async fn opaque_token(&self, hash: KeyHash) -> Result<Option<OpaqueToken>, StoreError> {
        backend!(self, backend => backend.opaque_token(hash).await)
    }

    /// Returns every sandbox about whose tokens something is known.
    pub async fn standings(&self) -> Result<Vec<(SandboxId, Standing)>, StoreError> {
        backend!(self, backend => backend.standings(None).await)
    }

    /// Returns what is known about the tokens of a sandbox.
    pub async fn standing(&self, sandbox: &SandboxId) -> Result<Standing, StoreError> {
        let known = backend!(self, backend => backend.standings(Some(sandbox.clone())).await)?;
        Ok(known.into_iter().next().map(|(_, standing)| standing).unwrap_or_default())
    }

    /// Follows what happens to tokens.
    pub fn follow_tokens(&self) -> Changes {
        backend!(self, backend => backend.follow_tokens())
    }

    /// Writes out what is left and closes. Later calls on any clone answer [`StoreError::Closed`].
    pub async fn close(&self) {
        backend!(self, backend => backend.close().await);
    }
}
