use shunt_tests::rng::*;

#[test]
fn a_seed_is_a_stream() {
    let (mut a, mut b, mut c) = (Rng::new(7), Rng::new(7), Rng::new(8));
    let draws: Vec<u64> = (0..32).map(|_| a.draw()).collect();
    assert_eq!(draws, (0..32).map(|_| b.draw()).collect::<Vec<_>>());
    assert_ne!(draws, (0..32).map(|_| c.draw()).collect::<Vec<_>>());
}

#[test]
fn ranges_include_both_ends() {
    let mut rng = Rng::new(1);
    let drawn: Vec<u64> = (0..200).map(|_| rng.between(3, 5)).collect();
    assert!((3..=5).all(|n| drawn.contains(&n)) && drawn.iter().all(|n| (3..=5).contains(n)));
}
