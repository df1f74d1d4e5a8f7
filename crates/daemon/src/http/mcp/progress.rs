//! What a client is told while a program runs, if it wants to be: how much it has written, and the end of that.

use std::{pin::pin, sync::Arc, time::Duration};

use rmcp::{
    Peer, RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
};
use tokio::{select, sync::watch, time::sleep};

use super::answers::shown;

/// How much is shown of what was written since the client was told last.
const LATEST: usize = 1 << 10;

/// The time between two messages: what is written faster is told together.
const PAUSE: Duration = Duration::from_millis(100);

/// What a program has written so far.
#[derive(Debug, Default)]
struct Written {
    bytes: u64,
    /// The last of them.
    latest: Vec<u8>,
}

/// Where it is noted. Nobody waits for whoever hears it.
#[derive(Clone, Debug)]
pub(super) struct Telling(Arc<watch::Sender<Written>>);

impl Telling {
    pub(super) fn wrote(&self, bytes: &[u8]) {
        self.0.send_modify(|written| {
            let count = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            written.bytes = written.bytes.saturating_add(count);
            let kept = bytes.get(bytes.len().saturating_sub(LATEST)..).unwrap_or_default();
            written.latest.extend_from_slice(kept);
            let surplus = written.latest.len().saturating_sub(LATEST);
            written.latest.drain(..surplus);
        });
    }
}

/// A client that is told.
#[derive(Debug)]
pub(super) struct Hearer {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    written: watch::Receiver<Written>,
    /// How many bytes it knows of.
    known: u64,
}

pub(super) fn new(peer: Peer<RoleServer>, token: ProgressToken) -> (Telling, Hearer) {
    let (telling, written) = watch::channel(Written::default());
    (Telling(Arc::new(telling)), Hearer { peer, token, written, known: 0 })
}

impl Hearer {
    /// Waits for an answer, and tells what is written until it is there. A message that is on its way is seen off
    /// first, so that none comes after the answer.
    pub(super) async fn until<T>(mut self, answer: impl Future<Output = T>) -> T {
        let mut answer = pin!(answer);
        loop {
            select! {
                biased;
                answer = &mut answer => return answer,
                changed = self.written.changed() => if changed.is_err() {
                    return answer.await;
                },
            }
            let next = self.next();
            let mut told = pin!(self.peer.notify_progress(next));
            select! {
                answer = &mut answer => {
                    // Whether it was heard changes nothing any more.
                    let _ = told.await;
                    return answer;
                }
                heard = &mut told => if heard.is_err() {
                    return answer.await;
                },
            }
            select! {
                answer = &mut answer => return answer,
                () = sleep(PAUSE) => {}
            }
        }
    }

    fn next(&mut self) -> ProgressNotificationParam {
        let written = self.written.borrow_and_update();
        let (bytes, text) = (written.bytes, since(&written, self.known));
        self.known = bytes;
        ProgressNotificationParam::new(self.token.clone(), number(bytes)).with_message(text)
    }
}

/// Returns a count as the protocol has numbers.
fn number(count: u64) -> f64 {
    let [high, low] =
        [count >> 32, count & u64::from(u32::MAX)].map(|half| u32::try_from(half).unwrap_or(0));
    f64::from(high) * (f64::from(u32::MAX) + 1.0) + f64::from(low)
}

/// Returns what was written since somebody knew of so much, or the end of it.
fn since(written: &Written, known: u64) -> String {
    let new = usize::try_from(written.bytes.saturating_sub(known)).unwrap_or(usize::MAX);
    let begin = written.latest.len().saturating_sub(new);
    let latest = written.latest.get(begin..).unwrap_or_default();
    shown(&[], latest, 0).text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_numbers_however_large() {
        for (count, expected) in [(0, 0.0), (7, 7.0), (5_000_000_001, 5e9 + 1.0)] {
            assert!((number(count) - expected).abs() < f64::EPSILON, "{count}");
        }
    }

    #[test]
    fn what_is_told_is_the_end_of_what_is_new() {
        let (sender, mut written) = watch::channel(Written::default());
        let telling = Telling(Arc::new(sender));
        telling.wrote(b"one ");
        telling.wrote(b"two");
        assert_eq!(since(&written.borrow_and_update(), 0), "one two");
        assert_eq!(since(&written.borrow(), 4), "two");
        telling.wrote(&[b'x'; 3 * LATEST]);
        telling.wrote("ü".as_bytes());
        let text = since(&written.borrow_and_update(), 7);
        assert_eq!(text.len(), LATEST);
        assert!(text.starts_with("xx") && text.ends_with('ü'), "{text}");
    }
}
