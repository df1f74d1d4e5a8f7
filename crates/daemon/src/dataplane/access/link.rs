//! Rights that a text shows by itself: to one file, or to one port.

use std::num::NonZeroU16;

use model::{
    actor::{Actor, ActorKind},
    audit::{Action, Entry, Outcome},
    capability::Capability,
    ids::SandboxId,
    reach::Reach,
    units::Timestamp,
};

use super::{Access, Plane, Proof, Refusal, Shown, denied};
use crate::{
    audit,
    auth::Caller,
    clock, guesses,
    tokens::{Tokens, link::Download, masters::KeyAge},
};

/// A text that opens one thing of a sandbox for whoever has it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) tokens: Tokens,
    /// Who gave it out.
    pub(super) caller: Caller,
    pub(super) age: KeyAge,
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
        let age = self.tokens.age_of(sandbox);
        let found = self.tokens.read_download(text, sandbox, clock::timestamp());
        let granted = found.and_then(|link| {
            let until = link.until.map(|until| Timestamp::from_millis(until.saturating_mul(1000)));
            let (tokens, caller) = (self.tokens.clone(), self.keyring.known(&link.key)?);
            Some(Link { tokens, caller, age, until, download: Some(link) })
        });
        self.admit_link(sandbox, Capability::FsRead, granted).await
    }

    /// Checks the token of a service URL for a request to this port.
    pub(in super::super) async fn by_service_token(
        &self,
        text: &str,
        sandbox: Option<&SandboxId>,
        port: Option<NonZeroU16>,
    ) -> Result<Access, Refusal> {
        let (sandbox, port) = (sandbox.ok_or(Refusal::NotFound)?, port.ok_or(Refusal::NotFound)?);
        let age = self.tokens.age_of(sandbox);
        let found = self.tokens.read_preview(text, sandbox, port, clock::timestamp());
        let granted = found.and_then(|preview| {
            let (tokens, caller) = (self.tokens.clone(), self.keyring.known(&preview.key)?);
            Some(Link { tokens, caller, age, until: Some(preview.until), download: None })
        });
        self.admit_link(sandbox, Capability::Ports, granted).await
    }

    async fn admit_link(
        &self,
        sandbox: &SandboxId,
        capability: Capability,
        granted: Option<Link>,
    ) -> Result<Access, Refusal> {
        let giver = granted.as_ref().map(|link| link.caller.tenant().to_owned());
        let checked = if let Some(link) = granted {
            match self.keyring.count_for(&link.caller.key_id().0) {
                Ok(()) => self.owner(sandbox).await.map(|tenant| (tenant, link)),
                Err(wait) => Err(Refusal::TooFast(wait)),
            }
        } else {
            guesses::note_wrong();
            Err(Refusal::Invalid)
        };
        let (tenant, link) = checked.inspect_err(|refusal| {
            let entry = audit::entry(Action::Access, Outcome::Denied);
            let entry = Entry { key: Some(LINK.to_owned()), tenant: giver, ..entry };
            self.audit.note(denied(entry, refusal));
        })?;
        let shown = Shown {
            actor: Actor { kind: ActorKind::Human, id: LINK.to_owned() },
            capabilities: [capability].into_iter().collect(),
            reach: Reach::Everywhere,
            proof: Proof::Link(Box::new(link)),
        };
        Ok(self.let_in(sandbox, tenant, shown))
    }
}
