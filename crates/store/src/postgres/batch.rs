//! Many steps of many sandboxes in one transaction: lock and look, decide in memory, write by
//! columns. That is three journeys to the server, however many steps there are.

use std::collections::{HashMap, HashSet};

use futures_util::future::{try_join3, try_join5};
use model::{
    adjustment::Adjusted,
    audit::Entry,
    event::{Event, Sequence},
    exec::{Exec, ExecLife},
    ids::{ExecId, SandboxId, Tenant},
    transition::{Creation, Transition},
};

use super::{
    adjustments::Adjustments,
    audit,
    bindings::{self, Bindings},
    exec_env,
    listen::{NOTIFY, payload},
    reads::head,
    session::Session,
};
use crate::{
    StoreError,
    audit::Link,
    failpoint,
    row::{EventRow, ExecChange, ExecRow, HEAD, Head, PURGED, head_of, number, sandbox_spec},
    sessions::Binding,
};

/// One step that somebody asked for.
#[derive(Debug)]
pub(super) enum Step {
    /// It is recorded if it is done, and done only if it is recorded.
    Create(Box<Creation>, Vec<Entry>),
    Change(Box<Transition>),
    Bind(Box<Binding>),
    Record(Vec<Entry>),
}

/// Whether the same steps were tried before, and nobody knows whether they were kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    First,
    /// And then the audit log would have ended here.
    AfterUnclear(Option<Link>),
}

/// What a step comes to when the transaction is committed.
#[derive(Debug)]
pub(super) enum Outcome {
    Done,
    Refused(StoreError),
    /// The sandbox has gone on; what it is now must still be read.
    Stale(SandboxId),
}

/// What was done, but for the commit.
pub(super) struct Written {
    pub(super) outcomes: Vec<Outcome>,
    pub(super) woken: Vec<(SandboxId, Sequence)>,
    /// Where the audit log ends with it.
    pub(super) recorded: Option<Link>,
}

/// Begins a transaction and carries out all steps but the commit.
pub(super) async fn write(
    session: &Session,
    steps: &[Step],
    attempt: Attempt,
) -> Result<Written, StoreError> {
    let (mut seen, bindings) = look(session, steps).await?;
    if let Attempt::AfterUnclear(recorded) = attempt {
        seen.kept = Some(look_for_kept(session, steps).await?);
        seen.are_records_kept = match recorded {
            Some(recorded) => audit::has(session, recorded).await?,
            None => false,
        };
    }
    let mut plan = Plan::new(seen, bindings);
    let mut outcomes = Vec::with_capacity(steps.len());
    for step in steps {
        failpoint::pass("s.append").map_err(|report| StoreError::Commit { report })?;
        outcomes.push(plan.add(step)?);
    }
    let woken = plan.woken;
    let told = payload(&woken);
    plan.columns.write(session, &plan.seen.heads, &plan.bindings).await?;
    let recorded = match plan.records.as_slice() {
        [] => None,
        entries => Some(audit::append(session, entries).await?),
    };
    if !woken.is_empty() {
        session.query(NOTIFY, &[&told]).await?;
    }
    Ok(Written { outcomes, woken, recorded })
}

/// What there is already of what the steps are about. The rows of sandboxes are locked.
struct Seen {
    heads: HashMap<String, Head>,
    ids: HashSet<String>,
    /// Which sandbox is or was called so.
    aliases: HashMap<(String, String), String>,
    execs: HashSet<(String, String)>,
    /// The last events of steps that may have been kept before.
    kept: Option<HashMap<(String, i64), String>>,
    /// Whether the records of a try before this one were.
    are_records_kept: bool,
}

/// Rows are locked in the order of ids, as every daemon does it. The statements go out together.
async fn look(session: &Session, steps: &[Step]) -> Result<(Seen, Bindings), StoreError> {
    let lock = format!(
        "SELECT {} FROM sandboxes WHERE id = ANY($1) AND phase <> '{PURGED}'
         ORDER BY id FOR UPDATE",
        head_of("")
    );
    let names = "SELECT id, tenant, alias FROM sandboxes WHERE id = ANY($1)
                 UNION ALL
                 SELECT s.id, s.tenant, s.alias FROM sandboxes s
                 JOIN unnest($2::text[], $3::text[]) AS w (tenant, alias)
                 ON s.tenant = w.tenant AND s.alias = w.alias
                 UNION ALL
                 SELECT f.sandbox_id, f.tenant, f.alias FROM former_aliases f
                 JOIN unnest($2::text[], $3::text[]) AS w (tenant, alias)
                 ON f.tenant = w.tenant AND f.alias = w.alias";
    let execs = "SELECT e.tenant, e.id FROM execs e
                 JOIN unnest($1::text[], $2::text[]) AS w (tenant, id)
                 ON e.tenant = w.tenant AND e.id = w.id";
    let asked = Asked::of(steps);
    let (_begun, locked, named, started, bindings) = try_join5(
        session.run("BEGIN"),
        session.query(&lock, &[&asked.changed]),
        session.query(names, &[&asked.created, &asked.tenants, &asked.aliases]),
        session.query(execs, &[&asked.exec_tenants, &asked.execs]),
        Box::pin(bindings::look(session, &asked.bound)),
    )
    .await?;
    let mut seen = Seen {
        heads: HashMap::new(),
        ids: HashSet::new(),
        aliases: HashMap::new(),
        execs: HashSet::new(),
        kept: None,
        are_records_kept: false,
    };
    for row in &locked {
        let head = head(row)?;
        seen.heads.insert(head.id.clone(), head);
    }
    for row in &named {
        seen.ids.insert(row.try_get(0)?);
        if let Some(alias) = row.try_get(2)? {
            seen.aliases.insert((row.try_get(1)?, alias), row.try_get(0)?);
        }
    }
    for row in &started {
        seen.execs.insert((row.try_get(0)?, row.try_get(1)?));
    }
    Ok((seen, bindings))
}

/// Finds out which steps were kept before, by their last events. The locks that were taken before
/// have waited for the end of the transaction that tried it.
async fn look_for_kept(
    session: &Session,
    steps: &[Step],
) -> Result<HashMap<(String, i64), String>, StoreError> {
    let sql = "SELECT e.sandbox_id, e.sequence, e.body FROM events e
               JOIN unnest($1::text[], $2::bigint[]) AS w (id, sequence)
               ON e.sandbox_id = w.id AND e.sequence = w.sequence";
    let (ids, sequences): (Vec<&str>, Vec<i64>) = steps.iter().filter_map(Step::end).unzip();
    let mut kept = HashMap::new();
    for row in session.query(sql, &[&ids, &sequences]).await? {
        kept.insert((row.try_get(0)?, row.try_get(1)?), row.try_get(2)?);
    }
    Ok(kept)
}

impl Step {
    /// Returns the sandbox and its last event once this is done, if that tells whether it is.
    fn end(&self) -> Option<(&str, i64)> {
        match self {
            Self::Create(creation, _) => {
                let sandbox = creation.sandbox();
                Some((sandbox.id.as_str(), number(sandbox.life.sequence)))
            }
            Self::Change(transition) => {
                Some((transition.sandbox().as_str(), number(transition.life().sequence)))
            }
            // Its own row tells.
            Self::Bind(_) | Self::Record(_) => None,
        }
    }

    /// Says whether something of it goes to the audit log.
    pub(super) fn is_recorded(&self) -> bool {
        match self {
            Self::Create(_, records) | Self::Record(records) => !records.is_empty(),
            Self::Bind(binding) => !binding.records.is_empty(),
            Self::Change(_) => false,
        }
    }

    fn last_event(&self) -> Option<&Event> {
        match self {
            Self::Create(creation, _) => creation.events().last(),
            Self::Change(transition) => transition.events().last(),
            Self::Bind(_) | Self::Record(_) => None,
        }
    }
}

/// The names in the steps, by columns.
#[derive(Default)]
struct Asked<'a> {
    changed: Vec<&'a str>,
    created: Vec<&'a str>,
    tenants: Vec<&'a str>,
    aliases: Vec<&'a str>,
    exec_tenants: Vec<&'a str>,
    execs: Vec<&'a str>,
    bound: Vec<&'a Binding>,
}

impl<'a> Asked<'a> {
    fn of(steps: &'a [Step]) -> Self {
        let mut asked = Self::default();
        for step in steps {
            match step {
                Step::Record(_) => {}
                Step::Create(creation, _) => asked.create(creation),
                Step::Bind(binding) => {
                    if let Some(creation) = &binding.creation {
                        asked.create(creation);
                    }
                    asked.bound.push(binding);
                }
                Step::Change(transition) => {
                    asked.changed.push(transition.sandbox().as_str());
                    if let Some(Adjusted { alias: Some(alias), .. }) = transition.adjusted() {
                        asked.tenants.push(transition.tenant().as_str());
                        asked.aliases.push(alias.as_str());
                    }
                    if let Some(exec) = transition.started() {
                        asked.exec_tenants.push(exec.tenant.as_str());
                        asked.execs.push(exec.id.as_str());
                    }
                }
            }
        }
        asked
    }

    fn create(&mut self, creation: &'a Creation) {
        let sandbox = creation.sandbox();
        self.created.push(sandbox.id.as_str());
        if let Some(alias) = &sandbox.alias {
            self.tenants.push(sandbox.tenant.as_str());
            self.aliases.push(alias.as_str());
        }
    }
}

/// What is to be written, decided from what was seen and what steps before in the batch do.
struct Plan {
    seen: Seen,
    bindings: Bindings,
    columns: Columns,
    woken: Vec<(SandboxId, Sequence)>,
    records: Vec<Entry>,
}

impl Plan {
    fn new(seen: Seen, bindings: Bindings) -> Self {
        let (columns, woken, records) = (Columns::default(), Vec::new(), Vec::new());
        Self { seen, bindings, columns, woken, records }
    }

    fn add(&mut self, step: &Step) -> Result<Outcome, StoreError> {
        if self.was_kept(step)? {
            return Ok(Outcome::Done);
        }
        match step {
            Step::Create(creation, records) => {
                let outcome = self.create(creation)?;
                if matches!(outcome, Outcome::Done) {
                    self.records.extend_from_slice(records);
                }
                Ok(outcome)
            }
            Step::Record(_) if self.seen.are_records_kept => Ok(Outcome::Done),
            Step::Record(entries) => {
                self.records.extend_from_slice(entries);
                Ok(Outcome::Done)
            }
            Step::Change(transition) => self.change(transition),
            Step::Bind(binding) => self.bind(binding),
        }
    }

    fn bind(&mut self, binding: &Binding) -> Result<Outcome, StoreError> {
        if self.seen.kept.is_some() && self.bindings.was_kept(binding)? {
            return Ok(Outcome::Done);
        }
        if let Some(refusal) = self.bindings.refusal(binding) {
            return Ok(Outcome::Refused(refusal));
        }
        let created = match &binding.creation {
            Some(creation) => self.create(creation)?,
            None => Outcome::Done,
        };
        if matches!(created, Outcome::Done) {
            self.bindings.add(binding)?;
            self.records.extend_from_slice(&binding.records);
        }
        Ok(created)
    }

    /// Says whether a try before this one kept the step: then its last event stands where it would
    /// stand, letter by letter.
    fn was_kept(&mut self, step: &Step) -> Result<bool, StoreError> {
        let (Some(kept), Some(event)) = (&self.seen.kept, step.last_event()) else {
            return Ok(false);
        };
        let Some((id, sequence)) = step.end() else { return Ok(false) };
        let Some(body) = kept.get(&(id.to_owned(), sequence)) else { return Ok(false) };
        let id: SandboxId = id.parse().map_err(|_not_an_id| StoreError::Row { table: "events" })?;
        let was_kept = EventRow::new(&id, event)?.body == *body;
        if was_kept {
            self.woken.push((id, event.sequence));
        }
        Ok(was_kept)
    }

    fn create(&mut self, creation: &Creation) -> Result<Outcome, StoreError> {
        let sandbox = creation.sandbox();
        let id = sandbox.id.to_string();
        let alias = sandbox.alias.as_ref();
        let alias = alias.map(|alias| (sandbox.tenant.to_string(), alias.to_string()));
        if self.seen.ids.contains(&id)
            || alias.as_ref().is_some_and(|alias| self.seen.aliases.contains_key(alias))
        {
            return Ok(Outcome::Refused(StoreError::Conflict { what: "the sandbox" }));
        }
        self.seen.aliases.extend(alias.map(|alias| (alias, id.clone())));
        self.seen.ids.insert(id);
        self.columns.create(creation)?;
        self.woken.push((sandbox.id.clone(), sandbox.life.sequence));
        Ok(Outcome::Done)
    }

    fn change(&mut self, transition: &Transition) -> Result<Outcome, StoreError> {
        let id = transition.sandbox();
        let Some(head) = self.seen.heads.get_mut(id.as_str()) else {
            return Ok(Outcome::Refused(StoreError::NotFound { what: "the sandbox" }));
        };
        if let Err(damaged) = head.check() {
            return Ok(Outcome::Refused(damaged));
        }
        if head.sequence != number(transition.expected()) {
            return Ok(Outcome::Stale(id.clone()));
        }
        if let Some(exec) = transition.started() {
            let name = (exec.tenant.to_string(), exec.id.to_string());
            if !self.seen.execs.insert(name) {
                return Ok(Outcome::Refused(StoreError::Conflict { what: "the exec" }));
            }
            self.columns.start(exec)?;
        }
        if let Some(adjusted) = transition.adjusted() {
            let Some(renamed) =
                self.columns.adjusted.add(head, adjusted, &mut self.seen.aliases)?
            else {
                return Ok(Outcome::Refused(StoreError::Conflict { what: "the sandbox" }));
            };
            *head = renamed;
        }
        *head = head.clone().with_life(transition.life())?;
        self.columns.changed.insert(id.to_string());
        for event in transition.events() {
            self.columns.append(id, EventRow::new(id, event)?);
        }
        for (exec, life) in transition.ended() {
            self.columns.end(transition.tenant(), exec, life)?;
        }
        self.woken.push((id.clone(), transition.life().sequence));
        Ok(Outcome::Done)
    }
}

/// Rows to be written, by columns.
#[derive(Default)]
struct Columns {
    created: Vec<Head>,
    specs: (Vec<String>, Vec<String>, Vec<i64>),
    labels: (Vec<String>, Vec<String>, Vec<String>),
    /// The ids of rows that have changed in memory.
    changed: HashSet<String>,
    events: (Vec<String>, Vec<i64>, Vec<String>, Vec<i64>),
    started: Vec<ExecRow>,
    ended: Vec<ExecChange>,
    adjusted: Adjustments,
}

impl Columns {
    fn create(&mut self, creation: &Creation) -> Result<(), StoreError> {
        let sandbox = creation.sandbox();
        self.created.push(Head::new(sandbox)?);
        let (spec, checksum) = sandbox_spec(&sandbox.id, &sandbox.spec)?;
        self.specs.0.push(sandbox.id.to_string());
        self.specs.1.push(spec);
        self.specs.2.push(checksum);
        for (name, value) in &sandbox.spec.labels {
            self.labels.0.push(sandbox.id.to_string());
            self.labels.1.push(name.clone());
            self.labels.2.push(value.clone());
        }
        for event in creation.events() {
            self.append(&sandbox.id, EventRow::new(&sandbox.id, event)?);
        }
        Ok(())
    }

    fn append(&mut self, sandbox: &SandboxId, row: EventRow) {
        self.events.0.push(sandbox.to_string());
        self.events.1.push(row.sequence);
        self.events.2.push(row.body);
        self.events.3.push(row.checksum);
    }

    fn start(&mut self, exec: &Exec) -> Result<(), StoreError> {
        self.started.push(ExecRow::new(exec)?);
        Ok(())
    }

    fn end(&mut self, tenant: &Tenant, exec: &ExecId, life: &ExecLife) -> Result<(), StoreError> {
        self.ended.push(ExecChange::new(tenant, exec, life)?);
        Ok(())
    }

    /// Writes everything. Statements go out together, in an order in which each finds what it
    /// needs.
    async fn write(
        &self,
        session: &Session,
        heads: &HashMap<String, Head>,
        bindings: &Bindings,
    ) -> Result<(), StoreError> {
        try_join5(
            self.write_created(session),
            Box::pin(self.write_changed(session, heads)),
            Box::pin(self.write_started(session)),
            try_join3(
                Box::pin(self.write_ended(session)),
                Box::pin(bindings.write(session)),
                Box::pin(self.adjusted.write(session)),
            ),
            self.write_events(session),
        )
        .await?;
        Ok(())
    }

    async fn write_created(&self, session: &Session) -> Result<(), StoreError> {
        if self.created.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "INSERT INTO sandboxes ({HEAD}) SELECT * FROM unnest($1::text[], $2::text[],
             $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[],
             $9::bigint[], $10::text[], $11::bigint[])"
        );
        let rows = &self.created;
        session
            .execute(
                &sql,
                &[
                    &column(rows, |row| &row.id),
                    &column(rows, |row| &row.tenant),
                    &column(rows, |row| row.alias.as_deref()),
                    &column(rows, |row| &row.node),
                    &column(rows, |row| &row.phase),
                    &column(rows, |row| row.created_at),
                    &column(rows, |row| row.phase_since),
                    &column(rows, |row| row.sequence),
                    &column(rows, |row| row.earliest),
                    &column(rows, |row| &row.life),
                    &column(rows, |row| row.checksum),
                ],
            )
            .await?;
        let sql = "INSERT INTO sandbox_specs (sandbox_id, spec, checksum)
                   SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])";
        session.execute(sql, &[&self.specs.0, &self.specs.1, &self.specs.2]).await?;
        let sql = "INSERT INTO sandbox_labels (sandbox_id, name, value)
                   SELECT * FROM unnest($1::text[], $2::text[], $3::text[])";
        session.execute(sql, &[&self.labels.0, &self.labels.1, &self.labels.2]).await?;
        Ok(())
    }

    async fn write_changed(
        &self,
        session: &Session,
        heads: &HashMap<String, Head>,
    ) -> Result<(), StoreError> {
        let rows: Vec<&Head> = self.changed.iter().filter_map(|id| heads.get(id)).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let sql = "UPDATE sandboxes s SET phase = n.phase, phase_since = n.phase_since,
                   sequence = n.sequence, life = n.life, checksum = n.checksum
                   FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[],
                   $6::bigint[]) AS n (id, phase, phase_since, sequence, life, checksum)
                   WHERE s.id = n.id";
        session
            .execute(
                sql,
                &[
                    &column(&rows, |row| &row.id),
                    &column(&rows, |row| &row.phase),
                    &column(&rows, |row| row.phase_since),
                    &column(&rows, |row| row.sequence),
                    &column(&rows, |row| &row.life),
                    &column(&rows, |row| row.checksum),
                ],
            )
            .await?;
        exec_env::release(session, &rows).await
    }

    async fn write_started(&self, session: &Session) -> Result<(), StoreError> {
        let rows = &self.started;
        if rows.is_empty() {
            return Ok(());
        }
        let sql = "INSERT INTO execs
                   (tenant, id, sandbox_id, state, life, checksum, spec, spec_checksum)
                   SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[],
                   $6::bigint[], $7::text[], $8::bigint[])";
        session
            .execute(
                sql,
                &[
                    &column(rows, |row| &row.tenant),
                    &column(rows, |row| &row.id),
                    &column(rows, |row| &row.sandbox),
                    &column(rows, |row| &row.state),
                    &column(rows, |row| &row.life),
                    &column(rows, |row| row.checksum),
                    &column(rows, |row| &row.spec),
                    &column(rows, |row| row.spec_checksum),
                ],
            )
            .await?;
        exec_env::insert(session, rows).await
    }

    async fn write_ended(&self, session: &Session) -> Result<(), StoreError> {
        let rows = &self.ended;
        if rows.is_empty() {
            return Ok(());
        }
        let sql = "UPDATE execs e SET state = n.state, life = n.life, checksum = n.checksum
                   FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[])
                   AS n (tenant, id, state, life, checksum)
                   WHERE e.tenant = n.tenant AND e.id = n.id";
        session
            .execute(
                sql,
                &[
                    &column(rows, |row| &row.tenant),
                    &column(rows, |row| &row.id),
                    &column(rows, |row| &row.state),
                    &column(rows, |row| &row.life),
                    &column(rows, |row| row.checksum),
                ],
            )
            .await?;
        exec_env::remove(session, rows).await
    }

    async fn write_events(&self, session: &Session) -> Result<(), StoreError> {
        let (sandboxes, sequences, bodies, checksums) = &self.events;
        if sandboxes.is_empty() {
            return Ok(());
        }
        let sql = "INSERT INTO events (sandbox_id, sequence, body, checksum)
                   SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[])";
        session.execute(sql, &[sandboxes, sequences, bodies, checksums]).await?;
        Ok(())
    }
}

fn column<'a, R, T>(rows: &'a [R], value: impl Fn(&'a R) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
}
