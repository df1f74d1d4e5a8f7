//! The claims of a token, as they are written.

use std::borrow::Cow;

use model::{
    actor::{Actor, ActorKind},
    capability::Capabilities,
    reach::Reach,
    token::{Claims, Generation, MOST_PARENTS},
    units::Timestamp,
};
use serde::{Deserialize, Serialize};

/// Who signs.
pub(crate) const ISSUER: &str = "ringfence";

/// All claims, and only these: one that we do not know might be meant to confine.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<'a> {
    #[serde(borrow)]
    iss: Cow<'a, str>,
    /// Kind and id of the actor, with a colon between them.
    #[serde(borrow)]
    sub: Cow<'a, str>,
    #[serde(borrow)]
    aud: Cow<'a, str>,
    #[serde(borrow)]
    scope: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    thread_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    act: Acting<'a>,
    r#gen: u64,
    iat: i64,
    exp: i64,
    #[serde(borrow)]
    jti: Cow<'a, str>,
    /// Absent if there is no confinement.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    paths: Option<Vec<Cow<'a, str>>>,
    /// Absent if it was made of no other.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    parents: Vec<Cow<'a, str>>,
}

/// Whoever acts for the subject: the key that asked for the token.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Acting<'a> {
    #[serde(borrow)]
    sub: Cow<'a, str>,
}

pub(super) fn write(claims: &Claims) -> Result<Vec<u8>, serde_json::Error> {
    let paths = match &claims.reach {
        Reach::Everywhere => None,
        Reach::Below(folders) => Some(folders.iter().map(|it| it.as_str().into()).collect()),
    };
    serde_json::to_vec(&Written {
        iss: ISSUER.into(),
        sub: subject(&claims.actor).into(),
        aud: claims.sandbox.as_str().into(),
        scope: claims.capabilities.to_string().into(),
        thread_id: claims.thread.as_deref().map(Cow::from),
        act: Acting { sub: claims.key.as_str().into() },
        r#gen: claims.generation.0,
        iat: claims.issued_at.as_millis() / 1000,
        exp: claims.expires_at.as_millis() / 1000,
        jti: claims.id.as_str().into(),
        paths,
        parents: claims.parents.iter().map(|id| id.as_str().into()).collect(),
    })
}

/// Writes down an actor.
pub(crate) fn subject(actor: &Actor) -> String {
    format!("{}:{}", actor.kind.text(), actor.id)
}

/// Reads claims that were signed. What we would not have written is not understood.
pub(super) fn read(payload: &[u8]) -> Option<Claims> {
    let written: Written<'_> = serde_json::from_slice(payload).ok()?;
    let (kind, id) = written.sub.split_once(':')?;
    let has_empty = [id, &*written.jti, &*written.act.sub].contains(&"");
    if written.iss != ISSUER || has_empty {
        return None;
    }
    if written.parents.len() > MOST_PARENTS {
        return None;
    }
    let reach = match &written.paths {
        None => Reach::Everywhere,
        Some(paths) => Reach::below(paths).ok()?,
    };
    Some(Claims {
        actor: Actor { kind: ActorKind::read(kind)?, id: id.to_owned() },
        key: written.act.sub.into_owned(),
        sandbox: written.aud.parse().ok()?,
        capabilities: Capabilities::of_scope(&written.scope),
        reach,
        thread: written.thread_id.map(Cow::into_owned),
        generation: Generation(written.r#gen),
        issued_at: seconds(written.iat)?,
        expires_at: seconds(written.exp)?,
        id: written.jti.into_owned(),
        parents: written.parents.into_iter().map(Cow::into_owned).collect(),
    })
}

fn seconds(seconds: i64) -> Option<Timestamp> {
    seconds.checked_mul(1000).map(Timestamp::from_millis)
}
