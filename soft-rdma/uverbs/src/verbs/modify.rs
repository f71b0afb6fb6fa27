//! MODIFY_QP: from attributes to the mailbox of a transition.

use super::address::{PORT, set_path};
use super::dct::Dct;
use super::device::mtu_code;
use super::firmware;
use super::invocation::Core;
use super::qp::{Qp, Tuned};
use super::transition::{self, Service, change, optional_of};
use crate::abi::ids::{access, attribute as a};
use crate::abi::mlx5::{ModifyQpDriver, ModifyQpResponse};
use crate::abi::uverbs::ModifyQp;
use crate::abi::{Plain, structure};
use crate::ioctl::Context;
use rustix::io::Errno;
use shunt_layout::mlx5::prm::cmd::{Opcode, input};
use shunt_layout::mlx5::prm::qp::{
    ADS_OFFSET, ATOMIC_MODE_UP_TO_8, CONTEXT_COMMAND_BYTES, PM_STATE_MIGRATED, QPC_OFFSET, ads, answer,
    change as fields, qpc,
};
use shunt_soft_machine::devices::Nic;

/// Largest message over a connection, log2.
const LOG_MESSAGE_MAX: u32 = 30;
/// Largest datagram, log2.
const LOG_DATAGRAM_MAX: u32 = 12;
/// READs and atomics under way at most.
const MOST_READS: u8 = 16;
/// PSNs and numbers of queue pairs.
const MASK_24: u32 = 0xff_ffff;

structure! {
    /// `ib_uverbs_ex_modify_qp`.
    ModifyQpEx: 120 {
        /// The common part.
        base: ModifyQp = 0,
        /// Rate limit of raw packets.
        rate_limit: u32 = 112,
        /// Zero.
        reserved: u32 = 116,
    }
}

/// MODIFY_QP.
pub fn modify(context: &Context, core: &mut Core) -> Result<(), Errno> {
    run(context, &core.request()?, 0).map(|_| ())
}

/// MODIFY_QP, the extended command.
pub fn modify_ex(context: &Context, core: &mut Core) -> Result<(), Errno> {
    let request: ModifyQpEx = core.request()?;
    if request.rate_limit != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let driver: ModifyQpDriver = core.driver_request()?;
    let (ece, dctn) = match context.get::<Dct>(request.base.handle) {
        Ok(target) => (0, target.modify(context, &request.base)?),
        Err(_) => (run(context, &request.base, driver.ece)?, 0),
    };
    if core.room() > 0 {
        core.reply_grown(&[0u32, 8])?;
    }
    let response_length = core.driver_room().min(size_of::<ModifyQpResponse>()) as u32;
    core.driver_reply(ModifyQpResponse { response_length, dctn, ece, ..ModifyQpResponse::default() }.bytes())
}

/// Answers with the options of ECE in force, where a command was given that tells.
fn run(context: &Context, request: &ModifyQp, ece: u32) -> Result<u32, Errno> {
    let qp = context.get::<Qp>(request.handle)?;
    let mut tuned = qp.tuned();
    let from = if request.mask & a::CURRENT_STATE != 0 { request.current_state } else { tuned.state };
    let to = if request.mask & a::STATE != 0 { request.state } else { from };
    let change = change(qp.service, from, to).ok_or(Errno::INVAL)?;
    if !change.fits(request.mask) {
        return Err(Errno::INVAL);
    }
    check(request)?;
    let mut next = Tuned { state: to, ..*tuned };
    let mut in_force = 0;
    match change.command {
        None => {}
        Some(opcode @ (Opcode::Qp2Rst | Opcode::Qp2Err)) => {
            firmware::command(context.nic(), opcode, qp.number)?;
            if opcode == Opcode::Qp2Rst {
                next = Tuned::default();
            }
        }
        Some(opcode) => {
            if request.mask & a::ACCESS != 0 {
                next.access = request.access;
            }
            if request.mask & a::READS_IN != 0 {
                next.reads_in = request.reads_in;
            }
            let optional = optional_of(request.mask) & change.optional;
            let mut mailbox =
                Transition { nic: context.nic(), qp: &qp, request, next, optional }.mailbox(opcode)?;
            fields::ECE.set(&mut mailbox, ece);
            in_force = answer::ECE.get(&firmware::execute::<16>(context.nic(), &mailbox)?);
        }
    }
    *tuned = next;
    Ok(in_force)
}

/// Refuses values that no field holds, where they count.
fn check(request: &ModifyQp) -> Result<(), Errno> {
    let bad = [
        (a::PORT, request.port != PORT),
        (a::PKEY_INDEX, request.pkey_index != 0),
        (a::PATH_MTU, !(1..=5).contains(&request.path_mtu)),
        (a::RETRIES, request.retries > 7),
        (a::RNR_RETRIES, request.rnr_retries > 7),
        (a::TIMEOUT, request.timeout > 31),
        (a::RNR_TIMER, request.min_rnr_timer > 31),
        (a::READS_OUT, request.reads_out > MOST_READS),
        (a::READS_IN, request.reads_in > MOST_READS),
    ];
    if bad.iter().any(|(attribute, bad)| request.mask & attribute != 0 && *bad) {
        return Err(Errno::INVAL);
    }
    Ok(())
}

/// One transition to be written.
struct Transition<'t> {
    nic: &'static Nic,
    qp: &'t Qp,
    request: &'t ModifyQp,
    next: Tuned,
    optional: u32,
}

impl Transition<'_> {
    fn has(&self, attribute: u32) -> bool {
        self.request.mask & attribute != 0
    }

    fn mailbox(&self, opcode: Opcode) -> Result<[u8; CONTEXT_COMMAND_BYTES], Errno> {
        let mut mailbox = [0; CONTEXT_COMMAND_BYTES];
        input::OPCODE.set(&mut mailbox, opcode as u32);
        input::OBJECT.set(&mut mailbox, self.qp.number);
        fields::OPT_PARAM_MASK.set(&mut mailbox, self.optional);
        let context = &mut mailbox[QPC_OFFSET..QPC_OFFSET + qpc::BYTES];
        qpc::PM_STATE.set(context, PM_STATE_MIGRATED);
        self.set_path(context)?;
        self.set_rights(context);
        self.set_receiving(context);
        self.set_sending(context);
        Ok(mailbox)
    }

    fn set_path(&self, context: &mut [u8]) -> Result<(), Errno> {
        let path = &mut context[ADS_OFFSET..ADS_OFFSET + ads::BYTES];
        if self.has(a::PORT) {
            ads::VHCA_PORT_NUM.set(path, self.request.port as u32);
        }
        if self.has(a::PKEY_INDEX) {
            ads::PKEY_INDEX.set(path, self.request.pkey_index as u32);
        }
        // An initiator's WQEs name where they go.
        if self.has(a::ADDRESS) && self.qp.service != Service::DcInitiator {
            let qpns = [self.qp.number, self.request.dest_qpn & MASK_24];
            set_path(self.nic, path, &self.request.dest, qpns)?;
        }
        if self.has(a::TIMEOUT) {
            ads::ACK_TIMEOUT.set(path, self.request.timeout as u32);
        }
        Ok(())
    }

    /// What peers may do. READs and atomics are of no use before it is known how many may come.
    fn set_rights(&self, context: &mut [u8]) {
        let Tuned { access: asked, reads_in, .. } = self.next;
        let allowed = if reads_in == 0 { asked & access::REMOTE_WRITE } else { asked };
        qpc::RRE.set(context, (allowed & access::REMOTE_READ != 0) as u32);
        qpc::RWE.set(context, (allowed & access::REMOTE_WRITE != 0) as u32);
        if allowed & access::REMOTE_ATOMIC != 0 {
            qpc::RAE.set(context, 1);
            qpc::ATOMIC_MODE.set(context, ATOMIC_MODE_UP_TO_8);
        }
    }

    fn set_receiving(&self, context: &mut [u8]) {
        let request = self.request;
        if self.has(a::QKEY) {
            qpc::Q_KEY.set(context, request.qkey);
        }
        if self.has(a::RNR_TIMER) {
            qpc::MIN_RNR_NAK.set(context, request.min_rnr_timer as u32);
        }
        if self.next.state != transition::RTR {
            return;
        }
        let (mtu, log_message) = match self.qp.service {
            Service::Rc | Service::DcInitiator => (request.path_mtu, LOG_MESSAGE_MAX),
            Service::Ud => (mtu_code(self.nic.port().mtu), LOG_DATAGRAM_MAX),
        };
        qpc::MTU.set(context, mtu as u32);
        qpc::LOG_MSG_MAX.set(context, log_message);
        qpc::REMOTE_QPN.set(context, request.dest_qpn & MASK_24);
        qpc::NEXT_RCV_PSN.set(context, request.rq_psn & MASK_24);
        qpc::LOG_RRA_MAX.set(context, log_reads(request.reads_in));
    }

    fn set_sending(&self, context: &mut [u8]) {
        let request = self.request;
        if self.has(a::SEND_PSN) {
            qpc::NEXT_SEND_PSN.set(context, request.sq_psn & MASK_24);
        }
        if self.has(a::RETRIES) {
            qpc::RETRY_COUNT.set(context, request.retries as u32);
        }
        if self.has(a::RNR_RETRIES) {
            qpc::RNR_RETRY.set(context, request.rnr_retries as u32);
        }
        if self.has(a::READS_OUT) {
            qpc::LOG_SRA_MAX.set(context, log_reads(request.reads_out));
        }
    }
}

/// READs under way, as the power of two that holds them.
fn log_reads(reads: u8) -> u32 {
    reads.max(1).next_power_of_two().ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_rounded_up() {
        assert_eq!([0, 1, 2, 3, 4, 15, 16].map(log_reads), [0, 0, 1, 2, 2, 4, 4]);
    }

    #[test]
    fn values_that_no_field_holds_are_refused() {
        let mut request = ModifyQp { port: 2, retries: 8, timeout: 32, path_mtu: 6, ..ModifyQp::default() };
        assert_eq!(check(&request), Ok(()), "none of them counts");
        for attribute in [a::PORT, a::RETRIES, a::TIMEOUT, a::PATH_MTU] {
            request.mask = attribute | a::STATE;
            assert_eq!(check(&request), Err(Errno::INVAL));
        }
    }
}
