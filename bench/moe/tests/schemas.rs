//! The JSON of the program, against the schema that is made from its types.

use crate::common::written;
use shunt_json::{Kind, kept, schema};
use shunt_moe_pressure::verdict::MoeReport;

#[test]
fn the_schema_is_kept() {
    kept(MoeReport::NAME, &schema::<MoeReport>());
}

#[test]
fn moe_pressure_keeps_its_schema() {
    let document =
        written(env!("CARGO_BIN_EXE_moe_pressure"), MoeReport::NAME, &["--iters", "20", "--faults", "none"]);
    assert_eq!(document["options"]["iters"], "20");
}
