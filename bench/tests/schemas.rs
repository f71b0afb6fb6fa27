//! The JSON of both programs, against schemas that are made from its types.

use serde_json::Value;
use shunt_bench::moe::verdict::MoeReport;
use shunt_bench::report::Report;
use shunt_json::{Kind, errors, kept, schema};
use std::path::Path;
use std::process::Command;

#[test]
fn the_schemas_are_kept() {
    kept(Report::NAME, &schema::<Report>());
    kept(MoeReport::NAME, &schema::<MoeReport>());
}

fn written(program: &str, name: &str, arguments: &[&str]) -> Value {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.json", std::process::id()));
    let output = Command::new(program).args(arguments).arg("--json").arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(document["schema"], name);
    assert_eq!(errors(&document), "");
    document
}

/// What was printed is in the object: rows of the table, moments of switches, options and where they came from.
#[test]
fn put_bw_keeps_its_schema() {
    let line =
        ["-b", "64", "-e", "256", "-n", "20", "--duration", "1200ms", "--inject", "300ms:0.0:down=200ms"];
    let mut document = written(env!("CARGO_BIN_EXE_shmem_put_bw"), Report::NAME, &line);
    let sizes: Vec<u64> =
        document["table"].as_array().unwrap().iter().map(|row| row["size"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [64, 128, 256]);
    let switches = document["switches"].as_array().unwrap();
    assert!(!switches.is_empty());
    for switch in switches {
        let moment = |name: &str| switch[name].as_f64().unwrap();
        assert!(0.0 < moment("noticed_ms") && moment("noticed_ms") <= moment("opened_ms"), "{switch}");
    }
    assert_eq!(
        (&document["options"]["duration"], &document["options"]["factor"]),
        (&"1200ms".into(), &"2".into())
    );
    assert!(document["command"].as_array().unwrap().iter().any(|word| word == "300ms:0.0:down=200ms"));
    document["puts_lost"] = "none".into();
    assert!(errors(&document).contains("puts_lost"), "{}", errors(&document));
}

#[test]
fn moe_pressure_keeps_its_schema() {
    let document =
        written(env!("CARGO_BIN_EXE_moe_pressure"), MoeReport::NAME, &["--iters", "20", "--faults", "none"]);
    assert_eq!(document["options"]["iters"], "20");
}
