//! Row X33, in a real slot: a program in C makes every system call by its number, and what does
//! not belong to the allowed ones does not come through.

use std::{fmt::Write as _, fs, process::Command};

use rustix::io::Errno;

use crate::node::{Node, python};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/escape/calls.c");

/// Far above the last call that any kernel has.
const LAST: i64 = 700;

/// Calls that newer kernels make to themselves, past every filter (`uretprobe`, `uprobe`). Made by
/// anybody else they end the process or fail, and these are the ways they do: SIGILL, ENXIO.
#[cfg(target_arch = "x86_64")]
const KERNELS_OWN: [(i64, &str); 2] = [(335, "killed 4"), (336, "6")];
#[cfg(not(target_arch = "x86_64"))]
const KERNELS_OWN: [(i64, &str); 0] = [];

/// What the program said of a call: its number, and the error or how it ended.
type Made = (i64, String);

/// Builds the program as a static binary, so that it needs nothing of the slot.
fn build() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("calls");
    let built = Command::new("cc")
        .args(["-static", "-O1", "-s", "-Wall", "-Werror", "-o"])
        .arg(&program)
        .arg(SOURCE)
        .status()
        .unwrap();
    assert!(built.success());
    fs::read(program).unwrap()
}

/// Carries the program into a slot with the code of an execution, and runs it there.
async fn make_calls(node: &Node, numbers: &[i64]) -> Vec<Made> {
    let mut program = String::new();
    for byte in build() {
        write!(program, "{byte:02x}").unwrap();
    }
    let code = format!(
        "import os, subprocess\n\
         with open('/workspace/calls', 'wb') as file: file.write(bytes.fromhex('{program}'))\n\
         os.chmod('/workspace/calls', 0o755)\n\
         subprocess.run(['/workspace/calls'] + [str(n) for n in {numbers:?}], check=True)\n"
    );
    let seen = node.run(python(&code)).await;
    let made: Vec<Made> = seen
        .out()
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(number, outcome)| (number.parse().unwrap(), outcome.to_owned()))
        .collect();
    assert_eq!(made.len(), numbers.len(), "{} {:?}", seen.err(), seen.outcome);
    made
}

fn came_through(made: Vec<Made>, errors: &[Errno]) -> Vec<Made> {
    let is_one = |number: i32| errors.iter().any(|errno| errno.raw_os_error() == number);
    let is_refused = |outcome: &str| outcome.parse().is_ok_and(is_one);
    made.into_iter()
        .filter(|(_, outcome)| !is_refused(outcome))
        .filter(|(number, outcome)| !KERNELS_OWN.contains(&(*number, outcome)))
        .collect()
}

#[tokio::test]
async fn calls_outside_the_list_do_not_come_through() {
    let node = Node::with(&["python"]).await;
    let others: Vec<i64> =
        (0..=LAST).filter(|number| !isolate::seccomp::is_known(*number)).collect();
    assert!(others.len() > 400, "{}", others.len());
    let made = make_calls(&node, &others).await;
    assert_eq!(came_through(made, &[Errno::PERM, Errno::NOSYS]), []);
}

/// The same calls with a bit that asks for another calling convention.
#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn no_call_of_the_x32_convention_comes_through() {
    let node = Node::with(&["python"]).await;
    let all: Vec<i64> = (0..=LAST).map(|number| 0x4000_0000 | number).collect();
    assert_eq!(came_through(make_calls(&node, &all).await, &[Errno::NOSYS]), []);
}
