//! Paths of the host, by the real socket, for several users.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
};

use api::agbox::v1;
use tonic::Code;

use crate::sandboxed::{Sandboxed, create, run, shell, until};

/// Users of the machine who have no name and own nothing else.
const SOMEBODY: u32 = 54_321;
const ANOTHER: u32 = 54_322;

fn secret_of(place: &Path, user: u32) -> PathBuf {
    let path = place.join(user.to_string());
    fs::write(&path, format!("of {user}\n")).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    chown(&path, Some(user), Some(user)).unwrap();
    path
}

fn with_mount(name: &str, source: &Path) -> v1::CreateSandboxRequest {
    let (source, target) = (source.display().to_string(), "/workspace/it".to_owned());
    let mut request = create(name);
    let spec = request.create_spec.as_mut().unwrap();
    spec.mounts = vec![v1::MountSpec { source, target, writable: false }];
    request
}

#[tokio::test]
async fn whoever_connects_has_his_own_files_and_nobody_elses() {
    // Without root there is one user.
    harness::needs::require_root();
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    let [own, other, roots] = [SOMEBODY, ANOTHER, 0].map(|user| secret_of(place.path(), user));
    let server = Sandboxed::start_for(Some(SOMEBODY)).await;
    let mut somebody = server.user(SOMEBODY).await;
    somebody.create_sandbox(with_mount("with-own", &own)).await.unwrap();
    until(&mut somebody, "with-own", v1::SandboxState::Ready).await;
    let command = shell("with-own", "cat /workspace/it", "reading-own");
    assert_eq!(run(&mut somebody, command).await.1, format!("of {SOMEBODY}\n"));
    for path in [&other, &roots] {
        let refused = somebody.create_sandbox(with_mount("", path)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
        assert!(refused.message().contains("Permission denied"), "{refused:?}");
    }
    let mut root = server.local().await;
    root.create_sandbox(with_mount("with-roots", &roots)).await.unwrap();
    until(&mut root, "with-roots", v1::SandboxState::Ready).await;
}
