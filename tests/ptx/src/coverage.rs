//! Which functions were run, and which of them while their PE switched to another path.

use crate::outcome::Run;
use std::collections::BTreeSet;

/// Functions in whose runs nothing can switch: (part of the name, reason).
const NO_SWITCH: &[(&str, &str)] =
    &[("_attach_", "sends nothing"), ("_ft_off_", "is built without fault tolerance")];

/// What runs reached.
#[derive(Default)]
pub struct Coverage {
    entered: BTreeSet<String>,
    switched: BTreeSet<String>,
}

/// Entry points of a module, and functions that it exports under the project's name.
pub fn names(text: &str) -> BTreeSet<&str> {
    let declared = text.lines().filter(|line| line.contains(".entry ") || line.contains(".visible .func"));
    let symbol = |line: &'_ str| {
        let at = line.find(" shunt_")? + 1;
        let end = line[at..].find(|c: char| !c.is_alphanumeric() && c != '_');
        Some((at, end.map_or(line.len(), |end| at + end)))
    };
    declared.filter_map(|line| symbol(line).map(|(start, end)| &line[start..end])).collect()
}

impl Coverage {
    /// Adds a run.
    pub fn add(&mut self, run: &Run) {
        self.entered.extend(run.entered.iter().map(|(_, name)| name.clone()));
        let switched = run.entered.iter().filter(|(pe, _)| run.switched.contains(pe));
        self.switched.extend(switched.map(|(_, name)| name.clone()));
    }

    /// What is missing of these functions, one line each.
    pub fn missing(&self, names: &BTreeSet<&str>) -> Vec<String> {
        let can_switch = |name: &str| !NO_SWITCH.iter().any(|(part, _)| name.contains(part));
        let line = |name: &&str| match () {
            () if !self.entered.contains(*name) => Some(format!("NOT RUN {name}")),
            () if can_switch(name) && !self.switched.contains(*name) => {
                Some(format!("NO SWITCH in a run of {name}"))
            }
            () => None,
        };
        names.iter().filter_map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = ".visible .entry shunt_kernel_put_warp(\n.visible .func  (.param .b64 func_retval0) shunt_put(\n\
                        .visible .func cold(\n.visible .entry shunt_kernel_attach_thread(\n\tcall.uni shunt_put, (\n";

    fn run(pe: u32, name: &str, switched: &[u32]) -> Run {
        let (entered, switched) = ([(pe, name.to_owned())].into(), switched.iter().copied().collect());
        Run { entered, switched, ..Run::default() }
    }

    #[test]
    fn exported_functions_count_as_entry_points_do() {
        let names: Vec<&str> = names(TEXT).into_iter().collect();
        assert_eq!(names, ["shunt_kernel_attach_thread", "shunt_kernel_put_warp", "shunt_put"]);
    }

    #[test]
    fn a_function_counts_when_its_own_pe_switched() {
        let mut coverage = Coverage::default();
        coverage.add(&run(0, "shunt_kernel_attach_thread", &[]));
        coverage.add(&run(1, "shunt_kernel_put_warp", &[0]));
        let missing = coverage.missing(&names(TEXT));
        assert_eq!(missing, ["NO SWITCH in a run of shunt_kernel_put_warp", "NOT RUN shunt_put"]);
        coverage.add(&run(1, "shunt_kernel_put_warp", &[1]));
        coverage.add(&run(0, "shunt_put", &[0]));
        assert_eq!(coverage.missing(&names(TEXT)), Vec::<String>::new());
    }
}
