//! Builds what runs inside: the init program of slots as a static binary, and the library of
//! zygotes, to be embedded.
//!
//! They have flags of their own, so each is built by its own run of cargo, into a folder of its
//! own: the run that is going on holds the lock of the other one.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

fn main() {
    let workspace = PathBuf::from(var("CARGO_MANIFEST_DIR")).join("../..");
    for watched in ["crates/isolate/src", "crates/isolate/Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", workspace.join(watched).display());
    }
    let is_static = "-Ctarget-feature=+crt-static\u{1f}-Crelocation-model=static";
    let init = build(&workspace, "init", &["--bin", "ringfence-init"], is_static);
    copy(&init.join("ringfence-init"), "ringfence-init");
    // A runtime that loads it has its own C library already.
    let library = build(&workspace, "zygote", &["--lib", "--crate-type", "cdylib"], "");
    copy(&library.join("libisolate.so"), "zygote.so");
}

/// Builds a part of `isolate` and returns the folder that it is in. With an explicit target the
/// flags do not reach procedural macros, which cannot be static.
fn build(workspace: &Path, folder: &str, part: &[&str], flags: &str) -> PathBuf {
    let target = var("TARGET");
    let built_in = workspace.join("target").join(folder);
    let status = Command::new(var("CARGO"))
        .current_dir(workspace)
        .args(["rustc", "--locked", "--package", "isolate", "--no-default-features"])
        .args(["--profile", "init", "--target", &target])
        .args(part)
        .arg("--target-dir")
        .arg(&built_in)
        .env("CARGO_ENCODED_RUSTFLAGS", flags)
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("RUSTC_WRAPPER")
        .status();
    assert!(status.is_ok_and(|status| status.success()), "cannot build {part:?}");
    built_in.join(target).join("init")
}

fn copy(built: &Path, name: &str) {
    let out = Path::new(&var("OUT_DIR")).join(name);
    fs::copy(built, out).expect("it was just built");
}

fn var(name: &str) -> String {
    env::var(name).expect("cargo sets it")
}
