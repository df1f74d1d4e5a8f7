//! What the worker has: shown by the kernel's own word about its process.

use std::fs;

use isolate::spawner::IdRange;

use super::bench::{Bench, is_root};
use crate::home::tenant;

fn field<'text>(status: &'text str, name: &str) -> &'text str {
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_once(':').unwrap().1.trim()
}

#[tokio::test]
async fn the_worker_has_few_rights_one_folder_and_users_of_its_own() {
    let bench = Bench::new().await;
    assert_eq!(bench.images.list(&tenant()).await.unwrap(), []);
    let worker = format!("/proc/{}", bench.worker().unwrap());
    let read = |file: &str| fs::read_to_string(format!("{worker}/{file}")).unwrap();

    let status = read("status");
    assert_eq!(field(&status, "NoNewPrivs"), "1");
    assert_eq!(field(&status, "Seccomp"), "2");
    assert_eq!(field(&status, "Seccomp_filters"), "2");
    // CHOWN, DAC_OVERRIDE, FOWNER, FSETID, and that in its own user namespace only.
    let few = "000000000000001b";
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        assert_eq!(field(&status, set), few, "{set}");
    }
    for set in ["CapInh", "CapAmb"] {
        assert_eq!(field(&status, set), "0000000000000000", "{set}");
    }
    let own = rustix::process::geteuid().as_raw();
    let (first, count) =
        if is_root() { (IdRange::ON_DISK.first, IdRange::ON_DISK.count) } else { (own, 1) };
    for map in ["uid_map", "gid_map"] {
        let map: Vec<u32> = read(map).split_whitespace().map(|it| it.parse().unwrap()).collect();
        let group = rustix::process::getegid().as_raw();
        assert!(map == [0, first, count] || map == [0, group, 1], "{map:?}");
    }
    assert_eq!(field(&status, "Uid").split_whitespace().next(), Some(&*first.to_string()));
    assert!(is_root() == (field(&status, "Groups").is_empty()) || !is_root());

    let namespace = |of: &str, kind: &str| fs::read_link(format!("{of}/ns/{kind}")).unwrap();
    for kind in ["user", "mnt", "pid", "ipc", "uts", "net"] {
        assert_ne!(namespace(&worker, kind), namespace("/proc/self", kind), "{kind}");
    }
    // Its network has one device, which leads to itself, and no routes.
    let devices = read("net/dev");
    let devices: Vec<&str> =
        devices.lines().filter_map(|line| line.split_once(':')).map(|it| it.0.trim()).collect();
    assert_eq!(devices, ["lo"]);
    assert!(read("net/route").lines().count() <= 1, "there is a heading at most");
    bench.end();
}

#[tokio::test]
async fn the_worker_can_write_to_its_folder_and_reach_nothing_else_of_the_machine() {
    let bench = Bench::new().await;
    assert_eq!(bench.images.list(&tenant()).await.unwrap(), []);
    let worker = format!("/proc/{}", bench.worker().unwrap());
    let mounts = fs::read_to_string(format!("{worker}/mountinfo")).unwrap();
    let mut writable = Vec::new();
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let options: Vec<&str> = fields[5].split(',').collect();
        assert!(options.contains(&"nosuid"), "{line}");
        if !options.contains(&"ro") {
            assert!(options.contains(&"nodev") && options.contains(&"noexec"), "{line}");
            writable.push(fields[4]);
        }
        // Neither processes nor devices of the machine, and no way back to its root.
        assert!(!line.contains(" - proc ") && !line.contains(" - sysfs "), "{line}");
    }
    assert_eq!(writable, ["/var"]);
    let names = |folder: &str| super::bench::names(format!("{worker}/root{folder}").as_ref());
    let etc = names("/etc");
    assert!(etc.is_empty() || etc == ["ld.so.cache"], "{etc:?}");
    for empty in ["/home/agbox", "/proc", "/root", "/tmp", "/workspace"] {
        assert_eq!(names(empty), Vec::<String>::new(), "{empty}");
    }
    assert_eq!(names("/var"), super::bench::names(&bench.root()));

    // Its descriptors: nothing of the spawner's, and no folder but its own.
    let fds = fs::read_dir(format!("{worker}/fd")).unwrap();
    for fd in fds {
        let target = fs::read_link(fd.unwrap().path()).unwrap().display().to_string();
        let is_its_own = target.starts_with("/var/") || target == "/dev/null";
        let is_nameless =
            ["socket:", "pipe:", "anon_inode:"].iter().any(|it| target.starts_with(it));
        assert!(is_its_own || is_nameless, "{target}");
    }
    bench.end();
}
