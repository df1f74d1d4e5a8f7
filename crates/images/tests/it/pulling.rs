//! Images from registries, honest ones and others.

use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use images::{
    digest::Digest,
    pull::{
        Credentials, Listener, Part, Progress, PullError, Pulled, Puller, RegistrySettings,
        Settings,
    },
    reference::Reference,
    store::{InUse, Quota, Store, StoreError},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::{
    imaging::{Built, INDEX, MANIFEST, build, descriptor, manifest, small_system},
    packing::{file, hard},
    server::{Asked, Fake, Real, honest, missing, ok, reply, unchecked_connector},
    store::{form, unfinished},
    tree::{chain, listing},
};

pub(crate) struct Bench {
    pub(crate) folder: TempDir,
    pub(crate) puller: Puller,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("store"), form()).unwrap();
        Self { folder, puller: Puller::new(store, settings) }
    }

    pub(crate) async fn pull(&self, name: &str) -> Result<Pulled, PullError> {
        self.pull_for("default", name).await
    }

    pub(crate) async fn pull_for(&self, tenant: &str, name: &str) -> Result<Pulled, PullError> {
        let listener = Listener::default();
        let reference: Reference = name.parse().unwrap();
        self.puller.pull(tenant, &reference, &unchecked_connector(), &listener).await
    }

    /// Returns what is in each layer of an image, lowest first.
    pub(crate) fn layers(&self, pulled: &Pulled) -> Vec<Vec<String>> {
        let layers = pulled.image.layers().iter();
        let layers = layers.map(|it| self.puller.store().layer(*it).unwrap().unwrap());
        layers.map(|it| listing(&it.path)).collect()
    }

    /// Asserts that a failed pull left nothing: no layer, no image, nothing unfinished.
    pub(crate) fn assert_empty(&self) {
        let root = self.folder.path().join("store");
        assert_eq!(unfinished(&root), (0, 0));
        assert_eq!(fs::read_dir(root.join("layers")).unwrap().count(), 0);
        assert_eq!(self.puller.store().images("default").unwrap(), []);
    }
}

fn small() -> Built {
    build(&[vec![file("a", vec![b'a'; 100_000])], vec![file("b", "b")]])
}

fn fake(built: &Built, lie: impl Fn(&Asked) -> Option<Vec<u8>> + Send + Sync + 'static) -> Fake {
    let built = built.clone();
    Fake::start(move |asked| lie(asked).unwrap_or_else(|| honest(&built, asked)))
}

async fn refused(
    built: &Built,
    lie: impl Fn(&Asked) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> String {
    let server = fake(built, lie);
    let bench = Bench::new();
    let error = bench.pull(&format!("{}/a", server.address)).await.unwrap_err();
    // A layer that was sound may be there, whole, until it is collected.
    assert_eq!(unfinished(&bench.folder.path().join("store")), (0, 0));
    bench.puller.store().collect(&InUse::default()).unwrap();
    bench.assert_empty();
    chain(&error).replace(&server.address.to_string(), "HOST")
}

#[tokio::test]
async fn an_image_comes_from_a_real_registry() {
    let bench = Bench::new();
    let registry = Real::start(bench.folder.path(), "");
    let built = small_system();
    registry.push("team/system", "v1", &built);
    let listener = Listener::default();
    let mut events = listener.subscribe();
    let name = format!("{}/team/system:v1", registry.address);
    let pulling = async {
        let connector = unchecked_connector();
        let pulled = bench
            .puller
            .pull("default", &name.parse().unwrap(), &connector, &listener)
            .await
            .unwrap();
        let last = listener.send_replace(Progress::default());
        drop(listener);
        (pulled, last)
    };
    let watching = async {
        let mut before = Progress::default();
        while events.changed().await.is_ok() {
            let now = events.borrow_and_update().clone();
            for (layer, part) in &now.layers {
                assert!(before.layers.get(layer).is_none_or(|it| it.done <= part.done));
            }
            before = now;
        }
    };
    let ((pulled, last), ()) = tokio::join!(pulling, watching);

    assert_eq!(pulled.image.id, Digest::of(&built.config));
    assert_eq!(pulled.image.manifest, Some(Digest::of(&built.manifest)));
    assert_eq!(pulled.image.config.config.env, ["PATH=/bin"]);
    let layers = bench.layers(&pulled);
    assert!(layers[0].iter().any(|line| line.starts_with("bin/busybox file 755 1 \\x7fELF")));
    assert_eq!(
        layers[1],
        ["etc directory 755", "etc/gone device 0", "etc/motd file 644 1 changed"]
    );
    let whole = |it: &Vec<u8>| Part { done: it.len() as u64, total: it.len() as u64 };
    let ends: Vec<Part> = pulled.image.layers().iter().map(|it| last.layers[it]).collect();
    assert_eq!(ends, built.layers.iter().map(whole).collect::<Vec<_>>());

    let by_digest = format!("{}/team/system@{}", registry.address, Digest::of(&built.manifest));
    assert_eq!(bench.pull(&by_digest).await.unwrap().image, pulled.image);
    let error = bench.pull(&format!("{}/team/system:v2", registry.address)).await.unwrap_err();
    let expected = format!("{} has no team/system/manifests/v2", registry.address);
    assert_eq!(chain(&error), expected);
}

#[tokio::test]
async fn the_image_for_this_machine_comes_out_of_an_index() {
    let bench = Bench::new();
    let registry = Real::start(bench.folder.path(), "");
    let built = small();
    registry.push("a", "ours", &built);
    let mut ours = descriptor(&built.manifest, MANIFEST);
    ours["platform"] = json!({"os": "linux", "architecture": crate::imaging::architecture()});
    let other = build(&[vec![file("c", "c")]]);
    registry.push("a", "other", &other);
    let mut theirs = descriptor(&other.manifest, MANIFEST);
    theirs["platform"] = json!({"os": "linux", "architecture": "s390x"});
    let index = |entries: serde_json::Value| {
        json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string()
    };
    registry.push_manifest("a", "both", INDEX, index(json!([theirs, ours])).as_bytes());
    registry.push_manifest("a", "foreign", INDEX, index(json!([theirs])).as_bytes());
    let pulled = bench.pull(&format!("{}/a:both", registry.address)).await.unwrap();
    assert_eq!(pulled.image.id, Digest::of(&built.config));
    let error = bench.pull(&format!("{}/a:foreign", registry.address)).await.unwrap_err();
    assert!(matches!(error, PullError::Platform(_)), "{error}");
}

#[tokio::test]
async fn a_registry_with_accounts_wants_the_right_password() {
    let folder = tempfile::tempdir().unwrap();
    let accounts = folder.path().join("accounts");
    fs::write(&accounts, "user:$2b$05$LH5XzBFEViHbcRyBrQ.gye0J2oi4fMPZWlD5JqAw14sCZ1XOM23Ua\n")
        .unwrap();
    let more = format!("auth:\n  htpasswd:\n    realm: test\n    path: {}\n", accounts.display());
    let registry = Real::start(folder.path(), &more);
    registry.push("a", "latest", &small());
    let name = format!("{}/a", registry.address);
    let with = |password: &str| {
        let credentials = Credentials { username: "user".into(), password: password.into() };
        let own =
            RegistrySettings { credentials: Some(credentials), ..RegistrySettings::default() };
        let registries = BTreeMap::from([(registry.address.clone(), own)]);
        Bench::with(Settings { registries, ..Settings::default() })
    };
    for bench in [Bench::new(), with("wrong")] {
        let error = bench.pull(&name).await.unwrap_err();
        assert!(matches!(error, PullError::Unauthorized { .. }), "{error}");
    }
    with("secret word").pull(&name).await.unwrap();
}

#[tokio::test]
async fn tokens_are_fetched_and_not_shown_to_others() {
    let built = small();
    let elsewhere = fake(&built, |_| None);
    let other = elsewhere.address;
    let server = fake(&built, move |asked| {
        if asked.path.starts_with("/token") {
            return Some(ok(br#"{"token":"abc"}"#));
        }
        if asked.header("authorization").as_deref() != Some("Bearer abc") {
            let host = asked.header("host").unwrap();
            let challenge =
                format!("WWW-Authenticate: Bearer realm=\"http://{host}/token\",service=\"s\"\r\n");
            return Some(reply("401 Unauthorized", &challenge, b""));
        }
        let is_blob = asked.path.contains("/blobs/");
        is_blob.then(|| {
            reply(
                "307 Temporary Redirect",
                &format!("Location: http://{other}{}\r\n", asked.path),
                b"",
            )
        })
    });
    let bench = Bench::new();
    bench.pull(&format!("{}/a", server.address)).await.unwrap();
    assert_eq!(elsewhere.count("/blobs/"), 3);
    let shown: Vec<_> =
        elsewhere.asked().iter().filter_map(|it| it.header("authorization")).collect();
    assert_eq!(shown, Vec::<String>::new());
    let tokens: Vec<_> = server
        .asked()
        .into_iter()
        .map(|it| it.path)
        .filter(|it| it.starts_with("/token"))
        .collect();
    assert_eq!(tokens, ["/token?service=s&scope=repository%3Aa%3Apull"]);
}

#[tokio::test]
async fn a_layer_is_fetched_once_however_many_want_it() {
    let built = small();
    let server = fake(&built, |_| None);
    let bench = Bench::new();
    let name = format!("{}/a", server.address);
    let pulls = (0..8).map(|_| bench.pull(&name));
    let done = futures_util::future::join_all(pulls).await;
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    for layer in &built.layers {
        assert_eq!(server.count(&Digest::of(layer).to_string()), 1);
    }
    // Another process on the same store has nothing to fetch.
    let store = Store::open(&bench.folder.path().join("store"), form()).unwrap();
    let other = Puller::new(store, Settings::default());
    let listener = Listener::default();
    other.pull("default", &name.parse().unwrap(), &unchecked_connector(), &listener).await.unwrap();
    for layer in &built.layers {
        assert_eq!(server.count(&Digest::of(layer).to_string()), 1);
    }
}

#[tokio::test]
async fn what_a_lying_registry_sends_is_refused() {
    let built = small();
    let layer = Digest::of(&built.layers[0]);
    let mut other = built.layers[0].clone();
    *other.last_mut().unwrap() ^= 1;
    let found = Digest::of(&other);
    let lie = other.clone();
    let blob = move |asked: &Asked| asked.path.ends_with(&layer.to_string());
    let error = refused(&built, move |asked| blob(asked).then(|| ok(&lie))).await;
    assert_eq!(error, format!("what should be {layer} is {found}"));

    let size = built.layers[0].len();
    let longer = [&built.layers[0][..], b"x"].concat();
    let error = refused(&built, move |asked| blob(asked).then(|| ok(&longer))).await;
    assert_eq!(error, format!("the blob {layer} has {} bytes, not {size}", size + 1));

    let shorter = built.layers[0][..size - 1].to_vec();
    let error = refused(&built, move |asked| blob(asked).then(|| ok(&shorter))).await;
    assert_eq!(error, format!("the blob {layer} has {} bytes, not {size}", size - 1));

    let config = Digest::of(&built.config);
    let lie = move |asked: &Asked| asked.path.ends_with(&config.to_string()).then(|| ok(b"{}"));
    let error = refused(&built, lie).await;
    assert_eq!(error, format!("what should be {config} is {}", Digest::of(b"{}")));
}

#[tokio::test]
async fn a_manifest_asked_for_by_digest_must_be_that_one() {
    let built = small();
    let other = manifest(&built.config, &built.layers[..1]);
    let found = Digest::of(&other);
    let server = fake(&built, move |asked| asked.path.contains("/manifests/").then(|| ok(&other)));
    let expected = Digest::of(&built.manifest);
    let bench = Bench::new();
    let error = bench.pull(&format!("{}/a@{expected}", server.address)).await.unwrap_err();
    assert_eq!(chain(&error), format!("what should be {expected} is {found}"));
    let error = bench.pull(&format!("{}/a", server.address)).await.unwrap_err();
    assert!(matches!(error, PullError::Layers), "{error}");
    bench.assert_empty();
}

#[tokio::test]
async fn content_that_is_not_what_the_configuration_says_is_refused() {
    let built = small();
    let swapped = build(&[vec![file("c", "c")], vec![file("b", "b")]]);
    // The blobs are what the manifest says, and the manifest is not what the configuration says.
    let lying = Built {
        manifest: manifest(&built.config, &swapped.layers),
        layers: swapped.layers.clone(),
        ..built.clone()
    };
    let server = fake(&lying, |_| None);
    let bench = Bench::new();
    let error = bench.pull(&format!("{}/a", server.address)).await.unwrap_err();
    let (expected, found) = (Digest::of(&built.archives[0]), Digest::of(&swapped.archives[0]));
    assert_eq!(chain(&error), format!("the layer is {found}, not {expected}"));
    // The other layer was honest and may stay until it is collected.
    bench.puller.store().collect(&InUse::default()).unwrap();
    bench.assert_empty();
}

#[tokio::test]
async fn a_hostile_layer_leaves_nothing() {
    let built = build(&[vec![file("a", "a"), hard("b", "../../../etc/passwd")]]);
    let error = refused(&built, |_| None).await;
    let layer = Digest::of(&built.archives[0]);
    assert_eq!(
        error,
        format!(
            "the layer {layer} is refused: the name \"../../../etc/passwd\" in the layer is not allowed"
        )
    );
}

/// Sends half of what was asked for and closes the connection.
fn cut(blob: &[u8], range: Option<&str>) -> Vec<u8> {
    let from: usize = range
        .and_then(|it| it.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok())
        .unwrap_or(0);
    let rest = &blob[from..];
    let (status, headers) = if from == 0 {
        ("200 OK", String::new())
    } else {
        let last = blob.len() - 1;
        ("206 Partial Content", format!("Content-Range: bytes {from}-{last}/{}\r\n", blob.len()))
    };
    let whole = reply(status, &headers, rest);
    let missing = if rest.len() > 20 { rest.len() / 2 } else { 0 };
    whole[..whole.len() - missing].to_vec()
}

#[tokio::test]
async fn a_cut_connection_is_taken_up_where_it_broke() {
    let built = small();
    let layer = built.layers[0].clone();
    let path = Digest::of(&layer).to_string();
    let server = fake(&built, move |asked| {
        asked.path.ends_with(&path).then(|| cut(&layer, asked.header("range").as_deref()))
    });
    let bench = Bench::new();
    let pulled = bench.pull(&format!("{}/a", server.address)).await.unwrap();
    assert_eq!(bench.layers(&pulled)[1], ["b file 644 1 b"]);
    let asked = server.asked();
    let ranges: Vec<_> = asked.iter().filter_map(|it| it.header("range")).collect();
    assert!(ranges.len() > 2, "{ranges:?}");
}

#[tokio::test]
async fn a_registry_that_cannot_go_on_begins_anew() {
    let built = small();
    let layer = built.layers[0].clone();
    let path = Digest::of(&layer).to_string();
    let times = Arc::new(AtomicUsize::new(0));
    let server = fake(&built, move |asked| {
        let is_first = asked.path.ends_with(&path) && times.fetch_add(1, Ordering::Relaxed) < 2;
        is_first.then(|| cut(&layer, None))
    });
    let bench = Bench::new();
    bench.pull(&format!("{}/a", server.address)).await.unwrap();
    assert_eq!(server.count(&Digest::of(&built.layers[0]).to_string()), 3);
}

#[tokio::test]
async fn a_way_that_stays_broken_is_given_up() {
    let built = small();
    let path = Digest::of(&built.layers[0]).to_string();
    let nothing = move |asked: &Asked| asked.path.ends_with(&path).then(Vec::new);
    let error = refused(&built, nothing).await;
    assert!(error.starts_with("the connection to HOST broke: "), "{error}");
    let busy = |_: &Asked| Some(reply("503 Service Unavailable", "", b""));
    assert_eq!(refused(&built, busy).await, "HOST answered 503 for a/manifests/latest");
    let circle =
        |asked: &Asked| Some(reply("302 Found", &format!("Location: {}\r\n", asked.path), b""));
    assert_eq!(refused(&built, circle).await, "HOST leads on and on");
    assert_eq!(refused(&built, |_| Some(missing())).await, "HOST has no a/manifests/latest");
    let large =
        |asked: &Asked| asked.path.contains("/manifests/").then(|| ok(&vec![b' '; 5 << 20]));
    assert_eq!(refused(&built, large).await, "manifests/latest is larger than 4194304 bytes");
    let old = |_: &Asked| Some(ok(br#"{"schemaVersion":1,"fsLayers":[]}"#));
    assert_eq!(
        refused(&built, old).await,
        r#"the manifest is of the kind "", which is not supported"#
    );
}

#[tokio::test]
async fn a_registry_that_says_nothing_is_left() {
    // Nobody accepts: the connection comes about and stays silent.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let settings = Settings { silence_timeout: Duration::from_millis(50), ..Settings::default() };
    let bench = Bench::with(settings);
    let name = format!("{}/a", listener.local_addr().unwrap());
    let error = bench.pull(&name).await.unwrap_err();
    assert!(matches!(error, PullError::Timeout { .. }), "{error}");
}

#[test]
fn a_pull_that_is_dropped_leaves_nothing() {
    let built = small();
    let path = Digest::of(&built.layers[0]).to_string();
    let layer = built.layers[0].clone();
    let (reached, mut waiting) = mpsc::channel(1);
    let server = fake(&built, move |asked| {
        asked.path.ends_with(&path).then(|| {
            let _first_alone = reached.try_send(());
            cut(&layer, None)
        })
    });
    let bench = Bench::new();
    let name = format!("{}/a", server.address);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        tokio::select! {
            biased;
            _ = waiting.recv() => {}
            done = bench.pull(&name) => panic!("it was to be dropped: {done:?}"),
        }
    });
    // The threads that worked for it end by themselves; the runtime waits for that.
    drop(runtime);
    assert_eq!(unfinished(&bench.folder.path().join("store")), (0, 0));
    bench.puller.store().collect(&InUse::default()).unwrap();
    bench.assert_empty();
    // Nobody holds what the dropped pull held.
    let server = fake(&built, |_| None);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(bench.pull(&format!("{}/a", server.address))).unwrap();
}

#[tokio::test]
async fn a_layer_that_is_here_is_given_only_to_a_tenant_that_can_fetch_it_itself() {
    let built = small();
    let server = fake(&built, |_| None);
    let bench = Bench::new();
    bench.pull_for("owner", &format!("{}/a", server.address)).await.unwrap();
    let fetched = server.count("/blobs/");

    // The same repository gives another tenant the same manifest: it vouches for the layers.
    bench.pull_for("guest", &format!("{}/a", server.address)).await.unwrap();
    assert_eq!(server.count("/blobs/"), fetched + 1, "the configuration alone");

    // A registry of a thief names the layers by their digests, and does not have them.
    let layers: Vec<String> = built.layers.iter().map(|it| Digest::of(it).to_string()).collect();
    let names_alone =
        fake(&built, move |asked| layers.iter().any(|it| asked.path.ends_with(it)).then(missing));
    let name = format!("{}/a", names_alone.address);
    let error = bench.pull_for("thief", &name).await.unwrap_err();
    assert!(matches!(error, PullError::NotFound { .. }), "{error}");

    // Or it has other content, and a configuration that names the layers of the owner.
    let other = build(&[vec![file("c", "c")], vec![file("d", "d")]]);
    let lying = Built {
        manifest: manifest(&built.config, &other.layers),
        layers: other.layers.clone(),
        ..built.clone()
    };
    let lying = fake(&lying, |_| None);
    let error = bench.pull_for("thief", &format!("{}/a", lying.address)).await.unwrap_err();
    assert!(chain(&error).starts_with("the layer is sha256:"), "{error}");
    assert_eq!(bench.puller.store().images("thief").unwrap(), []);

    // A tenant that brings the content itself shares what is on disk.
    let own = fake(&built, |_| None);
    bench.pull_for("equal", &format!("{}/b", own.address)).await.unwrap();
    assert!(built.layers.iter().all(|it| own.count(&Digest::of(it).to_string()) == 1));
    assert_eq!(fs::read_dir(bench.folder.path().join("store/layers")).unwrap().count(), 2);
}

#[tokio::test]
async fn the_images_of_a_tenant_and_of_all_have_a_bound_and_leave_nothing_beyond_it() {
    let built = small();
    let server = fake(&built, |_| None);
    let name = format!("{}/a", server.address);
    let with = |tenant, store| {
        let quota = Quota { tenant, store };
        Bench::with(Settings { quota, ..Settings::default() })
    };
    // Together they take about 105 KiB: 100,001 bytes, and two files.
    for (tenant, store, is_full) in [
        (64 << 10, 1 << 20, true),
        (1 << 20, 64 << 10, true),
        (104_000, 1 << 20, true),
        (1 << 20, 1 << 20, false),
    ] {
        let bench = with(tenant, store);
        let pulled = bench.pull(&name).await;
        if is_full {
            let error = pulled.unwrap_err();
            let is_told = matches!(
                error,
                PullError::Store(StoreError::TenantFull { .. } | StoreError::StoreFull { .. })
            );
            assert!(is_told, "{error:?}");
            bench.assert_empty();
        } else {
            pulled.unwrap();
            // Another tenant has room of its own.
            bench.pull_for("other", &name).await.unwrap();
        }
    }
}
