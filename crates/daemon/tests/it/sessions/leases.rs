//! Rows F69 to F71: when sessions end.

use std::time::Duration;

use engine::sessions::{SessionError, Settings, Which};
use futures_util::{StreamExt as _, future::join_all, stream};
use model::{
    event::{EventKind, Sequence},
    exec::{ExecEnd, ExecState},
    execution::Exit,
    lease::Terms,
    life::EndCause,
    sandbox::WhenStopped,
    session::{Refusal, SessionEnd},
    spec::ExecSpec,
    units::Timestamp,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    SESSIONS, access, ask, ensure,
    races::{tenant, wanted},
    text,
};
use crate::{exec::Wire, sandboxed::Sandboxed, support::PATIENCE};

fn terms(lease: u64, hard: u64, grace: u64) -> Settings {
    let [lease, hard_ttl, release_grace] = [lease, hard, grace].map(Duration::from_millis);
    Settings { terms: Terms { lease, hard_ttl, release_grace }, idle: None }
}

fn now() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "leases are compared with the time of day")]
    std::time::SystemTime::now().into()
}

/// Waits until a sandbox has come to its end; returns why, and when that was decided.
async fn ended(sandboxed: &Sandboxed, sandbox: &str) -> (EndCause, Timestamp) {
    let all = &sandboxed.sandboxes;
    let mut events = all.events(&tenant(), sandbox, Sequence::ZERO).await.unwrap();
    loop {
        let next = timeout(PATIENCE, events.next()).await.expect("no event in time").unwrap();
        let event = next.expect("it ends");
        if let EventKind::DeleteRequested(cause) = event.kind {
            return (cause, event.occurred_at);
        }
    }
}

/// Waits until a sandbox has come to its end; returns why, and what was told before.
async fn end(sandboxed: &Sandboxed, sandbox: &str) -> (EndCause, Vec<EventKind>) {
    let tenant = "default".parse().unwrap();
    let mut events = sandboxed.sandboxes.events(&tenant, sandbox, Sequence::ZERO).await.unwrap();
    let mut told = Vec::new();
    loop {
        let next = timeout(PATIENCE, events.next()).await.expect("no event in time").unwrap();
        let Some(event) = next else { panic!("no end: {told:?}") };
        if let EventKind::Deleted(cause) = event.kind {
            return (cause, told);
        }
        told.push(event.kind);
    }
}

#[tokio::test]
async fn a_session_that_nobody_uses_ends_with_its_lease() {
    let sandboxed = Sandboxed::start_on(terms(3000, 60_000, 1000)).await;
    let daemon = sandboxed.daemon();
    let session = ensure(daemon, "thr_1").await;
    let sandbox = text(&session, "/sandbox/id");
    let (cause, _) = end(&sandboxed, sandbox).await;
    assert_eq!(cause, EndCause::LeaseExpired);
    let path = format!("{SESSIONS}/{}", text(&session, "/session_id"));
    assert_eq!(ask(daemon, "GET", &path).await.problem(), (410, "SESSION_EXPIRED".into()));
    let binding = (410, "BINDING_EXPIRED".to_owned());
    assert_eq!(ask(daemon, "POST", &format!("{path}/heartbeat")).await.problem(), binding);
    assert_eq!(ask(daemon, "POST", &format!("{path}/refresh-token")).await.problem(), binding);
    let gone = access(daemon, sandbox, text(&session, "/token")).await;
    assert_eq!(gone.problem(), (404, "NOT_FOUND".into()));
    assert_eq!(ensure(daemon, "thr_1").await["binding"]["generation"], 2);
}

/// Each lease ends a moment after its warning is due, so that nobody has to wait for the end.
#[tokio::test]
async fn whoever_follows_is_told_a_minute_and_ten_seconds_before_the_end() {
    let rows = [
        (terms(60_300, 120_000, 1000), EndCause::LeaseExpired, 60),
        (terms(10_300, 120_000, 1000), EndCause::LeaseExpired, 10),
        (terms(60_300, 60_300, 1000), EndCause::HardTtl, 60),
        (terms(120_000, 10_300, 1000), EndCause::HardTtl, 10),
        // An end that is nearer than a warning is told of at once.
        (terms(9000, 120_000, 1000), EndCause::LeaseExpired, 10),
        (terms(120_000, 50_000, 1000), EndCause::HardTtl, 60),
    ];
    for (terms, cause, seconds) in rows {
        let sandboxed = Sandboxed::start_on(terms).await;
        let session = ensure(sandboxed.daemon(), "thr_1").await;
        let (tenant, sandbox) = ("default".parse().unwrap(), text(&session, "/sandbox/id"));
        let mut events =
            sandboxed.sandboxes.events(&tenant, sandbox, Sequence::ZERO).await.unwrap();
        let mut told = Vec::new();
        while told.last() != Some(&EventKind::EndsSoon { cause: cause.clone(), seconds }) {
            let next = timeout(PATIENCE, events.next()).await.expect("no warning in time");
            told.push(next.unwrap().expect("no end before the warning").kind);
            let is_over = matches!(told.last(), Some(EventKind::Deleted(_)));
            assert!(!is_over, "{cause:?} {seconds}: {told:?}");
        }
    }
}

/// F71, I12.
#[tokio::test]
async fn f71_heartbeats_keep_a_session_and_never_past_its_hard_end() {
    let sandboxed = Sandboxed::start_on(terms(3000, 5000, 1000)).await;
    let daemon = sandboxed.daemon();
    let begun = tokio::time::Instant::now();
    let session = ensure(daemon, "thr_1").await;
    let path = format!("{SESSIONS}/{}/heartbeat", text(&session, "/session_id"));
    let mut beats = 0_u32;
    let refused = loop {
        let answer = ask(daemon, "POST", &path).await;
        if answer.status != 200 {
            break answer;
        }
        beats += 1;
        assert!(begun.elapsed() < PATIENCE, "{beats} heartbeats");
    };
    assert_eq!(refused.problem(), (410, "BINDING_EXPIRED".into()));
    assert!(begun.elapsed() > Duration::from_millis(4900), "{beats} in {:?}", begun.elapsed());
    let (cause, _) = end(&sandboxed, text(&session, "/sandbox/id")).await;
    assert_eq!(cause, EndCause::HardTtl);
}

/// F69: a command with a timeout holds its sandbox, up to the hard end.
#[tokio::test]
async fn f69_a_command_that_runs_keeps_its_sandbox() {
    let sandboxed = Sandboxed::start_on(terms(2000, 60_000, 1000)).await;
    let session = ensure(sandboxed.daemon(), "thr_1").await;
    let (all, sandbox) = (&sandboxed.sandboxes, text(&session, "/sandbox/id"));
    let command = ["/bin/sh", "-c", "sleep 5"].map(str::to_owned).to_vec();
    let timeout = Some(Duration::from_mins(1));
    let spec = ExecSpec { command, timeout, ..ExecSpec::default() };
    let started = all.start_exec(&tenant(), sandbox, None, spec, WhenStopped::Refuse).await;
    let (cause, _) = end(&sandboxed, sandbox).await;
    assert_eq!(cause, EndCause::LeaseExpired);
    // It has come to its own end, long after the lease would have.
    let ran = all.exec(&tenant(), &started.unwrap().exec.id).await.unwrap().exec;
    assert_eq!(ran.life.state, ExecState::Ended(ExecEnd::Exited(Exit::Code(0))));
}

/// Releasing stops the sandbox a moment later; whoever has taken it back by then keeps it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_that_is_taken_back_at_once_can_be_used() {
    let sandboxed = Sandboxed::start_on(terms(60_000, 120_000, 60_000)).await;
    let daemon = sandboxed.daemon();
    let first = ensure(daemon, "thr_1").await;
    let mut session = first.clone();
    for round in 0..20 {
        let path = format!("{SESSIONS}/{}", text(&session, "/session_id"));
        assert_eq!(ask(daemon, "DELETE", &path).await.status, 204);
        session = ensure(daemon, "thr_1").await;
        assert_eq!(text(&session, "/sandbox/id"), text(&first, "/sandbox/id"));
        let bearer = format!("Bearer {}", text(&session, "/token"));
        let path = format!("/dp/{}/v1/exec", text(&session, "/sandbox/id"));
        let headers = [("Authorization", &*bearer), ("Content-Type", "application/json")];
        let body = r#"{"command": ["/bin/echo", "here"]}"#;
        let answer = daemon.ask("POST", &path, &headers, body).await;
        assert_eq!(answer.status, 200, "round {round}: {}", answer.body);
        assert_eq!(answer.json()["stdout"], "here\n", "round {round}");
    }
}

#[tokio::test]
async fn a_released_sandbox_ends_with_its_grace() {
    let sandboxed = Sandboxed::start_on(terms(60_000, 120_000, 500)).await;
    let daemon = sandboxed.daemon();
    let session = ensure(daemon, "thr_1").await;
    let path = format!("{SESSIONS}/{}", text(&session, "/session_id"));
    assert_eq!(ask(daemon, "DELETE", &path).await.status, 204);
    let (cause, told) = end(&sandboxed, text(&session, "/sandbox/id")).await;
    assert_eq!(cause, EndCause::Released, "{told:?}");
    assert_eq!(ensure(daemon, "thr_1").await["binding"]["generation"], 2);
}

/// What fell due while no server ran is treated by the next.
#[tokio::test]
async fn the_next_server_ends_what_fell_due_meanwhile_and_keeps_the_rest() {
    let sandboxed = Sandboxed::start_on(terms(60_000, 120_000, 60_000)).await;
    let daemon = sandboxed.daemon();
    let (short, long) = (ensure(daemon, "thr_1").await, ensure(daemon, "thr_2").await);
    // As if an hour had passed.
    let id = text(&short, "/session_id").parse().unwrap();
    let store = sandboxed.kept();
    let session = store.session(&id).await.unwrap().unwrap();
    let past = Timestamp::from_millis(session.created_at.as_millis() - 1);
    let lease = model::lease::Lease { until: past, hard: past };
    store.bind(store::sessions::Binding::of(session.go_on(lease))).await.unwrap();
    let opened = engine::sessions::Sessions::open(
        sandboxed.sandboxes.clone(),
        terms(60_000, 120_000, 60_000),
    );
    let _next = opened.await.unwrap();
    let (cause, _) = end(&sandboxed, text(&short, "/sandbox/id")).await;
    assert_eq!(cause, EndCause::HardTtl);
    let path = format!("{SESSIONS}/{}", text(&long, "/session_id"));
    assert_eq!(ask(daemon, "GET", &path).await.status, 200);
}

/// A server that is killed between the end of a session and that of its sandbox leaves the latter to the next.
#[tokio::test]
async fn the_next_server_ends_the_sandbox_of_a_session_that_has_ended() {
    let settings = terms(60_000, 120_000, 60_000);
    let sandboxed = Sandboxed::start_on(settings).await;
    let daemon = sandboxed.daemon();
    let (ended, lives) = (ensure(daemon, "thr_1").await, ensure(daemon, "thr_2").await);
    let id = text(&ended, "/session_id").parse().unwrap();
    let store = sandboxed.kept();
    let session = store.session(&id).await.unwrap().unwrap();
    let step = session.end(SessionEnd::HardTtl);
    store.bind(store::sessions::Binding::of(step)).await.unwrap();
    let next =
        engine::sessions::Sessions::open(sandboxed.sandboxes.clone(), settings).await.unwrap();
    let (cause, _) = end(&sandboxed, text(&ended, "/sandbox/id")).await;
    assert_eq!(cause, EndCause::HardTtl);
    // It does not know that there was a session, until the store says so.
    let again = next.acquire(wanted("thr_1")).await.unwrap().shown.session;
    assert_eq!((again.generation.0, again.is_live()), (2, true));
    assert_ne!(again.sandbox.as_str(), text(&ended, "/sandbox/id"));
    let path = format!("{SESSIONS}/{}", text(&lives, "/session_id"));
    assert_eq!(ask(daemon, "GET", &path).await.status, 200);
}

/// Opens a command over a WebSocket; returns when it has said that it is there.
async fn command(sandboxed: &Sandboxed, session: &Value, script: &str) -> Wire {
    let id = text(session, "/sandbox/id").parse().unwrap();
    let token = Some(text(session, "/token"));
    let mut wire = Wire::open(sandboxed.daemon(), &id, "/v1/exec/ws", token).await;
    wire.send(json!({"type": "start", "command": ["/bin/sh", "-c", script]})).await;
    wire.until("stdout").await;
    wire
}

/// F69: at the hard end commands are asked to end, and killed if they do not; whoever watches is told how they
/// ended, with all that they have written, and then the sandbox is gone.
#[tokio::test]
async fn f69_at_the_hard_end_commands_have_a_while_for_theirs() {
    let sandboxed = Sandboxed::start_on(terms(60_000, 6000, 1000)).await;
    let daemon = sandboxed.daemon();
    let session = ensure(daemon, "thr_1").await;
    let wait = "echo here; while :; do sleep 0.05; done";
    let mut killed = command(&sandboxed, &session, wait).await;
    let orderly = format!("trap 'echo bye; exit 3' TERM; {wait}");
    let mut orderly = command(&sandboxed, &session, &orderly).await;
    let stubborn = format!("trap 'echo no' TERM; {wait}");
    let mut stubborn = command(&sandboxed, &session, &stubborn).await;
    let begun = tokio::time::Instant::now();
    let (said, _, exit) = orderly.rest().await;
    assert_eq!((said.as_str(), &exit["exit_code"]), ("bye\n", &json!(3)), "{exit}");
    let (_, _, exit) = killed.rest().await;
    assert_eq!((&exit["reason"], &exit["exit_code"]), (&json!("timed_out"), &Value::Null));
    // Nobody else gets in meanwhile, and nothing brings it back.
    let path = format!("{SESSIONS}/{}/heartbeat", text(&session, "/session_id"));
    assert_eq!(ask(daemon, "POST", &path).await.problem(), (410, "BINDING_EXPIRED".into()));
    let refused = access(daemon, text(&session, "/sandbox/id"), text(&session, "/token")).await;
    assert!(matches!(refused.status, 401 | 404), "{}", refused.body);
    let (said, _, exit) = stubborn.rest().await;
    assert!(said.contains("no\n") && exit["reason"] == "timed_out", "{said:?} {exit}");
    assert!(begun.elapsed() >= Duration::from_secs(5), "{:?}", begun.elapsed());
    let (cause, told) = end(&sandboxed, text(&session, "/sandbox/id")).await;
    assert_eq!(cause, EndCause::HardTtl);
    let mut ends = told.iter().filter_map(|kind| match kind {
        EventKind::ExecEnded { end, .. } => Some(end.clone()),
        _ => None,
    });
    assert!(ends.all(|end| !matches!(end, ExecEnd::Lost(_))), "{told:?}");
    for wire in [&mut killed, &mut orderly, &mut stubborn] {
        while wire.next().await.is_ok() {}
    }
}

/// F70: heartbeats that come as the lease ends, twice and in any order: each renews or is refused, and what was
/// renewed is not ended by what was due before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f70_heartbeats_at_the_very_end_renew_or_come_too_late() {
    // Some go on side by side, because a lease has to be longer than a sandbox takes to be made.
    const AT_ONCE: usize = 5;
    let sandboxed = Sandboxed::start_on(terms(1000, 60_000, 1000)).await;
    let rounds = stream::iter(0..super::races::rounds(30));
    let rounds = rounds.map(|round| beat_at_the_end(&sandboxed, format!("thr_{round}")));
    let answered: Vec<usize> = rounds.buffer_unordered(AT_ONCE).collect().await;
    assert_eq!(answered.iter().sum::<usize>(), 8 * super::races::rounds(30));
}

/// Returns how many heartbeats were answered.
async fn beat_at_the_end(sandboxed: &Sandboxed, thread: String) -> usize {
    let sessions = &sandboxed.sessions;
    let begun = sessions.acquire(wanted(&thread)).await.unwrap().shown.session;
    let which = Which::Id(begun.id.clone());
    let beats = (0..8_i64).map(|number| {
        let at = begun.lease.until.as_millis() + number / 2 - 2;
        let (which, tenant) = (which.clone(), tenant());
        async move {
            let left = u64::try_from(at - now().as_millis()).unwrap_or_default();
            tokio::time::sleep(Duration::from_millis(left.saturating_sub(5))).await;
            // Not a moment later than the clock says, which no timer promises.
            while now().as_millis() < at {
                tokio::task::yield_now().await;
            }
            sessions.heartbeat(&tenant, &which).await
        }
    });
    let answers = join_all(beats).await;
    let mut until = begun.lease.until;
    for answer in &answers {
        match answer {
            Ok(shown) => {
                assert!(shown.session.lease.until > begun.lease.until);
                until = until.max(shown.session.lease.until);
            }
            Err(SessionError::Refused(Refusal::Expired(SessionEnd::LeaseExpired))) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    let (cause, ended_at) = ended(sandboxed, begun.sandbox.as_str()).await;
    assert_eq!(cause, EndCause::LeaseExpired);
    // Both are to the millisecond, and of two clocks that go alike.
    assert!(ended_at.as_millis() + 20 >= until.as_millis(), "{ended_at:?} before {until:?}");
    answers.len()
}
