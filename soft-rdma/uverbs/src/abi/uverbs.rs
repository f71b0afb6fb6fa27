//! Structures of the common uverbs ABI.

use super::structure;

structure! {
    /// `ib_uverbs_ioctl_hdr`.
    Header: 24 {
        /// Bytes of header and attributes.
        length: u16 = 0,
        /// Object type.
        object: u16 = 2,
        /// Method.
        method: u16 = 4,
        /// Number of attributes that follow.
        attributes: u16 = 6,
        /// Zero.
        reserved_1: u64 = 8,
        /// Whose driver namespace.
        driver: u32 = 16,
        /// Zero.
        reserved_2: u32 = 20,
    }

    /// `ib_uverbs_attr`.
    Attribute: 16 {
        /// Number in its method.
        id: u16 = 0,
        /// Bytes of data.
        length: u16 = 2,
        /// Flags.
        flags: u16 = 4,
        /// Enumeration member, or zero.
        element: u16 = 6,
        /// Data of up to eight bytes, its address, a handle or a descriptor.
        data: u64 = 8,
    }

    /// `ib_uverbs_query_device_resp`.
    QueryDevice: 176 {
        /// Firmware version: major, minor, sub-minor in 16 bits each.
        fw_ver: u64 = 0,
        /// Big-endian.
        node_guid: u64 = 8,
        /// Big-endian.
        sys_image_guid: u64 = 16,
        /// Longest region.
        max_mr_size: u64 = 24,
        /// Page sizes, a bit each.
        page_size_cap: u64 = 32,
        /// PCI vendor.
        vendor_id: u32 = 40,
        /// PCI device.
        vendor_part_id: u32 = 44,
        /// Hardware version.
        hw_ver: u32 = 48,
        /// Queue pairs.
        max_qp: u32 = 52,
        /// Work requests of a queue.
        max_qp_wr: u32 = 56,
        /// Capability bits.
        device_cap_flags: u32 = 60,
        /// Pieces of a work request.
        max_sge: u32 = 64,
        /// Pieces of a READ.
        max_sge_rd: u32 = 68,
        /// Completion queues.
        max_cq: u32 = 72,
        /// Entries of one.
        max_cqe: u32 = 76,
        /// Regions.
        max_mr: u32 = 80,
        /// Protection domains.
        max_pd: u32 = 84,
        /// READs in, a queue pair.
        max_qp_rd_atom: u32 = 88,
        /// Not there.
        max_ee_rd_atom: u32 = 92,
        /// READs in, all of them.
        max_res_rd_atom: u32 = 96,
        /// READs out, a queue pair.
        max_qp_init_rd_atom: u32 = 100,
        /// Not there.
        max_ee_init_rd_atom: u32 = 104,
        /// 1: atomic among the queue pairs of this NIC.
        atomic_cap: u32 = 108,
        /// Not there.
        unused: [u32; 5] = 112,
        /// Multicast groups and members.
        multicast: [u32; 3] = 132,
        /// Address handles.
        max_ah: u32 = 144,
        /// Not there.
        fmr: [u32; 2] = 148,
        /// Shared receive queues: number, work requests, pieces.
        srq: [u32; 3] = 156,
        /// Partition keys.
        max_pkeys: u16 = 168,
        /// Delay of an acknowledgement.
        local_ca_ack_delay: u8 = 170,
        /// Ports.
        phys_port_cnt: u8 = 171,
        /// Zero.
        reserved: [u8; 4] = 172,
    }

    /// `ib_uverbs_ex_query_device_resp`.
    QueryDeviceEx: 304 {
        /// The old part.
        base: QueryDevice = 0,
        /// Zero.
        comp_mask: u32 = 176,
        /// Bytes that mean something.
        response_length: u32 = 180,
        /// On-demand paging: none.
        odp: [u64; 3] = 184,
        /// Bits of a timestamp.
        timestamp_mask: u64 = 208,
        /// Clock of timestamps, kHz.
        core_clock: u64 = 216,
        /// Capability bits, all of them.
        device_cap_flags_ex: u64 = 224,
        /// Receive side scaling: none.
        rss: [u32; 4] = 232,
        /// Raw receive queues: none.
        max_wq_type_rq: u32 = 248,
        /// Raw packets: none.
        raw_packet_caps: u32 = 252,
        /// Tag matching: none.
        tag_matching: [u32; 6] = 256,
        /// Moderation: none.
        cq_moderation: [u32; 2] = 280,
        /// Device memory: none.
        max_dm_size: u64 = 288,
        /// On-demand paging: none.
        xrc_odp: [u32; 2] = 296,
    }

    /// `ib_uverbs_query_port_resp`, and `_ex` with what follows 40 bytes.
    QueryPort: 48 {
        /// Capability bits.
        port_cap_flags: u32 = 0,
        /// Longest message.
        max_msg_sz: u32 = 4,
        /// Counters of violations.
        violations: [u32; 2] = 8,
        /// Entries of the GID table.
        gid_tbl_len: u32 = 16,
        /// Entries of the partition key table.
        pkey_tbl_len: u16 = 20,
        /// LID.
        lid: u16 = 22,
        /// LID of the subnet manager.
        sm_lid: u16 = 24,
        /// 4 active, 1 down.
        state: u8 = 26,
        /// MTU code.
        max_mtu: u8 = 27,
        /// MTU code.
        active_mtu: u8 = 28,
        /// LID mask.
        lmc: u8 = 29,
        /// Virtual lanes.
        max_vl_num: u8 = 30,
        /// Subnet manager, subnet, initialisation: nothing.
        subnet: [u8; 3] = 31,
        /// Width code.
        active_width: u8 = 34,
        /// Speed code.
        active_speed: u8 = 35,
        /// 5 link up, 3 disabled.
        phys_state: u8 = 36,
        /// 2 Ethernet.
        link_layer: u8 = 37,
        /// 1: a GRH is needed.
        flags: u8 = 38,
        /// Zero.
        reserved: u8 = 39,
        /// More capability bits.
        port_cap_flags2: u16 = 40,
        /// Zero.
        reserved_ex: [u8; 6] = 42,
    }

    /// `ib_uverbs_gid_entry`.
    GidEntry: 32 {
        /// The GID.
        gid: [u8; 16] = 0,
        /// Its place.
        index: u32 = 16,
        /// Its port.
        port: u32 = 20,
        /// 2: RoCE v2.
        kind: u32 = 24,
        /// Network interface.
        interface: u32 = 28,
    }

    /// `ib_uverbs_reg_mr`.
    RegMr: 40 {
        /// Not used with ioctl.
        response: u64 = 0,
        /// First address.
        start: u64 = 8,
        /// Length.
        length: u64 = 16,
        /// Address that work requests name it by.
        iova: u64 = 24,
        /// Protection domain.
        pd: u32 = 32,
        /// Access bits.
        access: u32 = 36,
    }

    /// `ib_uverbs_reg_mr_resp`.
    RegMrResponse: 12 {
        /// Handle.
        handle: u32 = 0,
        /// Local key.
        lkey: u32 = 4,
        /// Remote key.
        rkey: u32 = 8,
    }

    /// `ib_uverbs_rereg_mr`.
    ReregMr: 48 {
        /// Not used with ioctl.
        response: u64 = 0,
        /// Region.
        handle: u32 = 8,
        /// What changes: 1 translation, 2 protection domain, 4 access.
        flags: u32 = 12,
        /// First address.
        start: u64 = 16,
        /// Length.
        length: u64 = 24,
        /// Address that work requests name it by.
        iova: u64 = 32,
        /// Protection domain.
        pd: u32 = 40,
        /// Access bits.
        access: u32 = 44,
    }

    /// `ib_uverbs_qp_cap`.
    QpCap: 20 {
        /// Send queue depth.
        max_send_wr: u32 = 0,
        /// Receive queue depth.
        max_recv_wr: u32 = 4,
        /// Pieces of a send.
        max_send_sge: u32 = 8,
        /// Pieces of a receive.
        max_recv_sge: u32 = 12,
        /// Inline bytes.
        max_inline: u32 = 16,
    }

    /// `ib_uverbs_qp_dest`.
    Destination: 32 {
        /// GID.
        gid: [u8; 16] = 0,
        /// Flow label.
        flow_label: u32 = 16,
        /// LID.
        lid: u16 = 20,
        /// Zero.
        reserved: u16 = 22,
        /// Index of our GID.
        sgid_index: u8 = 24,
        /// Hop limit.
        hop_limit: u8 = 25,
        /// Traffic class.
        traffic_class: u8 = 26,
        /// Service level.
        sl: u8 = 27,
        /// Source path bits.
        src_path_bits: u8 = 28,
        /// Rate.
        static_rate: u8 = 29,
        /// The GID counts.
        is_global: u8 = 30,
        /// Our port.
        port: u8 = 31,
    }

    /// `ib_uverbs_modify_qp`.
    ModifyQp: 112 {
        /// The other end.
        dest: Destination = 0,
        /// Another way to it.
        alt_dest: Destination = 32,
        /// Queue pair.
        handle: u32 = 64,
        /// Which of these count.
        mask: u32 = 68,
        /// Key of datagrams.
        qkey: u32 = 72,
        /// First PSN to come.
        rq_psn: u32 = 76,
        /// First PSN to send.
        sq_psn: u32 = 80,
        /// The other end's number.
        dest_qpn: u32 = 84,
        /// Access bits.
        access: u32 = 88,
        /// Partition key.
        pkey_index: u16 = 92,
        /// The same on the other way.
        alt_pkey_index: u16 = 94,
        /// State it shall have.
        state: u8 = 96,
        /// State it is in, the program thinks.
        current_state: u8 = 97,
        /// MTU code.
        path_mtu: u8 = 98,
        /// Path migration.
        migration: u8 = 99,
        /// Event when drained.
        sqd_notify: u8 = 100,
        /// READs out.
        reads_out: u8 = 101,
        /// READs in.
        reads_in: u8 = 102,
        /// RNR timer code.
        min_rnr_timer: u8 = 103,
        /// Our port.
        port: u8 = 104,
        /// Acknowledgement timeout code.
        timeout: u8 = 105,
        /// Retries.
        retries: u8 = 106,
        /// RNR retries.
        rnr_retries: u8 = 107,
        /// Port of the other way.
        alt_port: u8 = 108,
        /// Timeout of the other way.
        alt_timeout: u8 = 109,
        /// Zero.
        reserved: [u8; 2] = 110,
    }

    /// `ib_uverbs_query_qp`.
    QueryQp: 16 {
        /// Not used with ioctl.
        response: u64 = 0,
        /// Queue pair.
        handle: u32 = 8,
        /// What is asked for; all is answered.
        mask: u32 = 12,
    }

    /// `ib_uverbs_query_qp_resp`.
    QueryQpResponse: 128 {
        /// The other end.
        dest: Destination = 0,
        /// Another way to it.
        alt_dest: Destination = 32,
        /// As created.
        cap: QpCap = 64,
        /// Key of datagrams.
        qkey: u32 = 84,
        /// Next PSN to come.
        rq_psn: u32 = 88,
        /// Next PSN to send.
        sq_psn: u32 = 92,
        /// The other end's number.
        dest_qpn: u32 = 96,
        /// Access bits.
        access: u32 = 100,
        /// Partition key.
        pkey_index: u16 = 104,
        /// The same on the other way.
        alt_pkey_index: u16 = 106,
        /// State.
        state: u8 = 108,
        /// State.
        current_state: u8 = 109,
        /// MTU code.
        path_mtu: u8 = 110,
        /// Path migration.
        migration: u8 = 111,
        /// 1 while draining.
        sq_draining: u8 = 112,
        /// READs out.
        reads_out: u8 = 113,
        /// READs in.
        reads_in: u8 = 114,
        /// RNR timer code.
        min_rnr_timer: u8 = 115,
        /// Our port.
        port: u8 = 116,
        /// Acknowledgement timeout code.
        timeout: u8 = 117,
        /// Retries.
        retries: u8 = 118,
        /// RNR retries.
        rnr_retries: u8 = 119,
        /// Port of the other way.
        alt_port: u8 = 120,
        /// Timeout of the other way.
        alt_timeout: u8 = 121,
        /// Every WQE is signalled.
        signal_all: u8 = 122,
        /// Zero.
        reserved: [u8; 5] = 123,
    }

    /// `ib_uverbs_create_ah`.
    CreateAh: 56 {
        /// Not used with ioctl.
        response: u64 = 0,
        /// Of the library.
        user_handle: u64 = 8,
        /// Protection domain.
        pd: u32 = 16,
        /// Zero.
        reserved: u32 = 20,
        /// GID of the other end.
        gid: [u8; 16] = 24,
        /// Flow label.
        flow_label: u32 = 40,
        /// Our GID, hop limit, traffic class, zero.
        route: [u8; 4] = 44,
        /// LID.
        lid: u16 = 48,
        /// Service level.
        sl: u8 = 50,
        /// Source path bits.
        src_path_bits: u8 = 51,
        /// Rate.
        static_rate: u8 = 52,
        /// The GID counts.
        is_global: u8 = 53,
        /// Our port.
        port: u8 = 54,
        /// Zero.
        reserved_2: u8 = 55,
    }

    /// `ib_uverbs_modify_srq`.
    ModifySrq: 16 {
        /// The queue.
        handle: u32 = 0,
        /// What to change.
        mask: u32 = 4,
        /// Receives.
        max_wr: u32 = 8,
        /// Limit.
        limit: u32 = 12,
    }

    /// `ib_uverbs_query_srq`.
    QuerySrq: 16 {
        /// Not used with ioctl.
        response: u64 = 0,
        /// The queue.
        handle: u32 = 8,
        /// Zero.
        reserved: u32 = 12,
    }

    /// `ib_uverbs_query_srq_resp`.
    QuerySrqResponse: 16 {
        /// Receives.
        max_wr: u32 = 0,
        /// Pieces of one.
        max_sge: u32 = 4,
        /// Limit.
        limit: u32 = 8,
        /// Zero.
        reserved: u32 = 12,
    }

    /// `ib_uverbs_comp_event_desc`.
    CompletionRecord: 8 {
        /// The CQ, as the library knows it.
        user_handle: u64 = 0,
    }

    /// `ib_uverbs_async_event_desc`.
    AsyncRecord: 16 {
        /// The object as the library knows it, or the port.
        element: u64 = 0,
        /// What happened.
        kind: u32 = 8,
        /// Zero.
        reserved: u32 = 12,
    }

    /// `ib_uverbs_destroy_cq_resp`.
    CqEvents: 8 {
        /// Completion events the program read.
        completion: u32 = 0,
        /// Asynchronous events it read.
        asynchronous: u32 = 4,
    }
}
