//! `WS /tunnel`: TCP to ports of a sandbox, as many connections as are wanted over one WebSocket.

mod frame;
mod held;
mod session;
mod stream;

#[doc(hidden)]
pub use frame::fuzz_one as fuzz_tunnel;

use std::{io, num::NonZeroU16, time::Duration};

use axum::{
    extract::{Request, State},
    response::Response,
};
use engine::sandboxes::Connection;
use model::{capability::Capability, sandbox::WhenStopped};
use tokio::select;

use super::{
    access::{Access, Ended},
    routes::{Body, Method, Needs, Route, Routes, Spelling},
};
use crate::{
    http::{App, problem::ApiError},
    openapi::{Doc, Tag},
    serve::Phase,
    ws::{
        self,
        socket::{Socket, Stream},
    },
};
use session::{End, MAX_MESSAGE, Session, Timing};
use stream::Dialing;

pub(super) fn routes() -> Routes {
    let route = Route {
        spelling: Spelling::LangSmith,
        method: Method::Socket,
        path: "/tunnel",
        needs: Needs::Capability(Capability::Ports),
        body: Body::Message,
    };
    let doc = Doc::new(Tag::Ports, "Opens a tunnel for TCP to any port").upgrades();
    Routes::default().with(route, doc, open)
}

/// Turns the request into a tunnel.
async fn open(
    State(app): State<App>,
    access: Access,
    request: Request,
) -> Result<Response, ApiError> {
    ws::upgrade_to(&app.clone(), request, move |stream| serve(app, access, stream))
}

/// What a tunnel is closed with when the server ends: clients come back at once.
const LEAVING: End = End::Closed(1001, "shutting down");

async fn serve(app: App, access: Access, stream: Stream) {
    let mut socket = Socket::with_limit(stream, MAX_MESSAGE).await;
    let mut session = Session::new(|port| dial(&access, port), timing(&app));
    let mut phase = app.phase.clone();
    let mut awaited = Phase::Serving;
    let end = loop {
        select! {
            biased;
            ended = access.until_ended() => break match ended {
                Ended::Expired => End::Closed(4401, "token expired"),
                Ended::Revoked => End::Closed(4401, "credential revoked"),
            },
            changed = phase.wait_for(|phase| *phase > awaited) => match changed.map(|it| *it) {
                Ok(Phase::Draining) => {
                    awaited = Phase::Draining;
                    session.leave(LEAVING);
                }
                Ok(Phase::Serving | Phase::Closing) | Err(_) => break LEAVING,
            },
            end = session.run(&mut socket) => break end,
        }
    };
    session.farewell(&mut socket, end);
    match end {
        End::Gone => socket.hang_up().await,
        End::Closed(code, reason) | End::Wrong(code, reason) => socket.close(code, reason).await,
    }
}

fn dial(access: &Access, port: NonZeroU16) -> Dialing<Connection> {
    let access = access.clone();
    Box::pin(async move {
        let sandboxes = access.sandboxes();
        let connected = sandboxes.connect(access.sandbox(), port, WhenStopped::Resume).await;
        connected.map_err(|error| {
            tracing::debug!(sandbox = %access.sandbox(), port, %error, "no connection for a tunnel");
            io::Error::other(error)
        })
    })
}

fn timing(app: &App) -> Timing {
    let timing = app.settings.timing;
    Timing {
        tick: timing.tick,
        ping_after: timing.ping_after,
        pong_within: timing.pong_within,
        progress_within: timing.progress_within,
        header_within: timing.pong_within / 2,
        stall: timing.pong_within / 2,
        linger: Duration::from_mins(5),
    }
}
