//! Orders about a sandbox whose files wait for the disk: each has its answer, one after the other.

use std::{collections::HashMap, os::fd::OwnedFd, path::PathBuf};

use harness::{SpawnerProcess, remove_sandboxes, start_spawner_of_sandboxes};
use isolate::{
    plan::{Broken, Step},
    sandbox::{BodySpec, HostPaths, Image, SandboxAnswer, SandboxOrder},
    socket::PacketSocket,
    supervisor::wire::Secret,
    volume::{ByteCount, DiskLimit, Reason},
    wire::{self, Notice, Order},
};
use rustix::{
    fs::{FlockOperation, flock},
    net::{RecvFlags, SendFlags},
};

/// A spawner that sandboxes are ordered from.
struct Ordered {
    place: tempfile::TempDir,
    socket: Option<PacketSocket>,
    spawner: SpawnerProcess,
    next: u64,
    answers: HashMap<u64, SandboxAnswer>,
    /// While they are open, supervisors do not find their starter gone.
    open: Vec<OwnedFd>,
}

impl Drop for Ordered {
    fn drop(&mut self) {
        drop(self.socket.take());
        let ended = self.spawner.wait();
        let removed = remove_sandboxes(&self.folder());
        assert!((ended.is_ok() && removed.is_ok()) || std::thread::panicking(), "{removed:?}");
    }
}

fn make(limit: DiskLimit) -> SandboxOrder {
    SandboxOrder::Make(Box::new(BodySpec {
        sandbox: "sb_1".to_owned(),
        tenant: 1,
        secret: Secret([9; 32]),
        hostname: "sandbox".to_owned(),
        max_processes: 100,
        max_open_files: 1024,
        image: Image::Host,
        beside: None,
        paths: HostPaths::None,
        hosts: Vec::new(),
        disk: limit,
    }))
}

const SMALL: DiskLimit = DiskLimit::UpTo(ByteCount::mib(16));

fn open() -> SandboxOrder {
    SandboxOrder::Open { sandbox: "sb_1".to_owned() }
}

fn end() -> SandboxOrder {
    SandboxOrder::End { sandbox: "sb_1".to_owned() }
}

fn remove() -> SandboxOrder {
    SandboxOrder::Remove { sandbox: "sb_1".to_owned() }
}

impl Ordered {
    fn new() -> Self {
        let place = crate::images::place();
        let folder = place.path().join("sandboxes");
        let (socket, spawner) = start_spawner_of_sandboxes(&folder).unwrap();
        let (answers, open) = (HashMap::new(), Vec::new());
        Self { place, socket: Some(socket), spawner, next: 0, answers, open }
    }

    fn folder(&self) -> PathBuf {
        self.place.path().join("sandboxes")
    }

    fn order(&mut self, order: SandboxOrder) -> u64 {
        self.next += 1;
        let packet = wire::encode(&Order::Sandbox { ticket: self.next, order }).unwrap();
        let socket = self.socket.as_ref().unwrap();
        socket.send(&packet, &[], SendFlags::empty()).unwrap();
        self.next
    }

    fn answer(&mut self, ticket: u64) -> SandboxAnswer {
        loop {
            if let Some(answer) = self.answers.remove(&ticket) {
                return answer;
            }
            let socket = self.socket.as_ref().unwrap();
            let packet = socket.receive(RecvFlags::empty()).unwrap().expect("the spawner is gone");
            if let Notice::Sandbox { ticket, answer } = wire::decode(&packet.bytes).unwrap() {
                self.answers.insert(ticket, answer);
            }
            self.open.extend(packet.fds);
        }
    }

    /// Gives all orders before the first is answered.
    fn at_once(&mut self, orders: impl IntoIterator<Item = SandboxOrder>) -> Vec<SandboxAnswer> {
        let tickets: Vec<u64> = orders.into_iter().map(|order| self.order(order)).collect();
        tickets.into_iter().map(|ticket| self.answer(ticket)).collect()
    }

    fn sandboxes(&mut self) -> Vec<String> {
        let ticket = self.order(SandboxOrder::List);
        let SandboxAnswer::List { sandboxes } = self.answer(ticket) else { panic!("no list") };
        sandboxes
    }
}

/// An answer without what differs from machine to machine.
fn short(answer: &SandboxAnswer) -> &'static str {
    match answer {
        SandboxAnswer::Body { .. } => "body",
        SandboxAnswer::NoBody { .. } => "no body",
        SandboxAnswer::Whole => "whole",
        SandboxAnswer::Done => "done",
        SandboxAnswer::Failed { broken: Broken { step: Step::Plan, errno: libc::EEXIST } } => {
            "there already"
        }
        SandboxAnswer::Failed { broken: Broken { step: Step::Plan, errno: libc::EBUSY } } => "busy",
        SandboxAnswer::NoVolume { reason: Reason::Refused, .. } => "no such volume can be",
        SandboxAnswer::NoVolume { .. } => "no volume",
        SandboxAnswer::List { .. }
        | SandboxAnswer::Granted { .. }
        | SandboxAnswer::Path
        | SandboxAnswer::NoPath(_)
        | SandboxAnswer::Connected
        | SandboxAnswer::Failed { .. } => "something else",
    }
}

#[test]
fn orders_that_do_not_wait_for_each_other_are_carried_out_in_their_order() {
    let mut ordered = Ordered::new();
    let cases: [(Vec<SandboxOrder>, &[&str]); 5] = [
        (vec![make(SMALL), make(SMALL), open()], &["body", "there already", "body"]),
        (vec![end(), open(), make(SMALL), end()], &["done", "no body", "body", "done"]),
        (vec![remove(), remove(), end()], &["done", "done", "done"]),
        (vec![make(SMALL), remove(), make(SMALL), end()], &["body", "done", "body", "done"]),
        (vec![remove(), make(SMALL), remove(), open()], &["done", "body", "done", "no body"]),
    ];
    for (orders, expected) in cases {
        let asked = format!("{orders:?}");
        let answers = ordered.at_once(orders);
        let answers: Vec<&str> = answers.iter().map(short).collect();
        assert_eq!(answers, expected, "{asked}");
    }
    assert_eq!(ordered.sandboxes(), Vec::<String>::new());
}

#[test]
fn a_volume_that_cannot_be_is_told_and_what_is_left_can_be_removed() {
    let mut ordered = Ordered::new();
    let tiny = make(DiskLimit::UpTo(ByteCount::mib(1)));
    let answers = ordered.at_once([tiny, open(), remove()]);
    let answers: Vec<&str> = answers.iter().map(short).collect();
    assert_eq!(answers, ["no such volume can be", "no body", "done"]);
    assert_eq!(ordered.sandboxes(), Vec::<String>::new());
}

#[test]
fn no_more_orders_wait_than_a_daemon_has_reason_to_give() {
    let mut ordered = Ordered::new();
    let orders = std::iter::once(make(SMALL)).chain((0..40).map(|_| open()));
    let answers = ordered.at_once(orders);
    let count = |what| answers.iter().filter(|answer| short(answer) == what).count();
    // The first wait, more are refused, and those that come after the making are answered at once.
    assert_eq!(count("body") + count("busy"), 41, "{answers:?}");
    assert!(count("body") >= 17, "{answers:?}");
}

/// A server that was killed may hold the lock for a moment longer.
#[test]
fn a_folder_that_is_still_locked_is_waited_for() {
    let mut ordered = Ordered::new();
    let answers = ordered.at_once([make(SMALL), remove()]);
    assert_eq!(answers.iter().map(short).collect::<Vec<_>>(), ["body", "done"]);
    drop(ordered.socket.take());
    ordered.spawner.wait().unwrap();
    let disks = std::fs::File::open(ordered.place.path().join("disks")).unwrap();
    flock(&disks, FlockOperation::LockExclusive).unwrap();
    let (socket, spawner) = start_spawner_of_sandboxes(&ordered.folder()).unwrap();
    (ordered.socket, ordered.spawner) = (Some(socket), spawner);
    let ticket = ordered.order(make(SMALL));
    // It serves meanwhile.
    assert_eq!(ordered.sandboxes(), ["sb_1"]);
    drop(disks);
    assert_eq!(short(&ordered.answer(ticket)), "body");
}
