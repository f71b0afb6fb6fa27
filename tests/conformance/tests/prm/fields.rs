//! Every field of our tables against the field of the same name in the descriptions: place, reading and writing.

use crate::oracle::{Layout, Oracle, Place, Values, values};
use shunt_conformance::draw::Draw;
use shunt_layout::bits::{Field, Field64};
use shunt_layout::mlx5::eqe;
use shunt_layout::mlx5::prm::caps::{self, CAPABILITY_OFFSET};
use shunt_layout::mlx5::prm::cq::{CQC_OFFSET, cqc};
use shunt_layout::mlx5::prm::mkey::{MKC_OFFSET, mkc};
use shunt_layout::mlx5::prm::port::{HCA_VPORT_CONTEXT_OFFSET, hca_vport};
use shunt_layout::mlx5::prm::qp::{ADS_OFFSET, QPC_OFFSET, ads, qpc};
use shunt_layout::mlx5::prm::{cmd, cq, mkey, qp};

/// Random structures each way.
const ROUNDS: u32 = 200;

/// Fields of ours that are fields of theirs under other names, or cut otherwise.
struct Alias<'a> {
    ours: &'a [&'a str],
    theirs: &'a [&'a str],
    /// Bits at the bottom that only ours has: zero, since what it says is aligned, or small enough.
    spare: u32,
    /// Bits at the top that only ours has.
    above: u32,
}

const fn alias<'a>(ours: &'a [&'a str], theirs: &'a [&'a str]) -> Alias<'a> {
    Alias { ours, theirs, spare: 0, above: 0 }
}

/// One table of ours inside a class of theirs.
struct Table {
    /// Which part of the class: prefix of names, offset in bytes.
    part: (&'static str, usize),
    fields: &'static [(&'static str, Field)],
    wide: &'static [(&'static str, Field64)],
    aliases: Vec<Alias<'static>>,
    /// What the descriptions do not have.
    only_ours: &'static [&'static str],
}

/// A class of theirs and all we have of it.
struct Structure {
    class: &'static str,
    /// Values that choose between variants of the class.
    chosen: Values,
    tables: Vec<Table>,
}

/// Fields and 64-bit fields.
type Fields = (&'static [(&'static str, Field)], &'static [(&'static str, Field64)]);

const PATH: &str = "sw_qpc.primary_address_path.";

fn class(class: &'static str, tables: Vec<Table>) -> Structure {
    Structure { class, chosen: Values::new(), tables }
}

fn table(part: (&'static str, usize), (fields, wide): Fields) -> Table {
    Table { part, fields, wide, aliases: Vec::new(), only_ours: &[] }
}

/// The header of a command or an answer, and what the object in it is called.
fn header(fields: Fields, object: &'static [&'static str]) -> Table {
    match object {
        [] => Table { only_ours: &["OBJECT"], ..table(("", 0), fields) },
        _ => Table { aliases: vec![alias(&["OBJECT"], object)], ..table(("", 0), fields) },
    }
}

fn input(object: &'static [&'static str]) -> Table {
    header((cmd::input::ALL, cmd::input::ALL_WIDE), object)
}

fn output(object: &'static [&'static str]) -> Table {
    header((cmd::output::ALL, cmd::output::ALL_WIDE), object)
}

/// A QP context. Three fields came after these descriptions; there, bit 25 of dword 4 is `multi_path`.
fn queue_pair() -> Table {
    Table {
        only_ours: &["DP_ORDERING_0", "DP_ORDERING_FORCE", "DP_ORDERING_1"],
        ..table(("sw_qpc.", QPC_OFFSET), (qpc::ALL, qpc::ALL_WIDE))
    }
}

fn address_path() -> Table {
    Table {
        aliases: vec![
            alias(&["RGID_0"], &["rgid_rip.0"]),
            alias(&["RGID_1"], &["rgid_rip.1"]),
            alias(&["RGID_2"], &["rgid_rip.2"]),
            alias(&["RGID_3"], &["rgid_rip.3"]),
            alias(&["RMAC_47_32", "RMAC_31_0"], &["rmac"]),
        ],
        ..table((PATH, QPC_OFFSET + ADS_OFFSET), (ads::ALL, ads::ALL_WIDE))
    }
}

fn queue_pairs() -> Vec<Structure> {
    let create = Table {
        aliases: vec![alias(&["WQ_UMEM_OFFSET"], &["e_mtt_pointer_or_wq_umem_offset"])],
        only_ours: &["ECE"],
        ..table(("", 0), (qp::create::ALL, qp::create::ALL_WIDE))
    };
    let change = table(("", 0), (qp::change::ALL, qp::change::ALL_WIDE));
    vec![
        class("CreateQpIn", vec![input(&["input_qpn"]), create, queue_pair(), address_path()]),
        class("CreateQpOut", vec![output(&["qpn"])]),
        class("ModifyQpIn", vec![input(&["qpn"]), change, queue_pair(), address_path()]),
        class("ModifyQpOut", vec![output(&[])]),
        class("QueryQpIn", vec![input(&["qpn"])]),
        class("QueryQpOut", vec![output(&[]), queue_pair(), address_path()]),
    ]
}

fn other_objects() -> Vec<Structure> {
    let create_cq = Table {
        aliases: vec![alias(&["CQ_UMEM_OFFSET"], &["e_mtt_pointer_or_cq_umem_offset"])],
        ..table(("", 0), (cq::create::ALL, cq::create::ALL_WIDE))
    };
    let context = Table {
        aliases: vec![
            alias(&["CQE_COMP_EN"], &["cqe_compression_en"]),
            Alias { spare: 3, ..alias(&["DBR_ADDR"], &["db_record_addr_63_32", "db_record_addr_31_3"]) },
        ],
        ..table(("sw_cqc.", CQC_OFFSET), (cqc::ALL, cqc::ALL_WIDE))
    };
    let create_key = table(("", 0), (mkey::create::ALL, mkey::create::ALL_WIDE));
    let key = Table {
        // Later headers call it log_page_size and give it a sixth bit.
        aliases: vec![Alias { above: 1, ..alias(&["LOG_PAGE_SIZE"], &["log_entity_size"]) }],
        ..table(("sw_mkc.", MKC_OFFSET), (mkc::ALL, mkc::ALL_WIDE))
    };
    vec![
        class("AllocPdIn", vec![input(&[])]),
        class("AllocPdOut", vec![output(&["pd"])]),
        class("CreateCqIn", vec![input(&["cqn"]), create_cq, context]),
        class("CreateCqOut", vec![output(&["cqn"])]),
        class("CreateMkeyIn", vec![input(&["input_mkey_index"]), create_key, key]),
        class("CreateMkeyOut", vec![output(&["mkey_index"])]),
    ]
}

fn queries_and_events() -> Vec<Structure> {
    let event = |kind: u8, ours: Alias<'static>, only_ours| Structure {
        class: "SwEqe",
        chosen: values([("event_type", kind as u64)]),
        tables: vec![Table {
            aliases: vec![alias(&["SUB_TYPE"], &["event_sub_type"]), ours],
            only_ours,
            ..table(("", 0), (eqe::ALL, eqe::ALL_WIDE))
        }],
    };
    let caps = Table {
        // What is out of order was called "multi path" then; all out of order came later.
        aliases: vec![
            alias(&["LOG_MAX_SRQ"], &["log_max_srqs"]),
            alias(&["ECE_SUPPORT"], &["ece"]),
            alias(&["DP_ORDERING_OOO_RW_RC"], &["multi_path_rc_rdma"]),
        ],
        only_ours: &["DP_ORDERING_OOO_ALL_RC"],
        ..table(("capability.", CAPABILITY_OFFSET), (caps::general::ALL, &[]))
    };
    let port = table(("hca_vport_context.", HCA_VPORT_CONTEXT_OFFSET), (hca_vport::ALL, hca_vport::ALL_WIDE));
    vec![
        class("QueryHcaCapIn", vec![input(&[])]),
        class("QueryCmdHcaCapOut", vec![output(&[]), caps]),
        class("QueryHcaVportContextIn", vec![input(&[])]),
        class("QueryHcaVportContextOut", vec![output(&[]), port]),
        event(
            eqe::event::COMPLETION,
            alias(&["OBJECT"], &["event_data.cqn"]),
            &["EVENT_TYPE", "PORT_NUM", "QUEUE_TYPE", "CQ_ERROR_CQN"],
        ),
        event(
            eqe::event::CQ_ERROR,
            alias(&["CQ_ERROR_CQN"], &["event_data.cqn"]),
            &["EVENT_TYPE", "PORT_NUM", "OBJECT", "QUEUE_TYPE"],
        ),
        event(
            eqe::event::PORT_CHANGE,
            alias(&["PORT_NUM"], &["event_data.port_num"]),
            &["EVENT_TYPE", "OBJECT", "QUEUE_TYPE", "CQ_ERROR_CQN"],
        ),
    ]
}

/// A field of ours, of either width, in place.
#[derive(Clone, Copy)]
enum Ours {
    Narrow(Field),
    Wide(Field64),
}

impl Ours {
    fn place(self) -> Place {
        match self {
            Self::Narrow(field) => {
                Place { bit: field.offset * 8 + 31 - field.msb as usize, bits: field.msb - field.lsb + 1 }
            }
            Self::Wide(field) => Place { bit: field.offset * 8, bits: 64 },
        }
    }

    fn get(self, bytes: &[u8]) -> u64 {
        match self {
            Self::Narrow(field) => field.get(bytes) as u64,
            Self::Wide(field) => field.get(bytes),
        }
    }

    fn set(self, bytes: &mut [u8], value: u64) {
        match self {
            Self::Narrow(field) => field.set(bytes, value as u32),
            Self::Wide(field) => field.set(bytes, value),
        }
    }
}

/// The same bits under both names.
struct Pair {
    name: String,
    ours: Vec<Ours>,
    theirs: Vec<(String, u32)>,
    spare: u32,
}

impl Pair {
    fn ours(&self, bytes: &[u8]) -> u64 {
        self.ours.iter().fold(0, |sum, field| joined(sum, field.place().bits, field.get(bytes)))
    }

    fn theirs(&self, values: &Values) -> u64 {
        let sum = self.theirs.iter().fold(0, |sum, (name, bits)| joined(sum, *bits, values[name]));
        sum << self.spare
    }

    /// Bits that both have.
    fn bits(&self) -> u32 {
        self.theirs.iter().map(|(_, bits)| bits).sum()
    }

    /// Writes a value, the common bits of it, into our fields.
    fn set_ours(&self, bytes: &mut [u8], value: u64) {
        let mut value = value << self.spare;
        for field in self.ours.iter().rev() {
            let bits = field.place().bits;
            field.set(bytes, value & u64::MAX >> (64 - bits));
            value = value.checked_shr(bits).unwrap_or(0);
        }
    }
}

fn joined(high: u64, bits: u32, low: u64) -> u64 {
    high.checked_shl(bits).unwrap_or(0) | low
}

/// First bit and bits of neighbours taken as one.
fn span(what: &str, places: &[Place]) -> Place {
    let first = places[0];
    places[1..].iter().fold(first, |sum, place| {
        assert_eq!(sum.bit + sum.bits as usize, place.bit, "{what}: not neighbours");
        Place { bits: sum.bits + place.bits, ..sum }
    })
}

impl Table {
    fn ours(&self, name: &str) -> Ours {
        let base = self.part.1;
        let narrow = self.fields.iter().find(|(field, _)| *field == name);
        let wide = self.wide.iter().find(|(field, _)| *field == name);
        match (narrow, wide) {
            (Some((_, field)), _) => Ours::Narrow(field.within(base)),
            (None, Some((_, field))) => Ours::Wide(field.within(base)),
            (None, None) => panic!("no field {name}"),
        }
    }

    fn names(&self) -> Vec<&'static str> {
        let narrow = self.fields.iter().map(|(name, _)| *name);
        narrow.chain(self.wide.iter().map(|(name, _)| *name)).collect()
    }

    /// Matches names, and compares places on the way.
    fn pairs(&self, layout: &Layout) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for name in self.names() {
            if self.only_ours.contains(&name) {
                assert!(!layout.fields.contains_key(&self.theirs(name)), "{name} is in both");
            } else if self.aliases.iter().all(|alias| !alias.ours.contains(&name)) {
                let theirs = name.to_lowercase();
                pairs.push(self.pair(layout, &alias(&[name], &[&theirs])));
            }
        }
        pairs.extend(self.aliases.iter().map(|alias| self.pair(layout, alias)));
        pairs
    }

    fn theirs(&self, name: &str) -> String {
        format!("{}{}", self.part.0, name.to_lowercase())
    }

    fn pair(&self, layout: &Layout, alias: &Alias<'_>) -> Pair {
        let name = format!("{}{}", self.part.0, alias.ours.join(" "));
        let place = |theirs: &&str| {
            *layout.fields.get(&self.theirs(theirs)).unwrap_or_else(|| panic!("{name}: only ours has it"))
        };
        let ours: Vec<Ours> = alias.ours.iter().map(|name| self.ours(name)).collect();
        let our_places: Vec<Place> = ours.iter().map(|field| field.place()).collect();
        let their_places: Vec<Place> = alias.theirs.iter().map(place).collect();
        let common = span(&name, &their_places);
        let bits = common.bits + alias.above + alias.spare;
        let want = Place { bit: common.bit - alias.above as usize, bits };
        assert_eq!(span(&name, &our_places), want, "{name}: place");
        let named =
            alias.theirs.iter().zip(&their_places).map(|(name, place)| (self.theirs(name), place.bits));
        Pair { ours, theirs: named.collect(), spare: alias.spare, name }
    }
}

/// They write, we read: every field of theirs is noise.
fn they_write(oracle: &mut Oracle, structure: &Structure, layout: &Layout, pairs: &[Pair], draw: &mut Draw) {
    let mut values = structure.chosen.clone();
    for (name, place) in &layout.fields {
        values.insert(name.clone(), draw.bits(place.bits));
    }
    let bytes = oracle.build(structure.class, &values);
    for pair in pairs {
        assert_eq!(pair.ours(&bytes), pair.theirs(&values), "{} {}: read", structure.class, pair.name);
    }
}

/// We write, they read: what they read is all there is.
fn we_write(oracle: &mut Oracle, structure: &Structure, layout: &Layout, pairs: &[Pair], draw: &mut Draw) {
    let mut bytes = oracle.build(structure.class, &structure.chosen);
    for pair in pairs {
        let value = draw.bits(pair.bits());
        pair.set_ours(&mut bytes, value);
    }
    let values = oracle.parse(structure.class, &bytes);
    for pair in pairs {
        assert_eq!(pair.theirs(&values), pair.ours(&bytes), "{} {}: written", structure.class, pair.name);
    }
    for name in layout.fields.keys().filter(|name| !matched(pairs, name)) {
        assert_eq!(values[name], 0, "{} {name} was not written", structure.class);
    }
}

fn matched(pairs: &[Pair], name: &str) -> bool {
    pairs.iter().any(|pair| pair.theirs.iter().any(|(theirs, _)| theirs == name))
}

fn compare(structures: Vec<Structure>) {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut draw = Draw::new(0x5eed);
    for structure in structures {
        let layout = oracle.layout(structure.class, &structure.chosen);
        let pairs: Vec<Pair> = structure.tables.iter().flat_map(|table| table.pairs(&layout)).collect();
        let only_ours: Vec<&str> =
            structure.tables.iter().flat_map(|table| table.only_ours).copied().collect();
        let only_theirs: Vec<&String> = layout.fields.keys().filter(|name| !matched(&pairs, name)).collect();
        println!(
            "{} ({} bytes): {} fields compared; only ours: {}; only theirs: {only_theirs:?}",
            structure.class,
            layout.bytes,
            pairs.len(),
            only_ours.join(" "),
        );
        for _ in 0..ROUNDS {
            they_write(&mut oracle, &structure, &layout, &pairs, &mut draw);
            we_write(&mut oracle, &structure, &layout, &pairs, &mut draw);
        }
    }
}

#[test]
fn queue_pairs_and_what_moves_them() {
    compare(queue_pairs());
}

#[test]
fn domains_keys_and_completion_queues() {
    compare(other_objects());
}

#[test]
fn capabilities_ports_and_events() {
    compare(queries_and_events());
}

#[test]
fn a_field_that_is_moved_is_noticed() {
    let Some(mut oracle) = Oracle::start() else { return };
    static MOVED: &[(&str, Field)] = &[("CQN", Field::new(0x08, 24, 1))];
    let layout = oracle.layout("CreateCqIn", &Values::new());
    let judged = std::panic::catch_unwind(|| table(("", 0), (MOVED, &[])).pairs(&layout).len());
    assert!(judged.is_err(), "a field one bit off was taken as the same");
}
