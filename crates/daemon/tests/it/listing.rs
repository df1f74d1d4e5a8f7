//! Row P17: a directory with more names than anybody wants in memory.

use serde_json::{Value, json};

use crate::exec::Ground;

/// What the whole process may grow by: the pages that are on their way, and what the allocator keeps.
const GROWTH_KIB: u64 = 32 << 10;

/// A million were looked at by hand: each page takes ten times as long.
const NAMES: u64 = 100_000;

fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn p17_a_hundred_thousand_names_are_listed_once_each_in_bounded_memory() {
    let ground = Ground::new().await;
    let make = format!("mkdir many && cd many && seq -w 1 {NAMES} | xargs touch");
    let made = ground.ask("POST", "/v1/exec", &json!({"command": make})).await.json();
    assert_eq!(made["exit_code"], 0, "{made}");
    let (mut seen, mut last, mut cursor) = (0, String::new(), String::new());
    let (mut before, mut most) = (0, 0);
    loop {
        let path = format!("/v1/files/list?path=/workspace/many&limit=1000{cursor}");
        let answer = ground.ask("GET", &path, &Value::Null).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let page = answer.json();
        for entry in page["entries"].as_array().unwrap() {
            let name = entry["name"].as_str().unwrap();
            assert!(name > last.as_str(), "{name} after {last}");
            name.clone_into(&mut last);
            seen += 1;
        }
        most = most.max(memory_kib());
        if before == 0 {
            before = most;
        }
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, NAMES);
    assert!(most - before <= GROWTH_KIB, "{before} KiB grew to {most}");
}
