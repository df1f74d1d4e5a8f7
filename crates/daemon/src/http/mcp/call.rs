//! One message: who sent it, what he may, and until when.

use std::{future, sync::Arc};

use api::errors::ErrorCode;
use axum::{extract::FromRequestParts as _, http::request::Parts};
use model::{audit::Action, capability::Capability, ids::SandboxId};
use tokio::select;

use super::{answers::Refused, progress::Telling, running::Place};
use crate::{
    auth::{self, Caller},
    dataplane::{
        access::{Access, Ended},
        refusal::Refusal,
    },
    http::{
        App,
        problem::ApiError,
        request,
        sessions::{Desk, refusals::Names},
    },
    serve::Phase,
    tokens,
    ws::connection::until,
};

/// Who asks: the holder of a key, or of a token of one sandbox.
#[derive(Clone, Debug)]
pub(super) enum Who {
    Key(Caller),
    Token(Access),
}

impl Who {
    pub(super) async fn of(app: &App, request: &mut Parts) -> Result<Self, ApiError> {
        let shown = auth::credential(&request.headers).ok().filter(|it| tokens::is_token(it));
        match (shown, app.plane()) {
            (Some(token), Some(plane)) => Ok(Self::Token(plane.own(token).await?)),
            _ => Caller::from_request_parts(request, app).await.map(Self::Key),
        }
    }

    /// Returns what the credential is called in logs.
    pub(super) fn credential(&self) -> &str {
        match self {
            Self::Key(caller) => &caller.key_id().0,
            Self::Token(access) => access.credential_id(),
        }
    }

    /// Returns when the credential is good for nothing any more, and why.
    async fn ended(&self) -> ApiError {
        let ended = match self {
            Self::Token(access) => access.until_ended().await,
            Self::Key(caller) => {
                until(caller.revoked(), |revoked| *revoked).await;
                Ended::Revoked
            }
        };
        match ended {
            Ended::Expired => Refusal::Expired.into(),
            Ended::Revoked => Refusal::Invalid.into(),
        }
    }
}

/// A message that is being answered. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) app: App,
    who: Who,
    request: Option<String>,
    place: Option<Arc<Place>>,
    told: Option<Telling>,
}

impl Call {
    pub(super) fn new(
        app: App,
        who: Who,
        request: Option<String>,
        place: Option<Arc<Place>>,
    ) -> Self {
        Self { app, who, request, place, told: None }
    }

    /// Returns it for a client that wants to be told what is written meanwhile.
    pub(super) fn telling(self, told: Telling) -> Self {
        Self { told: Some(told), ..self }
    }

    /// Tells whether anybody wants to be told what is written meanwhile.
    pub(super) fn is_heard(&self) -> bool {
        self.told.is_some()
    }

    /// Takes note of what a program has written.
    pub(super) fn wrote(&self, bytes: &[u8]) {
        if let Some(told) = &self.told {
            told.wrote(bytes);
        }
    }

    /// Does what was asked for, unless nobody waits for it any more, or nobody may. What is dropped then ends
    /// what it had begun.
    pub(super) async fn answer<T>(
        &self,
        gone: impl Future<Output = ()>,
        work: impl Future<Output = Result<T, Refused>>,
    ) -> Result<T, Refused> {
        let taken_back = async {
            match &self.place {
                Some(place) => place.cancelled().await,
                None => future::pending().await,
            }
        };
        let refuse = |code, message: &'static str| Err(ApiError::new(code, message).into());
        let answered = async {
            select! {
                answer = work => answer,
                () = gone => refuse(ErrorCode::Conflict, "the client is gone"),
                () = taken_back => refuse(ErrorCode::Conflict, "the request was cancelled"),
                ended = self.who.ended() => Err(ended.into()),
                () = until(self.app.phase.clone(), |phase| *phase == Phase::Closing) => {
                    refuse(ErrorCode::Unavailable, "the server is shutting down; try again")
                }
            }
        };
        request::within(self.request.clone(), answered).await
    }

    /// Returns the id of the request that it came with.
    pub(super) fn request(&self) -> String {
        self.request.clone().unwrap_or_default()
    }

    /// Returns the holder of the key, for what a token of a sandbox is not good for.
    pub(super) fn caller(&self) -> Result<&Caller, Refused> {
        match &self.who {
            Who::Key(caller) => Ok(caller),
            Who::Token(_) => {
                let message = "this takes an API key; a token is good for its own sandbox only";
                Err(ApiError::new(ErrorCode::Forbidden, message).into())
            }
        }
    }

    pub(super) fn desk(&self) -> Result<Desk, Refused> {
        Ok(Desk::of(&self.app, self.caller()?.clone())?)
    }

    /// Returns the right to the sandbox of a session, with this capability, for this tool.
    pub(super) async fn access(
        &self,
        session: Option<&str>,
        tool: &'static str,
        needed: Capability,
    ) -> Result<Access, Refused> {
        let denied = |error: Refusal| Refused::lacking(error.into(), needed);
        match &self.who {
            Who::Token(access) => {
                self.check_session(access.sandbox(), session)?;
                access.require(needed).map_err(denied)?;
                Ok(access.clone())
            }
            Who::Key(caller) => {
                let session = session.ok_or_else(no_session)?;
                let desk = self.desk()?;
                let sandbox = desk.find(session, Names::Session).await?.session.sandbox;
                let plane = self.app.plane().ok_or_else(no_session)?;
                let access = plane.by_caller(caller.clone(), Some(&sandbox), Some(needed)).await;
                let access = access.map_err(denied)?;
                access.note(Action::Access, Some(tool), None);
                Ok(access)
            }
        }
    }

    /// A token says which sandbox is meant; whoever names a session as well must mean that one.
    fn check_session(&self, sandbox: &SandboxId, named: Option<&str>) -> Result<(), Refused> {
        let Some(named) = named else { return Ok(()) };
        let holder = self.app.sessions.as_ref().and_then(|sessions| sessions.holder(sandbox));
        match holder {
            Some(session) if session.id.to_string() == named => Ok(()),
            _ => Err(Names::Session.not_found().into()),
        }
    }
}

fn no_session() -> ApiError {
    let message = "/session_id: is missing; environment_acquire gives one";
    ApiError::new(ErrorCode::InvalidRequest, message)
}
