//! Sandboxes made of images.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use engine::{
    images::{Allowed, ImageError, Listener, Settings},
    sandboxes::{News, SandboxError},
};
use harness::{
    imaging::{Built, build, small_system},
    packing::{Item, directory, file, symbolic},
    registry::{Fake, Real, honest},
};
use model::{
    adjustment::Adjustment,
    event::{EventKind, Sequence},
    exec::ExecEnd,
    execution::Exit,
    life::{EndCause, FailureCause, Phase},
    sandbox::Sandbox,
    spec::{ExecSpec, SandboxSpec},
};

use super::bench::listing;
use crate::home::{Home, Server, tenant};

fn of(image: &str) -> SandboxSpec {
    SandboxSpec { image: image.to_owned(), ..SandboxSpec::default() }
}

/// A system whose one file says which it is.
fn system(word: &str) -> Built {
    let busybox = std::fs::read("/bin/busybox").unwrap();
    build(&[
        vec![
            directory("bin"),
            Item { mode: 0o755, ..file("bin/busybox", busybox) },
            symbolic("bin/sh", "busybox"),
        ],
        vec![file("etc/motd", word)],
    ])
}

async fn run(server: &Server, sandbox: &Sandbox, script: &str) -> (ExecEnd, String) {
    let command = ["/bin/busybox", "sh", "-c", script].map(str::to_owned).to_vec();
    let started = server.start(sandbox, ExecSpec { command, ..ExecSpec::default() }).await;
    let end = server.end_of(&started.exec.id).await;
    (end, std::fs::read_to_string(started.stdout).unwrap())
}

const WELL: ExecEnd = ExecEnd::Exited(Exit::Code(0));

#[tokio::test]
async fn a_sandbox_is_made_of_an_image_from_a_real_registry() {
    let place = tempfile::tempdir().unwrap();
    let registry = Real::start(place.path(), "");
    registry.push("team/system", "v1", &small_system());
    let name = format!("{}/team/system:v1", registry.address);
    let home = Home::with_images(listing(std::slice::from_ref(&registry.address)));
    let server = home.start().await;
    let created = server.sandboxes.create(&tenant(), None, of(&name)).await.unwrap();
    let sandbox = server.until(created.id.as_str(), Phase::Active).await;
    let script = "busybox cat /etc/motd; echo; echo $PATH; busybox pwd; busybox id -u; \
                  busybox test ! -e /etc/gone && echo one > /workspace/mine";
    let (end, said) = run(&server, &sandbox, script).await;
    assert_eq!((end, said.as_str()), (WELL, "changed\n/bin\n/workspace\n1000\n"));
    let used = &sandbox.life.images[&name];
    assert_eq!((used.layers.len(), used.env["PATH"].as_str()), (2, "/bin"));
    server.end().await;

    // It goes on without the registry, and without anybody who knows the name.
    drop(registry);
    let server = home.start().await;
    server.sandboxes.stop(&tenant(), sandbox.id.as_str()).await.unwrap();
    server.until(sandbox.id.as_str(), Phase::Stopped).await;
    server.sandboxes.resume(&tenant(), sandbox.id.as_str()).await.unwrap();
    let sandbox = server.until(sandbox.id.as_str(), Phase::Active).await;
    let (end, said) = run(&server, &sandbox, "busybox cat /etc/motd /workspace/mine").await;
    assert_eq!((end, said.as_str()), (WELL, "changedone\n"));
    server.end().await;
}

/// The image's own files stay root's; links are not followed, and what root inside decides later stays.
#[tokio::test]
async fn the_default_user_owns_a_workspace_and_home_that_the_image_gives_to_root() {
    harness::needs::require_root();
    let busybox = std::fs::read("/bin/busybox").unwrap();
    let built = build(&[vec![
        directory("bin"),
        Item { mode: 0o755, ..file("bin/busybox", busybox) },
        directory("workspace"),
        file("workspace/notes", "notes"),
        directory("srv"),
        directory("home"),
        symbolic("home/agbox", "/srv"),
    ]]);
    let registry = Fake::start(move |asked| honest(&built, asked));
    let name = format!("{}/owned:latest", registry.address);
    let home = Home::with_images(listing(&[registry.address.to_string()]));
    let server = home.start().await;
    let created = server.sandboxes.create(&tenant(), None, of(&name)).await.unwrap();
    let sandbox = server.until(created.id.as_str(), Phase::Active).await;
    let script = "echo one > /workspace/mine; busybox stat -c '%u:%g' /workspace /workspace/notes \
                  /workspace/mine /srv; busybox cat /workspace/notes";
    let (end, said) = run(&server, &sandbox, script).await;
    assert_eq!((end, said.as_str()), (WELL, "1000:1000\n0:0\n1000:1000\n0:0\nnotes"));

    let command = ["/bin/busybox", "chown", "0:0", "/workspace"].map(str::to_owned).to_vec();
    let user = Some("root".to_owned());
    let started = server.start(&sandbox, ExecSpec { command, user, ..ExecSpec::default() }).await;
    assert_eq!(server.end_of(&started.exec.id).await, WELL);
    server.sandboxes.stop(&tenant(), sandbox.id.as_str()).await.unwrap();
    server.until(sandbox.id.as_str(), Phase::Stopped).await;
    server.sandboxes.resume(&tenant(), sandbox.id.as_str()).await.unwrap();
    let sandbox = server.until(sandbox.id.as_str(), Phase::Active).await;
    let (end, said) = run(&server, &sandbox, "busybox stat -c '%u:%g' /workspace").await;
    assert_eq!((end, said.as_str()), (WELL, "0:0\n"));
    server.end().await;
}

/// A registry with one image, which can be made another.
fn changing() -> (Fake, Arc<AtomicBool>) {
    let is_new = Arc::new(AtomicBool::new(false));
    let (old, new, which) = (system("old"), system("new"), is_new.clone());
    let answer =
        move |asked: &_| honest(if which.load(Ordering::SeqCst) { &new } else { &old }, asked);
    (Fake::start(answer), is_new)
}

#[tokio::test]
async fn a_sandbox_keeps_its_image_when_the_name_leads_to_another() {
    let (registry, is_new) = changing();
    let name = format!("{}/a:latest", registry.address);
    let home = Home::with_images(listing(&[registry.address.to_string()]));
    let server = home.start().await;
    let motd = async |sandbox: &Sandbox| run(&server, sandbox, "busybox cat /etc/motd").await.1;
    let first = server.sandboxes.create(&tenant(), None, of(&name)).await.unwrap();
    let first = server.until(first.id.as_str(), Phase::Active).await;
    is_new.store(true, Ordering::SeqCst);
    let images = server.sandboxes.images();
    images.pull(&tenant(), name.parse().unwrap(), &Listener::default()).await.unwrap();
    let second = server.sandboxes.create(&tenant(), None, of(&name)).await.unwrap();
    let second = server.until(second.id.as_str(), Phase::Active).await;
    assert_eq!((motd(&first).await, motd(&second).await), ("old".to_owned(), "new".to_owned()));

    server.sandboxes.stop(&tenant(), first.id.as_str()).await.unwrap();
    server.until(first.id.as_str(), Phase::Stopped).await;
    let refused = server.sandboxes.remove_image(&tenant(), &name).await;
    assert!(matches!(refused, Err(SandboxError::Image(ImageError::InUse { .. }))), "{refused:?}");
    server.sandboxes.resume(&tenant(), first.id.as_str()).await.unwrap();
    server.until(first.id.as_str(), Phase::Active).await;
    assert_eq!(motd(&first).await, "old");

    let (id, cause) = (second.id.as_str(), EndCause::Requested);
    server.sandboxes.delete(&tenant(), id, cause.clone()).await.unwrap();
    server.until(id, Phase::Terminated).await;
    let collected = server.sandboxes.remove_image(&tenant(), &name).await.unwrap();
    assert_eq!(collected.layers, 1, "the other one is under the first sandbox as well");
    assert_eq!(motd(&first).await, "old");
    server.end().await;
}

/// A change is an event like any other: it must not pass for the one that says what the sandbox is made from.
#[tokio::test]
async fn a_sandbox_that_is_changed_while_its_image_is_pulled_gets_ready_after_a_restart() {
    let (gate, closed) = std::sync::mpsc::channel::<()>();
    let (built, closed) = (small_system(), std::sync::Mutex::new(closed));
    let registry = Fake::start(move |asked| {
        closed.lock().unwrap().recv().unwrap_err();
        honest(&built, asked)
    });
    let name = format!("{}/slow:latest", registry.address);
    let home = Home::with_images(listing(&[registry.address.to_string()]));
    let server = home.start().await;
    let created = server.sandboxes.create(&tenant(), None, of(&name)).await.unwrap();
    let id = created.id.as_str();
    let other = Adjustment { name: Some("other".parse().unwrap()), ..Adjustment::default() };
    let changed = server.sandboxes.adjust(&tenant(), id, other).await.unwrap();
    assert_eq!((changed.life.phase, changed.life.sequence), (Phase::Provisioning, Sequence(2)));
    server.crash().await;

    drop(gate);
    let server = home.start().await;
    let sandbox = server.until(id, Phase::Active).await;
    let (end, said) = run(&server, &sandbox, "busybox cat /etc/motd").await;
    assert_eq!((end, said.as_str()), (WELL, "changed"));
    server.end().await;
}

#[tokio::test]
async fn an_image_that_cannot_be_had_fails_the_sandbox_and_says_why() {
    let registry = Fake::start(|_| harness::registry::missing());
    let name = format!("{}/no/such:tag", registry.address);
    let home = Home::with_images(listing(&[registry.address.to_string()]));
    let server = home.start().await;
    let created = server.sandboxes.create(&tenant(), None, of(&name)).await.unwrap();
    let failed = server.until(created.id.as_str(), Phase::Failed).await;
    let failure = failed.life.failure.unwrap();
    assert_eq!(failure.cause, FailureCause::ImageNotFound);
    assert!(failure.message.contains(&name), "{}", failure.message);
    server.end().await;
}

#[tokio::test]
async fn a_name_that_nobody_may_choose_is_refused_before_anything_is_kept() {
    let home = Home::with_images(Settings { allowed: Allowed::default(), ..Settings::default() });
    let server = home.start().await;
    for (image, is_bad_name) in [("python:3.12", false), ("no spaces", true), ("", true)] {
        let refused = server.sandboxes.create(&tenant(), None, of(image)).await.unwrap_err();
        let is_right = match refused {
            SandboxError::Image(ImageError::Reference(_)) => is_bad_name,
            SandboxError::Image(ImageError::NotAllowed(_)) => !is_bad_name,
            _ => false,
        };
        assert!(is_right, "{image:?}: {refused:?}");
    }
    server.end().await;
}

#[tokio::test]
async fn a_pull_is_told_as_it_goes_on_and_outlives_the_server() {
    let built = system("late");
    let (may_go, is_open) = std::sync::mpsc::channel::<()>();
    let is_open = std::sync::Mutex::new(is_open);
    let large = built.layers.iter().map(Vec::len).max().unwrap();
    let registry = Fake::start(move |asked| {
        let answer = honest(&built, asked);
        if answer.len() > large {
            // The first who wants the large layer waits, and so does the next, until they may.
            let _ = is_open.lock().unwrap().recv();
        }
        answer
    });
    let name = format!("{}/a:latest", registry.address);
    let home = Home::with_images(listing(&[registry.address.to_string()]));
    let server = home.start().await;
    let created = server.sandboxes.create(&tenant(), None, of(&name)).await.unwrap();
    let id = created.id.as_str();
    let mut events = server.sandboxes.events(&tenant(), id, Sequence(1)).await.unwrap();
    let Some(News::Progress(progress)) = events.next_news().await.unwrap() else {
        panic!("there is no event before the image is here");
    };
    assert!(progress.layers.len() <= 2, "{progress:?}");
    server.crash().await;

    let server = home.start().await;
    drop(may_go);
    let sandbox = server.until(id, Phase::Active).await;
    let (end, said) = run(&server, &sandbox, "busybox cat /etc/motd").await;
    assert_eq!((end, said.as_str()), (WELL, "late"));
    let history = server.history(&sandbox).await;
    let told = history.iter().filter(|kind| matches!(kind, EventKind::Preparing { .. })).count();
    assert_eq!(told, 1, "{history:?}");
    server.end().await;
}
