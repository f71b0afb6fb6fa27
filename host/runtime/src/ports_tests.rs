//! Ports by machine: without GPUs, with them, by NVSHMEM's mapping, and machines that have too few.

use super::*;
use shunt_host::discover::{SysRoot, discover};

/// A machine without GPUs whose devices have these ports, up or down.
fn machine(devices: &[&[bool]]) -> Inventory {
    let mut text = String::new();
    for (number, ports) in devices.iter().enumerate() {
        let base = format!("sys/class/infiniband/mlx5_{number}");
        text += &format!("{base}/node_guid = 0c42:a103:00aa:000{number}\n");
        text += &format!("{base}/sys_image_guid = 0c42:a103:00aa:000{number}\n");
        for (port, up) in (1..).zip(*ports) {
            let state = if *up { "state = 4: ACTIVE" } else { "state = 1: DOWN" };
            let port = format!("{base}/ports/{port}");
            text += &format!("{port}/{state}\n{port}/rate = 400 Gb/sec (4X NDR)\n");
            text += &format!("{port}/link_layer = Ethernet\n{port}/gid_attrs/types/3 = RoCE v2\n");
            text += &format!("{port}/gids/3 = 0000:0000:0000:0000:0000:ffff:0a00:000{number}\n");
        }
    }
    discover(&SysRoot::from_listing(&text).unwrap())
}

fn fixture(name: &str) -> Inventory {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/topology");
    let text = std::fs::read_to_string(format!("{folder}/{name}.tree")).unwrap();
    discover(&SysRoot::from_listing(&text).unwrap())
}

fn selection(pairs: &[(&str, &str)]) -> Selection {
    let find = |name: &str| pairs.iter().find(|(key, _)| *key == name);
    Selection::from_lookup(&|name| find(name).map(|(_, value)| (*value).to_owned())).unwrap()
}

fn ranked(inventory: Inventory, rails: u32, pairs: &[(&str, &str)]) -> Result<Ports, NoPorts> {
    Ports::rank(inventory, selection(pairs), rails)
}

fn names(ports: &Ports, pes: usize) -> Vec<String> {
    let name = |ports: Vec<Port>| ports.into_iter().map(|port| port.device).collect::<Vec<_>>().join(" ");
    ports.of_pes(pes).into_iter().map(name).collect()
}

#[test]
fn pes_share_nothing_where_there_is_enough_and_start_apart_where_there_is_not() {
    let up: &[bool] = &[true];
    let ports = ranked(machine(&[up; 4]), 2, &[]).unwrap();
    assert_eq!(names(&ports, 1), ["mlx5_0 mlx5_1"]);
    assert_eq!(names(&ports, 2), ["mlx5_0 mlx5_1", "mlx5_2 mlx5_3"]);
    let ports = ranked(machine(&[up; 2]), 2, &[]).unwrap();
    assert_eq!(names(&ports, 2), ["mlx5_0 mlx5_1", "mlx5_1 mlx5_0"]);
    let first = &ports.of_pes(1)[0][0];
    assert_eq!((first.mbps, first.gid_index, ports.slowest_gbps()), (400_000, Some(3), 400.0));
}

#[test]
fn a_pe_takes_what_its_gpu_would() {
    let ports = ranked(fixture("dgx-h100"), 2, &[]).unwrap();
    let named = names(&ports, 2);
    assert_eq!(named.len(), 2);
    let primary = |pe: &String| pe.split(' ').next().unwrap().to_owned();
    assert_ne!(primary(&named[0]), primary(&named[1]), "each GPU has a port of its own: {named:?}");
    // More PEs than GPUs: they begin again.
    assert_eq!(names(&ports, 9)[8], named[0]);
}

#[test]
fn the_environment_is_honoured() {
    let up: &[bool] = &[true];
    let list = [("NVSHMEM_HCA_LIST", "mlx5_3,mlx5_1")];
    assert_eq!(names(&ranked(machine(&[up; 4]), 2, &list).unwrap(), 1), ["mlx5_1 mlx5_3"]);
    let mapping =
        [("NVSHMEM_HCA_PE_MAPPING", "mlx5_2:1:1,mlx5_0:1:1"), ("NVSHMEM_ENABLE_NIC_PE_MAPPING", "1")];
    assert_eq!(names(&ranked(machine(&[up; 4]), 1, &mapping).unwrap(), 2), ["mlx5_2", "mlx5_0"]);
    let nothing = [("NVSHMEM_HCA_LIST", "mlx5_9")];
    let error = ranked(machine(&[up; 2]), 1, &nothing).unwrap_err().to_string();
    assert!(error.contains("NVSHMEM_HCA_LIST=mlx5_9") && error.contains("mlx5_0:1, mlx5_1:1"), "{error}");
}

#[test]
fn too_few_ports_are_named_with_what_is_there() {
    assert_eq!(ranked(machine(&[]), 1, &[]).unwrap_err(), NoPorts::NoDevice);
    let error = ranked(machine(&[&[true], &[false]]), 2, &[]).unwrap_err();
    let text = error.to_string();
    for part in ["expected at most 1, got 2", "1 (mlx5_0:1) can be used", "not mlx5_1:1: port DOWN"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(matches!(error, NoPorts::TooFew { down: true, .. }), "it could come up: {error:?}");
    let error = ranked(machine(&[&[true, true]]), 2, &[]).unwrap_err();
    assert!(error.to_string().contains("mlx5_0:2: only port 1 of a device is opened"), "{error}");
    assert!(matches!(error, NoPorts::TooFew { down: false, .. }), "{error:?}");
    let error = ranked(fixture("bond-only"), 1, &[]).unwrap_err().to_string();
    assert!(error.contains("no port can be used") && error.contains("bond0"), "{error}");
}

#[test]
fn as_many_as_there_are_up_to_a_bound() {
    let up: &[bool] = &[true];
    let none = Selection::default;
    let ranked = |machine, most| Ports::rank_at_most(machine, none(), most).map(|ports| ports.rails());
    assert_eq!(ranked(machine(&[up; 4]), 2), Ok(2));
    assert_eq!(ranked(machine(&[up, &[false]]), 2), Ok(1));
    assert!(matches!(ranked(machine(&[&[false]]), 2), Err(NoPorts::TooFew { down: true, .. })));
    assert_eq!(ranked(machine(&[]), 2), Err(NoPorts::NoDevice));
}

#[test]
fn processes_with_the_same_devices_know_it() {
    let up: &[bool] = &[true];
    let [two, also, three] = [2, 2, 3].map(|n| ranked(machine(&vec![up; n]), 1, &[]).unwrap().identity());
    assert!(two == also && two != three && !two.is_empty());
}
