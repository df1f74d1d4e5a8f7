//! The files of sandboxes are on volumes, whose limits hold.

use std::fs;

use engine::{
    posture::{DiskKind, Volumes},
    sandboxes::{Defaults, SandboxError},
};
use model::{
    exec::ExecEnd,
    execution::Exit,
    life::{EndCause, FailureCause, Phase},
    sandbox::Sandbox,
    spec::{Resources, SandboxSpec},
    units::ByteSize,
};

use crate::{
    home::{Home, Server, host, tenant},
    node::{see, shell, submit},
};

const LIMIT: u64 = 64 << 20;

fn limited_to(bytes: u64) -> SandboxSpec {
    let resources = Resources { disk: Some(ByteSize::bytes(bytes)), ..Resources::default() };
    SandboxSpec { resources, ..host() }
}

async fn create(server: &Server, spec: SandboxSpec, phase: Phase) -> Sandbox {
    let sandbox = server.sandboxes.create(&tenant(), None, spec).await.unwrap();
    server.until(sandbox.id.as_str(), phase).await
}

async fn delete(server: &Server, sandbox: &Sandbox) {
    let name = sandbox.id.as_str();
    server.sandboxes.delete(&tenant(), name, EndCause::Requested).await.unwrap();
    server.until(name, Phase::Terminated).await;
}

/// Writes until that fails. Returns how much there is then.
async fn fill(server: &Server, sandbox: &Sandbox) -> u64 {
    let script = "head -c 200M /dev/zero > /workspace/large 2>/workspace/why; \
                  sync /workspace/large; cat /workspace/why >&2; stat -c %s /workspace/large";
    let (_, size) = server.run(sandbox, script).await;
    size.trim().parse().unwrap()
}

#[tokio::test]
async fn a_limit_of_disk_space_is_refused_where_none_can_be_held() {
    let home = Home::new();
    let server = home.start_on(Some(DiskKind::Unlimited), Defaults::default()).await;
    let refused = server.sandboxes.create(&tenant(), None, limited_to(LIMIT)).await;
    let Err(SandboxError::Field { field, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(field, "disk_limit");
    server.end().await;
}

#[tokio::test]
async fn a_sandbox_cannot_write_beyond_its_limit_and_all_others_go_on() {
    let home = Home::new();
    let server = home.start().await;
    harness::needs::require("root", server.has_disk_limits().await);
    let full = create(&server, limited_to(LIMIT), Phase::Active).await;
    let other = server.ready().await;
    let size = fill(&server, &full).await;
    assert!((LIMIT / 2..=LIMIT).contains(&size), "{size}");
    // Also in every other folder, and for root.
    for folder in ["/home/agbox", "/tmp", "/var/tmp"] {
        let (end, _) = server.run(&full, &format!("head -c 8M /dev/zero > {folder}/x")).await;
        assert_ne!(end, ExecEnd::Exited(Exit::Code(0)), "{folder}");
    }
    let script = "head -c 100M /dev/zero > /workspace/x && stat -c %s /workspace/x";
    assert_eq!(server.run(&other, script).await.1, "104857600\n");
    let third = server.ready().await;
    assert_eq!(server.run(&third, "echo here").await.1, "here\n");
    // Who deletes can go on.
    let script = "rm /workspace/large && sync && echo x > /workspace/y && cat /workspace/y";
    assert_eq!(server.run(&full, script).await.1, "x\n");
    let mounts = server.run(&full, "cat /proc/self/mountinfo").await.1;
    assert!(!mounts.contains(home.data().to_str().unwrap()), "{mounts}");
    server.end().await;
}

#[tokio::test]
async fn files_and_limit_stay_over_a_stop_and_over_a_crash_of_the_server() {
    let home = Home::new();
    let server = home.start().await;
    harness::needs::require("root", server.has_disk_limits().await);
    let sandbox = create(&server, limited_to(LIMIT), Phase::Active).await;
    let name = sandbox.id.as_str();
    server.run(&sandbox, "echo kept > /workspace/note").await;
    server.sandboxes.stop(&tenant(), name).await.unwrap();
    server.until(name, Phase::Stopped).await;
    server.sandboxes.resume(&tenant(), name).await.unwrap();
    server.until(name, Phase::Active).await;
    assert_eq!(server.run(&sandbox, "cat /workspace/note").await.1, "kept\n");
    server.crash().await;

    let server = home.start().await;
    server.until(name, Phase::Active).await;
    let size = fill(&server, &sandbox).await;
    assert!((LIMIT / 2..=LIMIT).contains(&size), "{size}");
    server.sandboxes.stop(&tenant(), name).await.unwrap();
    server.until(name, Phase::Stopped).await;
    server.crash().await;

    let server = home.start().await;
    server.sandboxes.resume(&tenant(), name).await.unwrap();
    server.until(name, Phase::Active).await;
    let script = "cat /workspace/note; stat -c %s /workspace/large";
    assert_eq!(server.run(&sandbox, script).await.1, format!("kept\n{size}\n"));
    let (end, _) = server.run(&sandbox, "head -c 8M /dev/zero > /workspace/more").await;
    assert_ne!(end, ExecEnd::Exited(Exit::Code(0)));
    server.end().await;
}

#[tokio::test]
async fn what_was_promised_is_had_by_nobody_else_until_it_is_given_back() {
    let home = Home::new();
    let server = home.start().await;
    harness::needs::require("root", server.has_disk_limits().await);
    let there = rustix::fs::statvfs(home.data()).unwrap();
    let most = there.f_bavail * there.f_frsize / 100 * 60;
    let first = create(&server, limited_to(most), Phase::Active).await;
    let second = create(&server, limited_to(most), Phase::Failed).await;
    let failure = second.life.failure.clone().unwrap();
    assert_eq!(failure.cause, FailureCause::DiskFull, "{}", failure.message);
    delete(&server, &second).await;
    delete(&server, &first).await;
    let third = create(&server, limited_to(most), Phase::Active).await;
    assert_eq!(server.run(&third, "echo here").await.1, "here\n");
    server.end().await;
}

#[tokio::test]
async fn a_limit_that_no_volume_can_have_is_refused() {
    let home = Home::new();
    let server = home.start().await;
    let refused = server.sandboxes.create(&tenant(), None, limited_to(1 << 20)).await;
    assert!(matches!(refused, Err(SandboxError::Resource(_))), "{refused:?}");
    server.end().await;
}

#[tokio::test]
async fn without_any_kind_of_volumes_sandboxes_are_refused_and_the_server_serves() {
    let home = Home::new();
    // Volumes in memory alone, which nobody has allowed.
    let server = home.start_on(Some(DiskKind::Tmpfs), Defaults::default()).await;
    let refused = server.sandboxes.create(&tenant(), None, host()).await;
    let Err(SandboxError::Invalid(why)) = refused else { panic!("{refused:?}") };
    for part in ["install btrfs-progs", "allow_unlimited_disk = true", "btrfs:", "image:"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert!(matches!(server.engine.volumes().await.unwrap(), Volumes::None { .. }));
    let seen = see(submit(&server.engine.client("default"), shell("echo here"))).await;
    assert_eq!(seen.out(), "here\n");
    server.end().await;
}

#[tokio::test]
async fn a_sandbox_from_before_there_were_volumes_goes_on() {
    let home = Home::new();
    let server = home.start_on(Some(DiskKind::Unlimited), Defaults::default()).await;
    let sandbox = server.ready().await;
    let name = sandbox.id.as_str();
    server.run(&sandbox, "echo kept > /workspace/note").await;
    server.sandboxes.stop(&tenant(), name).await.unwrap();
    server.until(name, Phase::Stopped).await;
    let volume = home.data().join("disks/directories").join(name);
    fs::rename(volume.join("files"), home.folder().join(name).join("files")).unwrap();
    fs::remove_dir(&volume).unwrap();
    server.sandboxes.resume(&tenant(), name).await.unwrap();
    server.until(name, Phase::Active).await;
    assert_eq!(server.run(&sandbox, "cat /workspace/note").await.1, "kept\n");
    delete(&server, &sandbox).await;
    assert!(!home.folder().join(name).exists());
    server.end().await;
}

#[tokio::test]
async fn a_sandbox_whose_volume_is_gone_is_not_given_an_empty_one() {
    let home = Home::new();
    let server = home.start_on(Some(DiskKind::Unlimited), Defaults::default()).await;
    let sandbox = server.ready().await;
    let name = sandbox.id.as_str();
    server.sandboxes.stop(&tenant(), name).await.unwrap();
    server.until(name, Phase::Stopped).await;
    fs::remove_dir_all(home.data().join("disks/directories").join(name)).unwrap();
    server.sandboxes.resume(&tenant(), name).await.unwrap();
    let failed = server.until(name, Phase::Failed).await;
    let failure = failed.life.failure.unwrap();
    assert_eq!(failure.cause, FailureCause::ResumeFailed);
    assert!(failure.message.contains("there is no volume"), "{}", failure.message);
    server.end().await;
}
