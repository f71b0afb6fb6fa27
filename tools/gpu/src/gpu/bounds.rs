//! What holds whatever the committed table says and whichever compilers made it: the budget of the no-fault path, and
//! that fault tolerance costs no access to memory.

use super::table::Row;

/// What names of entry points without fault tolerance hold.
const PLAIN: &str = "_ft_off";

/// Where the budget was measured.
const ARCH: &str = "sm_90";

/// Entry points of one operation each, and what their columns may come to on the no-fault path: what the kernels of a
/// peer take without fault tolerance, counted the same way.
const BUDGET: &[(&str, &[(&str, usize)])] = &[
    ("shunt_kernel_put_warp", &[("sass", 336), ("loads", 12), ("atomics", 4)]),
    ("shunt_kernel_signal_monotone_warp", &[("sass", 224)]),
    ("shunt_kernel_signal_add_warp", &[("sass", 224)]),
    // Three entries, of which two are words of the ledger.
    ("shunt_kernel_signal_cleared_warp", &[("sass", 400)]),
    ("shunt_kernel_amo_add64_warp", &[("sass", 224)]),
    ("shunt_kernel_quiet_warp", &[("sass", 80)]),
];

/// Library functions of a block on sm_80: there ptxas makes a call of `barrier.sync` for threads that are not
/// converged, and a function saves its registers around it. Bytes of stack and bytes spilled that each may have, and no
/// other function on any architecture has one or the other. A saved register is four bytes, stored and loaded once.
const BARRIER_IS_A_CALL: (&str, &[(&str, usize, usize)]) = (
    "sm_80",
    &[
        ("shunt_get_block", 72, 144),
        ("shunt_p_block", 72, 136),
        ("shunt_put_block", 72, 144),
        ("shunt_put_signal_block", 88, 176),
        ("shunt_quiet_block", 72, 136),
        ("shunt_signal_add_block", 72, 144),
        ("shunt_signal_block", 72, 144),
        ("shunt_signal_cleared_block", 72, 144),
        ("shunt_wait_block", 48, 96),
        ("shunt_wait_until_block", 56, 112),
    ],
);

/// What is wrong with a function's stack, given how many accesses to one its no-fault path makes: none may have any,
/// but for [`BARRIER_IS_A_CALL`].
pub fn stack(row: &Row, accesses: usize) -> Option<String> {
    let (stack, spills) = (row.value("stack"), row.value("spills"));
    let (arch, named) = BARRIER_IS_A_CALL;
    let allowed = named.iter().find(|(name, ..)| row.arch == arch && row.name == *name);
    let (most, most_spilled) = allowed.map_or((0, 0), |(_, most, spilled)| (*most, *spilled));
    let most_accesses = most_spilled / 4;
    (stack > most || spills > most_spilled || accesses > most_accesses).then(|| {
        format!(
            "{} {}: expected at most {most} bytes of stack, {most_spilled} spilled, {most_accesses} accesses to a \
             stack on the no-fault path, got {stack}, {spills}, {accesses}",
            row.arch, row.name
        )
    })
}

/// What exceeds the budget, or is not there to be held to it. Nothing, if its architecture was not built.
pub fn over_budget(rows: &[Row]) -> Vec<String> {
    let built: Vec<&Row> = rows.iter().filter(|row| row.arch == ARCH).collect();
    if built.is_empty() {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for (name, most) in BUDGET {
        let Some(row) = built.iter().find(|row| row.name == *name) else {
            faults.push(format!("{ARCH} {name}: has a budget, and was not built"));
            continue;
        };
        for (column, most) in *most {
            let have = row.value(column);
            if have > *most {
                faults.push(format!("{ARCH} {name}: {column} {have}, the budget is {most}"));
            }
        }
    }
    faults
}

/// Where an entry point does not make the accesses of its twin without fault tolerance. Fewer are wrong as well: then
/// the two are not one source. Each architecture must have a pair, or nothing was compared.
pub fn unlike_twins(rows: &[Row]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut arches: Vec<&str> = rows.iter().map(|row| row.arch.as_str()).collect();
    arches.sort_unstable();
    arches.dedup();
    for arch in arches {
        let of_arch = || rows.iter().filter(|row| row.arch == arch);
        let mut pairs = 0;
        for plain in of_arch().filter(|row| row.name.contains(PLAIN)) {
            let twin = plain.name.replace(PLAIN, "");
            let Some(tolerant) = of_arch().find(|row| row.name == twin) else {
                faults.push(format!("{arch} {}: has no twin {twin} with fault tolerance", plain.name));
                continue;
            };
            pairs += 1;
            for column in ["loads", "stores", "atomics"] {
                let (with, without) = (tolerant.value(column), plain.value(column));
                if with != without {
                    faults.push(format!("{arch} {twin}: {with} {column}, without fault tolerance {without}"));
                }
            }
        }
        if pairs == 0 {
            faults.push(format!("{arch}: no entry point and its twin {PLAIN} to compare"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::table::Table;

    /// Every bound at its limit.
    fn at_the_budget() -> Vec<Row> {
        let row = |name: &str, sass: usize| Row {
            arch: ARCH.to_owned(),
            name: format!("shunt_kernel_{name}_warp"),
            values: [sass, 40, 12, 9, 4, 8, 0, 0, 136],
        };
        vec![
            row("put", 336),
            row("signal_monotone", 224),
            row("signal_add", 224),
            row("signal_cleared", 400),
            row("amo_add64", 224),
            row("quiet", 80),
        ]
    }

    #[test]
    fn a_budget_is_met_or_said_by_how_much() {
        assert_eq!(over_budget(&at_the_budget()), Vec::<String>::new());
        for number in 0..BUDGET.len() {
            let mut rows = at_the_budget();
            rows[number].values[0] += 1;
            let faults = over_budget(&rows);
            let most = rows[number].values[0] - 1;
            assert_eq!(faults.len(), 1, "{faults:?}");
            assert!(faults[0].ends_with(&format!("sass {}, the budget is {most}", most + 1)), "{faults:?}");
        }
        for (at, column) in [(2, "loads"), (4, "atomics")] {
            let mut rows = at_the_budget();
            rows[0].values[at] += 1;
            assert!(over_budget(&rows)[0].contains(column));
        }
    }

    #[test]
    fn what_has_a_budget_is_there() {
        let mut rows = at_the_budget();
        rows.pop();
        assert_eq!(over_budget(&rows), ["sm_90 shunt_kernel_quiet_warp: has a budget, and was not built"]);
        // The same functions of another architecture are no substitute, nor held to it.
        rows.iter_mut().for_each(|row| row.arch = "sm_80".to_owned());
        rows[0].values[0] = 1000;
        assert_eq!(over_budget(&rows), Vec::<String>::new());
    }

    #[test]
    fn a_stack_is_a_fault_but_of_those_named_and_by_no_byte_more() {
        let row = |arch: &str, name: &str, stack, spills| Row {
            arch: arch.to_owned(),
            name: name.to_owned(),
            values: [200, 40, 9, 8, 3, 8, stack, spills, 136],
        };
        let (arch, named) = BARRIER_IS_A_CALL;
        for (name, bytes, spilled) in named {
            let accesses = spilled / 4;
            assert_eq!(stack(&row(arch, name, *bytes, *spilled), accesses), None);
            for (arch, bytes, spilled, accesses) in [
                (arch, bytes + 8, *spilled, accesses),
                (arch, *bytes, spilled + 4, accesses),
                (arch, *bytes, *spilled, accesses + 1),
                ("sm_90", *bytes, *spilled, accesses),
            ] {
                assert!(stack(&row(arch, name, bytes, spilled), accesses).is_some(), "{arch} {name}");
            }
        }
        for name in ["shunt_put_warp", "shunt_kernel_put_block", "shunt_other_block"] {
            assert_eq!(stack(&row(arch, name, 0, 0), 0), None);
            for (bytes, spilled, accesses) in [(8, 0, 0), (0, 4, 0), (0, 0, 1)] {
                assert!(stack(&row(arch, name, bytes, spilled), accesses).is_some(), "{name}");
            }
        }
    }

    #[test]
    fn what_may_have_a_stack_has_it_in_the_committed_table() {
        let rows = Table::committed().unwrap().rows;
        let (arch, named) = BARRIER_IS_A_CALL;
        for (name, bytes, spilled) in named {
            let row = rows.iter().find(|row| row.arch == arch && row.name == *name).expect(name);
            assert_eq!((row.value("stack"), row.value("spills")), (*bytes, *spilled), "{name}");
        }
    }

    fn pair(with: [usize; 3], without: [usize; 3]) -> Vec<Row> {
        let row = |name: &str, [loads, stores, atomics]: [usize; 3]| Row {
            arch: "sm_80".to_owned(),
            name: name.to_owned(),
            values: [200, 40, loads, stores, atomics, 8, 0, 0, 136],
        };
        vec![row("put_warp", with), row("put_ft_off_warp", without)]
    }

    #[test]
    fn twins_access_memory_alike() {
        assert_eq!(unlike_twins(&pair([9, 8, 3], [9, 8, 3])), Vec::<String>::new());
        for (more, column) in [([10, 8, 3], "loads"), ([9, 9, 3], "stores"), ([9, 8, 4], "atomics")] {
            for rows in [pair(more, [9, 8, 3]), pair([9, 8, 3], more)] {
                let faults = unlike_twins(&rows);
                assert!(faults.len() == 1 && faults[0].contains(column), "{faults:?}");
            }
        }
    }

    #[test]
    fn a_twin_that_is_missing_is_a_fault() {
        let mut rows = pair([9, 8, 3], [9, 8, 3]);
        rows.remove(0);
        let faults = unlike_twins(&rows);
        assert!(faults.len() == 2 && faults[0].contains("has no twin put_warp"), "{faults:?}");
        // Nothing to compare on one architecture, whatever another has.
        let mut rows = pair([9, 8, 3], [9, 8, 3]);
        rows.push(Row { arch: "sm_90".to_owned(), ..rows[0].clone() });
        assert_eq!(unlike_twins(&rows).len(), 1);
    }

    #[test]
    fn the_committed_table_is_within_bounds() {
        let rows = Table::committed().unwrap().rows;
        assert_eq!(over_budget(&rows), Vec::<String>::new());
        assert_eq!(unlike_twins(&rows), Vec::<String>::new());
        let of_table: Vec<String> = rows.iter().filter_map(|row| stack(row, 0)).collect();
        assert_eq!(of_table, Vec::<String>::new());
    }
}
