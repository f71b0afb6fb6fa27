//! The main program as a process, alone or as a rank of a job.

use crate::common::{Running, free_port};
use std::process::{Command, Stdio};

/// The program with no variable set but what it needs to find others, and the short path that sockets want.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shmem_put_bw"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).stdin(Stdio::null());
    command
}

/// One rank of a job at `port`, with a fabric of the job's own.
pub fn rank(rank: u32, world: u32, port: u16, arguments: &str) -> Command {
    let mut command = program();
    command
        .args(["--rank", &rank.to_string(), "--world", &world.to_string()])
        .args(["--root", &format!("127.0.0.1:{port}"), "--fabric", &format!("t{port}")])
        .args(arguments.split_whitespace());
    command
}

/// All ranks of a job.
pub fn job(world: u32, arguments: &str) -> Vec<Running> {
    let port = free_port();
    (0..world).map(|number| Running::start(&mut rank(number, world, port, arguments))).collect()
}
