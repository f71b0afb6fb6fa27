//! The programs on one machine: `shunt run -n 4 -- shunt soft-rdma run --nics 2 --`, on each kind of device.

use super::jobs::{ALL, AMO, COMPILED, Hand, Job, RANKS, Ready, SIGNAL};
use anyhow::{Context, Result};
use shunt_task::stages::Count;
use shunt_task::{ports, sh};

/// Kinds of devices: `soft` takes everything, the others are soft-nic/hca/src/profile/table.rs.
const KINDS: &[&str] = &["soft", "cx5", "cx6dx", "cx7", "bf3", "vf", "ib-ar", "strict"];
/// What a kind of device has no way to do: for kernels of these programs, in the library's words.
const LACKED: &[(&str, &[&str], &str)] = &[("vf", &["cuda-amo"], "a NIC of the job has no masked atomics")];
/// Seconds that one may take.
const LIMIT: &str = "150";
/// The exit status of `timeout` where that time was over.
const TIMED_OUT: i32 = 124;

/// The compiled ones, on a kind that keeps no order by itself; atomics of kernels, on a kind without masked ones and on
/// one whose counts prove nothing. Others have scenarios and a stage of their own.
pub fn compiled(ready: &Ready) -> Result<Count> {
    let mut count = on(ready, &["cx7"], COMPILED)?;
    count += on(ready, &["vf"], &[SIGNAL])?;
    count += on(ready, &["cx5"], &[AMO])?;
    Ok(count)
}

/// All on every kind of device.
pub fn every_kind(ready: &Ready) -> Result<Count> {
    on(ready, KINDS, ALL)
}

/// What is wrong with the end of a program whose kernels ask for what the NICs lack: every rank says so, and none of
/// them loses a path for it.
fn refused(said: &str, words: &str) -> Vec<String> {
    let met = said.matches(words).count();
    let mut wrong = Vec::new();
    if met != RANKS {
        wrong.push(format!("'{words}': expected {RANKS} times, got {met}"));
    }
    if said.contains("every path to the peer is dead") {
        wrong.push("a peer was given up".to_owned());
    }
    wrong
}

fn on(ready: &Ready, kinds: &[&str], jobs: &[Job]) -> Result<Count> {
    let mut count = Count::default();
    for kind in kinds {
        for job in jobs {
            let (said, wrong) = run(ready, kind, job)?;
            count += Count::told(&format!("{kind}-{}", job.name), &wrong);
            if !wrong.is_empty() {
                println!("{}", sh::last_lines(&said, 40));
            }
        }
    }
    Ok(count)
}

/// What it said, and what is wrong with that.
fn run(ready: &Ready, kind: &str, job: &Job) -> Result<(String, Vec<String>)> {
    let port = ports::free(1)?;
    let mut command = sh::command("timeout");
    command.arg(LIMIT);
    if !job.starts_its_own() {
        command.arg(&ready.shunt).args(["run", "-n", &job.ranks.to_string(), "--"]);
    }
    command.arg(&ready.shunt).args(["soft-rdma", "run", "--nics", "2", "--profile", kind, "--"]);
    command.args(job.words(ready, Hand::Own, &format!("127.0.0.1:{port}"), 0));
    let output = command.envs(job.environment(Hand::Own)).env_remove("SHUNT_NIC").output();
    let output = output.context("cannot start timeout")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stdout) + &text(&output.stderr);
    let lacked = LACKED.iter().find(|(lacking, jobs, _)| *lacking == kind && jobs.contains(&job.name));
    let mut wrong = match lacked {
        Some((_, _, words)) => refused(&said, words),
        None => job.wrong(&said, Hand::Own),
    };
    if lacked.is_none() && output.status.code() != Some(0) {
        wrong.push(format!("exit status: expected 0, got {}", output.status));
    }
    if output.status.code() == Some(TIMED_OUT) {
        wrong.push(format!("it did not end within {LIMIT} s"));
    }
    Ok((said, wrong))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_every_ranks_and_costs_no_peer() {
        let said = "PE 0: no masked atomics\n".repeat(RANKS);
        assert!(refused(&said, "no masked atomics").is_empty());
        assert_eq!(refused(&said.replacen("masked", "", 1), "no masked atomics").len(), 1);
        assert_eq!(refused(&(said + "every path to the peer is dead"), "no masked atomics").len(), 1);
    }
}
