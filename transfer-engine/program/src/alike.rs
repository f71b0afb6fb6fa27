//! Options that all ends of a run must have alike: compared before anything of theirs is used. Pure.

use clap::ValueEnum;

/// Options and their values.
pub type Alike = Vec<(String, String)>;

/// One of them.
pub fn option(name: &str, value: impl ToString) -> (String, String) {
    (name.to_owned(), value.to_string())
}

/// One whose value is a word of a list.
pub fn word(name: &str, value: &impl ValueEnum) -> (String, String) {
    option(name, value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default())
}

/// One of which only counts whether it is given.
pub fn given(name: &str, is_given: bool) -> (String, String) {
    option(name, if is_given { "given" } else { "none" })
}

/// What is not as at end 0, at end `own` before the others. `all`: what each end has.
pub fn difference(own: u32, all: &[Alike]) -> Option<String> {
    let first = all.first()?;
    let of = |end: u32| {
        let met = all.get(end as usize)?;
        first.iter().find_map(|(name, want)| {
            let met = met.iter().find(|(other, _)| other == name).map_or("none", |(_, value)| value);
            let at = if end == own { String::new() } else { format!(" of end {end}") };
            (met != want).then(|| format!("{name}{at}: expected {want} as at end 0, got {met}"))
        })
    };
    of(own).or_else(|| (0..all.len() as u32).find_map(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_option_that_differs_is_told_at_both_ends() {
        let of = |size: &str, pages: u32| vec![option("--size", size), option("--pages", pages)];
        let all = [of("64K", 8), of("64K", 8), of("64K", 4)];
        assert_eq!(difference(2, &all).as_deref(), Some("--pages: expected 8 as at end 0, got 4"));
        for own in 0..2 {
            let told = difference(own, &all);
            assert_eq!(told.as_deref(), Some("--pages of end 2: expected 8 as at end 0, got 4"));
        }
        assert_eq!((difference(1, &all[..2]), difference(0, &[])), (None, None));
        let another = [vec![given("--table", true)], Alike::new()];
        assert_eq!(difference(1, &another).as_deref(), Some("--table: expected given as at end 0, got none"));
    }
}
