//! What the whole server holds at most, with real code in real slots.

use engine::{Settings, languages::Languages};
use model::{admission::Capacity, units::ByteSize};
use serde_json::{Value, json};

use crate::{
    peer::{cancel, short, shorts},
    real::{Real, end, execute, output},
    support,
};

/// Returns a request that counts this much input.
fn count(id: &str, bytes: usize) -> Value {
    let mut frame = execute(id, "shell", "wc -c");
    frame["stdin"] = "x".repeat(bytes).into();
    frame
}

#[tokio::test]
async fn code_and_input_above_what_the_server_holds_are_refused_and_nothing_is_lost() {
    const LARGE: usize = 700 << 10;
    let held = ByteSize::mib(1);
    let real = Real::start_with(Capacity { running: 1, held, ..Capacity::default() }).await;
    let (mut first, mut second) = (real.peer().await, real.peer().await);
    first.send(execute("running", "shell", "echo up; sleep 100")).await;
    while short(&first.next().await) != "stdout up\n" {}
    first.send(count("waiting", LARGE)).await;
    assert_eq!(short(&first.next().await), "ack");

    second.send(count("large", LARGE)).await;
    let refused = second.next().await;
    let answer = (&refused["code"], &refused["retryable"], &refused["id"]);
    assert_eq!(answer, (&json!("SANDBOX_OVERLOADED"), &json!(true), &json!("large")));
    // Another that fits is taken: it is the bytes that are too many.
    second.send(count("small", 1)).await;
    assert_eq!(short(&second.next().await), "ack");

    first.send(cancel("running")).await;
    let frames = first.until_end("waiting").await;
    assert_eq!((end(&frames).0, output(&frames, "stdout").trim()), ("completed", "716800"));
    let frames = second.until_end("small").await;
    assert_eq!((end(&frames).0, output(&frames, "stdout").trim()), ("completed", "1"));
    // What has ended is held no more, and an id that was refused may come again.
    second.send(count("large", LARGE)).await;
    let frames = second.until_end("large").await;
    assert_eq!(shorts(&frames[..2]), ["ack", "status running"]);
    assert_eq!((end(&frames).0, output(&frames, "stdout").trim()), ("completed", "716800"));
}

#[tokio::test]
async fn f36_a_program_whose_client_does_not_read_is_ended_with_its_connection() {
    let capacity = Capacity { running: 1, ..Capacity::default() };
    let languages = Languages::installed().only(&["shell"]);
    let settings = Settings { capacity, languages, ..Settings::default() };
    let real = Real::start_by(settings, support::hasty()).await;
    let mut stalled = real.peer().await;
    let mut frame = execute("a", "shell", "yes");
    frame["limits"]["max_output_bytes"] = json!(64 << 20);
    stalled.send(frame).await;
    assert_eq!(short(&stalled.next().await), "ack");
    // One runs at a time: the next one's turn comes when the first is ended, long before its
    // own deadline.
    let mut other = real.peer().await;
    other.send(execute("b", "shell", "echo next")).await;
    assert_eq!(end(&other.until_end("b").await).0, "completed");
    assert!(matches!(stalled.close_code().await, None | Some(4408)));
}
