//! `ringfence audit`.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use client::admin::{Admin, AuditPart};
use daemon::audit::{
    Expected, Offline, VerificationKey, Verified, Wanted, take_verification_key, verify,
};
use serde_json::Value;

use crate::{
    output::{complain, say},
    server::Server,
};

/// Shows who was given which access, and what came of it, from the running server or, if none runs,
/// from its data directory.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  ringfence audit list --sandbox sb_01h455vb4pex5vsknk084sn02q
  ringfence audit list --outcome denied --limit 20
  ringfence audit export > audit.jsonl
  ringfence audit verify audit.jsonl --checkpoint 1234:0f3a…
  ringfence audit key > /media/usb/audit.key
  ringfence audit verify audit.jsonl --verification-key /media/usb/audit.key

The server seals the log every few minutes. With the verification key, which belongs on another
machine, verify also finds a log that an intruder has written anew. An export ends with a
checkpoint on stderr: keep it elsewhere. With it, verify also notices that records were cut off
at the end.")]
pub(crate) struct Audit {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List records, newest first
    List(List),
    /// Write all records to stdout, oldest first, as lines of JSON
    Export {
        /// Only those after this checkpoint of an earlier export
        #[arg(long, value_name = "CHECKPOINT")]
        after: Option<String>,
    },
    /// Check that no record was changed, left out, put in or moved
    Verify(Verify),
    /// Print the verification key and remove it from the data directory: it can be taken once
    Key,
}

#[derive(Args, Debug)]
struct Verify {
    /// An export, or - for stdin; without it, what the server has
    file: Option<PathBuf>,
    /// The checkpoint that the export begins after
    #[arg(long, value_name = "CHECKPOINT")]
    after: Option<String>,
    /// A checkpoint that must be in it (may be repeated)
    #[arg(long, value_name = "CHECKPOINT")]
    checkpoint: Vec<String>,
    /// A file of checkpoints that must be in it, as audit.checkpoints has the server write it
    #[arg(long, value_name = "FILE")]
    checkpoints: Option<PathBuf>,
    /// A file with the verification key: check the seals too (may be repeated)
    #[arg(long, value_name = "FILE")]
    verification_key: Vec<PathBuf>,
}

#[derive(Args, Debug)]
struct List {
    /// How many at most
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Only this action, such as token.mint
    #[arg(long)]
    action: Option<String>,
    /// Only this outcome: granted, denied or failed
    #[arg(long)]
    outcome: Option<String>,
    /// Only those of this actor
    #[arg(long)]
    actor: Option<String>,
    /// Only those of this key
    #[arg(long)]
    key_id: Option<String>,
    /// Only those of this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Only those about this session
    #[arg(long)]
    session: Option<String>,
    /// Only those about this sandbox, by its id
    #[arg(long)]
    sandbox: Option<String>,
    /// Only those about this token
    #[arg(long)]
    jti: Option<String>,
    /// Write JSON, a record to a line
    #[arg(long)]
    json: bool,
}

impl Audit {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        match &self.action {
            Action::List(list) => runtime.block_on(self.list(list))?,
            Action::Export { after } => runtime.block_on(self.export(after.as_deref()))?,
            Action::Verify(checked) => {
                let expected = checked.expected()?;
                let verified = if let Some(file) = &checked.file {
                    verify(lines(file)?, &expected)?
                } else {
                    let all = runtime.block_on(self.all(checked.after.as_deref()))?;
                    verify(all.into_iter().map(Ok), &expected)?
                };
                say(&summary(&verified))?;
            }
            Action::Key => say(&self.take_key()?)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn take_key(&self) -> anyhow::Result<String> {
        let data = self.server.data()?;
        let key = take_verification_key(&data)
            .with_context(|| format!("cannot take the verification key from {}", data.display()))?;
        key.with_context(|| {
            format!(
                "{} has no verification key: it was taken before, or no server has started there",
                data.display()
            )
        })
    }

    async fn list(&self, list: &List) -> anyhow::Result<()> {
        let log = Log::open(&self.server).await?;
        let (mut left, mut wanted) = (list.limit, list.wanted());
        while left > 0 {
            wanted.limit = Some(left.min(1000));
            let part = log.read(&wanted).await?;
            for line in &part.lines {
                say(&if list.json { line.clone() } else { shown(&serde_json::from_str(line)?) })?;
            }
            left = left.saturating_sub(u32::try_from(part.lines.len()).unwrap_or(u32::MAX));
            match part.next {
                Some(next) => wanted.cursor = Some(next),
                None => break,
            }
        }
        log.close().await;
        Ok(())
    }

    async fn export(&self, after: Option<&str>) -> anyhow::Result<()> {
        let lines = self.all(after).await?;
        for line in &lines {
            say(line)?;
        }
        let expected = Expected { after: after.map(str::to_owned), ..Expected::default() };
        let Verified { checkpoint, .. } = verify(lines.into_iter().map(Ok), &expected)?;
        complain(&format!("checkpoint {checkpoint}"));
        Ok(())
    }

    /// Returns every record after a checkpoint, oldest first.
    async fn all(&self, after: Option<&str>) -> anyhow::Result<Vec<String>> {
        let log = Log::open(&self.server).await?;
        let sequence = match after {
            Some(after) => after.split_once(':').and_then(|(number, _)| number.parse().ok()),
            None => Some(0),
        };
        let sequence: u64 = sequence.context("--after is a checkpoint, such as 1234:0f3a…")?;
        let (order, limit) = (Some("asc".to_owned()), Some(1000));
        let cursor = Some(format!("up.{sequence}"));
        let mut wanted = Wanted { order, limit, cursor, ..Wanted::default() };
        let mut all = Vec::new();
        loop {
            let part = log.read(&wanted).await?;
            all.extend(part.lines);
            match part.next {
                Some(next) => wanted.cursor = Some(next),
                None => break,
            }
        }
        log.close().await;
        Ok(all)
    }
}

impl Verify {
    fn expected(&self) -> anyhow::Result<Expected> {
        let mut checkpoints = self.checkpoint.clone();
        if let Some(file) = &self.checkpoints {
            // Each line is a time and a checkpoint.
            let last_word = |line: &str| line.split_whitespace().last().map(str::to_owned);
            checkpoints.extend(read(file)?.lines().filter_map(last_word));
        }
        let keys: anyhow::Result<Vec<VerificationKey>> =
            self.verification_key.iter().map(|file| Ok(read(file)?.parse()?)).collect();
        Ok(Expected { after: self.after.clone(), checkpoints, keys: keys? })
    }
}

fn read(file: &Path) -> anyhow::Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

fn summary(verified: &Verified) -> String {
    let Verified { records, checkpoint, sealed } = verified;
    let seals = match sealed {
        Some(sealed) => format!("sealed up to record {sealed}"),
        None => "seals not checked (no --verification-key)".to_owned(),
    };
    format!("{records} records, none changed; {seals}; checkpoint {checkpoint}")
}

impl List {
    fn wanted(&self) -> Wanted {
        Wanted {
            action: self.action.clone(),
            outcome: self.outcome.clone(),
            actor: self.actor.clone(),
            key_id: self.key_id.clone(),
            tenant: self.tenant.clone(),
            session: self.session.clone(),
            sandbox: self.sandbox.clone(),
            jti: self.jti.clone(),
            ..Wanted::default()
        }
    }
}

/// Where the log is read.
enum Log {
    Online(Admin),
    Offline(Offline),
}

impl Log {
    async fn open(server: &Server) -> anyhow::Result<Self> {
        let address = server.address()?;
        if server.is_named() || address.answers().await {
            return Ok(Self::Online(Admin::new(address, &server.key()?)));
        }
        let data = server.data()?;
        let offline = Offline::open(&data)
            .with_context(|| format!("no server runs, and {} cannot be used", data.display()))?;
        Ok(Self::Offline(offline))
    }

    async fn read(&self, wanted: &Wanted) -> anyhow::Result<AuditPart> {
        match self {
            Self::Online(admin) => Ok(admin.audit(&parameters(wanted)).await?),
            Self::Offline(offline) => {
                let (lines, next) = offline.read(wanted).await.map_err(|report| anyhow!(report))?;
                Ok(AuditPart { lines, next })
            }
        }
    }

    async fn close(self) {
        match self {
            Self::Online(_) => {}
            Self::Offline(offline) => offline.close().await,
        }
    }
}

/// Returns a question as the route takes it.
fn parameters(wanted: &Wanted) -> Vec<(&'static str, String)> {
    let limit = wanted.limit.map(|limit| limit.to_string());
    [
        ("order", &wanted.order),
        ("cursor", &wanted.cursor),
        ("limit", &limit),
        ("action", &wanted.action),
        ("outcome", &wanted.outcome),
        ("actor", &wanted.actor),
        ("key_id", &wanted.key_id),
        ("tenant", &wanted.tenant),
        ("session", &wanted.session),
        ("sandbox", &wanted.sandbox),
        ("jti", &wanted.jti),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value.clone()?)))
    .collect()
}

fn lines(file: &PathBuf) -> anyhow::Result<Box<dyn Iterator<Item = io::Result<String>>>> {
    if file.as_os_str() == "-" {
        return Ok(Box::new(io::stdin().lock().lines()));
    }
    let opened = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    Ok(Box::new(BufReader::new(opened).lines()))
}

/// Writes a record for people.
fn shown(record: &Value) -> String {
    let text = |name: &str| record[name].as_str().unwrap_or("-");
    let time = record["time"].as_i64().unwrap_or_default();
    let mut shown = format!(
        "{:>6}  {}  {:<16}{:<8} {}:{}",
        record["sequence"].as_u64().unwrap_or_default(),
        daemon::clock::text_of_millis(time),
        text("action"),
        text("outcome"),
        text("actor_type"),
        text("actor_id"),
    );
    for name in SHOWN {
        if let Some(value) = record[name].as_str() {
            // Writing to a string cannot fail.
            let _ = write!(shown, " {name}={value}");
        }
    }
    if let Some(count) = record["count"].as_u64() {
        let _ = write!(shown, " count={count}");
    }
    shown
}

/// What is shown of a record after who did what.
const SHOWN: [&str; 11] = [
    "tenant",
    "key_id",
    "scope",
    "session",
    "sandbox",
    "jti",
    "object",
    "subject",
    "capabilities",
    "reason",
    "request_id",
];
