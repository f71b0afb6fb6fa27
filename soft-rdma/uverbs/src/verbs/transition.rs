//! Which changes of a queue pair's state are allowed, with which attributes, and by which command. The table is that
//! of the InfiniBand specification (volume 1, 11.2.5.2, "Modify Queue Pair") as kernels have it.

use crate::abi::ids::attribute as a;
use shunt_layout::mlx5::prm::cmd::Opcode;
use shunt_layout::mlx5::prm::qp::optional;

/// State, as verbs number it.
pub const RESET: u8 = 0;
/// State.
pub const INIT: u8 = 1;
/// State.
pub const RTR: u8 = 2;
/// State.
pub const RTS: u8 = 3;
/// State.
pub const SQD: u8 = 4;
/// State.
pub const SQE: u8 = 5;
/// State.
pub const ERROR: u8 = 6;

/// What a queue pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable datagrams.
    Ud,
    /// Initiator of dynamically connected transport.
    DcInitiator,
}

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Attributes that must be given.
    pub required: u32,
    /// Attributes that may be.
    pub allowed: u32,
    /// The command; none where nothing has to be done.
    pub command: Option<Opcode>,
    /// Optional parameters the firmware takes with it.
    pub optional: u32,
}

const RIGHTS: u32 = optional::RRE | optional::RAE | optional::RWE;

/// The change from one state to another, if there is one. `None` for those this NIC has no command for, too.
pub fn change(service: Service, from: u8, to: u8) -> Option<Change> {
    let rc = service == Service::Rc;
    let make = |command, required, allowed, optional| {
        Some(Change { required, allowed, command: Some(command), optional })
    };
    match (from, to) {
        (RESET, INIT) if service == Service::DcInitiator => {
            make(Opcode::Rst2InitQp, a::PKEY_INDEX | a::PORT, 0, 0)
        }
        (INIT, RTR) if service == Service::DcInitiator => {
            make(Opcode::Init2RtrQp, a::PATH_MTU, a::PKEY_INDEX | a::ADDRESS, optional::PKEY_INDEX)
        }
        (RTR, RTS) if service == Service::DcInitiator => {
            let required = a::TIMEOUT | a::RETRIES | a::RNR_RETRIES | a::SEND_PSN | a::READS_OUT;
            make(Opcode::Rtr2RtsQp, required, a::RNR_TIMER, optional::RNR_TIMEOUT)
        }
        (INIT, INIT) | (RTS, RTS) if service == Service::DcInitiator => None,
        (RESET, RESET) => Some(Change { required: 0, allowed: 0, command: None, optional: 0 }),
        (_, RESET) => make(Opcode::Qp2Rst, 0, 0, 0),
        (RESET, INIT) => {
            make(Opcode::Rst2InitQp, a::PKEY_INDEX | a::PORT | if rc { a::ACCESS } else { a::QKEY }, 0, 0)
        }
        (RESET, _) => None,
        (INIT | RTR | RTS | SQD | SQE | ERROR, ERROR) => make(Opcode::Qp2Err, 0, 0, 0),
        (INIT, INIT) if rc => {
            let optional = RIGHTS | optional::PKEY_INDEX | optional::PRIMARY_PORT;
            make(Opcode::Init2InitQp, 0, a::PKEY_INDEX | a::PORT | a::ACCESS, optional)
        }
        (INIT, INIT) => {
            let optional = optional::PKEY_INDEX | optional::Q_KEY | optional::PRIMARY_PORT;
            make(Opcode::Init2InitQp, 0, a::PKEY_INDEX | a::PORT | a::QKEY, optional)
        }
        (INIT, RTR) if rc => {
            let required =
                a::ADDRESS | a::PATH_MTU | a::DESTINATION | a::RECEIVE_PSN | a::READS_IN | a::RNR_TIMER;
            make(Opcode::Init2RtrQp, required, a::ACCESS | a::PKEY_INDEX, RIGHTS | optional::PKEY_INDEX)
        }
        (INIT, RTR) => {
            make(Opcode::Init2RtrQp, 0, a::PKEY_INDEX | a::QKEY, optional::PKEY_INDEX | optional::Q_KEY)
        }
        (RTR, RTS) if rc => {
            let required = a::TIMEOUT | a::RETRIES | a::RNR_RETRIES | a::SEND_PSN | a::READS_OUT;
            let allowed = a::CURRENT_STATE | a::ACCESS | a::RNR_TIMER | a::MIGRATION;
            make(Opcode::Rtr2RtsQp, required, allowed, RIGHTS | optional::RNR_TIMEOUT)
        }
        (RTR, RTS) => make(Opcode::Rtr2RtsQp, a::SEND_PSN, a::CURRENT_STATE | a::QKEY, optional::Q_KEY),
        (RTS, RTS) if rc => {
            let allowed = a::CURRENT_STATE | a::ACCESS | a::RNR_TIMER | a::MIGRATION;
            make(Opcode::Rts2RtsQp, 0, allowed, RIGHTS | optional::RNR_TIMEOUT)
        }
        (RTS, RTS) => make(Opcode::Rts2RtsQp, 0, a::CURRENT_STATE | a::QKEY, optional::Q_KEY),
        _ => None,
    }
}

impl Change {
    /// True if these attributes are what the change needs and may have.
    pub fn fits(&self, mask: u32) -> bool {
        mask & self.required == self.required && mask & !(self.required | self.allowed | a::STATE) == 0
    }
}

/// The optional parameters that attributes stand for, as the mlx5 driver has it: what a responder allows follows from
/// the READs it takes in, too.
pub fn optional_of(mask: u32) -> u32 {
    let parts = [
        (a::ACCESS | a::READS_IN, RIGHTS),
        (a::PKEY_INDEX, optional::PKEY_INDEX),
        (a::PORT, optional::PRIMARY_PORT),
        (a::QKEY, optional::Q_KEY),
        (a::RNR_TIMER, optional::RNR_TIMEOUT),
    ];
    parts.iter().filter(|(attributes, _)| mask & attributes != 0).fold(0, |bits, (_, more)| bits | more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_masks_of_unmodified_programs_fit() {
        let fits = |from, to, mask| change(Service::Rc, from, to).is_some_and(|change| change.fits(mask));
        assert!(fits(RESET, INIT, 0x39) && fits(INIT, RTR, 0x12_9181) && fits(RTR, RTS, 0x1_2e01));
        assert!(!fits(RESET, INIT, 0x31), "no access flags");
        assert!(!fits(RESET, INIT, 0x79), "a key of datagrams");
        assert!(!fits(INIT, RTR, 0x2_9181), "no destination");
        let ud = |from, to, mask| change(Service::Ud, from, to).is_some_and(|change| change.fits(mask));
        assert!(ud(RESET, INIT, 0x71) && ud(INIT, RTR, 1) && ud(RTR, RTS, 0x1_0001));
        let dci =
            |from, to, mask| change(Service::DcInitiator, from, to).is_some_and(|change| change.fits(mask));
        assert!(dci(RESET, INIT, 0x31) && dci(INIT, RTR, 0x101) && dci(INIT, RTR, 0x181));
        assert!(dci(RTR, RTS, 0x1_2e01));
        assert!(!dci(RESET, INIT, 0x39), "it answers nothing, so it has no access flags");
        assert!(!dci(INIT, RTR, 0x1), "no MTU");
    }

    #[test]
    fn changes_that_there_are_not() {
        for service in [Service::Rc, Service::Ud, Service::DcInitiator] {
            for to in [RTR, RTS, SQD, SQE, ERROR, 7, 255] {
                assert_eq!(change(service, RESET, to), None, "{to}");
            }
            assert_eq!(change(service, INIT, RTS), None);
            assert_eq!(change(service, RTS, SQD), None, "no command for it");
            assert_eq!(change(service, 9, ERROR), None);
            assert!(change(service, RTS, RESET).is_some() && change(service, ERROR, ERROR).is_some());
        }
    }

    #[test]
    fn rights_are_optional_when_reads_are_set() {
        assert_eq!(optional_of(a::READS_IN), RIGHTS);
        assert_eq!(optional_of(a::RNR_TIMER | a::STATE), optional::RNR_TIMEOUT);
        assert_eq!(optional_of(a::TIMEOUT | a::SEND_PSN), 0);
    }
}
