//! The interpreter alone: none of our code, but the same paths, user and variables, which it gets
//! from bubblewrap.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use engine::languages::Language;

use super::{Ran, Snippet};

/// The variables of every execution.
const ENV: [&str; 4] =
    ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "USER=agbox", "HOME=/home/agbox"];

/// Executes what follows with the variables that it names and no others (bubblewrap adds one),
/// and without what whoever started the tests left behind: open descriptors, ignored signals.
const ALONE: &str = r#"
for open in /proc/self/fd/*; do
    if ((${open##*/} > 2)); then eval "exec ${open##*/}>&-"; fi
done
exec /usr/bin/env -i --default-signal "$@"
"#;

/// Where the machine's `/etc` would tell a program of another user or host.
const ETC: [(&str, &str); 4] = [
    ("passwd", "root:x:0:0:root:/root:/usr/sbin/nologin\nagbox:x:1000:1000::/home/agbox:/bin/sh\n"),
    ("group", "root:x:0:\nagbox:x:1000:\n"),
    ("hosts", "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n"),
    ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
];

/// Runs a snippet as its author would: the code in a file, its path on the command line.
pub(super) async fn run(language: &Language, snippet: &Snippet) -> Ran {
    let (language, snippet) = (language.clone(), snippet.clone());
    tokio::task::spawn_blocking(move || run_and_wait(&language, &snippet)).await.unwrap()
}

fn run_and_wait(language: &Language, snippet: &Snippet) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let workspace = folder.path().join("workspace");
    fs::create_dir(&workspace).unwrap();
    fs::write(workspace.join(&language.file), &snippet.code).unwrap();
    let given = snippet.env.iter().map(|(name, value)| format!("{name}={value}"));
    let path = format!("/workspace/{}", language.file);
    let mut child = sandbox(folder.path())
        .args(["/bin/bash", "-c", ALONE, "bash"])
        .args(ENV)
        .args(given)
        .args(language.command.iter().map(|part| part.replace("{file}", &path)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("bubblewrap is there after scripts/setup test");
    // A program need not read what it is given.
    let _ = child.stdin.take().unwrap().write_all(snippet.stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    let end = output.status.code().map_or("no exit".into(), |code| format!("exit {code}"));
    Ran { stdout: output.stdout, stderr: output.stderr, end }
}

/// Returns the command that another is appended to.
fn sandbox(folder: &Path) -> Command {
    let mut command = Command::new("bwrap");
    command.args(["--unshare-all", "--unshare-user", "--die-with-parent", "--new-session"]).args([
        "--uid",
        "1000",
        "--gid",
        "1000",
        "--hostname",
        "sandbox",
        "--cap-drop",
        "ALL",
    ]);
    for name in ["usr", "bin", "sbin", "lib", "lib64", "lib32", "etc"] {
        let host = Path::new("/").join(name);
        match fs::read_link(&host) {
            Ok(target) => command.arg("--symlink").arg(target).arg(&host),
            Err(_) => command.arg("--ro-bind-try").arg(&host).arg(&host),
        };
    }
    for (name, text) in ETC {
        let file = folder.join(name);
        fs::write(&file, text).unwrap();
        command.arg("--ro-bind").arg(file).arg(Path::new("/etc").join(name));
    }
    command
        .args(["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/tmp"])
        .args(["--tmpfs", "/home/agbox", "--bind"])
        .arg(folder.join("workspace"))
        .args(["/workspace", "--chdir", "/workspace"]);
    command
}
