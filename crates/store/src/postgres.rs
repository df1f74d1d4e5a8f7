//! PostgreSQL, shared by any number of daemons. One task of each writes, and carries out all that
//! waits in one transaction; rows are locked in the order of their ids, so that daemons wait for
//! each other and never deadlock. One connection listens for what others wrote. Reads go over a
//! connection of their own. All connections live on one thread with its own runtime, so that they
//! end with the store, whatever runtime the callers use.

mod adjustments;
mod audit;
mod batch;
mod bindings;
mod exec_env;
mod keys;
mod listen;
mod reads;
mod retention;
mod schema;
pub(crate) mod session;
mod sessions;
mod snapshots;
mod tokens;
mod writer;

use std::{sync::Arc, thread, time::Duration};

use model::{
    event::Sequence,
    ids::{ExecId, NodeId, SandboxId, SessionId, Tenant},
    revocation::Standing,
    sandbox::Sandbox,
    scope::Scope,
    session::Session,
    snapshot::{Snapshot, SnapshotRef},
    units::Timestamp,
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::{mpsc, oneshot},
};
use tokio_postgres::Config;

use self::{session::Reader, writer::Writer};
use crate::{
    StoreError,
    audit::{Link, Part, Record},
    command::{Command, Commands},
    keys::{ApiKey, KeyHash},
    sandboxes::{Events, ExecAt, Filter, Health, Page},
    sessions::KeyName,
    snapshots::Tagged,
    tokens::{Changes, Followers, OpaqueToken},
    watch::{Wakeups, Watch},
};

/// A database that does not answer is told as unreachable after this.
const CONNECT: Duration = Duration::from_secs(5);
/// A peer that vanished is noticed by its silence after about this.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// The way to the connections.
#[derive(Clone, Debug)]
pub struct Postgres {
    commands: Commands,
    reader: Arc<Reader>,
    wakeups: Wakeups,
    followers: Followers,
}

/// Asks over the connection of the readers. If it broke under the question it is made anew, and
/// the question asked once more, which does no harm to a read. A macro, because the compiler cannot
/// yet see that a call to an async closure may move between threads.
macro_rules! ask {
    ($postgres:expr, $session:ident => $question:expr) => {{
        let $session = &*$postgres.reader.session().await?;
        match $question.await {
            Err(StoreError::Postgres(_)) if $session.is_closed() => {
                let $session = &*$postgres.reader.session().await?;
                $question.await
            }
            answer => answer,
        }
    }};
}

impl Postgres {
    pub(crate) async fn connect(address: &str) -> Result<Self, StoreError> {
        let mut config: Config = address.parse().map_err(StoreError::Address)?;
        config.application_name("ringfence").connect_timeout(CONNECT).keepalives_idle(KEEPALIVE);
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(StoreError::Thread)?;
        let reader = Arc::new(Reader::new(config.clone(), runtime.handle().clone()));
        let (commands, queue) = Commands::channel();
        let (wakeups, followers) = (Wakeups::default(), Followers::default());
        let (ready, prepared) = oneshot::channel();
        let life = Life {
            config,
            queue,
            reader: Arc::clone(&reader),
            wakeups: wakeups.clone(),
            followers: followers.clone(),
        };
        thread::Builder::new()
            .name("store".into())
            .spawn(move || life.run(runtime, ready))
            .map_err(StoreError::Thread)?;
        prepared.await.map_err(|_closed| StoreError::Closed)??;
        Ok(Self { commands, reader, wakeups, followers })
    }

    pub(crate) fn commands(&self) -> &Commands {
        &self.commands
    }

    /// The server itself stops when its disk cannot be trusted.
    #[expect(clippy::unused_self, reason = "the backends have the same methods")]
    pub(crate) fn health(&self) -> Health {
        Health::Good
    }

    pub(crate) async fn until_read_only(&self) {
        std::future::pending::<()>().await;
    }

    pub(crate) fn watch(&self, sandbox: SandboxId) -> Watch {
        self.wakeups.watch(sandbox)
    }

    pub(crate) fn follow_tokens(&self) -> Changes {
        self.followers.follow()
    }

    pub(crate) async fn standings(
        &self,
        sandbox: Option<SandboxId>,
    ) -> Result<Vec<(SandboxId, Standing)>, StoreError> {
        let sandbox = sandbox.as_ref();
        ask!(self, session => tokens::all(session, sandbox))
    }

    pub(crate) async fn opaque_token(
        &self,
        hash: KeyHash,
    ) -> Result<Option<OpaqueToken>, StoreError> {
        ask!(self, session => tokens::opaque(session, &hash))
    }

    pub(crate) async fn keys(&self) -> Result<Vec<(ApiKey, KeyHash)>, StoreError> {
        ask!(self, session => keys::all(session))
    }

    pub(crate) async fn key_by_hash(&self, hash: KeyHash) -> Result<Option<ApiKey>, StoreError> {
        ask!(self, session => keys::by_hash(session, &hash))
    }

    pub(crate) async fn sandbox(&self, id: SandboxId) -> Result<Option<Sandbox>, StoreError> {
        ask!(self, session => reads::sandbox(session, &id))
    }

    pub(crate) async fn find(
        &self,
        tenant: Tenant,
        name: String,
    ) -> Result<Option<Sandbox>, StoreError> {
        ask!(self, session => reads::find(session, &tenant, &name))
    }

    pub(crate) async fn list(&self, filter: Filter) -> Result<Page, StoreError> {
        ask!(self, session => reads::list(session, &filter))
    }

    pub(crate) async fn unfinished(&self, node: NodeId) -> Result<Page, StoreError> {
        ask!(self, session => reads::unfinished(session, &node))
    }

    pub(crate) async fn events(
        &self,
        id: SandboxId,
        after: Sequence,
        limit: u32,
    ) -> Result<Events, StoreError> {
        ask!(self, session => reads::events(session, &id, after, limit))
    }

    pub(crate) async fn exec(
        &self,
        tenant: Tenant,
        id: ExecId,
    ) -> Result<Option<ExecAt>, StoreError> {
        ask!(self, session => reads::exec(session, &tenant, &id))
    }

    pub(crate) async fn running_execs(
        &self,
        tenant: Tenant,
        sandbox: Option<SandboxId>,
    ) -> Result<Vec<ExecAt>, StoreError> {
        let sandbox = sandbox.as_ref();
        ask!(self, session => reads::running_execs(session, &tenant, sandbox))
    }

    pub(crate) async fn session(&self, id: SessionId) -> Result<Option<Session>, StoreError> {
        ask!(self, session => sessions::by_id(session, &id))
    }

    pub(crate) async fn session_of(
        &self,
        tenant: Tenant,
        scope: Scope,
    ) -> Result<Option<Session>, StoreError> {
        ask!(self, session => sessions::of_scope(session, &tenant, &scope))
    }

    pub(crate) async fn session_with(
        &self,
        sandbox: SandboxId,
    ) -> Result<Option<Session>, StoreError> {
        ask!(self, session => sessions::of_sandbox(session, &sandbox))
    }

    pub(crate) async fn unfinished_sessions(
        &self,
        node: NodeId,
    ) -> Result<Vec<Session>, StoreError> {
        ask!(self, session => sessions::of_node(session, &node))
    }

    pub(crate) async fn used_key(
        &self,
        name: KeyName,
        now: Timestamp,
    ) -> Result<Option<([u8; 32], SessionId)>, StoreError> {
        ask!(self, session => sessions::used_key(session, &name, now))
    }

    pub(crate) async fn snapshots(&self, tenant: Tenant) -> Result<Vec<Tagged>, StoreError> {
        ask!(self, session => snapshots::all(session, &tenant))
    }

    pub(crate) async fn find_snapshot(
        &self,
        tenant: Tenant,
        reference: SnapshotRef,
    ) -> Result<Option<Tagged>, StoreError> {
        ask!(self, session => snapshots::find(session, &tenant, &reference))
    }

    pub(crate) async fn snapshots_to_build(
        &self,
        node: NodeId,
    ) -> Result<Vec<Snapshot>, StoreError> {
        ask!(self, session => snapshots::to_build(session, &node))
    }

    pub(crate) async fn ready_snapshots(&self) -> Result<Vec<Snapshot>, StoreError> {
        ask!(self, session => snapshots::ready(session))
    }

    pub(crate) async fn audit(&self, part: Part) -> Result<Vec<Record>, StoreError> {
        ask!(self, session => audit::read(session, part))
    }

    pub(crate) async fn audit_end(&self) -> Result<Link, StoreError> {
        ask!(self, session => audit::end(session))
    }

    /// Returns the connection of the readers.
    pub(crate) async fn reading_session(&self) -> Result<Arc<session::Session>, StoreError> {
        self.reader.session().await
    }

    pub(crate) async fn close(&self) {
        self.commands.close().await;
    }
}

/// What the thread has from its beginning to its end.
struct Life {
    config: Config,
    queue: mpsc::Receiver<Command>,
    reader: Arc<Reader>,
    wakeups: Wakeups,
    followers: Followers,
}

impl Life {
    fn run(self, runtime: Runtime, ready: oneshot::Sender<Result<(), StoreError>>) {
        let Self { config, mut queue, reader, wakeups, followers } = self;
        let closed = runtime.block_on(async {
            let prepared = Writer::connect(&config, wakeups.clone()).await;
            let (told, writer) = match prepared {
                Ok(writer) => (Ok(()), Some(writer)),
                Err(error) => (Err(error), None),
            };
            // Nobody waits any more if the receiver is gone.
            let _ = ready.send(told);
            runtime.handle().spawn(listen::follow(config, wakeups.clone(), followers));
            match writer {
                Some(writer) => Box::pin(writer.run(&mut queue)).await,
                None => None,
            }
        });
        queue.close();
        reader.close();
        wakeups.close();
        // Ends every connection.
        drop(runtime);
        if let Some(closed) = closed {
            // Nobody waits any more if the receiver is gone.
            let _ = closed.send(());
        }
    }
}
