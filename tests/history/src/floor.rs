//! What was known to be so at a time.

use crate::entry::Time;

/// A number that only rises, and since when, and by which line, it is known to be at least that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Floor {
    marks: Vec<Mark>,
}

/// One rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) time: Time,
    pub(crate) value: u64,
    pub(crate) line: usize,
    pub(crate) source: Source,
}

/// How it came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A client was shown it.
    Shown,
    /// A client's change was acknowledged.
    Acknowledged,
    /// A refusal or a list would not have been true otherwise.
    Implied,
}

impl Floor {
    /// Notes a rise. Calls come in the order of their times, so that marks are sorted by both.
    pub(crate) fn raise(&mut self, mark: Mark) {
        if mark.value > self.now() {
            self.marks.push(mark);
        }
    }

    /// Returns the last rise that was over before this time.
    pub(crate) fn before(&self, time: Time) -> Option<Mark> {
        let later = self.marks.partition_point(|mark| mark.time < time);
        later.checked_sub(1).map(|last| self.marks[last])
    }

    /// Returns the line that first showed at least this much.
    pub(crate) fn witness(&self, value: u64) -> Option<Mark> {
        let first = self.marks.partition_point(|mark| mark.value < value);
        self.marks.get(first).copied()
    }

    fn now(&self) -> u64 {
        self.marks.last().map_or(0, |mark| mark.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(time: u64, value: u64) -> Mark {
        let line = usize::try_from(time).expect("a small number");
        Mark { time: Time(time), value, line, source: Source::Shown }
    }

    #[test]
    fn what_was_told_again_is_not_kept_again() {
        let mut floor = Floor::default();
        for time in 1..100 {
            floor.raise(mark(time, 7));
            floor.raise(mark(time, 3));
        }
        assert_eq!(floor.marks, [mark(1, 7)]);
    }

    #[test]
    fn the_same_moment_is_not_before() {
        let mut floor = Floor::default();
        floor.raise(mark(10, 1));
        floor.raise(mark(20, 2));
        let before = |time| floor.before(Time(time)).map_or(0, |mark| mark.value);
        assert_eq!([10, 11, 20, 21].map(before), [0, 1, 1, 2]);
    }
}
