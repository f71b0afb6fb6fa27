//! DEVX as a program calls it: by ioctl, on an open file.

use crate::support::Runtime;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read};
use shunt_layout::mlx5::eqe;
use shunt_layout::mlx5::prm::cmd::{Opcode, Status, input, output};
use shunt_layout::mlx5::prm::{cq, mkey};
use shunt_soft_machine::control::{Client, processes_in};
use shunt_soft_machine::machine::Machine;
use shunt_soft_machine::settings::Settings;
use shunt_soft_uverbs::ioctl::Context;
use shunt_soft_uverbs::methods;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const DEVX: u16 = 0x1000;
const OBJ: u16 = 0x1001;
const UMEM: u16 = 0x1002;
const ASYNC_CMD_FD: u16 = 0x1004;
const ASYNC_EVENT_FD: u16 = 0x1005;
const UAR: u16 = 0x1008;

/// A call in the program's memory.
struct Request {
    words: Vec<u64>,
    /// What the attributes point to.
    data: Vec<Box<[u8]>>,
}

impl Request {
    fn new(object: u16, method: u16) -> Self {
        let words = vec![24 | (object as u64) << 16 | (0x1000 + method as u64) << 32, 0, 1];
        Self { words, data: Vec::new() }
    }

    fn attribute(mut self, id: u16, bytes: usize, data: u64) -> Self {
        // Mandatory, all of them.
        self.words.push((0x1000 + id) as u64 | (bytes as u64) << 16 | 1 << 32);
        self.words.push(data);
        self.words[0] += 16 | 1 << 48;
        self
    }

    fn input(mut self, id: u16, bytes: &[u8]) -> Self {
        if bytes.len() <= 8 {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            return self.attribute(id, bytes.len(), u64::from_ne_bytes(word));
        }
        self.data.push(bytes.into());
        let at = self.data[self.data.len() - 1].as_ptr() as u64;
        self.attribute(id, bytes.len(), at)
    }

    fn number(self, id: u16, value: u32) -> Self {
        self.input(id, &value.to_ne_bytes())
    }

    fn room(mut self, id: u16, bytes: usize) -> Self {
        self.data.push(vec![0xee; bytes].into());
        let at = self.data[self.data.len() - 1].as_ptr() as u64;
        self.attribute(id, bytes, at)
    }

    /// A handle in or out, or a descriptor.
    fn handle(self, id: u16, handle: u32) -> Self {
        self.attribute(id, 0, handle as u64)
    }

    fn run(&mut self, context: &Context) -> Result<(), Errno> {
        methods::run(context, self.words.as_mut_ptr() as u64)
    }

    /// The data of an attribute after the call.
    fn word(&self, id: u16) -> u64 {
        let at = self.words[3..].chunks(2).position(|words| words[0] as u16 == 0x1000 + id);
        self.words[3 + 2 * at.unwrap() + 1]
    }

    /// What was written into the room of an attribute.
    fn answer(&self, id: u16) -> &[u8] {
        let at = self.word(id);
        self.data.iter().find(|data| data.as_ptr() as u64 == at).unwrap()
    }

    fn answer_u32(&self, id: u16) -> u32 {
        u32::from_ne_bytes(self.answer(id)[..4].try_into().unwrap())
    }
}

fn header(opcode: u16, object: u32) -> [u8; 16] {
    let mut mailbox = [0; 16];
    input::OPCODE.set(&mut mailbox, opcode as u32);
    input::OBJECT.set(&mut mailbox, object);
    mailbox
}

struct Rig {
    runtime: Runtime,
    context: Context,
    file: OwnedFd,
}

impl Rig {
    fn new() -> Self {
        Self::on("soft")
    }

    fn on(profile: &str) -> Self {
        let runtime = Runtime::new();
        let settings = Settings { profile: profile.parse().unwrap(), ..Settings::default() };
        let machine = Machine::start(settings, &runtime.0).unwrap();
        let (context, file) = Context::open(&machine.nics()[0], true).unwrap();
        Self { runtime, context, file }
    }

    fn fault(&self, fault: &str) {
        let socket = &processes_in(&self.runtime.0, "default")[0].socket;
        Client::connect(socket).unwrap().inject(0, 0, fault).unwrap();
    }

    /// Executes a mailbox that makes an object; its handle and number.
    fn create(&self, mailbox: &[u8]) -> Result<(u32, u32), Errno> {
        let mut request = Request::new(OBJ, 0).handle(0, 0).input(1, mailbox).room(2, 16);
        request.run(&self.context)?;
        Ok((request.word(0) as u32, output::OBJECT.get(request.answer(2))))
    }

    fn destroy(&self, handle: u32) -> Result<(), Errno> {
        Request::new(OBJ, 1).handle(0, handle).run(&self.context)
    }

    fn register(&self, memory: &[u8]) -> (u32, u32) {
        let mut request = Request::new(UMEM, 0)
            .handle(0, 0)
            .input(1, &(memory.as_ptr() as u64).to_ne_bytes())
            .input(2, &(memory.len() as u64).to_ne_bytes())
            .number(3, 7)
            .room(4, 4);
        request.run(&self.context).unwrap();
        (request.word(0) as u32, request.answer_u32(4))
    }

    fn alloc_uar(&self) -> (u32, u32, u64) {
        let mut request = Request::new(UAR, 0).handle(0, 0).number(1, 1).room(2, 8).room(3, 4).room(4, 4);
        request.run(&self.context).unwrap();
        let offset = u64::from_ne_bytes(request.answer(2).try_into().unwrap());
        assert_eq!(request.answer_u32(3) as usize, rustix::param::page_size());
        (request.word(0) as u32, request.answer_u32(4), offset)
    }

    /// A completion queue of 16 entries in a umem; handle and number.
    fn create_cq(&self, umem: u32, uar: u32) -> Result<(u32, u32), Errno> {
        let mut mailbox = vec![0; cq::CREATE_IN_BYTES];
        mailbox[..16].copy_from_slice(&header(Opcode::CreateCq as u16, 0));
        cq::create::CQ_UMEM_ID.set(&mut mailbox, umem);
        let context = &mut mailbox[cq::CQC_OFFSET..cq::CQC_OFFSET + cq::cqc::BYTES];
        cq::cqc::LOG_CQ_SIZE.set(context, 4);
        cq::cqc::UAR_PAGE.set(context, uar);
        cq::cqc::DBR_UMEM_ID.set(context, umem);
        cq::cqc::DBR_ADDR.set(context, 2048);
        // No word that the memory is in umems: the kernel knows.
        self.create(&mailbox)
    }

    fn event_channel(&self, flags: u32) -> OwnedFd {
        let mut request = Request::new(ASYNC_EVENT_FD, 0).handle(0, 0).number(1, flags);
        request.run(&self.context).unwrap();
        // SAFETY: the call made it for us.
        unsafe { OwnedFd::from_raw_fd(request.word(0) as i32) }
    }

    fn subscribe(&self, channel: &OwnedFd, types: &[u16]) -> Request {
        let list: Vec<u8> = types.iter().flat_map(|kind| kind.to_ne_bytes()).collect();
        Request::new(DEVX, 3).handle(0, channel.as_raw_fd() as u32).input(2, &list)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.context.close();
    }
}

/// Memory of its own pages.
#[repr(C, align(4096))]
struct Memory([u8; 4096]);

#[test]
fn commands_about_nothing() {
    let rig = Rig::new();
    let mut caps = Request::new(DEVX, 0).input(0, &{
        let mut mailbox = header(Opcode::QueryHcaCap as u16, 0);
        input::OP_MOD.set(&mut mailbox, 1);
        mailbox
    });
    caps = caps.room(1, 4112);
    caps.run(&rig.context).unwrap();
    assert_eq!(output::STATUS.get(caps.answer(1)), 0);
    assert!(caps.answer(1)[16..].iter().any(|byte| *byte != 0));
    let other = |mailbox: &[u8], room| {
        let mut request = Request::new(DEVX, 0).input(0, mailbox).room(1, room);
        (request.run(&rig.context), request)
    };
    // Not on the list: it never reaches the firmware, and nothing is written.
    let (result, request) = other(&header(Opcode::AllocPd as u16, 0), 16);
    assert_eq!((result, request.answer(1)[0]), (Err(Errno::INVAL), 0xee));
    // On the list, and not known to this firmware: its answer comes back.
    let (result, request) = other(&header(0xb00, 0), 16);
    assert_eq!(result, Err(Errno::REMOTEIO));
    assert_eq!(output::STATUS.get(request.answer(1)), Status::BadOp as u32);
    assert_eq!(other(&header(Opcode::Nop as u16, 0)[..15], 16).0, Err(Errno::INVAL));
    assert_eq!(other(&header(Opcode::Nop as u16, 0), 15).0, Err(Errno::INVAL));
    assert_eq!(Request::new(DEVX, 0).room(1, 16).run(&rig.context), Err(Errno::INVAL));
    let bad =
        Request::new(DEVX, 0).input(0, &header(Opcode::Nop as u16, 0)).attribute(1, 16, 8).run(&rig.context);
    assert_eq!(bad, Err(Errno::FAULT));
}

#[test]
fn objects_live_and_end() {
    let rig = Rig::new();
    let (pd, pdn) = rig.create(&header(Opcode::AllocPd as u16, 0)).unwrap();
    // Neither its own kind's command for another object nor another kind's for this one.
    let ask = |handle: u32, mailbox: &[u8]| {
        Request::new(OBJ, 3).handle(0, handle).input(1, mailbox).room(2, 272).run(&rig.context)
    };
    assert_eq!(ask(pd, &header(Opcode::QueryMkey as u16, pdn)), Err(Errno::INVAL));
    let memory = Box::new(Memory([0; 4096]));
    let (umem_handle, umem) = rig.register(&memory.0);
    let mut mailbox = vec![0; mkey::CREATE_IN_BYTES];
    mailbox[..16].copy_from_slice(&header(Opcode::CreateMkey as u16, 0));
    mkey::create::MKEY_UMEM_ID.set(&mut mailbox, umem);
    let context = &mut mailbox[mkey::MKC_OFFSET..mkey::MKC_OFFSET + mkey::mkc::BYTES];
    mkey::mkc::ACCESS_MODE_1_0.set(context, mkey::ACCESS_MODE_MTT);
    mkey::mkc::LW.set(context, 1);
    mkey::mkc::LR.set(context, 1);
    mkey::mkc::QPN.set(context, 0xff_ffff);
    mkey::mkc::PD.set(context, pdn);
    mkey::mkc::START_ADDR.set(context, memory.0.as_ptr() as u64);
    mkey::mkc::LEN.set(context, 4096);
    mkey::mkc::LOG_PAGE_SIZE.set(context, 12);
    mkey::mkc::TRANSLATIONS_OCTWORD_SIZE.set(context, 1);
    mkey::create::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.set(&mut mailbox, 1);
    let (key, index) = rig.create(&mailbox).unwrap();
    assert_eq!(ask(key, &header(Opcode::QueryMkey as u16, index)), Ok(()));
    assert_eq!(ask(key, &header(Opcode::QueryMkey as u16, index + 1)), Err(Errno::INVAL));
    // What is in use stays.
    assert_eq!(Request::new(UMEM, 1).handle(0, umem_handle).run(&rig.context), Err(Errno::BUSY));
    rig.destroy(key).unwrap();
    assert_eq!(rig.destroy(key), Err(Errno::NOENT));
    assert_eq!(rig.destroy(umem_handle), Err(Errno::INVAL), "another kind's handle");
    assert_eq!(Request::new(UMEM, 1).handle(0, umem_handle).run(&rig.context), Ok(()));
    rig.destroy(pd).unwrap();
    // Refused by the firmware: no handle, and the answer says why.
    let mut bad = Request::new(OBJ, 0).handle(0, 77).input(1, &mailbox).room(2, 16);
    assert_eq!(bad.run(&rig.context), Err(Errno::REMOTEIO));
    assert!(bad.word(0) == 77 && output::STATUS.get(bad.answer(2)) != 0);
    let kernel_s = header(0xa08, 0);
    assert_eq!(rig.create(&kernel_s), Err(Errno::INVAL), "CREATE_UMEM is the kernel's");
}

#[test]
fn memory_that_is_not_there_is_not_lent() {
    let rig = Rig::new();
    let register = |address: u64, bytes: u64, access: u32| {
        Request::new(UMEM, 0)
            .handle(0, 0)
            .input(1, &address.to_ne_bytes())
            .input(2, &bytes.to_ne_bytes())
            .number(3, access)
            .room(4, 4)
            .run(&rig.context)
    };
    let memory = Box::new(Memory([0; 4096]));
    let address = memory.0.as_ptr() as u64;
    for (address, bytes, access, error) in [
        (0, 4096, 7, Errno::FAULT),
        (address, 0, 7, Errno::INVAL),
        (address, u64::MAX, 7, Errno::FAULT),
        (u64::MAX - 4095, 4096, 7, Errno::FAULT),
        (address, 4096, 0x8000, Errno::INVAL),
        (address, 4096, 2, Errno::INVAL), // others may write, the program may not
    ] {
        assert_eq!(register(address, bytes, access), Err(error), "{address:#x} {bytes} {access}");
    }
    let dmabuf = Request::new(UMEM, 0)
        .handle(0, 0)
        .input(1, &address.to_ne_bytes())
        .input(2, &4096u64.to_ne_bytes())
        .number(3, 7)
        .room(4, 4)
        .handle(6, 0)
        .run(&rig.context);
    assert_eq!(dmabuf, Err(Errno::OPNOTSUPP));
    assert_eq!(register(address, 4096, 7), Ok(()));
}

/// Which pages a context gets is a matter of the device; those with BlueFlame registers it always gets.
#[test]
fn doorbell_pages_are_refused_as_the_device_has_it() {
    const BLUEFLAME: u32 = 0;
    const UNCACHED: u32 = 1;
    for (profile, said) in [
        ("soft", [Ok(()), Ok(())]),
        ("cx7", [Ok(()), Ok(())]),
        ("cx5", [Ok(()), Err(Errno::NOMEM)]),
        ("vf", [Ok(()), Err(Errno::NOMEM)]),
        ("bf3", [Err(Errno::OPNOTSUPP), Err(Errno::OPNOTSUPP)]),
    ] {
        let rig = Rig::on(profile);
        let alloc = |kind| {
            let mut request =
                Request::new(UAR, 0).handle(0, 0).number(1, kind).room(2, 8).room(3, 4).room(4, 4);
            request.run(&rig.context).map(|()| request.word(0) as u32)
        };
        let pages = [alloc(UNCACHED), alloc(UNCACHED)];
        assert_eq!(pages.map(|page| page.map(|_| ())), said, "{profile}");
        assert!((0..4).all(|_| alloc(BLUEFLAME).is_ok()), "{profile}");
        // One that is given back may be had again.
        if let [Ok(page), Err(_)] = pages {
            Request::new(UAR, 1).handle(0, page).run(&rig.context).unwrap();
            assert!(alloc(UNCACHED).is_ok() && alloc(UNCACHED).is_err(), "{profile}");
        }
    }
}

#[test]
fn doorbell_pages_are_pages_of_the_file() {
    let rig = Rig::new();
    let (first, id, offset) = rig.alloc_uar();
    let (_, other, elsewhere) = rig.alloc_uar();
    assert!(id != other && offset != elsewhere && offset % 4096 == 0);
    let size = rustix::fs::fstat(&rig.file).unwrap().st_size as u64;
    assert!(size > offset.max(elsewhere), "a page of the file");
    let query = |id: u32| {
        let mut request = Request::new(DEVX, 1).number(0, id).room(1, 4);
        request.run(&rig.context).map(|()| request.answer_u32(1))
    };
    assert_eq!(query(id), Ok(id));
    Request::new(UAR, 1).handle(0, first).run(&rig.context).unwrap();
    assert_eq!(query(id), Err(Errno::INVAL));
    let mut eqn = Request::new(DEVX, 2).number(0, 0).room(1, 4);
    eqn.run(&rig.context).unwrap();
    assert_eq!(eqn.answer_u32(1), 1);
    assert_eq!(Request::new(DEVX, 2).number(0, 1).room(1, 4).run(&rig.context), Err(Errno::INVAL));
}

#[test]
fn events_of_the_port_reach_those_who_asked() {
    let rig = Rig::new();
    let (whole, bare) = (rig.event_channel(0), rig.event_channel(1));
    let cookie = |request: Request, value: u64| request.input(4, &value.to_ne_bytes());
    let port = &[eqe::event::PORT_CHANGE as u16];
    cookie(rig.subscribe(&whole, port), 0xabcd).run(&rig.context).unwrap();
    cookie(rig.subscribe(&bare, port), 7).run(&rig.context).unwrap();
    let count = eventfd(0, EventfdFlags::empty()).unwrap();
    let by_fd = |fd: i32| rig.subscribe(&whole, port).number(3, fd as u32);
    by_fd(count.as_raw_fd()).run(&rig.context).unwrap();
    rig.fault("down");
    let mut record = [0; 200];
    assert_eq!(read(&whole, &mut record), Ok(72));
    assert_eq!(u64::from_ne_bytes(record[..8].try_into().unwrap()), 0xabcd);
    let entry: [u8; 64] = record[8..72].try_into().unwrap();
    assert_eq!(eqe::EVENT_TYPE.get(&entry), eqe::event::PORT_CHANGE as u32);
    assert_eq!(eqe::SUB_TYPE.get(&entry), eqe::port::DOWN as u32);
    assert_eq!(read(&bare, &mut record), Ok(8));
    assert_eq!(record[..8], 7u64.to_ne_bytes());
    let mut counted = [0; 8];
    assert_eq!(read(&count, &mut counted), Ok(8));
    assert_eq!(u64::from_ne_bytes(counted), 1);
    // Asked for in a wrong way.
    let list = |types: &[u16]| rig.subscribe(&whole, types).run(&rig.context);
    assert_eq!(list(&[]), Err(Errno::INVAL));
    assert_eq!(list(&[4]), Err(Errno::INVAL), "an event of an object, and no object");
    assert_eq!(list(&[9; 17]), Err(Errno::INVAL));
    assert_eq!(by_fd(rig.file.as_raw_fd()).run(&rig.context), Err(Errno::INVAL), "no eventfd");
    assert_eq!(by_fd(-1).run(&rig.context), Err(Errno::BADF));
    assert_eq!(cookie(by_fd(count.as_raw_fd()), 1).run(&rig.context), Err(Errno::INVAL));
    assert_eq!(rig.subscribe(&count, port).run(&rig.context), Err(Errno::BADF), "no channel");
    let flags = Request::new(ASYNC_EVENT_FD, 0).handle(0, 0).number(1, 2).run(&rig.context);
    assert_eq!(flags, Err(Errno::INVAL));
    // A closed end is no matter to the others.
    drop(whole);
    rig.fault("up");
    assert_eq!(read(&bare, &mut record), Ok(8));
}

#[test]
fn queues_are_made_armed_and_asked_about() {
    let rig = Rig::new();
    let memory = Box::new(Memory([0; 4096]));
    let (_, umem) = rig.register(&memory.0);
    let (_, uar, _) = rig.alloc_uar();
    let (handle, number) = rig.create_cq(umem, uar).unwrap();
    let channel = rig.event_channel(0);
    let asked = rig.subscribe(&channel, &[eqe::event::CQ_ERROR as u16, 0]).handle(1, handle);
    let mut asked = asked.input(4, &1u64.to_ne_bytes());
    asked.run(&rig.context).unwrap();
    let port = rig.subscribe(&channel, &[9]).handle(1, handle).run(&rig.context);
    assert_eq!(port, Err(Errno::INVAL), "an event of no object, and an object");
    // An answer that nobody waits for.
    let mut answers = Request::new(ASYNC_CMD_FD, 0).handle(0, 0);
    answers.run(&rig.context).unwrap();
    // SAFETY: the call made it for us.
    let answers = unsafe { OwnedFd::from_raw_fd(answers.word(0) as i32) };
    let query = header(Opcode::QueryCq as u16, number);
    let ask = |handle: u32, channel: &OwnedFd, bytes: u16| {
        Request::new(OBJ, 4)
            .handle(0, handle)
            .input(1, &query)
            .handle(2, channel.as_raw_fd() as u32)
            .input(3, &0x1234u64.to_ne_bytes())
            .input(4, &bytes.to_ne_bytes())
            .run(&rig.context)
    };
    ask(handle, &answers, 272).unwrap();
    let mut record = [0; 512];
    assert_eq!(read(&answers, &mut record), Ok(8 + 272));
    assert_eq!(record[..8], 0x1234u64.to_ne_bytes());
    let context = &record[8 + cq::CQC_OFFSET..8 + cq::CQC_OFFSET + cq::cqc::BYTES];
    assert_eq!(output::STATUS.get(&record[8..]), 0);
    assert_eq!(cq::cqc::LOG_CQ_SIZE.get(context), 4);
    assert_eq!(ask(handle, &channel, 272), Err(Errno::INVAL), "a channel of events");
    assert_eq!(ask(handle, &answers, 15), Err(Errno::INVAL));
    rig.destroy(handle).unwrap();
    assert_eq!(ask(handle, &answers, 272), Err(Errno::NOENT));
}

#[test]
fn what_a_file_leaves_goes_with_it() {
    let rig = Rig::new();
    let memory = Box::new(Memory([0; 4096]));
    let (_, umem) = rig.register(&memory.0);
    let (_, uar, _) = rig.alloc_uar();
    let (_, number) = rig.create_cq(umem, uar).unwrap();
    let nic = rig.context.nic();
    rig.context.close();
    let mut answer = [0; 272];
    nic.command(&header(Opcode::QueryCq as u16, number), &mut answer).unwrap();
    assert_ne!(output::STATUS.get(&answer), 0, "the queue is gone");
    // SAFETY: nothing uses it.
    let again = nic.with(|nic| unsafe { nic.register_umem(memory.0.as_ptr() as u64, 4096) }).unwrap();
    assert!(nic.with(|nic| nic.deregister_umem(umem)).is_err(), "the memory was given back");
    nic.with(|nic| nic.deregister_umem(again)).unwrap();
}
