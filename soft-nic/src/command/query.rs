//! Commands that read.

use super::create::{LOG_MAX_CQ, LOG_MAX_SQ};
use super::shared::LOG_MAX_POOL;
use super::transition::{LOG_MAX_MESSAGE, LOG_MAX_READS};
use super::{QUERY_OUT_BYTES, Refusal};
use crate::config::LinkLayer;
use crate::nic::SoftNic;
use crate::psn;
use shunt_layout::bits::Field;
use shunt_layout::mlx5::prm::caps::{self, CAPABILITY_OFFSET, atomic, general, general_2, roce};
use shunt_layout::mlx5::prm::cmd::input;
use shunt_layout::mlx5::prm::mkey::{MKC_OFFSET, mkc};
use shunt_layout::mlx5::prm::port::{
    ALL_ENTRIES, HCA_VPORT_CONTEXT_OFFSET, HCA_VPORT_TABLE_OFFSET, NIC_VPORT_CONTEXT_OFFSET, hca_vport,
    hca_vport_gid_out, hca_vport_table_in, nic_vport, roce_address_in, roce_address_out, vport_state,
};
use shunt_layout::mlx5::prm::qp::{QPC_OFFSET, State, qpc};
use shunt_layout::mlx5::prm::{cq, pd};
use shunt_layout::mlx5::wqe::TERMINATE_SCATTER_LIST_KEY;

/// The vendor of real ones, as an OUI.
const VENDOR: u32 = 0x02c9;

impl SoftNic {
    pub(super) fn query_qp(&mut self, qpn: u32, out: &mut [u8]) -> Result<(), Refusal> {
        let qp = self.qp(qpn).ok_or(Refusal::NoSuchQp)?;
        let mut context = qp.context;
        let (requester, responder) = (&qp.requester, &qp.responder);
        let received = qp.receive.as_ref().map_or(0, |queue| queue.consumed as u16 as u32);
        let live: [(Field, u32); 9] = [
            (qpc::STATE, qp.state as u32),
            (qpc::NEXT_SEND_PSN, requester.next_psn),
            (qpc::LAST_ACKED_PSN, psn::sub(requester.oldest, 1)),
            (qpc::NEXT_RCV_PSN, responder.expected),
            (qpc::RMSN, responder.msn),
            (qpc::HW_SQ_WQEBB_COUNTER, requester.fetched as u16 as u32),
            (qpc::SW_SQ_WQEBB_COUNTER, requester.announced as u16 as u32),
            (qpc::HW_RQ_COUNTER, received),
            (qpc::SW_RQ_COUNTER, (received + qp.receives_waiting() as u32) & 0xffff),
        ];
        for (field, value) in live {
            field.set(&mut context, value);
        }
        if self.config.profile.order.told && qp.state == State::Rts {
            qpc::DATA_IN_ORDER.set(&mut context, !self.admits_disorder(qp) as u32);
        }
        out[QPC_OFFSET..QPC_OFFSET + qpc::BYTES].copy_from_slice(&context);
        Ok(())
    }

    pub(super) fn query_cq(&mut self, cqn: u32, out: &mut [u8]) -> Result<(), Refusal> {
        let cq = self.cq_mut(cqn).ok_or(Refusal::NoSuchCq)?;
        let mut context = cq.context;
        cq::cqc::STATUS.set(&mut context, if cq.failed { 9 } else { 0 });
        cq::cqc::ST.set(&mut context, cq.arming.state());
        cq::cqc::CONSUMER_COUNTER.set(&mut context, u32::from_be(cq.record.load32(0)) & 0xff_ffff);
        cq::cqc::PRODUCER_COUNTER.set(&mut context, cq.produced as u32 & 0xff_ffff);
        out[cq::CQC_OFFSET..cq::CQC_OFFSET + cq::cqc::BYTES].copy_from_slice(&context);
        Ok(())
    }

    pub(super) fn query_mkey(&mut self, index: u32, out: &mut [u8]) -> Result<(), Refusal> {
        let mkey = *self.memory.mkey(index).ok_or(Refusal::NoSuchMkey)?;
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

    pub(super) fn query_hca_cap(&mut self, mailbox: &[u8], out: &mut [u8]) -> Result<(), Refusal> {
        let mut whole = [0; caps::OUT_BYTES];
        let union = &mut whole[CAPABILITY_OFFSET..];
        let profile = &self.config.profile;
        // Bit 0 of op_mod chooses current or maximum; they are the same here.
        match input::OP_MOD.get(mailbox) >> 1 {
            caps::GENERAL => self.general_caps(union),
            caps::GENERAL_2 => general_2::DP_ORDERING_FORCE.set(union, profile.order.force as u32),
            caps::ATOMIC => {
                let host_order = !profile.atomics.big_endian as u32;
                atomic::REQ_8B_ENDIANNESS_MODE.set(union, host_order);
                atomic::SUPPORTED_REQ_8B_ENDIANNESS_MODE_1.set(union, host_order);
                atomic::ATOMIC_OPERATIONS.set(union, profile.atomics.operations);
                atomic::ATOMIC_SIZE_QP.set(union, 0xc);
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

    fn general_caps(&self, union: &mut [u8]) {
        let profile = &self.config.profile;
        let ethernet = self.config.link_layer == LinkLayer::Ethernet;
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
            (general::UD, 1),
            (general::RC, 1),
            (general::UAR_4K, 1),
            (general::BF, 1),
            (general::LOG_BF_REG_SIZE, 9),
            (general::MAX_WQE_SZ_SQ, 1008),
            (general::MAX_WQE_SZ_RQ, 16 << 7),
            (general::LOG_MAX_UMEM, 20),
            (general::HCA_CAP_2, 1),
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

    pub(super) fn query_adapter(&mut self, out: &mut [u8]) -> Result<(), Refusal> {
        debug_assert!(out.len() >= QUERY_OUT_BYTES);
        out[0x28..0x2c].copy_from_slice(&VENDOR.to_be_bytes());
        out[0x100..0x108].copy_from_slice(b"SHUNT\0\0\0"); // psid
        Ok(())
    }

    pub(super) fn query_special_contexts(&mut self, out: &mut [u8]) -> Result<(), Refusal> {
        // Below the first key index: no key ever has these numbers.
        pd::special::DUMP_FILL_MKEY.set(out, 0x200);
        pd::special::RESD_LKEY.set(out, 0x300);
        pd::special::NULL_MKEY.set(out, 0x400);
        pd::special::TERMINATE_SCATTER_LIST_MKEY.set(out, TERMINATE_SCATTER_LIST_KEY);
        Ok(())
    }

    pub(super) fn query_vport_state(&mut self, out: &mut [u8]) -> Result<(), Refusal> {
        vport_state::ADMIN_STATE.set(out, 2);
        vport_state::STATE.set(out, self.has_link() as u32);
        Ok(())
    }

    pub(super) fn query_nic_vport(&mut self, out: &mut [u8]) -> Result<(), Refusal> {
        let context = &mut out[NIC_VPORT_CONTEXT_OFFSET..];
        let mac = self.config.mac;
        let guid = u64::from_be_bytes([mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]]);
        nic_vport::ROCE_EN.set(context, (self.config.link_layer == LinkLayer::Ethernet) as u32);
        nic_vport::MTU.set(context, self.config.mtu + 104);
        nic_vport::SYSTEM_IMAGE_GUID.set(context, guid);
        nic_vport::PORT_GUID.set(context, guid);
        nic_vport::NODE_GUID.set(context, guid);
        context[0xf6..0xfc].copy_from_slice(&mac);
        Ok(())
    }

    pub(super) fn query_roce_address(&mut self, mailbox: &[u8], out: &mut [u8]) -> Result<(), Refusal> {
        if roce_address_in::INDEX.get(mailbox) != 0 {
            return Err(Refusal::BadGidIndex);
        }
        let (gid, mac) = (self.config.gid, self.config.mac);
        let at = roce_address_out::GID_0.offset;
        out[at..at + 16].copy_from_slice(&gid);
        roce_address_out::MAC_47_32.set(out, u16::from_be_bytes([mac[0], mac[1]]) as u32);
        roce_address_out::MAC_31_0.set(out, u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]]));
        let mapped = gid[..10] == [0; 10] && gid[10..12] == [0xff; 2];
        roce_address_out::L3_TYPE.set(out, !mapped as u32);
        roce_address_out::ROCE_VERSION.set(out, 2);
        Ok(())
    }

    pub(super) fn query_hca_vport(&mut self, out: &mut [u8]) -> Result<(), Refusal> {
        let context = &mut out[HCA_VPORT_CONTEXT_OFFSET..];
        // 4 is active, 1 down, as in PortInfo.
        hca_vport::PORT_STATE.set(context, if self.has_link() { 4 } else { 1 });
        hca_vport::LID.set(context, self.config.lid as u32);
        Ok(())
    }

    /// The GID table of an InfiniBand port: one entry.
    pub(super) fn query_hca_vport_gid(&mut self, mailbox: &[u8], out: &mut [u8]) -> Result<(), Refusal> {
        if !matches!(hca_vport_table_in::INDEX.get(mailbox), 0 | ALL_ENTRIES) {
            return Err(Refusal::BadGidIndex);
        }
        hca_vport_gid_out::GIDS_NUM.set(out, 1);
        out[HCA_VPORT_TABLE_OFFSET..HCA_VPORT_TABLE_OFFSET + 16].copy_from_slice(&self.config.gid);
        Ok(())
    }

    /// The P_Key table of an InfiniBand port, or one entry of it.
    pub(super) fn query_hca_vport_pkey(&mut self, mailbox: &[u8], out: &mut [u8]) -> Result<(), Refusal> {
        let pkeys = &self.config.pkeys;
        let asked = match hca_vport_table_in::INDEX.get(mailbox) {
            ALL_ENTRIES => &pkeys[..],
            index => std::slice::from_ref(pkeys.get(index as usize).ok_or(Refusal::BadPkeyIndex)?),
        };
        // Entries of four bytes, the key in the lower two.
        for (entry, pkey) in out[HCA_VPORT_TABLE_OFFSET..].chunks_exact_mut(4).zip(asked) {
            entry[2..].copy_from_slice(&pkey.to_be_bytes());
        }
        Ok(())
    }
}
