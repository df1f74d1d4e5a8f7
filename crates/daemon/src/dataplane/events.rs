//! `GET /v1/events`: what happens to the sandbox, as server-sent events, from any of its events on.
//!
//! An event's id is its sequence, so that a client that comes back with `Last-Event-ID` misses nothing
//! and is told nothing twice. Events are read when there is room for them: a client that does not read
//! costs no more than one that does, and the kernel cuts it off.

use std::{
    convert::Infallible,
    time::{Duration, SystemTime},
};

use api::{
    agbox::v1::{self, sandbox_event::Details},
    errors::ErrorCode,
    events::{Closed, SandboxEvent},
};
use axum::{
    Extension,
    extract::{Query, State, rejection::QueryRejection},
    http::{HeaderMap, HeaderName, HeaderValue},
    response::sse::{Event, KeepAlive, Sse},
};
use engine::sandboxes::{EventStream, SandboxError};
use futures_util::{Stream, stream};
use model::event::{EventKind, Sequence};
use serde::Deserialize;
use serde_json::json;
use tokio::{select, sync::watch};

use super::{
    access::{Access, Ended},
    ending::TellsItsEnd,
    routes::{Body, Method, Needs, Route, Routes, Spelling},
};
use crate::{
    clock,
    grpc::to_wire::{self, Told},
    http::{App, problem::ApiError},
    openapi::{Doc, Tag, doc::SANDBOX},
    serve::Phase,
    ws::connection::until,
};

/// How often a silent stream says that it is there.
const ALIVE: Duration = Duration::from_secs(15);
/// Which events there are, of a sandbox that was asked for others.
const RANGE: HeaderName = HeaderName::from_static("x-event-range");

pub(super) fn routes() -> Routes {
    let route = Route {
        spelling: Spelling::Session,
        method: Method::Get,
        path: "/events",
        needs: Needs::Credential,
        body: Body::Message,
    };
    let number = json!({"type": "integer", "minimum": 0});
    let doc = Doc::new(Tag::Events, "Follows what happens to the sandbox")
        .query("from", &number, "The last event that the client has.")
        .header("Last-Event-ID", &number, "The same, as browsers say it.")
        .streams::<SandboxEvent>("Its events, from there on. The id of each is its sequence.")
        .refuses(&SANDBOX)
        .refuses(&[ErrorCode::InvalidRequest, ErrorCode::RangeNotSatisfiable]);
    Routes::default().with(route, doc, follow)
}

/// Where to begin.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// The last event that the client has.
    #[serde(default)]
    from: u64,
}

async fn follow(
    State(app): State<App>,
    access: Access,
    headers: HeaderMap,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<(Extension<TellsItsEnd>, Sse<impl Stream<Item = Result<Event, Infallible>>>), ApiError>
{
    let after = after(&headers, asked)?;
    let events = access.sandboxes().events(access.tenant(), access.sandbox().as_str(), after).await;
    let events = events.map_err(refuse)?;
    let following = Following {
        events,
        access,
        phase: app.phase.clone(),
        warned_of: None,
        was_dropped: false,
        end: End::NotYet,
    };
    let told = stream::unfold(following, async |mut following| {
        let event = following.next().await?;
        Some((Ok(event), following))
    });
    let told = Sse::new(told).keep_alive(KeepAlive::new().interval(ALIVE));
    Ok((Extension(TellsItsEnd), told))
}

/// Returns the last event that the client has. Whoever comes back says so in a header, and asks for the
/// same address.
fn after(
    headers: &HeaderMap,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Sequence, ApiError> {
    let bad = || ApiError::new(ErrorCode::InvalidRequest, "a place among events is a number");
    let Query(Asked { from }) = asked.map_err(|_unreadable| bad())?;
    let last = headers.get("last-event-id").filter(|last| !last.is_empty());
    let Some(last) = last else { return Ok(Sequence(from)) };
    let number = last.to_str().ok().and_then(|last| last.parse().ok());
    number.map(Sequence).ok_or_else(bad)
}

/// What is not there yet, or not any more, is refused with what there is.
fn refuse(error: SandboxError) -> ApiError {
    let SandboxError::OutOfRange { earliest, latest, .. } = &error else { return error.into() };
    let range = HeaderValue::try_from(format!("{earliest}-{latest}"));
    let told = ApiError::from(error);
    match range {
        Ok(range) => told.with_header(RANGE, range),
        Err(_not_a_header) => told,
    }
}

struct Following {
    events: EventStream,
    access: Access,
    phase: watch::Receiver<Phase>,
    /// The end that the client was warned of.
    warned_of: Option<SystemTime>,
    /// Whether events were waited for and something else came.
    was_dropped: bool,
    end: End,
}

enum End {
    NotYet,
    /// Nothing comes any more, which is not said yet.
    Because(Closed),
    Said,
}

impl Following {
    async fn next(&mut self) -> Option<Event> {
        match self.end {
            End::NotYet => {}
            End::Because(why) => return Some(self.close(why)),
            End::Said => return None,
        }
        // There may be some that nobody is told of any more.
        if std::mem::take(&mut self.was_dropped)
            && let Ok(Some(event)) = self.events.next_known().await
        {
            return Some(self.tell(&event));
        }
        select! {
            biased;
            () = until(self.phase.clone(), |phase| *phase != Phase::Serving) => {
                Some(self.close(Closed::Restarting))
            }
            ended = self.access.until_ended() => Some(self.close(match ended {
                Ended::Expired => Closed::TokenExpired,
                Ended::Revoked => Closed::Revoked,
            })),
            () = self.access.until_expiring(self.warned_of) => {
                (self.warned_of, self.was_dropped) = (self.access.expires_at(), true);
                Some(self.warn())
            }
            event = self.events.next() => Some(match event {
                Ok(Some(event)) => self.tell(&event),
                Ok(None) => self.close(Closed::Deleted),
                Err(error) => {
                    tracing::warn!(sandbox = %self.access.sandbox(), %error, "no more events");
                    self.close(Closed::Unavailable)
                }
            }),
        }
    }

    fn tell(&mut self, event: &model::event::Event) -> Event {
        // There is none after it.
        if matches!(event.kind, EventKind::Deleted(_)) {
            self.end = End::Because(Closed::Deleted);
        }
        let told = shown(to_wire::event(event, self.access.sandbox().as_str(), Told::Live));
        let id = told.sequence.to_string();
        Event::default().id(id).json_data(told).unwrap_or_default()
    }

    fn warn(&self) -> Event {
        let expires_at = self.access.expires_at().map(clock::text);
        named("token_expiring", &json!({"expires_at": expires_at}))
    }

    fn close(&mut self, why: Closed) -> Event {
        self.end = End::Said;
        named("closed", &json!({"reason": why}))
    }
}

fn named(name: &str, data: &serde_json::Value) -> Event {
    Event::default().event(name).data(data.to_string())
}

/// Writes an event as `ringfence events --json` does.
fn shown(event: v1::SandboxEvent) -> SandboxEvent {
    let occurred_at = event.occurred_at.and_then(|time| time.try_into().ok());
    let mut shown = SandboxEvent {
        sequence: event.sequence,
        event_type: event.event_type().as_str_name(),
        occurred_at: occurred_at.map(clock::text).unwrap_or_default(),
        sandbox_state: word(event.sandbox_state().as_str_name(), "SANDBOX_STATE_"),
        sandbox_id: event.sandbox_id,
        phase: None,
        reason: None,
        exec_id: None,
        exec_state: None,
        exit_code: None,
        companion: None,
        error_code: None,
        error_message: None,
    };
    let errors = match event.details {
        None => return shown,
        Some(Details::SandboxPhase(told)) => {
            (shown.phase, shown.reason) = (text(told.phase), text(told.reason));
            (told.error_code, told.error_message)
        }
        Some(Details::Exec(told)) => {
            let state = told.exec_state();
            shown.exec_state = Some(word(state.as_str_name(), "EXEC_STATE_"));
            // The contract has a zero where there is no exit code.
            shown.exit_code = match state {
                v1::ExecState::Finished => Some(told.exit_code),
                v1::ExecState::Failed => Some(told.exit_code).filter(|code| *code != 0),
                v1::ExecState::Unspecified | v1::ExecState::Running | v1::ExecState::Cancelled => {
                    None
                }
            };
            shown.exec_id = Some(told.exec_id);
            (told.error_code, told.error_message)
        }
        Some(Details::CompanionContainer(told)) => {
            shown.companion = Some(told.name);
            (told.error_code, told.error_message)
        }
    };
    (shown.error_code, shown.error_message) = (text(errors.0), text(errors.1));
    shown
}

fn text(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// Returns the name of a state without that of its list.
fn word(name: &'static str, list: &str) -> &'static str {
    name.strip_prefix(list).unwrap_or(name)
}
