//! Numbers that were measured, in the order in which they were.

use std::time::Duration;

use serde::Serialize;

#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// Adds a time, in milliseconds.
    pub(crate) fn add(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64() * 1e3);
    }

    pub(crate) fn add_rate(&mut self, count: u32, time: Duration) {
        self.0.push(f64::from(count) / time.as_secs_f64());
    }

    pub(crate) fn add_number(&mut self, number: f64) {
        self.0.push(number);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn p50(&self) -> f64 {
        self.percentile(50)
    }

    pub(crate) fn p99(&self) -> f64 {
        self.percentile(99)
    }

    /// Returns the smallest number that at least so many of a hundred do not exceed.
    fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (sorted.len() * percent).div_ceil(100);
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_numbers_that_were_measured() {
        let hundred = Samples((1..=100).rev().map(f64::from).collect());
        assert_eq!((hundred.p50(), hundred.p99()), (50.0, 99.0));
        let three = Samples(vec![3.0, 1.0, 2.0]);
        assert_eq!((three.p50(), three.p99()), (2.0, 3.0));
        assert!(Samples::default().p50().is_nan());
    }
}
