//! A slot runs one program, sealed off, and is gone afterwards.

use isolate::plan::{Broken, Exit, Step};

use crate::host::{Host, Run, SHELL, let_in};

#[test]
fn a_program_runs_and_its_output_and_exit_code_come_back() {
    let mut host = Host::start();
    let ran = host
        .run(&Run { code: "echo out; echo err >&2; cat; exit 3", stdin: "in", ..SHELL })
        .unwrap();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("out\nin", "err\n"));
    assert_eq!(ran.exit, Exit::Code(3));
}

#[test]
fn the_standard_streams_can_be_opened_by_their_paths() {
    let mut host = Host::start();
    let code = "cat /dev/stdin; echo out > /dev/stdout; echo err > /proc/self/fd/2";
    let ran = host.run(&Run { code, stdin: "in\n", ..SHELL }).unwrap();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("in\nout\n", "err\n"));
}

#[test]
fn the_workspace_is_also_at_work_and_the_link_cannot_be_replaced() {
    let mut host = Host::start();
    let code = "echo text > /work/file; cat /workspace/file; readlink /work; rm /work";
    let ran = host.run(&Run { code, ..SHELL }).unwrap();
    assert_eq!((ran.stdout.as_str(), ran.exit), ("text\nworkspace\n", Exit::Code(1)));
}

#[test]
fn nothing_is_left_of_a_slot() {
    let mut host = Host::start();
    let before = host.traces();
    for _ in 0..20 {
        host.run(&Run { code: "sleep 1000 & echo x > /tmp/x", ..SHELL }).unwrap();
    }
    assert_eq!(host.traces(), before);
}

#[test]
fn slots_end_with_their_spawner() {
    let mut host = Host::start();
    let runs: Vec<_> = (0..5)
        .map(|_| {
            let run = Run { code: "sleep 1000", ..SHELL };
            let (_, ends) = host.make(&run);
            let_in(ends, &run).unwrap()
        })
        .collect();
    let spawner = host.pid();
    drop(host);
    assert!(!std::path::Path::new(&format!("/proc/{spawner}")).exists());
    for mut running in runs {
        assert_eq!(running.read_to_end(), "");
    }
}

#[test]
fn a_program_that_is_not_there_is_told_by_its_step() {
    let mut host = Host::start();
    let broken = host.run(&Run { argv: &["/bin/no-such-program"], ..SHELL }).unwrap_err();
    let expected = Broken { step: Step::Exec, errno: libc::ENOENT };
    assert_eq!(broken, expected);
}

#[test]
fn a_slot_that_is_never_used_ends_when_it_is_let_go() {
    let mut host = Host::start();
    let (slot, ends) = host.make(&SHELL);
    drop(ends);
    host.wait_until_gone(slot);
}
