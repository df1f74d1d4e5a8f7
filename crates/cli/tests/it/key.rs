//! `ringfence key`, with and without a server.

use serde_json::Value;

use crate::command::{Said, Server, call};

fn json(said: &Said) -> Value {
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
    serde_json::from_str(&said.out).unwrap()
}

#[test]
fn keys_are_managed_through_the_server_and_offline() {
    let server = Server::start();
    let created = json(&server.call(&["key", "create", "ci", "--agent", "robot", "--json"]));
    let id = created["key"]["id"].as_str().unwrap().to_owned();
    let secret = created["secret"].as_str().unwrap().to_owned();
    let run = ["run", "-l", "shell", "-c", "echo hello", "--key", &secret];
    assert_eq!(server.call(&run).out, "hello\n");
    assert!(server.call(&["key", "list"]).out.contains(&id));
    assert_eq!(server.call(&["key", "revoke", &id]).out, format!("revoked {id}\n"));
    assert!(server.call(&run).err.contains("UNAUTHENTICATED"));
    assert!(server.call(&["key", "revoke", "key_0"]).err.contains("NOT_FOUND"));

    let (code, data) = server.stop();
    assert_eq!(code, Some(0));
    let data = data.path().to_str().unwrap();
    // Nobody listens at the port that the command would look at first.
    let offline = |arguments: &[&str]| call(&[arguments, &["--data", data]].concat());
    let listed = json(&offline(&["key", "list", "--json"]));
    let names: Vec<_> = listed["keys"].as_array().unwrap().iter().map(|key| &key["name"]).collect();
    assert_eq!(names, ["admin", "ci"]);
    let made = offline(&["key", "create", "laptop"]);
    assert!(made.out.starts_with("rf_") && made.err.contains("only time"), "{made:?}");
    assert_eq!(offline(&["key", "revoke", "key_0"]).code, Some(125));
}

/// A server that listens where the user was told to look, and is not the one whose key is here.
#[test]
fn the_admin_key_is_sent_to_no_other_server_than_its_own() {
    let server = Server::start();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let other = format!("http://{}", listener.local_addr().unwrap());
    let data = server.data.path().to_str().unwrap();
    for command in [&["ps"][..], &["key", "list"], &["token", "mint", "--sandbox", "demo"]] {
        let said = call(&[command, &["--url", &other, "--data", data]].concat());
        assert_eq!(said.code, Some(125), "{said:?}");
        assert!(said.err.contains("is not sent to"), "{said:?}");
    }
    // `ps` may look whether anything answers, but no byte comes.
    listener.set_nonblocking(true).unwrap();
    while let Ok((mut stream, _)) = listener.accept() {
        let mut sent = Vec::new();
        std::io::Read::read_to_end(&mut stream, &mut sent).unwrap();
        assert_eq!(sent, b"");
    }
    let port = server.url.rsplit_once(':').unwrap().1;
    for own in [server.url.clone(), format!("http://localhost:{port}")] {
        assert_eq!(call(&["ps", "--url", &own, "--data", data]).code, Some(0), "{own}");
    }
}
