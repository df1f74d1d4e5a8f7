//! The users of slots, as the server's own user and the ranges that the system grants decide.

use isolate::plan::Identity;

use crate::node::{Node, python};

/// Says that the system grants the user of this test a range of users.
const GRANTED: &str = "RINGFENCE_TEST_SUBIDS";

#[tokio::test]
async fn slots_have_users_of_their_own_where_there_are_any_to_have() {
    let node = Node::with(&["python"]).await;
    let has_range = rustix::process::getuid().is_root() || std::env::var_os(GRANTED).is_some();
    let expected = if has_range { Identity::Apart } else { Identity::Shared };
    assert_eq!(node.engine.posture().slot_identity, expected);
    // The user of the code on the host is not the one that runs the server, if there is another.
    let seen = node.run(python("print(open('/proc/self/uid_map').read().split())")).await;
    let lines = seen.out().matches("'1000'").count();
    assert_eq!(lines, 1, "{}", seen.out());
    let has_two = seen.out().contains("'0',");
    assert_eq!(has_two, has_range, "{}", seen.out());
}
