//! Clients that do not read, or hardly, and what they cost the process that serves them.

use std::{
    io::Read as _,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::{command::Server, keeper::Keeper, websocket::WebSocket};

/// What a client that does not read may cost the daemon's memory.
const PER_CLIENT_KIB: u64 = 2 << 10;

/// Has a program write without end for a client that takes nothing but the first frame.
fn flood(server: &Server) -> WebSocket {
    let mut client = WebSocket::connect_narrow(server);
    let limits = json!({"timeout_ms": 120_000, "memory_mb": 64, "max_output_bytes": 64 << 20});
    client.execute("flood", "shell", "yes", &limits);
    client.until("ack");
    client
}

/// Waits until nobody's program gets on, because the buffers on the way to its client are full.
/// Returns the most memory that the daemon had meanwhile.
fn wait_until_all_are_stalled(server: &Server) -> u64 {
    let (mut most, mut written) = (0, None);
    loop {
        let before = written.replace(server.metric("ringfence_output_bytes_total"));
        most = most.max(server.daemon_memory_kib());
        if before == written {
            return most;
        }
        // Another client is served meanwhile, and its program is the clock.
        assert_eq!(server.call(&["run", "-l", "shell", "-c", "sleep 0.5"]).code, Some(0));
    }
}

#[test]
fn f36_clients_that_do_not_read_cost_bounded_memory_and_lose_nothing() {
    const CLIENTS: u64 = 16;
    let server = Server::start_hasty();
    assert_eq!(server.call(&["run", "-l", "shell", "-c", "echo warm"]).out, "warm\n");
    let before = server.daemon_memory_kib();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| flood(&server)).collect();
    let most = wait_until_all_are_stalled(&server);
    let bound = before + CLIENTS * PER_CLIENT_KIB;
    assert!(most <= bound, "{before} KiB grew to {most}, more than {bound}");
    // Whoever reads on gets every byte in order, also those that had to wait for it.
    let client = &mut clients[0];
    let (mut bytes, mut pieces) = (0, 0);
    while bytes < 8 << 20 {
        let frame = client.until("stdout");
        assert_eq!((frame["offset"].as_u64(), frame["n"].as_u64()), (Some(bytes), Some(pieces)));
        bytes += u64::try_from(frame["data"].as_str().unwrap().len()).unwrap();
        pieces += 1;
    }
}

/// Returns how long it takes to have something run, as a rule.
fn usual_time(client: &mut WebSocket, name: &str, mut before_each: impl FnMut()) -> Duration {
    const RUNS: usize = 51;
    let limits = json!({"timeout_ms": 20_000, "memory_mb": 64});
    let mut times: Vec<_> = (0..RUNS)
        .map(|run| {
            before_each();
            let start = Instant::now();
            client.execute(&format!("{name}{run}"), "shell", "echo served", &limits);
            client.until("result");
            start.elapsed()
        })
        .collect();
    times.sort();
    times[RUNS / 2]
}

#[test]
fn f37_clients_that_read_a_byte_at_a_time_cost_no_more_and_hold_up_nobody() {
    const CLIENTS: u64 = 20;
    let server = Server::start_hasty();
    let mut other = WebSocket::connect(&server);
    // A server that was just started still makes slots ahead.
    usual_time(&mut other, "starting", || {});
    let alone = usual_time(&mut other, "alone", || {});
    let before = server.daemon_memory_kib();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| flood(&server)).collect();
    let mut most = wait_until_all_are_stalled(&server);
    let crowded = usual_time(&mut other, "crowded", || {
        for client in &mut clients {
            client.stream.read_exact(&mut [0]).unwrap();
        }
        most = most.max(server.daemon_memory_kib());
    });
    let bound = before + CLIENTS * PER_CLIENT_KIB;
    assert!(most <= bound, "{before} KiB grew to {most}, more than {bound}");
    // Whoever had to wait for one of them would wait for far longer than this. How much longer it takes
    // is for a measurement on a quiet machine, not for a test.
    assert!(crowded <= 10 * alone + Duration::from_secs(1), "{alone:?} became {crowded:?}");
}

/// The same for those who watch a command in a sandbox, which is held up for them.
#[test]
fn f36_f37_who_watches_a_command_and_hardly_reads_costs_bounded_memory_and_holds_up_nobody() {
    const CLIENTS: u64 = 50;
    let keeper = Keeper::with_demo();
    let minted = keeper.json(&["token", "mint", "--sandbox", "demo", "--scope", "process"]);
    let (sandbox, token) =
        (minted["sandbox_id"].as_str().unwrap(), minted["token"].as_str().unwrap());
    let mut other = WebSocket::connect(&keeper);
    usual_time(&mut other, "starting", || {});
    let alone = usual_time(&mut other, "alone", || {});
    let before = keeper.daemon_memory_kib();
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = WebSocket::watch_narrow(&keeper, sandbox, token);
            client.send(&json!({"type": "start", "command": "yes", "exec_id": "flood"}));
            client.until("ready");
            client
        })
        .collect();
    let folder = keeper.data.path().join("sandboxes").join(sandbox).join("out");
    let (mut most, mut written) = (0, None);
    loop {
        let length = folder.join("flood.stdout.log").metadata().unwrap().len();
        most = most.max(keeper.daemon_memory_kib());
        if written.replace(length) == Some(length) {
            break;
        }
        assert_eq!(keeper.call(&["run", "-l", "shell", "-c", "sleep 0.5"]).code, Some(0));
    }
    let crowded = usual_time(&mut other, "crowded", || {
        for client in &mut clients {
            client.stream.read_exact(&mut [0]).unwrap();
        }
        most = most.max(keeper.daemon_memory_kib());
    });
    let bound = before + CLIENTS * PER_CLIENT_KIB;
    assert!(most <= bound, "{before} KiB grew to {most}, more than {bound}");
    assert!(crowded <= 10 * alone + Duration::from_secs(1), "{alone:?} became {crowded:?}");
    // The command waits: no more is kept than may be, and nothing of it was thrown away.
    assert!(written.is_some_and(|written| written < 70 << 20), "{written:?}");
}
