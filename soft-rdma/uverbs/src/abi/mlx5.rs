//! Driver data of the mlx5 provider.

use super::structure;

structure! {
    /// `mlx5_ib_alloc_ucontext_req_v2`.
    ContextRequest: 32 {
        /// Static doorbell registers asked for.
        total_bfregs: u32 = 0,
        /// Those of low latency.
        low_latency_bfregs: u32 = 4,
        /// 1: DEVX.
        flags: u32 = 8,
        /// Zero.
        comp_mask: u32 = 12,
        /// Newest CQE version it knows.
        max_cqe_version: u8 = 16,
        /// Zero.
        reserved: [u8; 7] = 17,
        /// 1: 4 KiB UARs, 2: dynamic UARs.
        lib_caps: u64 = 24,
    }

    /// `mlx5_ib_alloc_ucontext_resp`.
    ContextResponse: 72 {
        /// Entries of the library's table of queue pairs.
        qp_tab_size: u32 = 0,
        /// Bytes of a BlueFlame register, both halves.
        bf_reg_size: u32 = 4,
        /// Static doorbell registers: none.
        tot_bfregs: u32 = 8,
        /// Bytes of a cache line.
        cache_line_size: u32 = 12,
        /// Longest send WQE.
        max_sq_desc_sz: u16 = 16,
        /// Longest receive WQE.
        max_rq_desc_sz: u16 = 18,
        /// Blocks of a send queue.
        max_send_wqebb: u32 = 20,
        /// Receives of a queue.
        max_recv_wr: u32 = 24,
        /// Receives of a shared queue.
        max_srq_recv_wr: u32 = 28,
        /// Ports.
        num_ports: u16 = 32,
        /// None.
        flow_action_flags: u16 = 34,
        /// What follows that is optional.
        comp_mask: u32 = 36,
        /// Bytes that mean something.
        response_length: u32 = 40,
        /// Version of CQEs.
        cqe_version: u8 = 44,
        /// Commands with driver data out: 1 QUERY_DEVICE, 2 CREATE_AH.
        cmds_supp_uhw: u8 = 45,
        /// Ethernet inline mode, plus one.
        eth_min_inline: u8 = 46,
        /// Clock pages: none.
        clock_info_versions: u8 = 47,
        /// Clock page: none.
        hca_core_clock_offset: u64 = 48,
        /// UAR page, log2 of bytes.
        log_uar_size: u32 = 56,
        /// UARs of a system page.
        num_uars_per_page: u32 = 60,
        /// Dynamic doorbell registers there may be.
        num_dyn_bfregs: u32 = 64,
        /// Key that DUMP fills with.
        dump_fill_mkey: u32 = 68,
    }

    /// `mlx5_ib_create_cq`.
    CreateCq: 32 {
        /// Entries.
        buffer: u64 = 0,
        /// Doorbell record.
        record: u64 = 8,
        /// Bytes of an entry.
        cqe_bytes: u32 = 16,
        /// Compression.
        compressed: u8 = 20,
        /// Its format.
        compression: u8 = 21,
        /// Flags.
        flags: u16 = 22,
        /// Page it is armed through.
        uar_page: u16 = 24,
        /// Zero.
        reserved: [u16; 3] = 26,
    }

    /// `mlx5_ib_create_cq_resp`.
    CreateCqResponse: 8 {
        /// Number.
        cqn: u32 = 0,
        /// Zero.
        reserved: u32 = 4,
    }

    /// `mlx5_ib_create_qp`; older programs stop before the last fields.
    CreateQp: 56 {
        /// Receive queue, then send queue.
        buffer: u64 = 0,
        /// Doorbell record.
        record: u64 = 8,
        /// Blocks of the send queue.
        send_blocks: u32 = 16,
        /// Receives of the receive queue.
        receives: u32 = 20,
        /// Bytes of one, log2.
        receive_shift: u32 = 24,
        /// Flags.
        flags: u32 = 28,
        /// Number that CQEs carry.
        user_index: u32 = 32,
        /// Page of its doorbells.
        bfreg: u32 = 36,
        /// Send queue of raw packets; the key of a DC target.
        send_buffer: u64 = 40,
        /// Enhanced connection establishment.
        ece: u32 = 48,
        /// DCI streams, zero.
        streams: u32 = 52,
    }

    /// `mlx5_ib_create_qp_resp`; programs may have room for the first part only.
    CreateQpResponse: 40 {
        /// Doorbell register, if the kernel chose it.
        bfreg: u32 = 0,
        /// Enhanced connection establishment.
        ece: u32 = 4,
        /// Which of the following count.
        comp_mask: u32 = 8,
        /// Numbers of raw packet objects.
        raw: [u32; 4] = 12,
        /// Zero.
        reserved: u32 = 28,
        /// Zero.
        icm_address: u64 = 32,
    }

    /// `mlx5_ib_create_srq`.
    CreateSrq: 32 {
        /// The WQEs.
        buffer: u64 = 0,
        /// Doorbell record.
        record: u64 = 8,
        /// Flags.
        flags: u32 = 16,
        /// Zero.
        reserved: u32 = 20,
        /// Number that CQEs carry.
        user_index: u32 = 24,
        /// Zero.
        reserved1: u32 = 28,
    }

    /// `mlx5_ib_create_srq_resp`.
    CreateSrqResponse: 8 {
        /// Number.
        srqn: u32 = 0,
        /// Zero.
        reserved: u32 = 4,
    }

    /// `mlx5_ib_create_ah_resp`.
    CreateAhResponse: 16 {
        /// Bytes that mean something.
        response_length: u32 = 0,
        /// MAC of the other end.
        mac: [u8; 6] = 4,
        /// Zero.
        reserved: [u8; 6] = 10,
    }

    /// `mlx5_ib_modify_qp`.
    ModifyQpDriver: 16 {
        /// 1: placement out of order.
        comp_mask: u32 = 0,
        /// Bursts of raw packets.
        burst: [u32; 2] = 4,
        /// Enhanced connection establishment.
        ece: u32 = 12,
    }

    /// `mlx5_ib_modify_qp_resp`.
    ModifyQpResponse: 16 {
        /// Bytes that mean something.
        response_length: u32 = 0,
        /// DCT number.
        dctn: u32 = 4,
        /// Enhanced connection establishment.
        ece: u32 = 8,
        /// Zero.
        reserved: u32 = 12,
    }
}

/// `mlx5_ib_create_cq.flags`: the page it is armed through is named.
pub const CQ_UAR_PAGE_INDEX: u16 = 2;
/// `mlx5_ib_create_qp.flags`: small READ results and receives into the CQE, if the NIC wants to.
pub const QP_SCATTER_CQE: u32 = 1 << 1;
/// `mlx5_ib_create_qp.flags`: the same for queue pairs that are not RC.
pub const QP_ALLOW_SCATTER_CQE: u32 = 1 << 8;
/// `mlx5_ib_create_qp.flags`: a target of dynamically connected transport.
pub const QP_TYPE_DCT: u32 = 1 << 4;
/// `mlx5_ib_create_qp.flags`: an initiator of it.
pub const QP_TYPE_DCI: u32 = 1 << 5;
/// `mlx5_ib_create_qp.flags`: the doorbell page is named.
pub const QP_UAR_PAGE_INDEX: u32 = 1 << 10;
/// `mlx5_ib_alloc_ucontext_resp.comp_mask`: the key that DUMP fills with is there.
pub const CONTEXT_DUMP_FILL_KEY: u32 = 1 << 1;
/// `mlx5_ib_alloc_ucontext_resp.comp_mask`: making and changing queue pairs takes options of enhanced connection
/// establishment.
pub const CONTEXT_ECE: u32 = 1 << 2;
/// `bfreg` of a response when the program named the page.
pub const QP_NO_BFREG: u32 = 1 << 31;
