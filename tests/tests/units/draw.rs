use shunt_tests::draw::*;
use shunt_tests::spec::RunSpec;
use std::collections::BTreeSet;

#[test]
fn the_whole_list_is_drawn() {
    let specs: Vec<RunSpec> = (0..200).map(RunSpec::from_seed).collect();
    let seen: BTreeSet<&str> =
        specs.iter().flat_map(|spec| &spec.faults).map(|one| one.fault.name()).collect();
    let all: BTreeSet<&str> = drawn().iter().map(|info| info.name()).collect();
    assert_eq!(seen, all);
    assert!(specs.iter().flat_map(|spec| &spec.faults).all(|one| !one.fault.is_sabotage()));
    assert!(specs.iter().flat_map(|spec| &spec.faults).all(|one| !one.fault.does_nothing()));
}

#[test]
fn a_kind_can_be_asked_for() {
    let spec = RunSpec::with_fault(7, Some("clock-jump"));
    assert_eq!(spec.faults[0].fault.name(), "clock-jump");
    assert_eq!(spec, RunSpec::with_fault(7, Some("clock-jump")));
}
