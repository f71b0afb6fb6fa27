use shunt_soft_nic::Injection;
use shunt_tests::scenarios::{idle, is_broken};

#[test]
fn a_fault_that_hits_nothing_is_no_broken_promise() {
    let injection = |text: &str| text.parse::<Injection>().expect("a fault");
    let wrongs = idle(&[(injection("1ms:0.0:down"), 0), (injection("2ms:0.1:down"), 3)]);
    assert_eq!(wrongs.len(), 1);
    assert!(!is_broken(&wrongs[0]));
    assert!(is_broken("a doorbell hit nothing"), "by how it was made, and not by its words");
}
