//! How records are laid out in rows, the same in every database: columns for what is asked for,
//! JSON for the rest, and a checksum over both that is verified whenever a row is read.

use model::{
    event::{Event, Sequence},
    exec::{Exec, ExecLife, ExecState},
    ids::{Alias, ExecId, SandboxId, Tenant},
    life::Life,
    sandbox::Sandbox,
    spec::{ExecSpec, SandboxSpec},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::StoreError;

/// The phase of a row that is kept only for its names.
pub(crate) const PURGED: &str = "purged";

/// A row of `sandboxes`.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) id: String,
    pub(crate) tenant: String,
    pub(crate) alias: Option<String>,
    pub(crate) node: String,
    pub(crate) phase: String,
    pub(crate) created_at: i64,
    pub(crate) phase_since: i64,
    pub(crate) sequence: i64,
    pub(crate) earliest: i64,
    pub(crate) life: String,
    pub(crate) checksum: i64,
}

/// The columns of [`Head`], in its order.
pub(crate) const HEAD: &str = "id, tenant, alias, node, phase, created_at, phase_since, sequence, \
                               earliest, life, checksum";

/// What selects [`HEAD`] from the table of this prefix: a deleted sandbox shows the name that it had.
pub(crate) fn head_of(prefix: &str) -> String {
    let column = |column| match column {
        "alias" => format!("coalesce({prefix}alias, {prefix}ended_alias)"),
        column => format!("{prefix}{column}"),
    };
    HEAD.split(", ").map(column).collect::<Vec<_>>().join(", ")
}

impl Head {
    pub(crate) fn new(sandbox: &Sandbox) -> Result<Self, StoreError> {
        let head = Self {
            id: sandbox.id.to_string(),
            tenant: sandbox.tenant.to_string(),
            alias: sandbox.alias.clone().map(String::from),
            node: sandbox.node.to_string(),
            phase: String::new(),
            created_at: 0,
            phase_since: 0,
            sequence: 0,
            earliest: 1,
            life: String::new(),
            checksum: 0,
        };
        head.with_life(&sandbox.life)
    }

    /// Returns the row under another alias; to be sealed by what follows.
    pub(crate) fn with_alias(self, alias: Option<&Alias>) -> Self {
        Self { alias: alias.map(ToString::to_string), ..self }
    }

    /// Returns the row after a step in its life.
    pub(crate) fn with_life(self, life: &Life) -> Result<Self, StoreError> {
        let head = Self {
            phase: life.phase.name().to_owned(),
            created_at: life.created_at.as_millis(),
            phase_since: life.phase_since.as_millis(),
            sequence: number(life.sequence),
            life: encode("a sandbox", life)?,
            ..self
        };
        Ok(head.sealed())
    }

    pub(crate) fn with_earliest(self, earliest: i64) -> Self {
        Self { earliest, ..self }.sealed()
    }

    /// Returns the row that is kept when all else is forgotten.
    pub(crate) fn purged(self) -> Self {
        let earliest = self.sequence.saturating_add(1);
        Self { phase: PURGED.to_owned(), life: String::new(), earliest, ..self }.sealed()
    }

    fn sealed(mut self) -> Self {
        self.checksum = self.sum();
        self
    }

    fn sum(&self) -> i64 {
        checksum(&[
            self.id.as_bytes(),
            self.tenant.as_bytes(),
            self.alias.as_deref().unwrap_or_default().as_bytes(),
            self.node.as_bytes(),
            self.phase.as_bytes(),
            &self.created_at.to_be_bytes(),
            &self.phase_since.to_be_bytes(),
            &self.sequence.to_be_bytes(),
            &self.earliest.to_be_bytes(),
            self.life.as_bytes(),
        ])
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        check(self.checksum, self.sum(), || format!("the row of sandbox {}", self.id))
    }

    /// Reads a whole record.
    fn read(self, spec: &str, spec_checksum: i64) -> Result<Sandbox, StoreError> {
        self.check()?;
        let of = || format!("the spec of sandbox {}", self.id);
        check(spec_checksum, spec_sum(&self.id, spec), of)?;
        let not_understood = || StoreError::Row { table: "sandboxes" };
        Ok(Sandbox {
            id: self.id.parse().map_err(|_not_an_id| not_understood())?,
            tenant: self.tenant.parse().map_err(|_not_a_name| not_understood())?,
            alias: self
                .alias
                .map(|alias| alias.parse())
                .transpose()
                .map_err(|_not_an_alias| not_understood())?,
            node: self.node.parse().map_err(|_not_a_name| not_understood())?,
            spec: decode("sandbox_specs", spec)?,
            life: decode("sandboxes", &self.life)?,
        })
    }
}

/// A row with what is needed for a whole record.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    pub(crate) head: Head,
    pub(crate) spec: String,
    pub(crate) spec_checksum: i64,
}

impl Whole {
    pub(crate) fn read(self) -> Result<Sandbox, StoreError> {
        self.head.read(&self.spec, self.spec_checksum)
    }
}

/// Selects the columns of [`HEAD`], then the spec and its checksum.
pub(crate) fn select_sandbox(condition: &str) -> String {
    // A missing spec is damage, not absence.
    format!(
        "SELECT {}, coalesce(p.spec, ''), coalesce(p.checksum, -1)
         FROM sandboxes s LEFT JOIN sandbox_specs p ON p.sandbox_id = s.id
         WHERE s.phase <> '{PURGED}' AND {condition}",
        head_of("s.")
    )
}

/// Selects the columns of [`EXEC`], then the last event of the sandbox.
pub(crate) fn select_exec(condition: &str) -> String {
    let columns = EXEC.split(", ").map(|column| format!("e.{column}")).collect::<Vec<_>>();
    format!(
        "SELECT {}, coalesce(v.env, ''), coalesce(v.checksum, 0), s.sequence
         FROM execs e JOIN sandboxes s ON s.id = e.sandbox_id
         LEFT JOIN exec_env v ON v.tenant = e.tenant AND v.exec_id = e.id
         WHERE e.state <> '{PURGED}' AND {condition}",
        columns.join(", ")
    )
}

/// Returns what a row of `sandbox_specs` holds: the spec and its checksum.
pub(crate) fn sandbox_spec(
    id: &SandboxId,
    spec: &SandboxSpec,
) -> Result<(String, i64), StoreError> {
    let text = encode("the spec of a sandbox", spec)?;
    let sum = spec_sum(id.as_str(), &text);
    Ok((text, sum))
}

fn spec_sum(id: &str, spec: &str) -> i64 {
    checksum(&[id.as_bytes(), spec.as_bytes()])
}

/// A row of `events`.
#[derive(Clone, Debug)]
pub(crate) struct EventRow {
    pub(crate) sequence: i64,
    pub(crate) body: String,
    pub(crate) checksum: i64,
}

impl EventRow {
    pub(crate) fn new(sandbox: &SandboxId, event: &Event) -> Result<Self, StoreError> {
        let (sequence, body) = (number(event.sequence), encode("an event", event)?);
        let checksum = Self::sum(sandbox.as_str(), sequence, &body);
        Ok(Self { sequence, body, checksum })
    }

    fn sum(sandbox: &str, sequence: i64, body: &str) -> i64 {
        checksum(&[sandbox.as_bytes(), &sequence.to_be_bytes(), body.as_bytes()])
    }

    pub(crate) fn read(&self, sandbox: &SandboxId) -> Result<Event, StoreError> {
        let of = || format!("event {} of sandbox {sandbox}", self.sequence);
        check(self.checksum, Self::sum(sandbox.as_str(), self.sequence, &self.body), of)?;
        decode("events", &self.body)
    }
}

/// A row of `execs`.
#[derive(Clone, Debug)]
pub(crate) struct ExecRow {
    pub(crate) tenant: String,
    pub(crate) id: String,
    pub(crate) sandbox: String,
    pub(crate) state: String,
    pub(crate) life: String,
    pub(crate) checksum: i64,
    pub(crate) spec: String,
    pub(crate) spec_checksum: i64,
    /// Its variables, apart from the rest; empty once it has ended.
    pub(crate) env: String,
    pub(crate) env_checksum: i64,
}

/// The columns of [`ExecRow`] in `execs`, in its order.
pub(crate) const EXEC: &str = "tenant, id, sandbox_id, state, life, checksum, spec, spec_checksum";

impl ExecRow {
    pub(crate) fn new(exec: &Exec) -> Result<Self, StoreError> {
        let change = ExecChange::new(&exec.tenant, &exec.id, &exec.life)?;
        let mut rest = exec.spec.clone();
        let env = std::mem::take(&mut rest.env);
        let spec = encode("the spec of an exec", &rest)?;
        let (tenant, id, sandbox) =
            (exec.tenant.to_string(), exec.id.to_string(), exec.sandbox.to_string());
        let spec_checksum = Self::spec_sum(&tenant, &id, &sandbox, &spec);
        let ExecChange { state, life, checksum, .. } = change;
        let env = if env.is_empty() { String::new() } else { encode("variables", &env)? };
        let env_checksum = Self::env_sum(&tenant, &id, &env);
        Ok(Self {
            tenant,
            id,
            sandbox,
            state,
            life,
            checksum,
            spec,
            spec_checksum,
            env,
            env_checksum,
        })
    }

    fn env_sum(tenant: &str, id: &str, env: &str) -> i64 {
        checksum(&[tenant.as_bytes(), id.as_bytes(), env.as_bytes()])
    }

    /// Reads what was asked for; nothing of it if it was erased.
    fn read_spec(&self) -> Result<ExecSpec, StoreError> {
        if self.spec.is_empty() && self.spec_checksum == 0 {
            return Ok(ExecSpec::default());
        }
        let of = || format!("the row of exec {}", self.id);
        let sum = Self::spec_sum(&self.tenant, &self.id, &self.sandbox, &self.spec);
        check(self.spec_checksum, sum, of)?;
        let mut spec: ExecSpec = decode("execs", &self.spec)?;
        if !self.env.is_empty() {
            check(self.env_checksum, Self::env_sum(&self.tenant, &self.id, &self.env), of)?;
            spec.env = decode("exec_env", &self.env)?;
        }
        Ok(spec)
    }

    fn spec_sum(tenant: &str, id: &str, sandbox: &str, spec: &str) -> i64 {
        checksum(&[tenant.as_bytes(), id.as_bytes(), sandbox.as_bytes(), spec.as_bytes()])
    }

    pub(crate) fn read(self) -> Result<Exec, StoreError> {
        let of = || format!("the row of exec {}", self.id);
        check(self.checksum, ExecChange::sum(&self.tenant, &self.id, &self.state, &self.life), of)?;
        let not_understood = || StoreError::Row { table: "execs" };
        let (life, spec): (ExecLife, ExecSpec) = (decode("execs", &self.life)?, self.read_spec()?);
        Ok(Exec {
            id: self.id.parse().map_err(|_not_an_id| not_understood())?,
            sandbox: self.sandbox.parse().map_err(|_not_an_id| not_understood())?,
            tenant: self.tenant.parse().map_err(|_not_a_name| not_understood())?,
            spec,
            life,
        })
    }
}

/// What changes in a row of `execs`.
#[derive(Clone, Debug)]
pub(crate) struct ExecChange {
    pub(crate) tenant: String,
    pub(crate) id: String,
    pub(crate) state: String,
    pub(crate) life: String,
    pub(crate) checksum: i64,
}

impl ExecChange {
    pub(crate) fn new(tenant: &Tenant, id: &ExecId, life: &ExecLife) -> Result<Self, StoreError> {
        let state = match life.state {
            ExecState::Running => "running",
            ExecState::Ended(_) => "ended",
        };
        let text = encode("an exec", life)?;
        let checksum = Self::sum(tenant.as_str(), id.as_str(), state, &text);
        Ok(Self {
            tenant: tenant.to_string(),
            id: id.to_string(),
            state: state.to_owned(),
            life: text,
            checksum,
        })
    }

    fn sum(tenant: &str, id: &str, state: &str, life: &str) -> i64 {
        checksum(&[tenant.as_bytes(), id.as_bytes(), state.as_bytes(), life.as_bytes()])
    }
}

/// Sequences stay far below what a signed column holds.
pub(crate) fn number(sequence: Sequence) -> i64 {
    i64::try_from(sequence.0).unwrap_or(i64::MAX)
}

pub(crate) fn sequence(number: i64) -> Sequence {
    Sequence(u64::try_from(number).unwrap_or(0))
}

pub(crate) fn encode(what: &'static str, value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|source| StoreError::Encode { what, source })
}

pub(crate) fn decode<T: DeserializeOwned>(
    table: &'static str,
    text: &str,
) -> Result<T, StoreError> {
    // The cause would quote what is kept, which may be a secret.
    serde_json::from_str(text).map_err(|_not_understood| StoreError::Row { table })
}

pub(crate) fn check(kept: i64, sum: i64, of: impl FnOnce() -> String) -> Result<(), StoreError> {
    if kept == sum {
        return Ok(());
    }
    Err(StoreError::Damaged { report: format!("{} does not fit its checksum", of()) })
}

/// Sums parts so that moving a byte from one to the next changes the sum.
pub(crate) fn checksum(parts: &[&[u8]]) -> i64 {
    let sum = parts.iter().fold(0, |sum, part| {
        let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
        crc32c::crc32c_append(crc32c::crc32c_append(sum, &length.to_be_bytes()), part)
    });
    i64::from(sum)
}

#[cfg(test)]
mod tests {
    use model::{event::EventKind, exec::ExecEnd, execution::Exit, units::Timestamp};

    use super::*;

    fn event() -> (SandboxId, Event) {
        let event = Event {
            sequence: Sequence(7),
            occurred_at: Timestamp::from_millis(1_800_000_000_123),
            phase: model::life::Phase::Active,
            kind: EventKind::ExecEnded {
                exec: "exec-1".parse().unwrap(),
                end: ExecEnd::Exited(Exit::Code(3)),
            },
        };
        (SandboxId::from_random([5; 16]), event)
    }

    /// F23: what a released version wrote is read by every later one.
    #[test]
    fn a_row_is_written_as_it_always_was() {
        let (sandbox, event) = event();
        let row = EventRow::new(&sandbox, &event).unwrap();
        let body = r#"{"sequence":7,"occurred_at":1800000000123,"phase":"active","kind":{"exec_ended":{"exec":"exec-1","end":{"exited":{"code":3}}}}}"#;
        assert_eq!(row.body, body);
        let kept = EventRow { sequence: 7, body: body.into(), checksum: row.checksum };
        assert_eq!(kept.read(&sandbox).unwrap(), event);
    }

    /// F14.
    #[test]
    fn no_flipped_bit_goes_unnoticed() {
        let (sandbox, event) = event();
        let row = EventRow::new(&sandbox, &event).unwrap();
        for place in 0..row.body.len() {
            for bit in 0..7 {
                let mut bytes = row.body.clone().into_bytes();
                bytes[place] ^= 1 << bit;
                let body = String::from_utf8(bytes).unwrap();
                let damaged = EventRow { body, ..row.clone() }.read(&sandbox);
                assert!(matches!(damaged, Err(StoreError::Damaged { .. })), "{damaged:?}");
            }
        }
        for bit in 0..63 {
            let checksum = EventRow { checksum: row.checksum ^ (1 << bit), ..row.clone() };
            let sequence = EventRow { sequence: row.sequence ^ (1 << bit), ..row.clone() };
            for damaged in [checksum.read(&sandbox), sequence.read(&sandbox)] {
                assert!(matches!(damaged, Err(StoreError::Damaged { .. })), "{damaged:?}");
            }
        }
        let elsewhere = row.read(&SandboxId::from_random([6; 16]));
        assert!(matches!(elsewhere, Err(StoreError::Damaged { .. })), "{elsewhere:?}");
    }
}
