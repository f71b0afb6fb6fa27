use shunt_tests::scenarios::*;

#[test]
fn names_are_unique() {
    let mut names: Vec<&str> = all().iter().map(|scenario| scenario.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
