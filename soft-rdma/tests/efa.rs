//! Soft EFAs: their files, their objects by ioctl, and calls that are anything but well-formed.

use crate::support::{Runtime, read};
use crate::uverbs::{any_call, call};
use proptest::test_runner::{Config, TestRunner};
use rustix::io::Errno;
use shunt_soft_machine::devices::{GidKind, Nic};
use shunt_soft_machine::kind::Kind;
use shunt_soft_machine::machine::Machine;
use shunt_soft_machine::settings::Settings;
use shunt_soft_uverbs::abi::Plain;
use shunt_soft_uverbs::abi::efa::{CreateCq, CreateCqResponse, CreateQp, CreateQpResponse, PdResponse};
use shunt_soft_uverbs::abi::uverbs::{ModifyQp, QpCap, QueryQp, QueryQpResponse};
use shunt_soft_uverbs::ioctl::Context;
use shunt_soft_uverbs::methods::run;

const INVOKE_WRITE: [u16; 2] = [0, 0];
const CQ: u16 = 3;
const QP: u16 = 4;
const PD: u16 = 1;
const ALLOC_PD: u64 = 3;
const QUERY_QP: u64 = 0x19;
const MODIFY_QP: u64 = 0x1a;
/// Driver data in and out.
const UHW: [u16; 2] = [0x1000, 0x1001];

fn start(runtime: &Runtime, nics: u32) -> &'static Machine {
    Machine::start(Settings { nics, kind: Kind::Efa, ..Settings::default() }, &runtime.0).unwrap()
}

fn nic(runtime: &Runtime) -> &'static Nic {
    &start(runtime, 1).nics()[0]
}

/// Where a value lies, for a call to read or write.
fn at<T>(value: &mut T) -> u64 {
    (&raw mut *value).expose_provenance() as u64
}

#[test]
fn files_are_those_that_libefa_looks_for() {
    let runtime = Runtime::new();
    let machine = start(&runtime, 2);
    let file = |name: &str| read(machine.sysfs_root(), name);
    let device = "sys/class/infiniband/efa_1";
    assert_eq!(file(&format!("{device}/device/vendor")), "0x1d0f");
    assert_eq!(file(&format!("{device}/device/device")), "0xefa1");
    assert!(file(&format!("{device}/device/modalias")).starts_with("pci:v00001D0Fd0000EFA1sv"));
    assert_eq!(file(&format!("{device}/node_type")), "7: unspecified");
    assert_eq!(file(&format!("{device}/ports/1/link_layer")), "Unspecified");
    assert_eq!(file("sys/class/infiniband_verbs/uverbs1/ibdev"), "efa_1");
    assert_eq!(file("sys/class/infiniband_verbs/uverbs1/abi_version"), "1");
    let driver = std::fs::read_link(machine.sysfs_root().join(device).join("device/driver")).unwrap();
    assert!(driver.ends_with("drivers/efa"), "{driver:?}");
    let gid = machine.nics()[1].gid(0).unwrap();
    assert_eq!((gid.kind, gid.interface), (GidKind::InfiniBand, 0));
    machine.close();
}

/// ALLOC_PD: its handle.
fn alloc_pd(context: &Context) -> u32 {
    let (mut handle, mut driver) = (0u32, PdResponse::default());
    let attributes = [(0, 8, 0), (1, 4, at(&mut handle)), (2, 4, ALLOC_PD), (UHW[1], 8, at(&mut driver))];
    let words = call(INVOKE_WRITE, &attributes);
    run(context, words.as_ptr() as u64).unwrap();
    handle
}

/// The handle that a create wrote into its first attribute.
fn handle(words: &[u64]) -> u32 {
    words[4] as u32
}

fn create_cq(context: &Context, cqe: u32, mut driver: CreateCq) -> Result<(u32, CreateCqResponse), Errno> {
    let (mut entries, mut response) = (0u32, CreateCqResponse::default());
    let attributes = [
        (0, 0, 0),
        (1, 4, cqe.into()),
        (2, 8, 77),
        (4, 4, 0),
        (6, 4, at(&mut entries)),
        (UHW[0], 16, at(&mut driver)),
        (UHW[1], 40, at(&mut response)),
    ];
    let words = call([CQ, 0], &attributes);
    run(context, words.as_ptr() as u64)?;
    Ok((handle(&words), response))
}

const WIDE: CreateCq = CreateCq { comp_mask: 0, entry_bytes: 32, sub_cqs: 1, flags: 2, reserved: [0; 5] };

fn create_qp(
    context: &Context,
    (pd, cq): (u32, u32),
    mut driver: CreateQp,
) -> Result<(u32, CreateQpResponse), Errno> {
    let mut cap = QpCap { max_send_wr: 64, max_recv_wr: 64, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
    let (mut qpn, mut response) = (0u32, CreateQpResponse::default());
    let mut caps = cap;
    let attributes = [
        (0, 0, 0),
        (2, 0, pd.into()),
        (4, 0, cq.into()),
        (5, 0, cq.into()),
        (7, 8, 78),
        (8, 20, at(&mut cap)),
        (9, 1, 0xff),
        (13, 20, at(&mut caps)),
        (14, 4, at(&mut qpn)),
        (UHW[0], 16, at(&mut driver)),
        (UHW[1], 64, at(&mut response)),
    ];
    let words = call([QP, 0], &attributes);
    run(context, words.as_ptr() as u64)?;
    Ok((handle(&words), response))
}

const SRD: CreateQp = CreateQp { comp_mask: 0, receive_bytes: 1024, send_bytes: 4096, driver_type: 0 };

fn destroy(context: &Context, object: u16, method: u16, handle: u32) -> Result<(), Errno> {
    let mut read = [0u32; 2];
    let attributes = [(0, 0, handle.into()), (1, 8, at(&mut read))];
    let attributes = if object == PD { &attributes[..1] } else { &attributes[..] };
    run(context, call([object, method], attributes).as_ptr() as u64)
}

fn modify(context: &Context, handle: u32, state: u8, mask: u32) -> Result<(), Errno> {
    let mut request = ModifyQp { handle, mask: mask | 1, state, port: 1, qkey: 5, ..ModifyQp::default() };
    let attributes = [(0, 112, at(&mut request)), (2, 4, MODIFY_QP)];
    run(context, call(INVOKE_WRITE, &attributes).as_ptr() as u64)
}

fn state(context: &Context, handle: u32) -> u8 {
    let mut request = QueryQp { handle, ..QueryQp::default() };
    let mut response = QueryQpResponse::default();
    let attributes = [(0, 16, at(&mut request)), (1, 128, at(&mut response)), (2, 4, QUERY_QP)];
    run(context, call(INVOKE_WRITE, &attributes).as_ptr() as u64).unwrap();
    // Written by the call, behind the compiler's back.
    QueryQpResponse::from_bytes(std::hint::black_box(&response).bytes()).state
}

#[test]
fn objects_are_made_changed_and_kept_while_others_use_them() {
    let runtime = Runtime::new();
    let nic = nic(&runtime);
    let (context, _fd) = Context::open(nic, true).unwrap();
    let pd = alloc_pd(&context);
    let (cq, response) = create_cq(&context, 100, WIDE).unwrap();
    assert_eq!((response.ring_bytes, response.comp_mask), (128 * 32, 1));
    let (qp, response) = create_qp(&context, (pd, cq), SRD).unwrap();
    let offsets = [response.send, response.send_doorbell, response.receive, response.receive_doorbell];
    let unique: std::collections::BTreeSet<u64> = offsets.into_iter().collect();
    assert_eq!((unique.len(), response.receive_bytes), (4, 4096));
    assert!(offsets.iter().all(|offset| offset % 4096 == 0));
    assert_eq!(destroy(&context, PD, 0, pd), Err(Errno::BUSY));
    assert_eq!(destroy(&context, CQ, 1, cq), Err(Errno::BUSY));
    assert_eq!(modify(&context, qp, 3, 0x1_0000), Err(Errno::INVAL), "from RESET to RTS");
    for (to, mask) in [(1, 0x70), (2, 0), (3, 0x1_0000), (6, 0), (0, 0)] {
        assert_eq!(modify(&context, qp, to, mask), Ok(()), "to {to}");
        assert_eq!(state(&context, qp), to);
    }
    let destroyed = [(QP, 1, qp), (CQ, 1, cq), (PD, 0, pd)];
    let destroyed = destroyed.map(|(object, method, handle)| destroy(&context, object, method, handle));
    assert_eq!(destroyed, [Ok(()); 3]);
    context.close();
}

#[test]
fn what_no_queue_is_like_is_refused() {
    let runtime = Runtime::new();
    let (context, _fd) = Context::open(nic(&runtime), true).unwrap();
    let pd = alloc_pd(&context);
    for (cqe, driver) in [
        (0, WIDE),
        (40_000, WIDE),
        (10, CreateCq { entry_bytes: 16, ..WIDE }),
        (10, CreateCq { sub_cqs: 2, ..WIDE }),
        (10, CreateCq { flags: 4, ..WIDE }),
    ] {
        assert_eq!(create_cq(&context, cqe, driver).err(), Some(Errno::INVAL), "{cqe} {driver:?}");
    }
    let (cq, _) = create_cq(&context, 10, WIDE).unwrap();
    for (driver, error) in [
        (CreateQp { send_bytes: 4095, ..SRD }, Errno::INVAL),
        (CreateQp { send_bytes: 64 * 3, ..SRD }, Errno::INVAL),
        (CreateQp { receive_bytes: 16 << 16, ..SRD }, Errno::INVAL),
        (CreateQp { driver_type: 1, ..SRD }, Errno::OPNOTSUPP),
    ] {
        assert_eq!(create_qp(&context, (pd, cq), driver).err(), Some(error), "{driver:?}");
    }
    assert_eq!(create_qp(&context, (pd, 99), SRD).err(), Some(Errno::NOENT));
    assert_eq!(create_qp(&context, (cq, cq), SRD).err(), Some(Errno::INVAL), "no protection domain");
    context.close();
}

#[test]
fn a_file_that_is_closed_leaves_nothing() {
    let runtime = Runtime::new();
    let nic = nic(&runtime);
    for _ in 0..3 {
        let (context, _fd) = Context::open(nic, true).unwrap();
        let pd = alloc_pd(&context);
        let (cq, _) = create_cq(&context, 10, WIDE).unwrap();
        create_qp(&context, (pd, cq), SRD).unwrap();
        context.close();
        // The lowest numbers are free again.
        assert_eq!(nic.with_srd(|device| device.add_pd()), Ok(Some(0)));
        assert_eq!(nic.with_srd(|device| device.remove_pd(0)), Ok(Ok(())));
        assert!(nic.with_srd(|device| (0..1024).all(|number| device.qp(number).is_none())).unwrap());
    }
}

#[test]
fn calls_that_are_anything_crash_no_soft_efa() {
    let runtime = Runtime::new();
    let (context, _fd) = Context::open(nic(&runtime), true).unwrap();
    let scratch = vec![0x2au64; 4096];
    let strategy = any_call(scratch.as_ptr() as u64, scratch.len() as u64 * 8);
    let config = Config { cases: 4000, failure_persistence: None, ..Config::default() };
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let judge = |words: Vec<u64>| {
        if descriptors() < before + 500 {
            let _ = run(&context, words.as_ptr() as u64);
        }
        Ok(())
    };
    TestRunner::new(config).run(&strategy, judge).unwrap();
    // It answers as before.
    let pd = alloc_pd(&context);
    assert_eq!(destroy(&context, PD, 0, pd), Ok(()));
    // What only a ConnectX has is none of its methods: DEVX, and shared receive queues.
    for object in [0x1000, 5] {
        assert_eq!(run(&context, call([object, 0], &[]).as_ptr() as u64), Err(Errno::PROTONOSUPPORT));
    }
    context.close();
}
