//! Firmware commands, as programs send them through DEVX, and doorbells for what they make.
//!
//! ```text
//! step: what 1, then for a command: room 2, length 2, bytes; for a doorbell: 8 bytes
//! ```

use crate::input::Input;
use crate::rig::stranger::Victim;
use crate::rig::{self, Options};
use shunt_layout::mlx5::prm::cmd::{Opcode, input, output};
use shunt_layout::mlx5::prm::mkey;
use shunt_soft_nic::command::status_name;

/// The two low bits of `what`: a command, a doorbell, a pause; a command else.
const DOORBELL: u8 = 1;
const PAUSE: u8 = 2;
/// The command's object is one that is there: the high bits of `what` choose.
const KNOWN: u8 = 4;

const STEPS_MAX: usize = 48;
const MAILBOX_BYTES: u16 = 0x7ff;

/// Runs commands and doorbells, and judges the answers and the memory.
pub fn run(data: &[u8]) {
    let mut from = Input(data);
    let mut victim = Victim::new(Options { log_rq: Some(3), ..Options::default() });
    let mut known = objects(&victim);
    let nic = victim.rig.hosts[0].nic;
    for _ in 0..STEPS_MAX {
        if from.is_empty() {
            break;
        }
        let what = from.u8();
        match what & 3 {
            DOORBELL => victim.rig.ring_register(&victim.end, from.u64()),
            PAUSE => victim.rig.run_for(1_000_000),
            _ => {
                let room = usize::from(from.u16() & MAILBOX_BYTES);
                let length = from.u16() & MAILBOX_BYTES;
                let mut mailbox = from.bytes(length.into()).to_vec();
                if what & KNOWN != 0 && mailbox.len() >= 16 {
                    input::OBJECT.set(&mut mailbox, known[usize::from(what >> 3) % known.len()]);
                }
                let answer = victim.rig.try_command(nic, &mailbox, room);
                assert_eq!(answer.len(), room.max(16), "an answer has the length asked for");
                let status = status_name(&answer);
                assert!(!status.contains("unknown"), "status {} has no name", answer[0]);
                if answer[0] == 0 && output::OBJECT.get(&answer) != 0 && known.len() < 32 {
                    known.push(output::OBJECT.get(&answer));
                }
            }
        }
        victim.rig.run_for(3_000);
    }
    victim.rig.run_for(2_000_000);
    while victim.rig.fabric.nic(nic).next_event(victim.rig.now).is_some() {}
    victim.judge_memory();
}

fn objects(victim: &Victim) -> Vec<u32> {
    let (end, host) = (&victim.end, &victim.rig.hosts[0]);
    vec![end.qpn, end.cqn, end.receive_cqn, host.pd, victim.key >> 8, victim.own_key >> 8]
}

/// Every opcode, bare and with room; a key, a CQ, a queue pair and its way to RTS as they are right.
pub fn seeds() -> Vec<Vec<u8>> {
    let victim = Victim::new(Options { log_rq: Some(3), ..Options::default() });
    let (host, end) = (&victim.rig.hosts[0], &victim.end);
    let command = |what: u8, room: u16, mailbox: &[u8]| {
        let mut step = vec![what];
        step.extend(room.to_le_bytes());
        step.extend((mailbox.len() as u16).to_le_bytes());
        step.extend(mailbox);
        step
    };
    let mut seeds = Vec::new();
    for opcode in Opcode::ALL {
        for n in 0..2u8 {
            let mut mailbox = rig::header(*opcode, 0);
            mailbox.resize([16, 300][usize::from(n)], 0);
            seeds.push(command(KNOWN | n << 3, 0x7ff, &mailbox));
        }
    }
    let mut key = rig::heap_key(host);
    mkey::create::MKEY_UMEM_ID.set(&mut key, 2);
    let cq = rig::cq_mailbox(4, host.uar.id, end.options, 0, 4096);
    let ways = [rig::rst2init(end), rig::init2rtr(end, end.qpn), rig::rtr2rts(end)];
    let mut row = command(KNOWN, 16, &rig::header(Opcode::Qp2Rst, 0));
    for way in &ways {
        row.extend(command(KNOWN, 16, way));
    }
    row.extend([DOORBELL, 1, 0, 0, 0, 0, 0, 0, 0, PAUSE]);
    row.extend(command(KNOWN, 16, &rig::header(Opcode::Qp2Err, 0)));
    seeds.extend([command(0, 16, &key), command(0, 16, &cq), row]);
    seeds.extend(ways.iter().map(|way| command(KNOWN, 16, way)));
    seeds
}
