//! Which fault comes next, and when. Pure: a number in, a fault of the soft NIC's grammar out.

/// Numbers that a seed makes (splitmix64).
pub struct Dice(pub u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// One of `from..=to`.
    pub fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from + 1)
    }

    pub fn of<'t, T>(&mut self, list: &'t [T]) -> &'t T {
        &list[self.within(0, list.len() as u64 - 1) as usize]
    }
}

/// What retries of one queue pair outlive: the port, packets, completions. `T` is a time, `P` a probability.
pub const RETRIED: &[&str] = &[
    "down=T",
    "flap=200ms/3",
    "blackhole-tx=T",
    "blackhole-rx=T",
    "drop-acks=T",
    "drop=P/T",
    "delay=1ms/T",
    "hold=T",
    "dup=P/T",
    "reorder=20/T",
    "slow=1/T",
    "placement-delay=200us/T",
    "late-cqe=2ms/T",
];

/// What takes another path besides.
pub const SWITCHED: &[&str] = &[
    "lost-doorbell=T",
    "nic-gone=T",
    "fw-timeout=T",
    "event-lost=T",
    "rnr=T",
    "cqe-error=0x15",
    "partial-write=1",
    "missing-flush=T",
    "cqe-garbage-init=T",
];

/// A fault of the lists.
pub fn draw(dice: &mut Dice, lists: &[&[&str]]) -> String {
    let all = lists.concat();
    let pattern = dice.of(&all);
    let time = format!("{}ms", dice.within(20, 1500));
    let chance = format!("0.00{}", dice.within(1, 9));
    pattern.replace('T', &time).replace('P', &chance)
}

/// Milliseconds until the next one: the one before is over, and paths that failed have come back.
pub fn pause(dice: &mut Dice) -> u64 {
    dice.within(4_000, 12_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_and_reaches_all() {
        let draws = |seed| {
            let mut dice = Dice(seed);
            (0..2000).map(|_| draw(&mut dice, &[RETRIED, SWITCHED])).collect::<Vec<_>>()
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
        for pattern in [RETRIED, SWITCHED].concat() {
            let name = pattern.split_once('=').map_or(pattern, |(name, _)| name);
            assert!(draws(7).iter().any(|fault| fault.starts_with(name)), "{name}");
        }
        assert!(draws(7).iter().all(|fault| !fault.contains(['T', 'P'])));
    }
}
