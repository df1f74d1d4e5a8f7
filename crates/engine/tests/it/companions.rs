//! Companions: further bodies of a sandbox, judged by what the sandbox sees of them.

use std::time::Duration;

use engine::sandboxes::{Defaults, SandboxError};
use harness::{
    imaging::build,
    packing::{Item, directory, file, symbolic},
    registry::{Fake, honest},
};
use model::{
    event::{EventKind, Sequence},
    exec::ExecEnd,
    execution::Exit,
    life::{CompanionState, EndCause, Phase},
    sandbox::Sandbox,
    spec::{Companion, Healthcheck, Resources, SandboxSpec},
    units::ByteSize,
};
use rustix::process::{Signal, kill_process};
use tokio::time::timeout;

use crate::home::{Home, Server, host, shell, tenant};
use crate::images::listing;

/// Longer than anything takes that works.
const SOON: Duration = Duration::from_mins(1);

fn companion(name: &str, script: &str) -> Companion {
    let command = if script.is_empty() { Vec::new() } else { shell(script).command };
    Companion { name: name.to_owned(), image: "host".to_owned(), command, ..Companion::default() }
}

fn checked(script: &str) -> Healthcheck {
    Healthcheck {
        test: vec!["CMD-SHELL".to_owned(), script.to_owned()],
        interval: Some(Duration::from_millis(50)),
        timeout: Some(Duration::from_secs(5)),
        // So that a slow machine is no sick companion.
        retries: Some(1000),
        start_period: None,
        start_interval: None,
    }
}

/// Says one word to everybody who connects.
fn saying(word: &str, port: u16) -> String {
    format!(
        "exec /usr/bin/python3 -c \"\
         import socket\n\
         listener = socket.create_server(('127.0.0.1', {port}))\n\
         while True:\n\
         \x20   client, _ = listener.accept()\n\
         \x20   client.sendall(b'{word}')\n\
         \x20   client.close()\n\""
    )
}

fn listens(port: u16) -> String {
    format!("grep -q :{port:04X} /proc/net/tcp")
}

/// What the sandbox is told by whom it knows by this name.
fn heard(name: &str, port: u16) -> String {
    format!(
        "/usr/bin/python3 -c \"import socket; \
         print(socket.create_connection(('{name}', {port})).recv(100).decode())\""
    )
}

async fn create(server: &Server, companions: Vec<Companion>) -> Sandbox {
    let spec = SandboxSpec { companions, ..host() };
    let sandbox = server.sandboxes.create(&tenant(), None, spec).await.unwrap();
    server.until(sandbox.id.as_str(), Phase::Active).await
}

/// Waits until something was told of every companion, and returns it.
async fn outcomes(server: &Server, sandbox: &Sandbox) -> Vec<(String, CompanionState)> {
    let name = sandbox.id.as_str();
    let mut events = server.sandboxes.events(&tenant(), name, Sequence::ZERO).await.unwrap();
    loop {
        let now = server.sandboxes.get(&tenant(), name).await.unwrap();
        if now.life.companions.len() == now.spec.companions.len() {
            return now.life.companions.into_iter().collect();
        }
        timeout(SOON, events.next()).await.expect("no event in time").unwrap();
    }
}

fn ready(name: &str) -> (String, CompanionState) {
    (name.to_owned(), CompanionState::Ready)
}

/// Returns why a companion failed.
async fn failure(server: &Server, sandbox: &Sandbox) -> String {
    outcomes(server, sandbox).await;
    let kinds = server.history(sandbox).await;
    let failed = kinds.into_iter().find_map(|kind| match kind {
        EventKind::CompanionFailed { message, .. } => Some(message),
        _ => None,
    });
    let now = server.sandboxes.get(&tenant(), sandbox.id.as_str()).await.unwrap();
    assert_eq!(now.life.phase, Phase::Active, "the sandbox goes on");
    failed.expect("it did not fail")
}

#[tokio::test]
async fn a_sandbox_reaches_its_companions_by_name_and_nothing_else_of_them() {
    let home = Home::new();
    let server = home.start().await;
    let db = Companion {
        env: [("MINE".to_owned(), "x".to_owned())].into(),
        healthcheck: Some(checked(&listens(5432))),
        ..companion("db", &format!("echo $MINE > /workspace/file; {}", saying("data", 5432)))
    };
    let sandbox = create(&server, vec![db, companion("cache", "")]).await;
    assert_eq!(outcomes(&server, &sandbox).await, [ready("cache"), ready("db")]);
    assert_eq!(server.run(&sandbox, &heard("db", 5432)).await.1, "data\n");
    let (end, _) = server.run(&sandbox, "grep -q 'db cache' /etc/hosts").await;
    assert_eq!(end, ExecEnd::Exited(Exit::Code(0)));
    // Neither its processes nor its files, nor what it was given.
    let script = "ls /workspace; cat /proc/[0-9]*/cmdline | grep -c create_serve[r]; echo $MINE";
    assert_eq!(server.run(&sandbox, script).await.1, "0\n\n");
    let file = home.enter(&format!("{}-0", sandbox.id), &["cat", "/workspace/file"], b"");
    assert_eq!(file, b"x\n");
    server.end().await;
}

/// Names the events of companions and of the sandbox's readiness, in order.
async fn starts(server: &Server, sandbox: &Sandbox) -> Vec<String> {
    let told = server.history(sandbox).await.into_iter().filter_map(|kind| match kind {
        EventKind::CompanionReady { name } => Some(format!("{name} ready")),
        EventKind::CompanionFailed { name, .. } => Some(format!("{name} failed")),
        EventKind::Ready => Some("sandbox ready".to_owned()),
        _ => None,
    });
    told.collect()
}

#[tokio::test]
async fn companions_that_have_started_or_failed_are_told_of_before_the_sandbox_is_ready() {
    let home = Home::new();
    let server = home.start().await;
    let missing = Companion { command: vec!["/no/such".to_owned()], ..companion("missing", "") };
    // Its check passes when the sandbox is long ready, which does not wait for it.
    let check = checked("[ -e /workspace/go ]");
    let slow = Companion { healthcheck: Some(check), ..companion("slow", "sleep 1000") };
    let sandbox = create(&server, vec![companion("quick", ""), missing, slow]).await;
    let name = sandbox.id.as_str();
    let go = || home.enter(&format!("{name}-2"), &["touch", "/workspace/go"], b"");
    go();
    outcomes(&server, &sandbox).await;
    let mut first = starts(&server, &sandbox).await;
    first[..2].sort();
    assert_eq!(first, ["missing failed", "quick ready", "sandbox ready", "slow ready"]);
    server.sandboxes.stop(&tenant(), name).await.unwrap();
    server.until(name, Phase::Stopped).await;
    server.sandboxes.resume(&tenant(), name).await.unwrap();
    server.until(name, Phase::Active).await;
    let again = starts(&server, &sandbox).await.split_off(4);
    let position = |wanted: &str| again.iter().position(|it| it == wanted).unwrap();
    assert!(position("quick ready") < position("sandbox ready"), "{again:?}");
    assert!(position("missing failed") < position("sandbox ready"), "{again:?}");
    server.end().await;
}

#[tokio::test]
async fn a_companion_that_cannot_run_or_is_not_healthy_fails_and_the_sandbox_goes_on() {
    let home = Home::new();
    let server = home.start().await;
    let missing = Companion { command: vec!["/no/such".to_owned()], ..companion("a", "") };
    let sandbox = create(&server, vec![missing]).await;
    let message = failure(&server, &sandbox).await;
    assert!(message.contains("before it began"), "{message}");
    let check = Healthcheck { retries: Some(3), ..checked("exit 1") };
    let sick = Companion { healthcheck: Some(check), ..companion("a", "sleep 1000") };
    let sandbox = create(&server, vec![sick]).await;
    let message = failure(&server, &sandbox).await;
    assert_eq!(message, "its check failed 3 times in a row");
    let timeout = Some(Duration::from_millis(50));
    let check = Healthcheck { timeout, retries: Some(3), ..checked("sleep 1000") };
    let slow = Companion { healthcheck: Some(check), ..companion("a", "sleep 1000") };
    let sandbox = create(&server, vec![slow]).await;
    // Which of the two comes first depends on how fast the machine is.
    let message = failure(&server, &sandbox).await;
    assert!(message.contains("in a row") || message.contains("within"), "{message}");
    server.end().await;
}

#[tokio::test]
async fn a_companion_that_keeps_ending_fails_after_it_was_ready() {
    let home = Home::new();
    let crash_window = Duration::from_millis(200);
    let server = home.start_with(Defaults { crash_window, ..Defaults::default() }).await;
    let sandbox = create(&server, vec![companion("a", "exit 3")]).await;
    let name = sandbox.id.as_str();
    let mut events = server.sandboxes.events(&tenant(), name, Sequence::ZERO).await.unwrap();
    let mut told = Vec::new();
    while told.len() < 2 {
        match timeout(SOON, events.next()).await.expect("no event in time").unwrap().unwrap().kind {
            EventKind::CompanionReady { .. } => told.push("ready".to_owned()),
            EventKind::CompanionFailed { message, .. } => told.push(message),
            _ => {}
        }
    }
    assert_eq!(told[0], "ready");
    assert!(told[1].ends_with("with code 3"), "{told:?}");
    server.end().await;
}

#[tokio::test]
async fn commands_run_in_the_sandbox_before_a_healthy_companion_is_told_of() {
    let home = Home::new();
    let server = home.start().await;
    let lines = ["echo one >> /workspace/posts", "echo two >> /workspace/posts"];
    let post_start_on_primary = lines.map(str::to_owned).to_vec();
    let healthcheck = Some(checked("true"));
    let db = Companion { healthcheck, post_start_on_primary, ..companion("db", "sleep 1000") };
    let failing = Companion {
        name: "other".to_owned(),
        post_start_on_primary: vec!["exit 9".to_owned()],
        ..db.clone()
    };
    let sandbox = create(&server, vec![db, failing]).await;
    let failed = ("other".to_owned(), CompanionState::Failed);
    assert_eq!(outcomes(&server, &sandbox).await, [ready("db"), failed]);
    assert_eq!(server.run(&sandbox, "cat /workspace/posts").await.1, "one\ntwo\n");
    let message = failure(&server, &sandbox).await;
    assert_eq!(message, "post_start_on_primary[0] ended with code 9");
    server.end().await;
}

#[tokio::test]
async fn companions_stop_and_come_back_with_their_sandbox_and_keep_their_files() {
    let home = Home::new();
    let server = home.start().await;
    let script = format!("date +%s%N >> /workspace/starts; {}", saying("back", 5432));
    let db = Companion { healthcheck: Some(checked(&listens(5432))), ..companion("db", &script) };
    let sandbox = create(&server, vec![db]).await;
    let name = sandbox.id.as_str();
    assert_eq!(outcomes(&server, &sandbox).await, [ready("db")]);
    server.sandboxes.stop(&tenant(), name).await.unwrap();
    server.until(name, Phase::Stopped).await;
    server.sandboxes.resume(&tenant(), name).await.unwrap();
    server.until(name, Phase::Active).await;
    assert_eq!(outcomes(&server, &sandbox).await, [ready("db")]);
    assert_eq!(server.run(&sandbox, &heard("db", 5432)).await.1, "back\n");
    let starts = home.enter(&format!("{name}-0"), &["cat", "/workspace/starts"], b"");
    assert_eq!(String::from_utf8_lossy(&starts).lines().count(), 2);
    let kinds = server.history(&sandbox).await;
    let told = kinds.iter().filter(|kind| matches!(kind, EventKind::CompanionReady { .. }));
    assert_eq!(told.count(), 2, "{kinds:?}");
    server.end().await;
}

#[tokio::test]
async fn a_new_server_finds_companions_as_they_were_and_tells_nothing_twice() {
    let home = Home::new();
    let server = home.start().await;
    let script = format!("echo start >> /workspace/starts; {}", saying("same", 5432));
    let db = Companion { healthcheck: Some(checked(&listens(5432))), ..companion("db", &script) };
    // What has no outcome yet gets one from the next server.
    let check = checked("[ -e /workspace/go ]");
    let late = Companion { healthcheck: Some(check), ..companion("late", "sleep 1000") };
    let sandbox = create(&server, vec![db, late]).await;
    let name = sandbox.id.as_str();
    let mut events = server.sandboxes.events(&tenant(), name, Sequence::ZERO).await.unwrap();
    loop {
        let next = timeout(SOON, events.next()).await.expect("no event in time");
        if matches!(next.unwrap().unwrap().kind, EventKind::CompanionReady { .. }) {
            break;
        }
    }
    server.crash().await;
    home.enter(&format!("{name}-1"), &["touch", "/workspace/go"], b"");
    let server = home.start().await;
    assert_eq!(outcomes(&server, &sandbox).await, [ready("db"), ready("late")]);
    assert_eq!(server.run(&sandbox, &heard("db", 5432)).await.1, "same\n");
    let starts = home.enter(&format!("{name}-0"), &["cat", "/workspace/starts"], b"");
    assert_eq!(starts, b"start\n");
    let kinds = server.history(&sandbox).await;
    let told = kinds.iter().filter(|kind| matches!(kind, EventKind::CompanionReady { .. }));
    assert_eq!(told.count(), 2, "{kinds:?}");
    server.end().await;
}

#[tokio::test]
async fn of_a_deleted_sandbox_no_companion_is_left() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = create(&server, vec![companion("a", "sleep 1000"), companion("b", "")]).await;
    let name = sandbox.id.as_str();
    outcomes(&server, &sandbox).await;
    server.sandboxes.delete(&tenant(), name, EndCause::Requested).await.unwrap();
    server.until(name, Phase::Terminated).await;
    assert_eq!(home.folders(), [""; 0]);
    server.end().await;
}

#[tokio::test]
async fn companions_stand_still_with_their_sandbox() {
    let home = Home::new();
    let server = home.start().await;
    harness::needs::require("cgroups", server.has_cgroups());
    let busy = companion("busy", "while :; do date +%s%N > /workspace/now; done");
    let busy = Companion { healthcheck: Some(checked("[ -s /workspace/now ]")), ..busy };
    let sandbox = create(&server, vec![busy]).await;
    let name = sandbox.id.as_str();
    assert_eq!(outcomes(&server, &sandbox).await, [ready("busy")]);
    server.sandboxes.freeze(&tenant(), name).await.unwrap();
    let clock = || home.enter(&format!("{name}-0"), &["cat", "/workspace/now"], b"");
    let before = clock();
    let other = server.ready().await;
    server.run(&other, "seq 1 1000").await;
    assert_eq!(clock(), before);
    assert_eq!(server.run(&sandbox, "echo awake").await.1, "awake\n");
    server.end().await;
}

#[tokio::test]
async fn a_companion_has_limits_of_its_own() {
    let home = Home::new();
    let server = home.start().await;
    harness::needs::require("cgroups", server.has_cgroups());
    let resources = Resources { memory: Some(ByteSize::mib(64)), ..Resources::default() };
    let hog =
        "/usr/bin/python3 -c 'x = bytearray(200 << 20)'; echo $? > /workspace/code; sleep 1000";
    let healthcheck = Some(checked("[ -s /workspace/code ]"));
    let hog = Companion { resources, healthcheck, ..companion("hog", hog) };
    let spec = SandboxSpec { companions: vec![hog], ..host() };
    let sandbox = server.sandboxes.create(&tenant(), None, spec).await.unwrap();
    let name = sandbox.id.as_str();
    assert_eq!(outcomes(&server, &sandbox).await, [ready("hog")]);
    let code = home.enter(&format!("{name}-0"), &["cat", "/workspace/code"], b"");
    assert_eq!(code, b"137\n");
    let fine = "/usr/bin/python3 -c 'x = bytearray(200 << 20)'; echo $?";
    assert_eq!(server.run(&sandbox, fine).await.1, "0\n");
    server.end().await;
}

#[tokio::test]
async fn without_cgroups_limits_of_a_companion_are_refused() {
    let home = Home::new();
    let server = home.start_without_cgroups().await;
    let resources = Resources { memory: Some(ByteSize::mib(64)), ..Resources::default() };
    let limited = Companion { resources, ..companion("db", "sleep 1000") };
    let spec = SandboxSpec { companions: vec![limited], ..host() };
    let created = server.sandboxes.create(&tenant(), None, spec).await;
    assert!(matches!(created, Err(SandboxError::Field { .. })), "{created:?}");
    server.end().await;
}

#[tokio::test]
async fn checks_leave_no_output_behind() {
    let home = Home::new();
    let server = home.start().await;
    let healthcheck = Some(checked("echo checking; [ -s /workspace/up ]"));
    let db = companion("db", "echo up > /workspace/up; sleep 1000");
    let sandbox = create(&server, vec![Companion { healthcheck, ..db }]).await;
    outcomes(&server, &sandbox).await;
    let name = sandbox.id.as_str();
    server.sandboxes.stop(&tenant(), name).await.unwrap();
    server.until(name, Phase::Stopped).await;
    let left: Vec<String> = std::fs::read_dir(home.folder().join(format!("{name}-0/out")))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|file| file.starts_with("_check-"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
    server.end().await;
}

#[tokio::test]
async fn companions_that_cannot_be_made_are_refused() {
    let home = Home::new();
    let server = home.start().await;
    let disk = Resources { disk: Some(ByteSize::mib(1)), ..Resources::default() };
    let many = (0..17).map(|number| companion(&format!("c{number}"), "")).collect();
    let large = companion("a", &"x".repeat(200_000));
    let refused: [Vec<Companion>; 3] =
        [vec![large], vec![Companion { resources: disk, ..companion("a", "") }], many];
    for companions in refused {
        let spec = SandboxSpec { companions, ..host() };
        let answer = server.sandboxes.create(&tenant(), None, spec).await;
        let refusal = answer.expect_err("it cannot be made");
        let is_typed = matches!(
            refusal,
            SandboxError::Invalid(_) | SandboxError::Field { .. } | SandboxError::Resource(_)
        );
        assert!(is_typed, "{refusal:?}");
    }
    server.end().await;
}

#[tokio::test]
async fn a_companion_is_made_of_its_image_and_run_as_that_says() {
    let busybox = std::fs::read("/bin/busybox").unwrap();
    let system = build(&[vec![
        directory("bin"),
        Item { mode: 0o755, ..file("bin/busybox", busybox) },
        symbolic("bin/sh", "busybox"),
        directory("srv"),
        file("srv/motd", "from its image"),
    ]]);
    let registry = Fake::start(move |asked: &_| honest(&system, asked));
    let home = Home::with_images(listing(&[registry.address.to_string()]));
    let server = home.start().await;
    // Neither a folder nor a user is asked for: both are the image's.
    let script = "busybox id -u > who; busybox grep -c web /etc/hosts >> who; \
                  exec busybox httpd -f -p 127.0.0.1:7000";
    let web = Companion {
        image: format!("{}/web:latest", registry.address),
        healthcheck: Some(checked(&format!("busybox {}", listens(7000)))),
        ..companion("web", script)
    };
    let sandbox = create(&server, vec![web]).await;
    assert_eq!(outcomes(&server, &sandbox).await, [ready("web")]);
    let fetch = "/usr/bin/python3 -c \"import urllib.request; \
                 print(urllib.request.urlopen('http://web:7000/motd').read().decode())\"";
    assert_eq!(server.run(&sandbox, fetch).await.1, "from its image\n");
    let who = home.enter(&format!("{}-0", sandbox.id), &["/bin/busybox", "cat", "/srv/who"], b"");
    let user = if rustix::process::geteuid().is_root() { 0 } else { 1000 };
    assert_eq!(String::from_utf8_lossy(&who), format!("{user}\n1\n"));
    server.end().await;
}

#[tokio::test]
async fn a_companion_is_held_as_its_sandbox_is_and_shares_users_and_network_alone() {
    let home = Home::new();
    let server = home.start().await;
    let look = "grep -E '^(Cap|NoNewPrivs|Seccomp:|Uid)' /proc/self/status; \
                for kind in user net pid mnt ipc uts; do readlink /proc/self/ns/$kind; done";
    let script = format!(
        "{{ {look}; }} > /workspace/held.new; \
                          mv /workspace/held.new /workspace/held; exec sleep 1000"
    );
    let healthcheck = Some(checked("[ -e /workspace/held ]"));
    let held = Companion { healthcheck, ..companion("held", &script) };
    let sandbox = create(&server, vec![held]).await;
    assert_eq!(outcomes(&server, &sandbox).await, [ready("held")]);
    let theirs = home.enter(&format!("{}-0", sandbox.id), &["cat", "/workspace/held"], b"");
    let (theirs, own) = (String::from_utf8(theirs).unwrap(), server.run(&sandbox, look).await.1);
    let (theirs, own): (Vec<&str>, Vec<&str>) = (theirs.lines().collect(), own.lines().collect());
    let (rights, spaces) = own.split_at(own.len() - 6);
    assert!(rights.len() >= 8, "{rights:?}");
    assert_eq!(theirs[..rights.len()], *rights);
    let shared: Vec<&str> = spaces.iter().filter(|it| theirs.contains(it)).copied().collect();
    assert_eq!(shared, spaces[..2]);
    server.end().await;
}

#[tokio::test]
async fn a_companion_is_asked_to_end_before_it_is_made_to() {
    let home = Home::new();
    let server = home.start().await;
    let script = "trap 'echo bye > /workspace/bye; exit' TERM; echo > /workspace/up; \
                  while :; do sleep 1000 & wait $!; done";
    let healthcheck = Some(checked("[ -e /workspace/up ]"));
    let polite = Companion { healthcheck, ..companion("polite", script) };
    let sandbox = create(&server, vec![polite]).await;
    let name = sandbox.id.as_str();
    assert_eq!(outcomes(&server, &sandbox).await, [ready("polite")]);
    server.sandboxes.stop(&tenant(), name).await.unwrap();
    server.until(name, Phase::Stopped).await;
    server.sandboxes.resume(&tenant(), name).await.unwrap();
    server.until(name, Phase::Active).await;
    assert_eq!(outcomes(&server, &sandbox).await, [ready("polite")]);
    let bye = home.enter(&format!("{name}-0"), &["cat", "/workspace/bye"], b"");
    assert_eq!(bye, b"bye\n");
    server.end().await;
}

#[tokio::test]
async fn a_companion_whose_supervisor_died_is_made_again() {
    let home = Home::new();
    let server = home.start().await;
    let starts = "$(grep -c start /workspace/starts)";
    let script = format!("echo start >> /workspace/starts; {}", saying(starts, 5432));
    let db = Companion { healthcheck: Some(checked(&listens(5432))), ..companion("db", &script) };
    let sandbox = create(&server, vec![db]).await;
    assert_eq!(outcomes(&server, &sandbox).await, [ready("db")]);
    let name = format!("{}-0", sandbox.id);
    kill_process(home.supervisor_of(&name), Signal::KILL).unwrap();
    // The old one may answer once more before it is gone.
    let again = format!("until [ \"$({})\" = 2 ]; do :; done 2>/dev/null", heard("db", 5432));
    server.run(&sandbox, &again).await;
    let kinds = server.history(&sandbox).await;
    let told = kinds.iter().filter(|kind| {
        matches!(kind, EventKind::CompanionReady { .. } | EventKind::CompanionFailed { .. })
    });
    assert_eq!(told.count(), 1, "{kinds:?}");
    server.end().await;
}
