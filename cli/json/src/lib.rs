//! The JSON that programs write: what each object begins with, and its schema.
//!
//! A kind of object is a type with a name and a version. Its schema is made from the type and kept in `docs/schemas`;
//! a test of the crate that owns the type holds the two together (`kept`, with the feature `validate`).

mod header;
mod options;
#[cfg(feature = "validate")]
mod validate;

pub use header::{Header, Machine, begin};
pub use options::{OptionValue, Options};
pub use schemars::JsonSchema;
#[cfg(feature = "validate")]
pub use validate::{errors, errors_of, kept};

use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::Value;

/// A kind of object.
pub trait Kind: Serialize + JsonSchema {
    /// The header's `schema`, and the name of the file in `docs/schemas`.
    const NAME: &'static str;
    /// Fields are added under the same version. A field that goes, or changes its meaning, raises it.
    const VERSION: u32;
}

/// An object with its header.
#[derive(Serialize, JsonSchema)]
pub struct Document<T> {
    #[serde(flatten)]
    header: Header,
    #[serde(flatten)]
    body: T,
}

impl<T: Kind> Document<T> {
    /// Adds the header, with what [`begin`] noted.
    pub fn new(body: T) -> Self {
        Self { header: Header::new(T::NAME, T::VERSION), body }
    }

    /// On several lines, without the last one's end.
    pub fn pretty(&self) -> String {
        // Plain structures with string keys: serialisation has no way to fail.
        serde_json::to_string_pretty(self).expect("plain structures serialise")
    }

    /// On one line, without its end.
    pub fn line(&self) -> String {
        serde_json::to_string(self).expect("plain structures serialise")
    }
}

/// The schema of a kind (JSON Schema, draft 2020-12), of objects as they are written.
pub fn schema<T: Kind>() -> Value {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<Document<T>>().to_value();
    schema["title"] = T::NAME.into();
    for (field, value) in [("schema", Value::from(T::NAME)), ("version", T::VERSION.into())] {
        schema["properties"][field]["const"] = value;
    }
    schema
}
