//! Images made in a test, in the forms that tools write.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on is red")]

use std::{fs, io::Write as _, path::Path};

use images::digest::Digest;
use serde_json::{Value, json};

use crate::packing::{Item, directory, file, item, pack};

pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// An image as a registry keeps it.
#[derive(Debug, Clone)]
pub struct Built {
    pub config: Vec<u8>,
    pub layers: Vec<Vec<u8>>,
    pub archives: Vec<Vec<u8>>,
    pub manifest: Vec<u8>,
}

pub fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn descriptor(bytes: &[u8], kind: &str) -> Value {
    json!({"mediaType": kind, "digest": Digest::of(bytes), "size": bytes.len()})
}

/// Packs each list of entries as a layer: the first as gzip, the others as zstandard.
pub fn build(layers: &[Vec<Item>]) -> Built {
    let archives: Vec<Vec<u8>> = layers.iter().map(|items| pack(items)).collect();
    let compress = |(number, archive): (usize, &Vec<u8>)| {
        if number == 0 { gzip(archive) } else { zstd::encode_all(&archive[..], 1).unwrap() }
    };
    let layers: Vec<Vec<u8>> = archives.iter().enumerate().map(compress).collect();
    let diff_ids: Vec<Digest> = archives.iter().map(|it| Digest::of(it)).collect();
    let config = json!({
        "os": "linux", "architecture": architecture(),
        "config": {"Env": ["PATH=/bin"], "Cmd": ["sh"], "WorkingDir": "/srv"},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    let config = config.to_string().into_bytes();
    let manifest = manifest(&config, &layers);
    Built { config, layers, archives, manifest }
}

pub fn manifest(config: &[u8], layers: &[Vec<u8>]) -> Vec<u8> {
    let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
    let layers: Vec<Value> = layers.iter().map(|it| descriptor(it, kind)).collect();
    let config = descriptor(config, "application/vnd.oci.image.config.v1+json");
    json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers})
        .to_string()
        .into_bytes()
}

/// A small system: a shell, some files, and a second layer that changes them.
pub fn small_system() -> Built {
    let busybox = fs::read("/usr/bin/busybox").or_else(|_| fs::read("/bin/busybox")).unwrap();
    build(&[
        vec![
            directory("bin"),
            Item { mode: 0o755, ..file("bin/busybox", busybox) },
            file("etc/motd", "hello"),
            file("etc/gone", "gone"),
        ],
        vec![item(b'0', "etc/.wh.gone"), file("etc/motd", "changed")],
    ])
}

/// Writes an image as a layout, and returns the files of one as (name, content).
pub fn layout(images: &[(&str, &Built)]) -> Vec<(String, Vec<u8>)> {
    let mut files = vec![("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec())];
    let mut manifests = Vec::new();
    for (tag, built) in images {
        let mut entry = descriptor(&built.manifest, MANIFEST);
        entry["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
        manifests.push(entry);
        let blobs = built.layers.iter().chain([&built.config, &built.manifest]);
        files
            .extend(blobs.map(|it| (format!("blobs/sha256/{}", Digest::of(it).hex()), it.clone())));
    }
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
    files.push(("index.json".to_owned(), index.to_string().into_bytes()));
    files
}

/// Returns the files of what `docker save` writes, with uncompressed layers.
pub fn saved(built: &Built) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut names = Vec::new();
    for archive in &built.archives {
        let name = format!("{}/layer.tar", Digest::of(archive).hex());
        names.push(name.clone());
        files.push((name, archive.clone()));
    }
    let config = format!("{}.json", Digest::of(&built.config).hex());
    let list = json!([{"Config": config, "RepoTags": ["a:latest"], "Layers": names}]);
    files.push((config, built.config.clone()));
    files.push(("manifest.json".to_owned(), list.to_string().into_bytes()));
    files
}

pub fn archived(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let items: Vec<Item> = files.iter().map(|(name, content)| file(name, content)).collect();
    pack(&items)
}

pub fn written(files: &[(String, Vec<u8>)], folder: &Path) {
    for (name, content) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}
