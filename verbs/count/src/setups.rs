//! How long it takes to connect queue pairs, and what memory they have.

use crate::link::{self, Device, Has, Link};
use crate::stream::exchange;
use std::net::TcpStream;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Requests and receives that a queue pair has room for.
const DEPTH: u32 = 128;
/// Bytes that the other end may write, by queue pair.
const BYTES: u64 = 4096;

/// Queue pairs before memory is looked at: what is made once is made by then.
pub const WARM: u32 = 8;

/// KiB of this process that are in memory.
fn resident() -> Result<u64, String> {
    let read = std::fs::read_to_string("/proc/self/statm").map_err(|error| error.to_string())?;
    let pages: u64 = read.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or("statm: no number")?;
    Ok(pages * 4)
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// A pause that is long enough for what may be made in the background.
const APART: Duration = Duration::from_millis(30);

/// Connects so many queue pairs with the other process, one right after the other, then as many with pauses between
/// them. Tells of each how long `ibv_modify_qp` took to RTR and to RTS, and when. Then it stays for a while.
pub fn run(device: &str, gid: u8, pairs: u32, mut stream: TcpStream, stays: Duration) -> Result<(), String> {
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let device = Device::open(device)?;
    let mut links = Vec::new();
    let mut before = 0;
    for number in 0..WARM + 2 * pairs {
        if number >= WARM + pairs {
            std::thread::sleep(APART);
        }
        if number == WARM {
            // What the first ones are given in the background is theirs.
            std::thread::sleep(stays);
            before = resident()?;
        }
        let link = Link::open(&device, gid, DEPTH, BYTES, Has::default())?;
        let there = link::meet(&exchange(&mut stream, &link.card())?)?;
        let took = link.connect(&there, 14)?;
        links.push((link.qpn(), took, now_ns()));
        exchange(&mut stream, b"go")?;
    }
    std::thread::sleep(stays);
    let grown = resident()?.saturating_sub(before);
    for (at, (qpn, [rtr, rts], unix_ns)) in links[WARM as usize..].iter().enumerate() {
        let how = if at < pairs as usize { "" } else { "apart_" };
        let (rtr, rts) = (rtr.as_nanos(), rts.as_nanos());
        println!(
            "{{\"{how}qpn\": {qpn}, \"{how}rtr_ns\": {rtr}, \"{how}rts_ns\": {rts}, \"{how}unix_ns\": {unix_ns}}}"
        );
    }
    println!("{{\"pairs\": {pairs}, \"grown_kib\": {grown}}}");
    exchange(&mut stream, b"go")?;
    std::thread::sleep(stays);
    Ok(())
}
