//! Command lines that must be refused with their sentence, beside the scenarios of the stage `mlx5`.

use anyhow::{Context, Result};
use shunt_task::sh;
use shunt_task::stages::Count;
use std::process::{Command, Stdio};

/// A command line that is refused.
struct Refusal {
    name: &'static str,
    /// A variable and its value.
    variable: (&'static str, &'static str),
    /// Arguments of `shunt run -n 2 -- shunt`.
    args: &'static str,
    exit: i32,
    /// What is said, by whichever rank.
    says: &'static str,
}

const REFUSALS: &[Refusal] = &[Refusal {
    name: "mlx5-strict-on-a-network-that-reorders",
    variable: ("SHUNT_ORDERING", "strict"),
    args: "soft-rdma run --nics 2 --profile ib-ar -- shmem_put_bw --nic mlx5 -n 0 --duration 300ms",
    exit: 1,
    says: "placement: expected data_in_order 1 in RTS, got out of order (data_in_order 0 in RTS); set \
           SHUNT_ORDERING=unordered or leave it unset",
}];

impl Refusal {
    fn wrong(&self, exit: Option<i32>, output: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        if exit != Some(self.exit) {
            wrong.push(format!("exit status {exit:?}, not {}", self.exit));
        }
        if !output.contains(self.says) {
            wrong.push(format!("does not say '{}'", self.says));
        }
        if output.contains("verdict:") {
            wrong.push("it ran all the same".to_owned());
        }
        wrong
    }

    fn run(&self) -> Result<Vec<String>> {
        let shunt = sh::target_dir().join("release/shunt");
        let mut command = Command::new("timeout");
        command.arg("90").arg(&shunt).args(["run", "-n", "2", "--"]).arg(&shunt);
        command.args(self.args.split_whitespace()).env(self.variable.0, self.variable.1);
        let output = command.stdin(Stdio::null()).output().context("cannot start timeout")?;
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        let wrong = self.wrong(output.status.code(), &text.concat());
        if !wrong.is_empty() {
            let (name, value) = self.variable;
            println!("    {name}={value} shunt run -n 2 -- shunt {}", self.args);
            println!("{}", sh::last_lines(&text.concat(), 40));
        }
        Ok(wrong)
    }
}

/// Part of the stage `mlx5` of `cargo xtask ci`.
pub fn stage() -> Result<Count> {
    let mut count = Count::default();
    for refusal in REFUSALS {
        count += Count::told(refusal.name, &refusal.run()?);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_was_not_refused_and_other_words_are_seen() {
        let refusal = &REFUSALS[0];
        let said = format!("error: mlx5_0: {}", refusal.says);
        assert!(refusal.wrong(Some(1), &said).is_empty());
        assert_eq!(refusal.wrong(Some(0), &said).len(), 1);
        assert_eq!(refusal.wrong(None, &said).len(), 1);
        assert_eq!(refusal.wrong(Some(1), "error: no such NIC").len(), 1);
        assert_eq!(refusal.wrong(Some(0), "verdict: clean").len(), 3);
    }
}
