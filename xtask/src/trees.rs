//! What a package must not bring with it, whatever its manifest and those below it say: `cargo tree` is asked.

use shunt_task::sh;

/// A package without its features, and packages that must not be below it.
const WITHOUT: &[(&str, &[&str])] = &[
    (
        "shunt",
        &["shunt-soft-", "shunt-bench", "shunt-tests", "shunt-mlx5-sys", "cudarc", "prometheus-client"],
    ),
    ("shunt-host", &["shunt-soft-", "shunt-bench", "shunt-tests", "shunt-mlx5-sys", "cudarc", "tiny_http"]),
    ("shunt-topology", &["shunt-soft-", "shunt-bench", "shunt-mlx5", "shunt-host", "shunt-device"]),
    ("shunt-bootstrap", &["shunt-soft-", "shunt-bench", "shunt-mlx5", "shunt-host", "cudarc"]),
    ("shunt-membership", &["shunt-soft-", "shunt-bench", "shunt-mlx5", "shunt-host", "shunt-device"]),
    (
        "shunt-recovery",
        &["shunt-soft-", "shunt-bench", "shunt-host", "shunt-mlx5-sys", "shunt-telemetry", "cudarc"],
    ),
    ("shunt-telemetry", &["shunt-soft-", "shunt-bench", "shunt-mlx5", "shunt-host", "prometheus-client"]),
    ("shunt-mlx5", &["shunt-soft-", "shunt-bench", "shunt-host", "shunt-mlx5-sys", "tracing"]),
];

/// A package with all of its features, and packages that must not be below it.
const NEVER: &[(&str, &[&str])] = &[
    ("shunt-host", &["shunt-soft-"]),
    ("shunt-python", &["shunt-bench", "shunt-tests", "cudarc"]),
    ("shunt-nvshmem-compat", &["shunt-bench", "shunt-tests"]),
    ("shunt-transfer-capi", &["shunt-bench", "shunt-tests", "cudarc"]),
];

/// Names of the packages below one, itself among them.
fn below(package: &str, features: &str) -> Vec<String> {
    let mut tree = sh::cargo();
    tree.args(["tree", "--locked", "--prefix", "none", "--edges", "normal"]);
    tree.args(["--package", package, features]);
    let text = sh::stdout_of(&mut tree).unwrap_or_else(|| panic!("{} fails", sh::shown(&tree)));
    let names = text.lines().filter_map(|line| line.split(' ').next()).filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

fn check(cases: &[(&str, &[&str])], features: &str) {
    for (package, banned) in cases {
        let below = below(package, features);
        assert!(below.iter().any(|name| name == package), "{package} is not in its own tree");
        let met: Vec<&String> =
            below.iter().filter(|name| banned.iter().any(|banned| name.starts_with(banned))).collect();
        assert!(met.is_empty(), "{package} {features} brings {met:?}");
    }
}

#[test]
fn without_features_nothing_soft_and_nothing_optional_comes_along() {
    check(WITHOUT, "--no-default-features");
}

#[test]
fn no_product_stands_on_the_benchmark_or_the_simulator() {
    check(NEVER, "--all-features");
}
