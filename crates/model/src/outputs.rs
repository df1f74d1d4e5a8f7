//! How long the output of commands that are over is kept.
//!
//! It goes when its time is up, and the oldest goes when a sandbox has too much of it. What ended last
//! stays, however large it is, and so does what somebody reads.

use std::time::Duration;

use crate::{
    exec::Exec,
    ids::ExecId,
    units::{ByteSize, Timestamp},
};

/// An output counts as at least this: however little is in them, files take room.
pub const LEAST: ByteSize = ByteSize::bytes(4 << 10);

/// What is kept of a command that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub exec: ExecId,
    pub ended_at: Timestamp,
    /// For how long it can be read after its end; for as long as there is room, if nobody said.
    pub readable: Option<Duration>,
    /// What it takes on disk.
    pub size: ByteSize,
    /// Whether somebody watches the command or reads what it wrote.
    pub is_watched: bool,
}

impl Kept {
    /// Returns what is kept of a command, if it is over. Nobody watches it.
    pub fn of(exec: &Exec, size: ByteSize) -> Option<Self> {
        let ended_at = exec.life.ended_at?;
        let readable = exec.spec.readable;
        Some(Self { exec: exec.id.clone(), ended_at, readable, size, is_watched: false })
    }

    /// Returns for how long it can still be read, if that has an end.
    pub fn left(&self, now: Timestamp) -> Option<Duration> {
        self.readable.map(|readable| readable.saturating_sub(now.since(self.ended_at)))
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.left(now) == Some(Duration::ZERO)
    }

    /// Sorts before what ended later.
    fn age(&self) -> (Timestamp, &ExecId) {
        (self.ended_at, &self.exec)
    }

    fn room(&self) -> u64 {
        self.size.as_bytes().max(LEAST.as_bytes())
    }
}

/// Whether the time is not over for which a command can be read.
pub fn is_readable(exec: &Exec, now: Timestamp) -> bool {
    Kept::of(exec, LEAST).is_none_or(|kept| !kept.is_over(now))
}

/// Returns which outputs of one sandbox go now, so that no more than this is kept. If there is too
/// much an eighth goes at once: it need not be looked at again for each command that ends.
pub fn surplus(kept: Vec<&Kept>, now: Timestamp, most: ByteSize) -> Vec<ExecId> {
    let (mut gone, mut rest): (Vec<&Kept>, Vec<&Kept>) =
        kept.into_iter().partition(|kept| kept.is_over(now));
    gone.sort_by_key(|kept| kept.age());
    rest.sort_by_key(|kept| kept.age());
    let mut room = rest.iter().fold(0_u64, |sum, kept| sum.saturating_add(kept.room()));
    let most = most.as_bytes();
    if room > most {
        let _last = rest.pop();
        for oldest in rest.into_iter().filter(|kept| !kept.is_watched) {
            if room <= most - most / 8 {
                break;
            }
            room = room.saturating_sub(oldest.room());
            gone.push(oldest);
        }
    }
    gone.into_iter().map(|kept| kept.exec.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn kept(exec: &str, ended: i64, seconds: Option<u64>, size: u64) -> Kept {
        Kept {
            exec: exec.parse().unwrap(),
            ended_at: Timestamp::from_millis(ended * 1000),
            readable: seconds.map(Duration::from_secs),
            size: ByteSize::bytes(size),
            is_watched: false,
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn names(gone: &[ExecId]) -> Vec<&str> {
        gone.iter().map(ExecId::as_str).collect()
    }

    #[test]
    fn what_goes_is_what_is_over_and_then_the_oldest() {
        let watched = Kept { is_watched: true, ..kept("watched", 1, None, 10 * MIB) };
        let over_and_watched = Kept { is_watched: true, ..kept("over-watched", 1, Some(5), MIB) };
        // What there is, what may be kept, and what goes at second 100.
        let rows: &[(&[Kept], u64, &[&str])] = &[
            (&[], 0, &[]),
            // A time that is up goes whether there is room or not, and also if it is read.
            (&[kept("over", 10, Some(90), 1), kept("last", 20, None, 1)], MIB, &["over"]),
            (&[kept("just-not", 10, Some(91), 1), kept("last", 20, None, 1)], MIB, &[]),
            (&[over_and_watched], MIB, &["over-watched"]),
            (&[kept("only-over", 10, Some(0), 1)], MIB, &["only-over"]),
            // What is in the future has all its time.
            (&[kept("ahead", 500, Some(1), 1)], MIB, &[]),
            // The last one stays, however large it is.
            (&[kept("last", 10, None, 9 * MIB)], MIB, &[]),
            (&[kept("first", 1, None, MIB), kept("last", 10, None, 9 * MIB)], MIB, &["first"]),
            // The oldest go first, and no more than an eighth beyond what has to.
            (
                &[
                    kept("third", 3, None, MIB),
                    kept("first", 1, None, MIB),
                    kept("second", 2, None, MIB),
                    kept("fourth", 4, None, MIB),
                ],
                3 * MIB,
                &["first", "second"],
            ),
            (&[kept("first", 1, None, MIB), kept("second", 2, None, MIB)], 2 * MIB, &[]),
            // What somebody reads is passed over.
            (
                &[watched, kept("second", 2, None, MIB), kept("last", 3, None, MIB)],
                MIB,
                &["second"],
            ),
            // What was over makes room before others have to.
            (
                &[
                    kept("first", 1, None, MIB),
                    kept("over", 2, Some(1), MIB),
                    kept("last", 3, None, MIB),
                ],
                2 * MIB,
                &["over"],
            ),
            // Nothing takes no room at all.
            (
                &[kept("empty-1", 1, None, 0), kept("last", 3, None, 0)],
                2 * LEAST.as_bytes() - 1,
                &["empty-1"],
            ),
        ];
        for (kept, most, expected) in rows {
            let gone = surplus(kept.iter().collect(), at(100), ByteSize::bytes(*most));
            assert_eq!(names(&gone), *expected, "{kept:?}");
        }
    }

    #[test]
    fn the_time_that_is_left_is_never_negative() {
        let once = kept("once", 10, Some(100), 0);
        assert_eq!(once.left(at(60)), Some(Duration::from_secs(50)));
        assert_eq!(once.left(at(500)), Some(Duration::ZERO));
        assert_eq!(once.left(at(5)), Some(Duration::from_secs(100)));
        assert_eq!(kept("ever", 10, None, 0).left(at(60)), None);
    }

    #[test]
    fn a_thousand_outputs_of_any_size_never_take_more_than_they_may() {
        let mut seed = 1_u64;
        for most in [0, MIB, 64 * MIB] {
            let all: Vec<Kept> = (0..1000)
                .map(|number| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    kept(&format!("exec-{number}"), number, None, (seed >> 33) % MIB)
                })
                .collect();
            let gone = surplus(all.iter().collect(), at(2000), ByteSize::bytes(most));
            let rest: Vec<&Kept> = all.iter().filter(|kept| !gone.contains(&kept.exec)).collect();
            let room: u64 = rest.iter().map(|kept| kept.room()).sum();
            assert!(room <= most || rest.len() == 1, "{room} of {most}");
            // What stays is younger than what goes.
            assert_eq!(rest.len() + gone.len(), all.len());
            assert_eq!(rest.last().map(|kept| kept.exec.as_str()), Some("exec-999"));
            assert!(names(&gone).iter().zip(&all).all(|(gone, kept)| *gone == kept.exec.as_str()));
        }
    }
}
