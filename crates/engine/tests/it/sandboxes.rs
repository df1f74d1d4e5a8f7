//! Long-lived sandboxes on a real engine, with a real spawner and real supervisors.

use engine::sandboxes::{Defaults, SandboxError, Taken};
use model::{
    event::{EventKind, Sequence},
    exec::{ExecEnd, Loss},
    execution::Exit,
    life::{EndCause, FailureCause, Phase, SuspendReason},
    sandbox::{Refusal, WhenStopped},
    spec::{ExecSpec, Idle, Resources, SandboxSpec, Suspend},
    units::ByteSize,
};

use rustix::process::{Signal, kill_process};

use crate::home::{Home, host, shell, tenant};

#[tokio::test]
async fn a_command_runs_and_its_end_and_output_are_kept() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let (end, output) = server.run(&sandbox, "id -u; pwd; echo \"$HOME\"; exit 7").await;
    assert_eq!(end, ExecEnd::Exited(Exit::Code(7)));
    assert_eq!(output, "1000\n/workspace\n/home/agbox\n");
    let kinds = server.history(&sandbox).await;
    assert!(
        matches!(
            kinds.as_slice(),
            [
                EventKind::Accepted,
                EventKind::Preparing { .. },
                EventKind::Ready,
                EventKind::ExecStarted { .. },
                EventKind::ExecEnded { .. },
            ]
        ),
        "{kinds:?}"
    );
    server.end().await;
}

#[tokio::test]
async fn the_workspace_is_also_at_work() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let script = "echo text > /work/file; cat /workspace/file; readlink /work";
    let (_, output) = server.run(&sandbox, script).await;
    assert_eq!(output, "text\nworkspace\n");
    server.end().await;
}

#[tokio::test]
async fn a_program_that_is_not_found_ends_with_127_and_one_that_cannot_be_executed_with_126() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    for (program, directory, code, why) in [
        ("/no/such/program", "/", 127, "command not found"),
        ("no-such-program", "/", 127, "command not found"),
        ("/etc/passwd", "/", 126, "cannot be executed"),
        ("/workspace", "/", 126, "cannot be executed"),
        ("true", "/no/such/directory", 126, "working directory"),
    ] {
        let (command, working_directory) = (vec![program.to_owned()], directory.to_owned());
        let spec = ExecSpec { command, working_directory, ..ExecSpec::default() };
        let started = server.start(&sandbox, spec).await;
        let end = server.end_of(&started.exec.id).await;
        assert_eq!(end.exit_code(), Some(code), "{program}: {end:?}");
        let ExecEnd::NotStarted { message, .. } = end else { panic!("{program}: {end:?}") };
        assert!(message.contains(why), "{program}: {message}");
    }
    server.end().await;
}

#[tokio::test]
async fn files_stay_over_stop_and_resume_and_processes_do_not() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let name = sandbox.id.as_str();
    for folder in ["/workspace", "/home/agbox", "/tmp", "/var/tmp"] {
        let (end, _) = server.run(&sandbox, &format!("echo kept > {folder}/note")).await;
        assert_eq!(end, ExecEnd::Exited(Exit::Code(0)), "{folder}");
    }
    let left = server.start(&sandbox, shell("sleep 1000 & wait")).await;
    assert_eq!(server.sandboxes.stop(&tenant(), name).await.unwrap(), Taken::Accepted);
    server.until(name, Phase::Stopped).await;
    let end = server.end_of(&left.exec.id).await;
    assert_eq!(end, ExecEnd::Exited(Exit::Signal(15)));
    assert_eq!(server.sandboxes.resume(&tenant(), name).await.unwrap(), Taken::Accepted);
    server.until(name, Phase::Active).await;
    let script = "cat /workspace/note /home/agbox/note /tmp/note /var/tmp/note; \
                  cat /proc/[0-9]*/comm | grep -c sleep";
    let (_, output) = server.run(&sandbox, script).await;
    assert_eq!(output, "kept\nkept\nkept\nkept\n0\n");
    server.end().await;
}

#[tokio::test]
async fn a_deleted_sandbox_leaves_nothing_and_stays_readable() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let name = sandbox.id.as_str();
    let left = server.start(&sandbox, shell("sleep 1000")).await;
    let deleted = server.sandboxes.delete(&tenant(), name, EndCause::Requested).await.unwrap();
    assert_eq!(deleted, Taken::Accepted);
    let gone = server.until(name, Phase::Terminated).await;
    assert_eq!(gone.life.end, Some(EndCause::Requested));
    assert_eq!(server.end_of(&left.exec.id).await, ExecEnd::Lost(Loss::SandboxDeleted));
    assert!(!home.folder().join(name).exists());
    let again = server.sandboxes.delete(&tenant(), name, EndCause::Requested).await.unwrap();
    assert_eq!(again, Taken::AlreadySo);
    let refused = server.sandboxes.stop(&tenant(), name).await;
    assert!(matches!(refused, Err(SandboxError::Refused(Refusal::Gone))), "{refused:?}");
    server.end().await;
}

#[tokio::test]
async fn a_cancelled_command_is_over_at_once_and_its_processes_end() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    // Without control groups only the command's own process group is known.
    let detached = if server.has_cgroups() { "setsid" } else { "" };
    let script = format!("{detached} sh -c 'echo $$ > /workspace/pid; exec sleep 1000' & wait");
    let started = server.start(&sandbox, shell(&script)).await;
    server.run(&sandbox, "until [ -s /workspace/pid ]; do :; done").await;
    server.sandboxes.cancel_exec(&tenant(), &started.exec.id).await.unwrap();
    assert_eq!(server.end_of(&started.exec.id).await, ExecEnd::Cancelled);
    let script = "while kill -0 $(cat /workspace/pid) 2>/dev/null; do :; done; echo gone";
    assert_eq!(server.run(&sandbox, script).await.1, "gone\n");
    let again = server.sandboxes.cancel_exec(&tenant(), &started.exec.id).await;
    assert!(matches!(again, Err(SandboxError::ExecEnded)), "{again:?}");
    server.end().await;
}

#[tokio::test]
async fn a_frozen_sandbox_stands_still_until_it_is_used() {
    let home = Home::new();
    let server = home.start().await;
    harness::needs::require("cgroups", server.has_cgroups());
    let sandbox = server.ready().await;
    let name = sandbox.id.as_str();
    server.start(&sandbox, shell("while :; do date +%s%N > /workspace/now; done")).await;
    server.run(&sandbox, "until [ -s /workspace/now ]; do :; done").await;
    assert_eq!(server.sandboxes.freeze(&tenant(), name).await.unwrap(), Taken::Accepted);
    assert_eq!(server.sandboxes.freeze(&tenant(), name).await.unwrap(), Taken::AlreadySo);
    assert_eq!(server.sandboxes.get(&tenant(), name).await.unwrap().life.phase, Phase::Frozen);
    let clock = || home.enter(name, &["cat", "/workspace/now"], b"");
    let before = clock();
    // Others go on meanwhile, for longer than one turn of the loop takes.
    let other = server.ready().await;
    server.run(&other, "seq 1 1000").await;
    assert_eq!(clock(), before);
    assert_eq!(server.run(&sandbox, "echo awake").await.1, "awake\n");
    let kinds = server.history(&sandbox).await;
    let frozen = kinds.iter().filter(|kind| matches!(kind, EventKind::Frozen(_))).count();
    let thawed = kinds.iter().filter(|kind| matches!(kind, EventKind::Thawed)).count();
    assert_eq!((frozen, thawed), (1, 1));
    server.end().await;
}

#[tokio::test]
async fn a_new_server_finds_sandboxes_commands_and_output_as_they_were() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let ended =
        server.start(&sandbox, shell("until [ -e /workspace/go ]; do :; done; exit 5")).await;
    let script = "echo $$; until [ -e /workspace/go ]; do :; done; seq 1 20000; \
                  until [ -e /workspace/end ]; do :; done; echo $$; exit 3";
    let running = server.start(&sandbox, shell(script)).await;
    server.crash().await;
    // While nobody is there, one command ends and the other goes on writing.
    home.enter(sandbox.id.as_str(), &["touch", "/workspace/go"], b"");

    let server = home.start().await;
    assert_eq!(server.end_of(&ended.exec.id).await, ExecEnd::Exited(Exit::Code(5)));
    home.enter(sandbox.id.as_str(), &["touch", "/workspace/end"], b"");
    assert_eq!(server.end_of(&running.exec.id).await, ExecEnd::Exited(Exit::Code(3)));
    let output = std::fs::read_to_string(&running.stdout).unwrap();
    let lines: Vec<&str> = output.lines().collect();
    let numbers: Vec<String> = (1..=20000).map(|number| number.to_string()).collect();
    assert_eq!(lines.first(), lines.last(), "the same process");
    assert_eq!(lines[1..lines.len() - 1], numbers);
    assert_eq!(server.run(&sandbox, "echo here").await.1, "here\n");
    server.end().await;
}

#[tokio::test]
async fn a_sandbox_whose_supervisor_died_is_stopped_and_using_it_starts_it_with_its_files() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let name = sandbox.id.as_str();
    server.run(&sandbox, "echo kept > /workspace/file").await;
    let started = server.start(&sandbox, shell("sleep 1000")).await;
    kill_process(home.supervisor_of(name), Signal::KILL).unwrap();
    let stopped = server.until(name, Phase::Stopped).await;
    assert_eq!(stopped.life.suspended_for, Some(SuspendReason::SupervisorLost));
    assert_eq!(stopped.life.failure, None);
    assert_eq!(server.end_of(&started.exec.id).await, ExecEnd::Lost(Loss::SupervisorLost));
    let again = shell("cat /workspace/file");
    let resume = WhenStopped::Resume;
    let read = server.sandboxes.start_exec(&tenant(), name, None, again, resume).await.unwrap();
    assert_eq!(server.end_of(&read.exec.id).await, ExecEnd::Exited(Exit::Code(0)));
    assert_eq!(std::fs::read_to_string(&read.stdout).unwrap(), "kept\n");
    let deleted = server.sandboxes.delete(&tenant(), name, EndCause::Requested).await.unwrap();
    assert_eq!(deleted, Taken::Accepted);
    server.until(name, Phase::Terminated).await;
    server.end().await;
}

#[tokio::test]
async fn an_unused_sandbox_stops_and_one_with_a_command_does_not() {
    let home = Home::new();
    let server = home.start().await;
    let after = std::time::Duration::from_secs(2);
    let idle = Some(Idle { after, then: Suspend::Stop });
    let spec = SandboxSpec { idle, ..host() };
    let sandbox = server.sandboxes.create(&tenant(), None, spec).await.unwrap();
    let name = sandbox.id.as_str();
    server.until(name, Phase::Active).await;
    let (end, _) = server.run(&sandbox, "sleep 4").await;
    assert_eq!(end, ExecEnd::Exited(Exit::Code(0)));
    let stopped = server.until(name, Phase::Stopped).await;
    assert_eq!(stopped.life.suspended_for, Some(SuspendReason::Idle));
    server.end().await;
}

#[tokio::test]
async fn using_a_stopped_sandbox_starts_it_where_that_is_wanted() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let name = sandbox.id.as_str();
    server.sandboxes.stop(&tenant(), name).await.unwrap();
    server.until(name, Phase::Stopped).await;
    let tenant = tenant();
    let start = |when| server.sandboxes.start_exec(&tenant, name, None, shell("echo up"), when);
    let refused = start(WhenStopped::Refuse).await;
    assert!(matches!(refused, Err(SandboxError::Refused(Refusal::WrongPhase(_)))), "{refused:?}");
    let started = start(WhenStopped::Resume).await.unwrap();
    assert_eq!(server.end_of(&started.exec.id).await, ExecEnd::Exited(Exit::Code(0)));
    server.end().await;
}

/// What cannot be held is not promised.
#[tokio::test]
async fn without_cgroups_freezing_is_refused_and_so_are_limits_of_memory_and_processor_time() {
    let home = Home::new();
    let server = home.start_without_cgroups().await;
    let sandbox = server.ready().await;
    let frozen = server.sandboxes.freeze(&tenant(), sandbox.id.as_str()).await;
    assert!(matches!(frozen, Err(SandboxError::Unavailable(_))), "{frozen:?}");
    assert_eq!(server.run(&sandbox, "echo awake").await.1, "awake\n");
    let memory = Resources { memory: Some(ByteSize::mib(64)), ..Resources::default() };
    let processor = Resources { millicores: Some(100), ..Resources::default() };
    for resources in [memory, processor] {
        let spec = SandboxSpec { resources, ..host() };
        let created = server.sandboxes.create(&tenant(), None, spec).await;
        assert!(matches!(created, Err(SandboxError::Field { .. })), "{created:?}");
    }
    server.end().await;
}

#[tokio::test]
async fn a_command_that_needs_too_much_memory_is_killed_alone() {
    let home = Home::new();
    let server = home.start().await;
    harness::needs::require("cgroups", server.has_cgroups());
    let resources = Resources { memory: Some(ByteSize::mib(64)), ..Resources::default() };
    let spec = SandboxSpec { resources, ..host() };
    let sandbox = server.sandboxes.create(&tenant(), None, spec).await.unwrap();
    server.until(sandbox.id.as_str(), Phase::Active).await;
    let neighbour = server.start(&sandbox, shell("read line; echo still here")).await;
    let hog = "exec /usr/bin/python3 -c 'x = bytearray(200 << 20)'";
    assert_eq!(server.run(&sandbox, hog).await.0, ExecEnd::Exited(Exit::Signal(9)));
    assert_eq!(server.run(&sandbox, "echo fine").await.1, "fine\n");
    let running = server.sandboxes.running_execs(&tenant(), None).await.unwrap();
    assert_eq!(running.len(), 1);
    assert_eq!(running[0].exec.id, neighbour.exec.id);
    server.end().await;
}

#[tokio::test]
async fn processor_time_is_limited() {
    let home = Home::new();
    let server = home.start().await;
    harness::needs::require("cgroups", server.has_cgroups());
    let resources = Resources { millicores: Some(100), ..Resources::default() };
    let spec = SandboxSpec { resources, ..host() };
    let sandbox = server.sandboxes.create(&tenant(), None, spec).await.unwrap();
    server.until(sandbox.id.as_str(), Phase::Active).await;
    let script = "import os, time\n\
        end = time.monotonic() + 1\n\
        while time.monotonic() < end: pass\n\
        print(sum(os.times()[:2]))";
    let (_, used) = server.run(&sandbox, &format!("exec /usr/bin/python3 -c '{script}'")).await;
    // A tenth of the second, a period more at its beginning, and the start of Python.
    let used: f64 = used.trim().parse().unwrap();
    assert!(used < 0.5, "{used}");
    server.end().await;
}

#[tokio::test]
async fn a_fork_bomb_is_held_and_cancelled() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let bomb = "bomb() { bomb | bomb & }; bomb; sleep 1000";
    let bomb = server.start(&sandbox, shell(bomb)).await;
    server.sandboxes.cancel_exec(&tenant(), &bomb.exec.id).await.unwrap();
    assert_eq!(server.end_of(&bomb.exec.id).await, ExecEnd::Cancelled);
    // The supervisor is not held by what holds the bomb.
    let name = sandbox.id.as_str();
    server.sandboxes.stop(&tenant(), name).await.unwrap();
    server.until(name, Phase::Stopped).await;
    server.end().await;
}

/// Counts the processes of the machine that have this word among their arguments.
fn processes(word: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let lines = all.filter_map(|process| std::fs::read(process.join("cmdline")).ok());
    lines.filter(|line| line.split(|byte| *byte == 0).any(|it| it == word.as_bytes())).count()
}

#[tokio::test]
async fn f26_f27_processes_that_hide_stop_ignore_or_multiply_end_with_their_sandbox() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let name = sandbox.id.as_str();
    let word = format!("hostile-{name}");
    let hostile = |script: &str| {
        let command = ["/bin/sh", "-c", script, &word].map(str::to_owned).to_vec();
        ExecSpec { command, ..ExecSpec::default() }
    };
    for script in [
        "(setsid sh -c '(setsid sh -c \"echo > 1; sleep 1000; :\" $0 &)' $0 &)",
        "trap '' HUP INT QUIT TERM; echo > 2; while :; do sleep 1000; done",
        "echo > 3; kill -STOP $$; sleep 1000",
    ] {
        server.start(&sandbox, hostile(script)).await;
    }
    server.run(&sandbox, "until [ -e 1 ] && [ -e 2 ] && [ -e 3 ]; do :; done").await;
    assert_eq!(processes(&word), 3);
    server.start(&sandbox, hostile("bomb() { bomb | bomb & }; bomb; sleep 1000")).await;
    server.sandboxes.delete(&tenant(), name, EndCause::Requested).await.unwrap();
    server.until(name, Phase::Terminated).await;
    assert_eq!(processes(&word), 0);
    server.end().await;
}

#[tokio::test]
async fn the_sandboxes_own_command_runs_and_is_started_again_when_it_ends() {
    let home = Home::new();
    let server = home.start().await;
    let script = "echo $$ >> /workspace/starts; exec sleep 1000";
    let command = shell(script).command;
    let spec = SandboxSpec { command, ..host() };
    let sandbox = server.sandboxes.create(&tenant(), None, spec).await.unwrap();
    server.until(sandbox.id.as_str(), Phase::Active).await;
    let first = "until [ -s /workspace/starts ]; do :; done; cat /workspace/starts";
    let pid = server.run(&sandbox, first).await.1;
    server.crash().await;
    // A new server leaves it alone.
    let server = home.start().await;
    let script = format!("kill -0 {0} && wc -l < /workspace/starts; kill -9 {0}", pid.trim());
    assert_eq!(server.run(&sandbox, &script).await.1, "1\n");
    let again = "until [ $(wc -l < /workspace/starts) = 2 ]; do :; done; echo again";
    assert_eq!(server.run(&sandbox, again).await.1, "again\n");
    server.end().await;
}

#[tokio::test]
async fn a_command_of_the_sandbox_that_keeps_ending_breaks_it() {
    let home = Home::new();
    let crash_window = std::time::Duration::from_millis(200);
    let server = home.start_with(Defaults { crash_window, ..Defaults::default() }).await;
    let spec = SandboxSpec { command: shell("exit 3").command, ..host() };
    let sandbox = server.sandboxes.create(&tenant(), None, spec).await.unwrap();
    let failed = server.until(sandbox.id.as_str(), Phase::Failed).await;
    let failure = failed.life.failure.unwrap();
    assert_eq!(failure.cause, FailureCause::MainProcessCrashed);
    assert!(failure.message.ends_with("with code 3"), "{}", failure.message);
    server.end().await;
}

#[tokio::test]
async fn a_stopped_sandbox_is_deleted_after_a_warning_and_forgotten_when_the_operator_says_so() {
    let home = Home::new();
    // Whoever follows hears of each before it is forgotten.
    let soon = std::time::Duration::from_secs(2);
    let defaults = Defaults { keep_stopped: Some(soon), keep_deleted: soon, ..Defaults::default() };
    let server = home.start_with(defaults).await;
    let sandbox = server.ready().await;
    let name = sandbox.id.as_str();
    let mut events = server.sandboxes.events(&tenant(), name, Sequence::ZERO).await.unwrap();
    server.sandboxes.stop(&tenant(), name).await.unwrap();
    let mut told = Vec::new();
    while let Some(event) = events.next().await.unwrap() {
        told.push(event.kind);
    }
    assert_eq!(told.last(), Some(&EventKind::Deleted(EndCause::CleanupTtl)));
    let is_warning =
        |kind: &&EventKind| matches!(kind, EventKind::EndsSoon { cause: EndCause::CleanupTtl, .. });
    assert_eq!(told.iter().filter(is_warning).count(), 1, "{told:?}");
    let gone = server.sandboxes.get(&tenant(), name).await;
    assert!(matches!(gone, Err(SandboxError::NotFound)), "{gone:?}");
    server.end().await;
}

#[tokio::test]
async fn of_a_sandbox_that_lives_long_only_the_last_events_are_kept() {
    let home = Home::new();
    let kept = 20;
    let server = home.start_with(Defaults { events: kept, ..Defaults::default() }).await;
    let sandbox = server.ready().await;
    let name = sandbox.id.as_str();
    for _ in 0..20 {
        server.sandboxes.freeze(&tenant(), name).await.unwrap();
        server.sandboxes.thaw(&tenant(), name).await.unwrap();
    }
    let latest = server.sandboxes.get(&tenant(), name).await.unwrap().life.sequence;
    // A request is answered after what came before it was seen to.
    server.sandboxes.thaw(&tenant(), name).await.unwrap();
    let gone = server.sandboxes.events(&tenant(), name, Sequence::ZERO).await;
    let Err(SandboxError::OutOfRange { earliest, .. }) = gone else { panic!("{gone:?}") };
    assert!(latest.0 - earliest.0 < kept, "{earliest} to {latest}");
    let mut events =
        server.sandboxes.events(&tenant(), name, Sequence(earliest.0 - 1)).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().sequence, earliest);
    server.end().await;
}

/// Returns the file that limits the memory of a process to this.
fn memory_limit_of(pid: &str, limit: &str) -> std::path::PathBuf {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let of = |kinds: &str| {
        let is_it = |line: &&str| line.split(':').nth(1).unwrap().split(',').any(|it| it == kinds);
        groups.lines().find(is_it).map(|line| line.splitn(3, ':').last().unwrap().to_owned())
    };
    let v1 =
        of("memory").map(|group| format!("/sys/fs/cgroup/memory{group}/memory.limit_in_bytes"));
    let v2 = || of("").map(|group| format!("/sys/fs/cgroup{group}/memory.max"));
    // A command may have a group of its own below that of its sandbox.
    let own = std::path::PathBuf::from(v1.or_else(v2).unwrap());
    let above = own.parent().unwrap().parent().unwrap().join(own.file_name().unwrap());
    let is_it = |file: &std::path::PathBuf| std::fs::read_to_string(file).unwrap().trim() == limit;
    [own, above].into_iter().find(is_it).unwrap()
}

#[tokio::test]
async fn a_server_that_died_before_it_had_set_the_limits_is_followed_by_one_that_does() {
    let home = Home::new();
    let server = home.start().await;
    harness::needs::require("cgroups", server.has_cgroups());
    let resources = Resources { memory: Some(ByteSize::mib(256)), ..Resources::default() };
    let spec = SandboxSpec { resources, ..host() };
    let created = server.sandboxes.create(&tenant(), None, spec).await.unwrap();
    let sandbox = server.until(created.id.as_str(), Phase::Active).await;
    server.start(&sandbox, shell("exec sleep 1000")).await;
    let supervisor = home.supervisor_of(sandbox.id.as_str()).to_string();
    let children = format!("/proc/{supervisor}/task/{supervisor}/children");
    let command = loop {
        // It is in its groups once it is the program that was asked for.
        let children = std::fs::read_to_string(&children).unwrap();
        let is_it = |child: &&str| {
            std::fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|it| it == "sleep\n")
        };
        if let Some(child) = children.split_whitespace().find(is_it) {
            break child.to_owned();
        }
        tokio::task::yield_now().await;
    };
    let limit = memory_limit_of(&command, &(256 << 20).to_string());
    server.crash().await;
    // Any other limit than its own stands for none.
    std::fs::write(&limit, (128 << 20).to_string()).unwrap();
    let server = home.start().await;
    assert_eq!(server.run(&sandbox, "echo back").await.1, "back\n");
    assert_eq!(std::fs::read_to_string(&limit).unwrap().trim(), (256 << 20).to_string());
    server.end().await;
}
