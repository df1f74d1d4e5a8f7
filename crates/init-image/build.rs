//! Builds the init program of slots as a static binary, to be embedded.
//!
//! It is a program of its own with its own flags, so it is built by its own run of cargo, into a
//! folder of its own: the run that is going on holds the lock of the other one.

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
    let target = var("TARGET");
    let built_in = workspace.join("target/init");
    let status = Command::new(var("CARGO"))
        .current_dir(&workspace)
        .args(["build", "--locked", "--package", "isolate", "--bin", "ringfence-init"])
        .args(["--no-default-features", "--profile", "init", "--target", &target])
        .arg("--target-dir")
        .arg(&built_in)
        // With an explicit target these flags do not reach procedural macros, which cannot be
        // static.
        .env(
            "CARGO_ENCODED_RUSTFLAGS",
            "-Ctarget-feature=+crt-static\u{1f}-Crelocation-model=static",
        )
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("RUSTC_WRAPPER")
        .status();
    assert!(status.is_ok_and(|status| status.success()), "cannot build the init program");
    let program = built_in.join(&target).join("init/ringfence-init");
    let out = Path::new(&var("OUT_DIR")).join("ringfence-init");
    fs::copy(&program, out).expect("the program was just built");
}

fn var(name: &str) -> String {
    env::var(name).expect("cargo sets it")
}
