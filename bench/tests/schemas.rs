//! The JSON of the program, against the schema that is made from its types.

use crate::common::written;
use shunt_bench::report::Report;
use shunt_json::{Kind, errors, kept, schema};

#[test]
fn the_schema_is_kept() {
    kept(Report::NAME, &schema::<Report>());
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
