//! Which images callers may choose, and how registries are reached: `[images]`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use engine::images::{Allowed, Kind, Login, Network, Quota, Registry, Scheme, Settings};
use model::units::ByteSize;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImagesConfig {
    /// What callers may choose: `host`, `*` for any registry, the beginning of names such as
    /// `docker.io/library`, or a folder of this machine beneath which files may be named. An empty
    /// list allows nothing.
    pub allow: Vec<String>,
    /// A file with the authorities whose certificates are believed.
    pub certificates: PathBuf,
    /// The most that the images of one tenant may take on disk.
    pub tenant_size: ByteSize,
    /// The most that all images may take on disk.
    pub store_size: ByteSize,
    /// Networks that no image is fetched from although their addresses are public.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused_networks: Vec<String>,
    /// What is special about a registry, by its host and port. Only a registry that is listed here
    /// may be on an address of a private network or of this machine.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub registries: BTreeMap<String, RegistryConfig>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RegistryConfig {
    /// `safe` is TLS but for this machine itself; `https`; or `http`, in the clear.
    pub scheme: Scheme,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// A file that the daemon's user can read. The password itself is in no configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// Another host, perhaps with a port, that issues this registry's tokens and may see its password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_service: Option<String>,
}

impl Default for ImagesConfig {
    fn default() -> Self {
        let allow = vec!["host".to_owned(), "*".to_owned()];
        let Settings { certificates, quota, .. } = Settings::default();
        let (tenant_size, store_size) =
            (ByteSize::bytes(quota.tenant), ByteSize::bytes(quota.store));
        let (refused_networks, registries) = (Vec::new(), BTreeMap::new());
        Self { allow, certificates, tenant_size, store_size, refused_networks, registries }
    }
}

impl ImagesConfig {
    /// Says what makes no sense.
    pub(super) fn problem(&self) -> Option<String> {
        let is_wrong = |it: &&String| it.is_empty() || it.contains(char::is_whitespace);
        if let Some(wrong) = self.allow.iter().find(is_wrong) {
            return Some(format!("images.allow: {wrong:?} is neither a name nor a path"));
        }
        let networks = self.refused_networks.iter().map(|it| it.parse::<Network>());
        if let Some(Err(wrong)) = networks.into_iter().find(Result::is_err) {
            return Some(format!("images.refused_networks: {wrong}"));
        }
        let mut registries = self.registries.iter();
        registries.find_map(|(name, registry)| match registry {
            RegistryConfig { username: Some(_), password_file: None, .. }
            | RegistryConfig { username: None, password_file: Some(_), .. } => Some(format!(
                "images.registries.{name:?}: username and password_file belong together"
            )),
            RegistryConfig { .. } => None,
        })
    }

    /// Returns the part that the engine needs.
    pub(super) fn settings(&self) -> Settings {
        let registries =
            self.registries.iter().map(|(name, registry)| (name.clone(), registry.settings()));
        Settings {
            allowed: self.allowed(),
            registries: registries.collect(),
            // What cannot be read has been refused before.
            refused_networks: self.refused_networks.iter().flat_map(|it| it.parse()).collect(),
            certificates: self.certificates.clone(),
            quota: Quota { tenant: self.tenant_size.as_bytes(), store: self.store_size.as_bytes() },
            ..Settings::default()
        }
    }

    fn allowed(&self) -> Allowed {
        let mut kinds = BTreeSet::new();
        let mut prefixes = Vec::new();
        for entry in &self.allow {
            if entry == "host" {
                kinds.insert(Kind::Host);
                continue;
            }
            if entry.starts_with('/') {
                kinds.extend([Kind::Dir, Kind::Tar, Kind::Oci]);
            } else {
                kinds.insert(Kind::Registry);
            }
            prefixes.push(entry.clone());
        }
        Allowed { kinds, prefixes }
    }
}

impl RegistryConfig {
    fn settings(&self) -> Registry {
        let login = self.username.clone().zip(self.password_file.clone());
        let login = login.map(|(username, password_file)| Login { username, password_file });
        Registry { scheme: self.scheme, login, token_service: self.token_service.clone() }
    }
}

#[cfg(test)]
mod tests {
    use engine::images::{Reference, Refusal};

    use super::*;

    #[test]
    fn what_is_on_the_list_may_be_chosen_and_nothing_else() {
        let default = ImagesConfig::default().allow;
        let rows: [(&[String], &str, Result<(), Refusal>); 9] = [
            (&default, "host", Ok(())),
            (&default, "python", Ok(())),
            (&default, "tar:/srv/x.tar", Err(Refusal::Kind(Kind::Tar))),
            (&[], "host", Err(Refusal::Kind(Kind::Host))),
            (&["/srv".into()], "tar:/srv/x.tar", Ok(())),
            (&["/srv".into()], "dir:/etc", Err(Refusal::Prefix)),
            (&["/srv".into()], "python", Err(Refusal::Kind(Kind::Registry))),
            (&["docker.io/library".into()], "python", Ok(())),
            (&["docker.io/library".into()], "ghcr.io/a", Err(Refusal::Prefix)),
        ];
        for (allow, image, expected) in rows {
            let config = ImagesConfig { allow: allow.to_vec(), ..ImagesConfig::default() };
            let reference: Reference = image.parse().unwrap();
            assert_eq!(config.settings().allowed.check(&reference), expected, "{allow:?} {image}");
        }
    }
}
