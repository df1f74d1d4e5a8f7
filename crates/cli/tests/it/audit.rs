//! `ringfence audit`, with and without a server.

use std::{fs, os::unix::fs::PermissionsExt as _};

use crate::{command::call, keeper::Keeper};

/// Returns the checkpoint that an export ended with.
fn checkpoint(err: &str) -> &str {
    err.trim().strip_prefix("ringfence: checkpoint ").expect(err)
}

/// K9, and what was exported is verified with nothing else at hand.
#[test]
fn a_log_is_listed_exported_and_verified_also_after_the_server_was_killed() {
    let mut keeper = Keeper::with_demo();
    for _ in 0..5 {
        assert_eq!(keeper.ask(&["token", "mint", "--sandbox", "demo"]).code, Some(0));
    }
    let listed = keeper.ask(&["audit", "list", "--action", "token.mint", "--limit", "3"]);
    assert_eq!(listed.out.lines().count(), 3, "{listed:?}");
    assert!(listed.out.contains(" subject=human:admin capabilities="), "{listed:?}");
    let before = keeper.ask(&["audit", "export"]);
    let first = checkpoint(&before.err).to_owned();
    keeper.kill();
    keeper.start_again();
    assert_eq!(keeper.ask(&["token", "mint", "--sandbox", "demo"]).code, Some(0));
    let online = keeper.ask(&["audit", "verify", "--checkpoint", &first]);
    assert!(online.code == Some(0) && online.out.contains("none changed"), "{online:?}");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let path = file.to_str().unwrap();
    let whole = keeper.ask(&["audit", "export"]);
    let last = checkpoint(&whole.err).to_owned();
    fs::write(&file, &whole.out).unwrap();
    let good = call(&["audit", "verify", path, "--checkpoint", &last]);
    assert!(good.code == Some(0) && good.out.contains(&last), "{good:?}");

    let lines: Vec<&str> = whole.out.lines().collect();
    fs::write(&file, lines[..lines.len() - 1].join("\n")).unwrap();
    assert_eq!(call(&["audit", "verify", path]).code, Some(0));
    let cut = call(&["audit", "verify", path, "--checkpoint", &last]);
    assert!(cut.code == Some(125) && cut.err.contains("ends before the checkpoint"), "{cut:?}");
    fs::write(&file, whole.out.replacen("granted", "denied", 3)).unwrap();
    let changed = call(&["audit", "verify", path]);
    assert!(
        changed.code == Some(125) && changed.err.contains("record 1 was changed"),
        "{changed:?}"
    );

    let rest = keeper.ask(&["audit", "export", "--after", &first]);
    assert_eq!(before.out.clone() + &rest.out, whole.out);
    fs::write(&file, &rest.out).unwrap();
    assert_eq!(call(&["audit", "verify", path, "--after", &first]).code, Some(0));
    let wrong = call(&["audit", "verify", path]);
    assert!(wrong.err.contains("record 1 is missing"), "{wrong:?}");
}

#[test]
fn the_log_is_read_without_a_server_too() {
    let server = crate::command::Server::start();
    assert_eq!(server.call(&["key", "create", "ci"]).code, Some(0));
    let (_, data) = server.stop();
    let data = data.path().to_str().unwrap();
    let listed = call(&["audit", "list", "--data", data]);
    let keys = listed.out.lines().filter(|line| line.contains("key.create")).count();
    assert_eq!(keys, 2, "{listed:?}");
    assert_eq!(call(&["key", "create", "laptop", "--human", "ada", "--data", data]).code, Some(0));
    let verified = call(&["audit", "verify", "--data", data]);
    assert!(verified.out.contains(" records, none changed"), "{verified:?}");
    let listed = call(&["key", "list", "--data", data]);
    assert!(listed.out.contains("human:ada"), "{listed:?}");
}

/// Writes the log again so that every hash is right, as someone with access to the database can.
const REWRITE: &str = r#"
import hashlib, json, sqlite3, sys
store = sqlite3.connect(sys.argv[1])
for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'audit'").fetchall():
    store.execute(f"DROP TRIGGER {name}")
previous = "0" * 64
for sequence, body in store.execute("SELECT sequence, body FROM audit ORDER BY sequence").fetchall():
    record = json.loads(body)
    record["previous"] = previous
    if record["action"] == "key.create":
        record["object"] = "another"
    body = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(body.encode())
    previous = digest.hexdigest()
    store.execute("UPDATE audit SET body = ?, hash = ? WHERE sequence = ?", (body, digest.digest(), sequence))
store.commit()
"#;

#[test]
fn a_rewritten_log_does_not_pass_with_the_verification_key_nor_with_exported_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (config, checkpoints, key) = (file("ringfence.toml"), file("checkpoints"), file("key"));
    fs::write(&config, format!("[audit]\ncheckpoints = {checkpoints:?}\n")).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let server = crate::command::Server::start_with(&["--config", &config]);
    assert_eq!(server.call(&["key", "create", "ci"]).code, Some(0));
    let (_, data) = server.stop();
    let data = data.path().to_str().unwrap();
    let taken = call(&["audit", "key", "--data", data]);
    assert!(taken.code == Some(0) && taken.out.starts_with("rfaudit_"), "{taken:?}");
    fs::write(&key, taken.out).unwrap();
    let again = call(&["audit", "key", "--data", data]);
    assert!(again.code == Some(125) && again.err.contains("was taken before"), "{again:?}");

    let verify = |more: &[&str]| call(&[&["audit", "verify", "--data", data], more].concat());
    let sealed = verify(&["--verification-key", &key, "--checkpoints", &checkpoints]);
    assert!(sealed.out.contains(" records, none changed; sealed up to record "), "{sealed:?}");

    let store = format!("{data}/ringfence.db");
    let rewritten = std::process::Command::new("python3").args(["-c", REWRITE, &store]).status();
    assert!(rewritten.unwrap().success());
    assert_eq!(verify(&[]).code, Some(0));
    let found = verify(&["--verification-key", &key]);
    assert!(
        found.code == Some(125) && found.err.contains("has a seal that does not fit"),
        "{found:?}"
    );
    let found = verify(&["--checkpoints", &checkpoints]);
    assert!(found.code == Some(125) && found.err.contains("the checkpoint"), "{found:?}");
}
