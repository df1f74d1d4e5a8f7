//! Making API keys: their secrets, and the first one.

use std::{
    fmt::{self, Write as _},
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use api::keys::{self as wire, CreateKey, CreatedKey, Key, KeyRole};
use model::{
    actor::{Actor, ActorKind},
    text::{NameError, check_name},
};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest as _, Sha256};
use store::{
    Store, StoreError,
    keys::{ApiKey, KeyHash, KeyId, Revocation, Role},
};

use crate::{auth::Keyring, from_wire, to_wire};

/// What every secret starts with, so that scanners for leaked keys can find it.
const PREFIX: &str = "rf_";
/// Random bytes in a secret: 192 bits.
const SECRET_BYTES: usize = 24;

/// A tenant that exists without being made.
pub const DEFAULT_TENANT: &str = model::policy::SERVER_TENANT;

/// The secret text of a key. Shown once, kept nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Makes a new one.
    pub fn random() -> Result<Self, KeyError> {
        Ok(Self(format!("{PREFIX}{}", random_hex(SECRET_BYTES)?)))
    }

    /// Returns the secret itself, for the one who may see it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    pub(crate) fn hash(&self) -> KeyHash {
        Self::hash_of(&self.0)
    }

    pub(crate) fn hash_of(secret: &str) -> KeyHash {
        KeyHash(Sha256::digest(secret).into())
    }

    fn last_four(&self) -> String {
        self.0.chars().skip(self.0.len().saturating_sub(4)).collect()
    }

    /// Reads a secret that was written to a file.
    fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        let random = text.strip_prefix(PREFIX)?;
        let is_whole = random.len() == 2 * SECRET_BYTES;
        (is_whole && random.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .then(|| Self(text.to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Why a key could not be made or managed.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the system gives no random bytes")]
    Random(#[source] io::Error),
    #[error("cannot use {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("{path} can be read by others; run: chmod 600 {path}")]
    TooOpen { path: PathBuf },
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("a role is one of admin, broker and user")]
    Role,
    #[error("there is no such key")]
    NoSuchKey,
    #[error(transparent)]
    Lock(#[from] store::lock::LockError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a new key is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKey {
    pub id: KeyId,
    pub name: String,
    pub tenant: String,
    pub role: Role,
    pub actor: Actor,
}

impl NewKey {
    /// Names a key of the default tenant; its actor is a human of that name.
    pub fn named(name: &str, role: Role) -> Result<Self, KeyError> {
        Ok(Self {
            id: KeyId(format!("key_{}", random_hex(8)?)),
            name: name.to_owned(),
            tenant: DEFAULT_TENANT.to_owned(),
            role,
            actor: Actor { kind: ActorKind::Human, id: name.to_owned() },
        })
    }

    /// Checks what a caller asks for.
    pub(crate) fn asked_for(request: CreateKey) -> Result<Self, KeyError> {
        let actor_id = request.actor.as_ref().map(|actor| actor.id.as_str());
        let texts = [Some(request.name.as_str()), request.tenant.as_deref(), actor_id];
        texts.into_iter().flatten().try_for_each(check_name)?;
        let named = Self::named(&request.name, request.role.map_or(Role::User, from_wire::role))?;
        Ok(Self {
            tenant: request.tenant.unwrap_or(named.tenant),
            actor: request.actor.map_or(named.actor, from_wire::actor),
            ..named
        })
    }

    pub(crate) fn into_key(self, secret: &Secret, created_at: SystemTime) -> ApiKey {
        ApiKey {
            id: self.id,
            name: self.name,
            tenant: self.tenant,
            role: self.role,
            actor: self.actor,
            last_four: secret.last_four(),
            created_at,
            revoked_at: None,
        }
    }
}

/// Returns so many random bytes.
pub(crate) fn random<const BYTES: usize>() -> Result<[u8; BYTES], KeyError> {
    let mut random = [0; BYTES];
    fill(&mut random)?;
    Ok(random)
}

fn fill(random: &mut [u8]) -> Result<(), KeyError> {
    let wanted = random.len();
    let count = getrandom(random, GetRandomFlags::empty())
        .map_err(|error| KeyError::Random(error.into()))?;
    if count == wanted {
        Ok(())
    } else {
        Err(KeyError::Random(io::ErrorKind::UnexpectedEof.into()))
    }
}

pub(crate) fn random_hex(bytes: usize) -> Result<String, KeyError> {
    let mut random = vec![0; bytes];
    fill(&mut random)?;
    Ok(random.iter().fold(String::with_capacity(2 * bytes), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Makes the first key of a new store, and leaves its secret in a file that only we can read.
/// Returns that file if the key was made now.
///
/// The file is written first: after a crash in between, the next start takes its secret.
pub async fn ensure_admin(keyring: &Keyring, data: &Path) -> Result<Option<PathBuf>, KeyError> {
    if !keyring.list().await?.is_empty() {
        return Ok(None);
    }
    let path = admin_key_file(data);
    let secret = match read_secret(&path)? {
        Some(secret) => secret,
        None => write_secret(&path)?,
    };
    keyring.create(NewKey::named("admin", Role::Admin)?, &secret).await?;
    Ok(Some(path))
}

/// Returns where the first key's secret is left.
pub fn admin_key_file(data: &Path) -> PathBuf {
    data.join("admin.key")
}

/// Returns where the URLs of the server are left that the first key belongs to, one on each line.
fn origins_file(data: &Path) -> PathBuf {
    data.join("admin.key.urls")
}

/// Leaves the URLs of this server beside its first key, so that clients send the key to no other server.
pub(crate) fn write_origins(data: &Path, origins: &[String]) -> Result<(), KeyError> {
    let path = origins_file(data);
    let failed = |source| KeyError::File { path: path.clone(), source };
    let unfinished = data.join("admin.key.urls.new");
    fs::write(&unfinished, origins.join("\n") + "\n").map_err(failed)?;
    fs::rename(&unfinished, &path).map_err(failed)
}

/// Returns the URLs of the server that the first key belongs to; nothing if the server has not started since it
/// leaves them.
pub fn read_origins(data: &Path) -> Result<Vec<String>, KeyError> {
    let path = origins_file(data);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(KeyError::File { path, source }),
    }
}

/// Returns the secret in a file, if there is one; refuses a file that others can read.
pub fn read_secret(path: &Path) -> Result<Option<Secret>, KeyError> {
    let failed = |source| KeyError::File { path: path.to_owned(), source };
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(KeyError::TooOpen { path: path.to_owned() });
    }
    Ok(Secret::read(&fs::read_to_string(path).map_err(failed)?))
}

fn write_secret(path: &Path) -> Result<Secret, KeyError> {
    let failed = |source| KeyError::File { path: path.to_owned(), source };
    let secret = Secret::random()?;
    let unfinished = path.with_extension("key.new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)
        .map_err(failed)?;
    writeln!(file, "{}", secret.reveal()).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    fs::rename(&unfinished, path).map_err(failed)?;
    Ok(secret)
}

/// Manages keys while no daemon runs: takes the data directory for itself.
#[derive(Debug)]
pub struct Offline {
    keyring: Keyring,
    store: Store,
    _lock: store::lock::DirectoryLock,
}

impl Offline {
    /// Opens the store of this data directory.
    pub async fn open(data: &Path) -> Result<Self, KeyError> {
        let lock = store::lock::DirectoryLock::take(data)?;
        let store = Store::open(&store_file(data))?;
        let keyring = Keyring::open(store.clone()).await?;
        Ok(Self { keyring, store, _lock: lock })
    }

    /// Creates a key, that of a human of its name unless somebody else is named by type and id;
    /// answers as the admin route does.
    pub async fn create(
        &self,
        name: &str,
        role: &str,
        tenant: Option<&str>,
        actor: Option<(&str, &str)>,
    ) -> Result<CreatedKey, KeyError> {
        let actor = actor.map(|(kind, id)| {
            let kind =
                if kind == "agent" { wire::ActorKind::Agent } else { wire::ActorKind::Human };
            wire::Actor { kind, id: id.to_owned() }
        });
        let request = CreateKey {
            name: name.to_owned(),
            tenant: tenant.map(str::to_owned),
            role: Some(KeyRole::named(role).ok_or(KeyError::Role)?),
            actor,
        };
        let secret = Secret::random()?;
        let key = self.keyring.create(NewKey::asked_for(request)?, &secret).await?;
        Ok(CreatedKey { key: to_wire::key(&key), secret: secret.reveal().to_owned() })
    }

    pub async fn list(&self) -> Result<Vec<Key>, KeyError> {
        Ok(self.keyring.list().await?.iter().map(to_wire::key).collect())
    }

    /// Revokes a key. Doing it twice is doing it once.
    pub async fn revoke(&self, id: &str) -> Result<(), KeyError> {
        match self.keyring.revoke(KeyId(id.to_owned())).await? {
            Revocation::Done | Revocation::DoneBefore => Ok(()),
            Revocation::NoSuchKey => Err(KeyError::NoSuchKey),
        }
    }

    pub async fn close(self) {
        self.store.close().await;
    }
}

/// Returns the file of the embedded store.
pub(crate) fn store_file(data: &Path) -> PathBuf {
    data.join("ringfence.db")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_long_random_and_not_in_debug_texts() {
        let (one, other) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.reveal().len(), PREFIX.len() + 48);
        assert!(!format!("{one:?}").contains(&one.last_four()));
        assert_eq!(Secret::read(&format!("{}\n", one.reveal())), Some(one));
        assert_eq!(Secret::read("rf_short"), None);
    }

    #[tokio::test]
    async fn the_first_start_leaves_an_admin_key_and_later_ones_leave_it_alone() {
        let data = tempfile::tempdir().unwrap();
        let store = Store::open(&store_file(data.path())).unwrap();
        let keyring = Keyring::open(store.clone()).await.unwrap();
        let path = ensure_admin(&keyring, data.path()).await.unwrap().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let secret = read_secret(&path).unwrap().unwrap();
        let found = store.key_by_hash(secret.hash()).await.unwrap().unwrap();
        assert_eq!((found.role, found.last_four), (Role::Admin, secret.last_four()));
        assert_eq!(ensure_admin(&keyring, data.path()).await.unwrap(), None);
        assert_eq!(keyring.list().await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_first_start_that_was_cut_short_is_finished_with_the_same_secret() {
        let data = tempfile::tempdir().unwrap();
        let secret = write_secret(&admin_key_file(data.path())).unwrap();
        let store = Store::open(&store_file(data.path())).unwrap();
        let keyring = Keyring::open(store.clone()).await.unwrap();
        ensure_admin(&keyring, data.path()).await.unwrap().unwrap();
        assert!(store.key_by_hash(secret.hash()).await.unwrap().is_some());
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused() {
        let data = tempfile::tempdir().unwrap();
        let path = admin_key_file(data.path());
        write_secret(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(read_secret(&path), Err(KeyError::TooOpen { .. })));
    }

    #[tokio::test]
    async fn keys_are_managed_offline_by_one_process_at_a_time() {
        let data = tempfile::tempdir().unwrap();
        let offline = Offline::open(data.path()).await.unwrap();
        assert!(matches!(Offline::open(data.path()).await, Err(KeyError::Lock(_))));
        let created = offline.create("ci", "user", None, Some(("agent", "robot"))).await.unwrap();
        offline.revoke(&created.key.id).await.unwrap();
        offline.revoke(&created.key.id).await.unwrap();
        assert!(matches!(offline.revoke("key_0").await, Err(KeyError::NoSuchKey)));
        assert!(matches!(offline.create("", "user", None, None).await, Err(KeyError::Name(_))));
        assert!(matches!(offline.create("a", "root", None, None).await, Err(KeyError::Role)));
        offline.close().await;
        let listed = Offline::open(data.path()).await.unwrap().list().await.unwrap();
        assert!(listed.len() == 1 && listed[0].revoked_at.is_some());
    }
}
