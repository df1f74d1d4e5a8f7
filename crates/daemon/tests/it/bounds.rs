//! What the whole server holds at most, with real code in real slots.

use model::{admission::Capacity, units::ByteSize};
use serde_json::{Value, json};

use crate::{
    peer::{cancel, short, shorts},
    real::{Real, end, execute, output},
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
