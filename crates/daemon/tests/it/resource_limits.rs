//! What one sandbox may ask for, on every surface that can ask.

use api::agbox::v1;
use serde_json::{Value, json};

use crate::{
    caller::refused,
    sandboxed::{Sandboxed, run, shell},
    sessions::{SESSIONS, ask, post, text},
    support::Daemon,
};

/// More than any machine has.
const TOO_MUCH_MB: u64 = 900 << 20;

/// Forks until the kernel refuses, at most 40 times, and prints how often it could.
const FORKS: &str = "
import os, signal
children = []
try:
    while len(children) < 40:
        child = os.fork()
        if child == 0:
            signal.pause()
        children.append(child)
except BlockingIOError:
    pass
print(len(children))
for child in children:
    os.kill(child, 9)
";

/// Uses a processor for two seconds, and prints how much of it it got.
const SPIN: &str = "
import time
began, used = time.monotonic(), time.process_time()
while time.monotonic() < began + 2:
    pass
print((time.process_time() - used) / (time.monotonic() - began))
";

async fn ranges(daemon: &Daemon) -> Value {
    let answer = ask(daemon, "GET", "/v1/limits").await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

#[tokio::test]
async fn every_limit_has_a_least_a_default_and_a_maximum_that_fits_the_machine() {
    let sandboxed = Sandboxed::start().await;
    let ranges = ranges(sandboxed.daemon()).await;
    let memory = engine::machine_size::memory().as_bytes() >> 20;
    for (kind, fields) in [
        ("sandboxes", vec!["memory_mb", "cpu_millicores", "processes", "disk_mb"]),
        (
            "executions",
            vec![
                "timeout_ms",
                "memory_mb",
                "cpu_shares",
                "max_output_bytes",
                "processes",
                "disk_mb",
                "inodes",
            ],
        ),
    ] {
        for field in fields {
            let number = |name: &str| ranges[kind][field][name].as_u64();
            let (min, max) = (number("min").unwrap(), number("max").unwrap());
            let default = number("default").unwrap_or(max);
            assert!(min <= default && default <= max, "{kind} {field}: {ranges}");
        }
    }
    for kind in ["sandboxes", "executions"] {
        let most = ranges[kind]["memory_mb"]["max"].as_u64().unwrap();
        assert!(most < memory, "{kind}: {most} MiB of {memory} leave nothing to the server");
    }
}

#[tokio::test]
async fn a_request_for_more_than_the_operators_maximum_is_refused_on_every_surface() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    for (limits, field) in [
        (json!({"memory_mb": TOO_MUCH_MB}), "memory_mb"),
        (json!({"memory_mb": 1}), "memory_mb"),
        (json!({"cpu_millicores": 100_000_000}), "cpu_millicores"),
        (json!({"processes": 1_000_000}), "processes"),
        (json!({"disk_mb": TOO_MUCH_MB}), "disk_mb"),
    ] {
        let body = json!({"thread_id": "t", "mode": "ensure", "image": "host", "limits": limits});
        let answer = post(daemon, SESSIONS, &body).await;
        assert_eq!(answer.status, 400, "{limits}: {}", answer.body);
        let message = answer.json();
        let message = text(&message, "/error/message");
        assert!(message.starts_with(field) && message.contains("sandboxes.max_"), "{message}");
    }
    let body = json!({"name": "big", "mem_bytes": TOO_MUCH_MB << 20});
    let answer = post(daemon, "/v2/sandboxes/boxes", &body).await;
    assert!((400..500).contains(&answer.status), "{}: {}", answer.status, answer.body);
    let spec = v1::CreateSpec {
        image: "host".to_owned(),
        memory_limit: "900t".to_owned(),
        ..v1::CreateSpec::default()
    };
    let request = v1::CreateSandboxRequest { create_spec: Some(spec), ..Default::default() };
    let refused = refused(sandboxed.local().await.create_sandbox(request).await);
    assert!(
        refused.starts_with("InvalidArgument") && refused.contains("memory_limit"),
        "{refused}"
    );
}

#[tokio::test]
async fn limits_of_a_session_hold_in_its_sandbox() {
    let sandboxed = Sandboxed::start().await;
    let limits = json!({"memory_mb": 64, "processes": 20, "cpu_millicores": 500});
    let body = json!({"thread_id": "t", "mode": "ensure", "image": "host", "limits": limits});
    let answer = post(sandboxed.daemon(), SESSIONS, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let session = answer.json();
    let sandbox = text(&session, "/binding/sandbox_id").to_owned();
    let mut client = sandboxed.local().await;
    let (_, output) =
        run(&mut client, shell(&sandbox, &format!("exec python3 -c '{FORKS}'"), "")).await;
    let processes: u32 = output.trim().parse().unwrap();
    assert!((1..20).contains(&processes), "{processes} processes run under a limit of 20");
    let hog = "exec python3 -c 'held = bytearray(256 << 20); print(len(held))'";
    let (end, output) = run(&mut client, shell(&sandbox, hog, "")).await;
    assert_ne!(end.exit_code, 0, "{output} bytes are held under a limit of 64 MiB");
    let (_, output) =
        run(&mut client, shell(&sandbox, &format!("exec python3 -c '{SPIN}'"), "")).await;
    let share: f64 = output.trim().parse().unwrap();
    assert!(share < 0.75, "{share} of a processor are used under a limit of 0.5");
}

#[tokio::test]
async fn a_limit_that_nobody_knows_is_refused_because_it_may_be_meant_to_confine() {
    let sandboxed = Sandboxed::start().await;
    let body = json!({"thread_id": "t", "mode": "ensure", "image": "host", "limits": {"gpu": 1}});
    let answer = post(sandboxed.daemon(), SESSIONS, &body).await;
    assert_eq!(answer.status, 400, "{}", answer.body);
    assert_eq!(answer.json()["error"]["pointer"], "/limits/gpu", "{}", answer.body);
}
