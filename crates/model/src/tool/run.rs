//! Runs of tools: how one ends, and what of it is kept.
//!
//! ```text
//! queued ─▶ running ─▶ succeeded │ failed │ timed_out │ cancelled
//!    └─────────────────────────────────────────────▶ cancelled
//! ```

use serde::{Deserialize, Serialize};

use crate::{
    execution::{Exit, Outcome, Status, StopReason},
    ids::{NodeId, Tenant},
    tool::{
        contract::{ReportedStatus, ToolResult, UiPayload},
        definition::Tool,
        ids::{DraftSnapshotId, RunId, ToolId, VersionId},
        normalise::normalise,
        policy::UiPolicy,
        session::{Context, Reported, Step},
    },
    units::Timestamp,
};

/// The most bytes that are kept of each of stdout and stderr.
pub const MAX_STREAM_BYTES: usize = 200_000;
/// The most bytes that are read of a `result.json`. Read, it takes up to sixteen times as much memory.
pub const MAX_RESULT_BYTES: usize = 8 * 1024 * 1024;
/// The most characters of an error summary.
const MAX_SUMMARY: usize = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    Queued,
    Running,
    Succeeded,
    Failed,
    TimedOut,
    Cancelled,
}

impl RunStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
        }
    }

    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Queued | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::TimedOut | Self::Cancelled => true,
        }
    }
}

/// A run as it is kept, without what it wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRun {
    pub id: RunId,
    pub tenant: Tenant,
    pub tool: ToolId,
    pub version: VersionId,
    /// The snapshot of the draft that is run instead of the version.
    pub snapshot: Option<DraftSnapshotId>,
    pub user: String,
    pub context: Context,
    pub step: Step,
    /// The server that carries it out.
    pub node: NodeId,
    pub status: RunStatus,
    pub queued_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub error_summary: Option<String>,
    pub artifacts: Vec<Artifact>,
    /// Whether more was written than is kept.
    pub stdout_truncated: bool,
    pub stderr_truncated: bool,
    /// The revision of its session after the run, if the run raised it.
    pub revision: Option<u64>,
}

impl ToolRun {
    /// Returns a first run in production that waits for its turn.
    pub fn queued(
        id: RunId,
        tool: &Tool,
        version: VersionId,
        user: String,
        node: NodeId,
        at: Timestamp,
    ) -> Self {
        Self {
            id,
            tenant: tool.tenant.clone(),
            tool: tool.id.clone(),
            version,
            snapshot: None,
            user,
            context: Context::production(),
            step: Step::Initial,
            node,
            status: RunStatus::Queued,
            queued_at: at,
            started_at: None,
            finished_at: None,
            error_summary: None,
            artifacts: Vec::new(),
            stdout_truncated: false,
            stderr_truncated: false,
            revision: None,
        }
    }
}

/// A file that a run left in `output/`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    pub id: String,
    pub path: String,
    pub bytes: u64,
}

/// What a run wrote, and what it shows as JSON.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RunTexts {
    pub payload: Option<String>,
    pub stdout: String,
    pub stderr: String,
}

/// Output is the user's: it never appears in a log line.
impl std::fmt::Debug for RunTexts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunTexts").finish_non_exhaustive()
    }
}

/// What a run left behind, as it was collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultFile<'a> {
    Missing,
    /// Not a regular file, or one that cannot be read.
    Unreadable,
    TooLarge,
    Bytes(&'a [u8]),
}

/// What is wrong with the files of a run, if something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFiles {
    Good,
    /// Something in `output/` is no regular file or folder: a link, a device, a pipe.
    NotAFile,
    TooMany,
    TooLarge,
}

/// How a run ended: what is kept of it, and what its session is told.
#[derive(Clone, Debug, PartialEq)]
pub struct RunEnd {
    pub status: RunStatus,
    pub error_summary: Option<String>,
    pub payload: Option<UiPayload>,
    pub reported: Reported,
}

/// Decides how a run ended. What ended the execution comes first, then the files, then the report.
pub fn judge(
    execution: &Outcome,
    result: ResultFile<'_>,
    files: OutputFiles,
    policy: &UiPolicy,
) -> RunEnd {
    if let Some(end) = ended_early(execution) {
        return end;
    }
    match files {
        OutputFiles::Good => {}
        OutputFiles::NotAFile => {
            return violation("output/ has an entry that is no regular file or folder");
        }
        OutputFiles::TooMany => return failure("The tool wrote too many files to output/."),
        OutputFiles::TooLarge => return failure("The files in output/ are too large."),
    }
    match result {
        ResultFile::Missing => {
            violation(&format!("result.json is missing; {}", exit_text(execution)))
        }
        ResultFile::Unreadable => violation("result.json is no file that can be read"),
        ResultFile::TooLarge => {
            violation(&format!("result.json has more than {MAX_RESULT_BYTES} bytes"))
        }
        ResultFile::Bytes(bytes) => match ToolResult::read(bytes) {
            Ok(result) => accept(result, policy),
            Err(error) => violation(&error.to_string()),
        },
    }
}

/// Returns the end of a run that the server stopped, or that ran out of memory.
fn ended_early(execution: &Outcome) -> Option<RunEnd> {
    match (execution.status, execution.stopped_for) {
        (Status::Timeout, _) => {
            Some(end(RunStatus::TimedOut, "Execution timed out.", Reported::Failure))
        }
        (Status::Oom, _) => Some(failure("The tool ran out of memory.")),
        (_, Some(StopReason::OutputLimit)) => {
            Some(failure("The tool wrote too much to stdout and stderr."))
        }
        (_, Some(StopReason::ShuttingDown)) => Some(interrupted()),
        (Status::Cancelled, _) => {
            Some(end(RunStatus::Cancelled, "The run was cancelled.", Reported::Interrupted))
        }
        (Status::Completed | Status::Failed, _) => None,
    }
}

/// Returns the end of a run whose server stopped or was killed meanwhile.
pub fn interrupted() -> RunEnd {
    end(
        RunStatus::Failed,
        "The server stopped while the tool was running; nothing of the run was kept. Run it again.",
        Reported::Interrupted,
    )
}

/// Returns the end of a run that the server could not carry out.
pub fn broken() -> RunEnd {
    end(RunStatus::Failed, "The server could not run the tool. Try again.", Reported::Interrupted)
}

fn accept(result: ToolResult, policy: &UiPolicy) -> RunEnd {
    let status = match result.status {
        ReportedStatus::Succeeded => RunStatus::Succeeded,
        ReportedStatus::Failed => RunStatus::Failed,
        ReportedStatus::TimedOut => RunStatus::TimedOut,
    };
    let error_summary = result.error_summary.clone().map(cut_summary);
    match normalise(result, Vec::new(), policy) {
        Err(error) => {
            let summary = format!("Execution failed (ui_payload normalization error). {error}");
            end(RunStatus::Failed, &summary, Reported::Violation)
        }
        Ok(normalised) => {
            let offers_actions = !normalised.payload.next_actions.is_empty();
            let reported = match status {
                RunStatus::Succeeded => {
                    Reported::Result { state: normalised.state, offers_actions }
                }
                RunStatus::Queued
                | RunStatus::Running
                | RunStatus::Failed
                | RunStatus::TimedOut
                | RunStatus::Cancelled => Reported::Failure,
            };
            RunEnd { status, error_summary, payload: Some(normalised.payload), reported }
        }
    }
}

fn violation(reason: &str) -> RunEnd {
    let summary = format!("Execution failed (runner contract violation). {reason}");
    end(RunStatus::Failed, &summary, Reported::Violation)
}

fn failure(summary: &str) -> RunEnd {
    end(RunStatus::Failed, summary, Reported::Failure)
}

fn end(status: RunStatus, summary: &str, reported: Reported) -> RunEnd {
    RunEnd { status, error_summary: Some(cut_summary(summary.to_owned())), payload: None, reported }
}

fn cut_summary(mut summary: String) -> String {
    if let Some((end, _)) = summary.char_indices().nth(MAX_SUMMARY) {
        summary.truncate(end);
    }
    summary
}

fn exit_text(execution: &Outcome) -> String {
    match execution.exit {
        Some(Exit::Code(code)) => format!("the process ended with exit code {code}"),
        Some(Exit::Signal(signal)) => format!("the process was ended by signal {signal}"),
        None => "the process ended without an exit code".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        execution::{Facts, Usage},
        tool::normalise::StateUpdate,
    };

    fn outcome(stopped_for: Option<StopReason>, oom_kills: u64, exit: Option<Exit>) -> Outcome {
        Outcome {
            status: Facts { stopped_for, oom_kills, exit }.status(),
            exit,
            stopped_for,
            duration: Duration::ZERO,
            usage: Usage::default(),
            output_bytes: 0,
            truncated: false,
        }
    }

    fn result(status: &str, rest: &str) -> Vec<u8> {
        format!(r#"{{"contract_version":2,"status":"{status}","error_summary":null{rest}}}"#)
            .into_bytes()
    }

    const FORM: &str = r#","next_actions":[{"action_id":"a","label":"A"}]"#;
    const TWICE: &str =
        r#","next_actions":[{"action_id":"a","label":"A"},{"action_id":"a","label":"A"}]"#;

    #[test]
    fn a_run_ends_as_the_first_cause_that_holds_says() {
        use RunStatus::{Cancelled, Failed, Succeeded, TimedOut};
        let good = result("succeeded", "");
        let form = result("succeeded", FORM);
        let failed = result("failed", FORM);
        let twice = result("succeeded", TWICE);
        let (exited, killed) = (Some(Exit::Code(0)), Some(Exit::Signal(11)));
        let (bytes, files) = (ResultFile::Bytes(&good), OutputFiles::Good);
        let kept = |offers_actions| Reported::Result { state: StateUpdate::Keep, offers_actions };
        let table = [
            (outcome(None, 0, exited), bytes, files, Succeeded, "", kept(false)),
            (outcome(None, 0, exited), ResultFile::Bytes(&form), files, Succeeded, "", kept(true)),
            // The report was written before the process crashed.
            (outcome(None, 0, killed), bytes, files, Succeeded, "", kept(false)),
            (
                outcome(None, 0, exited),
                ResultFile::Bytes(&failed),
                files,
                Failed,
                "",
                Reported::Failure,
            ),
            (
                outcome(Some(StopReason::Deadline), 0, killed),
                bytes,
                files,
                TimedOut,
                "Execution timed out.",
                Reported::Failure,
            ),
            (
                outcome(None, 1, killed),
                bytes,
                files,
                Failed,
                "The tool ran out of memory.",
                Reported::Failure,
            ),
            (
                outcome(Some(StopReason::OutputLimit), 0, killed),
                bytes,
                files,
                Failed,
                "The tool wrote too much",
                Reported::Failure,
            ),
            (
                outcome(Some(StopReason::Cancelled), 0, killed),
                bytes,
                files,
                Cancelled,
                "The run was cancelled.",
                Reported::Interrupted,
            ),
            (
                outcome(Some(StopReason::ShuttingDown), 0, killed),
                bytes,
                files,
                Failed,
                "The server stopped",
                Reported::Interrupted,
            ),
            (
                outcome(None, 0, killed),
                ResultFile::Missing,
                files,
                Failed,
                "Execution failed (runner contract violation). result.json is missing; the process was ended by signal 11",
                Reported::Violation,
            ),
            (
                outcome(None, 0, Some(Exit::Code(3))),
                ResultFile::Missing,
                files,
                Failed,
                "Execution failed (runner contract violation). result.json is missing; the process ended with exit code 3",
                Reported::Violation,
            ),
            (
                outcome(None, 0, exited),
                ResultFile::Unreadable,
                files,
                Failed,
                "Execution failed (runner contract violation). result.json is no file",
                Reported::Violation,
            ),
            (
                outcome(None, 0, exited),
                ResultFile::TooLarge,
                files,
                Failed,
                "Execution failed (runner contract violation). result.json has more",
                Reported::Violation,
            ),
            (
                outcome(None, 0, exited),
                ResultFile::Bytes(b"{"),
                files,
                Failed,
                "Execution failed (runner contract violation). result.json: EOF",
                Reported::Violation,
            ),
            (
                outcome(None, 0, exited),
                ResultFile::Bytes(&twice),
                files,
                Failed,
                "Execution failed (ui_payload normalization error). the action id",
                Reported::Violation,
            ),
            (
                outcome(None, 0, exited),
                bytes,
                OutputFiles::NotAFile,
                Failed,
                "Execution failed (runner contract violation). output/",
                Reported::Violation,
            ),
            (
                outcome(None, 0, exited),
                bytes,
                OutputFiles::TooMany,
                Failed,
                "The tool wrote too many files",
                Reported::Failure,
            ),
            (
                outcome(None, 0, exited),
                bytes,
                OutputFiles::TooLarge,
                Failed,
                "The files in output/",
                Reported::Failure,
            ),
            (
                outcome(Some(StopReason::Deadline), 0, killed),
                ResultFile::Missing,
                OutputFiles::NotAFile,
                TimedOut,
                "Execution timed out.",
                Reported::Failure,
            ),
        ];
        for (execution, result, files, status, summary, reported) in table {
            let end = judge(&execution, result, files, &UiPolicy::DEFAULT);
            let name =
                format!("{:?} {:?} {result:?} {files:?}", execution.status, execution.stopped_for);
            assert_eq!((end.status, end.reported), (status, reported), "{name}");
            let shown = end.error_summary.clone().unwrap_or_default();
            assert!(
                shown.starts_with(summary) && shown.is_empty() == summary.is_empty(),
                "{name}: {shown}"
            );
            assert_eq!(end.payload.is_some(), summary.is_empty(), "{name}");
        }
    }

    #[test]
    fn a_long_summary_is_cut_and_never_inside_a_character() {
        let rest = format!("{}\",\"outputs\":[]", "é".repeat(30_000));
        let bytes =
            format!(r#"{{"contract_version":2,"status":"failed","error_summary":"{rest}}}"#)
                .into_bytes();
        let end = judge(
            &outcome(None, 0, Some(Exit::Code(0))),
            ResultFile::Bytes(&bytes),
            OutputFiles::Good,
            &UiPolicy::DEFAULT,
        );
        assert_eq!(end.error_summary.map(|text| text.chars().count()), Some(MAX_SUMMARY));
    }

    #[test]
    fn only_four_statuses_are_final() {
        use RunStatus::{Cancelled, Failed, Queued, Running, Succeeded, TimedOut};
        let statuses = [Queued, Running, Succeeded, Failed, TimedOut, Cancelled];
        let terminal: Vec<&str> = statuses
            .into_iter()
            .filter(|status| status.is_terminal())
            .map(RunStatus::as_str)
            .collect();
        assert_eq!(terminal, ["succeeded", "failed", "timed_out", "cancelled"]);
    }
}
