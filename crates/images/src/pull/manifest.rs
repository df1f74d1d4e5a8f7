//! What registries and layouts say an image is made of.

use serde::Deserialize;

use super::PullError;
use crate::{config::Config, digest::Digest};

pub(super) const LARGEST: u64 = 4 << 20;

/// An overlay takes no more lower directories than about this.
const MOST_LAYERS: usize = 250;

const INDEXES: [&str; 2] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];
const MANIFESTS: [&str; 2] = [
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];

pub(super) fn accepted() -> String {
    [INDEXES, MANIFESTS].concat().join(", ")
}

/// A blob: what it is, how large, and by which name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    pub(super) digest: Digest,
    pub(super) size: u64,
    #[serde(default)]
    pub(super) platform: Option<Platform>,
    #[serde(default)]
    pub(super) annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Platform {
    os: String,
    architecture: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Manifest {
    pub(super) config: Descriptor,
    pub(super) layers: Vec<Descriptor>,
}

/// One image, or several for different machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Document {
    Image(Manifest),
    Index(Vec<Descriptor>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outline {
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    manifests: Option<Vec<Descriptor>>,
    #[serde(default)]
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Option<Vec<Descriptor>>,
}

/// Reads a manifest. A document that is an image and an index at once is refused: which of the two
/// it is must not depend on who reads it.
pub(super) fn read(bytes: &[u8]) -> Result<Document, PullError> {
    let outline: Outline = serde_json::from_slice(bytes).map_err(PullError::Manifest)?;
    let kind = outline.media_type.unwrap_or_default();
    let is_said_to_be = |kinds: [&str; 2]| kind.is_empty() || kinds.contains(&kind.as_str());
    match (outline.manifests, outline.config, outline.layers) {
        (Some(manifests), None, None) if is_said_to_be(INDEXES) => Ok(Document::Index(manifests)),
        (None, Some(config), Some(layers)) if is_said_to_be(MANIFESTS) => {
            if layers.len() > MOST_LAYERS {
                let what = "the list of layers".to_owned();
                return Err(PullError::TooLarge { what, limit: MOST_LAYERS as u64 });
            }
            Ok(Document::Image(Manifest { config, layers }))
        }
        _ => Err(PullError::MediaType(kind)),
    }
}

/// Returns the name of this machine's architecture in images.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn wanted() -> String {
    format!("linux/{}", architecture())
}

/// Picks the image for this machine. An index of one image without a platform has that one.
pub(super) fn pick(index: &[Descriptor]) -> Result<&Descriptor, PullError> {
    let fits = |it: &&Descriptor| {
        it.platform.as_ref().is_some_and(|it| it.os == "linux" && it.architecture == architecture())
    };
    match index {
        [only] if only.platform.is_none() => Ok(only),
        _ => index.iter().find(fits).ok_or_else(|| PullError::Platform(wanted())),
    }
}

/// Refuses an image whose configuration says that it is for another machine.
pub(super) fn check_platform(config: &Config) -> Result<(), PullError> {
    let is = |said: &str, ours: &str| said.is_empty() || said == ours;
    if is(&config.os, "linux") && is(&config.architecture, architecture()) {
        Ok(())
    } else {
        Err(PullError::Platform(wanted()))
    }
}

pub(super) fn check_digest(expected: Digest, bytes: &[u8]) -> Result<(), PullError> {
    let found = Digest::of(bytes);
    if found == expected { Ok(()) } else { Err(PullError::Digest { expected, found }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(text: &str) -> String {
        format!(r#"{{"digest":"{}","size":{}{text}}}"#, Digest::of(b""), 0)
    }

    #[test]
    fn a_document_is_one_thing() {
        let blob = descriptor("");
        let image = format!(r#"{{"schemaVersion":2,"config":{blob},"layers":[{blob}]}}"#);
        let index = format!(r#"{{"manifests":[{blob}]}}"#);
        let both = format!(r#"{{"manifests":[],"config":{blob},"layers":[]}}"#);
        let lying = format!(r#"{{"mediaType":"{}","manifests":[]}}"#, MANIFESTS[0]);
        assert!(matches!(read(image.as_bytes()), Ok(Document::Image(_))));
        assert!(matches!(read(index.as_bytes()), Ok(Document::Index(_))));
        for text in [&both, &lying, "{}", r#"{"schemaVersion":1,"fsLayers":[]}"#] {
            assert!(matches!(read(text.as_bytes()), Err(PullError::MediaType(_))), "{text}");
        }
    }

    #[test]
    fn the_image_for_this_machine_is_picked() {
        let entry = |os: &str, architecture: &str| -> Descriptor {
            let platform =
                format!(r#","platform":{{"os":"{os}","architecture":"{architecture}"}}"#);
            serde_json::from_str(&descriptor(&platform)).unwrap()
        };
        let plain: Descriptor = serde_json::from_str(&descriptor("")).unwrap();
        let ours = entry("linux", architecture());
        let others = [entry("windows", architecture()), entry("linux", "s390x")];
        let index = [others.to_vec(), vec![ours.clone()]].concat();
        assert_eq!(pick(&index).unwrap(), &ours);
        assert!(matches!(pick(&others), Err(PullError::Platform(_))));
        assert_eq!(pick(std::slice::from_ref(&plain)).unwrap(), &plain);
        assert!(matches!(pick(&[plain.clone(), plain]), Err(PullError::Platform(_))));
    }
}
