//! The crates that users of the facade need: documented, packed as they would be published, and built from that.

use crate::semver::{self, Package};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use shunt_task::sh;

/// `cargo xtask night --only crates`: `cargo doc` and `cargo publish --dry-run` of every package that may be published,
/// and their API against that of a commit (`--baseline REV`, else the last release).
pub fn night(args: &[String]) -> Result<()> {
    let metadata = sh::capture(sh::cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let packages = publishable(&metadata.stdout)?;
    if !packages.iter().any(|package| package.name == "shunt") {
        bail!("packages that may be published: expected shunt among them, got {packages:?}");
    }
    document(&packages)?;
    let mut publish = sh::cargo();
    publish.args(["publish", "--dry-run", "--quiet", "--allow-dirty"]);
    for package in &packages {
        publish.args(["-p", &package.name]);
    }
    // A folder of its own: what is built from packages shares nothing with what is built from the tree.
    publish.arg("--target-dir").arg(sh::target_dir().join("published"));
    sh::run(&mut publish).context("what is packed does not build by itself")?;
    let names: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    println!("{} crates packed and built: {}", packages.len(), names.join(" "));
    let count = semver::check(
        &packages,
        args.iter().skip_while(|arg| *arg != "--baseline").nth(1).map(String::as_str),
    )?;
    println!("API: {} kept, {} broken, {} not compared", count.passed, count.failed, count.skipped);
    if count.failed > 0 {
        bail!("the API of {} crates is broken and the version does not say so", count.failed);
    }
    Ok(())
}

/// Makes the pages of their items. A link that leads nowhere is an error.
fn document(packages: &[Package]) -> Result<()> {
    let mut doc = sh::cargo();
    doc.args(["doc", "--quiet", "--no-deps", "--all-features"]).env("RUSTDOCFLAGS", "-D warnings");
    for package in packages {
        doc.args(["-p", &package.name]);
    }
    sh::run(&mut doc).context("pages of items: a link leads nowhere")?;
    println!("{} crates documented, no link broken", packages.len());
    Ok(())
}

/// The packages whose manifest does not forbid it, of what `cargo metadata --no-deps` prints.
fn publishable(metadata: &[u8]) -> Result<Vec<Package>> {
    let metadata: Value = serde_json::from_slice(metadata).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata: expected packages")?;
    // Null: to any registry. A list: to those in it, which is none for `publish = false`.
    let text = |value: &Value| value.as_str().map(str::to_owned).context("cargo metadata: expected text");
    let package = |it: &Value| Ok(Package { name: text(&it["name"])?, version: text(&it["version"])? });
    packages.iter().filter(|package| package["publish"].is_null()).map(package).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_not_be_published_is_left_out() {
        let metadata = br#"{"packages": [{"name": "a", "version": "0.1.0", "publish": null},
            {"name": "b", "version": "0.1.0", "publish": []}]}"#;
        assert_eq!(publishable(metadata).unwrap(), [Package { name: "a".into(), version: "0.1.0".into() }]);
    }
}
