//! `/metrics` over a real engine.

use engine::{
    Settings,
    languages::{Language, Languages, Warm},
};
use tokio::time::timeout;

use crate::{
    real::{Real, end, execute},
    support::PATIENCE,
};

const PYTHON_MADE_ANEW: &str = "ringfence_slots_made_anew_total{language=\"python\"}";

/// Makes it impossible to fork slots of a language.
fn without_zygote(mut language: Language) -> Language {
    if let Warm::Fork(program) = &mut language.warm {
        program.argv = vec!["/usr/bin/false".into()];
    }
    language
}

async fn metrics(real: &Real) -> String {
    real.daemon.ask("GET", "/metrics", &[], "").await.body
}

/// Waits until all of these lines are there.
async fn wait_for(real: &Real, lines: &[&str]) {
    let mut text = String::new();
    let there = async {
        while !lines.iter().all(|line| text.lines().any(|found| found == *line)) {
            text = metrics(real).await;
        }
    };
    let is_in_time = timeout(PATIENCE, there).await.is_ok();
    assert!(is_in_time, "not all of {lines:?} are in {text}");
}

#[tokio::test]
async fn slots_are_told_by_language_and_those_that_were_made_anew_are_counted() {
    let languages = Languages::installed().only(&["python", "shell"]);
    let shell_slots = languages.get("shell").unwrap().pool_size;
    let languages = languages.iter().cloned().map(without_zygote).collect();
    let real = Real::start_on(Settings { languages, ..Settings::default() }).await;
    let mut peer = real.peer().await;
    peer.send(execute("a", "python", "print(1)")).await;
    assert_eq!(end(&peer.until_end("a").await).0, "completed");
    wait_for(
        &real,
        &[
            "ringfence_slots_made_anew_total{language=\"shell\"} 0",
            &format!("ringfence_slots_ready{{language=\"shell\"}} {shell_slots}"),
            "ringfence_slots_being_made{language=\"shell\"} 0",
        ],
    )
    .await;
    // All that are being made when somebody waits are made anew, so there may be a few.
    let text = metrics(&real).await;
    let count = text.lines().find_map(|line| line.strip_prefix(PYTHON_MADE_ANEW)).unwrap();
    assert!(count.trim().parse::<u64>().unwrap() >= 1, "{text}");
}

/// A client that waits for each result before it sends the next one. Nothing here is timed: slots that wait
/// are used first, and each of them was made the warm way.
#[tokio::test]
async fn twelve_elixir_executions_in_a_row_get_twelve_warm_slots() {
    let languages = Languages::installed().only(&["elixir"]);
    let languages =
        languages.iter().cloned().map(|row| Language { pool_size: 12, ..row }).collect();
    let real = Real::start_on(Settings { languages, ..Settings::default() }).await;
    wait_for(&real, &["ringfence_slots_ready{language=\"elixir\"} 12"]).await;
    let mut peer = real.peer().await;
    for number in 0..12 {
        let id = format!("loop-{number}");
        peer.send(execute(&id, "elixir", "IO.puts(6 * 7)")).await;
        assert_eq!(end(&peer.until_end(&id).await).0, "completed", "{number}");
    }
    let text = metrics(&real).await;
    for line in [
        "ringfence_slots_made_anew_total{language=\"elixir\"} 0",
        "ringfence_slots_waited_for_total{language=\"elixir\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }
}

#[tokio::test]
async fn the_page_names_every_metric() {
    let page = include_str!("../../../../docs/metrics.md");
    let real = Real::start().await;
    let mut peer = real.peer().await;
    peer.send(execute("a", "shell", "echo out")).await;
    peer.until_end("a").await;
    peer.send(execute("b", "no such language", "")).await;
    peer.until_end("b").await;
    let text = metrics(&real).await;
    let names: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(names.len() >= 11, "{names:?}");
    for name in names {
        assert!(page.contains(&format!("\n| `{name}` |")), "{name} is not on the page");
    }
}
