//! Ranks of one process on soft NICs: while ports fail, and broken on purpose, which the check must notice.

use shunt::soft_nic::{FaultKind, RailAt};
use shunt_layout::moe::Shape;
use shunt_moe_proxy::buffers::Buffers;
use shunt_moe_proxy::ground::{Ground, Memory};
use shunt_moe_proxy::model::Model;
use shunt_moe_proxy::plan::What;
use shunt_moe_proxy::rank::{Point, Ran, Rank, doubled};
use shunt_transfer::{NicKind, Node, Place, Source, Wish};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const RANKS: u32 = 3;
const LAYERS: u64 = 6;
const SEED: u64 = 11;

fn buffers() -> Buffers {
    let shape = Shape::new(RANKS, 6, 16, 512).expect("a shape");
    Buffers { shape, topk: 3, private: 2, rails: 2, piece_min: 4096 }
}

/// Held by a run, so that runs do not take each other's processors.
static RUN: Mutex<()> = Mutex::new(());

/// Looks at a point of a layer of a rank: the model is there to find rows by.
type Look = fn(&Model, Point, u64, &Node, &Ground);

/// What came of all ranks, and immediates that came once too often.
fn run(layers: u64, look: Look) -> (Vec<Ran>, u64, u64) {
    let _alone = RUN.lock().unwrap_or_else(PoisonError::into_inner);
    let source =
        Source::find(Wish { nic: NicKind::Soft, rails: 2, soft_gbps: 1.0 }).expect("software is there");
    let nodes = Node::start(Place::alone(&source, RANKS).expect("NICs"), 2).expect("connected");
    let all: Vec<u32> = (0..RANKS).collect();
    let model = Arc::new(Model::new(buffers().shape, buffers().topk, SEED, &all));
    let ranks = nodes.into_iter().map(|node| {
        let model = model.clone();
        std::thread::spawn(move || {
            let node = Arc::new(node);
            let rank = Rank::new(node.clone(), 2, buffers()).expect("memory");
            let mut look =
                |point, layer, node: &Node, ground: &Ground| look(&model, point, layer, node, ground);
            let ran = rank.layers(&model, layers, &mut look, &|_| {});
            node.exchange(&[]).expect("all are there");
            let doubled = doubled(&node, layers).expect("open");
            (ran, doubled, node.counts().expect("open").closed)
        })
    });
    let ranks: Vec<_> = ranks.collect();
    let (mut all, mut twice, mut failovers) = (Vec::new(), 0, 0);
    for rank in ranks {
        let (ran, doubled, closed) = rank.join().expect("a rank does not panic");
        all.push(ran);
        (twice, failovers) = (twice + doubled, failovers + closed);
    }
    (all, twice, failovers)
}

fn sum(all: &[Ran], of: fn(&Ran) -> u64) -> u64 {
    all.iter().map(of).sum()
}

/// What stands in memory that nothing was written to.
const MARK: u8 = 0xa5;

fn flip(memory: &Memory, at: u64) {
    let mut byte = [0];
    memory.read(at, &mut byte).expect("inside");
    memory.write(at, &[byte[0] ^ 1]).expect("inside");
}

/// A rank that sends rows to rank 0 in a layer.
fn source(model: &Model, layer: u64) -> Option<u32> {
    model.due(layer, 0).iter().map(|due| due.source).find(|source| *source != 0)
}

/// At rank 0, in layer 2: whose rows are there.
fn at_rank_0(model: &Model, (point, want): (Point, Point), layer: u64, node: &Node) -> Option<u32> {
    (node.end() == 0 && layer == 2 && point == want).then(|| source(model, layer).expect("rows of another"))
}

#[test]
fn layers_are_whole_while_a_port_goes_down_and_comes_back() {
    const MANY: u64 = 40;
    let look: Look = |_, point, layer, node, _| {
        let fail = |kind| {
            let at = RailAt { pe: 1, rail: 0 };
            node.place().nics.inject(at, kind).expect("a soft NIC");
        };
        match (node.end(), point, layer) {
            (1, Point::Packed, 5) => fail(FaultKind::Down { for_ns: None }),
            (1, Point::Packed, 20) => fail(FaultKind::Up),
            // Time for the rail to come back.
            (1, Point::Read, 20) => std::thread::sleep(Duration::from_millis(300)),
            _ => {}
        }
    };
    let (all, doubled, failovers) = run(MANY, look);
    for ran in &all {
        assert_eq!((&ran.failure, ran.seen.layers, ran.seen.wrong()), (&None, MANY, 0), "{ran:?}");
        assert_eq!(ran.times.len() as u64, MANY);
    }
    assert!(failovers > 0 && doubled == 0, "{failovers} {doubled}");
    assert!(all[1].layers_rail_down > 0, "{}", all[1].layers_rail_down);
    let rows = |of: fn(&Ran) -> u64| sum(&all, of) > 0;
    assert!(rows(|ran| ran.seen.rows_own), "its own");
    assert!(rows(|ran| ran.seen.rows_private) && rows(|ran| ran.seen.rows_contiguous));
}

/// The NIC of a receiver does not say what it has executed: without the others' help the fate of a write is not known.
#[test]
fn a_nic_that_is_gone_costs_no_row_and_no_immediate() {
    const MANY: u64 = 12;
    let look: Look = |_, point, layer, node, _| {
        if (node.end(), point, layer) == (1, Point::Packed, 4) {
            let (at, gone) = (RailAt { pe: 1, rail: 0 }, FaultKind::NicGone { for_ns: None });
            node.place().nics.inject(at, gone).expect("a soft NIC");
        }
    };
    for _ in 0..5 {
        let (all, doubled, failovers) = run(MANY, look);
        for ran in &all {
            assert_eq!((&ran.failure, ran.seen.layers, ran.seen.wrong()), (&None, MANY, 0), "{ran:?}");
        }
        assert_eq!(doubled, 0);
        if failovers > 0 {
            return;
        }
    }
    panic!("expected a lane that is left, in one of 5 runs");
}

#[test]
fn a_byte_of_a_row_is_noticed_wherever_it_changes() {
    let arrived: Look = |model, point, layer, node, ground| {
        if let Some(source) = at_rank_0(model, (point, Point::Arrived), layer, node) {
            flip(&ground.receive, ground.buffers.private(source, 0) + ground.buffers.row_bytes() - 1);
        }
    };
    let (all, ..) = run(LAYERS, arrived);
    assert_eq!((all[0].seen.rows_wrong, sum(&all, |ran| ran.seen.rows_wrong)), (1, 1));
    // The header, at the source: which expert gets it is the routes' business.
    let packed: Look = |_, point, layer, node, ground| {
        if (node.end(), layer, point) == (2, 3, Point::Packed) {
            flip(&ground.send, ground.buffers.row(0) + 12);
        }
    };
    let (all, ..) = run(LAYERS, packed);
    assert_eq!(sum(&all, |ran| ran.seen.rows_wrong), 1);
}

#[test]
fn a_row_that_does_not_come_is_missing() {
    let look: Look = |model, point, layer, node, ground| {
        if let Some(source) = at_rank_0(model, (point, Point::Arrived), layer, node) {
            let row = vec![MARK; ground.buffers.row_bytes() as usize];
            ground.receive.write(ground.buffers.private(source, 0), &row).expect("inside");
        }
    };
    let (all, ..) = run(LAYERS, look);
    assert_eq!((sum(&all, |ran| ran.seen.rows_missing), sum(&all, |ran| ran.seen.rows_wrong)), (1, 0));
}

#[test]
fn a_row_that_a_rank_does_not_count_is_missing() {
    let look: Look = |_, point, layer, node, ground| {
        if (node.end(), layer, point) == (1, 2, Point::Packed) {
            let mut counts = vec![0; ground.buffers.counts_bytes() as usize];
            ground.send.read(0, &mut counts).expect("inside");
            let last = (0..counts.len()).step_by(4).rfind(|at| counts[*at] > 0).expect("it sends rows");
            counts[last] -= 1;
            ground.send.write(0, &counts).expect("inside");
        }
    };
    let (all, ..) = run(LAYERS, look);
    assert!(sum(&all, |ran| ran.seen.rows_missing) >= 1, "{all:?}");
}

#[test]
fn a_value_that_comes_back_changed_is_noticed() {
    let look: Look = |_, point, layer, node, ground| {
        if (node.end(), layer, point) == (2, 4, Point::Returned) {
            // The sign of its first channel.
            let mut byte = [0];
            let at = ground.buffers.returned(0) + 1;
            ground.receive.read(at, &mut byte).expect("inside");
            ground.receive.write(at, &[byte[0] ^ 0x80]).expect("inside");
        }
    };
    let (all, ..) = run(LAYERS, look);
    assert_eq!((all[2].seen.values_wrong, sum(&all, |ran| ran.seen.values_wrong)), (1, 1));
    assert_eq!(sum(&all, |ran| ran.seen.rows_wrong), 0);
}

#[test]
fn a_byte_that_lands_late_or_where_no_one_writes_is_noticed() {
    let late: Look = |model, point, layer, node, ground| {
        if let Some(source) = at_rank_0(model, (point, Point::Read), layer, node) {
            flip(&ground.receive, ground.buffers.private(source, 0) + 3);
        }
    };
    assert_eq!(sum(&run(LAYERS, late).0, |ran| ran.seen.late_bytes), 1);
    // Nothing was used there. All memory is looked at after the last layer.
    let foreign: Look = |_, point, layer, node, ground| {
        if (node.end(), layer, point) == (0, 2, Point::Packed) {
            flip(&ground.receive, ground.buffers.returned(0) - ground.buffers.row_bytes());
        }
    };
    assert_eq!(sum(&run(LAYERS, foreign).0, |ran| ran.seen.late_bytes), 1);
}

#[test]
fn an_immediate_that_comes_twice_is_counted() {
    let look: Look = |_, point, layer, node, ground| {
        if (node.end(), layer, point) == (1, 3, Point::Read) {
            let imm = Some(What::Rows.imm(layer));
            let (from, to) = ((&ground.send.region, 0), (&ground.targets[0], 0));
            let sent = node.write(0, 0, imm, from, to).expect("a bare immediate");
            let end = sent.wait(Duration::from_secs(30)).expect("open").expect("in time");
            assert_eq!(end.result, Ok(()));
        }
    };
    let (all, doubled, _) = run(LAYERS, look);
    assert_eq!((doubled, sum(&all, |ran| ran.seen.wrong())), (1, 0));
}

#[test]
fn a_rank_that_cannot_go_on_ends_all_of_them_with_its_reason() {
    let look: Look = |_, point, layer, node, ground| {
        if (node.end(), layer, point) == (1, 2, Point::Packed) {
            ground.send.write(0, &[0xff; 4]).expect("inside");
        }
    };
    let (all, ..) = run(LAYERS, look);
    let why = |rank: usize| all[rank].failure.as_ref().map_or("", |failure| &failure.why);
    let reason = "counts of rank 1: expected at most 16 rows of an expert, got 4294967295";
    assert_eq!(
        [why(0), why(1), why(2)],
        [&format!("rank 1: {reason}"), reason, &format!("rank 1: {reason}")]
    );
    assert!(all.iter().all(|ran| ran.seen.layers == 1), "{all:?}");
}
