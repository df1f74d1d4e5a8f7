//! Tokens that end before their time, and what they had opened.

mod flight;
mod keys;
mod master;

use model::ids::SandboxId;
use serde_json::{Value, json};

use crate::{
    events::Events,
    exec::{Ground, Wire, ready},
    oauth::post,
    support::{Answer, Daemon},
};

/// Asks as an admin.
pub(crate) async fn ask(daemon: &Daemon, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {}", daemon.key);
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    daemon.ask("POST", path, &headers, &body.to_string()).await
}

/// Gives a sandbox another key.
pub(crate) async fn rotate(daemon: &Daemon, id: &SandboxId) -> Answer {
    ask(daemon, &format!("/v1/admin/sandboxes/{id}/rotate-key"), &Value::Null).await
}

/// Gets a token of an actor; returns the token and its id.
pub(crate) async fn mint(daemon: &Daemon, id: &SandboxId, who: &str, format: &str) -> [String; 2] {
    let actor = json!({"type": "human", "id": who});
    let body = json!({"sandbox": id.as_str(), "actor": actor, "format": format});
    let minted = ask(daemon, "/v1/admin/tokens", &body).await.json();
    ["token", "jti"].map(|name| minted[name].as_str().unwrap().to_owned())
}

/// Returns the status of asking what a token may.
pub(crate) async fn access(daemon: &Daemon, id: &SandboxId, token: &str) -> u16 {
    let bearer = format!("Bearer {token}");
    let path = format!("/dp/{id}/v1/access");
    daemon.ask("GET", &path, &[("Authorization", bearer.as_str())], "").await.status
}

/// Everything that stays open, of one token.
struct Open {
    shell: Wire,
    others: Vec<Wire>,
    events: Events,
    watch: Events,
}

impl Open {
    async fn with(daemon: &Daemon, id: &SandboxId, token: &str, name: &str) -> Self {
        let open = async |path: &str| Wire::open(daemon, id, path, Some(token)).await;
        let mut shell = open("/v1/shell/ws").await;
        let quiet = ["/bin/sh", "-c", "PS1= exec sh"];
        shell.send(json!({"type": "start", "name": name, "command": quiet})).await;
        shell.until("ready").await;
        let mut exec = open("/v1/exec/ws").await;
        exec.send(json!({"type": "start", "command": "sleep 1000"})).await;
        exec.until("ready").await;
        let mut execute = open("/execute/ws").await;
        execute.send(json!({"type": "execute", "command": "sleep 1000"})).await;
        execute.until("started").await;
        let others = vec![exec, execute, open("/ws").await, open("/tunnel").await];
        let path = |rest: &str| format!("/dp/{id}/v1/{rest}");
        let events = Events::of(daemon, &path("events"), token, "").await;
        let watch = Events::of(daemon, &path("files/watch?path=/tmp"), token, "").await;
        Self { shell, others, events, watch }
    }

    /// All of it ends, each in its own way.
    async fn ends(mut self) {
        assert_eq!(self.shell.closed().await, Some(4401));
        for (number, wire) in self.others.iter_mut().enumerate() {
            assert_eq!(wire.closed().await, Some(4401), "{number}");
        }
        assert_eq!(self.events.until("closed").await.data, json!({"reason": "revoked"}));
        while self.watch.next().await.is_some() {}
    }

    /// The shell still does what it is told, and its end is an event.
    async fn goes_on(mut self) {
        self.shell.send(json!({"type": "stdin", "data": "echo st''ill; exit 7\n"})).await;
        let (stdout, _, exit) = self.shell.rest().await;
        assert!(stdout.contains("still") && exit["exit_code"] == 7, "{stdout:?} {exit}");
        while self.events.until("EXEC_FAILED").await.data["exit_code"] != 7 {}
    }
}

/// F72: another key ends all tokens of its sandbox and what they have opened, and nothing else.
#[tokio::test]
async fn another_key_closes_what_tokens_of_the_sandbox_have_opened_and_nothing_else() {
    let ground = Ground::new().await;
    let (daemon, ours) = (ground.daemon(), &ground.id);
    let other = ready(&ground.sandboxed).await;
    let [first, _] = mint(daemon, ours, "ada", "jwt").await;
    let [second, _] = mint(daemon, ours, "bob", "opaque").await;
    let [theirs, _] = mint(daemon, &other, "ada", "jwt").await;
    let doomed = [
        Open::with(daemon, ours, &first, "one").await,
        Open::with(daemon, ours, &second, "two").await,
    ];
    let spared = Open::with(daemon, &other, &theirs, "one").await;
    let answer = rotate(daemon, ours).await;
    let expected = json!({"sandbox_id": ours.as_str(), "key_epoch": 2});
    assert_eq!((answer.status, answer.json()), (200, expected));
    for open in doomed {
        open.ends().await;
    }
    for token in [&first, &second, &ground.token] {
        assert_eq!(access(daemon, ours, token).await, 401);
    }
    assert_eq!(access(daemon, &other, &theirs).await, 200);
    spared.goes_on().await;
    // The sandbox is as it was: so is the shell, for whoever has a new token.
    let [fresh, _] = mint(daemon, ours, "ada", "jwt").await;
    let mut shell = Wire::open(daemon, ours, "/v1/shell/ws", Some(&fresh)).await;
    shell.send(json!({"type": "start", "name": "one"})).await;
    shell.until("screen").await;
    shell.send(json!({"type": "stdin", "data": "echo st''ill; exit\n"})).await;
    assert!(shell.rest().await.0.contains("still"));
    assert_eq!(rotate(daemon, ours).await.json()["key_epoch"], 3);
    assert_eq!(access(daemon, ours, &fresh).await, 401);
}

#[tokio::test]
async fn keys_of_sandboxes_are_changed_by_admins_of_their_tenant() {
    let ground = Ground::new().await;
    let daemon = ground.daemon();
    let path = |name: &str| format!("/v1/admin/sandboxes/{name}/rotate-key");
    for (name, expected) in [("sb_x", 404), ("nothing", 404)] {
        assert_eq!(ask(daemon, &path(name), &Value::Null).await.status, expected, "{name}");
    }
    let bearer = format!("Bearer {}", ground.token);
    let path = path(ground.id.as_str());
    for headers in [vec![], vec![("Authorization", bearer.as_str())]] {
        assert_eq!(daemon.ask("POST", &path, &headers, "").await.status, 401);
    }
    assert_eq!(access(daemon, &ground.id, &ground.token).await, 200);
}

/// One token, or all of an actor, ends: whoever else is in the sandbox goes on.
#[tokio::test]
async fn who_is_revoked_is_closed_and_the_others_go_on() {
    let ground = Ground::new().await;
    let (daemon, id) = (ground.daemon(), &ground.id);
    for (number, way) in ["jti", "actor", "holder"].into_iter().enumerate() {
        for format in ["jwt", "opaque"] {
            let [token, jti] = mint(daemon, id, "ada", format).await;
            let [other, _] = mint(daemon, id, "bob", format).await;
            let name = |who: &str| format!("{who}-{number}-{format}");
            let doomed = Open::with(daemon, id, &token, &name("ada")).await;
            let spared = Open::with(daemon, id, &other, &name("bob")).await;
            if way == "holder" {
                let answer = post(daemon, "/oauth/revoke", &[("token", &token)]).await;
                assert_eq!(answer.status, 200, "{}", answer.body);
            } else {
                let actor = json!({"type": "human", "id": "ada"});
                let what = if way == "jti" { json!(jti) } else { actor };
                let body = json!({"sandbox": id.as_str(), way: what});
                let answer = ask(daemon, "/v1/admin/tokens/revoke", &body).await;
                assert_eq!(answer.status, 204, "{}", answer.body);
            }
            doomed.ends().await;
            assert_eq!(access(daemon, id, &token).await, 401, "{way}");
            assert_eq!(access(daemon, id, &other).await, 200, "{way}");
            spared.goes_on().await;
            // Whoever may have tokens gets new ones, in the same second too.
            let [again, _] = mint(daemon, id, "ada", format).await;
            assert_eq!(access(daemon, id, &again).await, 200, "{way}");
        }
    }
    for body in [
        json!({"sandbox": id.as_str()}),
        json!({"sandbox": id.as_str(), "jti": "a", "actor": {"type": "human", "id": "ada"}}),
        json!({"sandbox": id.as_str(), "jti": ""}),
    ] {
        let answer = ask(daemon, "/v1/admin/tokens/revoke", &body).await;
        assert_eq!(answer.problem(), (400, "INVALID_REQUEST".to_owned()), "{body}");
    }
    let body = json!({"sandbox": "nothing", "jti": "tok_1"});
    let answer = ask(daemon, "/v1/admin/tokens/revoke", &body).await;
    assert_eq!(answer.problem(), (404, "NOT_FOUND".to_owned()));
}

/// F72: with a hundred streams open.
#[tokio::test]
async fn another_key_ends_a_hundred_streams_and_leaves_those_of_another_sandbox() {
    let ground = Ground::new().await;
    let (daemon, ours) = (ground.daemon(), &ground.id);
    let other = ready(&ground.sandboxed).await;
    let [theirs, _] = mint(daemon, &other, "ada", "jwt").await;
    let path = |id: &SandboxId| format!("/dp/{id}/v1/events");
    let (mut doomed, mut spared) = (Vec::new(), Vec::new());
    for number in 0..100 {
        let [token, _] = mint(daemon, ours, &format!("actor-{number}"), "jwt").await;
        doomed.push(Events::of(daemon, &path(ours), &token, "").await);
        if number % 10 == 0 {
            spared.push(Events::of(daemon, &path(&other), &theirs, "").await);
        }
    }
    assert_eq!(rotate(daemon, ours).await.status, 200);
    for events in &mut doomed {
        assert_eq!(events.until("closed").await.data, json!({"reason": "revoked"}));
    }
    let tenant = "default".parse().unwrap();
    let cause = model::life::EndCause::Requested;
    ground.sandboxed.sandboxes.delete(&tenant, other.as_str(), cause).await.unwrap();
    for events in &mut spared {
        // They end with their own sandbox.
        assert_eq!(events.until("closed").await.data, json!({"reason": "deleted"}));
    }
}
