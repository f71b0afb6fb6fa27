//! Documents against schemas, and schemas against types, for tests: what a program ships knows no path of its sources.

use boon::{Compiler, Schemas};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What a document does not keep of the schema that its header names; empty if all is kept.
pub fn errors(document: &Value) -> String {
    match document["schema"].as_str() {
        Some(name) => errors_of(name, document),
        None => "schema: expected the name of a kind, got none".to_owned(),
    }
}

/// What a document does not keep of the schema of a kind; empty if all is kept.
pub fn errors_of(name: &str, document: &Value) -> String {
    let (path, mut schemas) = (file(name), Schemas::new());
    let schema = std::fs::read_to_string(&path).map_err(|error| error.to_string());
    let schema =
        schema.and_then(|text| serde_json::from_str::<Value>(&text).map_err(|error| error.to_string()));
    let mut compiler = Compiler::new();
    let place = format!("file:///{name}.json");
    let compiled = schema.and_then(|schema| {
        compiler.add_resource(&place, schema).map_err(|error| error.to_string())?;
        compiler.compile(&place, &mut schemas).map_err(|error| error.to_string())
    });
    match compiled {
        Ok(index) => {
            schemas.validate(document, index).err().map_or_else(String::new, |error| format!("{error:#}"))
        }
        Err(error) => format!("{}: {error}", path.display()),
    }
}

/// Where the schema of a kind is kept.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas").join(format!("{name}.json"))
}

/// Holds the file of a schema against the types, for tests; with `BLESS=1` it is written.
///
/// # Panics
/// If they differ.
pub fn kept(name: &str, schema: &Value) {
    let (text, file) = (format!("{schema:#}\n"), file(name));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, &text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
    let there = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(there == text, "{} is not what the types say: run the test again with BLESS=1", file.display());
}
