//! Driver data of the EFA provider (`rdma/efa-abi.h`).

use super::structure;

/// Context: QUERY_DEVICE and CREATE_AH take driver data.
pub const CONTEXT_DRIVER_DATA: u32 = 3;
/// CQ: the program has a channel for events.
pub const CQ_WITH_CHANNEL: u8 = 1;
/// CQ: entries have room for the sender's GID.
pub const CQ_WITH_SGID: u8 = 2;
/// CQ: there is a doorbell.
pub const CQ_DOORBELL: u32 = 1;
/// QP: scalable reliable datagrams, the only type of a driver's own.
pub const QP_SRD: u32 = 0;
/// Device: remote memory can be read.
pub const CAP_RDMA_READ: u32 = 1;
/// Device: how often a receiver that is not ready is tried can be set.
pub const CAP_RNR_RETRY: u32 = 1 << 1;
/// Device: completion queues tell of completions.
pub const CAP_CQ_NOTIFICATIONS: u32 = 1 << 2;
/// Device: completions can tell the sender's GID.
pub const CAP_CQ_WITH_SGID: u32 = 1 << 3;

structure! {
    /// `efa_ibv_alloc_ucontext_resp`.
    ContextResponse: 24 {
        /// Zero.
        comp_mask: u32 = 0,
        /// Commands with driver data.
        driver_data: u32 = 4,
        /// Rings of a completion queue.
        sub_cqs: u16 = 8,
        /// Bytes that fit into a send WQE.
        inline_bytes: u16 = 10,
        /// Bytes of a send ring at most.
        max_llq: u32 = 12,
        /// WQEs for one doorbell at most.
        max_tx_batch: u16 = 16,
        /// WQEs of a send ring at least.
        min_sq_wr: u16 = 18,
        /// Zero.
        reserved: [u8; 4] = 20,
    }

    /// `efa_ibv_alloc_pd_resp`.
    PdResponse: 8 {
        /// Zero.
        comp_mask: u32 = 0,
        /// Its number.
        pdn: u16 = 4,
        /// Zero.
        reserved: [u8; 2] = 6,
    }

    /// `efa_ibv_create_cq`.
    CreateCq: 16 {
        /// Zero.
        comp_mask: u32 = 0,
        /// Bytes of an entry.
        entry_bytes: u32 = 4,
        /// Rings.
        sub_cqs: u16 = 8,
        /// Channel, sender's GID.
        flags: u8 = 10,
        /// Zero.
        reserved: [u8; 5] = 11,
    }

    /// `efa_ibv_create_cq_resp`.
    CreateCqResponse: 40 {
        /// There is a doorbell.
        comp_mask: u32 = 0,
        /// Zero.
        reserved: [u8; 4] = 4,
        /// Where the program maps the ring.
        ring: u64 = 8,
        /// Bytes it maps.
        ring_bytes: u64 = 16,
        /// Its number.
        number: u16 = 24,
        /// Zero.
        reserved_2: [u8; 2] = 26,
        /// Where the doorbell lies in its page.
        doorbell_offset: u32 = 28,
        /// Where the program maps that page.
        doorbell: u64 = 32,
    }

    /// `efa_ibv_create_qp`.
    CreateQp: 16 {
        /// Zero.
        comp_mask: u32 = 0,
        /// Bytes of the receive ring.
        receive_bytes: u32 = 4,
        /// Bytes of the send ring.
        send_bytes: u32 = 8,
        /// Type of a driver's own.
        driver_type: u32 = 12,
    }

    /// `efa_ibv_create_qp_resp`.
    CreateQpResponse: 64 {
        /// Zero.
        comp_mask: u32 = 0,
        /// Where the receive doorbell lies in its page.
        receive_doorbell_offset: u32 = 4,
        /// Where the send doorbell lies in its page.
        send_doorbell_offset: u32 = 8,
        /// Where the send ring lies in its page.
        send_offset: u32 = 12,
        /// Where the program maps the receive ring.
        receive: u64 = 16,
        /// Bytes it maps.
        receive_bytes: u64 = 24,
        /// Where it maps the receive doorbell's page.
        receive_doorbell: u64 = 32,
        /// Where it maps the send doorbell's page.
        send_doorbell: u64 = 40,
        /// Where it maps the send ring.
        send: u64 = 48,
        /// Ring of the completion queue for sends.
        send_sub_cq: u16 = 56,
        /// Ring of the completion queue for receives.
        receive_sub_cq: u16 = 58,
        /// Zero.
        reserved: [u8; 4] = 60,
    }

    /// `efa_ibv_create_ah_resp`.
    CreateAhResponse: 8 {
        /// Zero.
        comp_mask: u32 = 0,
        /// Its number.
        number: u16 = 4,
        /// Zero.
        reserved: [u8; 2] = 6,
    }

    /// `efa_ibv_ex_query_device_resp`.
    DeviceResponse: 24 {
        /// Zero.
        comp_mask: u32 = 0,
        /// WQEs of a send ring.
        max_sq_wr: u32 = 4,
        /// Receives of a receive ring.
        max_rq_wr: u32 = 8,
        /// Pieces of a send.
        max_sq_sge: u16 = 12,
        /// Pieces of a receive.
        max_rq_sge: u16 = 14,
        /// Bytes of a read.
        max_rdma: u32 = 16,
        /// What it can do.
        caps: u32 = 20,
    }
}
