//! The commands about images, with a real server and a real registry.

use harness::{imaging::small_system, registry::Real};
use serde_json::Value;

use crate::{
    command::{Said, Server},
    keeper::Keeper,
};

#[test]
fn an_image_is_pulled_listed_used_and_removed() {
    let place = tempfile::tempdir().unwrap();
    let registry = Real::start(place.path(), "");
    let keeper = Keeper(Server::start_listing(&registry.address));
    registry.push("team/system", "v1", &small_system());
    let name = format!("{}/team/system:v1", registry.address);

    let pulled = keeper.ask(&["image", "pull", &name]);
    assert!(pulled.code == Some(0) && pulled.out.starts_with("sha256:"), "{pulled:?}");
    let told = keeper.ask(&["image", "pull", &name, "--json"]).out;
    let image: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert_eq!(image["names"][0], name);
    let listed = keeper.ask(&["image", "list"]).out;
    let row = listed.lines().nth(1).unwrap();
    assert!(row.starts_with(&name) && listed.lines().count() == 2, "{listed}");

    let created = keeper.ask(&["create", "--image", &name, "--name", "small"]);
    assert_eq!(created, Said { code: Some(0), out: "small\n".into(), err: String::new() });
    let motd = keeper.ask(&["exec", "small", "--", "/bin/busybox", "cat", "/etc/motd"]);
    assert_eq!(motd.out, "changed");
    let refused = keeper.ask(&["image", "rm", &name]);
    assert!(refused.code == Some(125) && refused.err.contains("IMAGE_IN_USE"), "{refused:?}");
    assert_eq!(keeper.ask(&["rm", "small"]).code, Some(0));
    let removed = keeper.json(&["image", "rm", &name]);
    assert_eq!((&removed["images_deleted"], &removed["layers_deleted"]), (&1.into(), &2.into()));
    assert_eq!(keeper.json(&["image", "list"])["images"], Value::Array(vec![]));
}

#[test]
fn an_image_that_is_not_there_is_said_to_be_missing() {
    let place = tempfile::tempdir().unwrap();
    let registry = Real::start(place.path(), "");
    let keeper = Keeper(Server::start_listing(&registry.address));
    let name = format!("{}/no/such:tag", registry.address);
    let refused = keeper.ask(&["image", "pull", &name]);
    assert!(refused.code == Some(125) && refused.err.contains("IMAGE_NOT_FOUND"), "{refused:?}");
    let failed = keeper.ask(&["create", "--image", &name, "--name", "none"]);
    assert!(failed.code == Some(125) && failed.err.contains(&name), "{failed:?}");
    let unknown = keeper.ask(&["image", "rm", &name]);
    assert!(unknown.err.contains("ringfence image list"), "{unknown:?}");
    assert_eq!(keeper.ask(&["rm", "none"]).code, Some(0));
}

#[test]
fn a_tenant_lists_and_removes_its_own_images_alone() {
    let place = tempfile::tempdir().unwrap();
    let registry = Real::start(place.path(), "");
    registry.push("team/system", "v1", &small_system());
    let keeper = Keeper(Server::start_listing(&registry.address));
    let name = format!("{}/team/system:v1", registry.address);
    assert_eq!(keeper.ask(&["image", "pull", &name]).code, Some(0));
    let with_key = |of: &[&str], arguments: &[&str]| -> Said {
        let key = keeper.json(&[&["key", "create", "laptop"], of].concat());
        let secret = key["secret"].as_str().unwrap().to_owned();
        let mut command = keeper.ringfence(arguments);
        command.env("RINGFENCE_API_KEY", secret).output().unwrap().into()
    };
    let stranger = ["--role", "admin", "--tenant", "theirs"];
    let listed = with_key(&stranger, &["image", "list", "--json"]);
    assert!(listed.code == Some(0) && !listed.out.contains("team/system"), "{listed:?}");
    let refused = with_key(&stranger, &["image", "rm", &name]);
    assert!(refused.code == Some(125) && refused.err.contains("IMAGE_NOT_FOUND"), "{refused:?}");
    let removed = with_key(&[], &["image", "rm", &name]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
}
