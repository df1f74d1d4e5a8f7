//! Bytes that wait, in no more memory than they take.

/// What a buffer grows by, so that neither many small pieces nor few large ones cost much.
const STEP: usize = 1 << 10;

/// A queue of bytes. It gives its memory back when it is empty.
#[derive(Debug, Default)]
pub(super) struct Held {
    bytes: Vec<u8>,
    /// What was taken off the front already.
    taken: usize,
}

impl Held {
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    pub(super) fn front(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.bytes.capacity() - self.bytes.len() < bytes.len() {
            self.bytes.drain(..self.taken);
            self.taken = 0;
            let more = bytes.len().next_multiple_of(STEP);
            self.bytes.reserve_exact(more);
        }
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn pop(&mut self, count: usize) {
        self.taken = self.bytes.len().min(self.taken + count);
        if self.taken == self.bytes.len() {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(Vec<u8>),
        Pop(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let push = prop::collection::vec(any::<u8>(), 0..3000).prop_map(Step::Push);
        let pop = (0_usize..4000).prop_map(Step::Pop);
        prop::collection::vec(prop_oneof![push, pop], 0..40)
    }

    proptest! {
        #[test]
        fn it_is_a_queue_that_takes_little_more_than_what_is_in_it(steps in steps()) {
            let (mut held, mut model) = (Held::default(), VecDeque::new());
            let mut most = 0;
            for step in steps {
                match step {
                    Step::Push(bytes) => {
                        held.push(&bytes);
                        model.extend(bytes);
                    }
                    Step::Pop(count) => {
                        held.pop(count);
                        model.drain(..count.min(model.len()));
                    }
                }
                most = most.max(model.len());
                prop_assert_eq!(held.front(), model.make_contiguous());
                prop_assert_eq!(held.len(), model.len());
                prop_assert!(held.bytes.capacity() <= most + 4 * STEP);
            }
        }
    }
}
