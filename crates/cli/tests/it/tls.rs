//! A server with TLS, and the commands that reach it by `https://`.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{
    command::{Said, Server, call, data_folder, signal},
    keeper::Keeper,
};

/// Nothing in these tests takes this long unless it is broken.
const PATIENCE: Duration = Duration::from_mins(1);

/// A folder that the daemon's user can look into.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    folder
}

fn put(folder: &Path) {
    let names = ["localhost", "127.0.0.1"].map(str::to_owned);
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

fn start(folder: &Path) -> Keeper {
    let (cert, key) = (path(folder, "cert.pem"), path(folder, "key.pem"));
    Keeper(Server::start_with(&["--tls-cert", &cert, "--tls-key", &key]))
}

fn believing(keeper: &Keeper, cert: &str, arguments: &[&str]) -> Said {
    keeper.ringfence(arguments).env("RINGFENCE_CA_CERT", cert).output().unwrap().into()
}

#[test]
fn every_command_reaches_a_server_with_tls_and_none_believes_a_stranger() {
    let folder = folder();
    put(folder.path());
    let keeper = start(folder.path());
    assert!(keeper.url.starts_with("https://127.0.0.1:"), "{}", keeper.url);
    let cert = path(folder.path(), "cert.pem");
    let ask = |arguments: &[&str]| believing(&keeper, &cert, arguments);
    assert_eq!(ask(&["run", "-l", "shell", "-c", "echo ran"]).out, "ran\n");
    assert_eq!(ask(&["create", "--image", "host", "--name", "demo"]).out, "demo\n");
    assert_eq!(ask(&["exec", "demo", "--", "echo", "done"]).out, "done\n");
    let minted = ask(&["token", "mint", "--sandbox", "demo", "--json"]);
    assert!(minted.out.contains(&format!("\"{}/dp/sb_", keeper.url)), "{minted:?}");
    // The machine's own authorities know nothing of this one.
    for arguments in [&["ps"][..], &["run", "-l", "shell", "-c", "true"], &["key", "list"]] {
        let said = keeper.ask(arguments);
        let is_refused = said.err.contains("cannot show that it is this server");
        assert!(said.code == Some(125) && is_refused, "{said:?}");
    }
}

#[test]
fn a_hangup_has_the_certificate_looked_at_again() {
    let folder = folder();
    let (first, second, now) =
        (folder.path().join("first"), folder.path().join("second"), folder.path().join("now"));
    put(&first);
    put(&second);
    symlink(&first, &now).unwrap();
    let keeper = start(&now);
    let with = |folder: &Path| believing(&keeper, &path(folder, "cert.pem"), &["key", "list"]).code;
    assert_eq!((with(&first), with(&second)), (Some(0), Some(125)));
    // Nothing changes in the folder that is watched.
    fs::remove_file(&now).unwrap();
    symlink(&second, &now).unwrap();
    signal(keeper.pid(), "HUP");
    let begun = Instant::now();
    while with(&second) != Some(0) {
        assert!(begun.elapsed() < PATIENCE, "the new certificate is not shown");
    }
    assert_eq!(with(&first), Some(125));
}

#[test]
fn other_addresses_than_loopback_need_tls_or_a_proxy_and_a_url() {
    let folder = folder();
    put(folder.path());
    let (cert, key) = (path(folder.path(), "cert.pem"), path(folder.path(), "key.pem"));
    let all = ["serve", "--print-config", "--listen", "0.0.0.0:7700"];
    let safe = ["--tls-cert", &cert, "--tls-key", &key];
    let url = ["--public-url", "https://sandboxes.example.com"];
    let rows: [(Vec<&str>, Result<&str, &str>); 6] = [
        (vec![], Err("--tls-cert and --tls-key")),
        (url.to_vec(), Err("--behind-proxy")),
        (safe.to_vec(), Err("set public_url")),
        (vec!["--behind-proxy"], Err("set public_url")),
        ([&safe[..], &url].concat(), Ok("key = ")),
        ([&["--behind-proxy"], &url[..]].concat(), Ok("behind_proxy = true")),
    ];
    for (more, expected) in rows {
        let said = call(&[&all[..], &more].concat());
        match expected {
            Ok(text) => assert!(said.code == Some(0) && said.out.contains(text), "{said:?}"),
            Err(text) => assert!(said.code == Some(125) && said.err.contains(text), "{said:?}"),
        }
    }
    let half = call(&["serve", "--tls-cert", &cert]);
    assert!(half.code == Some(2) && half.err.contains("--tls-key"), "{half:?}");
    fs::write(folder.path().join("key.pem"), "").unwrap();
    let data = data_folder();
    let here = ["serve", "--listen", "127.0.0.1:0", "--data", data.path().to_str().unwrap()];
    let bad = call(&[&here[..], &safe].concat());
    assert!(bad.code != Some(0) && bad.err.contains("cannot read the key in"), "{bad:?}");
}
