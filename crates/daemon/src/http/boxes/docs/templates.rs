//! What the document says of templates, and of what there is none of.

use api::{
    boxes::{CreateTemplate, PoolList, Template, TemplateList, VolumeList},
    errors::ErrorCode,
};
use serde_json::json;

use super::{checked, doc};
use crate::{dataplane::shape::CREATION, openapi::Doc};

pub(in crate::http::boxes) fn create() -> Doc {
    checked(doc("Makes a template, which is a snapshot as old clients know it"))
        .may_take::<CreateTemplate>(&json!({"name": "template-1", "image": "host"}))
        .answers::<Template>(201, "The template.")
        .refuses(&[ErrorCode::Conflict])
        .refuses_with(422, &CREATION)
}

pub(in crate::http::boxes) fn list() -> Doc {
    doc("Lists the templates of the key's tenant").answers::<TemplateList>(200, "All of them.")
}

pub(in crate::http::boxes) fn show() -> Doc {
    doc("Shows a template").answers::<Template>(200, "The template.")
}

pub(in crate::http::boxes) fn delete() -> Doc {
    doc("Deletes a template").answers_nothing(204, "It is gone.")
}

pub(in crate::http::boxes) fn volumes() -> Doc {
    doc("Lists volumes: there are none").answers::<VolumeList>(200, "An empty list.")
}

pub(in crate::http::boxes) fn pools() -> Doc {
    doc("Lists pools: there are none").answers::<PoolList>(200, "An empty list.")
}

pub(in crate::http::boxes) fn refused() -> Doc {
    doc("Makes what there is none of: it is refused")
        .refuses_with(422, &["SandboxConfig"])
        .never_succeeds()
}

pub(in crate::http::boxes) fn missing(summary: &'static str) -> Doc {
    doc(summary).never_succeeds()
}
