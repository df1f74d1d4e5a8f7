//! How much of a client's nonsense a connection bears.

use std::time::Duration;

use api::fathom::parse::Part;
use tokio::time::Instant;

/// Frames that cost us and bring nothing: how many a second, and how many at once.
const RATE: u32 = 200;

/// Frames in a row that are not of this protocol.
const STRIKES: u32 = 3;

/// Counts frames whose envelope is wrong. A frame that is understood clears the count: a client
/// that speaks the protocol and errs now and then is not hung up on.
#[derive(Debug, Default)]
pub(super) struct Strikes(u32);

impl Strikes {
    /// Counts a refused frame; tells whether it was one too many.
    pub(super) fn are_out(&mut self, part: Part) -> bool {
        match part {
            Part::Envelope => self.0 += 1,
            Part::Request => self.clear(),
        }
        self.0 >= STRIKES
    }

    pub(super) fn clear(&mut self) {
        self.0 = 0;
    }
}

/// A bucket of tokens that fills up again over time.
#[derive(Debug)]
pub(super) struct Rate {
    /// Time that the tokens in the bucket stand for.
    saved: Duration,
    last: Instant,
}

const FULL: Duration = Duration::from_secs(1);

impl Rate {
    pub(super) fn new(now: Instant) -> Self {
        Self { saved: FULL, last: now }
    }

    /// Takes a token; tells whether there was none.
    pub(super) fn is_exceeded(&mut self, now: Instant) -> bool {
        self.saved = (self.saved + now.saturating_duration_since(self.last)).min(FULL);
        self.last = now;
        match self.saved.checked_sub(FULL / RATE) {
            Some(rest) => {
                self.saved = rest;
                false
            }
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_wrong_envelopes_in_a_row_are_too_many() {
        let mut strikes = Strikes::default();
        let outs = [
            Part::Envelope,
            Part::Envelope,
            Part::Request,
            Part::Envelope,
            Part::Envelope,
            Part::Envelope,
        ]
        .map(|part| strikes.are_out(part));
        assert_eq!(outs, [false, false, false, false, false, true]);
    }

    #[test]
    fn two_hundred_at_once_and_two_hundred_a_second_are_borne() {
        let start = Instant::now();
        let mut rate = Rate::new(start);
        assert!((0..200).all(|_| !rate.is_exceeded(start)));
        assert!(rate.is_exceeded(start));
        assert!(!rate.is_exceeded(start + Duration::from_millis(5)));
        assert!(rate.is_exceeded(start + Duration::from_millis(5)));
        let later = start + Duration::from_mins(1);
        assert!((0..200).all(|_| !rate.is_exceeded(later)));
        assert!(rate.is_exceeded(later));
    }
}
