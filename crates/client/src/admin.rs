//! Managing keys, and giving out tokens, over the admin routes.

use std::time::Duration;

use api::{
    audit::AuditPage,
    keys::{Actor, ActorKind, CreateKey, CreatedKey, Key, KeyList, KeyRole},
    tokens::{MintToken, MintedToken, RotateMasterKey, RotatedKey, RotatedMasterKey, TokenFormat},
};
use http_body_util::BodyExt as _;
use hyper::{Method, Request, body::Bytes};

use crate::{ClientError, address::Address, exchange::exchange};

/// Manages the keys of one server.
pub struct Admin {
    address: Address,
    key: String,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").field("address", &self.address).finish_non_exhaustive()
    }
}

/// What a new key is to be.
#[derive(Clone, Debug)]
pub struct NewKey {
    pub name: String,
    pub tenant: Option<String>,
    /// `admin`, `broker` or `user`.
    pub role: String,
    /// The id of the program that acts with it; without one it is a human's.
    pub agent: Option<String>,
    /// The id of the human who acts with it; without one it is the key's name.
    pub human: Option<String>,
}

/// What a token of a sandbox is to be.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// The sandbox's id or alias.
    pub sandbox: String,
    /// Capabilities with blanks between them; without it, all that the actor may have.
    pub scope: Option<String>,
    /// How long it is good for; without it, as long as any is.
    pub ttl: Option<Duration>,
    /// Folders that file access is confined to; if there are none, it is not confined.
    pub paths: Vec<String>,
    /// The program that it is for; without one it is for whoever has the key.
    pub agent: Option<String>,
    /// Whether it is to be a text that says nothing by itself, whatever tokens are otherwise.
    pub is_opaque: bool,
}

/// A part of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditPart {
    /// Records as they are exported: each a line of JSON.
    pub lines: Vec<String>,
    /// Where to go on; none at the end. A part may be empty and yet not be the last.
    pub next: Option<String>,
}

impl NewToken {
    fn into_request(self) -> MintToken {
        MintToken {
            sandbox: self.sandbox,
            scope: self.scope,
            ttl_seconds: self.ttl.map(|ttl| ttl.as_secs()),
            paths: Some(self.paths).filter(|paths| !paths.is_empty()),
            actor: self.agent.map(|id| Actor { kind: ActorKind::Agent, id }),
            format: self.is_opaque.then_some(TokenFormat::Opaque),
        }
    }
}

impl NewKey {
    fn into_request(self) -> Result<CreateKey, ClientError> {
        Ok(CreateKey {
            name: self.name,
            tenant: self.tenant,
            role: Some(KeyRole::named(&self.role).ok_or(ClientError::Role)?),
            actor: self
                .agent
                .map(|id| Actor { kind: ActorKind::Agent, id })
                .or(self.human.map(|id| Actor { kind: ActorKind::Human, id })),
        })
    }
}

impl Admin {
    pub fn new(address: Address, key: &str) -> Self {
        Self { address, key: key.to_owned() }
    }

    pub async fn create(&self, new: NewKey) -> Result<CreatedKey, ClientError> {
        let body = serde_json::to_vec(&new.into_request()?).map_err(ClientError::Answer)?;
        let answer = self.ask(Method::POST, "/v1/admin/keys", body).await?;
        serde_json::from_slice(&answer).map_err(ClientError::Answer)
    }

    /// Has a token made for a sandbox of the key's tenant.
    pub async fn mint(&self, new: NewToken) -> Result<MintedToken, ClientError> {
        let body = serde_json::to_vec(&new.into_request()).map_err(ClientError::Answer)?;
        let answer = self.ask(Method::POST, "/v1/tokens", body).await?;
        serde_json::from_slice(&answer).map_err(ClientError::Answer)
    }

    /// Returns all keys, oldest first.
    pub async fn list(&self) -> Result<Vec<Key>, ClientError> {
        let answer = self.ask(Method::GET, "/v1/admin/keys", Vec::new()).await?;
        let list: KeyList = serde_json::from_slice(&answer).map_err(ClientError::Answer)?;
        Ok(list.keys)
    }

    pub async fn revoke(&self, id: &str) -> Result<(), ClientError> {
        let path = format!("/v1/admin/keys/{}", escaped(id));
        self.ask(Method::DELETE, &path, Vec::new()).await?;
        Ok(())
    }

    /// Ends a sandbox and the session that it has, whoever uses it.
    pub async fn kill(&self, sandbox: &str) -> Result<(), ClientError> {
        let path = format!("/internal/sandboxes/{}/kill", escaped(sandbox));
        self.ask(Method::POST, &path, Vec::new()).await?;
        Ok(())
    }

    /// Gives a sandbox another key, which ends all its tokens.
    pub async fn rotate(&self, sandbox: &str) -> Result<RotatedKey, ClientError> {
        let path = format!("/v1/admin/sandboxes/{}/rotate-key", escaped(sandbox));
        let answer = self.ask(Method::POST, &path, Vec::new()).await?;
        serde_json::from_slice(&answer).map_err(ClientError::Answer)
    }

    /// Gives the server itself another key. At once, all that was signed with the one before ends; else that
    /// stays good for a day.
    pub async fn rotate_master(&self, at_once: bool) -> Result<RotatedMasterKey, ClientError> {
        let asked = RotateMasterKey { at_once };
        let body = serde_json::to_vec(&asked).map_err(ClientError::Answer)?;
        let answer = self.ask(Method::POST, "/v1/admin/master-key/rotate", body).await?;
        serde_json::from_slice(&answer).map_err(ClientError::Answer)
    }

    /// Returns a part of the audit log: that which these parameters of the route ask for.
    pub async fn audit(&self, wanted: &[(&str, String)]) -> Result<AuditPart, ClientError> {
        let query: Vec<String> =
            wanted.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let path = format!("/v1/audit?{}", query.join("&"));
        let answer = self.ask(Method::GET, &path, Vec::new()).await?;
        let page: AuditPage = serde_json::from_slice(&answer).map_err(ClientError::Answer)?;
        let lines = page.records.iter().map(serde_json::to_string).collect::<Result<_, _>>();
        Ok(AuditPart { lines: lines.map_err(ClientError::Answer)?, next: page.next_cursor })
    }

    /// Sends one request on a connection of its own; returns the body of a success.
    async fn ask(&self, method: Method, path: &str, body: Vec<u8>) -> Result<Bytes, ClientError> {
        let request = Request::builder().method(method).uri(path);
        exchange(&self.address, &self.key, request, body, async |response| {
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            if status.is_success() {
                Ok(body)
            } else {
                Err(ClientError::refused(status.as_u16(), &body))
            }
        })
        .await
    }
}

/// Writes a text as a part of a URL.
fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}
