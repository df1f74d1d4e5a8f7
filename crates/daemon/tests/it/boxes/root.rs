//! The user of a box: commands and files are root's inside, unless the box names another user.

use serde_json::json;

use super::{ask, run, send, until, until_stopped};
use crate::{
    sandboxed::Sandboxed,
    support::{Answer, Daemon},
};

/// Uploads a file as the SDKs do, and returns the status.
async fn upload(daemon: &Daemon, id: &str, path: &str, content: &str) -> u16 {
    let body = format!(
        "--part\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file\"\r\n\r\n\
         {content}\r\n--part--\r\n"
    );
    let headers = [
        ("X-Api-Key", daemon.key.as_str()),
        ("Content-Type", "multipart/form-data; boundary=part"),
    ];
    daemon.ask("POST", &format!("/dp/{id}/upload?path={path}"), &headers, &body).await.status
}

async fn download(daemon: &Daemon, id: &str, path: &str) -> Answer {
    let headers = [("X-Api-Key", daemon.key.as_str())];
    daemon.ask("GET", &format!("/dp/{id}/download?path={path}"), &headers, "").await
}

#[tokio::test]
async fn commands_and_files_of_a_box_are_roots_unless_it_names_another_user() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let made = send(daemon, "POST", "/boxes", json!({"name": "a-box", "snapshot": "host"})).await;
    let id = made["id"].as_str().unwrap();
    assert_eq!(made["run_config"], json!({"user": "root"}));
    assert_eq!(run(daemon, &made, "id -u; pwd; echo $HOME").await, "0\n/root\n/root\n");
    // Files are written by the same user, from the same home.
    for path in ["note", "/app/note", "/opt/note", "/etc/note", "/root/private/note"] {
        assert_eq!(upload(daemon, id, path, "text").await, 201, "{path}");
    }
    let owners = "stat -c '%u %a' /root/note /app/note /opt/note /etc/note /root/private";
    let expected = "0 644\n0 644\n0 644\n0 644\n0 755\n";
    assert_eq!(run(daemon, &made, owners).await, expected);
    run(daemon, &made, "umask 077; mkdir /app/mine; echo secret > /app/mine/note").await;
    assert_eq!(download(daemon, id, "/app/mine/note").await.body, "secret\n");
    // Another user is another user's rights, for files as well, from the next request on.
    let body = json!({"run_config": {"user": "agbox"}});
    assert_eq!(ask(daemon, &daemon.key, "PATCH", "/boxes/a-box", &body).await.status, 200);
    assert_eq!(run(daemon, &made, "id -u; pwd").await, "1000\n/home/agbox\n");
    assert_eq!(upload(daemon, id, "/app/other", "text").await, 403);
    assert_eq!(download(daemon, id, "/app/mine/note").await.status, 403);
    assert_eq!(upload(daemon, id, "mine", "text").await, 201);
    assert_eq!(
        run(daemon, &made, "stat -c '%u %n' /home/agbox/mine").await,
        "1000 /home/agbox/mine\n"
    );
}

#[tokio::test]
async fn root_inside_writes_anywhere_in_the_root_and_finds_it_again_and_others_do_not() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let body = json!({"name": "a-box", "snapshot": "host"});
    let made = send(daemon, "POST", "/boxes", body).await;
    let write = "set -e; mkdir /app /opt /srv; echo new > /app/file; echo more >> /etc/hosts; \
        rm /etc/hostname; chown 1000:1000 /app; mv /srv /service; chmod 750 /opt; echo done";
    assert_eq!(run(daemon, &made, write).await, "done\n");
    // A sandbox that is started again is made over the files that it has.
    let look = "cat /app/file; tail -n 1 /etc/hosts; ls -d /etc/hostname /srv /service 2>/dev/null; \
        stat -c '%u %a' /app /opt / /etc/passwd";
    let expected = "new\nmore\n/service\n1000 755\n0 750\n0 755\n0 644\n";
    assert_eq!(run(daemon, &made, look).await, expected);
    send(daemon, "POST", "/boxes/a-box/stop", json!({})).await;
    until_stopped(daemon, "a-box").await;
    send(daemon, "POST", "/boxes/a-box/start", json!({})).await;
    until(daemon, "a-box", "ready").await;
    assert_eq!(run(daemon, &made, look).await, expected);
    // Others can write where they could.
    let path = format!("/dp/{}/execute", made["id"].as_str().unwrap());
    let tries = "for path in / /etc /opt /usr /root /var/lib; do touch $path/x 2>/dev/null && echo $path; done; \
        for path in /tmp /workspace /home/agbox /app; do touch $path/x || echo not $path; done";
    let own = json!({"command": tries, "run_config": {"user": "agbox"}});
    assert_eq!(send(daemon, "POST", &path, own).await["stdout"], "");
    // The machine's own programs are everybody's, and nobody's to write to.
    let usr =
        run(daemon, &made, "touch /usr/x 2>/dev/null || echo no; touch /usr/bin/sh || echo no")
            .await;
    assert_eq!(usr, "no\nno\n");
    // A new box has nothing of it.
    let other = json!({"name": "b-box", "snapshot": "host"});
    let other = send(daemon, "POST", "/boxes", other).await;
    assert_eq!(
        run(daemon, &other, "ls -d /app /service 2>/dev/null; cat /etc/hostname").await,
        "sandbox\n"
    );
}
