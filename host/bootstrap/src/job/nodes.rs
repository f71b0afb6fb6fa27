//! Slurm's lists of nodes, such as `gpu[007-009,12],login1`: the first of them. Pure.

/// The first node of a list; `None` where it is no list.
pub fn first_node(list: &str) -> Option<String> {
    let mut name = String::new();
    let mut rest = list.trim();
    loop {
        let end = rest.find(['[', ',']).unwrap_or(rest.len());
        name += &rest[..end];
        rest = &rest[end..];
        let Some(inside) = rest.strip_prefix('[') else { break };
        let close = inside.find(']')?;
        // Ranges are digits alone; their first number is written with all its zeros.
        let first = inside[..close].split([',', '-']).next()?;
        if first.is_empty() || !first.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        name += first;
        rest = &inside[close + 1..];
    }
    let good = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    (!name.is_empty() && name.chars().all(good)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists() {
        for (list, first) in [
            ("node1", "node1"),
            ("node1,node2", "node1"),
            ("gpu[007-009,12],login", "gpu007"),
            ("rack[2-3]-n[08,9]", "rack2-n08"),
            (" n[1].cluster ", "n1.cluster"),
        ] {
            assert_eq!(first_node(list).as_deref(), Some(first), "{list}");
        }
        for list in ["", "[", "n[", "n[]", "n[a-b]", "a b", ",n1"] {
            assert_eq!(first_node(list), None, "{list}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(list in "\\PC{0,30}") {
            let _ = first_node(&list);
        }

        #[test]
        fn ranges_begin_with_their_first_number(prefix in "[a-z]{1,8}", low in 0u32..500, more in 1u32..50) {
            let list = format!("{prefix}[{low:03}-{:03}]", low + more);
            prop_assert_eq!(first_node(&list), Some(format!("{prefix}{low:03}")));
        }
    }
}
