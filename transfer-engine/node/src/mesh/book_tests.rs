//! Books of several nodes that talk to each other, without sockets.

use super::*;
use crate::rails::Address;
use shunt::host::connect::card::RailCard;
use shunt::host::nic::caps::Link;
use shunt_transfer_engine::rc::PeerAddress;
use std::collections::VecDeque;

const GIVE_UP: Duration = Duration::from_secs(1);

/// Node 4 has three rails, all others have none.
fn hello(id: u8, relation: Option<Id>) -> Hello {
    let (link, mac, gid, name) = (Link::Ethernet, [2; 6], [7; 16], [0; 16]);
    let rail = |index| RailCard { index, link, mtu: 3, lid: 0, mac, gid, name };
    let rails = if id == 4 { (0..3).map(rail).collect() } else { Vec::new() };
    let address = Address::Rc(PeerAddress { datagrams: vec![0; rails.len()], rails, qkey: 0 });
    Hello { id: [id; 16], relation, meant: None, at: at(id), address }
}

fn at(node: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7000 + u16::from(node)))
}

/// Another address of it.
fn alias(node: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 2], 7000 + u16::from(node)))
}

/// What travels from one node to another on a connection, by its ends' names for it.
enum Packet {
    Hello(Hello),
    Bye,
    End,
}

/// Nodes, and the connections between them: who and which line at either side.
struct World {
    now: Instant,
    books: BTreeMap<u8, Book>,
    lines: BTreeMap<(u8, Line), (u8, Line)>,
    packets: VecDeque<((u8, Line), Packet)>,
    joined: BTreeMap<u8, u32>,
    left: Vec<(u8, u32)>,
    answers: Vec<(u8, Wish, Result<u32, String>)>,
    relations: u8,
    todo: BTreeMap<u8, VecDeque<Do>>,
}

impl World {
    fn new(nodes: &[u8]) -> Self {
        let books = nodes.iter().map(|id| (*id, Book::new([*id; 16], 0, GIVE_UP))).collect();
        Self {
            now: Instant::now(),
            books,
            lines: BTreeMap::new(),
            packets: VecDeque::new(),
            joined: BTreeMap::new(),
            left: Vec::new(),
            answers: Vec::new(),
            relations: 100,
            todo: BTreeMap::new(),
        }
    }

    fn book(&mut self, node: u8) -> &mut Book {
        self.books.get_mut(&node).expect("there is such a node")
    }

    fn want(&mut self, node: u8, to: u8) {
        let (now, until) = (self.now, self.now + 3 * GIVE_UP);
        self.book(node).want(now, u64::from(to), at(to), until);
    }

    fn next(&mut self, node: u8) -> Option<Do> {
        let todo = self.todo.entry(node).or_default();
        if todo.is_empty() {
            let more = self.books.get_mut(&node).map(Book::take);
            todo.extend(more.into_iter().flatten());
        }
        todo.pop_front()
    }

    /// Does what a book says, until it says nothing more.
    fn act(&mut self, node: u8) {
        while let Some(one) = self.next(node) {
            match one {
                Do::Dial(line, to) => {
                    match self.books.keys().copied().find(|other| [at(*other), alias(*other)].contains(&to)) {
                        Some(other) => {
                            let there = self.book(other).accepted();
                            self.lines.insert((node, line), (other, there));
                            self.lines.insert((other, there), (node, line));
                        }
                        None => {
                            let now = self.now;
                            self.book(node).over(now, line, ("refused", false));
                        }
                    }
                }
                Do::Hello(line, relation, meant) => {
                    let hello = Hello { meant, ..hello(node, relation) };
                    self.send(node, line, Packet::Hello(hello));
                }
                Do::Drop(line, tell) => {
                    if tell {
                        self.send(node, line, Packet::Bye);
                    }
                    self.send(node, line, Packet::End);
                    self.lines.remove(&(node, line));
                }
                Do::Join(id, ..) => {
                    let number = self.joined.entry(node).or_default();
                    *number += 1;
                    let number = *number;
                    self.book(node).joined(&id, number);
                }
                Do::Leave(number) => self.left.push((node, number)),
                Do::Answered(wish, result) => self.answers.push((node, wish, result)),
            }
        }
    }

    fn send(&mut self, node: u8, line: Line, packet: Packet) {
        if let Some(there) = self.lines.get(&(node, line)) {
            self.packets.push_back((*there, packet));
        }
    }

    /// Until nothing happens, with the packets taken in an order that `pick` has.
    fn run(&mut self, mut pick: impl FnMut(usize) -> usize) {
        loop {
            for node in self.books.keys().copied().collect::<Vec<_>>() {
                let now = self.now;
                self.book(node).tick(now);
                self.act(node);
            }
            if self.packets.is_empty() {
                return;
            }
            // Each connection keeps its order.
            let to = self.packets[pick(self.packets.len())].0;
            let first = self.packets.iter().position(|(other, _)| *other == to).expect("it is there");
            let Some(((node, line), packet)) = self.packets.remove(first) else { return };
            if !self.books.contains_key(&node) {
                continue;
            }
            let (now, from) = (self.now, self.lines.get(&(node, line)).map_or(at(0), |(peer, _)| at(*peer)));
            self.relations += 1;
            let fresh = [self.relations; 16];
            match packet {
                Packet::Hello(hello) => self.book(node).hello(now, (line, from), hello, fresh),
                Packet::Bye => self.book(node).bye(line),
                Packet::End => self.book(node).over(now, line, ("the other side ended it", false)),
            }
        }
    }

    /// The connection between two ends without a word.
    fn cable_out(&mut self, a: u8, b: u8) {
        let between = |((node, _), (peer, _)): (&(u8, Line), &(u8, Line))| (*node, *peer) == (a, b);
        let ends: Vec<_> =
            self.lines.iter().filter(|pair| between((pair.0, pair.1))).map(|(a, b)| (*a, *b)).collect();
        for (here, there) in ends {
            for (node, line) in [here, there] {
                let now = self.now;
                self.book(node).over(now, line, ("reset", false));
                self.lines.remove(&(node, line));
            }
        }
    }
}

/// Numbers from a seed.
fn picks(mut seed: u64) -> impl FnMut(usize) -> usize {
    move |len| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % len
    }
}

#[test]
fn two_that_dial_each_other_at_once_meet_once() {
    for seed in 0..500 {
        let mut world = World::new(&[1, 2]);
        world.want(1, 2);
        world.want(2, 1);
        world.run(picks(seed));
        assert_eq!(world.joined, BTreeMap::from([(1, 1), (2, 1)]), "seed {seed}");
        // Whose dial was given up learns by another one that it was the same node.
        world.now += AGAIN;
        world.run(picks(seed));
        assert_eq!(world.joined, BTreeMap::from([(1, 1), (2, 1)]), "seed {seed}");
        assert_eq!((&world.left[..], world.answers.len()), (&[][..], 2), "seed {seed}");
        assert!(
            world.answers.iter().all(|(.., answer)| *answer == Ok(1)),
            "seed {seed}: {:?}",
            world.answers
        );
        for (node, peer) in [(1, 2), (2, 1)] {
            let line = world.book(node).line_to(1).expect("connected");
            assert_eq!(world.lines.get(&(node, line)).map(|(peer, _)| *peer), Some(peer), "seed {seed}");
        }
    }
}

#[test]
fn a_connection_that_breaks_is_dialled_again_and_the_two_stay_who_they_are() {
    for seed in 0..500 {
        let mut world = World::new(&[1, 2]);
        world.want(1, 2);
        world.run(picks(seed));
        world.cable_out(1, 2);
        assert_eq!(world.book(1).broken().collect::<Vec<_>>(), [1]);
        world.now += AGAIN;
        world.run(picks(seed + 1));
        assert_eq!(world.joined, BTreeMap::from([(1, 1), (2, 1)]), "seed {seed}");
        assert!(world.left.is_empty() && world.book(1).broken().next().is_none(), "seed {seed}");
        assert!(world.book(2).broken().next().is_none(), "seed {seed}");
    }
}

#[test]
fn one_that_stays_away_has_left_and_one_that_is_there_again_is_another() {
    let mut world = World::new(&[1, 2]);
    world.want(1, 2);
    world.run(picks(1));
    let gone = world.books.remove(&2).expect("it was there");
    world.cable_out_one(1);
    world.now += GIVE_UP / 2;
    world.run(picks(2));
    assert!(world.left.is_empty(), "not yet");
    world.now += GIVE_UP;
    world.run(picks(3));
    assert_eq!(world.left, [(1, 1)]);
    // The same process, which took no part meanwhile, is another peer.
    world.books.insert(2, gone);
    world.book(2).waited(1, false);
    world.act(2);
    world.want(2, 1);
    world.run(picks(4));
    assert_eq!((world.joined[&1], &world.left[..]), (2, &[(1, 1), (2, 1)][..]));
    // A process that starts in the very place of one without a connection ends that one's time, and no other's.
    for (ends, is_place) in [(false, true), (true, false), (true, true)] {
        let (mut world, now) = (World::new(&[1, 2]), Instant::now());
        world.want(2, 1);
        world.run(picks(5));
        let book = world.book(1);
        let old = book.line_to(1).expect("it is there");
        if ends {
            book.over(now, old, ("reset", false));
        }
        let names = if is_place { at(2) } else { at(3) };
        let line = book.accepted();
        book.hello(now, (line, at(2)), Hello { id: [7; 16], at: names, ..hello(2, None) }, [9; 16]);
        let done = book.take();
        assert_eq!(done.contains(&Do::Leave(1)), ends && is_place, "{done:?}");
        assert!(done.iter().any(|one| matches!(one, Do::Join([7, ..], ..))), "{done:?}");
    }
}

/// A node is its number: two with one address are two, and each is dialled as itself.
#[test]
fn two_behind_one_address_are_two() {
    let (now, nat) = (Instant::now(), SocketAddr::from(([192, 0, 2, 1], 7800)));
    let mut book = Book::new([1; 16], 0, GIVE_UP);
    let any = SocketAddr::from(([0, 0, 0, 0], 7800));
    let lines = [5, 6].map(|id| {
        let line = book.accepted();
        book.hello(now, (line, nat), Hello { at: any, ..hello(id, None) }, [id + 100; 16]);
        book.joined(&[id; 16], id.into());
        line
    });
    let done = book.take();
    assert!(done.iter().all(|one| matches!(one, Do::Hello(..) | Do::Join(..))), "{done:?}");
    assert_eq!([5, 6].map(|number| book.line_to(number)), lines.map(Some));
    // Who wants the address learns by the answer whose it is.
    book.want(now, 3, nat, now + GIVE_UP);
    book.tick(now);
    let done = book.take();
    let [Do::Dial(line, to), Do::Hello(_, None, None)] = done[..] else { panic!("{done:?}") };
    assert_eq!(to, nat);
    book.hello(now, (line, nat), Hello { at: any, ..hello(6, Some([106; 16])) }, [9; 16]);
    let done = book.take();
    assert_eq!(done, [Do::Drop(line, false), Do::Answered(3, Ok(6))]);
    // Without a connection each is dialled for itself, with what is known of it.
    lines.into_iter().for_each(|line| book.over(now, line, ("reset", false)));
    book.tick(now);
    let said: Vec<_> = book.take().into_iter().filter(|one| matches!(one, Do::Hello(..))).collect();
    let [Do::Hello(_, five, Some([5, ..])), Do::Hello(_, six, Some([6, ..]))] = said[..] else {
        panic!("{said:?}")
    };
    assert_eq!((five, six), (Some([105; 16]), Some([106; 16])));
    // One that is meant for another node begins nothing.
    let line = book.accepted();
    book.hello(now, (line, nat), Hello { meant: Some([2; 16]), ..hello(7, None) }, [9; 16]);
    assert_eq!(book.take(), [Do::Drop(line, false)]);
}

#[test]
fn one_that_is_dialled_by_several_of_its_addresses_is_one() {
    for seed in 0..500 {
        let mut world = World::new(&[1, 2]);
        let (now, until) = (world.now, world.now + GIVE_UP);
        if seed % 2 == 0 {
            world.want(1, 2);
            world.run(picks(seed));
        } else {
            world.want(1, 2);
            world.want(2, 1);
        }
        world.book(1).want(now, 7, alias(2), until);
        for round in 0..3 {
            world.run(picks(seed + round));
            world.now += AGAIN;
        }
        assert_eq!(world.joined, BTreeMap::from([(1, 1), (2, 1)]), "seed {seed}");
        assert!(world.left.is_empty(), "seed {seed}: {:?}", world.left);
        assert!(world.answers.iter().any(|(node, wish, _)| (*node, *wish) == (1, 7)), "seed {seed}");
        assert!(
            world.answers.iter().all(|(.., answer)| *answer == Ok(1)),
            "seed {seed}: {:?}",
            world.answers
        );
        let lines = [1, 2].map(|node| world.book(node).line_to(1).expect("connected"));
        assert_eq!(world.lines.get(&(1, lines[0])), Some(&(2, lines[1])), "seed {seed}");
    }
}

#[test]
fn who_was_cut_off_without_a_word_is_another_peer_when_it_is_dialled() {
    for seed in 0..100 {
        let mut world = World::new(&[1, 2]);
        world.want(1, 2);
        world.run(picks(seed));
        world.book(1).cut(1);
        // Its word is lost, and the other one does not see that the connection has ended.
        world.book(1).take();
        world.lines.clear();
        world.want(1, 2);
        for round in 0..3 {
            world.run(picks(seed + round));
            world.now += AGAIN;
        }
        assert_eq!(world.joined, BTreeMap::from([(1, 2), (2, 2)]), "seed {seed}");
        assert_eq!(world.left, [(2, 1)], "seed {seed}");
        assert_eq!(world.answers.last(), Some(&(1, 2, Ok(2))), "seed {seed}");
    }
}

#[test]
fn who_is_cut_off_is_told_and_what_cannot_be_is_refused() {
    let mut world = World::new(&[1, 2]);
    world.want(1, 2);
    world.run(picks(1));
    world.book(1).cut(1);
    world.run(picks(2));
    assert_eq!(world.left, [(2, 1)], "its own end knows");
    world.now += AGAIN;
    world.run(picks(3));
    assert_eq!(world.joined, BTreeMap::from([(1, 1), (2, 1)]), "neither dials again of its own");
    world.want(1, 1);
    world.want(1, 9);
    world.run(picks(4));
    world.books.insert(4, Book::new([4; 16], 3, GIVE_UP));
    world.want(1, 4);
    world.run(picks(5));
    let (now, until) = (world.now, world.now + GIVE_UP);
    world.book(1).want(now, 77, alias(1), until);
    world.run(picks(6));
    let why = |world: &World, to: u64| {
        world.answers.iter().find(|(_, wish, _)| *wish == to).map(|(.., answer)| answer.clone())
    };
    // What cannot change is said at once, what can be at the end.
    for itself in [1, 77] {
        assert_eq!(why(&world, itself), Some(Err("that is this node itself".to_owned())));
    }
    assert_eq!(why(&world, 4), Some(Err("rails: expected 0 as here, got 3".to_owned())));
    assert_eq!(why(&world, 9), None);
    let book = world.book(1);
    book.want(now, 50, at(8), until);
    book.tick(now);
    let line = book.dialled(at(8), [8; 16]).next().expect("it is dialled").0;
    book.over(now, line, ("another secret", true));
    assert!(book.take().contains(&Do::Answered(50, Err("another secret".to_owned()))));
    world.now += 4 * GIVE_UP;
    world.run(picks(6));
    assert_eq!(why(&world, 9), Some(Err("refused".to_owned())));
}

impl World {
    /// All connections of a node end without a word.
    fn cable_out_one(&mut self, node: u8) {
        let ends: Vec<_> = self.lines.keys().filter(|(of, _)| *of == node).map(|(_, line)| *line).collect();
        for line in ends {
            let now = self.now;
            self.book(node).over(now, line, ("reset", false));
            self.lines.remove(&(node, line));
        }
        self.lines.retain(|(of, _), _| *of == node);
    }
}

/// A world of two: the first one wishes for the second so often, with these numbers.
fn wished(wishes: &[Wish]) -> World {
    let mut world = World::new(&[1, 2]);
    let (now, until) = (world.now, world.now + 3 * GIVE_UP);
    wishes.iter().for_each(|wish| world.book(1).want(now, *wish, at(2), until));
    world.run(|_| 0);
    assert_eq!(world.answers, wishes.iter().map(|wish| (1, *wish, Ok(1))).collect::<Vec<_>>());
    world
}

impl World {
    /// Wishes for node 2 end so.
    fn ends(&mut self, had_lanes: &[bool]) -> &[(u8, u32)] {
        had_lanes.iter().for_each(|had_a_lane| self.book(1).waited(1, *had_a_lane));
        self.run(|_| 0);
        &self.left
    }
}

/// Cause: who gave up was answered by one thread and counted by another: a call in between lost its peer.
#[test]
fn a_peer_leaves_once_the_last_wish_that_it_fulfilled_gives_up() {
    assert_eq!(wished(&[7, 8]).ends(&[false]), [], "another one waits");
    assert_eq!(wished(&[7, 8]).ends(&[false, false]), [(1, 1), (2, 1)]);
    assert_eq!(wished(&[7]).ends(&[false, false]), [(1, 1), (2, 1)], "it is gone, and not asked again");
}

#[test]
fn a_peer_to_which_a_wish_had_a_lane_or_that_was_there_before_stays() {
    assert_eq!(wished(&[7, 8]).ends(&[true, false]), []);
    assert_eq!(wished(&[7, 8]).ends(&[false, true]), []);
    let mut world = wished(&[7]);
    world.ends(&[true]);
    world.want(1, 2);
    assert_eq!(world.ends(&[false]), []);
    // One that has connected by itself.
    let mut world = World::new(&[1, 2]);
    world.want(2, 1);
    world.run(|_| 0);
    world.want(1, 2);
    world.run(|_| 0);
    assert_eq!(world.ends(&[false]), []);
}
