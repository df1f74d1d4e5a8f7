//! Rights that a text shows by itself: to one file, or to one port.

use std::{num::NonZeroU16, sync::Arc};

use model::{
    actor::{Actor, ActorKind},
    audit::{Action, Entry, Outcome},
    capability::Capability,
    ids::SandboxId,
    reach::Reach,
    token::Epoch,
    units::Timestamp,
};

use super::{Access, Plane, Proof, Refusal, Right, denied};
use crate::{
    audit, clock, guesses,
    http::request,
    tokens::{Tokens, link::Download},
};

/// A text that opens one thing of a sandbox for whoever has it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) tokens: Tokens,
    pub(super) epoch: Epoch,
    pub(super) until: Option<Timestamp>,
    /// The file that it is for, if it is for one.
    pub(super) download: Option<Download>,
}

/// What links are called in logs: nobody knows who has them.
pub(super) const LINK: &str = "link";

impl Plane {
    /// Checks what the path of a link ends with.
    pub(in super::super) async fn by_link(
        &self,
        text: &str,
        sandbox: Option<&SandboxId>,
    ) -> Result<Access, Refusal> {
        let sandbox = sandbox.ok_or(Refusal::NotFound)?;
        let found = self.tokens.read_download(text, sandbox, clock::timestamp());
        let until = found.as_ref().and_then(|link| link.until);
        let until = until.map(|until| Timestamp::from_millis(until.saturating_mul(1000)));
        let what = (Capability::FsRead, found.is_some(), until, found);
        self.admit_link(sandbox, what).await
    }

    /// Checks the token of a service URL for a request to this port.
    pub(in super::super) async fn by_service_token(
        &self,
        text: &str,
        sandbox: Option<&SandboxId>,
        port: Option<NonZeroU16>,
    ) -> Result<Access, Refusal> {
        let (sandbox, port) = (sandbox.ok_or(Refusal::NotFound)?, port.ok_or(Refusal::NotFound)?);
        let until = self.tokens.read_preview(text, sandbox, port, clock::timestamp());
        self.admit_link(sandbox, (Capability::Ports, until.is_some(), until, None)).await
    }

    async fn admit_link(
        &self,
        sandbox: &SandboxId,
        (capability, is_good, until, download): (
            Capability,
            bool,
            Option<Timestamp>,
            Option<Download>,
        ),
    ) -> Result<Access, Refusal> {
        let checked = if is_good {
            self.owner(sandbox).await
        } else {
            guesses::note_wrong();
            Err(Refusal::Invalid)
        };
        let tenant = checked.inspect_err(|refusal| {
            let entry = audit::entry(Action::Access, Outcome::Denied);
            self.audit.note(denied(Entry { key: Some(LINK.to_owned()), ..entry }, refusal));
        })?;
        let (tokens, epoch) = (self.tokens.clone(), self.tokens.epoch_of(sandbox));
        Ok(Access(Arc::new(Right {
            sandboxes: self.sandboxes.clone(),
            audit: self.audit.clone(),
            request: request::id(),
            sandbox: sandbox.clone(),
            tenant,
            actor: Actor { kind: ActorKind::Human, id: LINK.to_owned() },
            capabilities: [capability].into_iter().collect(),
            reach: Reach::Everywhere,
            proof: Proof::Link(Box::new(Link { tokens, epoch, until, download })),
        })))
    }
}
