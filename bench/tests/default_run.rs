//! `cargo run` at the root finds one program: this crate's.

use serde_json::Value;
use std::process::Command;

#[test]
fn cargo_run_at_the_root_starts_shmem_put_bw() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let defaults: Vec<&str> = metadata["workspace_default_members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_str().unwrap())
        .collect();
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        if !defaults.contains(&package["id"].as_str().unwrap()) {
            continue;
        }
        // Other packages may have programs: with one `default-run` among all, cargo takes that one.
        let default = package["default_run"].as_str();
        found.extend(default.map(|program| (package["name"].as_str().unwrap(), program)));
    }
    assert_eq!(found, [("shunt-bench", "shmem_put_bw")]);
}
