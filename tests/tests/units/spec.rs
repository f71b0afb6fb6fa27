use shunt_soft_nic::Injection;
use shunt_soft_nic::{Fault, PeFault};
use shunt_tests::spec::*;

#[test]
fn a_run_survives_its_text() {
    for seed in 0..200 {
        let mut spec = RunSpec::from_seed(seed);
        spec.cause = "one sentence".into();
        assert_eq!(spec.to_string().parse::<RunSpec>().as_ref(), Ok(&spec), "{spec}");
    }
}

#[test]
fn a_bad_line_is_named() {
    let error = |text: &str| text.parse::<RunSpec>().unwrap_err();
    assert_eq!(error("seed = 4\nspeed = 3"), "line 2: unknown key: speed = 3");
    assert_eq!(error("seed = fast"), "line 1: a value of another type: seed = fast");
    assert!(error("faults = [\"5:0.0:down\"]").contains("time in \"5:0.0:down\""));
}

#[test]
fn a_whole_pe_may_be_hit() {
    let injection: Injection = "3ms:1:oob-cut=5ms".parse().unwrap();
    let cut = Fault::Pe(PeFault::OobCut { for_ns: Some(5_000_000) });
    assert_eq!(injection, Injection { at_ns: 3_000_000, pe: 1, rail: None, fault: cut });
    assert_eq!(injection.to_string(), "3ms:1:oob-cut=5ms");
}
