//! Completion queues: rings as deep as their send queue, no consumer index kept. PRM: "CREATE_CQ".

use super::{create, destroy};
use crate::devx::Devx;
use crate::error::NicError;
use shunt_layout::mlx5::prm::cmd::{self, Opcode};
use shunt_layout::mlx5::prm::cq::{CQC_OFFSET, CREATE_IN_BYTES, cqc, create as fields};
use std::sync::Arc;

/// Arguments of CREATE_CQ.
#[derive(Clone, Copy, Debug)]
pub struct CqShape {
    /// Umem of entries and doorbell record.
    pub umem: u32,
    /// Offset of the entries, a multiple of 4 KiB.
    pub entries_offset: u64,
    /// Offset of the doorbell record.
    pub record_offset: u64,
    /// log2 of the entries.
    pub log_entries: u32,
    /// UAR page.
    pub uar: u32,
    /// Event queue.
    pub eqn: u32,
}

/// CREATE_CQ: overrun ignored (device code keeps no consumer index), not collapsed (the first cause of a
/// failure stays readable behind the flushes).
pub fn create_in(shape: &CqShape) -> [u8; CREATE_IN_BYTES] {
    let mut mailbox = [0; CREATE_IN_BYTES];
    cmd::input::OPCODE.set(&mut mailbox, Opcode::CreateCq as u32);
    fields::CQ_UMEM_OFFSET.set(&mut mailbox, shape.entries_offset);
    fields::CQ_UMEM_ID.set(&mut mailbox, shape.umem);
    fields::CQ_UMEM_VALID.set(&mut mailbox, 1);
    let context = &mut mailbox[CQC_OFFSET..CQC_OFFSET + cqc::BYTES];
    cqc::DBR_UMEM_VALID.set(context, 1);
    cqc::CC.set(context, 0);
    cqc::OI.set(context, 1);
    cqc::DBR_UMEM_ID.set(context, shape.umem);
    cqc::LOG_CQ_SIZE.set(context, shape.log_entries);
    cqc::UAR_PAGE.set(context, shape.uar);
    cqc::C_EQN.set(context, shape.eqn);
    cqc::DBR_ADDR.set(context, shape.record_offset);
    mailbox
}

/// A completion queue.
pub struct Cq {
    devx: Arc<dyn Devx>,
    number: u32,
}

impl Cq {
    /// CREATE_CQ.
    pub fn create(devx: &Arc<dyn Devx>, shape: &CqShape) -> Result<Self, NicError> {
        let number = create(&**devx, &create_in(shape))?;
        Ok(Self { devx: devx.clone(), number })
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        destroy(&*self.devx, Opcode::DestroyCq, self.number);
    }
}
