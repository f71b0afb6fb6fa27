//! Targets of dynamically connected transport. To verbs they are queue pairs; the firmware makes one only when all of
//! its attributes are known, which is at RTR.

use super::address::PORT;
use super::cq::Cq;
use super::firmware;
use super::pd::Pd;
use super::srq::Srq;
use super::transition::{INIT, RESET, RTR};
use crate::abi::ids::{access, attribute as a, create_qp};
use crate::abi::mlx5::CreateQp;
use crate::abi::uverbs::ModifyQp;
use crate::ioctl::{Call, Context, Resource};
use rustix::io::Errno;
use shunt_layout::mlx5::prm::cmd::{Opcode, input};
use shunt_layout::mlx5::prm::dct::{CONTEXT_COMMAND_BYTES, DCTC_OFFSET, dctc};
use shunt_layout::mlx5::prm::qp::ATOMIC_MODE_UP_TO_8;
use std::sync::{Arc, Mutex, PoisonError};

/// What was asked for and done so far.
struct Told {
    state: u8,
    access: u32,
    /// Its number, once the firmware made it.
    number: Option<u32>,
}

/// A target.
pub struct Dct {
    pd: u32,
    cqn: u32,
    pool: u32,
    key: u64,
    user_index: u32,
    told: Mutex<Told>,
}

impl Resource for Dct {
    fn destroy(&self, context: &Context) -> Result<(), Errno> {
        let number = self.told.lock().unwrap_or_else(PoisonError::into_inner).number;
        number.map_or(Ok(()), |number| firmware::command(context.nic(), Opcode::DestroyDct, number))
    }
}

/// Notes what a program asks for; its handle.
pub fn create(context: &Context, call: &Call, request: &CreateQp) -> Result<u32, Errno> {
    let pd = context.get::<Pd>(call.handle(create_qp::PD)?)?.number();
    let cqn = context.get::<Cq>(call.handle(create_qp::RECEIVE_CQ)?)?.number();
    let pool = context.get::<Srq>(call.handle(create_qp::SRQ)?)?.number();
    let told = Mutex::new(Told { state: RESET, access: 0, number: None });
    // The key lies where a queue pair of raw packets has its send queue.
    let (key, user_index) = (request.send_buffer, request.user_index);
    Ok(context.insert(Arc::new(Dct { pd, cqn, pool, key, user_index, told })))
}

impl Dct {
    /// MODIFY_QP: its number, 0 before it has one.
    pub fn modify(&self, context: &Context, request: &ModifyQp) -> Result<u32, Errno> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let needs = |mask: u32| if request.mask == mask | a::STATE { Ok(()) } else { Err(Errno::INVAL) };
        match (told.state, request.state) {
            (RESET, INIT) => {
                needs(a::ACCESS | a::PKEY_INDEX | a::PORT)?;
                if request.port != PORT || request.pkey_index != 0 {
                    return Err(Errno::INVAL);
                }
                (told.state, told.access) = (INIT, request.access);
            }
            (INIT, RTR) => {
                needs(a::RNR_TIMER | a::ADDRESS | a::PATH_MTU)?;
                let mailbox = self.mailbox(told.access, request);
                told.number = Some(firmware::create(context.nic(), &mailbox)?);
                told.state = RTR;
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(told.number.unwrap_or(0))
    }

    fn mailbox(&self, allowed: u32, request: &ModifyQp) -> [u8; CONTEXT_COMMAND_BYTES] {
        let mut mailbox = [0; CONTEXT_COMMAND_BYTES];
        input::OPCODE.set(&mut mailbox, Opcode::CreateDct as u32);
        let context = &mut mailbox[DCTC_OFFSET..DCTC_OFFSET + dctc::BYTES];
        let atomics = allowed & access::REMOTE_ATOMIC != 0;
        let fields = [
            (dctc::USER_INDEX, self.user_index),
            (dctc::CQN, self.cqn),
            (dctc::ATOMIC_MODE, if atomics { ATOMIC_MODE_UP_TO_8 } else { 0 }),
            (dctc::RRE, (allowed & access::REMOTE_READ != 0) as u32),
            (dctc::RWE, (allowed & access::REMOTE_WRITE != 0) as u32),
            (dctc::RAE, atomics as u32),
            (dctc::MIN_RNR_NAK, request.min_rnr_timer as u32 & 0x1f),
            (dctc::SRQN_XRQN, self.pool),
            (dctc::PD, self.pd),
            (dctc::MTU, request.path_mtu as u32 & 7),
            (dctc::PORT, PORT as u32),
        ];
        for (field, value) in fields {
            field.set(context, value);
        }
        dctc::DC_ACCESS_KEY.set(context, self.key);
        mailbox
    }
}
