//! Image names, redirects and token services that aim at the machine itself: the server connects to
//! none of them for a tenant, and its refusals tell nothing about what listens there.

use std::{collections::BTreeMap, fs};

use engine::images::{ImageError, Login, Registry, Settings};
use harness::{
    imaging::build,
    packing::file,
    ports::Port,
    registry::{Asked, Fake, honest, ok, reply},
};

use super::bench::{Bench, listing};

fn image() -> harness::imaging::Built {
    build(&[vec![file("a", "a")]])
}

/// Something on the machine that answers everything, tokens too. It must never be asked.
fn victim() -> Fake {
    let built = image();
    Fake::start(move |asked| {
        if asked.path.contains("/v2/") {
            honest(&built, asked)
        } else {
            ok(br#"{"token":"inner"}"#)
        }
    })
}

fn refused(error: &ImageError) -> &str {
    match error {
        ImageError::RegistryNotAllowed { message } => message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_registry_on_the_machine_itself_is_refused_unless_it_is_listed() {
    let (open, closed) = (victim(), Port::take());
    let bench = Bench::new().await;
    let hosts = [
        "127.0.0.1",
        "localhost",
        "127.1",
        "127.0.0.01",
        "0x7f.0.0.1",
        "2130706433",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
    ];
    for host in hosts {
        let mut messages = Vec::new();
        for port in [open.address.port(), closed.number] {
            let error = bench.get(&format!("{host}:{port}/a")).await.unwrap_err();
            assert!(!error.is_retryable(), "{error}");
            messages.push(refused(&error).replace(&port.to_string(), "PORT"));
        }
        assert_eq!(messages[0], messages[1], "an open port is told from a closed one");
    }
    assert_eq!(open.asked().len(), 0);
    bench.end();
}

#[tokio::test]
async fn a_listed_registry_cannot_lead_a_pull_to_another_port_of_the_machine() {
    let victim = victim();
    let inner = victim.address;
    let built = image();
    let redirecting = Fake::start(move |asked| {
        let location = format!("Location: http://{inner}{}\r\n", asked.path);
        reply("307 Temporary Redirect", &location, b"")
    });
    let challenging = Fake::start(move |_| {
        let realm = format!("WWW-Authenticate: Bearer realm=\"http://{inner}/token\"\r\n");
        reply("401 Unauthorized", &realm, b"")
    });
    let blobs_elsewhere = Fake::start(move |asked| {
        let location = format!("Location: http://localhost:{}{}\r\n", inner.port(), asked.path);
        let is_blob = asked.path.contains("/blobs/");
        if is_blob { reply("302 Found", &location, b"") } else { honest(&built, asked) }
    });
    let servers = [&redirecting, &challenging, &blobs_elsewhere];
    let bench = Bench::listing(&servers.map(|it| it.address.to_string())).await;
    for server in servers {
        let error = bench.get(&format!("{}/a", server.address)).await.unwrap_err();
        assert!(refused(&error).contains(&inner.port().to_string()), "{error}");
        assert!(!server.asked().is_empty());
    }
    assert_eq!(victim.asked().len(), 0);
    bench.assert_empty().await;
    bench.end();
}

/// A registry that wants a token, which another server issues.
fn with_tokens_from(service: &Fake) -> Fake {
    let (built, service) = (image(), service.address);
    Fake::start(move |asked: &Asked| {
        if asked.header("authorization").as_deref() == Some("Bearer inner") {
            return honest(&built, asked);
        }
        let realm = format!("WWW-Authenticate: Bearer realm=\"http://{service}/token\"\r\n");
        reply("401 Unauthorized", &realm, b"")
    })
}

#[tokio::test]
async fn credentials_go_to_the_registry_and_to_the_token_service_that_the_operator_names() {
    let service = victim();
    let registry = with_tokens_from(&service);
    let place = tempfile::tempdir().unwrap();
    let password_file = place.path().join("password");
    fs::write(&password_file, "secret").unwrap();
    let login = Some(Login { username: "user".to_owned(), password_file });
    // The token service is on another port: its host is that of the registry, but not in this test.
    let other_host = format!("localhost:{}", registry.address.port());
    let name = format!("{other_host}/a");
    let settings = |token_service: Option<String>| {
        let own = Registry { login: login.clone(), token_service, ..Registry::default() };
        let listed = (service.address.to_string(), Registry::default());
        let registries = BTreeMap::from([(other_host.clone(), own), listed]);
        Settings { registries, ..Settings::default() }
    };
    let shown = |from: usize| -> Vec<Option<String>> {
        service.asked()[from..].iter().map(|it| it.header("authorization")).collect()
    };

    // Listed, so it may issue tokens; but it is another host, so it sees no credentials.
    let bench = Bench::with(settings(None)).await;
    bench.get(&name).await.unwrap();
    let asked = service.asked().len();
    assert_eq!(shown(0), vec![None; asked]);
    bench.end();

    let bench = Bench::with(settings(Some(service.address.to_string()))).await;
    bench.get(&name).await.unwrap();
    let basic = Some("Basic dXNlcjpzZWNyZXQ=".to_owned());
    assert!(shown(asked).iter().all(|it| *it == basic) && service.asked().len() > asked);
    bench.end();

    // Listed by nobody: not asked at all.
    let asked = service.asked().len();
    let bench = Bench::with(listing(std::slice::from_ref(&other_host))).await;
    let error = bench.get(&name).await.unwrap_err();
    assert!(refused(&error).contains("tokens come from"), "{error}");
    assert_eq!(service.asked().len(), asked);
    bench.end();
}
