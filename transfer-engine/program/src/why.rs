//! Why a verdict is not clean, in a sentence for people: `late writes: expected 0, got 3`. Pure.

use crate::faults::Struck;

/// Of counts that must be 0, those that are not.
pub fn none_of(counts: &[(&str, u64)]) -> Vec<String> {
    let wrong = counts.iter().filter(|(_, got)| *got > 0);
    wrong.map(|(what, got)| format!("{what}: expected 0, got {got}")).collect()
}

/// Faults that hit nothing.
pub fn unhit(faults: &[Struck]) -> Vec<String> {
    let missed = faults.iter().filter(|struck| struck.hits == 0);
    missed.map(|Struck { fault, .. }| format!("--inject {fault}: expected one hit or more, got 0")).collect()
}

/// The first of some groups that says anything, as one sentence; empty if none does.
pub fn first(groups: impl IntoIterator<Item = Vec<String>>) -> String {
    groups.into_iter().find(|group| !group.is_empty()).unwrap_or_default().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_stands_before_what_hit_nothing() {
        let faults =
            [("1s:0.0:down", 0), ("2s:0.0:up", 1)].map(|(fault, hits)| Struck { fault: fault.into(), hits });
        let why = |late, doubled| {
            first([
                none_of(&[("late writes", late), ("pages wrong", 0), ("immediates doubled", doubled)]),
                unhit(&faults),
            ])
        };
        assert_eq!(why(3, 0), "late writes: expected 0, got 3");
        assert_eq!(why(3, 1), "late writes: expected 0, got 3; immediates doubled: expected 0, got 1");
        assert_eq!(why(0, 0), "--inject 1s:0.0:down: expected one hit or more, got 0");
        assert_eq!(first([none_of(&[]), unhit(&faults[1..])]), "");
    }
}
