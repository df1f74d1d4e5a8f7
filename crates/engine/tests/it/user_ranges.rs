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
    // One line for each user: that of the code, and init's if it is another.
    let seen = node.run(python("print(len(open('/proc/self/uid_map').readlines()))")).await;
    let users = if has_range { "2\n" } else { "1\n" };
    assert_eq!(seen.out(), users, "{}", seen.err());
}
