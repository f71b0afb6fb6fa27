//! Inventory and ranking from folders as they are on a machine: links, padding by tar, links that lead out, pipes; and
//! properties of the ranking on random machines.

use proptest::prelude::*;
use shunt_topology::discover::{Inventory, SysRoot, discover};
use shunt_topology::topology::select::Selection;
use shunt_topology::topology::{Topology, Why, rank};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> String {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/topology").join(format!("{name}.tree"));
    fs::read_to_string(path).unwrap()
}

/// An empty folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("discover-{name}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path.canonicalize().unwrap()
}

/// Writes a listing as files and relative links; `end` comes behind the text of every file.
fn expand(listing: &str, root: &Path, end: &[u8]) {
    let lines = || listing.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines() {
        if let Some((path, target)) = line.split_once(" => ") {
            let (path, target) = (root.join(path), root.join(target));
            fs::create_dir_all(&target).unwrap();
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            // As sysfs has them: up to the root, and down again.
            let up = "../".repeat(path.parent().unwrap().strip_prefix(root).unwrap().components().count());
            symlink(format!("{up}{}", target.strip_prefix(root).unwrap().display()), path).unwrap();
        }
    }
    for line in lines() {
        if let Some((path, text)) = line.split_once(" = ") {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, [format!("{}\n", text.replace("\\n", "\n")).as_bytes(), end].concat()).unwrap();
        } else if let Some(path) = line.strip_suffix('/') {
            fs::create_dir_all(root.join(path)).unwrap();
        }
    }
}

fn inventory(listing: &str) -> Inventory {
    discover(&SysRoot::from_listing(listing).unwrap())
}

#[test]
fn a_folder_says_what_its_listing_says() {
    for name in ["dgx-h100", "dual-port-4x2", "bond", "virtual-functions", "no-gpu"] {
        // Without what a listing can hold and a folder made by anybody cannot.
        let text: Vec<String> =
            fixture(name).lines().filter(|line| !line.starts_with("dev/")).map(str::to_owned).collect();
        let text = text.join("\n");
        let root = folder(name);
        expand(&text, &root, b"");
        let opened = SysRoot::open(&root).unwrap();
        let found = discover(&opened);
        assert_eq!(found, inventory(&text), "{name}");
        // What was read is saved, and says the same without the folder.
        assert_eq!(inventory(&opened.listing()), found, "{name}");
    }
}

#[test]
fn copies_padded_by_tar_are_read() {
    let root = folder("padded");
    let text = fixture("shared-nic");
    expand(&text, &root, &[0; 512]);
    assert_eq!(discover(&SysRoot::open(&root).unwrap()).rdma[0], inventory(&text).rdma[0]);
}

#[test]
fn links_out_of_the_root_and_pipes_are_noted_and_not_followed() {
    let (root, outside) = (folder("inside"), folder("outside"));
    fs::write(outside.join("secret"), "6: SECRET").unwrap();
    fs::write(outside.join("class"), "0x030200").unwrap();
    expand(&fixture("shared-nic"), &root, b"");
    let ports = root.join("sys/class/infiniband/mlx5_0/ports/1");
    fs::remove_file(ports.join("phys_state")).unwrap();
    symlink(outside.join("secret"), ports.join("phys_state")).unwrap();
    fs::remove_file(ports.join("rate")).unwrap();
    nix::unistd::mkfifo(&ports.join("rate"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    symlink(&outside, root.join("sys/bus/pci/devices/0000:77:00.0")).unwrap();
    let found = discover(&SysRoot::open(&root).unwrap());
    let port = &found.rdma[0].ports[0];
    assert_eq!((port.physical.as_str(), &port.rate), ("", &None));
    assert_eq!(found.gpus.len(), 2);
    let odd =
        |path: &str, met: &str| found.odd.iter().any(|odd| odd.path.contains(path) && odd.met.contains(met));
    assert!(odd("phys_state", "out of the root"), "{:?}", found.odd);
    assert!(odd("rate", "not a plain file"), "{:?}", found.odd);
    assert!(odd("0000:77:00.0", "out of the root"), "{:?}", found.odd);
}

#[test]
fn an_empty_root_is_an_empty_inventory() {
    let found = discover(&SysRoot::open(&folder("empty")).unwrap());
    assert_eq!(found, Inventory::default());
    assert_eq!(
        rank(&found, &Selection::default(), 2).unwrap(),
        Topology { backups: 2, ..Topology::default() }
    );
}

#[test]
fn the_load_of_each_rank_is_even() {
    for (name, gpus) in [("roce-8x1", 8), ("dual-port-4x2", 8), ("dgx-h100", 8)] {
        let topology = rank(&inventory(&fixture(name)), &Selection::default(), 3).unwrap();
        for at in 0..4 {
            let mut load: BTreeMap<usize, u32> = BTreeMap::new();
            for gpu in &topology.gpus {
                *load.entry(gpu.rails[at].rail).or_default() += 1;
            }
            assert!(
                load.len() == gpus && load.values().all(|gpus| *gpus == 1),
                "{name}, rank {at}: {load:?}"
            );
        }
    }
}

/// A machine with switches on two nodes; each has some GPUs and some one- or two-port cards, ports up or down.
fn machine() -> impl Strategy<Value = String> {
    let switch = (0usize..3, proptest::collection::vec((any::<bool>(), 0u8..8), 0..3));
    proptest::collection::vec(switch, 1..6).prop_map(|switches| {
        let mut text = String::new();
        let mut nics = 0;
        for (s, (gpus, cards)) in switches.iter().enumerate() {
            let (bus, numa) = (16 * (s + 1), s % 2);
            let base = format!("sys/devices/pci0000:{bus:02x}/0000:{bus:02x}:01.0/0000:{:02x}:00.0", bus + 1);
            let mut device = |at: usize, function: usize, vendor: &str, class: &str| {
                let address = format!("0000:{:02x}:00.{function}", bus + 3 + at);
                let real = format!("{base}/0000:{:02x}:{at:02x}.0/{address}", bus + 2);
                text += &format!("sys/bus/pci/devices/{address} => {real}\n{real}/class = {class}\n");
                text += &format!("{real}/vendor = {vendor}\n{real}/numa_node = {numa}\n");
                real
            };
            for gpu in 0..*gpus {
                device(gpu, 0, "0x10de", "0x030200");
            }
            let mut ports = Vec::new();
            for (card, (two, states)) in cards.iter().enumerate() {
                for function in 0..=usize::from(*two) {
                    let real = device(4 + card, function, "0x15b3", "0x020000");
                    ports.push((real, format!("{:04x}", 1 + 16 * s + card), states >> function & 1 == 0));
                }
            }
            for (real, card, up) in ports {
                let nic = format!("sys/class/infiniband/mlx5_{nics}");
                nics += 1;
                text += &format!("{nic}/device => {real}\n{nic}/sys_image_guid = {card}:0000:0000:0001\n");
                text += &format!("{nic}/ports/1/state = {}\n", if up { "4: ACTIVE" } else { "1: DOWN" });
                text += &format!(
                    "{nic}/ports/1/link_layer = Ethernet\n{nic}/ports/1/rate = 400 Gb/sec (4X NDR)\n"
                );
                text += &format!("{nic}/ports/1/gids/0 = 0000:0000:0000:0000:0000:ffff:0a00:{nics:04x}\n");
                text += &format!("{nic}/ports/1/gid_attrs/types/0 = RoCE v2\n");
            }
        }
        text
    })
}

proptest! {
    #[test]
    fn rankings_of_random_machines(text in machine(), backups in 0u32..4, by_rank: bool) {
        let inventory = inventory(&text);
        let selection = Selection { by_rank, ..Selection::default() };
        let topology = rank(&inventory, &selection, backups).unwrap();
        prop_assert_eq!(topology.gpus.len(), inventory.gpus.len());
        for gpu in &topology.gpus {
            // Every rail once; those that cannot be used last.
            let mut seen: Vec<usize> = gpu.rails.iter().map(|rail| rail.rail).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..topology.rails.len()).collect::<Vec<_>>());
            let usable = gpu.usable().count();
            for (at, ranked) in gpu.rails.iter().enumerate() {
                prop_assert_eq!(topology.rails[ranked.rail].trouble.is_some(), at >= usable);
                prop_assert_eq!(ranked.why == Why::Unusable, at >= usable);
            }
            // Degraded is said.
            let said = gpu.notes.join("\n");
            prop_assert_eq!(usable == 0, said.contains("no rail"));
            prop_assert_eq!(usable == 1 || (usable > 1 && backups == 0), said.contains("starts degraded"));
            // By distance: nothing nearer than the primary is up, but what its own down port stands for.
            if let (Some(primary), false) = (gpu.primary(), by_rank) {
                if primary.why == Why::Nearest {
                    prop_assert!(gpu.usable().all(|rail| rail.distance >= primary.distance), "{:?}", gpu);
                }
                let card = topology.rails[primary.rail].card;
                let sibling = gpu.usable().skip(1).any(|rail| topology.rails[rail.rail].card == card);
                if sibling && primary.why == Why::Nearest {
                    prop_assert_eq!(topology.rails[gpu.rails[1].rail].card, card);
                }
            }
        }
    }
}
