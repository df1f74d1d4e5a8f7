//! The gate in front of each route: who comes, and may he.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, Uri},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use model::{audit::Action, ids::SandboxId};

use super::{
    access::{Access, Plane, Unproven},
    ending,
    ports::{self, headers::SERVICE_TOKEN},
    refusal::Refusal,
    routes::{Credentials, Needs, Route},
    shape::{self, Shape},
};
use crate::{auth, guesses::Guest, http::problem::ApiError, tokens};

/// What stands in front of one route.
#[derive(Debug)]
pub(super) struct Gate {
    plane: Plane,
    needs: Needs,
    credentials: Credentials,
    shape: Shape,
    path: &'static str,
}

impl Gate {
    pub(super) fn new(plane: Plane, route: &Route, credentials: Credentials) -> Self {
        let shape = route.spelling.shape();
        Self { plane, needs: route.needs, credentials, shape, path: route.path }
    }

    /// Checks a request; leaves with it what its handler is to know. Returns the right that the answer
    /// ends with; that of a conversation is minded by those who have it.
    async fn admit(&self, request: &mut Request) -> Result<Option<Access>, Refusal> {
        let sandbox = sandbox_of(request.uri().path());
        let guest = request.extensions().get::<Guest>().cloned();
        let least = match self.needs {
            Needs::InBand(least) => Some(least),
            Needs::Capability(_) | Needs::Credential => None,
        };
        if let Some(least) = least
            && !auth::has_credential(request.headers())
        {
            let sandbox = sandbox.ok_or(Refusal::NotFound)?;
            let unproven = Unproven::new(self.plane.clone(), sandbox, least, None).by(guest);
            request.extensions_mut().insert(unproven);
            return Ok(None);
        }
        let access = self.access(request.uri(), request.headers(), sandbox.as_ref()).await?;
        let sandbox = access.sandbox().clone();
        // Not the path that was asked for: names of files are the user's own.
        let (credential, route) = (access.credential_id(), self.path);
        tracing::debug!(%sandbox, credential, route, "let in");
        if access.is_by_key() {
            access.note(Action::Access, Some(route), None);
        }
        if let Some(least) = least {
            let unproven =
                Unproven::new(self.plane.clone(), sandbox, least, Some(access)).by(guest);
            request.extensions_mut().insert(unproven);
            return Ok(None);
        }
        request.extensions_mut().insert(access.clone());
        Ok(Some(access))
    }

    async fn access(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        sandbox: Option<&SandboxId>,
    ) -> Result<Access, Refusal> {
        if self.credentials == Credentials::Link {
            let text = uri.path().rsplit('/').next().unwrap_or_default();
            return self.plane.by_link(text, sandbox).await;
        }
        if self.credentials == Credentials::TokenOrServiceToken
            && let Some(text) = headers.get(SERVICE_TOKEN)
        {
            let port = ports::split(uri.path()).map(|(port, ..)| port);
            let text = text.to_str().map_err(|_not_ascii| Refusal::Invalid)?;
            return self.plane.by_service_token(text, sandbox, port).await;
        }
        let credential = auth::credential(headers).map_err(|_reason| Refusal::Missing)?;
        let is_key = self.credentials == Credentials::TokenOrKey && !tokens::is_token(credential);
        let needed = self.needs.capability();
        if is_key {
            self.plane.by_key(credential, sandbox, needed).await
        } else {
            self.plane.by_token(credential, sandbox, needed).await
        }
    }
}

/// Lets a request through to its handler, or answers it.
pub(super) async fn enter(
    State(gate): State<Arc<Gate>>,
    mut request: Request,
    next: Next,
) -> Response {
    let answer = match gate.admit(&mut request).await {
        Ok(None) => next.run(request).await,
        Ok(Some(access)) => ending::within(access, next.run(request)).await,
        Err(refusal) => ApiError::from(refusal).into_response(),
    };
    shape::of(gate.shape, answer)
}

/// Returns the sandbox that a path of the data plane names. The path is taken as it was sent: an id
/// has no character that need be written in another way.
fn sandbox_of(path: &str) -> Option<SandboxId> {
    path.strip_prefix("/dp/")?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sandbox_is_named_by_the_path_as_it_was_sent() {
        let id = SandboxId::from_random([5; 16]);
        assert_eq!(sandbox_of(&format!("/dp/{id}/v1/exec")), Some(id.clone()));
        assert_eq!(sandbox_of(&format!("/dp/{id}")), Some(id.clone()));
        let escaped = id.as_str().replacen('b', "%62", 1);
        for other in [format!("/dp/{escaped}/ws"), "/dp//x".into(), format!("/DP/{id}/ws")] {
            assert_eq!(sandbox_of(&other), None, "{other}");
        }
    }
}
