//! `GET /v1/limits`: what requests may ask for.

use std::collections::BTreeMap;

use api::limits::{LimitRange, LimitRanges};
use axum::{Json, extract::State};
use model::{
    limits::LimitPolicy,
    resources::{Range, Resource, ResourcePolicy},
};

use super::{App, routes::Routes};
use crate::{
    auth::Caller,
    dataplane::shape::Shape,
    openapi::{Doc, Opens, Tag},
};

pub(super) fn routes() -> Routes {
    let summary =
        "Returns the least, the default and the most of everything that a request can limit";
    let doc = Doc::new(Tag::Server, summary).answers::<LimitRanges>(200, "The ranges, by field.");
    Routes::new(Shape::Envelope).get("/v1/limits", Opens::Key, doc, limits)
}

async fn limits(State(app): State<App>, _caller: Caller) -> Json<LimitRanges> {
    let sandboxes = app.sandboxes.as_ref().map(engine::sandboxes::Sandboxes::resource_policy);
    Json(ranges(&app.executor.limit_policy(), sandboxes.as_ref()))
}

/// Returns the ranges under these policies. A server that has no sandboxes has no ranges of them.
pub(crate) fn ranges(executions: &LimitPolicy, sandboxes: Option<&ResourcePolicy>) -> LimitRanges {
    let sandboxes = sandboxes.map(|policy| {
        Resource::ALL
            .map(|resource| (resource.name(), policy.range(resource).in_wire_units(resource)))
    });
    LimitRanges {
        executions: to_wire(executions.ranges()),
        sandboxes: to_wire(sandboxes.into_iter().flatten()),
    }
}

fn to_wire(rows: impl IntoIterator<Item = (&'static str, Range)>) -> BTreeMap<String, LimitRange> {
    let row = |(name, range): (&str, Range)| {
        let Range { min, default, max } = range;
        (name.to_owned(), LimitRange { min, default, max })
    };
    rows.into_iter().map(row).collect()
}
