//! Sandboxes of several tenants at once: a tenant gains nothing by having more of them.

use model::{ids::Tenant, sandbox::Sandbox};
use rustix::time::{ClockId, clock_gettime};

use crate::home::{Home, Server, shell};

/// Has each sandbox count on the same processor at the same time, and returns how far each came.
async fn count_at_once(server: &Server, sandboxes: &[Sandbox]) -> Vec<f64> {
    let begin = clock_gettime(ClockId::Realtime).tv_sec + 6;
    let script = format!(
        "exec python3 -c 'import os, time\nos.sched_setaffinity(0, {{0}})\n\
         time.sleep({begin} - time.time())\nn = 0\n\
         while time.time() < {begin} + 1.5: n += 1\nprint(n)'"
    );
    let mut started = Vec::new();
    for sandbox in sandboxes {
        started.push(server.start(sandbox, shell(&script)).await);
    }
    let mut counts = Vec::new();
    for (started, sandbox) in started.into_iter().zip(sandboxes) {
        server.end_for(&sandbox.tenant, &started.exec.id).await;
        let counted = std::fs::read_to_string(&started.stdout).unwrap();
        counts.push(counted.trim().parse().unwrap());
    }
    counts
}

#[tokio::test]
async fn tenants_share_the_processors_equally_however_many_sandboxes_each_has() {
    let home = Home::new();
    let server = home.start().await;
    harness::needs::require("cgroups", server.has_cgroups());
    let [hog, other]: [Tenant; 2] = ["hog", "other"].map(|name| name.parse().unwrap());
    let mut sandboxes = Vec::new();
    for tenant in [&hog, &hog, &hog, &hog, &other] {
        sandboxes.push(server.ready_for(tenant).await);
    }
    let counts = count_at_once(&server, &sandboxes).await;
    let (others, hogs) = counts.split_last().unwrap();
    let most = hogs.iter().copied().fold(0.0, f64::max);
    // 4 to 1 with equal shares of tenants, 1 to 1 with equal shares of sandboxes.
    assert!(others / most > 2.0, "{counts:?}");
    server.end().await;
}
