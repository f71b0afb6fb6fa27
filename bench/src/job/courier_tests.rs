//! Couriers over a network of this process that loses, doubles and cuts.

use super::*;
use shunt_oracle::checker::Findings;
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;

/// Mailboxes by receiver; of those messages that the dice hit, one in three is lost and one in three comes twice.
#[derive(Clone)]
struct Lossy {
    boxes: Arc<Mutex<Vec<Mailbox>>>,
    dice: Arc<AtomicU64>,
}

type Mailbox = VecDeque<(u32, Vec<u8>)>;

struct LossyEnd {
    net: Lossy,
    me: u32,
}

impl Lossy {
    fn new(world: usize) -> Self {
        let boxes = Arc::new(Mutex::new(vec![Mailbox::new(); world]));
        Self { boxes, dice: Arc::new(AtomicU64::new(1)) }
    }

    fn end(&self, me: u32) -> Box<dyn Oob> {
        Box::new(LossyEnd { net: self.clone(), me })
    }
}

impl Oob for LossyEnd {
    fn send(&self, to_pe: u32, bytes: Vec<u8>) {
        let throw = self.net.dice.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed) >> 40;
        let copies = [0, 2, 1][(throw % 3) as usize];
        let mut boxes = self.net.boxes.lock().unwrap();
        boxes[to_pe as usize].extend(std::iter::repeat_n((self.me, bytes), copies));
    }

    fn try_recv(&self) -> Option<(u32, Vec<u8>)> {
        self.net.boxes.lock().unwrap()[self.me as usize].pop_front()
    }
}

/// Far beyond what anything here takes.
const HANG: Duration = Duration::from_secs(30);

fn couriers(
    world: u32,
    gone: impl Fn(u32) -> Option<String> + Clone + Send + Sync + 'static,
) -> Vec<Courier> {
    let net = Lossy::new(world as usize);
    (0..world).map(|me| Courier::start(me, world, net.end(me), Box::new(gone.clone()))).collect()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + HANG;
    while !done() {
        assert!(Instant::now() < end, "{what} never comes");
        std::thread::sleep(NAP);
    }
}

fn entry(rank: u32, number: u64) -> Entry {
    let findings = Findings { puts: number, ..Findings::default() };
    Entry::Received { stream: rank, findings, gap_ns: number }
}

#[test]
fn boards_become_alike_and_logs_arrive_whole_and_in_order_whatever_is_lost() {
    let couriers = couriers(3, |_| None);
    let boards: Vec<_> = couriers.iter().map(|_| Arc::new(Board::new(2, 3))).collect();
    couriers.iter().zip(&boards).for_each(|(courier, board)| courier.begin(board));
    boards[1].link(0).set_ready();
    boards[2].link(1).set_posted(77);
    boards[0].stop();
    until("the message", || {
        boards.iter().all(|board| {
            board.link(0).ready() && board.link(1).posted() == 77 && board.stopping() && !board.aborted()
        })
    });
    let count = 3_000;
    for number in 0..count {
        (1..3).for_each(|rank| couriers[rank as usize].publish(&entry(rank, number)));
    }
    assert_eq!(couriers[0].missing(), [1, 2], "a log that is not over is not whole");
    couriers[1].close();
    couriers[2].close();
    let mut got: [Vec<Entry>; 3] = Default::default();
    until("the logs", || {
        couriers[0].collect().into_iter().for_each(|(rank, entry)| got[rank as usize].push(entry));
        couriers[0].missing().is_empty()
    });
    couriers[0].collect().into_iter().for_each(|(rank, entry)| got[rank as usize].push(entry));
    for rank in [1, 2] {
        let want: Vec<_> = (0..count).map(|number| entry(rank, number)).collect();
        assert!(got[rank as usize] == want, "rank {rank}: {} entries", got[rank as usize].len());
    }
}

#[test]
fn a_log_that_arrived_is_let_go_and_goes_on() {
    let couriers = couriers(2, |_| None);
    couriers.iter().for_each(|courier| courier.begin(&Arc::new(Board::new(0, 2))));
    let (mut got, mut published, mut most) = (0, 0, 0);
    // Many times what may stay.
    let enough = 8 * KEPT as u64;
    while lock(&couriers[1].inner).log_end() < enough {
        (0..500).for_each(|n| couriers[1].publish(&entry(1, published + n)));
        published += 500;
        until("what was published", || {
            got += couriers[0].collect().len() as u64;
            got == published
        });
        couriers[1].flush(HANG);
        most = most.max(lock(&couriers[1].inner).log.len());
    }
    assert!(most < 2 * KEPT, "{most} bytes are held of a log that has arrived");
    couriers[1].close();
    until("the end", || couriers[0].missing().is_empty());
}

#[test]
fn a_verdict_is_heard_by_all_in_whatever_phase_they_are() {
    let couriers = couriers(3, |_| None);
    couriers[0].begin(&Arc::new(Board::new(0, 3)));
    couriers[1].begin(&Arc::new(Board::new(0, 3)));
    let heard: Vec<_> = std::thread::scope(|scope| {
        let others: Vec<_> = couriers[1..].iter().map(|c| scope.spawn(|| c.hear(HANG))).collect();
        couriers[0].tell(3, HANG);
        others.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(heard, [Some(3), Some(3)]);
}

#[test]
fn who_is_gone_is_neither_awaited_nor_told() {
    let couriers = couriers(2, |rank| (rank == 1).then(|| "its process is gone".to_owned()));
    couriers[0].begin(&Arc::new(Board::new(0, 2)));
    assert_eq!((couriers[0].missing(), couriers[0].awaited()), (vec![1], vec![]));
    let began = Instant::now();
    couriers[0].tell(0, HANG);
    assert!(began.elapsed() < HANG);
}

#[test]
fn a_rank_0_that_is_gone_gives_no_verdict_and_old_news_are_not_for_a_new_phase() {
    let net = Lossy::new(2);
    let lone = Courier::start(1, 2, net.end(1), Box::new(|_| Some("its process is gone".into())));
    assert_eq!(lone.hear(HANG), None);
    let board = Arc::new(Board::new(1, 2));
    lone.begin(&board);
    lone.begin(&board);
    let old = Message::State(State {
        phase: 1,
        board: BoardState { aborted: true, ..board.state() },
        log_bytes: 0,
        log_over: true,
        got: vec![9, 9],
        verdict: None,
    });
    let now = Message::State(State {
        phase: 2,
        board: BoardState { stopping: true, ..board.state() },
        log_bytes: 0,
        log_over: false,
        got: vec![],
        verdict: None,
    });
    for message in [old, now] {
        net.boxes.lock().unwrap()[1].push_back((0, message.to_bytes()));
    }
    net.boxes.lock().unwrap()[1].push_back((7, vec![1, 2, 3]));
    until("the new", || board.stopping());
    assert!(!board.aborted());
}
