//! The load of a dead rail lands on all healthy ones: bandwidth of eight rate-limited rails, in virtual time.

use shunt_tests::spread;

#[test]
fn one_dead_rail_of_eight_costs_an_eighth_and_two_a_quarter() {
    let spread = spread::run(&[2, 3]);
    println!("{spread}");
    assert!(spread.kept(1) >= 85.0, "one dead\n{spread}");
    assert!(spread.kept(2) >= 72.0, "two dead\n{spread}");
    for row in &spread.rows {
        let healthy = row.channels.iter().enumerate().filter(|(rail, _)| !row.dead.contains(&(*rail as u32)));
        let counts: Vec<u32> = healthy.map(|(_, channels)| *channels).collect();
        let (most, fewest) = (counts.iter().max(), counts.iter().min());
        assert!(most.zip(fewest).is_some_and(|(most, fewest)| most - fewest <= 1), "{spread}");
        assert!(row.dead.iter().all(|rail| row.channels[*rail as usize] == 0), "{spread}");
    }
}
