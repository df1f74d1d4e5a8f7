//! The Unix socket of the lifecycle protocol, as the server opens it.

use std::{
    io::{Read as _, Write as _},
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _},
        net::UnixStream,
    },
    path::Path,
    process::{Command, Stdio},
};

use crate::command::{Server, call, data_folder, ringfence, write};

/// Tells whether a server that speaks HTTP/2 answers there. It begins with its settings.
fn answers(path: &Path) -> bool {
    let Ok(mut socket) = UnixStream::connect(path) else { return false };
    socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut head = [0; 9];
    socket.read_exact(&mut head).is_ok() && head[3] == 4
}

#[test]
fn the_socket_is_where_clients_look_for_it_and_goes_with_the_server() {
    let runtime = tempfile::tempdir().unwrap();
    let mut command = ringfence(&[]);
    command.env("XDG_RUNTIME_DIR", runtime.path());
    let server = Server::start_by(command, &[]);
    let path = runtime.path().join("agbox/agboxd.sock");
    let found = std::fs::symlink_metadata(&path).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
    assert!(answers(&path));

    // A second server leaves it alone, and is of use without it.
    let mut command = ringfence(&[]);
    command.env("XDG_RUNTIME_DIR", runtime.path());
    let second = Server::start_by(command, &[]);
    assert_eq!(second.stop().0, Some(0));
    assert!(answers(&path));
    assert_eq!(server.stop().0, Some(0));
    assert!(!path.exists());
}

#[test]
fn a_socket_that_is_named_is_there_or_the_server_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("own/box.sock");
    let table = format!("[agbox]\nsocket = {:?}\n", path.display().to_string());
    let file = write(directory.path(), "ringfence.toml", &table);
    let server = Server::start_with(&["--config", &file]);
    assert!(answers(&path));
    let data = data_folder();
    let data = data.path().display().to_string();
    let second = call(&["serve", "--listen", "127.0.0.1:0", "--data", &data, "--config", &file]);
    assert_ne!(second.code, Some(0));
    assert!(second.err.contains("another server has"), "{}", second.err);
    assert!(answers(&path));
    drop(server);
    let table = format!("{table}group = \"no-such-group-here\"\n");
    let file = write(directory.path(), "group.toml", &table);
    let refused = call(&["serve", "--listen", "127.0.0.1:0", "--data", &data, "--config", &file]);
    assert_ne!(refused.code, Some(0));
    assert!(refused.err.contains("no-such-group-here"), "{}", refused.err);
}

/// Directories of the system, empty and visible to this test alone; then the server of the system, and one command.
const SYSTEM: &str = r#"
mount -t tmpfs none /run
mkdir -p /var/lib/ringfence
mount -t tmpfs -o mode=700 none /var/lib/ringfence
cd "$(mktemp -d /run/here.XXXXXX)"
echo shown > file
mkfifo ready
"$1" serve --listen 127.0.0.1:0 --data /var/lib/ringfence --allow-unlimited-disk > ready 2> log &
server=$!
while read -r line; do
    case $line in
    *"serves on "*) url=${line##* } ;;
    */readyz) break ;;
    esac
done < ready
"$1" create --image host --name demo --mount .:/workspace/here || { cat log >&2; kill $server; exit 1; }
stat -c '%a %u' /run/ringfence/agbox /run/ringfence/agbox/agboxd.sock
"$1" exec --url "$url" demo -- cat /workspace/here/file
"$1" rm --url "$url" demo
kill $server
wait $server
"#;

#[test]
fn root_without_a_runtime_directory_mounts_its_own_folder_by_the_socket_of_the_system() {
    harness::needs::require_root();
    let program = ringfence(&[]);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-euc", SYSTEM, "sh"]).arg(program.get_program());
    // Without settings from outside, and without XDG_RUNTIME_DIR.
    for (name, _) in program.get_envs() {
        command.env_remove(name);
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert_eq!(out, "demo\n700 0\n600 0\nshown\ndemo\n", "{err}");
}
