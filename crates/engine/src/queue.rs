//! Whose turn it is: clients take turns, each in the order of its own requests.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use model::{
    admission::{Capacity, Load, Overloaded},
    units::ByteSize,
};
use tokio::sync::oneshot;

/// The waiting and running executions of this node.
#[derive(Debug)]
pub(crate) struct Queue {
    capacity: Capacity,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    load: Load,
    /// What code and input of everybody here take.
    held: ByteSize,
    next_client: u64,
    /// Clients that have somebody waiting or running.
    accounts: HashMap<ClientNumber, Account>,
    /// Clients that have somebody waiting, in the order of their turns.
    turns: VecDeque<ClientNumber>,
}

#[derive(Debug, Default)]
struct Account {
    running: usize,
    waiting: VecDeque<oneshot::Sender<()>>,
}

/// Tells clients apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientNumber(u64);

/// A place in the queue, and then among those who run. Dropping it gives the place back.
#[derive(Debug)]
pub(crate) struct Place {
    queue: Arc<Queue>,
    client: ClientNumber,
    /// What its code and input take.
    size: ByteSize,
    turn: oneshot::Receiver<()>,
    runs: bool,
}

impl Place {
    /// Returns when it is this one's turn.
    pub(crate) async fn turn(&mut self) {
        // The queue answers before it drops the other end, and it outlives its places.
        self.runs = (&mut self.turn).await.is_ok();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.turn.close();
        self.queue.release(self.size);
        // The turn may have come just before the place was given up.
        if self.runs || self.turn.try_recv().is_ok() {
            self.queue.leave(self.client);
        } else {
            self.queue.give_up(self.client);
        }
    }
}

impl Account {
    fn load(&self) -> Load {
        Load { running: self.running, queued: self.waiting.len() }
    }
}

impl Queue {
    pub(crate) fn new(capacity: Capacity) -> Arc<Self> {
        Arc::new(Self { capacity, state: Mutex::new(State::default()) })
    }

    pub(crate) fn load(&self) -> Load {
        self.state().load
    }

    pub(crate) fn new_client(&self) -> ClientNumber {
        let mut state = self.state();
        state.next_client += 1;
        ClientNumber(state.next_client)
    }

    /// Lines up for this client with code and input of this size, unless there are too many
    /// already.
    pub(crate) fn line_up(
        self: &Arc<Self>,
        client: ClientNumber,
        size: ByteSize,
    ) -> Result<Place, Overloaded> {
        let mut state = self.state();
        let account = state.accounts.get(&client).map(Account::load).unwrap_or_default();
        self.capacity.admit(account, state.load)?;
        self.capacity.hold(size, state.held)?;
        state.held = state.held.saturating_add(size);
        let (call, turn) = oneshot::channel();
        let account = state.accounts.entry(client).or_default();
        account.waiting.push_back(call);
        let is_first = account.waiting.len() == 1;
        state.load.queued += 1;
        if is_first {
            state.turns.push_back(client);
        }
        self.call_next(&mut state);
        drop(state);
        Ok(Place { queue: Arc::clone(self), client, size, turn, runs: false })
    }

    fn release(&self, size: ByteSize) {
        let mut state = self.state();
        state.held = state.held.saturating_sub(size);
    }

    fn leave(&self, client: ClientNumber) {
        let mut state = self.state();
        state.load.running -= 1;
        if let Some(account) = state.accounts.get_mut(&client) {
            account.running -= 1;
        }
        state.forget_if_idle(client);
        self.call_next(&mut state);
    }

    fn give_up(&self, client: ClientNumber) {
        let mut state = self.state();
        let Some(account) = state.accounts.get_mut(&client) else { return };
        let before = account.waiting.len();
        account.waiting.retain(|call| !call.is_closed());
        let gone = before - account.waiting.len();
        state.load.queued -= gone;
        state.forget_if_idle(client);
    }

    /// Calls everybody whose turn it is now, one of each client after the other.
    fn call_next(&self, state: &mut State) {
        let mut passed_over = 0;
        while passed_over < state.turns.len() {
            let Some(client) = state.turns.pop_front() else { return };
            let Some(account) = state.accounts.get_mut(&client) else { continue };
            if self.capacity.may_start(account.load(), state.load) {
                passed_over = 0;
                if let Some(call) = account.waiting.pop_front() {
                    state.load.queued -= 1;
                    // Whoever has gone away while waiting takes no place.
                    if call.send(()).is_ok() {
                        account.running += 1;
                        state.load.running += 1;
                    }
                }
            } else {
                passed_over += 1;
            }
            if !account.waiting.is_empty() {
                state.turns.push_back(client);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn forget_if_idle(&mut self, client: ClientNumber) {
        if self.accounts.get(&client).is_some_and(|account| account.load() == Load::default()) {
            self.accounts.remove(&client);
            self.turns.retain(|waiting| *waiting != client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(running: usize, running_per_client: usize, queued: usize) -> Arc<Queue> {
        let held = ByteSize::bytes(9);
        let queued_per_client = queued;
        Queue::new(Capacity { running, running_per_client, queued, queued_per_client, held })
    }

    const ONE: ByteSize = ByteSize::bytes(1);

    fn runs(place: &mut Place) -> bool {
        place.runs = place.runs || place.turn.try_recv().is_ok();
        place.runs
    }

    #[test]
    fn clients_take_turns() {
        let queue = queue(1, 1, 9);
        let (a, b) = (queue.new_client(), queue.new_client());
        let mut places: Vec<Place> =
            [a, a, a, b].into_iter().map(|client| queue.line_up(client, ONE).unwrap()).collect();
        assert_eq!(places.iter_mut().map(runs).collect::<Vec<_>>(), [true, false, false, false]);
        drop(places.remove(0));
        assert_eq!(places.iter_mut().map(runs).collect::<Vec<_>>(), [true, false, false]);
        drop(places.remove(0));
        assert_eq!(places.iter_mut().map(runs).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn a_client_with_all_its_places_taken_does_not_hold_up_others() {
        let queue = queue(2, 1, 9);
        let (a, b) = (queue.new_client(), queue.new_client());
        let mut places: Vec<Place> =
            [a, a, b].into_iter().map(|client| queue.line_up(client, ONE).unwrap()).collect();
        assert_eq!(places.iter_mut().map(runs).collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn nothing_is_left_when_all_have_gone() {
        let queue = queue(1, 1, 9);
        let a = queue.new_client();
        let places: Vec<Place> = (0..3).map(|_| queue.line_up(a, ONE).unwrap()).collect();
        assert_eq!(queue.load(), Load { running: 1, queued: 2 });
        // The last first: those who wait give up before the one who runs.
        places.into_iter().rev().for_each(drop);
        assert_eq!(queue.load(), Load::default());
        assert!(queue.state().accounts.is_empty() && queue.state().turns.is_empty());
    }

    #[test]
    fn a_full_queue_refuses() {
        let queue = queue(1, 1, 1);
        let a = queue.new_client();
        let _places = [queue.line_up(a, ONE).unwrap(), queue.line_up(a, ONE).unwrap()];
        assert_eq!(queue.line_up(a, ONE).unwrap_err(), Overloaded::Client(1));
    }

    #[test]
    fn what_runs_and_what_waits_is_held_until_it_goes() {
        let queue = queue(1, 1, 9);
        let (a, b) = (queue.new_client(), queue.new_client());
        let four = ByteSize::bytes(4);
        let (running, waiting) = (queue.line_up(a, four).unwrap(), queue.line_up(a, four).unwrap());
        let full = Overloaded::Held(ByteSize::bytes(8));
        assert_eq!(queue.line_up(b, four).unwrap_err(), full);
        drop(queue.line_up(b, ONE).unwrap());
        drop(waiting);
        let next = queue.line_up(b, four).unwrap();
        assert_eq!(queue.line_up(b, four).unwrap_err(), full);
        drop((running, next));
        assert_eq!(queue.state().held, ByteSize::default());
    }
}
