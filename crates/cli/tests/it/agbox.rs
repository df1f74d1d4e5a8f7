//! The Unix socket of the lifecycle protocol, as the server opens it.

use std::{
    io::{Read as _, Write as _},
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _},
        net::UnixStream,
    },
    path::Path,
};

use crate::command::{Server, call, ringfence, write};

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
    let data = tempfile::tempdir().unwrap();
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
