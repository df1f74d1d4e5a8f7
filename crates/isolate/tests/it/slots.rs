//! A slot runs one program, sealed off, and is gone afterwards.

use isolate::plan::Exit;

use crate::host::{Host, Run, SHELL};

#[test]
fn a_program_runs_and_its_output_and_exit_code_come_back() {
    let mut host = Host::start();
    let ran = host
        .run(&Run { code: "echo out; echo err >&2; cat; exit 3", stdin: "in", ..SHELL })
        .unwrap();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("out\nin", "err\n"));
    assert_eq!(ran.exit, Exit::Code(3));
}
