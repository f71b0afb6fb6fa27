//! The device as a whole: user contexts, capabilities, the port.

use crate::abi::Plain;
use crate::abi::efa::{
    CAP_CQ_NOTIFICATIONS, CAP_CQ_WITH_SGID, CAP_RDMA_READ, CAP_RNR_RETRY, CONTEXT_DRIVER_DATA,
    ContextResponse, DeviceResponse,
};
use crate::abi::ids::{UHW_OUT, query_port};
use crate::abi::uverbs::{QueryDevice, QueryDeviceEx, QueryPort};
use crate::ioctl::{Call, Context};
use crate::verbs::device::{mtu_code, query_context};
use crate::verbs::invocation::Core;
use rustix::io::Errno;
use shunt_soft_machine::devices::Nic;
use shunt_soft_nic::soft_srd::device::{CQS, HANDLES, MESSAGE_MAX, PDS, QPS, READ_MAX};
use shunt_soft_nic::soft_srd::format::{INLINE_BYTES, SEND_PIECES, WQE_BYTES};

/// WQEs of a send ring at most.
pub const SENDS: u32 = 4096;
/// WQEs of a send ring at least.
const LEAST_SENDS: u16 = 32;
/// WQEs for one doorbell at most.
const BATCH: u16 = 64;
/// Receives of a ring at most.
pub const RECEIVES: u32 = 8192;
/// Pieces of a receive at most.
pub const RECEIVE_PIECES: u16 = 3;
/// Entries of a completion queue at most.
pub const CQES: u32 = 1 << 15;
/// What version of hardware it is.
const HARDWARE: u32 = 0xefa1;
/// The port.
const PORT: u8 = 1;

/// GET_CONTEXT.
pub fn get_context(context: &Context, call: &mut Call) -> Result<(), Errno> {
    if !context.make() {
        return Err(Errno::INVAL);
    }
    let response = ContextResponse {
        driver_data: CONTEXT_DRIVER_DATA,
        sub_cqs: 1,
        inline_bytes: INLINE_BYTES as u16,
        max_llq: SENDS * WQE_BYTES as u32,
        max_tx_batch: BATCH,
        min_sq_wr: LEAST_SENDS,
        ..ContextResponse::default()
    };
    call.output(UHW_OUT, response.bytes())?;
    query_context(context, call)
}

fn device(nic: &Nic) -> QueryDevice {
    let identity = nic.kind().identity();
    let guid = nic.guid().to_be();
    QueryDevice {
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: u64::MAX >> 16,
        page_size_cap: 0xffff_ffff_ffff_f000,
        vendor_id: identity.vendor,
        vendor_part_id: identity.part,
        hw_ver: HARDWARE,
        max_qp: QPS.into(),
        max_qp_wr: SENDS.min(RECEIVES),
        max_sge: (SEND_PIECES as u32).min(RECEIVE_PIECES.into()),
        max_sge_rd: 1,
        max_cq: CQS.into(),
        max_cqe: CQES,
        max_mr: 1 << 20,
        max_pd: PDS.into(),
        max_ah: HANDLES.into(),
        max_pkeys: 1,
        phys_port_cnt: 1,
        ..QueryDevice::default()
    }
}

/// QUERY_DEVICE, the command.
pub fn query_device(context: &Context, core: &mut Core) -> Result<(), Errno> {
    core.reply(&device(context.nic()))
}

/// QUERY_DEVICE, the extended command.
pub fn query_device_ex(context: &Context, core: &mut Core) -> Result<(), Errno> {
    let room = core.room();
    if room < size_of::<QueryDevice>() + 8 {
        return Err(Errno::NOSPC);
    }
    core.reply_grown(&QueryDeviceEx {
        base: device(context.nic()),
        response_length: room.min(size_of::<QueryDeviceEx>()) as u32,
        ..QueryDeviceEx::default()
    })?;
    let driver = DeviceResponse {
        comp_mask: 0,
        max_sq_wr: SENDS,
        max_rq_wr: RECEIVES,
        max_sq_sge: SEND_PIECES as u16,
        max_rq_sge: RECEIVE_PIECES,
        max_rdma: READ_MAX,
        caps: CAP_RDMA_READ | CAP_RNR_RETRY | CAP_CQ_NOTIFICATIONS | CAP_CQ_WITH_SGID,
    };
    core.driver_reply(driver.bytes())
}

/// QUERY_PORT.
pub fn query_port(context: &Context, call: &mut Call) -> Result<(), Errno> {
    if call.input::<u8>(query_port::PORT)? != PORT {
        return Err(Errno::INVAL);
    }
    let view = context.nic().port();
    let port = QueryPort {
        max_msg_sz: MESSAGE_MAX,
        gid_tbl_len: 1,
        pkey_tbl_len: 1,
        lid: view.lid,
        state: if view.up { 4 } else { 1 },
        max_mtu: 5,
        active_mtu: mtu_code(view.mtu),
        lmc: 1,
        max_vl_num: 1,
        active_width: view.width,
        active_speed: view.speed,
        phys_state: if view.up { 5 } else { 3 },
        // Neither InfiniBand nor Ethernet.
        link_layer: 0,
        flags: 1,
        ..QueryPort::default()
    };
    call.output(query_port::RESPONSE, port.bytes())
}
