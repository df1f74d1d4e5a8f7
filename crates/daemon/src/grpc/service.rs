//! The service `agbox.v1.SandboxService`: extract, convert, call the engine, convert.

use std::{cmp::Reverse, collections::HashMap, future::Future, sync::Arc};

use api::{
    agbox::{
        MAX_MESSAGE_BYTES,
        v1::{self, sandbox_service_server::SandboxService},
    },
    errors::agbox::Reason,
};
use engine::{
    sandboxes::{SandboxError, Sandboxes, Taken, Terms},
    tasks::Tasks,
};
use model::{
    audit::{Action, Entry, Outcome},
    ids::{ExecId, Tenant},
    life::EndCause,
    sandbox::{Sandbox, WhenStopped},
};
use store::sandboxes::{ExecAt, Filter, PAGE, Phases};
use tokio::sync::{Semaphore, oneshot, watch};
use tonic::{Request, Response, Status};
use tonic_health::{pb::health_server::HealthServer, server::HealthService};

use super::{
    call::{self, Deadline, Who},
    errors::{About, of_exec, of_sandbox, status},
    events::{self, Events},
    from_wire, health,
    images::ImageSurface,
    spec, to_wire,
};
use crate::{audit::Audit, auth::Keyring, http::request, serve::Phase};

/// Changes that are under way at once.
const MAX_CHANGES: usize = 1024;

/// The most sandboxes that one answer has.
const MAX_LISTED: usize = 10_000;

/// Answers the calls. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Surface {
    /// A server that keeps nothing has none.
    sandboxes: Option<Sandboxes>,
    tasks: Tasks,
    phase: watch::Receiver<Phase>,
    audit: Audit,
    /// Changes go on without their callers, so that their number needs a bound of its own.
    changes: Arc<Semaphore>,
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl SandboxService for Surface {
    type SubscribeSandboxEventsStream = Events;

    async fn ping(&self, _: Request<v1::PingRequest>) -> Answer<v1::PingResponse> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        // Clients of agbox look for the name of its own daemon.
        Ok(Response::new(v1::PingResponse { version, daemon: "agboxd".to_owned() }))
    }

    async fn create_sandbox(
        &self,
        request: Request<v1::CreateSandboxRequest>,
    ) -> Answer<v1::CreateSandboxResponse> {
        let (sandboxes, who, request) = self.take(request)?;
        if from_wire::is_given_by_server(&request.sandbox_id) {
            // Whether one has it is not said: it may be another tenant's.
            return Err(of_sandbox(&SandboxError::AlreadyExists, &request.sandbox_id, About::Life));
        }
        let alias = from_wire::alias(&request.sandbox_id)?;
        let spec = spec::read(request.create_spec, &request.config_yaml, &who.origin)?;
        let entry = who.entry(Action::SandboxCreate);
        let terms = Terms { entry: entry.clone(), quotas: who.quotas };
        let created = async move {
            let Who { caller, tenant, .. } = &who;
            sandboxes.create_recorded_for(caller, tenant, alias, spec, terms).await
        };
        let sandbox = self.carry_out(created).await?;
        self.note_refusal(entry, &sandbox);
        let sandbox =
            sandbox.map_err(|error| of_sandbox(&error, &request.sandbox_id, About::Life))?;
        request::mark_recorded();
        let sandbox = Some(to_wire::handle(&sandbox));
        Ok(Response::new(v1::CreateSandboxResponse { sandbox }))
    }

    async fn get_sandbox(
        &self,
        request: Request<v1::GetSandboxRequest>,
    ) -> Answer<v1::GetSandboxResponse> {
        let (sandboxes, who, request) = self.take(request)?;
        let sandbox = find(&sandboxes, &who.tenant, &request.sandbox_id).await?;
        let sandbox = Some(to_wire::handle(&sandbox));
        Ok(Response::new(v1::GetSandboxResponse { sandbox }))
    }

    async fn list_sandboxes(
        &self,
        request: Request<v1::ListSandboxesRequest>,
    ) -> Answer<v1::ListSandboxesResponse> {
        let (sandboxes, who, request) = self.take(request)?;
        let phases = if request.include_deleted { Phases::All } else { Phases::Undeleted };
        let labels = from_wire::selector(request.label_selector)?;
        let filter = Filter { tenant: who.tenant, labels, phases, after: None, limit: PAGE };
        let mut handles: Vec<_> =
            list(&sandboxes, filter).await?.iter().map(to_wire::handle).collect();
        handles.sort_by_cached_key(|handle| {
            let created = handle.created_at.unwrap_or_default();
            (Reverse((created.seconds, created.nanos)), handle.sandbox_id.clone())
        });
        fitting(v1::ListSandboxesResponse { sandboxes: handles })
    }

    async fn resume_sandbox(
        &self,
        request: Request<v1::ResumeSandboxRequest>,
    ) -> Answer<v1::AcceptedResponse> {
        let (sandboxes, who, v1::ResumeSandboxRequest { sandbox_id }) = self.take(request)?;
        let name = known_name(&sandbox_id)?.to_owned();
        let entry = about(&sandboxes, &who, Action::SandboxResume, &name).await;
        let resumed = async move { sandboxes.resume(&who.tenant, &name).await };
        let taken = self.carry_out(resumed).await?;
        self.note_taken(entry, &taken);
        // One that runs already is what was asked for.
        taken.map_err(|error| of_sandbox(&error, &sandbox_id, About::Life))?;
        Ok(accepted())
    }

    async fn stop_sandbox(
        &self,
        request: Request<v1::StopSandboxRequest>,
    ) -> Answer<v1::AcceptedResponse> {
        let (sandboxes, who, v1::StopSandboxRequest { sandbox_id }) = self.take(request)?;
        let name = known_name(&sandbox_id)?.to_owned();
        let entry = about(&sandboxes, &who, Action::SandboxStop, &name).await;
        let stopped = async move { sandboxes.stop(&who.tenant, &name).await };
        let taken = self.carry_out(stopped).await?;
        self.note_taken(entry, &taken);
        // One that is stopped already is what was asked for.
        taken.map_err(|error| of_sandbox(&error, &sandbox_id, About::Life))?;
        Ok(accepted())
    }

    async fn delete_sandbox(
        &self,
        request: Request<v1::DeleteSandboxRequest>,
    ) -> Answer<v1::AcceptedResponse> {
        let (sandboxes, who, v1::DeleteSandboxRequest { sandbox_id }) = self.take(request)?;
        let name = known_name(&sandbox_id)?.to_owned();
        let entry = about(&sandboxes, &who, Action::SandboxDelete, &name).await;
        let deleted =
            async move { sandboxes.delete(&who.tenant, &name, EndCause::Requested).await };
        let taken = self.carry_out(deleted).await?;
        self.note_taken(entry, &taken);
        taken.map_err(|error| of_sandbox(&error, &sandbox_id, About::Life))?;
        Ok(accepted())
    }

    async fn delete_sandboxes(
        &self,
        request: Request<v1::DeleteSandboxesRequest>,
    ) -> Answer<v1::DeleteSandboxesResponse> {
        let (sandboxes, who, request) = self.take(request)?;
        let labels = from_wire::selector(request.label_selector)?;
        if labels.is_empty() {
            let problem = "label_selector: is required; an empty one would choose every sandbox";
            return Err(status(Reason::InvalidArgument, problem, &[("field", "label_selector")]));
        }
        let phases = Phases::Undeleted;
        let (tenant, who_deletes) = (who.tenant.clone(), who);
        let filter = Filter { tenant, labels, phases, after: None, limit: PAGE };
        let chosen = list(&sandboxes, filter).await?;
        let entry = who_deletes.entry(Action::SandboxDelete);
        let deleted = self.carry_out(delete_all(sandboxes, chosen)).await?;
        let mut deleted_sandbox_ids = Vec::new();
        let mut failure = None;
        for (sandbox, taken) in deleted {
            let about_it = Entry { sandbox: Some(sandbox.id.to_string()), ..entry.clone() };
            self.note_taken(about_it, &taken);
            match taken {
                Ok(Taken::Accepted) => deleted_sandbox_ids.push(to_wire::sandbox_id(&sandbox)),
                Ok(Taken::AlreadySo) | Err(SandboxError::NotFound) => {}
                Err(error) => failure = Some(error),
            }
        }
        if let Some(error) = failure {
            return Err(of_sandbox(&error, "", About::Life));
        }
        deleted_sandbox_ids.sort();
        let deleted_count = u32::try_from(deleted_sandbox_ids.len()).unwrap_or(u32::MAX);
        fitting(v1::DeleteSandboxesResponse { deleted_sandbox_ids, deleted_count })
    }

    async fn subscribe_sandbox_events(
        &self,
        request: Request<v1::SubscribeSandboxEventsRequest>,
    ) -> Answer<Events> {
        let deadline = request.extensions().get().map(|Deadline(deadline)| *deadline);
        let (sandboxes, who, request) = self.take(request)?;
        let sandbox = find(&sandboxes, &who.tenant, &request.sandbox_id).await?;
        let until = events::Until { deadline, revoked: who.revoked, phase: self.phase.clone() };
        let followed = events::follow(&sandboxes, &who.tenant, &sandbox, &request, until).await;
        let about = About::Events(request.from_sequence);
        let stream = followed.map_err(|error| of_sandbox(&error, &request.sandbox_id, about))?;
        Ok(Response::new(stream))
    }

    async fn create_exec(
        &self,
        request: Request<v1::CreateExecRequest>,
    ) -> Answer<v1::CreateExecResponse> {
        let deadline = call::deadline(&request);
        let (sandboxes, who, request) = self.take(request)?;
        let (name, own_id) = (request.sandbox_id.clone(), request.exec_id.clone());
        let exec = from_wire::exec_id(&own_id)?;
        let spec = from_wire::exec_spec(request)?;
        let sandbox = known_name(&name)?.to_owned();
        let entry = about(&sandboxes, &who, Action::ExecStart, &sandbox).await;
        // Before it counts as a change: those are bounded for all callers together.
        if let Some(id) = entry.sandbox.as_ref().and_then(|id| id.parse().ok()) {
            sandboxes.until_steady(&id, deadline).await;
        }
        let (when_stopped, deadline) = (WhenStopped::Refuse, Some(deadline));
        let started = async move {
            let tenant = &who.tenant;
            sandboxes.start_exec_before(tenant, &sandbox, exec, spec, when_stopped, deadline).await
        };
        let started = self.carry_out(started).await?;
        self.note_refusal(entry.clone(), &started);
        if let Ok(started) = &started {
            self.audit.note(Entry { object: Some(started.exec.id.to_string()), ..entry });
        }
        let started = started.map_err(|error| of_sandbox(&error, &name, About::Exec(&own_id)))?;
        Ok(Response::new(v1::CreateExecResponse {
            exec_id: started.exec.id.to_string(),
            stdout_log_path: started.stdout.display().to_string(),
            stderr_log_path: started.stderr.display().to_string(),
        }))
    }

    async fn cancel_exec(
        &self,
        request: Request<v1::CancelExecRequest>,
    ) -> Answer<v1::AcceptedResponse> {
        let (sandboxes, who, v1::CancelExecRequest { exec_id }) = self.take(request)?;
        let exec = known_exec(&exec_id)?;
        let entry = Entry { object: Some(exec.to_string()), ..who.entry(Action::ExecCancel) };
        let found = sandboxes.exec(&who.tenant, &exec).await.ok();
        let entry = Entry { sandbox: found.map(|it| it.exec.sandbox.to_string()), ..entry };
        let cancelled = async move { sandboxes.cancel_exec(&who.tenant, &exec).await };
        let cancelled = self.carry_out(cancelled).await?;
        self.note_refusal(entry.clone(), &cancelled);
        if cancelled.is_ok() {
            self.audit.note(entry);
        }
        cancelled.map_err(|error| of_exec(&error, &exec_id))?;
        Ok(accepted())
    }

    async fn get_exec(&self, request: Request<v1::GetExecRequest>) -> Answer<v1::GetExecResponse> {
        let (sandboxes, who, v1::GetExecRequest { exec_id }) = self.take(request)?;
        let found = sandboxes.exec(&who.tenant, &known_exec(&exec_id)?).await;
        let found = found.map_err(|error| of_exec(&error, &exec_id))?;
        let mut shown = show_execs(&sandboxes, &who.tenant, vec![found]).await?;
        Ok(Response::new(v1::GetExecResponse { exec: shown.pop() }))
    }

    async fn list_active_execs(
        &self,
        request: Request<v1::ListActiveExecsRequest>,
    ) -> Answer<v1::ListActiveExecsResponse> {
        let (sandboxes, who, request) = self.take(request)?;
        let name = request.sandbox_id.as_deref();
        let running = match sandboxes.running_execs(&who.tenant, name).await {
            // Nothing runs in what is not there.
            Err(SandboxError::NotFound) => Vec::new(),
            running => running
                .map_err(|error| of_sandbox(&error, name.unwrap_or_default(), About::Life))?,
        };
        let execs = show_execs(&sandboxes, &who.tenant, running).await?;
        fitting(v1::ListActiveExecsResponse { execs })
    }
}

impl Surface {
    pub(crate) fn new(
        sandboxes: Option<Sandboxes>,
        tasks: Tasks,
        phase: watch::Receiver<Phase>,
        audit: Audit,
    ) -> Self {
        Self { sandboxes, tasks, phase, audit, changes: Arc::new(Semaphore::new(MAX_CHANGES)) }
    }

    /// Has it recorded that a change was accepted or refused. What was so already is no news.
    fn note_taken(&self, entry: Entry, answer: &Result<Taken, SandboxError>) {
        match answer {
            Ok(Taken::Accepted) => self.audit.note(entry),
            Ok(Taken::AlreadySo) => {}
            Err(error) => self.audit.note(refused(entry, error)),
        }
    }

    fn note_refusal<T>(&self, entry: Entry, answer: &Result<T, SandboxError>) {
        if let Err(error) = answer {
            self.audit.note(refused(entry, error));
        }
    }

    pub(crate) fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Returns what answers whether calls can be made.
    pub(crate) async fn health(&self, keyring: Keyring) -> HealthServer<HealthService> {
        health::serve(keyring, self.phase.clone(), &self.tasks).await
    }

    /// Returns what answers the calls about images.
    pub(crate) fn images(&self) -> ImageSurface {
        ImageSurface::new(self.sandboxes.clone(), self.phase.clone(), self.audit.clone())
    }

    /// Takes a call apart: what answers it, who makes it, what he says.
    fn take<T>(&self, request: Request<T>) -> Result<(Sandboxes, Who, T), Status> {
        call::take(self.sandboxes.as_ref(), request)
    }

    /// Has a change carried out to its end, also if the caller goes away in the middle: it is done
    /// or it is not, and never half.
    async fn carry_out<T: Send + 'static>(
        &self,
        change: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Status> {
        let Ok(place) = Arc::clone(&self.changes).try_acquire_owned() else {
            let message = "too many changes are under way; try again soon";
            return Err(status(Reason::ResourceExhausted, message, &[]));
        };
        let (tell, told) = oneshot::channel();
        self.tasks.start("agbox change", async move {
            let done = change.await;
            drop(place);
            // The caller may have gone.
            let _ = tell.send(done);
        });
        let failed = |_| status(Reason::Internal, "the server failed; its log says more", &[]);
        told.await.map_err(failed)
    }
}

/// Returns the entry of something that is done to a sandbox, by its id if there is such a one.
async fn about(sandboxes: &Sandboxes, who: &Who, action: Action, name: &str) -> Entry {
    let sandbox = sandboxes.get(&who.tenant, name).await.ok();
    Entry { sandbox: sandbox.map(|it| it.id.to_string()), ..who.entry(action) }
}

/// Returns the entry of what was not done: refused for what was asked, or impossible for us.
fn refused(entry: Entry, error: &SandboxError) -> Entry {
    let outcome = match error {
        SandboxError::Unavailable(_) | SandboxError::Provider(_) | SandboxError::Store(_) => {
            Outcome::Failed
        }
        _ => Outcome::Denied,
    };
    let reason = match error {
        // These may repeat what was asked for.
        SandboxError::Invalid(_) | SandboxError::Field { .. } | SandboxError::Image(_) => {
            "not possible as asked".to_owned()
        }
        error => error.to_string(),
    };
    Entry { outcome, reason: Some(reason), ..entry }
}

fn accepted() -> Response<v1::AcceptedResponse> {
    Response::new(v1::AcceptedResponse { accepted: true })
}

/// No sandbox has a name that cannot be one, and not every store can be asked for it.
fn known_name(name: &str) -> Result<&str, Status> {
    if name.is_empty() || name.len() > 200 || name.contains('\0') {
        return Err(of_sandbox(&SandboxError::NotFound, name, About::Life));
    }
    Ok(name)
}

fn known_exec(id: &str) -> Result<ExecId, Status> {
    id.parse().map_err(|_not_an_id| of_exec(&SandboxError::ExecNotFound, id))
}

async fn find(sandboxes: &Sandboxes, tenant: &Tenant, name: &str) -> Result<Sandbox, Status> {
    let found = sandboxes.get(tenant, known_name(name)?).await;
    found.map_err(|error| of_sandbox(&error, name, About::Life))
}

/// The contract has no pages, so that all there is must fit into one answer.
async fn list(sandboxes: &Sandboxes, mut filter: Filter) -> Result<Vec<Sandbox>, Status> {
    let mut all = Vec::new();
    loop {
        let page = sandboxes.list(filter.clone()).await;
        let page = page.map_err(|error| of_sandbox(&error, "", About::Life))?;
        for id in page.damaged {
            tracing::error!(sandbox = id, "the record of a sandbox is damaged: it is not listed");
        }
        all.extend(page.sandboxes);
        if all.len() > MAX_LISTED {
            return Err(too_many());
        }
        match page.next {
            Some(next) => filter.after = Some(next),
            None => return Ok(all),
        }
    }
}

fn too_many() -> Status {
    let message = "there are too many to list at once: choose some with label_selector";
    status(Reason::ResourceExhausted, message, &[])
}

/// Refuses an answer that no client would read.
fn fitting<T: prost::Message>(answer: T) -> Answer<T> {
    if answer.encoded_len() > MAX_MESSAGE_BYTES {
        Err(too_many())
    } else {
        Ok(Response::new(answer))
    }
}

/// Returns the names of those whose end begins with this.
async fn delete_all(
    sandboxes: Sandboxes,
    chosen: Vec<Sandbox>,
) -> Vec<(Sandbox, Result<Taken, SandboxError>)> {
    let mut deleted = Vec::new();
    for sandbox in chosen {
        let cause = EndCause::Requested;
        let taken = sandboxes.delete(&sandbox.tenant, sandbox.id.as_str(), cause).await;
        let is_last = matches!(&taken, Err(error) if !matches!(error, SandboxError::NotFound));
        deleted.push((sandbox, taken));
        if is_last {
            break;
        }
    }
    deleted
}

/// Shows commands under the names that their sandboxes have here.
async fn show_execs(
    sandboxes: &Sandboxes,
    tenant: &Tenant,
    execs: Vec<ExecAt>,
) -> Result<Vec<v1::ExecStatus>, Status> {
    let mut names = HashMap::new();
    let mut shown = Vec::with_capacity(execs.len());
    for exec in execs {
        let id = exec.exec.sandbox.clone();
        let name = match names.get(&id) {
            Some(name) => String::clone(name),
            None => to_wire::sandbox_id(&find(sandboxes, tenant, id.as_str()).await?),
        };
        names.insert(id, name.clone());
        shown.push(to_wire::exec_status(&exec, name));
    }
    Ok(shown)
}
