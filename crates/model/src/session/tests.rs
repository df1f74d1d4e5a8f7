use std::time::Duration;

use proptest::prelude::*;

use super::*;

const TERMS: Terms = Terms {
    lease: Duration::from_secs(100),
    hard_ttl: Duration::from_secs(1000),
    release_grace: Duration::from_secs(10),
};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn new(number: u8) -> New {
    New {
        id: SessionId::from_random([number; 16]),
        tenant: "default".parse().unwrap(),
        scope: Scope::thread("thr_1".parse().unwrap()),
        sandbox: SandboxId::from_random([number; 16]),
        node: "node_1".parse().unwrap(),
        created_by: "key_1".to_owned(),
    }
}

#[test]
fn every_request_has_one_answer_in_every_state() {
    use Refusal::{Conflict, Expired, NotFound};
    use Verdict::{AlreadySo, Begin, End, Release, Renew, TakeBack};
    let (released, expired) = (State::Released { kept_until: at(1) }, SessionEnd::LeaseExpired);
    let states = [
        None,
        Some(State::Live),
        Some(released),
        Some(State::Ended(expired)),
        Some(State::Ended(SessionEnd::Destroyed)),
    ];
    let gone = Err(Expired(expired));
    let rows = [
        (
            Request::Attach,
            [Err(NotFound), Ok(AlreadySo), Err(NotFound), Err(NotFound), Err(NotFound)],
        ),
        (Request::Ensure, [Ok(Begin), Ok(AlreadySo), Ok(TakeBack), Ok(Begin), Ok(Begin)]),
        (Request::CreateOnly, [Ok(Begin), Err(Conflict), Ok(Begin), Ok(Begin), Ok(Begin)]),
        (Request::Show, [Err(NotFound), Ok(AlreadySo), Err(NotFound), gone, Err(NotFound)]),
        (Request::Heartbeat, [Err(NotFound), Ok(Renew), Err(NotFound), gone, Err(NotFound)]),
        (
            Request::Release,
            [Err(NotFound), Ok(Release), Err(NotFound), Err(NotFound), Err(NotFound)],
        ),
        (Request::Destroy, [Err(NotFound), Ok(End), Ok(End), Err(NotFound), Err(NotFound)]),
    ];
    for (request, answers) in rows {
        for (state, answer) in states.into_iter().zip(answers) {
            assert_eq!(decide(state, request), answer, "{request:?} when {state:?}");
        }
    }
}

#[test]
fn a_sandbox_that_is_taken_back_keeps_its_hard_end_and_its_old_tokens_are_stale() {
    let first = Step::begin(None, new(1), SessionEnd::Released, TERMS, at(0));
    let first = first.begun().unwrap().clone();
    assert_eq!((first.generation, first.lease.hard), (Generation::FIRST, at(1000)));
    let released = first.release(TERMS, at(900)).changed().unwrap().clone();
    assert_eq!(released.state, State::Released { kept_until: at(910) });
    let step = Step::take_back(&released, new(2), TERMS, at(905));
    let (old, next) = (step.changed().unwrap(), step.begun().unwrap());
    assert_eq!((old.state, old.revision), (State::Ended(SessionEnd::TakenBack), 3));
    assert_eq!((&next.sandbox, next.generation), (&first.sandbox, Generation(2)));
    assert_eq!(next.lease, Lease { until: at(1000), hard: at(1000) });
    assert_ne!(next.id, first.id);
    // Nobody's sandbox lives longer by being released.
    let late = next.release(TERMS, at(995)).changed().unwrap().state;
    assert_eq!(late, State::Released { kept_until: at(1000) });
}

/// The bindings of a scope as a store keeps them: a step that was decided from an earlier state is
/// refused.
#[derive(Debug, Default)]
struct Kept(Vec<Session>);

impl Kept {
    fn latest(&self) -> Option<&Session> {
        self.0.iter().max_by_key(|session| session.generation)
    }

    fn keep(&mut self, step: &Step) -> bool {
        let begun = step.begun();
        if begun.is_some_and(|begun| self.0.iter().any(|it| it.generation >= begun.generation)) {
            return false;
        }
        if let Some(changed) = step.changed() {
            let Some(kept) = self.0.iter_mut().find(|session| session.id == changed.id) else {
                return false;
            };
            if kept.revision + 1 != changed.revision {
                return false;
            }
            *kept = changed.clone();
        }
        self.0.extend(begun.cloned());
        true
    }
}

fn step(latest: Option<&Session>, request: Request, number: u8, now: Timestamp) -> Option<Step> {
    let verdict = decide(latest.map(|latest| latest.state), request).ok()?;
    let begin = Step::begin(latest, new(number), SessionEnd::Released, TERMS, now);
    match verdict {
        Verdict::Begin => Some(begin),
        Verdict::TakeBack => Some(Step::take_back(latest?, new(number), TERMS, now)),
        Verdict::Renew => latest?.renew(TERMS, now).ok(),
        Verdict::Release => Some(latest?.release(TERMS, now)),
        Verdict::End => Some(latest?.end(SessionEnd::Destroyed)),
        Verdict::AlreadySo => None,
    }
}

fn request() -> impl Strategy<Value = Request> {
    proptest::sample::select(
        &[
            Request::Attach,
            Request::Ensure,
            Request::CreateOnly,
            Request::Show,
            Request::Heartbeat,
            Request::Release,
            Request::Destroy,
        ][..],
    )
}

proptest! {
    /// I10, I11, F64: whatever is asked, and however old what it was decided from, a scope has at most one
    /// binding that has not ended, and generations only grow.
    #[test]
    fn f64_a_scope_has_one_binding_and_generations_only_grow(
        requests in proptest::collection::vec((request(), any::<bool>()), 0..60),
    ) {
        let (mut kept, mut stale): (Kept, Vec<Step>) = (Kept::default(), Vec::new());
        let mut highest = 0;
        for (number, (request, is_late)) in (0_u8..).zip(requests) {
            let decided = step(kept.latest(), request, number, at(i64::from(number)));
            // Somebody else may be faster than who has decided.
            let done = if is_late { stale.pop() } else { decided.clone() };
            if is_late {
                stale.extend(decided);
            }
            if let Some(done) = done {
                kept.keep(&done);
            }
            let not_ended = kept.0.iter().filter(|session| !session.has_ended());
            prop_assert!(not_ended.count() <= 1);
            let generations: Vec<u64> = kept.0.iter().map(|it| it.generation.0).collect();
            prop_assert!(generations.is_sorted_by(|one, other| one < other));
            let latest = generations.last().copied().unwrap_or(0);
            prop_assert!(latest >= highest);
            highest = latest;
        }
    }

    /// F71: acquiring and releasing in a loop carries no sandbox past its hard end.
    #[test]
    fn f71_no_sandbox_has_a_later_hard_end_than_it_began_with(
        requests in proptest::collection::vec((request(), 0_i64..50), 0..60),
    ) {
        let (mut kept, mut now) = (Kept::default(), 0);
        for (number, (request, passed)) in (0_u8..).zip(requests) {
            now += passed;
            if let Some(step) = step(kept.latest(), request, number, at(now)) {
                kept.keep(&step);
            }
        }
        for session in &kept.0 {
            let first = kept.0.iter().find(|it| it.sandbox == session.sandbox).unwrap();
            prop_assert_eq!(session.lease.hard, first.lease.hard);
            prop_assert!(session.lease.until <= session.lease.hard);
        }
    }
}

/// Somebody who has read the binding and decided, and has not kept yet what came of it.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// The one of this number sends a heartbeat: decides by what is kept now.
    Beat(usize),
    /// The sweeper looks at the lease.
    Look,
    /// What this one has decided is kept, if the binding is still the one that it has read.
    Keep(usize),
    Pass(i64),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        (0_usize..4).prop_map(Deed::Beat),
        Just(Deed::Look),
        (0_usize..5).prop_map(Deed::Keep),
        (0_usize..5).prop_map(Deed::Keep),
        // Mostly to within a millisecond of the end.
        prop_oneof![Just(1_i64), Just(99_999), Just(100_000), 0_i64..3000].prop_map(Deed::Pass),
    ];
    proptest::collection::vec(deed, 0..80)
}

proptest! {
    /// F70: heartbeats that are late, doubled or out of order, and a sweeper that is as late: each heartbeat
    /// renews or is refused, nothing ends that was renewed since it was looked at, and nothing is renewed
    /// that has ended.
    #[test]
    fn f70_late_heartbeats_and_a_late_sweeper_never_both_have_their_way(deeds in deeds()) {
        const SWEEPER: usize = 4;
        let (mut now, mut decided): (i64, [Option<(Session, Timestamp)>; 5]) = (0, Default::default());
        let begun = Step::begin(None, new(1), SessionEnd::Destroyed, TERMS, at(0));
        let mut kept = begun.begun().unwrap().clone();
        for deed in deeds {
            let time = Timestamp::from_millis(now);
            match deed {
                Deed::Pass(millis) => now += millis,
                Deed::Beat(number) => {
                    let permitted = decide(Some(kept.state), Request::Heartbeat);
                    let renewed = permitted.and_then(|_| kept.renew(TERMS, time));
                    let is_over = kept.has_ended() || time >= kept.lease.until;
                    prop_assert_eq!(renewed.is_err(), is_over);
                    let step = renewed.ok().and_then(|step| step.changed().cloned());
                    decided[number] = step.map(|step| (step, time));
                }
                Deed::Look if !kept.has_ended() => {
                    let due = kept.lease.due(time, crate::lease::Activity::Last(at(-1000)), TERMS);
                    if let crate::lease::Due::End(over) = due {
                        let step = kept.end(over.into()).changed().cloned();
                        decided[SWEEPER] = step.map(|step| (step, time));
                    }
                }
                Deed::Look => {}
                Deed::Keep(number) => {
                    let Some((next, at)) = decided[number].take() else { continue };
                    // As the store has it: a step names the revision that it changes.
                    if next.revision != kept.revision + 1 {
                        continue;
                    }
                    prop_assert!(!kept.has_ended(), "{next:?} after {kept:?}");
                    prop_assert_eq!(next.has_ended(), at >= kept.lease.until);
                    kept = next;
                }
            }
        }
    }
}
