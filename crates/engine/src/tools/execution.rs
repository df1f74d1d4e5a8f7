//! One run from its place in the queue to its end.

use std::{
    fs::File,
    io::{self, Read as _},
    sync::Arc,
    time::Duration,
};

use model::{
    execution::{Execution, Freshness, Outcome, StopReason},
    limits::Limits,
    tool::{
        ids::RunId,
        run::{
            Artifact, MAX_RESULT_BYTES, OutputFiles, ResultFile, RunEnd, RunTexts, ToolRun, broken,
            judge,
        },
    },
    units::{ByteSize, Timestamp},
};
use serde_json::{Map, Value};
use store::{StoreError, tools::SessionKey};
use tokio::sync::mpsc;

use super::{
    InputFiles, LiveRun, NewRun, ToolError, Tools,
    artifacts::CollectedArtifact,
    files::{Upload, blocking},
    live::Streams,
    payload,
};
use crate::{
    collect::{
        Collect, CollectEnd, CollectLimit, CollectedContent, CollectedEntry, CollectedFiles,
        MAX_DEPTH,
    },
    executions::{CollectedSubmission, Event},
    sandboxes::clock::now,
};

const RESULT: &str = "result.json";
const OUTPUT: &str = "output";
/// A run that is over sooner is written once, at its end. Followers are told at once in any case.
const START_WRITTEN_AFTER: Duration = Duration::from_millis(100);
/// How soon a write is tried again that the store has refused.
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// What a tool may write to stdout and stderr before it is ended; of most of it nothing is kept.
const MAX_OUTPUT: ByteSize = ByteSize::mib(64);

/// What is kept of a run beside its end.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) artifacts: Vec<Artifact>,
    pub(super) stdout_truncated: bool,
    pub(super) stderr_truncated: bool,
    pub(super) started_at: Option<Timestamp>,
}

/// The files of a run, sorted by what they are for.
#[derive(Debug)]
struct Left {
    result: LeftResult,
    outputs: OutputFiles,
    artifacts: Vec<CollectedArtifact>,
}

#[derive(Debug)]
enum LeftResult {
    Missing,
    Unreadable,
    TooLarge,
    File(std::os::fd::OwnedFd),
}

impl Tools {
    /// Carries out a run that has begun, and writes its end.
    pub(super) async fn carry_out(
        &self,
        new: &NewRun,
        submission: CollectedSubmission,
        live: &Arc<LiveRun>,
        cancelled: mpsc::Receiver<StopReason>,
    ) {
        let id = new.run.id.clone();
        let (end, artifacts) = match self.execute(new, submission, live, cancelled).await {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(run = %id, error = &*error as &dyn std::error::Error, "a run of a tool broke");
                (broken(), Vec::new())
            }
        };
        let Streams { stdout, stderr, stdout_truncated, stderr_truncated } = live.streams();
        let started_at = live.run().started_at;
        let written = Written { artifacts, stdout_truncated, stderr_truncated, started_at };
        let texts = RunTexts { payload: None, stdout, stderr };
        let kept = self.keep_end(&id, end, texts, &written).await;
        // Another write may have ended it, or one of ours whose answer was lost.
        let is_kept = kept.as_ref().is_ok_and(|(run, _)| run.artifacts == written.artifacts);
        if !is_kept {
            self.inner.artifacts.remove(&id);
        }
        match kept {
            Ok((run, _)) => live.finish(run),
            Err(error) => {
                // Its tool was deleted meanwhile, or the store takes no writes until the next start, which ends the run.
                tracing::error!(run = %id, %error, "cannot keep the end of a run");
                live.finish(live.run());
            }
        }
        self.live().remove(&id);
    }

    /// Writes how a run ended, again and again while the store refuses writes for the time being: the session of the run
    /// waits for it.
    async fn keep_end(
        &self,
        id: &RunId,
        end: RunEnd,
        texts: RunTexts,
        written: &Written,
    ) -> Result<(ToolRun, bool), StoreError> {
        loop {
            match self.finish(id, end.clone(), texts.clone(), written).await {
                Err(
                    error @ (StoreError::Full
                    | StoreError::Commit { .. }
                    | StoreError::Unclear { .. }
                    | StoreError::Unreachable { .. }),
                ) => {
                    tracing::warn!(run = %id, %error, "cannot keep the end of a run yet");
                    tokio::time::sleep(TRIED_AGAIN_AFTER).await;
                }
                kept => return kept,
            }
        }
    }

    async fn execute(
        &self,
        new: &NewRun,
        submission: CollectedSubmission,
        live: &Arc<LiveRun>,
        mut cancelled: mpsc::Receiver<StopReason>,
    ) -> Result<(RunEnd, Vec<Artifact>), Box<dyn std::error::Error + Send + Sync>> {
        let CollectedSubmission { mut submitted, files } = submission;
        let (mut write_start, mut is_start_written) = (tokio::time::Instant::now(), true);
        let outcome = loop {
            tokio::select! {
                event = submitted.events.recv() => match event {
                    Some(Event::Started) => {
                        live.started(now());
                        write_start = tokio::time::Instant::now() + START_WRITTEN_AFTER;
                        is_start_written = false;
                    }
                    Some(Event::Output { stream, data }) => live.write(stream, &data),
                    Some(Event::Ended(outcome)) => break outcome,
                    Some(Event::Broken { message }) => return Err(message.into()),
                    None => return Err("the execution ended without an event".into()),
                },
                Some(reason) = cancelled.recv() => submitted.canceller.cancel(reason),
                () = tokio::time::sleep_until(write_start), if !is_start_written => {
                    let started_at = live.run().started_at.unwrap_or_else(now);
                    self.inner.store.start_run(new.run.id.clone(), started_at).await?;
                    is_start_written = true;
                }
            }
        };
        let left = match files.await {
            Ok(files) => sort(files),
            // It never started.
            Err(_closed) => Left {
                result: LeftResult::Missing,
                outputs: OutputFiles::Good,
                artifacts: Vec::new(),
            },
        };
        let end = end_of(&outcome, left.result, left.outputs, new).await?;
        let artifacts = self.keep_artifacts(&new.run.id, left.artifacts).await?;
        Ok((end, artifacts))
    }

    /// Puts the execution of a run into the queue, with its files.
    pub(super) async fn submit(
        &self,
        new: &NewRun,
        state: &Map<String, Value>,
    ) -> Result<CollectedSubmission, ToolError> {
        let files = self.input_files(new).await.map_err(ToolError::Files)?;
        let execution = self.execution(new, state, files);
        let client = self.inner.engine.client(new.run.tenant.as_str());
        client.submit_and_collect(execution, self.collect()).map_err(|_overloaded| ToolError::Busy)
    }

    async fn keep_artifacts(
        &self,
        run: &RunId,
        left: Vec<CollectedArtifact>,
    ) -> io::Result<Vec<Artifact>> {
        self.inner.artifacts.keep(run, left).await
    }

    async fn input_files(&self, new: &NewRun) -> io::Result<Vec<Upload>> {
        let key = SessionKey {
            tool: new.run.tool.clone(),
            user: new.run.user.clone(),
            context: new.run.context.clone(),
        };
        let files = &self.inner.files;
        match &new.files {
            InputFiles::Kept => files.read(&key).await,
            InputFiles::Uploaded(uploads) => {
                files.replace(&key, uploads.clone()).await?;
                Ok(uploads.clone())
            }
            InputFiles::CopiedFrom(other) => {
                let uploads = files.read(other).await?;
                files.replace(&key, uploads.clone()).await?;
                Ok(uploads)
            }
        }
    }

    fn execution(
        &self,
        new: &NewRun,
        state: &Map<String, Value>,
        mut files: Vec<Upload>,
    ) -> Execution {
        let action = payload::action(new, state);
        if let Some(action) =
            action.as_ref().filter(|action| payload::needs_action_file(&new.content, action))
        {
            files.push(Upload { name: "action.json".to_owned(), bytes: action.as_bytes().into() });
        }
        let settings = &self.inner.settings;
        Execution {
            language: "python".to_owned(),
            code: payload::CODE.to_owned(),
            stdin: payload::payload(&new.content, &new.settings, &files),
            env: payload::variables(new, &files, action.as_deref()),
            limits: Limits {
                timeout: new.timeout,
                memory: settings.memory,
                max_output: MAX_OUTPUT,
                ..Limits::default()
            },
            freshness: Freshness::Shared,
        }
    }

    fn collect(&self) -> Collect {
        let settings = &self.inner.settings;
        Collect {
            files: vec![RESULT.to_owned()],
            folders: vec![OUTPUT.to_owned()],
            // Folders count too.
            max_entries: settings.max_artifacts.saturating_mul(2).saturating_add(2),
            max_depth: MAX_DEPTH,
            max_file_bytes: settings.max_artifact_bytes,
            max_total_bytes: settings
                .max_artifact_bytes
                .saturating_add(u64::try_from(MAX_RESULT_BYTES).unwrap_or(0)),
        }
    }
}

/// Sorts what was collected. The first entry that breaks a rule decides what is said of all.
fn sort(files: CollectedFiles) -> Left {
    let mut left =
        Left { result: LeftResult::Missing, outputs: OutputFiles::Good, artifacts: Vec::new() };
    for CollectedEntry { path, content } in files.entries {
        if path == RESULT.as_bytes() {
            left.result = result_of(content);
            continue;
        }
        let problem = match content {
            // A program may have put a file in the place of the folder.
            CollectedContent::File { .. } if path == OUTPUT.as_bytes() => OutputFiles::NotAFile,
            CollectedContent::File { size, file } => {
                let path = String::from_utf8_lossy(&path).into_owned();
                left.artifacts.push(CollectedArtifact { path, bytes: size, file });
                continue;
            }
            CollectedContent::TooLarge { .. } => OutputFiles::TooLarge,
            CollectedContent::Other(_) | CollectedContent::Unreadable(_) => OutputFiles::NotAFile,
        };
        if left.outputs == OutputFiles::Good {
            left.outputs = problem;
        }
    }
    if left.outputs == OutputFiles::Good {
        left.outputs = match files.end {
            CollectEnd::Complete => OutputFiles::Good,
            CollectEnd::Limit(CollectLimit::Entries) => OutputFiles::TooMany,
            CollectEnd::Limit(CollectLimit::TotalBytes) => OutputFiles::TooLarge,
            CollectEnd::Failed(_) | CollectEnd::Lost => OutputFiles::NotAFile,
        };
    }
    left
}

fn result_of(content: CollectedContent) -> LeftResult {
    let most = u64::try_from(MAX_RESULT_BYTES).unwrap_or(u64::MAX);
    match content {
        CollectedContent::File { size, file } if size <= most => LeftResult::File(file),
        CollectedContent::File { .. } | CollectedContent::TooLarge { .. } => LeftResult::TooLarge,
        CollectedContent::Other(_) | CollectedContent::Unreadable(_) => LeftResult::Unreadable,
    }
}

/// Reads the report and decides how the run ended, off the threads of other tasks: a report may be large.
async fn end_of(
    outcome: &Outcome,
    result: LeftResult,
    outputs: OutputFiles,
    new: &NewRun,
) -> io::Result<RunEnd> {
    let (outcome, policy) = (outcome.clone(), new.limits.policy());
    blocking(move || {
        let mut bytes = Vec::new();
        let result = match result {
            LeftResult::Missing => ResultFile::Missing,
            LeftResult::Unreadable => ResultFile::Unreadable,
            LeftResult::TooLarge => ResultFile::TooLarge,
            LeftResult::File(file) => {
                let most = u64::try_from(MAX_RESULT_BYTES).unwrap_or(u64::MAX);
                File::from(file).take(most).read_to_end(&mut bytes)?;
                ResultFile::Bytes(&bytes)
            }
        };
        Ok(judge(&outcome, result, outputs, policy))
    })
    .await
}
