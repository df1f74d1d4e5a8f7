//! `environment_…`: sessions, as tools for models and as methods for programs. A model has no use for a token,
//! so that a tool gives one out only when it is asked to, and never in its text.

use api::{mcp::Released, sessions::SessionAnswer};
use engine::sessions::RequestKey;
use futures_util::{FutureExt as _, future::BoxFuture};
use serde_json::{Map, Value, json};

use super::{
    answers::{Refused, Told},
    arguments::{Acquire, Refresh, Session},
    call::Call,
};
use crate::http::{
    sessions::{from_wire, refusals::Names, to_wire},
    strict::Object,
};

pub(super) async fn acquire(call: &Call, asked: Acquire) -> Result<Told, Refused> {
    let include_token = asked.include_token;
    let mut fields = match json!(asked) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    fields.entry("mode").or_insert_with(|| "ensure".into());
    let answer = acquired(call, fields).await?;
    let text = format!(
        "Sandbox {} of session {} ({}, made of {}). Use session_id {} with exec, read, write, edit, list, glob \
         and grep. It is kept until {} unless it is used.",
        answer.sandbox.id,
        answer.session_id,
        answer.binding.state,
        answer.image,
        answer.session_id,
        answer.binding.lease_expires_at,
    );
    let mut values = json!(answer);
    if !include_token {
        hide_token(&mut values);
    }
    Ok(Told::done(text, values))
}

/// Leaves out what opens the sandbox.
fn hide_token(values: &mut Value) {
    let Some(fields) = values.as_object_mut() else { return };
    fields.remove("token");
    if let Some(credentials) = fields.get_mut("credentials").and_then(Value::as_object_mut) {
        credentials.remove("access_token");
    }
}

pub(super) async fn refresh(call: &Call, asked: Refresh) -> Result<Told, Refused> {
    let proof = asked.current_token.map(from_wire::Proof);
    let values = refreshed(call, &asked.session_id, proof).await?;
    Ok(Told::done("The new token is in structuredContent.", values))
}

pub(super) async fn heartbeat(call: &Call, asked: Session) -> Result<Told, Refused> {
    let beat = call.desk()?.heartbeat(&asked.session_id).await?;
    let text = format!("The session is kept until {}.", beat.binding.lease_expires_at);
    Ok(Told::done(text, json!(beat)))
}

pub(super) async fn release(call: &Call, asked: Session) -> Result<Told, Refused> {
    call.desk()?.release(asked.session_id).await?;
    let text =
        "The session has ended; environment_acquire takes its sandbox back for some minutes.";
    Ok(Told::done(text, json!(Released { released: true })))
}

/// Does what a method says, if there is one of this name. Its fields and answers are those of
/// `/v1/sandbox/sessions`.
pub(super) fn method<'a>(
    call: &'a Call,
    name: &str,
    params: Map<String, Value>,
) -> Option<BoxFuture<'a, Result<Value, Refused>>> {
    let mut params = params;
    params.remove("_meta");
    let work = match name {
        "environment/acquire" => async { Ok(json!(acquired(call, params).await?)) }.boxed(),
        "environment/refresh" => async {
            let mut params = Object::from(params);
            let (id, proof) = (session(&mut params)?, from_wire::proof(&mut params)?);
            refreshed(call, &id, proof).await
        }
        .boxed(),
        "environment/heartbeat" => async {
            let id = session(&mut Object::from(params))?;
            Ok(json!(call.desk()?.heartbeat(&id).await?))
        }
        .boxed(),
        "environment/release" => async {
            let id = session(&mut Object::from(params))?;
            call.desk()?.release(id).await?;
            Ok(json!({}))
        }
        .boxed(),
        _ => return None,
    };
    Some(work)
}

async fn acquired(call: &Call, fields: Map<String, Value>) -> Result<SessionAnswer, Refused> {
    let (desk, app) = (call.desk()?, &call.app);
    let image = app.settings.sessions_image.as_deref();
    let asked = from_wire::acquire(&desk, Object::from(fields), None::<RequestKey>, image)?;
    let (acquired, minted) = desk.acquire(asked).await?;
    Ok(to_wire::session(&acquired.shown, &minted, acquired.hint, &app.base_url))
}

async fn refreshed(
    call: &Call,
    session: &str,
    proof: Option<from_wire::Proof>,
) -> Result<Value, Refused> {
    let desk = call.desk()?;
    let shown = desk.find(session, Names::Session).await?;
    let minted = desk.renew(&shown, proof, desk.session_lifetime()).await?;
    Ok(json!(to_wire::refreshed(&minted)))
}

fn session(params: &mut Object) -> Result<String, Refused> {
    let id = params.text("session_id")?;
    Ok(id.ok_or_else(|| params.wrong("session_id", "is missing; environment/acquire gives one"))?)
}
