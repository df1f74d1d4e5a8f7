use std::sync::Arc;

use model::{
    tool::{
        ids::{RunId, ToolId, VersionId},
        run::RunStatus,
        session::{Context, Step},
    },
    units::Timestamp,
};
use proptest::prelude::*;

use super::*;

fn run(status: RunStatus) -> ToolRun {
    ToolRun {
        id: RunId::from_random([1; 16]),
        tenant: "default".parse().unwrap(),
        tool: ToolId::from_random([1; 16]),
        version: VersionId::from_random([1; 16]),
        snapshot: None,
        user: "human:ada".to_owned(),
        context: Context::production(),
        step: Step::Initial,
        node: "node-1".parse().unwrap(),
        status,
        queued_at: Timestamp::from_millis(1),
        started_at: (status != RunStatus::Queued && status != RunStatus::Cancelled)
            .then(|| Timestamp::from_millis(2)),
        finished_at: None,
        error_summary: None,
        artifacts: Vec::new(),
        stdout_truncated: false,
        stderr_truncated: false,
        revision: None,
    }
}

fn live() -> LiveRun {
    LiveRun::new(run(RunStatus::Queued)).0
}

fn output(sequence: u64, stream: Stream, text: &str) -> ProgressEvent {
    ProgressEvent { sequence, progress: Progress::Output { stream, text: text.to_owned() } }
}

/// Returns every event after this sequence, of a run that has ended.
async fn rest(live: &LiveRun, mut after: u64) -> Vec<ProgressEvent> {
    let mut events = Vec::new();
    while let Some(event) = live.next(after).await {
        assert!(event.sequence > after, "{event:?} after {after}");
        after = event.sequence;
        events.push(event);
    }
    events
}

#[tokio::test]
async fn a_follower_gets_every_step_in_order_and_can_go_on_after_any() {
    let live = live();
    live.started(Timestamp::from_millis(2));
    live.write(Stream::Stdout, b"ab");
    live.write(Stream::Stdout, "é".as_bytes());
    live.write(Stream::Stderr, b"!");
    live.finish(run(RunStatus::Succeeded));
    let queued = ProgressEvent { sequence: 1, progress: Progress::Queued };
    let running = ProgressEvent { sequence: 2, progress: Progress::Running };
    let finished = ProgressEvent { sequence: 8, progress: Progress::Finished };
    let (stdout, stderr) = (output(6, Stream::Stdout, "abé"), output(7, Stream::Stderr, "!"));
    assert_eq!(rest(&live, 0).await, [queued, running, stdout, stderr.clone(), finished.clone()]);
    assert_eq!(rest(&live, 3).await, [output(6, Stream::Stdout, "bé"), stderr, finished.clone()]);
    assert_eq!(rest(&live, 7).await, [finished]);
    assert_eq!(rest(&live, 8).await, []);
    assert_eq!(rest(&live, u64::MAX).await, []);
}

#[tokio::test]
async fn a_follower_is_told_of_a_step_when_it_happens() {
    let live = Arc::new(live());
    assert_eq!(live.next(0).await.unwrap().progress, Progress::Queued);
    let next = live.next(1);
    let (event, ()) = tokio::join!(next, async { live.started(Timestamp::from_millis(2)) });
    assert_eq!(event.unwrap().progress, Progress::Running);
    let (event, ()) = tokio::join!(live.next(2), async { live.write(Stream::Stderr, b"x") });
    assert_eq!(event.unwrap(), output(3, Stream::Stderr, "x"));
    let (run, ()) = tokio::join!(live.finished(), async { live.finish(run(RunStatus::Failed)) });
    assert_eq!(run.status, RunStatus::Failed);
}

#[tokio::test]
async fn a_run_that_never_started_has_no_step_running() {
    let live = live();
    live.finish(run(RunStatus::Cancelled));
    let steps: Vec<Progress> =
        rest(&live, 0).await.into_iter().map(|event| event.progress).collect();
    assert_eq!(steps, [Progress::Queued, Progress::Finished]);
}

#[test]
fn of_each_stream_a_part_is_kept_and_that_is_said() {
    let live = live();
    live.write(Stream::Stdout, &vec![b'a'; MAX_STREAM_BYTES - 1]);
    live.write(Stream::Stdout, "é".as_bytes());
    live.write(Stream::Stdout, b"more");
    live.write(Stream::Stderr, b"\xffend\xe5");
    let streams = live.streams();
    assert_eq!((streams.stdout.len(), streams.stdout_truncated), (MAX_STREAM_BYTES, true));
    assert_eq!((streams.stderr.as_str(), streams.stderr_truncated), ("\u{fffd}end\u{fffd}", false));
}

proptest! {
    #[test]
    fn what_is_followed_in_parts_is_what_was_written(
        pieces in prop::collection::vec((any::<bool>(), "[a-c😀é]{0,9}"), 0..12),
        stops in prop::collection::vec(0usize..6, 0..4),
    ) {
        let live = live();
        live.started(Timestamp::from_millis(2));
        let (mut stdout, mut stderr) = (String::new(), String::new());
        for (is_stdout, text) in &pieces {
            let (stream, all) = if *is_stdout { (Stream::Stdout, &mut stdout) } else { (Stream::Stderr, &mut stderr) };
            all.push_str(text);
            live.write(stream, text.as_bytes());
        }
        live.finish(run(RunStatus::Succeeded));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (mut after, mut seen, mut seen_of_stderr) = (0, String::new(), String::new());
        let mut stops = stops.into_iter().cycle();
        let mut is_over = false;
        while !is_over {
            // Each connection reads some events, and the next goes on after them.
            for _ in 0..=stops.next().unwrap_or(1) {
                let Some(event) = runtime.block_on(live.next(after)) else {
                    is_over = true;
                    break;
                };
                after = event.sequence;
                match event.progress {
                    Progress::Output { stream: Stream::Stdout, text } => seen.push_str(&text),
                    Progress::Output { stream: Stream::Stderr, text } => seen_of_stderr.push_str(&text),
                    Progress::Queued | Progress::Running | Progress::Finished => {}
                }
            }
        }
        prop_assert_eq!(seen, stdout);
        prop_assert_eq!(seen_of_stderr, stderr);
    }
}
