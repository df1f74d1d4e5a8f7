//! `ringfence serve`.

use std::{os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use isolate::{
    socket::PacketSocket,
    wire::{self, Report},
};
use rustix::net::RecvFlags;
use serde_json::json;

use crate::{
    command::{Server, call, data_folder, write},
    keeper::Keeper,
    websocket::WebSocket,
};

#[test]
fn the_first_start_says_where_it_is_and_what_to_try() {
    let server = Server::start();
    let file = server.data.path().join("admin.key");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let greeting = &server.greeting;
    assert!(greeting.contains(&format!("Made an admin key: {}", file.display())), "{greeting}");
    assert_eq!(greeting.lines().filter(|line| line.starts_with("  ")).count(), 4, "{greeting}");
    assert!(!greeting.contains("rf_"), "{greeting}");
    assert!(greeting.contains("(sessions.image): host\n"), "{greeting}");
    let written = std::fs::read_to_string(server.data.path().join("ringfence.toml")).unwrap();
    assert!(written.ends_with("image = \"host\"\n"), "{written}");
    let shown = call(&["serve", "--print-config", "--data", server.data()]).out;
    assert!(shown.contains("[sessions]\nimage = \"host\"\n"), "{shown}");
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn unsafe_settings_are_refused() {
    let rows: [(&[&str], &str); 3] = [
        (&["serve", "--listen", "0.0.0.0:7700"], "not a loopback address"),
        (&["serve", "--listen", "[::]:7700"], "not a loopback address"),
        (&["serve", "--config", "/nowhere.toml"], "cannot read the configuration"),
    ];
    for (arguments, text) in rows {
        let said = call(arguments);
        assert_eq!(said.code, Some(125), "{arguments:?}");
        assert!(said.err.contains(text), "{arguments:?}: {}", said.err);
    }
}

#[test]
fn a_data_directory_is_for_its_owner_alone_and_a_wider_one_is_refused() {
    let mode_of = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    // One that is missing, and one that is empty.
    let (missing, empty) = (data_folder(), data_folder());
    std::fs::remove_dir(missing.path()).unwrap();
    std::fs::set_permissions(empty.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let [_, data] = [missing, empty].map(|data| {
        let (code, data) = Server::start_in(data).stop();
        assert_eq!((code, mode_of(data.path())), (Some(0), 0o700));
        data
    });
    let mode = || mode_of(data.path());
    std::fs::set_permissions(data.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = data.path().to_str().unwrap();
    let said = call(&["serve", "--listen", "127.0.0.1:0", "--data", path]);
    assert_eq!(said.code, Some(125));
    assert!(said.err.contains(&format!("run chmod 700 {path}")), "{}", said.err);
    assert_eq!(mode(), 0o755);
}

#[test]
fn the_daemon_and_the_process_for_volumes_have_given_up_what_they_do_not_need() {
    let server = Server::start();
    for pid in [server.daemon(), server.volume_keeper()] {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(status.contains("NoNewPrivs:\t1\n"), "{status}");
        assert!(status.contains("Seccomp:\t2\n"), "{status}");
    }
}

#[test]
fn when_memory_runs_out_executions_end_before_sandboxes_and_the_server_last() {
    harness::needs::require_root();
    let keeper = Keeper::with_demo();
    let score = |text: &str| text.trim().parse::<i32>().unwrap();
    let of =
        |pid: u32| score(&std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap());
    let code = "cat /proc/self/oom_score_adj";
    let execution = score(&keeper.ask(&["run", "--language", "shell", "-c", code]).out);
    let command = score(&keeper.ask(&["exec", "demo", "--", "sh", "-c", code]).out);
    assert!(execution > command && command > of(keeper.daemon()), "{execution} {command}");
    // A container may keep root from lowering scores (CAP_SYS_RESOURCE).
    let may_lower = std::fs::write("/proc/self/oom_score_adj", "-1").is_ok();
    let server = if may_lower { (-1000, -900) } else { (0, 0) };
    assert_eq!((of(keeper.pid()), of(keeper.daemon())), server);
}

#[test]
fn the_configuration_can_be_shown() {
    let said = call(&["serve", "--print-config", "--listen", "127.0.0.1:1", "--data", "/x"]);
    assert_eq!(said.code, Some(0));
    let shown: toml::Table = toml::from_str(&said.out).unwrap();
    assert_eq!(shown["listen"].as_str(), Some("127.0.0.1:1"));
    assert_eq!(shown["executions"]["disconnect_grace"].as_str(), Some("10s"));
}

#[test]
fn a_strict_server_is_strict_with_everybody() {
    let server = Server::start_with(&["--freshness", "strict"]);
    let seed = || server.call(&["run", "-l", "python", "-c", "print(hash('x'))"]).out;
    assert_ne!(seed(), seed());
}

#[test]
fn a_language_is_added_by_the_configuration_or_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let table = |name: &str| {
        let command = "command = [\"/usr/bin/perl\", \"{file}\"]\nfile = \"main.pl\"";
        write(directory.path(), name, &format!("[languages.{name}]\n{command}\n"))
    };
    let server = Server::start_with(&["--config", &table("perl")]);
    let said = server.call(&["run", "-l", "perl", "-c", "print 6 * 7"]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "42"), "{said:?}");
    let refused = call(&["serve", "--config", &table("python")]);
    assert_eq!(refused.code, Some(125));
    assert!(refused.err.contains("languages.python is built in"), "{refused:?}");
}

#[test]
fn a_data_directory_has_one_server() {
    let server = Server::start();
    let second = call(&["serve", "--listen", "127.0.0.1:0", "--data", server.data()]);
    assert_ne!(second.code, Some(0));
    assert!(second.err.contains("in use by another ringfence process"), "{}", second.err);
}

#[test]
fn the_doctor_says_what_this_machine_gives() {
    let said = call(&["doctor"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for name in ["kernel", "slots", "users", "limits", "python", "shell"] {
        assert!(said.out.contains(name), "{said:?}");
    }
    let json = call(&["doctor", "--json"]);
    let findings: Vec<serde_json::Value> = serde_json::from_str(&json.out).unwrap();
    assert!(findings.iter().any(|finding| finding["name"] == "limits"), "{json:?}");
}

#[test]
fn a_result_says_what_stands_between_the_code_and_the_machine_if_it_is_asked_to() {
    let server = Server::start();
    let mut socket = WebSocket::connect(&server);
    let mut frame = json!({
        "v": 1, "type": "execute", "id": "a", "ts": "2026-01-01T00:00:00.000Z", "language": "shell",
        "code": "true", "limits": {"timeout_ms": 5000, "memory_mb": 64}, "posture": true,
    });
    socket.send(&frame);
    let posture = socket.until("result")["posture"].clone();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(posture["kernel"], kernel.trim(), "{posture}");
    for field in ["users", "limits"] {
        assert!(posture[field].is_string(), "{posture}");
    }
    frame["id"] = "b".into();
    frame["posture"] = false.into();
    socket.send(&frame);
    assert_eq!(socket.until("result").get("posture"), None);
}

#[test]
fn the_program_is_its_own_worker_for_images() {
    let (ours, theirs) = PacketSocket::pair().unwrap();
    // As the spawner starts it, but for the place: its socket is at number 3.
    let mut worker = Command::new("setpriv")
        .args(["--no-new-privs", "sh", "-c", "exec \"$0\" serve --as-image-worker 3<&0"])
        .arg(env!("CARGO_BIN_EXE_ringfence"))
        .stdin(theirs.into_fd())
        .spawn()
        .unwrap();
    let packet = ours.receive(RecvFlags::empty()).unwrap().unwrap();
    assert_eq!(wire::decode::<Report>(&packet.bytes).unwrap(), Report::Ready);
    drop(ours);
    assert!(worker.wait().unwrap().success(), "it ends with its socket");
}
