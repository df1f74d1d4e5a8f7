//! What derived schemas cannot say.

use std::{borrow::Cow, marker::PhantomData};

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{Object, Ref, RefOr, Schema, schema::AnyOfBuilder},
};

/// The fields of a type, or none of them: what is flattened and may be missing.
pub(crate) struct Maybe<T>(PhantomData<T>);

impl<T: ToSchema> PartialSchema for Maybe<T> {
    fn schema() -> RefOr<Schema> {
        let fields = Ref::from_schema_name(T::name());
        AnyOfBuilder::new().item(fields).item(Object::new()).into()
    }
}

impl<T: ToSchema> ToSchema for Maybe<T> {
    fn name() -> Cow<'static, str> {
        format!("Maybe{}", T::name()).into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(schemas);
    }
}
