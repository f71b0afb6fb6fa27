//! An uplink that tells of its interfaces' links: a port without one is down, whatever faults say.

use crate::rig::{End, Options, Rig, good, header};
use shunt_layout::mlx5::eqe;
use shunt_layout::mlx5::prm::cmd::Opcode as Cmd;
use shunt_layout::mlx5::prm::port::vport_state;
use shunt_layout::mlx5::wqe::{Opcode, inline8};
use shunt_soft_nic::uplink::AddressId;
use shunt_soft_nic::{Uplink, UplinkCounters, UplinkError};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex};

/// Links of addresses that are to be told next.
type News = Arc<Mutex<Vec<(u128, bool)>>>;

/// An uplink to nobody.
struct Nowhere {
    socket: UnixDatagram,
    news: News,
}

impl Uplink for Nowhere {
    fn own(&mut self, _address: u128, _mac: u64) -> Result<(), UplinkError> {
        Ok(())
    }
    fn address(&mut self, _address: u128) -> AddressId {
        AddressId(0)
    }
    fn send(&mut self, _to: AddressId, _write: &mut dyn FnMut(&mut Vec<u8>)) {}
    fn flush(&mut self) {}
    fn receive(&mut self, _take: &mut dyn FnMut(&[u8])) -> bool {
        false
    }
    fn link_changes(&mut self, tell: &mut dyn FnMut(u128, bool)) {
        self.news.lock().unwrap().drain(..).for_each(|(address, link)| tell(address, link));
    }
    fn is_full(&self, _to: AddressId) -> bool {
        false
    }
    fn turns(&self) -> u64 {
        0
    }
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
    fn counters(&self) -> UplinkCounters {
        UplinkCounters::default()
    }
}

struct Wired {
    rig: Rig,
    news: News,
}

impl Wired {
    fn new() -> (Self, End, End) {
        let mut rig = Rig::new(1);
        let (a, b) = rig.pair(0, 1, Options::default());
        let news = News::default();
        let uplink = Nowhere { socket: UnixDatagram::unbound().unwrap(), news: news.clone() };
        rig.fabric.attach(Box::new(uplink)).unwrap();
        (Self { rig, news }, a, b)
    }

    /// The interface of a host's NIC has a link, or has not.
    fn link(&mut self, host: usize, link: bool) {
        let nic = self.rig.hosts[host].nic;
        let address = u128::from_be_bytes(self.rig.fabric.nic(nic).config().gid);
        self.news.lock().unwrap().push((address, link));
        self.rig.run_for(1_000);
    }

    fn port(&mut self, host: usize) -> bool {
        let nic = self.rig.hosts[host].nic;
        vport_state::STATE.get(&self.rig.command(nic, &header(Cmd::QueryVportState, 0), 16)) == 1
    }

    fn events(&mut self, host: usize) -> Vec<u8> {
        self.rig.run_for(100_000);
        let (nic, now) = (self.rig.hosts[host].nic, self.rig.now);
        std::iter::from_fn(|| self.rig.fabric.nic(nic).next_event(now))
            .filter(|entry| eqe::EVENT_TYPE.get(entry) == eqe::event::PORT_CHANGE as u32)
            .map(|entry| eqe::SUB_TYPE.get(&entry) as u8)
            .collect()
    }
}

#[test]
fn a_link_that_goes_takes_the_port_and_its_packets_with_it() {
    for host in [0, 1] {
        let (mut wired, mut a, _b) = Wired::new();
        wired.link(host, false);
        assert_eq!((wired.port(host), wired.port(1 - host)), (false, true));
        assert_eq!(wired.events(host), [eqe::port::DOWN]);
        let remote = wired.rig.remote(1, 64);
        a.post(Opcode::RdmaWrite, &[remote, inline8(77)]);
        wired.rig.ring(&a);
        wired.rig.run_for(1_000_000);
        assert_eq!(
            wired.rig.hosts[1].heap.get64(64),
            0,
            "nothing leaves a port without a link, or enters it"
        );
        wired.link(host, true);
        assert_eq!(wired.rig.complete(&mut a, 1), [good(0, Opcode::RdmaWrite)]);
        assert_eq!(wired.rig.hosts[1].heap.get64(64), 77);
        assert_eq!(wired.events(host), [eqe::port::ACTIVE]);
    }
}

#[test]
fn a_port_is_up_when_neither_fault_nor_interface_has_it_down() {
    let (mut wired, _a, _b) = Wired::new();
    wired.rig.inject(0, "down");
    wired.link(0, false);
    assert_eq!(wired.events(0), [eqe::port::DOWN], "down once");
    wired.rig.inject(0, "up");
    assert!(!wired.port(0));
    assert_eq!(wired.events(0), []);
    wired.link(0, true);
    wired.link(0, true);
    assert!(wired.port(0));
    assert_eq!(wired.events(0), [eqe::port::ACTIVE], "up once");
}
