//! A device, and one end's memory and queue pair on it, as any verbs program has them.

use shunt_mlx5_sys as sys;
use std::ffi::CStr;
use std::ptr::null_mut;
use std::time::{Duration, Instant};
use sys::Rdma;

/// Bytes of a message.
const MESSAGE: u64 = 16;
/// Bytes of the word that the other end adds to, and of the one that tells what was in the other's.
const COUNTER: u64 = 16;
/// Bytes of the pattern that is read.
const PATTERN: u64 = 1024;

/// What the other end may do.
const REMOTE: u32 =
    sys::IBV_ACCESS_REMOTE_WRITE | sys::IBV_ACCESS_REMOTE_READ | sys::IBV_ACCESS_REMOTE_ATOMIC;

/// Where another end's memory is.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    address: u64,
    rkey: u32,
    slots: u64,
}

/// What another end says of itself.
pub struct Card {
    gid: [u8; 16],
    qpn: u32,
    /// Its memory.
    pub memory: Memory,
}

/// What an end may have beside a queue pair.
#[derive(Clone, Copy, Default)]
pub struct Has {
    /// A completion channel.
    pub channel: bool,
    /// A shared receive queue.
    pub shared: bool,
}

/// A device that is open.
pub struct Device {
    rdma: &'static Rdma,
    context: *mut sys::ibv_context,
    pd: *mut sys::ibv_pd,
}

/// The end.
pub struct Link {
    rdma: &'static Rdma,
    qp: *mut sys::ibv_qp,
    cqs: [*mut sys::ibv_cq; 2],
    /// Of both queues, for an end that sleeps.
    channel: *mut sys::ibv_comp_channel,
    /// Where buffers to receive into go, unless it is null.
    srq: *mut sys::ibv_srq,
    mr: *mut sys::ibv_mr,
    gid: [u8; 16],
    gid_index: u8,
    depth: u64,
    /// Slots, the pattern, what was read of the other's, buffers of messages to receive, and of what is sent.
    memory: &'static mut [u64],
    slots: u64,
    sent: std::cell::Cell<u64>,
}

fn last(what: &str) -> String {
    format!("{what}: {}", std::io::Error::last_os_error())
}

fn made<T>(what: &str, made: *mut T) -> Result<*mut T, String> {
    if made.is_null() { Err(last(what)) } else { Ok(made) }
}

fn done(what: &str, errno: i32) -> Result<(), String> {
    match errno {
        0 => Ok(()),
        errno => Err(format!("{what}: {}", std::io::Error::from_raw_os_error(errno))),
    }
}

/// What never changes.
const fn pattern(word: u64) -> u64 {
    word.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x7777
}

/// Some programs ask for a function by its version, as NCCL does: they must get what others get.
fn by_version() -> Result<(), String> {
    // SAFETY: the library is in the process already, and texts end with zeros.
    let (plain, versioned) = unsafe {
        let library = libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW);
        let name = c"ibv_open_device".as_ptr();
        (libc::dlsym(library, name), libc::dlvsym(library, name, c"IBVERBS_1.1".as_ptr()))
    };
    match plain == versioned && !plain.is_null() {
        true => Ok(()),
        false => {
            Err("ibv_open_device: expected IBVERBS_1.1 to be its version, got another function by it".into())
        }
    }
}

impl Device {
    /// Opens a device.
    pub fn open(name: &str) -> Result<Self, String> {
        let rdma = sys::load().map_err(|error| error.to_string())?;
        by_version()?;
        // SAFETY: each object is made from those before it, which stay until the process ends.
        unsafe {
            let mut count = 0;
            let list = made("ibv_get_device_list", rdma.verbs.ibv_get_device_list(&raw mut count))?;
            let devices = std::slice::from_raw_parts(list, count as usize);
            let is = |one: &&*mut sys::ibv_device| {
                CStr::from_ptr(rdma.verbs.ibv_get_device_name(**one)).to_bytes() == name.as_bytes()
            };
            let device =
                devices.iter().find(is).ok_or_else(|| format!("{name}: expected it, got no such device"))?;
            let context = made("ibv_open_device", rdma.verbs.ibv_open_device(*device))?;
            rdma.verbs.ibv_free_device_list(list);
            let pd = made("ibv_alloc_pd", rdma.verbs.ibv_alloc_pd(context))?;
            Ok(Self { rdma, context, pd })
        }
    }
}

impl Link {
    /// Makes everything on a device.
    pub fn open(on: &Device, gid_index: u8, depth: u32, slots: u64, has: Has) -> Result<Self, String> {
        let Device { rdma, context, pd } = *on;
        let depth64 = u64::from(depth);
        let bytes = slots + 2 * PATTERN + depth64 * (2 * MESSAGE + 256) + COUNTER;
        let memory: &'static mut [u64] = Box::leak(vec![0; bytes as usize / 8].into_boxed_slice());
        for word in 0..PATTERN / 8 {
            memory[(slots / 8 + word) as usize] = pattern(word);
        }
        // SAFETY: each object is made from those before it, which stay until the process ends.
        unsafe {
            let access = sys::IBV_ACCESS_LOCAL_WRITE | REMOTE;
            let at = memory.as_mut_ptr().cast();
            let mr = made("ibv_reg_mr", rdma.verbs.ibv_reg_mr(pd, at, bytes as usize, access as i32))?;
            let channel = match has.channel {
                true => made("ibv_create_comp_channel", rdma.verbs.ibv_create_comp_channel(context))?,
                false => null_mut(),
            };
            let cq = || {
                let cq = rdma.verbs.ibv_create_cq(context, depth as i32, null_mut(), channel, 0);
                made("ibv_create_cq", cq)
            };
            let mut attr = sys::ibv_cq_init_attr_ex { cqe: depth, channel, ..std::mem::zeroed() };
            // Like UCX, which polls by `ibv_poll_cq` what it makes this way.
            let extended = made("ibv_create_cq_ex", sys::ibv_create_cq_ex(context, &raw mut attr))?;
            let cqs = [cq()?, extended.cast()];
            let mut shared = sys::ibv_srq_init_attr {
                srq_context: null_mut(),
                attr: sys::ibv_srq_attr { max_wr: depth, max_sge: 1, srq_limit: 0 },
            };
            let srq = match has.shared {
                true => made("ibv_create_srq", rdma.verbs.ibv_create_srq(pd, &raw mut shared))?,
                false => null_mut(),
            };
            let mut attr = sys::ibv_qp_init_attr {
                srq,
                send_cq: cqs[0],
                recv_cq: cqs[1],
                qp_type: sys::IBV_QPT_RC,
                sq_sig_all: 1,
                ..Default::default()
            };
            attr.cap = sys::ibv_qp_cap {
                max_send_wr: depth,
                max_recv_wr: depth,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 64,
            };
            let qp = made("ibv_create_qp", rdma.verbs.ibv_create_qp(pd, &raw mut attr))?;
            let mut gid = sys::ibv_gid { raw: [0; 16] };
            done("ibv_query_gid", rdma.verbs.ibv_query_gid(context, 1, gid_index.into(), &raw mut gid))?;
            let (gid, sent) = (gid.raw, Default::default());
            Ok(Self { rdma, qp, cqs, channel, srq, mr, gid, gid_index, depth: depth64, memory, slots, sent })
        }
    }

    /// Number of its queue pair.
    pub fn qpn(&self) -> u32 {
        // SAFETY: alive.
        unsafe { (*self.qp).qp_num }
    }

    /// What it says of itself.
    pub fn card(&self) -> Vec<u8> {
        // SAFETY: both are alive.
        let (qpn, rkey) = unsafe { ((*self.qp).qp_num, (*self.mr).rkey) };
        let address = self.memory.as_ptr().expose_provenance() as u64;
        let numbers = [address, u64::from(rkey), u64::from(qpn), self.slots];
        [&self.gid[..], &numbers.map(u64::to_be_bytes).concat()].concat()
    }

    fn modify(&self, attr: &mut sys::ibv_qp_attr, mask: u32) -> Result<(), String> {
        // SAFETY: the queue pair is alive.
        done("ibv_modify_qp", unsafe { self.rdma.verbs.ibv_modify_qp(self.qp, attr, mask as i32) })
    }

    /// RESET, as some programs begin; INIT, RTR, RTS. How long the last two took.
    pub fn connect(&self, there: &Card, ack_timeout: u8) -> Result<[Duration; 2], String> {
        let mut attr = sys::ibv_qp_attr { qp_state: sys::IBV_QPS_RESET, ..Default::default() };
        self.modify(&mut attr, sys::IBV_QP_STATE)?;
        attr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_INIT,
            port_num: 1,
            qp_access_flags: REMOTE,
            ..Default::default()
        };
        let mask = sys::IBV_QP_STATE | sys::IBV_QP_PKEY_INDEX | sys::IBV_QP_PORT | sys::IBV_QP_ACCESS_FLAGS;
        self.modify(&mut attr, mask)?;
        attr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_RTR,
            path_mtu: sys::IBV_MTU_1024,
            dest_qp_num: there.qpn,
            rq_psn: 0x1234,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 12,
            ..Default::default()
        };
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = 1;
        attr.ah_attr.grh.dgid.raw = there.gid;
        attr.ah_attr.grh.sgid_index = self.gid_index;
        attr.ah_attr.grh.hop_limit = 64;
        let mask = sys::IBV_QP_STATE
            | sys::IBV_QP_AV
            | sys::IBV_QP_PATH_MTU
            | sys::IBV_QP_DEST_QPN
            | sys::IBV_QP_RQ_PSN
            | sys::IBV_QP_MAX_DEST_RD_ATOMIC
            | sys::IBV_QP_MIN_RNR_TIMER;
        let began = Instant::now();
        self.modify(&mut attr, mask)?;
        let rtr = began.elapsed();
        attr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_RTS,
            sq_psn: 0x1234,
            max_rd_atomic: 4,
            timeout: ack_timeout,
            retry_cnt: 7,
            rnr_retry: 7,
            ..Default::default()
        };
        let mask = sys::IBV_QP_STATE
            | sys::IBV_QP_SQ_PSN
            | sys::IBV_QP_MAX_QP_RD_ATOMIC
            | sys::IBV_QP_TIMEOUT
            | sys::IBV_QP_RETRY_CNT
            | sys::IBV_QP_RNR_RETRY;
        let began = Instant::now();
        self.modify(&mut attr, mask)?;
        Ok([rtr, began.elapsed()])
    }

    /// Failures of its port, device and queue pair, and returns, that this end has been told.
    pub fn events(&self) -> u64 {
        let mut told = 0;
        // SAFETY: the context is open; one entry, and an event, which are ours.
        unsafe {
            let context = (*self.qp).context;
            let flags = libc::fcntl((*context).async_fd, libc::F_GETFL);
            libc::fcntl((*context).async_fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
            let mut event = sys::ibv_async_event::default();
            while self.rdma.verbs.ibv_get_async_event(context, &raw mut event) == 0 {
                self.rdma.verbs.ibv_ack_async_event(&raw mut event);
                let kinds = [
                    sys::IBV_EVENT_PORT_ERR,
                    sys::IBV_EVENT_PORT_ACTIVE,
                    sys::IBV_EVENT_DEVICE_FATAL,
                    sys::IBV_EVENT_QP_FATAL,
                ];
                told += u64::from(kinds.contains(&event.event_type));
            }
        }
        told
    }

    fn word(&self, offset: u64) -> *mut u64 {
        let at = self.memory.as_ptr().expose_provenance() + offset as usize;
        std::ptr::with_exposed_provenance_mut(at)
    }

    /// A word of the memory, which the NIC may write.
    pub fn load(&self, offset: u64) -> u64 {
        // SAFETY: inside the memory, by the callers' offsets.
        unsafe { self.word(offset).read_volatile() }
    }

    /// Writes a word.
    pub fn store(&self, offset: u64, value: u64) {
        // SAFETY: as above.
        unsafe { self.word(offset).write_volatile(value) }
    }

    fn sge(&self, offset: u64, length: u64) -> sys::ibv_sge {
        // SAFETY: alive.
        let lkey = unsafe { (*self.mr).lkey };
        sys::ibv_sge { addr: self.word(offset).expose_provenance() as u64, length: length as u32, lkey }
    }

    fn messages(&self) -> u64 {
        self.slots + 2 * PATTERN
    }

    /// A buffer of its own for what is sent next: one that is not complete stays as it is.
    fn next_buffer(&self, bytes: u64) -> u64 {
        let turn = self.sent.get();
        self.sent.set(turn + 1);
        assert!(bytes <= 256, "a buffer of what is sent");
        self.messages() + 2 * self.depth * MESSAGE + turn % self.depth * 256
    }

    fn post(&self, wr: &mut sys::ibv_send_wr, sge: &mut sys::ibv_sge) -> Result<(), String> {
        wr.sg_list = sge;
        wr.num_sge = 1;
        let mut bad = null_mut();
        // SAFETY: the queue pair is alive. What moves it writes the word.
        let state = unsafe { (&raw const (*self.qp).state).read_volatile() };
        if state != sys::IBV_QPS_RTS {
            return Err(format!("the queue pair's state: expected RTS, got {state}"));
        }
        // SAFETY: the queue pair is alive, and so is what the request names.
        done("ibv_post_send", unsafe { sys::ibv_post_send(self.qp, wr, &raw mut bad) })
    }

    /// WRITEs a slot of words into one of the other end.
    pub fn write(&self, number: u64, slot: u64, to: Memory, word: impl Fn(u64) -> u64) -> Result<(), String> {
        self.write_by(sys::IBV_WR_RDMA_WRITE, number, slot, to, word)
    }

    /// The same with a message, which is the number.
    pub fn write_immediate(
        &self,
        number: u64,
        slot: u64,
        to: Memory,
        word: impl Fn(u64) -> u64,
    ) -> Result<(), String> {
        self.write_by(sys::IBV_WR_RDMA_WRITE_WITH_IMM, number, slot, to, word)
    }

    fn write_by(
        &self,
        opcode: u32,
        number: u64,
        slot: u64,
        to: Memory,
        word: impl Fn(u64) -> u64,
    ) -> Result<(), String> {
        let buffer = self.next_buffer(256);
        (0..32).for_each(|at| self.store(buffer + at * 8, word(at)));
        let mut wr = sys::ibv_send_wr { wr_id: number, opcode, ..Default::default() };
        wr.__bindgen_anon_1.imm_data = (number as u32).to_be();
        wr.wr.rdma.remote_addr = to.address + slot;
        wr.wr.rdma.rkey = to.rkey;
        self.post(&mut wr, &mut self.sge(buffer, 256))
    }

    /// SENDs two words, as inline data every other time.
    pub fn send(&self, number: u64, words: [u64; 2]) -> Result<(), String> {
        let buffer = self.next_buffer(MESSAGE);
        self.store(buffer, words[0]);
        self.store(buffer + 8, words[1]);
        let inline = number % 4 == 1;
        let flags = if inline { sys::IBV_SEND_INLINE } else { 0 };
        let opcode = sys::IBV_WR_SEND;
        let mut wr = sys::ibv_send_wr { wr_id: number, opcode, send_flags: flags, ..Default::default() };
        let posted = self.post(&mut wr, &mut self.sge(buffer, MESSAGE));
        if inline {
            // The program may use its buffer again at once.
            self.store(buffer, 0);
        }
        posted
    }

    /// READs the other end's pattern.
    pub fn read(&self, number: u64, from: Memory) -> Result<(), String> {
        (0..PATTERN / 8).for_each(|word| self.store(self.slots + PATTERN + word * 8, 0));
        let mut wr = sys::ibv_send_wr { wr_id: number, opcode: sys::IBV_WR_RDMA_READ, ..Default::default() };
        wr.wr.rdma.remote_addr = from.address + from.slots;
        wr.wr.rdma.rkey = from.rkey;
        self.post(&mut wr, &mut self.sge(self.slots + PATTERN, PATTERN))
    }

    fn counter(&self) -> u64 {
        self.messages() + self.depth * (2 * MESSAGE + 256)
    }

    /// Adds one to the other end's word.
    pub fn add(&self, number: u64, to: Memory) -> Result<(), String> {
        let opcode = sys::IBV_WR_ATOMIC_FETCH_AND_ADD;
        let mut wr = sys::ibv_send_wr { wr_id: number, opcode, ..Default::default() };
        wr.wr.atomic.remote_addr = to.address + self.counter();
        wr.wr.atomic.rkey = to.rkey;
        wr.wr.atomic.compare_add = 1;
        self.post(&mut wr, &mut self.sge(self.counter() + 8, 8))
    }

    /// What was in the other end's word before one was added.
    pub fn before_add(&self) -> u64 {
        self.load(self.counter() + 8)
    }

    /// What is in this end's word.
    pub fn counted(&self) -> u64 {
        self.load(self.counter())
    }

    /// True if all of it came.
    pub fn read_is_right(&self) -> bool {
        (0..PATTERN / 8).all(|word| self.load(self.slots + PATTERN + word * 8) == pattern(word))
    }

    /// Posts a buffer to receive into, by its number.
    pub fn receive(&self, buffer: u64) -> Result<(), String> {
        let mut sge = self.sge(self.messages() + buffer * MESSAGE, MESSAGE);
        let mut wr = sys::ibv_recv_wr { wr_id: buffer, next: null_mut(), sg_list: &raw mut sge, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: both queues are alive, and so is what the request names.
        unsafe {
            match self.srq.is_null() {
                true => done("ibv_post_recv", sys::ibv_post_recv(self.qp, &raw mut wr, &raw mut bad)),
                false => {
                    done("ibv_post_srq_recv", sys::ibv_post_srq_recv(self.srq, &raw mut wr, &raw mut bad))
                }
            }
        }
    }

    /// The next completion of either queue makes the channel ready, or one that nobody has taken does.
    pub fn arm(&self) -> Result<(), String> {
        // SAFETY: the queues are alive.
        self.cqs
            .iter()
            .try_for_each(|cq| done("ibv_req_notify_cq", unsafe { sys::ibv_req_notify_cq(*cq, 0) }))
    }

    /// Sleeps until the channel is ready, and takes one event. False if it was not within so many milliseconds.
    pub fn sleep(&self, milliseconds: i32) -> Result<bool, String> {
        // SAFETY: the channel is alive; one entry, which is ours.
        let ready = unsafe {
            let mut one = libc::pollfd { fd: (*self.channel).fd, events: libc::POLLIN, revents: 0 };
            libc::poll(&raw mut one, 1, milliseconds)
        };
        if ready == 0 {
            return Ok(false);
        }
        let (mut cq, mut of) = (null_mut(), null_mut());
        // SAFETY: the channel is alive; both answers are ours.
        unsafe {
            let got = self.rdma.verbs.ibv_get_cq_event(self.channel, &raw mut cq, &raw mut of);
            done("ibv_get_cq_event", if got == 0 { 0 } else { libc::EIO })?;
            self.rdma.verbs.ibv_ack_cq_events(cq, 1);
        }
        Ok(true)
    }

    /// The next completion: of requests, or of messages.
    pub fn poll(&self, messages: bool) -> Result<Option<sys::ibv_wc>, String> {
        let mut wc = sys::ibv_wc::default();
        // SAFETY: the queue is alive, and there is room for one.
        match unsafe { sys::ibv_poll_cq(self.cqs[usize::from(messages)], 1, &raw mut wc) } {
            0 => Ok(None),
            1 => Ok(Some(wc)),
            other => Err(format!("ibv_poll_cq: {other}")),
        }
    }

    /// What is in a message that has come: a number, and what is beside it unless it is immediate data.
    pub fn message(&self, wc: &sys::ibv_wc) -> Result<(u64, Option<u64>), String> {
        if wc.opcode == sys::IBV_WC_RECV_RDMA_WITH_IMM {
            // SAFETY: both views of the union are plain words.
            let immediate = unsafe { wc.__bindgen_anon_1.imm_data };
            return Ok((u32::from_be(immediate).into(), None));
        }
        if u64::from(wc.byte_len) != MESSAGE {
            return Err(format!("a message of {} bytes, not {MESSAGE}", wc.byte_len));
        }
        let at = self.messages() + wc.wr_id * MESSAGE;
        Ok((self.load(at), Some(self.load(at + 8))))
    }
}

/// Reads what another end says of itself.
pub fn meet(bytes: &[u8]) -> Result<Card, String> {
    let (gid, rest) = bytes.split_first_chunk::<16>().ok_or("a card is too short")?;
    let numbers: Vec<u64> =
        rest.chunks_exact(8).map(|word| u64::from_be_bytes(word.try_into().unwrap_or_default())).collect();
    let [address, rkey, qpn, slots] = numbers[..] else { return Err("a card is too short".into()) };
    Ok(Card { gid: *gid, qpn: qpn as u32, memory: Memory { address, rkey: rkey as u32, slots } })
}
