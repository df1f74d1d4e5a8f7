//! Whose turn it is: tenants take turns, within a tenant its clients do, and each client's requests
//! are in order.

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
    /// What code and input of all executions here take.
    held: ByteSize,
    next_client: u64,
    /// Clients that have an execution waiting or running.
    clients: HashMap<ClientNumber, ClientAccount>,
    /// Tenants of these clients.
    tenants: HashMap<Arc<str>, TenantAccount>,
    /// Tenants that have an execution waiting, in the order of their turns.
    turns: VecDeque<Arc<str>>,
}

#[derive(Debug, Default)]
struct ClientAccount {
    running: usize,
    waiting: VecDeque<oneshot::Sender<()>>,
}

#[derive(Debug, Default)]
struct TenantAccount {
    load: Load,
    held: ByteSize,
    /// How many places it has, waiting, running or being given back.
    places: usize,
    /// Clients that have an execution waiting, in the order of their turns.
    turns: VecDeque<ClientNumber>,
}

/// Tells clients apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ClientNumber(u64);

/// A client of a tenant.
#[derive(Clone, Debug)]
pub(crate) struct QueueClient {
    number: ClientNumber,
    tenant: Arc<str>,
}

impl QueueClient {
    pub(crate) fn tenant(&self) -> &Arc<str> {
        &self.tenant
    }
}

/// A place in the queue, and then among those that run. Dropping it gives the place back.
#[derive(Debug)]
pub(crate) struct Place {
    queue: Arc<Queue>,
    client: QueueClient,
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
        // The turn may have come just before the place was given up.
        let runs = self.runs || self.turn.try_recv().is_ok();
        self.queue.leave(&self.client, self.size, runs);
    }
}

impl ClientAccount {
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

    pub(crate) fn new_client(&self, tenant: &str) -> QueueClient {
        let mut state = self.state();
        state.next_client += 1;
        QueueClient { number: ClientNumber(state.next_client), tenant: tenant.into() }
    }

    /// Lines up for this client with code and input of this size, unless there are too many
    /// already.
    pub(crate) fn line_up(
        self: &Arc<Self>,
        client: &QueueClient,
        size: ByteSize,
    ) -> Result<Place, Overloaded> {
        let mut guard = self.state();
        let state = &mut *guard;
        let of_client = state.clients.get(&client.number).map(ClientAccount::load);
        let of_tenant = state.tenants.get(&client.tenant);
        let (load, held) = of_tenant.map(|tenant| (tenant.load, tenant.held)).unwrap_or_default();
        self.capacity.admit(of_client.unwrap_or_default(), load, state.load)?;
        self.capacity.hold(size, held, state.held)?;
        let (call, turn) = oneshot::channel();
        let account = state.clients.entry(client.number).or_default();
        let tenant = state.tenants.entry(Arc::clone(&client.tenant)).or_default();
        if account.waiting.is_empty() {
            if tenant.turns.is_empty() {
                state.turns.push_back(Arc::clone(&client.tenant));
            }
            tenant.turns.push_back(client.number);
        }
        account.waiting.push_back(call);
        tenant.places += 1;
        for load in [&mut tenant.load, &mut state.load] {
            load.queued += 1;
        }
        for held in [&mut tenant.held, &mut state.held] {
            *held = held.saturating_add(size);
        }
        self.call_next(state);
        drop(guard);
        let (queue, client) = (Arc::clone(self), client.clone());
        Ok(Place { queue, client, size, turn, runs: false })
    }

    /// Gives back what an execution had that ran or still waited.
    fn leave(&self, client: &QueueClient, size: ByteSize, runs: bool) {
        let mut guard = self.state();
        let state = &mut *guard;
        // A tenant is there as long as anything of it is held.
        let Some(tenant) = state.tenants.get_mut(&client.tenant) else { return };
        for held in [&mut tenant.held, &mut state.held] {
            *held = held.saturating_sub(size);
        }
        tenant.places -= 1;
        // Another that left may have taken this one's call out of the line already.
        if let Some(account) = state.clients.get_mut(&client.number) {
            let before = account.waiting.len();
            account.waiting.retain(|call| !call.is_closed());
            let given_up = before - account.waiting.len();
            account.running -= usize::from(runs);
            for load in [&mut tenant.load, &mut state.load] {
                load.queued -= given_up;
                load.running -= usize::from(runs);
            }
        }
        state.forget_if_idle(client);
        self.call_next(state);
    }

    /// Calls everyone whose turn it is now, one of each tenant after the other.
    fn call_next(&self, state: &mut State) {
        let mut passed_over = 0;
        while passed_over < state.turns.len() {
            let Some(tenant) = state.turns.pop_front() else { return };
            if self.call_one_of(state, &tenant) {
                passed_over = 0;
            } else {
                passed_over += 1;
            }
            if state.tenants.get(&tenant).is_some_and(|account| !account.turns.is_empty()) {
                state.turns.push_back(tenant);
            }
        }
    }

    /// Calls the first of a tenant's clients that may start one. Returns whether there was any.
    fn call_one_of(&self, state: &mut State, tenant: &Arc<str>) -> bool {
        let Some(tenant) = state.tenants.get_mut(tenant) else { return false };
        for _ in 0..tenant.turns.len() {
            let Some(client) = tenant.turns.pop_front() else { return false };
            let Some(account) = state.clients.get_mut(&client) else { continue };
            let may_start = self.capacity.may_start(account.load(), tenant.load, state.load);
            let call = if may_start { account.waiting.pop_front() } else { None };
            if !account.waiting.is_empty() {
                tenant.turns.push_back(client);
            }
            if let Some(call) = call {
                // One that was given up while it waited takes no place.
                let starts = usize::from(call.send(()).is_ok());
                account.running += starts;
                for load in [&mut tenant.load, &mut state.load] {
                    load.queued -= 1;
                    load.running += starts;
                }
                return true;
            }
        }
        false
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Forgets a client without executions, and a tenant without clients.
    fn forget_if_idle(&mut self, client: &QueueClient) {
        let account = self.clients.get(&client.number).map(ClientAccount::load);
        let Some(tenant) = self.tenants.get_mut(&client.tenant) else { return };
        if account.is_some_and(|load| load.queued == 0) {
            tenant.turns.retain(|waiting| *waiting != client.number);
        }
        if account == Some(Load::default()) {
            self.clients.remove(&client.number);
        }
        if tenant.turns.is_empty() {
            self.turns.retain(|waiting| *waiting != client.tenant);
        }
        if tenant.places == 0 {
            self.tenants.remove(&client.tenant);
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
        let (a, b) = (queue.new_client("one"), queue.new_client("one"));
        let mut places: Vec<Place> = [&a, &a, &a, &b]
            .into_iter()
            .map(|client| queue.line_up(client, ONE).unwrap())
            .collect();
        assert_eq!(places.iter_mut().map(runs).collect::<Vec<_>>(), [true, false, false, false]);
        drop(places.remove(0));
        assert_eq!(places.iter_mut().map(runs).collect::<Vec<_>>(), [true, false, false]);
        drop(places.remove(0));
        assert_eq!(places.iter_mut().map(runs).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn a_client_with_all_its_places_taken_does_not_hold_up_others() {
        let queue = queue(2, 1, 9);
        let (a, b) = (queue.new_client("one"), queue.new_client("one"));
        let mut places: Vec<Place> =
            [&a, &a, &b].into_iter().map(|client| queue.line_up(client, ONE).unwrap()).collect();
        assert_eq!(places.iter_mut().map(runs).collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn a_tenant_with_many_clients_has_no_more_turns_than_one_with_a_single_client() {
        let queue = queue(1, 1, 9);
        let [a, b, c] = ["many", "many", "many"].map(|tenant| queue.new_client(tenant));
        let other = queue.new_client("single");
        let line = [&a, &b, &c, &a, &other, &other];
        let mut places: Vec<Option<Place>> =
            line.into_iter().map(|client| queue.line_up(client, ONE).ok()).collect();
        let mut order = Vec::new();
        while let Some(next) = places.iter_mut().position(|place| place.as_mut().is_some_and(runs))
        {
            order.push(next);
            places[next] = None;
        }
        assert_eq!(order, [0, 1, 4, 2, 5, 3]);
    }

    #[test]
    fn a_tenant_that_takes_all_it_can_get_does_not_keep_another_from_starting() {
        let queue = Queue::new(Capacity::default());
        let hog: Vec<QueueClient> = (0..4).map(|_| queue.new_client("hog")).collect();
        let mut taken: Vec<Place> =
            (0..16).flat_map(|_| &hog).map(|client| queue.line_up(client, ONE).unwrap()).collect();
        assert_eq!(taken.iter_mut().filter_map(|place| runs(place).then_some(())).count(), 56);
        let mut others: Vec<Place> = (0..8)
            .map(|other| queue.line_up(&queue.new_client(&other.to_string()), ONE).unwrap())
            .collect();
        assert!(others.iter_mut().all(runs));
    }

    #[test]
    fn nothing_is_left_when_all_have_gone() {
        let queue = queue(1, 1, 9);
        let a = queue.new_client("one");
        let places: Vec<Place> = (0..3).map(|_| queue.line_up(&a, ONE).unwrap()).collect();
        assert_eq!(queue.load(), Load { running: 1, queued: 2 });
        // The last first: those who wait give up before the one who runs.
        places.into_iter().rev().for_each(drop);
        assert_eq!(queue.load(), Load::default());
        assert!(queue.state().clients.is_empty() && queue.state().tenants.is_empty());
    }

    #[test]
    fn a_full_queue_refuses() {
        let queue = queue(1, 1, 1);
        let a = queue.new_client("one");
        let _places = [queue.line_up(&a, ONE).unwrap(), queue.line_up(&a, ONE).unwrap()];
        assert_eq!(queue.line_up(&a, ONE).unwrap_err(), Overloaded::Client(1));
    }

    #[test]
    fn what_runs_and_what_waits_is_held_until_it_goes() {
        let queue = queue(1, 1, 9);
        let (a, b) = (queue.new_client("one"), queue.new_client("two"));
        let four = ByteSize::bytes(4);
        let (running, waiting) =
            (queue.line_up(&a, four).unwrap(), queue.line_up(&a, four).unwrap());
        let full = Overloaded::Held(ByteSize::bytes(8));
        assert_eq!(queue.line_up(&b, four).unwrap_err(), full);
        drop(queue.line_up(&b, ONE).unwrap());
        drop(waiting);
        let next = queue.line_up(&b, four).unwrap();
        assert_eq!(queue.line_up(&b, four).unwrap_err(), full);
        drop((running, next));
        assert_eq!(queue.state().held, ByteSize::default());
    }
}
