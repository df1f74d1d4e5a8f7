//! A sandbox that makes as many files as it can.

use super::ground::Ground;
use crate::command::ringfence;

/// F17: too many files are the sandbox's own affair, as too large ones are.
#[test]
fn f17_a_sandbox_that_can_have_no_more_files_is_alone_with_that() {
    harness::needs::require_root();
    let mut ground = Ground::new();
    let mut server = ringfence(&[]);
    // Of what holds limits this one counts files as well; in the others they take room.
    server.env("RINGFENCE_SANDBOXES__DISK", "image");
    ground.start_by(server);
    let made = ground.ask(&["create", "--image", "host", "--name", "full", "--disk", "64m"]);
    assert_eq!(made.code, Some(0), "{made:?}\n{}", ground.log());
    ground.create("other");
    let fill = "i=0; while true 2>/dev/null > /workspace/f$i; do i=$((i+1)); \
                [ $i -lt 100000 ] || exit 9; done; echo $i";
    let filled = ground.shell("full", fill);
    let count: u32 = filled.out.trim().parse().unwrap();
    assert!((1000..100_000).contains(&count), "{filled:?}");
    for file in ["/workspace/more", "/home/agbox/more", "/tmp/more"] {
        let refused = ground.shell("full", &format!("true > {file}"));
        assert_ne!(refused.code, Some(0), "{file}");
        assert!(refused.err.contains("No space left on device"), "{refused:?}");
    }

    let script = "for i in $(seq 2000); do true > /workspace/f$i || exit 9; done; echo done";
    assert_eq!(ground.shell("other", script).out, "done\n");
    ground.create("third");
    assert_eq!(ground.shell("third", "true > /workspace/f && echo done").out, "done\n");
    // Who deletes can go on.
    let script = "rm /workspace/f1 && true > /workspace/more && echo done";
    assert_eq!(ground.shell("full", script).out, "done\n");
}
