//! Processes that are there before anybody asks for a sandbox.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use engine::sandboxes::SandboxError;
use futures_util::FutureExt as _;
use model::{
    life::Phase,
    spec::{Resources, SandboxSpec},
    units::ByteSize,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{sleep, timeout};

use crate::home::{Home, Server, host, tenant};

/// How many wait: two that are whole sandboxes of the host's image, and two for any other.
const ALL: usize = 4;

/// Waits until as many wait as are wanted, and names them. These were another server's.
async fn stocked(home: &Home, server: &Server, earlier: &[String]) -> Vec<String> {
    let full = async {
        while server.sandboxes.prepared() < ALL {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_mins(1), full).await.expect("nothing is prepared");
    waiting(home).into_iter().filter(|name| !earlier.contains(name)).collect()
}

fn waiting(home: &Home) -> Vec<String> {
    let all = fs::read_dir(home.folder().join(".waiting")).unwrap();
    all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Finds the control groups that have one of these names.
fn groups(names: &[String]) -> Vec<PathBuf> {
    fn look(at: &Path, names: &[String], found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(at).into_iter().flatten().filter_map(Result::ok) {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.file_name().to_string_lossy().into_owned();
                if names.iter().any(|wanted| name.trim_end_matches(".init") == wanted) {
                    found.push(entry.path());
                }
                look(&entry.path(), names, found);
            }
        }
    }
    let mut found = Vec::new();
    look(Path::new("/sys/fs/cgroup"), names, &mut found);
    found
}

fn kill_those_in(groups: &[PathBuf]) {
    for group in groups {
        for pid in fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default().lines() {
            // Who is in two groups may be gone already.
            let _ = kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::KILL);
        }
    }
}

#[tokio::test]
async fn a_sandbox_is_made_of_a_process_that_was_there_and_another_takes_its_place() {
    let home = Home::new();
    let server = home.start().await;
    let before = stocked(&home, &server, &[]).await;
    let sandbox = server.ready().await;
    assert!(before.contains(&sandbox.id.to_string()), "{sandbox:?}");
    assert_eq!(server.run(&sandbox, "echo here").await.1, "here\n");
    let after = stocked(&home, &server, &[]).await;
    assert!(!after.contains(&sandbox.id.to_string()));
    assert_eq!(home.folders(), [sandbox.id.to_string()]);
    server.end().await;
}

#[tokio::test]
async fn a_tenant_that_has_created_a_sandbox_has_processes_waiting_for_its_next_one() {
    let home = Home::new();
    let server = home.start().await;
    let of_server = stocked(&home, &server, &[]).await;
    let other = "other".parse().unwrap();
    let first = server.ready_for(&other).await;
    assert!(
        !of_server.contains(&first.id.to_string()),
        "it was made of what waits for a neighbour"
    );
    let full = async {
        while server.sandboxes.prepared() < 2 * ALL {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_mins(1), full).await.expect("nothing is prepared for the other tenant");
    let of_both = waiting(&home);
    let second = server.ready_for(&other).await;
    assert!(
        of_both.contains(&second.id.to_string()) && !of_server.contains(&second.id.to_string())
    );
    assert_eq!(server.run(&second, "echo here").await.1, "here\n");
    if server.has_cgroups() {
        let tenant_of = |name: String| groups(&[name])[0].parent().unwrap().to_owned();
        assert_eq!(tenant_of(first.id.to_string()), tenant_of(second.id.to_string()));
        assert_ne!(tenant_of(first.id.to_string()), tenant_of(of_server[0].clone()));
    }
    server.end().await;
}

/// The processes of a sandbox that have given up their rights, by their numbers in there.
fn sealed(name: &String) -> Vec<String> {
    let pids = groups(std::slice::from_ref(name)).into_iter().flat_map(|group| {
        let procs = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        procs.lines().map(ToOwned::to_owned).collect::<Vec<_>>()
    });
    let pids: BTreeSet<String> = pids.collect();
    let status = |pid| fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |status: &str, name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().last().map(ToOwned::to_owned)
    };
    pids.into_iter()
        .map(status)
        .filter(|status| field(status, "Seccomp:").as_deref() == Some("2"))
        .filter_map(|status| field(&status, "NSpid:"))
        .collect()
}

#[tokio::test]
async fn a_usual_sandbox_waits_as_a_whole_with_its_first_command() {
    let home = Home::new();
    let server = home.start().await;
    harness::needs::require("root", server.has_disk_limits().await);
    let before = stocked(&home, &server, &[]).await;
    // The supervisor, what commands come from, and the first of them.
    let whole = || before.iter().filter(|name| sealed(name).len() == 3).count();
    let all = async {
        while whole() < 2 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_mins(1), all).await.expect("nothing waits as a whole");
    let waiting: BTreeMap<_, _> = before.iter().map(|name| (name, sealed(name))).collect();
    let sandbox = server.ready().await;
    let number = server.run(&sandbox, "echo $$").await.1;
    let numbers = &waiting[&sandbox.id.to_string()];
    assert!(numbers.contains(&number.trim().to_owned()), "{number} is not of {numbers:?}");
    server.end().await;
}

/// Two of each kind wait. What has a root is not taken for a sandbox that is to have another.
#[tokio::test]
async fn a_sandbox_with_a_disk_of_its_own_is_made_of_a_process_that_has_none() {
    let home = Home::new();
    let server = home.start().await;
    harness::needs::require("root", server.has_disk_limits().await);
    let before = stocked(&home, &server, &[]).await;
    let disk = Some(ByteSize::mib(32));
    let spec = SandboxSpec { resources: Resources { disk, ..Resources::default() }, ..host() };
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(server.sandboxes.create(&tenant(), None, spec.clone()).await.unwrap());
    }
    let waited = made.iter().filter(|sandbox| before.contains(&sandbox.id.to_string()));
    assert_eq!(waited.count(), 2, "{before:?} {made:?}");
    for sandbox in &made {
        server.until(sandbox.id.as_str(), Phase::Active).await;
        let fill = "head -c 64M /dev/zero > /workspace/big; stat -c %s /workspace/big";
        let (_, said) = server.run(sandbox, fill).await;
        let size: u64 = said.trim().parse().unwrap();
        assert!((1 << 20..40 << 20).contains(&size), "{size}");
    }
    let usual = server.ready().await;
    assert!(before.contains(&usual.id.to_string()));
    assert_eq!(server.run(&usual, "echo here").await.1, "here\n");
    server.end().await;
}

/// Whoever waits may be killed: the next sandbox is made anew, under the same name.
#[tokio::test]
async fn what_was_killed_while_it_waited_is_missed_by_nobody() {
    let home = Home::new();
    let server = home.start().await;
    harness::needs::require("cgroups", server.has_cgroups());
    let before = stocked(&home, &server, &[]).await;
    // Some may still be on their way into their groups.
    let cleared = async {
        while waiting(&home).iter().any(|name| before.contains(name)) {
            kill_those_in(&groups(&before));
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_mins(1), cleared).await.expect("what was killed is not cleared away");
    assert_eq!(groups(&before), [""; 0].map(PathBuf::from));
    for round in 0..3 {
        let sandbox = server.ready().await;
        // After the first there may be others in stock.
        assert!(round > 0 || before.contains(&sandbox.id.to_string()));
        assert_eq!(server.run(&sandbox, "echo here").await.1, "here\n");
    }
    server.end().await;
}

#[tokio::test]
async fn more_than_there_were_are_made_all_the_same() {
    let home = Home::new();
    let server = home.start().await;
    let made = futures_util::future::join_all((0..5).map(|_| server.ready())).await;
    for sandbox in &made {
        assert_eq!(server.run(sandbox, "echo here").await.1, "here\n");
    }
    server.end().await;
}

#[tokio::test]
async fn what_was_prepared_for_a_sandbox_that_is_refused_is_for_the_next() {
    let home = Home::new();
    let server = home.start().await;
    let before = stocked(&home, &server, &[]).await;
    let name = Some("the-name".parse().unwrap());
    let first = server.sandboxes.create(&tenant(), name.clone(), host()).await.unwrap();
    for _ in 0..5 {
        let again = server.sandboxes.create(&tenant(), name.clone(), host()).await;
        assert!(matches!(again, Err(SandboxError::AlreadyExists)), "{again:?}");
    }
    let second = server.sandboxes.create(&tenant(), None, host()).await.unwrap();
    for sandbox in [&first, &second] {
        assert!(before.contains(&sandbox.id.to_string()), "{before:?}");
        server.until(sandbox.id.as_str(), Phase::Active).await;
    }
    server.end().await;
}

/// Whether the server ends in order or is killed: nothing stays of what waited.
#[tokio::test]
async fn what_waits_ends_with_its_server() {
    let home = Home::new();
    let server = home.start().await;
    let first = stocked(&home, &server, &[]).await;
    assert_eq!(groups(&first).is_empty(), !server.has_cgroups());
    server.crash().await;
    let server = home.start().await;
    let second = stocked(&home, &server, &first).await;
    assert_eq!(second.len(), ALL);
    assert_eq!(groups(&first), [""; 0].map(PathBuf::from));
    server.end().await;
    assert_eq!(groups(&second), [""; 0].map(PathBuf::from));
}

/// The body of each is made while its record is being kept; that of the one that is refused goes again.
#[tokio::test]
async fn of_sandboxes_with_one_name_that_are_asked_for_at_once_one_is_made_and_nothing_is_left_of_others()
 {
    let home = Home::new();
    let server = home.start().await;
    stocked(&home, &server, &[]).await;
    let tenant = tenant();
    let create = || server.sandboxes.create(&tenant, Some("same".parse().unwrap()), host());
    let (one, other) = tokio::join!(create(), create());
    let (made, refused) = if one.is_ok() { (one, other) } else { (other, one) };
    let made = made.unwrap();
    assert!(matches!(refused, Err(SandboxError::AlreadyExists)), "{refused:?}");
    server.until(made.id.as_str(), Phase::Active).await;
    assert_eq!(home.folders(), [made.id.to_string()]);
    assert_eq!(server.run(&made, "echo here").await.1, "here\n");
    server.end().await;
}

#[tokio::test]
async fn a_sandbox_whose_creator_goes_away_is_made_or_was_never_asked_for() {
    let home = Home::new();
    let server = home.start().await;
    let tenant = tenant();
    for yields in 0..12 {
        stocked(&home, &server, &[]).await;
        let alias = format!("left-{yields}");
        let mut create = Box::pin(server.sandboxes.create(&tenant, alias.parse().ok(), host()));
        for _ in 0..=yields {
            // It goes on as far as it comes by then, and no further.
            if (&mut create).now_or_never().is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(create);
    }
    // What is asked for now is kept after all of those.
    server.ready().await;
    for yields in 0..12 {
        let alias = format!("left-{yields}");
        match server.sandboxes.get(&tenant, &alias).await {
            Ok(found) => drop(server.until(found.id.as_str(), Phase::Active).await),
            Err(error) => assert!(matches!(error, SandboxError::NotFound), "{error:?}"),
        }
    }
    server.end().await;
}
