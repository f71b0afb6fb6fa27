//! The crates that users of the facade need, packed as they would be published, and built from what was packed.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use shunt_task::sh;

/// `cargo xtask night --only crates`: `cargo publish --dry-run` of every package that may be published.
pub fn night(_: &[String]) -> Result<()> {
    let metadata = sh::capture(sh::cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let packages = publishable(&metadata.stdout)?;
    if !packages.iter().any(|package| package == "shunt") {
        bail!("packages that may be published: expected shunt among them, got {packages:?}");
    }
    let mut publish = sh::cargo();
    publish.args(["publish", "--dry-run", "--quiet", "--allow-dirty"]);
    for package in &packages {
        publish.args(["-p", package]);
    }
    // A folder of its own: what is built from packages shares nothing with what is built from the tree.
    publish.arg("--target-dir").arg(sh::target_dir().join("published"));
    sh::run(&mut publish).context("what is packed does not build by itself")?;
    println!("{} crates packed and built: {}", packages.len(), packages.join(" "));
    Ok(())
}

/// Names of the packages whose manifest does not forbid it, of what `cargo metadata --no-deps` prints.
fn publishable(metadata: &[u8]) -> Result<Vec<String>> {
    let metadata: Value = serde_json::from_slice(metadata).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata: expected packages")?;
    // Null: to any registry. A list: to those in it, which is none for `publish = false`.
    let names =
        packages.iter().filter(|package| package["publish"].is_null()).map(|package| &package["name"]);
    Ok(names.filter_map(Value::as_str).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_not_be_published_is_left_out() {
        let metadata = br#"{"packages": [{"name": "a", "publish": null}, {"name": "b", "publish": []}]}"#;
        assert_eq!(publishable(metadata).unwrap(), ["a"]);
    }
}
