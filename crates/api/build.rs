//! Makes Rust of the protocol files, without a compiler of the system.

use std::{env, fs, io, path::PathBuf};

use prost::Message as _;
use tonic_prost_build as codegen;

/// Where the protocol files are, from this package.
const PROTO: &str = "../../proto";

/// Messages that hold a user's env or commands. Their `Debug` is written by hand and shows nothing.
const SECRETIVE: [&str; 5] = [
    ".agbox.v1.CompanionContainerSpec",
    ".agbox.v1.CreateSpec",
    ".agbox.v1.ExecStatus",
    ".agbox.v1.CreateSandboxRequest",
    ".agbox.v1.CreateExecRequest",
];

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed={PROTO}");
    let compile = |file| protox::compile([file], [PROTO]).map_err(io::Error::other);
    let mut files = compile("agbox/v1/service.proto")?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    fs::write(out.join("agbox.v1.bin"), files.encode_to_vec())?;
    files.file.extend(compile("ringfence/v1/images.proto")?.file);
    codegen::configure()
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .btree_map(".")
        .skip_debug(SECRETIVE)
        .compile_fds(files)
}
