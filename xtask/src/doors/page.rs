//! The page on two machines, run as it is written, between two namespaces. What a machine is asked for stands in a
//! block behind a line that ends with who is asked: `On A:`, `On both:`. Done by hand here: the build, and `scp`.

use super::jobs::{Ready, switches};
use super::machines::{HOME, Machines};
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use shunt_task::stages::Count;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const PAGE: &str = "docs/how-to/two-machines.md";
/// Longest time of a block.
const LIMIT: Duration = Duration::from_secs(120);
/// What a block has that starts a program of the job.
const PROGRAM: &str = "$NICS ";
/// What programs say once they are connected.
const UNDER_WAY: [&str; 2] = [" agent_started ", ": started"];

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// In the checkout, not on a machine.
    Checkout,
    /// Machines, by number.
    On(&'static [usize]),
    /// Machine a, while the block before runs.
    Meanwhile,
    /// Nobody: what machine a says.
    Expected,
}

impl Who {
    /// Of the line above a block; none for a block that asks nobody.
    fn of(line: &str) -> Option<Self> {
        Some(match line.rsplit(". ").next()? {
            "On both, the same commit, in the checkout:" => Self::Checkout,
            "On A:" => Self::On(&[0]),
            "On B:" => Self::On(&[1]),
            "On both:" | "On both, in an empty folder:" => Self::On(&[0, 1]),
            "On A, as root, meanwhile:" => Self::Meanwhile,
            "Expected, on A, with other numbers:" => Self::Expected,
            _ => return None,
        })
    }
}

/// Blocks of a page, with who is asked.
fn blocks(page: &str) -> Vec<(Who, &str)> {
    let mut parts = page.split("```\n");
    let (mut before, mut found) = (parts.next().unwrap_or_default(), Vec::new());
    while let (Some(block), Some(behind)) = (parts.next(), parts.next()) {
        let above = before.lines().rev().find(|line| !line.is_empty()).unwrap_or_default();
        found.extend(Who::of(above).map(|who| (who, block)));
        before = behind;
    }
    found
}

/// Numbers are others in each run.
fn without_numbers(line: &str) -> String {
    let mut out = String::new();
    for c in line.trim().chars() {
        match c {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            c => out.push(c),
        }
    }
    out
}

/// Lines that are expected and were not said, but for their numbers.
fn missing(expected: &str, said: &str) -> Vec<String> {
    let said: Vec<String> = said.lines().map(without_numbers).collect();
    let there = |line: &str| said.iter().any(|said| said.contains(&without_numbers(line)));
    expected
        .lines()
        .filter(|line| !there(line))
        .map(|line| format!("expected, and not said: {line}"))
        .collect()
}

/// What is under way: a block on each of its machines, and where each of them writes.
struct Running {
    children: Vec<Child>,
    files: Vec<PathBuf>,
}

struct Run<'r> {
    machines: &'r Machines,
    ready: &'r Ready,
    /// Exports so far, by machine.
    exports: [String; 2],
    programs: usize,
}

impl Run<'_> {
    fn shell(&self, machine: usize, text: &str) -> Command {
        let python = self.ready.python.as_ref().and_then(|python| python.program.parent());
        let path = std::env::var("PATH").unwrap_or_default();
        let path = python.map_or_else(|| path.clone(), |folder| format!("{}:{path}", folder.display()));
        let mut command = self.machines.on(machine, "sh");
        command.args(["-ec", &format!("{}\n{text}", self.exports[machine])]);
        command.env("HOME", HOME).env("PATH", path);
        command
    }

    fn start(&self, machines: &[usize], text: &str) -> Result<Running> {
        let mut running = Running { children: Vec::new(), files: Vec::new() };
        for machine in machines {
            let file = sh::target_dir().join(format!("ci/two-machines/page-{}-{machine}.out", self.programs));
            let out = File::create(&file)?;
            let child = self.shell(*machine, text).stdout(out.try_clone()?).stderr(out).spawn();
            running.children.push(child.context("cannot start nsenter")?);
            running.files.push(file);
        }
        Ok(running)
    }

    /// A block on its machines, and what is to be done meanwhile; what the first of them said, and what is wrong.
    fn block(
        &mut self,
        machines: &[usize],
        text: &str,
        meanwhile: Option<&str>,
    ) -> Result<(String, Vec<String>)> {
        self.programs += usize::from(text.contains(PROGRAM));
        let mut running = self.start(machines, text)?;
        let until = Instant::now() + LIMIT;
        let said = |file: &Path| std::fs::read_to_string(file).unwrap_or_default();
        if let Some(meanwhile) = meanwhile {
            let started = |file: &PathBuf| UNDER_WAY.iter().any(|words| said(file).contains(words));
            while !running.files.iter().all(started) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
            }
            sh::capture(&mut self.shell(0, meanwhile))?;
        }
        let mut wrong = Vec::new();
        for (machine, child) in machines.iter().zip(&mut running.children) {
            while child.try_wait()?.is_none() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
            }
            match child.try_wait()? {
                Some(status) if status.success() => {}
                Some(status) => {
                    wrong.push(format!("machine {machine}: expected exit status 0, got {status}"))
                }
                None => {
                    wrong.push(format!("machine {machine}: expected its end within {} s", LIMIT.as_secs()));
                    child.kill()?;
                    child.wait()?;
                }
            }
        }
        let first = said(&running.files[0]);
        if !wrong.is_empty() {
            running.files.iter().for_each(|file| println!("{}", sh::last_lines(&said(file), 30)));
        }
        Ok((first, wrong))
    }

    /// What is not the programs': exports stay, `scp` is done by hand.
    fn setting(&mut self, machines: &[usize], text: &str) -> Result<()> {
        let (copies, rest): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("scp "));
        let (_, wrong) = self.block(machines, &rest.join("\n"), None)?;
        if !wrong.is_empty() {
            bail!("{PAGE}: {text}: {}", wrong.join("; "));
        }
        for copy in copies {
            let Some(name) = copy.strip_prefix("scp ").and_then(|copy| copy.strip_suffix(" B:")) else {
                bail!("{PAGE}: expected 'scp FILE B:', got '{copy}'");
            };
            let path = Path::new(HOME).join(name);
            std::fs::copy(self.machines.file(0, &path), self.machines.file(1, &path)).context("scp")?;
        }
        self.keep(machines, text);
        Ok(())
    }

    fn keep(&mut self, machines: &[usize], text: &str) {
        for machine in machines {
            let exports = text.lines().filter(|line| line.starts_with("export "));
            exports.for_each(|line| self.exports[*machine] += &format!("{line}\n"));
        }
    }
}

/// The checkout where the page has it.
fn checkout(machines: &Machines) -> Result<()> {
    for machine in 0..2 {
        let link = machines.file(machine, &Path::new(HOME).join("shunt"));
        std::os::unix::fs::symlink(sh::root(), link).context("a link to the checkout")?;
    }
    Ok(())
}

/// Runs all blocks, on machines where nothing was run.
pub fn run(ready: &Ready) -> Result<Count> {
    let page = std::fs::read_to_string(sh::root().join(PAGE))?;
    let blocks = blocks(&page);
    for line in blocks.iter().filter(|(who, _)| *who == Who::Checkout).flat_map(|(_, text)| text.lines()) {
        // What is run is what was built before.
        if line != "cargo build --release" {
            sh::capture(sh::command("sh").args(["-ec", line]))?;
        }
    }
    std::fs::create_dir_all(sh::target_dir().join("ci/two-machines"))?;
    let machines = Machines::boot()?;
    checkout(&machines)?;
    let mut run = Run { machines: &machines, ready, exports: [String::new(), String::new()], programs: 0 };
    let mut wrong = Vec::new();
    let mut at = blocks.iter().peekable();
    while let Some((who, text)) = at.next() {
        let Who::On(on) = *who else { continue };
        if !text.contains(PROGRAM) {
            run.setting(on, text)?;
            continue;
        }
        let meanwhile = at.next_if(|(who, _)| *who == Who::Meanwhile).map(|(_, text)| *text);
        let (said, mut failed) = run.block(on, text, meanwhile)?;
        let expected = at.next_if(|(who, _)| *who == Who::Expected).map(|(_, text)| *text);
        failed.extend(expected.iter().flat_map(|expected| missing(expected, &said)));
        let counts = said.lines().find_map(|line| switches(line, line.contains("failovers ")));
        if meanwhile.is_none()
            || expected.is_none()
            || counts.is_none_or(|(away, back)| away == 0 || back == 0)
        {
            failed.push(format!("expected a failover and a switch-back, got {counts:?}"));
        }
        let line = text.lines().find(|line| line.contains(PROGRAM)).unwrap_or_default();
        println!("    {line} {counts:?} {}", if failed.is_empty() { "ok" } else { "FAILED" });
        wrong.extend(failed);
    }
    if run.programs == 0 {
        wrong.push(format!("{PAGE}: no program"));
    }
    Ok(Count::told("two-machines-page", &wrong))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_read_with_who_is_asked() {
        let page = "x\n\nOn A:\n\n```\na\n```\n\nThe same. On both:\n\n```\nb\nc\n```\ny\n\n```\nnobody\n```\n\n\
                    Expected, on A, with other numbers:\n```\nd 1\n```\n";
        let found = blocks(page);
        assert_eq!(found, [(Who::On(&[0]), "a\n"), (Who::On(&[0, 1]), "b\nc\n"), (Who::Expected, "d 1\n")]);
    }

    #[test]
    fn expected_lines_may_have_other_numbers_and_no_other_words() {
        assert!(missing("PE 0: 12 rounds\n", "a\nPE 0: 7 rounds, good\n").is_empty());
        assert_eq!(missing("PE 0: 12 rounds\nverdict: clean\n", "PE 0: 7 turns\nverdict: clean\n").len(), 1);
    }
}
