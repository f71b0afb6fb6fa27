//! Two PEs on soft NICs: a put, a port that goes down, and a put that arrives all the same:
//! `cargo run --release -p shunt --example put`. With `-- COMMAND` on ConnectX NICs, mlx5_0 and mlx5_1 of PE 0, mlx5_2
//! and mlx5_3 of PE 1; COMMAND takes the port of mlx5_0 down, say `ip link set eth0 down`.

use shunt::device::{HeapOffset, Put, Signal, Solo};
use shunt::soft_nic::{FaultKind, RailAt};
use shunt::{Members, Mlx5Nics, Nics, Runtime, SoftNics, start_together};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const PATIENCE: Duration = Duration::from_secs(10);
const TEXT: HeapOffset = HeapOffset(0);
const FLAG: HeapOffset = HeapOffset(4096);

/// PE 0 sends a text and then a flag; PE 1 waits for the flag and reads the text.
fn send(pes: &[Runtime], text: &str, number: u64) -> Result<()> {
    let (from, to) = (&pes[0], &pes[1]);
    from.write(TEXT, text.as_bytes())?;
    let put = Put { dst: TEXT, src: TEXT, bytes: text.len() as u64 };
    let flag = Signal::Monotone(number);
    let channel = from.channel(1, 0);
    channel.put_signal_nbi(Solo, put, FLAG, flag)?;
    let deadline = to.deadline(PATIENCE);
    to.device().wait_until_ge(Solo, FLAG, number, deadline)?;
    channel.quiet(Solo, from.deadline(PATIENCE))?;
    let mut arrived = vec![0; text.len()];
    to.read(TEXT, &mut arrived)?;
    println!("PE 1 has {:?}", String::from_utf8_lossy(&arrived));
    Ok(())
}

fn run(nics: &Arc<dyn Nics>, port_down: impl FnOnce()) -> Result<()> {
    let members = Members::in_process(2, &nics.clock()).members;
    let builder = |member| Runtime::builder(nics.clone(), member);
    let pes = start_together(members.into_iter().map(builder))?;
    if !pes.iter().all(|pe| pe.wait_armed(PATIENCE)) {
        return Err("backup paths were not made in time".into());
    }
    send(&pes, "sent over the first port", 1)?;
    port_down();
    send(&pes, "sent over the other one", 2)?;
    println!("PE 0 switched {} time(s)", pes[0].switches().0);
    pes.iter().for_each(Runtime::ask_to_stop);
    Ok(())
}

fn main() -> Result<()> {
    let Some(command) = std::env::args().nth(1) else {
        let soft = Arc::new(SoftNics::new(0..2, 2));
        let nics: Arc<dyn Nics> = soft.clone();
        return run(&nics, || soft.fail(RailAt { pe: 0, rail: 0 }, FaultKind::Down { for_ns: None }));
    };
    let nics: Arc<dyn Nics> = Arc::new(Mlx5Nics::of_pes(0, &[&["mlx5_0", "mlx5_1"], &["mlx5_2", "mlx5_3"]]));
    let shell = || Command::new("sh").args(["-c", &command]).status();
    run(&nics, || assert!(shell().is_ok_and(|status| status.success()), "{command}"))
}
