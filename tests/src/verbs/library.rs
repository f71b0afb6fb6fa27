//! What stands in for libibverbs: its functions, on soft NICs in virtual time.
//!
//! Commands of firmware take their time, and others run meanwhile. Three of them do not: registration of memory, whose
//! keys are made when a process starts, and what destroys queues, which are buried first and taken apart by
//! [`Yard::clear`]. Their callers in the library hold locks that no other coroutine may wait for.

use core::ffi::{CStr, c_int, c_uint, c_void};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ptr::null_mut;
use std::rc::Rc;
use std::sync::Arc;

use shunt_device::platform::host::World;
use shunt_host::connect::card::{HalfCard, RailCard};
use shunt_host::nic::execute;
use shunt_host::nic::qp::{QpTuning, rtr_in, rts_in};
use shunt_host::nic::uar::Uar;
use shunt_host::rail::Rail;
use shunt_mlx5_sys as sys;

use super::events::{Events, VerbsChannel};
use super::memory::{EINVAL, EIO, ENOMEM, Place};
use super::queue::{VerbsCq, VerbsQp};
use super::shared::VerbsSrq;

/// What was destroyed and still has to be taken apart, in this order.
enum Grave {
    Pair(Box<VerbsQp>),
    Queue(Box<VerbsCq>),
    Shared(Box<VerbsSrq>),
}

/// Queues of a process that were destroyed.
#[derive(Default)]
pub struct Yard(RefCell<VecDeque<Grave>>);

impl Yard {
    /// Takes the oldest apart, by commands of firmware. False if there is none.
    pub fn clear(&self) -> bool {
        let oldest = self.0.borrow_mut().pop_front();
        match oldest {
            Some(Grave::Pair(pair)) => drop(pair),
            Some(Grave::Queue(queue)) => drop(queue),
            Some(Grave::Shared(queue)) => drop(queue),
            None => return false,
        }
        true
    }
}

/// The ports of a job by their GIDs.
#[derive(Default)]
pub struct Net(pub RefCell<Vec<RailCard>>);

/// An open device as libibverbs has it. What the program sees lies in front.
#[repr(C)]
pub struct VerbsContext {
    raw: sys::ibv_context,
    /// The NIC.
    pub rail: Arc<Rail>,
    /// The clock.
    pub world: Arc<dyn World>,
    uar: Arc<Uar>,
    events: Arc<Events>,
    #[expect(clippy::vec_box, reason = "they are named by their addresses")]
    channels: RefCell<Vec<Box<VerbsChannel>>>,
    net: Rc<Net>,
    yard: Rc<Yard>,
    /// Key of the process's only region on this NIC.
    key: u32,
}

impl VerbsContext {
    /// Opens one.
    pub fn open(
        (rail, events): (&Arc<Rail>, &Arc<Events>),
        world: &Arc<dyn World>,
        net: &Rc<Net>,
        yard: &Rc<Yard>,
        key: u32,
    ) -> Box<Self> {
        let uar = Arc::new(Uar::map(&rail.devx).expect("a page of a soft NIC"));
        let (rail, world, net, yard) = (rail.clone(), world.clone(), net.clone(), yard.clone());
        let (raw, events, channels) = (sys::ibv_context::default(), events.clone(), RefCell::default());
        Box::new(Self { raw, rail, world, uar, events, channels, net, yard, key })
    }

    /// Its address.
    pub fn raw(&self) -> *mut sys::ibv_context {
        (&raw const *self).cast_mut().cast()
    }
}

/// Functions of a provider's table.
pub fn table() -> sys::ibv_context_ops {
    sys::ibv_context_ops {
        post_send: Some(post_send),
        post_recv: Some(post_recv),
        poll_cq: Some(poll_cq),
        req_notify_cq: Some(req_notify_cq),
        post_srq_recv: Some(post_srq_recv),
        ..Default::default()
    }
}

/// The functions of libibverbs that this library calls, by name.
pub fn lookup(name: &CStr) -> *mut c_void {
    match name.to_bytes() {
        b"ibv_query_gid" => query_gid as *mut c_void,
        b"ibv_alloc_pd" => alloc_pd as *mut c_void,
        b"ibv_dealloc_pd" => dealloc_pd as *mut c_void,
        b"ibv_reg_mr" => reg_mr as *mut c_void,
        b"ibv_reg_mr_iova" => reg_mr_iova as *mut c_void,
        b"ibv_dereg_mr" => dereg_mr as *mut c_void,
        b"ibv_create_cq" => create_cq as *mut c_void,
        b"ibv_destroy_cq" => destroy_cq as *mut c_void,
        b"ibv_create_comp_channel" => create_comp_channel as *mut c_void,
        b"ibv_get_cq_event" => get_cq_event as *mut c_void,
        b"ibv_ack_cq_events" => ack_cq_events as *mut c_void,
        b"ibv_create_srq" => create_srq as *mut c_void,
        b"ibv_destroy_srq" => destroy_srq as *mut c_void,
        b"ibv_create_qp" => create_qp as *mut c_void,
        b"ibv_qp_to_qp_ex" => qp_to_qp_ex as *mut c_void,
        b"ibv_modify_qp" => modify_qp as *mut c_void,
        b"ibv_destroy_qp" => destroy_qp as *mut c_void,
        b"mlx5dv_devx_qp_query" => devx_qp_query as *mut c_void,
        _ => null_mut(),
    }
}

unsafe fn of<'a>(context: *mut sys::ibv_context) -> &'a VerbsContext {
    // SAFETY: every context of a simulation is one of these, and is alive while it is used: the caller's.
    unsafe { &*context.cast() }
}

unsafe extern "C" fn query_gid(
    context: *mut sys::ibv_context,
    _port: u8,
    _index: c_int,
    to: *mut sys::ibv_gid,
) -> c_int {
    // SAFETY: open, by the caller, whose place for the answer it is.
    unsafe { (*to).raw = of(context).rail.address().gid };
    0
}

unsafe extern "C" fn alloc_pd(context: *mut sys::ibv_context) -> *mut sys::ibv_pd {
    Box::into_raw(Box::new(sys::ibv_pd { context, handle: 0 }))
}

unsafe extern "C" fn dealloc_pd(pd: *mut sys::ibv_pd) -> c_int {
    // SAFETY: made above, and given back once.
    drop(unsafe { Box::from_raw(pd) });
    0
}

unsafe extern "C" fn reg_mr(
    pd: *mut sys::ibv_pd,
    addr: *mut c_void,
    length: usize,
    _access: c_int,
) -> *mut sys::ibv_mr {
    // SAFETY: alive, by the caller.
    let (context, key) = unsafe { ((*pd).context, of((*pd).context).key) };
    Box::into_raw(Box::new(sys::ibv_mr { context, pd, addr, length, handle: 0, lkey: key, rkey: key }))
}

unsafe extern "C" fn reg_mr_iova(
    pd: *mut sys::ibv_pd,
    addr: *mut c_void,
    length: usize,
    _iova: u64,
    access: c_int,
) -> *mut sys::ibv_mr {
    // SAFETY: forwarded to the caller.
    unsafe { reg_mr(pd, addr, length, access) }
}

unsafe extern "C" fn dereg_mr(mr: *mut sys::ibv_mr) -> c_int {
    // SAFETY: made above, and given back once.
    drop(unsafe { Box::from_raw(mr) });
    0
}

impl VerbsContext {
    fn place(&self) -> Place<'_> {
        Place { rail: &self.rail, world: &self.world, uar: &self.uar, events: &self.events }
    }
}

unsafe extern "C" fn create_cq(
    context: *mut sys::ibv_context,
    entries: c_int,
    _of: *mut c_void,
    channel: *mut sys::ibv_comp_channel,
    _vector: c_int,
) -> *mut sys::ibv_cq {
    // SAFETY: open, by the caller; so is the channel, which stays for as long as its context.
    let made = unsafe {
        let place = of(context).place();
        VerbsCq::make(&place, entries.unsigned_abs(), channel.cast_const().cast())
    };
    let made = made.map_or(null_mut(), |made| Box::into_raw(made).cast::<sys::ibv_cq>());
    if !made.is_null() {
        // SAFETY: just made.
        unsafe { (*made).context = context };
    }
    made
}

unsafe extern "C" fn create_qp(pd: *mut sys::ibv_pd, attr: *mut sys::ibv_qp_init_attr) -> *mut sys::ibv_qp {
    // SAFETY: alive, by the caller, and so are the queues.
    let made = unsafe { VerbsQp::make(&of((*pd).context).place(), &*attr) };
    let made = made.map_or(null_mut(), |made| Box::into_raw(made).cast::<sys::ibv_qp>());
    if !made.is_null() {
        // SAFETY: just made, by a domain that is alive.
        unsafe { ((*made).context, (*made).pd) = ((*pd).context, pd) };
    }
    made
}

/// `create_qp_ex` of a context.
pub unsafe extern "C" fn create_qp_ex(
    _context: *mut sys::ibv_context,
    attr: *mut sys::ibv_qp_init_attr_ex,
) -> *mut sys::ibv_qp {
    // SAFETY: the caller's attributes.
    let ex = unsafe { &*attr };
    let (cap, qp_type, sq_sig_all) = (ex.cap, ex.qp_type, ex.sq_sig_all);
    let (send_cq, recv_cq, srq) = (ex.send_cq, ex.recv_cq, ex.srq);
    let mut plain =
        sys::ibv_qp_init_attr { send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, ..Default::default() };
    // SAFETY: forwarded to the caller.
    unsafe { create_qp(ex.pd, &raw mut plain) }
}

/// All have room for the functions. Nobody posts by those of a provider here: the library takes them over.
unsafe extern "C" fn qp_to_qp_ex(qp: *mut sys::ibv_qp) -> *mut sys::ibv_qp_ex {
    qp.cast()
}

unsafe extern "C" fn destroy_cq(cq: *mut sys::ibv_cq) -> c_int {
    // SAFETY: made above, and destroyed once; its context is open.
    unsafe {
        let yard = of((*cq).context).yard.clone();
        (*cq.cast::<VerbsCq>()).hush();
        yard.0.borrow_mut().push_back(Grave::Queue(Box::from_raw(cq.cast())));
    }
    0
}

unsafe extern "C" fn create_comp_channel(context: *mut sys::ibv_context) -> *mut sys::ibv_comp_channel {
    let Some(made) = VerbsChannel::make(context) else { return null_mut() };
    let at = (&raw const *made).cast_mut().cast();
    // SAFETY: open, by the caller.
    unsafe { of(context) }.channels.borrow_mut().push(made);
    at
}

/// The next event. None waits here: 0, or -1 if there is none.
pub unsafe extern "C" fn get_cq_event(
    channel: *mut sys::ibv_comp_channel,
    cq: *mut *mut sys::ibv_cq,
    _of: *mut *mut c_void,
) -> c_int {
    // SAFETY: alive, by the caller, whose place for the answer it is. Queues that are gone are told of no more.
    unsafe {
        let Some(told) = (*channel.cast::<VerbsChannel>()).take() else { return -1 };
        (*told.cast::<VerbsCq>()).event_taken();
        *cq = told;
    }
    0
}

/// Nobody waits for it.
unsafe extern "C" fn ack_cq_events(_cq: *mut sys::ibv_cq, _count: c_uint) {}

/// `req_notify_cq` of a context, for any completion.
pub unsafe extern "C" fn req_notify_cq(cq: *mut sys::ibv_cq, _solicited_only: c_int) -> c_int {
    // SAFETY: alive, by the caller.
    unsafe { (*cq.cast::<VerbsCq>()).arm() };
    0
}

unsafe extern "C" fn create_srq(
    pd: *mut sys::ibv_pd,
    attr: *mut sys::ibv_srq_init_attr,
) -> *mut sys::ibv_srq {
    // SAFETY: alive, by the caller, whose attributes these are.
    let made = unsafe { VerbsSrq::make(&of((*pd).context).place(), (*attr).attr.max_wr) };
    let made = made.map_or(null_mut(), |made| Box::into_raw(made).cast::<sys::ibv_srq>());
    if !made.is_null() {
        // SAFETY: just made, by a domain that is alive.
        unsafe { ((*made).context, (*made).pd) = ((*pd).context, pd) };
    }
    made
}

unsafe extern "C" fn destroy_srq(srq: *mut sys::ibv_srq) -> c_int {
    // SAFETY: made above, and destroyed once, behind its queue pairs; its context is open.
    unsafe {
        let yard = of((*srq).context).yard.clone();
        yard.0.borrow_mut().push_back(Grave::Shared(Box::from_raw(srq.cast())));
    }
    0
}

unsafe extern "C" fn destroy_qp(qp: *mut sys::ibv_qp) -> c_int {
    // SAFETY: made above, and destroyed once, before its queues; its context is open.
    unsafe {
        let yard = of((*qp).context).yard.clone();
        let pair: Box<VerbsQp> = Box::from_raw(qp.cast());
        pair.leave();
        yard.0.borrow_mut().push_back(Grave::Pair(pair));
    }
    0
}

unsafe extern "C" fn modify_qp(qp: *mut sys::ibv_qp, attr: *mut sys::ibv_qp_attr, _mask: c_int) -> c_int {
    // SAFETY: alive, by the caller, whose attributes these are.
    let (pair, attr, context) = unsafe { (&*qp.cast::<VerbsQp>(), &*attr, of((*qp).context)) };
    let done = match attr.qp_state {
        sys::IBV_QPS_INIT => pair.qp.init(attr.pkey_index).is_ok(),
        sys::IBV_QPS_ERR => pair.qp.to_error().is_ok(),
        sys::IBV_QPS_RTR => connect(pair, attr, &context.net),
        sys::IBV_QPS_RTS => {
            let mailbox = rts_in(pair.qp.number(), attr.sq_psn, &tuning(pair, attr, attr.max_rd_atomic));
            execute::<16>(&*pair.rail.devx, &mailbox).is_ok()
        }
        _ => return EINVAL,
    };
    if done {
        // SAFETY: as above; nobody reads it meanwhile.
        unsafe { (*qp).state = attr.qp_state };
    }
    if done { 0 } else { EIO }
}

fn tuning(pair: &VerbsQp, attr: &sys::ibv_qp_attr, atomics: u8) -> QpTuning {
    pair.rail.fit(&QpTuning {
        ack_timeout: attr.timeout.into(),
        retry: attr.retry_cnt.into(),
        rnr_retry: attr.rnr_retry.into(),
        min_rnr: attr.min_rnr_timer.into(),
        log_ra: u32::from(atomics.max(1)).ilog2(),
        unordered: false,
        force_order: false,
    })
}

/// INIT2RTR. The kernel finds the other end's port by its GID.
fn connect(pair: &VerbsQp, attr: &sys::ibv_qp_attr, net: &Net) -> bool {
    // SAFETY: both views of the union are plain bytes.
    let gid = unsafe { attr.ah_attr.grh.dgid.raw };
    let found = net.0.borrow().iter().find(|card| card.gid == gid).copied();
    let card = |qpn, rail| HalfCard { qpn, psn: 0, incarnation: 0, ece: 0, rail };
    let own = card(pair.qp.number(), pair.rail.card());
    let Some(remote) = found.map(|rail| card(attr.dest_qp_num, rail)) else { return false };
    let Ok(mut route) = pair.rail.route(&own, &remote) else { return false };
    route.mtu = attr.path_mtu;
    let tuning = tuning(pair, attr, attr.max_dest_rd_atomic);
    let mailbox = rtr_in(own.qpn, remote.qpn, attr.rq_psn, &route, &tuning);
    execute::<16>(&*pair.rail.devx, &mailbox).is_ok()
}

unsafe extern "C" fn devx_qp_query(
    qp: *mut sys::ibv_qp,
    input: *const c_void,
    input_bytes: usize,
    output: *mut c_void,
    output_bytes: usize,
) -> c_int {
    // SAFETY: alive, by the caller; both mailboxes are as long as the caller says.
    let (pair, input, output) = unsafe {
        let input = std::slice::from_raw_parts(input.cast::<u8>(), input_bytes);
        (&*qp.cast::<VerbsQp>(), input, std::slice::from_raw_parts_mut(output.cast::<u8>(), output_bytes))
    };
    if pair.rail.devx.command(input, output).is_ok() { 0 } else { EIO }
}

unsafe extern "C" fn post_send(
    qp: *mut sys::ibv_qp,
    mut wr: *mut sys::ibv_send_wr,
    bad: *mut *mut sys::ibv_send_wr,
) -> c_int {
    while !wr.is_null() {
        // SAFETY: alive, by the caller, whose list it is.
        let errno = unsafe { (*qp.cast::<VerbsQp>()).post_send(&*wr) };
        if errno != 0 {
            // SAFETY: the caller's place for it.
            unsafe { *bad = wr };
            return errno;
        }
        // SAFETY: as above.
        wr = unsafe { (*wr).next };
    }
    0
}

unsafe extern "C" fn post_recv(
    qp: *mut sys::ibv_qp,
    mut wr: *mut sys::ibv_recv_wr,
    bad: *mut *mut sys::ibv_recv_wr,
) -> c_int {
    while !wr.is_null() {
        // SAFETY: alive, by the caller, whose list it is.
        let errno = unsafe { (*qp.cast::<VerbsQp>()).post_recv(&*wr) };
        if errno != 0 {
            // SAFETY: the caller's place for it.
            unsafe { *bad = wr };
            return errno;
        }
        // SAFETY: as above.
        wr = unsafe { (*wr).next };
    }
    0
}

unsafe extern "C" fn post_srq_recv(
    srq: *mut sys::ibv_srq,
    mut wr: *mut sys::ibv_recv_wr,
    bad: *mut *mut sys::ibv_recv_wr,
) -> c_int {
    while !wr.is_null() {
        // SAFETY: alive, by the caller, whose list it is.
        let errno = unsafe { (*srq.cast::<VerbsSrq>()).post(&*wr) };
        if errno != 0 {
            // SAFETY: the caller's place for it.
            unsafe { *bad = wr };
            return errno;
        }
        // SAFETY: as above.
        wr = unsafe { (*wr).next };
    }
    0
}

unsafe extern "C" fn poll_cq(cq: *mut sys::ibv_cq, most: c_int, to: *mut sys::ibv_wc) -> c_int {
    let Ok(most) = usize::try_from(most) else { return -ENOMEM };
    // SAFETY: alive, by the caller, who has room for so many.
    unsafe { (*cq.cast::<VerbsCq>()).poll(std::slice::from_raw_parts_mut(to, most)) as c_int }
}
