//! Which command may go through which ioctl, and what the kernel changes in a mailbox on its way.
//!
//! The lists are the kernel's, not the soft NIC's: a command that hardware knows and the soft NIC does not reaches
//! the firmware and is refused there, with a status.

use rustix::io::Errno;
use shunt_layout::mlx5::prm::cmd::{Status, input, output};
use shunt_layout::mlx5::prm::{cq, mkey, qp, rmp};

/// Shortest mailbox, either way.
pub(super) const HEADER_BYTES: usize = 16;
/// The user context that the kernel names to the firmware. The soft NIC knows of one only.
const UID: u32 = 1;

/// Commands about no object.
const GENERAL: &[u16] = &[
    0x100, 0x101, 0x10a, 0x740, 0x750, 0x752, 0x754, 0x760, 0x762, 0x76f, 0x770, 0x80a, 0x80d, 0x822, 0x824,
    0x826, 0x842,
];
/// All of these are about no object, too.
const GENERAL_RANGE: std::ops::Range<u16> = 0xb00..0xd00;

/// A kind of objects: the commands of its life.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kind {
    create: u16,
    destroy: u16,
    modify: &'static [u16],
    query: &'static [u16],
}

const fn kind(create: u16, destroy: u16, modify: &'static [u16], query: &'static [u16]) -> Kind {
    Kind { create, destroy, modify, query }
}

/// Kinds that the rest of the driver asks for.
pub(super) const QP: &Kind = &KINDS[0];
pub(super) const CQ: &Kind = &KINDS[1];
pub(super) const RMP: &Kind = &KINDS[4];

const KINDS: &[Kind] = &[
    // Queue pairs. From SQD to RTS: not by this way.
    kind(0x500, 0x501, &[0x502, 0x503, 0x504, 0x505, 0x506, 0x507, 0x50a, 0x50e], &[0x50b]),
    // Completion queues, memory keys, protection domains, receive memory pools.
    kind(0x400, 0x401, &[0x403], &[0x402]),
    kind(0x200, 0x202, &[], &[0x201]),
    kind(0x800, 0x801, &[], &[]),
    kind(0x90c, 0x90e, &[0x90d], &[0x90f]),
    // General objects, transport domains, counters.
    kind(0xa00, 0xa03, &[0xa01], &[0xa02]),
    kind(0x816, 0x817, &[], &[]),
    kind(0x771, 0x772, &[], &[0x773]),
    // Work queues and what spreads packets over them.
    kind(0x904, 0x906, &[0x905], &[0x907]),
    kind(0x908, 0x90a, &[0x909], &[0x90b]),
    kind(0x916, 0x918, &[0x917], &[0x919]),
    kind(0x900, 0x902, &[0x901], &[0x903]),
    kind(0x912, 0x914, &[0x913], &[0x915]),
    // Flows.
    kind(0x930, 0x931, &[], &[0x932]),
    kind(0x933, 0x934, &[], &[0x935]),
    kind(0x936, 0x938, &[], &[0x937]),
    kind(0x939, 0x93a, &[], &[0x93b]),
    kind(0x93d, 0x93e, &[], &[]),
    kind(0x940, 0x941, &[], &[]),
    // Shared receive queues, dynamically connected targets, XRQ.
    kind(0x700, 0x701, &[0x703], &[0x702]),
    kind(0x705, 0x706, &[0x708], &[0x707]),
    kind(0x710, 0x711, &[], &[0x713]),
    kind(0x717, 0x718, &[0x71a], &[0x719]),
    // Multicast, XRC domains, signatures.
    kind(0x806, 0x807, &[], &[]),
    kind(0x80e, 0x80f, &[], &[]),
    kind(0x600, 0x601, &[], &[]),
];

fn opcode(mailbox: &[u8]) -> u16 {
    input::OPCODE.get(mailbox) as u16
}

/// A command about no object.
pub(super) fn check_general(mailbox: &[u8]) -> Result<(), Errno> {
    let opcode = opcode(mailbox);
    (GENERAL.contains(&opcode) || GENERAL_RANGE.contains(&opcode)).then_some(()).ok_or(Errno::INVAL)
}

/// The kind of object that a command makes.
pub(super) fn created_by(mailbox: &[u8]) -> Result<&'static Kind, Errno> {
    KINDS.iter().find(|kind| kind.create == opcode(mailbox)).ok_or(Errno::INVAL)
}

impl Kind {
    /// A command that changes the object of this kind and number.
    pub(super) fn check_modify(&self, number: u32, mailbox: &[u8]) -> Result<(), Errno> {
        self.check(self.modify, number, mailbox)
    }

    /// A command that reads it.
    pub(super) fn check_query(&self, number: u32, mailbox: &[u8]) -> Result<(), Errno> {
        self.check(self.query, number, mailbox)
    }

    /// Nobody changes an object through the handle of another.
    fn check(&self, allowed: &[u16], number: u32, mailbox: &[u8]) -> Result<(), Errno> {
        let right = allowed.contains(&opcode(mailbox)) && input::OBJECT.get(mailbox) == number;
        right.then_some(()).ok_or(Errno::INVAL)
    }

    /// The command that ends an object of this kind: programs never write it themselves.
    pub(super) fn destroy(&self, number: u32) -> [u8; HEADER_BYTES] {
        let mut mailbox = [0; HEADER_BYTES];
        input::OPCODE.set(&mut mailbox, self.destroy as u32);
        input::UID.set(&mut mailbox, UID);
        input::OBJECT.set(&mut mailbox, number);
        mailbox
    }
}

/// Says whether the firmware did what it was asked for.
pub(super) fn is_refused(answer: &[u8]) -> bool {
    output::STATUS.get(answer) != 0
}

/// What an answer says that never came.
pub(super) fn unanswered(answer: &mut [u8]) {
    answer.fill(0);
    output::STATUS.set(answer, Status::InternalErr as u32);
}

/// The number of the object that an answer tells of.
pub(super) fn number(answer: &[u8]) -> u32 {
    output::OBJECT.get(answer)
}

/// What the kernel does to every mailbox: the user context is its own, and queues and keys lie in umems, whatever the
/// program wrote.
pub(super) fn prepare(mailbox: &mut [u8]) {
    input::UID.set(mailbox, UID);
    // A mailbox that is too short for its command is for the firmware to refuse.
    let long = |bytes: usize| mailbox.len() >= bytes;
    match opcode(mailbox) {
        0x200 if long(mkey::CREATE_IN_BYTES) => mkey::create::MKEY_UMEM_VALID.set(mailbox, 1),
        0x400 if long(cq::CREATE_IN_BYTES) => {
            cq::create::CQ_UMEM_VALID.set(mailbox, 1);
            cq::cqc::DBR_UMEM_VALID.set(&mut mailbox[cq::CQC_OFFSET..], 1);
        }
        0x403 if long(cq::CREATE_IN_BYTES) => cq::create::CQ_UMEM_VALID.set(mailbox, 1),
        0x500 if long(qp::CONTEXT_COMMAND_BYTES) => {
            qp::create::WQ_UMEM_VALID.set(mailbox, 1);
            qp::qpc::DBR_UMEM_VALID.set(&mut mailbox[qp::QPC_OFFSET..], 1);
        }
        0x90c if long(rmp::CONTEXT_COMMAND_BYTES) => {
            rmp::rmpc::WQ_UMEM_VALID.set(&mut mailbox[rmp::RMPC_OFFSET..], 1);
            rmp::rmpc::DBR_UMEM_VALID.set(&mut mailbox[rmp::RMPC_OFFSET..], 1);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn mailbox(opcode: u16, object: u32) -> Vec<u8> {
        let mut mailbox = vec![0; 272];
        input::OPCODE.set(&mut mailbox, opcode as u32);
        input::OBJECT.set(&mut mailbox, object);
        mailbox
    }

    #[test]
    fn general_commands_make_and_change_nothing() {
        for opcode in [0x100, 0x750, 0x80d, 0xb00, 0xcff] {
            assert_eq!(check_general(&mailbox(opcode, 0)), Ok(()), "{opcode:#x}");
        }
        let mut all: Vec<u16> = KINDS.iter().flat_map(|kind| [kind.create, kind.destroy]).collect();
        // Kernel only: UARs, umems, user contexts, the port, registers.
        all.extend([0x802, 0xa08, 0xa04, 0x751, 0x805, 0x301, 0xaff, 0xd00, 0x203]);
        for opcode in all {
            assert_eq!(check_general(&mailbox(opcode, 0)), Err(Errno::INVAL), "{opcode:#x}");
        }
    }

    #[test]
    fn no_command_has_two_meanings() {
        let commands = KINDS.iter().flat_map(|kind| {
            [kind.create, kind.destroy].into_iter().chain(kind.modify.iter().chain(kind.query).copied())
        });
        let mut seen: HashSet<u16> = GENERAL.iter().copied().collect();
        for opcode in commands {
            assert!(seen.insert(opcode) && !GENERAL_RANGE.contains(&opcode), "{opcode:#x}");
        }
        assert_eq!((QP.create, CQ.create, RMP.create), (0x500, 0x400, 0x90c));
    }

    #[test]
    fn an_object_is_changed_through_its_own_handle_alone() {
        assert_eq!(QP.check_modify(0x41, &mailbox(0x502, 0x41)), Ok(()));
        assert_eq!(QP.check_modify(0x41, &mailbox(0x502, 0x42)), Err(Errno::INVAL), "another's number");
        assert_eq!(QP.check_modify(0x41, &mailbox(0x50c, 0x41)), Err(Errno::INVAL), "not on the list");
        assert_eq!(QP.check_modify(0x41, &mailbox(0x50b, 0x41)), Err(Errno::INVAL), "a query");
        assert_eq!(QP.check_query(0x41, &mailbox(0x50b, 0x41)), Ok(()));
        assert_eq!(CQ.check_query(0x41, &mailbox(0x50b, 0x41)), Err(Errno::INVAL), "another kind");
        assert_eq!(created_by(&mailbox(0x501, 1)), Err(Errno::INVAL));
        let destroy = created_by(&mailbox(0x200, 0)).unwrap().destroy(7);
        assert_eq!((opcode(&destroy), input::OBJECT.get(&destroy)), (0x202, 7));
    }

    #[test]
    fn queues_and_keys_lie_in_umems_whatever_was_written() {
        let prepared = |opcode| {
            let mut mailbox = mailbox(opcode, 0);
            prepare(&mut mailbox);
            assert_eq!(input::UID.get(&mailbox), UID);
            mailbox
        };
        let (queue, pair, key) = (prepared(0x400), prepared(0x500), prepared(0x200));
        assert_eq!(cq::create::CQ_UMEM_VALID.get(&queue), 1);
        assert_eq!(cq::cqc::DBR_UMEM_VALID.get(&queue[cq::CQC_OFFSET..]), 1);
        assert_eq!(qp::create::WQ_UMEM_VALID.get(&pair), 1);
        assert_eq!(qp::qpc::DBR_UMEM_VALID.get(&pair[qp::QPC_OFFSET..]), 1);
        assert_eq!(mkey::create::MKEY_UMEM_VALID.get(&key), 1);
        let pool = prepared(0x90c);
        assert_eq!(rmp::rmpc::WQ_UMEM_VALID.get(&pool[rmp::RMPC_OFFSET..]), 1);
        // Too short for what it says it is: untouched but for the user context.
        for opcode in [0x200, 0x400, 0x403, 0x500, 0x90c] {
            let mut short = mailbox(opcode, 0)[..HEADER_BYTES].to_vec();
            prepare(&mut short);
            assert!(short[8..].iter().all(|byte| *byte == 0));
        }
    }
}
