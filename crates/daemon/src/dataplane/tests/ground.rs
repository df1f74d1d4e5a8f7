//! Real sandboxes behind the gate, and sample routes.

use std::{fs, os::unix::fs::PermissionsExt as _, sync::Arc};

use axum::{
    Json, Router,
    body::{self, Body as HttpBody, Bytes},
    extract::Path,
    http::{Request, StatusCode},
};
use engine::{
    Engine, images,
    languages::Languages,
    sandboxes::{self, Defaults, Key, SandboxError, Sandboxes},
    sessions::{self, Sessions},
    tasks::Tasks,
};
use harness::{SpawnerProcess, remove_sandboxes, start_spawner_of_sandboxes};
use model::{
    actor::{Actor, ActorKind},
    capability::Capability,
    ids::SandboxId,
    life::Phase as SandboxPhase,
    sandbox::Refusal as Refused,
    spec::SandboxSpec,
};
use serde_json::{Value, json};
use store::{
    Store,
    keys::{KeyId, Role},
};
use tempfile::TempDir;
use tokio::sync::watch;
use tower::ServiceExt as _;

use super::super::{
    access::{Access, Plane, Unproven},
    routes::{Body, Method, Needs, Route, Routes, Spelling},
    who,
};
use crate::{
    auth::Keyring,
    guesses::Strangers,
    http::{App, Parts, hosts::Hosts, problem::ApiError},
    keys::{NewKey, Secret},
    metrics::Metrics,
    openapi::{Doc, Tag},
    serve::{Phase, Settings},
    tokens::Tokens,
    ws::Origins,
};

/// Dropping it ends the spawner and removes every sandbox.
pub(super) struct Ground {
    pub(super) tokens: Tokens,
    pub(super) keyring: Keyring,
    plane: Plane,
    sandboxes: Sandboxes,
    router: Router,
    engine: Engine,
    spawner: SpawnerProcess,
    data: TempDir,
    _phase: watch::Sender<Phase>,
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.sandboxes.close();
        self.engine.close();
        let end = self.spawner.wait();
        let removed = remove_sandboxes(&self.data.path().join("sandboxes"));
        assert!(end.is_ok() || std::thread::panicking(), "spawner: {end:?}");
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}

fn route(spelling: Spelling, method: Method, path: &'static str, needs: Needs) -> Route {
    Route { spelling, method, path, needs, body: Body::Message }
}

fn doc() -> Doc {
    Doc::new(Tag::Server, "A sample")
}

async fn enter(access: Access) -> Json<Value> {
    Json(json!({"sandbox": access.sandbox()}))
}

async fn open(unproven: Unproven) -> Json<Value> {
    Json(json!({"shown": unproven.shown().is_some()}))
}

async fn count(_: Access, body: Bytes) -> Json<Value> {
    Json(json!(body.len()))
}

async fn count_stream(_: Access, body: HttpBody) -> Json<Value> {
    Json(json!(body::to_bytes(body, usize::MAX).await.unwrap().len()))
}

async fn fail(_: Access, Path((_, what)): Path<(String, String)>) -> ApiError {
    match what.as_str() {
        "starting" => SandboxError::Refused(Refused::NotYet(SandboxPhase::Provisioning)),
        "stopped" => SandboxError::Refused(Refused::WrongPhase(SandboxPhase::Stopped)),
        "gone" => SandboxError::Refused(Refused::Gone),
        _ => SandboxError::ExecNotFound,
    }
    .into()
}

fn samples() -> Routes {
    let process = Needs::Capability(Capability::Process);
    let write = Needs::Capability(Capability::FsWrite);
    let shell = Needs::Capability(Capability::Shell);
    let in_band = Needs::InBand(Capability::Process);
    let stream =
        Route { body: Body::Streamed, ..route(Spelling::Session, Method::Post, "/stream", write) };
    Routes::default()
        .and(who::routes())
        .with(route(Spelling::Session, Method::Get, "/session", process), doc(), enter)
        .with(route(Spelling::Endpoint, Method::Any, "/endpoint", process), doc(), enter)
        .with(route(Spelling::LangSmith, Method::Get, "/langsmith", process), doc(), enter)
        .with(route(Spelling::LangSmith, Method::Get, "/langsmith-shell", shell), doc(), enter)
        .with(route(Spelling::Session, Method::Socket, "/socket", in_band), doc(), open)
        .with(route(Spelling::Session, Method::Post, "/message", write), doc(), count)
        .with(stream, doc(), count_stream)
        .with(route(Spelling::LangSmith, Method::Get, "/fail/{what}", process), doc(), fail)
}

impl Ground {
    pub(super) async fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        fs::set_permissions(data.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let folder = data.path().join("sandboxes");
        let (socket, spawner) = start_spawner_of_sandboxes(&folder).unwrap();
        let languages = Languages::installed().only(&["shell"]);
        let settings = engine::Settings { languages, ..engine::Settings::default() };
        let engine = Engine::start(settings, socket.into_fd()).await.unwrap();
        let store = Store::open(&data.path().join("s.db")).unwrap();
        let settings = sandboxes::Settings {
            node: "node_1".parse().unwrap(),
            folder,
            screens: data.path().join("screens"),
            key: Key([7; 32]),
            defaults: Defaults::default(),
            resources: engine::machine_size::of(data.path()).policy(),
            prepared: 0,
            docker: None,
        };
        let images = engine.open_images(images::Settings::default());
        let sandboxes = engine.open_sandboxes(store.clone(), images, settings).await.unwrap();
        let keyring = Keyring::open(store.clone()).await.unwrap();
        let tokens = Tokens::kept(&[9; 32], store, Vec::new()).await.unwrap();
        let (set_phase, phase) = watch::channel(Phase::Serving);
        let opened = Sessions::open(sandboxes.clone(), sessions::Settings::default());
        let sessions = opened.await.unwrap();
        let app = App::new(Parts {
            keyring: keyring.clone(),
            audit: crate::audit::Audit::open(keyring.store().clone(), None, &Tasks::default()),
            executor: engine.clone().into(),
            settings: Arc::new(Settings::default()),
            origins: Arc::new(Origins::new(Vec::new())),
            metrics: Metrics::new(),
            phase,
            tasks: Tasks::default(),
            sandboxes: Some(sandboxes.clone()),
            tokens: Some(tokens.clone()),
            sessions: Some(sessions),
            previews: crate::dataplane::previews::Previews::below(None),
            base_url: "http://127.0.0.1:1".into(),
            hosts: Arc::new(Hosts::of(None, &Settings::default(), None)),
            strangers: Strangers::new(1, false),
        });
        let plane = app.plane().unwrap();
        let router = samples().router(&plane).with_state(app);
        Self { tokens, keyring, plane, sandboxes, router, engine, spawner, data, _phase: set_phase }
    }

    /// Has a sandbox made for somebody. That it is accepted is enough to have a right to it.
    pub(super) async fn sandbox(&self, tenant: &str) -> SandboxId {
        let spec = SandboxSpec { image: "host".to_owned(), ..SandboxSpec::default() };
        let tenant = tenant.parse().unwrap();
        self.sandboxes.create(&tenant, None, spec).await.unwrap().id
    }

    /// Makes a key of a tenant and returns its secret.
    pub(super) async fn key(&self, tenant: &str, kind: ActorKind) -> String {
        self.new_key(tenant, kind).await.0.reveal().to_owned()
    }

    async fn new_key(&self, tenant: &str, kind: ActorKind) -> (Secret, KeyId) {
        let actor = Actor { kind, id: "somebody".to_owned() };
        let named = NewKey::named("somebody", Role::User).unwrap();
        let new = NewKey { tenant: tenant.to_owned(), actor, ..named };
        let secret = Secret::random().unwrap();
        let key = self.keyring.create(new, &secret).await.unwrap();
        (secret, key.id)
    }

    /// Returns a connection that has shown nothing yet.
    pub(super) fn unproven(&self, sandbox: &SandboxId) -> Unproven {
        Unproven::new(self.plane.clone(), sandbox.clone(), Capability::Process, None)
    }

    /// Returns the right that a new key gives, and the key's id.
    pub(super) async fn by_key(&self, sandbox: &SandboxId) -> (Access, KeyId) {
        let (secret, id) = self.new_key("default", ActorKind::Human).await;
        (self.plane.by_key(secret.reveal(), Some(sandbox), None).await.unwrap(), id)
    }

    pub(super) async fn ask(
        &self,
        path: &str,
        headers: &[(&'static str, String)],
    ) -> (StatusCode, Value) {
        self.answer("GET", path, headers, Vec::new()).await
    }

    pub(super) async fn send(
        &self,
        path: &str,
        headers: &[(&'static str, String)],
        body: Vec<u8>,
    ) -> (StatusCode, Value) {
        self.answer("POST", path, headers, body).await
    }

    async fn answer(
        &self,
        method: &str,
        path: &str,
        headers: &[(&'static str, String)],
        body: Vec<u8>,
    ) -> (StatusCode, Value) {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.body(HttpBody::from(body)).unwrap();
        let answer = self.router.clone().oneshot(request).await.unwrap();
        let status = answer.status();
        let body = body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }
}
