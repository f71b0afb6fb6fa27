//! Commands that read objects and capabilities.

use super::limits::{LOG_MAX_CQ, LOG_MAX_MESSAGE, LOG_MAX_POOL, LOG_MAX_READS, LOG_MAX_SQ};
use crate::completion_queue::CompletionQueues;
use crate::config::{LinkLayer, NicConfig};
use crate::hca::Hca;
use crate::memory::Memory;
use crate::status::Refusal;
use shunt_layout::bits::Field;
use shunt_layout::mlx5::prm::caps::{self, CAPABILITY_OFFSET, atomic, general, general_2, roce};
use shunt_layout::mlx5::prm::cmd::input;
use shunt_layout::mlx5::prm::cq::{CQC_OFFSET, cqc};
use shunt_layout::mlx5::prm::mkey::{MKC_OFFSET, mkc};
use shunt_layout::mlx5::prm::pd;
use shunt_layout::mlx5::prm::qp::{QPC_OFFSET, State, qpc, queried};
use shunt_layout::mlx5::wqe::TERMINATE_SCATTER_LIST_KEY;

/// Output bytes of QUERY_ADAPTER, QUERY_MKEY and QUERY_CQ.
pub(super) const OUT_BYTES: usize = 272;
/// The vendor of real ones, as an OUI.
const VENDOR: u32 = 0x02c9;

pub(super) fn qp(hca: &Hca, qpn: u32, out: &mut [u8]) -> Result<(), Refusal> {
    let qp = hca.qps.get(qpn).ok_or(Refusal::NoSuchQp)?;
    let endpoint = &qp.endpoint;
    let mut context = endpoint.context;
    let queue = qp.responder.receive.as_ref();
    let (received, waiting) = queue.map_or((0, 0), |queue| (queue.consumed() as u16 as u32, queue.waiting()));
    let ((next_psn, last_acked), (announced, fetched)) = (qp.requester.psns(), qp.requester.counters());
    let (expected, msn) = qp.responder.counters();
    let live: [(Field, u32); 9] = [
        (qpc::STATE, endpoint.state as u32),
        (qpc::NEXT_SEND_PSN, next_psn),
        (qpc::LAST_ACKED_PSN, last_acked),
        (qpc::NEXT_RCV_PSN, expected),
        (qpc::RMSN, msn),
        (qpc::HW_SQ_WQEBB_COUNTER, fetched as u16 as u32),
        (qpc::SW_SQ_WQEBB_COUNTER, announced as u16 as u32),
        (qpc::HW_RQ_COUNTER, received),
        (qpc::SW_RQ_COUNTER, (received + waiting as u32) & 0xffff),
    ];
    for (field, value) in live {
        field.set(&mut context, value);
    }
    let config = &hca.units.config;
    if config.profile.order.told && endpoint.state == State::Rts {
        qpc::DATA_IN_ORDER.set(&mut context, !endpoint.admits_disorder(config) as u32);
    }
    out[QPC_OFFSET..QPC_OFFSET + qpc::BYTES].copy_from_slice(&context);
    queried::ECE.set(out, endpoint.ece);
    Ok(())
}

pub(super) fn cq(cqs: &CompletionQueues, cqn: u32, out: &mut [u8]) -> Result<(), Refusal> {
    let context = cqs.get(cqn).ok_or(Refusal::NoSuchCq)?.context();
    out[CQC_OFFSET..CQC_OFFSET + cqc::BYTES].copy_from_slice(&context);
    Ok(())
}

pub(super) fn mkey(memory: &Memory, index: u32, out: &mut [u8]) -> Result<(), Refusal> {
    let mkey = *memory.mkey(index).ok_or(Refusal::NoSuchMkey)?;
    let context = &mut out[MKC_OFFSET..MKC_OFFSET + mkc::BYTES];
    mkc::ACCESS_MODE_1_0.set(context, shunt_layout::mlx5::prm::mkey::ACCESS_MODE_MTT);
    mkc::MKEY_7_0.set(context, mkey.key & 0xff);
    mkc::QPN.set(context, mkey.qpn);
    mkc::PD.set(context, mkey.pd);
    mkc::RELAXED_ORDERING_WRITE.set(context, mkey.relaxed as u32);
    for (n, field) in [mkc::LR, mkc::LW, mkc::RR, mkc::RW, mkc::A].into_iter().enumerate() {
        field.set(context, (mkey.allows >> n & 1) as u32);
    }
    mkc::START_ADDR.set(context, mkey.start);
    mkc::LEN.set(context, mkey.span.bytes());
    Ok(())
}

pub(super) fn hca_cap(config: &NicConfig, mailbox: &[u8], out: &mut [u8]) -> Result<(), Refusal> {
    let mut whole = [0; caps::OUT_BYTES];
    let union = &mut whole[CAPABILITY_OFFSET..];
    let profile = &config.profile;
    // Bit 0 of op_mod chooses current or maximum; they are the same here.
    match input::OP_MOD.get(mailbox) >> 1 {
        caps::GENERAL => general_caps(config, union),
        caps::GENERAL_2 => general_2::DP_ORDERING_FORCE.set(union, profile.order.force as u32),
        caps::ATOMIC => {
            let host_order = !profile.atomics.big_endian as u32;
            atomic::REQ_8B_ENDIANNESS_MODE.set(union, host_order);
            atomic::SUPPORTED_REQ_8B_ENDIANNESS_MODE_1.set(union, host_order);
            atomic::ATOMIC_OPERATIONS.set(union, profile.atomics.operations);
            atomic::ATOMIC_SIZE_QP.set(union, 0xc);
            atomic::ATOMIC_SIZE_DC.set(union, 0xc);
        }
        caps::ROCE => {
            let loopback = profile.force_loopback;
            roce::FL_RC_QP_WHEN_ROCE_ENABLED.set(union, loopback.with_roce as u32);
            roce::FL_RC_QP_WHEN_ROCE_DISABLED.set(union, loopback.without_roce as u32);
            roce::QP_TS_FORMAT.set(union, profile.clock as u32);
            roce::ROCE_VERSION.set(union, 1 << 2); // v2
            roce::R_ROCE_DEST_UDP_PORT.set(union, 4791);
            roce::ROCE_ADDRESS_TABLE_SIZE.set(union, 1);
        }
        // It has nothing of these, and says so.
        group if caps::OTHERS.contains(&group) => {}
        _ => return Err(Refusal::BadCapability),
    }
    // Software that is older than the newest capabilities asks for fewer bytes.
    let length = out.len().min(whole.len());
    out[..length].copy_from_slice(&whole[..length]);
    Ok(())
}

fn general_caps(config: &NicConfig, union: &mut [u8]) {
    let profile = &config.profile;
    let ethernet = config.link_layer == LinkLayer::Ethernet;
    let values = [
        (general::LOG_MAX_QP_SZ, LOG_MAX_SQ),
        (general::LOG_MAX_QP, 18),
        (general::LOG_MAX_SRQ_SZ, LOG_MAX_POOL),
        (general::LOG_MAX_SRQ, 18),
        (general::LOG_MAX_CQ_SZ, LOG_MAX_CQ),
        (general::LOG_MAX_CQ, 18),
        (general::RELAXED_ORDERING_WRITE, 1),
        (general::LOG_MAX_RA_REQ_QP, LOG_MAX_READS),
        (general::LOG_MAX_RA_RES_QP, LOG_MAX_READS),
        (general::GID_TABLE_SIZE, 0),
        (general::PORT_TYPE, ethernet as u32),
        (general::NUM_PORTS, 1),
        (general::LOG_MAX_MSG, LOG_MAX_MESSAGE),
        (general::CQE_VERSION, 1),
        (general::ROCE, ethernet as u32),
        (general::ATOMIC, 1),
        (general::CQ_OI, 1),
        (general::DCT, 1),
        (general::UD, 1),
        (general::RC, 1),
        (general::UAR_4K, 1),
        (general::BF, 1),
        (general::LOG_BF_REG_SIZE, 9),
        (general::MAX_WQE_SZ_SQ, 1008),
        (general::MAX_WQE_SZ_RQ, 16 << 7),
        (general::LOG_MAX_UMEM, 20),
        (general::HCA_CAP_2, 1),
        (general::ECE_SUPPORT, profile.ece.is_there() as u32),
        (general::QP_DATA_IN_ORDER, profile.order.told as u32),
        (general::DP_ORDERING_OOO_RW_RC, profile.order.out_of_order as u32),
        (general::FL_RC_QP_WHEN_ROCE_DISABLED, profile.force_loopback.without_roce as u32),
        (general::SQ_TS_FORMAT, profile.clock as u32),
        (general::RQ_TS_FORMAT, profile.clock as u32),
    ];
    for (field, value) in values {
        field.set(union, value);
    }
}

pub(super) fn adapter(out: &mut [u8]) -> Result<(), Refusal> {
    debug_assert!(out.len() >= OUT_BYTES);
    out[0x28..0x2c].copy_from_slice(&VENDOR.to_be_bytes());
    out[0x100..0x108].copy_from_slice(b"SHUNT\0\0\0"); // psid
    Ok(())
}

pub(super) fn special_contexts(out: &mut [u8]) -> Result<(), Refusal> {
    // Below the first key index: no key ever has these numbers.
    pd::special::DUMP_FILL_MKEY.set(out, 0x200);
    pd::special::RESD_LKEY.set(out, 0x300);
    pd::special::NULL_MKEY.set(out, 0x400);
    pd::special::TERMINATE_SCATTER_LIST_MKEY.set(out, TERMINATE_SCATTER_LIST_KEY);
    Ok(())
}
