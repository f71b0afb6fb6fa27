//! The device as a whole: user contexts, capabilities, port and GID queries.

use super::firmware::{execute, short};
use super::invocation::Core;
use crate::abi::ids::{UHW_IN, UHW_OUT, get_context, gid_entry, gid_table, query_port};
use crate::abi::mlx5::{CONTEXT_DUMP_FILL_KEY, CONTEXT_ECE, ContextRequest, ContextResponse};
use crate::abi::uverbs::{GidEntry, QueryDevice, QueryDeviceEx, QueryPort};
use crate::abi::{Plain, ids};
use crate::ioctl::{Call, Context};
use rustix::io::Errno;
use shunt_layout::bits::Field;
use shunt_layout::mlx5::prm::caps::{self, CAPABILITY_OFFSET, general};
use shunt_layout::mlx5::prm::cmd::{Opcode, input};
use shunt_layout::mlx5::prm::pd::special;
use shunt_layout::mlx5::prm::rmp::NEXT_SEGMENT_BYTES;
use shunt_soft_machine::devices::{self, Nic};
use shunt_soft_machine::log::Level;
use shunt_soft_machine::sysfs::FIRMWARE;

/// Mellanox as IEEE numbers it, which is what verbs tell of a device; its number at the PCI bus is another one.
const VENDOR: u32 = 0x02c9;
/// ConnectX-7.
const PART: u32 = 4129;
/// Of a send request, the bytes that its pieces are told to fit in.
const SEND_BYTES: u32 = 512;
/// Completion vectors: there is one event queue.
const COMP_VECTORS: u32 = 1;
/// The port.
const PORT: u32 = 1;
/// Doorbell registers a program may allocate.
const DYNAMIC_BFREGS: u32 = 512;
/// The library supports UARs that are allocated one by one.
const LIB_DYNAMIC_UAR: u64 = 2;
/// Port events, a system image GUID, RNR NAKs.
pub const DEVICE_CAPS: u32 = 1 << 10 | 1 << 11 | 1 << 12;
/// CM, IP based GIDs.
const PORT_CAPS: u32 = 1 << 16 | 1 << 26;

/// Capabilities as firmware tells them.
pub struct Caps(Vec<u8>);

impl Caps {
    /// Asks.
    pub fn query(nic: &Nic) -> Result<Self, Errno> {
        let mut mailbox = short(Opcode::QueryHcaCap, 0);
        input::OP_MOD.set(&mut mailbox, caps::op_mod_current(caps::GENERAL));
        Ok(Self(execute::<{ caps::OUT_BYTES }>(nic, &mailbox)?[CAPABILITY_OFFSET..].to_vec()))
    }

    /// One of them.
    pub fn get(&self, field: Field) -> u32 {
        field.get(&self.0)
    }

    fn power(&self, field: Field) -> u32 {
        1 << self.get(field).min(31)
    }
}

/// GET_CONTEXT.
pub fn get_context(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let request: ContextRequest = call.input_grown(UHW_IN)?;
    if request.lib_caps & LIB_DYNAMIC_UAR == 0 {
        shunt_soft_machine::log!(
            Level::Error,
            "this libmlx5 is too old: it does not allocate doorbell pages one by one"
        );
        return Err(Errno::OPNOTSUPP);
    }
    if !context.make() {
        return Err(Errno::INVAL);
    }
    let nic = context.nic();
    let caps = Caps::query(nic)?;
    let special = execute::<{ special::BYTES }>(nic, &short(Opcode::QuerySpecialContexts, 0))?;
    let response = ContextResponse {
        qp_tab_size: caps.power(general::LOG_MAX_QP),
        bf_reg_size: caps.power(general::LOG_BF_REG_SIZE),
        cache_line_size: 64,
        max_sq_desc_sz: caps.get(general::MAX_WQE_SZ_SQ) as u16,
        max_rq_desc_sz: caps.get(general::MAX_WQE_SZ_RQ) as u16,
        max_send_wqebb: caps.power(general::LOG_MAX_QP_SZ),
        max_recv_wr: caps.power(general::LOG_MAX_QP_SZ),
        max_srq_recv_wr: caps.power(general::LOG_MAX_SRQ_SZ),
        num_ports: 1,
        comp_mask: CONTEXT_DUMP_FILL_KEY | if caps.get(general::ECE_SUPPORT) == 1 { CONTEXT_ECE } else { 0 },
        response_length: call.len(UHW_OUT).min(size_of::<ContextResponse>()) as u32,
        cqe_version: request.max_cqe_version.min(caps.get(general::CQE_VERSION) as u8),
        cmds_supp_uhw: 3,
        eth_min_inline: 1, // none
        log_uar_size: 12,
        num_uars_per_page: 1,
        num_dyn_bfregs: DYNAMIC_BFREGS,
        dump_fill_mkey: special::DUMP_FILL_MKEY.get(&special),
        ..ContextResponse::default()
    };
    call.output(UHW_OUT, response.bytes())?;
    core_support(call)
}

/// QUERY_CONTEXT.
pub fn query_context(_: &Context, call: &mut Call) -> Result<(), Errno> {
    core_support(call)
}

fn core_support(call: &mut Call) -> Result<(), Errno> {
    call.output_if(get_context::COMP_VECTORS, &COMP_VECTORS)?;
    call.output_if(get_context::CORE_SUPPORT, &get_context::OPTIONAL_MR_ACCESS)
}

/// What a completion vector must be below.
pub fn comp_vectors() -> u32 {
    COMP_VECTORS
}

fn device(nic: &Nic) -> Result<QueryDevice, Errno> {
    let caps = Caps::query(nic)?;
    let pieces = |bytes: u32, before: u32| (bytes - before) / 16;
    // The kernel leaves room for the addresses of a datagram.
    let send_bytes = caps.get(general::MAX_WQE_SZ_SQ).min(SEND_BYTES);
    let receive_bytes = caps.get(general::MAX_WQE_SZ_RQ);
    let reads = caps.power(general::LOG_MAX_RA_RES_QP);
    let (max_qp, guid) = (caps.power(general::LOG_MAX_QP), nic.guid().to_be());
    Ok(QueryDevice {
        fw_ver: (FIRMWARE.0 as u64) << 32 | (FIRMWARE.1 as u64) << 16 | FIRMWARE.2 as u64,
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: u64::MAX,
        page_size_cap: 0xffff_ffff_ffff_f000,
        vendor_id: VENDOR,
        vendor_part_id: PART,
        max_qp,
        max_qp_wr: caps.power(general::LOG_MAX_QP_SZ),
        device_cap_flags: DEVICE_CAPS,
        // The control and the address segment come before the pieces.
        max_sge: pieces(send_bytes, 32).min(pieces(receive_bytes, 0)),
        max_sge_rd: pieces(send_bytes, 32),
        max_cq: caps.power(general::LOG_MAX_CQ),
        max_cqe: caps.power(general::LOG_MAX_CQ_SZ) - 1,
        max_mr: 1 << 24,
        max_pd: 1 << 23,
        max_qp_rd_atom: reads,
        max_res_rd_atom: reads * max_qp,
        max_qp_init_rd_atom: caps.power(general::LOG_MAX_RA_REQ_QP),
        atomic_cap: caps.get(general::ATOMIC),
        max_ah: i32::MAX as u32,
        srq: [
            caps.power(general::LOG_MAX_SRQ),
            caps.power(general::LOG_MAX_SRQ_SZ) - 1,
            pieces(receive_bytes, NEXT_SEGMENT_BYTES as u32),
        ],
        max_pkeys: 1,
        local_ca_ack_delay: 16,
        phys_port_cnt: 1,
        ..QueryDevice::default()
    })
}

/// QUERY_DEVICE, the command. With no room for an answer it is the library's question whether commands come this way.
pub fn query_device(context: &Context, core: &mut Core) -> Result<(), Errno> {
    core.reply(&device(context.nic())?)
}

/// QUERY_DEVICE, the extended command.
pub fn query_device_ex(context: &Context, core: &mut Core) -> Result<(), Errno> {
    let room = core.room();
    if room < size_of::<QueryDevice>() + 8 {
        return Err(Errno::NOSPC);
    }
    let base = device(context.nic())?;
    core.reply_grown(&QueryDeviceEx {
        base,
        response_length: room.min(size_of::<QueryDeviceEx>()) as u32,
        // Timestamps are nanoseconds.
        timestamp_mask: u64::MAX,
        core_clock: 1_000_000,
        device_cap_flags_ex: base.device_cap_flags as u64,
        ..QueryDeviceEx::default()
    })?;
    // Of what mlx5 cards do beyond that, this one does nothing.
    let driver = core.driver_room();
    if driver >= 8 {
        let mut answer = vec![0; driver];
        answer[4..8].copy_from_slice(&(driver as u32).to_ne_bytes());
        core.driver_reply(&answer)?;
    }
    Ok(())
}

/// MTU code of a length.
pub fn mtu_code(bytes: u32) -> u8 {
    (bytes.max(256).ilog2() - 7).min(5) as u8
}

/// The port as verbs describe it.
fn port(nic: &Nic) -> Result<QueryPort, Errno> {
    let (view, caps) = (nic.port(), Caps::query(nic)?);
    Ok(QueryPort {
        port_cap_flags: PORT_CAPS,
        max_msg_sz: caps.power(general::LOG_MAX_MSG),
        gid_tbl_len: gids(nic),
        pkey_tbl_len: 1,
        lid: view.lid,
        state: if view.up { 4 } else { 1 },
        max_mtu: 5,
        active_mtu: mtu_code(view.mtu),
        active_width: view.width,
        active_speed: view.speed,
        phys_state: if view.up { 5 } else { 3 },
        link_layer: 2,
        flags: 1,
        ..QueryPort::default()
    })
}

/// QUERY_PORT.
pub fn query_port(context: &Context, call: &mut Call) -> Result<(), Errno> {
    if call.input::<u8>(query_port::PORT)? as u32 != PORT {
        return Err(Errno::INVAL);
    }
    let port = port(context.nic())?;
    call.output(query_port::RESPONSE, port.bytes())
}

/// Entries of the GID table.
fn gids(nic: &Nic) -> u32 {
    (0..).take_while(|index| nic.gid(*index).is_some()).count() as u32
}

fn entry(entry: devices::GidEntry) -> GidEntry {
    GidEntry {
        gid: entry.gid,
        index: entry.index,
        port: PORT,
        kind: entry.kind as u32,
        interface: entry.interface,
    }
}

/// QUERY_GID_ENTRY.
pub fn query_gid_entry(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let (port, index) = (call.input::<u32>(gid_entry::PORT)?, call.input::<u32>(gid_entry::INDEX)?);
    if port != PORT || call.input_or(gid_entry::FLAGS, 0u32)? != 0 {
        return Err(Errno::INVAL);
    }
    let found = context.nic().gid(index).ok_or(Errno::NODATA)?;
    call.output(gid_entry::RESPONSE, entry(found).bytes())
}

/// QUERY_GID_TABLE.
pub fn query_gid_table(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let bytes = call.input::<u64>(gid_table::ENTRY_BYTES)? as usize;
    if call.input_or(gid_table::FLAGS, 0u32)? != 0 || !(1..=4096).contains(&bytes) {
        return Err(Errno::INVAL);
    }
    let most = call.len(gid_table::ENTRIES) / bytes;
    let found: Vec<_> = (0..).map_while(|index| context.nic().gid(index)).collect();
    // All of the table or nothing, as the kernel has it.
    if most == 0 || found.len() > most {
        return Err(Errno::INVAL);
    }
    let mut table = Vec::with_capacity(found.len() * bytes);
    for one in &found {
        let mut raw = entry(*one).bytes().to_vec();
        raw.resize(bytes, 0);
        table.extend(raw);
    }
    call.output(gid_table::ENTRIES, &table)?;
    call.output(gid_table::COUNT, (found.len() as u64).bytes())
}

/// Attributes of GET_CONTEXT.
pub const GET_CONTEXT: &[u16] = &[get_context::COMP_VECTORS, get_context::CORE_SUPPORT, UHW_IN, ids::UHW_OUT];
