//! Processes that find each other: ranks are threads here, sockets are real.

use nix::sys::socket::{self, AddressFamily, Backlog, SockFlag, SockType, SockaddrIn};
use shunt_bootstrap::tcp::*;
use shunt_bootstrap::{Bootstrap, BootstrapError, Oob};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SECRET: &str = "a secret of these tests";
/// Far more than anything here takes: it ends what is broken.
const PATIENCE: Duration = Duration::from_secs(20);
/// For what must run into its deadline.
const SHORT_NS: u64 = 300_000_000;

/// A job's root socket, and options of its ranks.
struct Job {
    world: u32,
    root: SocketAddr,
    listener: Mutex<Option<TcpListener>>,
}

impl Job {
    fn new(world: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self { world, root: listener.local_addr().unwrap(), listener: Mutex::new(Some(listener)) }
    }

    fn options(&self, rank: u32) -> JoinOptions {
        let secret = Secret::from_text(SECRET).unwrap();
        let mut options = JoinOptions::new(rank, self.world, self.root.into(), secret);
        options.patience_ns = PATIENCE.as_nanos() as u64;
        options.notices = Notices::new(|_| {});
        if rank == 0 {
            options.listener = self.listener.lock().unwrap().take();
        }
        options
    }

    fn start(&self, rank: u32) -> JoinHandle<Result<TcpNet, JoinError>> {
        let options = self.options(rank);
        std::thread::spawn(move || TcpNet::join(options))
    }

    /// All ranks, joined.
    fn all(&self) -> Vec<TcpNet> {
        let ranks: Vec<_> = (0..self.world).map(|rank| self.start(rank)).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap().unwrap()).collect()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.root).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < PATIENCE, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn receive(end: &TcpEnd) -> (u32, Vec<u8>) {
    let mut got = None;
    until("a message", || {
        got = end.try_recv();
        got.is_some()
    });
    got.unwrap()
}

/// Each rank's answer to the same all-gather.
fn gather(
    nets: &[TcpNet],
    part: impl Fn(u32) -> Vec<u8> + Sync,
) -> Vec<Result<Vec<Vec<u8>>, BootstrapError>> {
    let part = &part;
    std::thread::scope(|scope| {
        let all: Vec<_> = nets
            .iter()
            .map(|net| scope.spawn(move || net.bootstrap().all_gather(&part(net.rank()))))
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

/// What a rank gives another in an exchange: told apart by both, and by its length.
fn row(from: u32, to: u32, bytes: usize) -> Vec<u8> {
    (0..bytes + (from * 31 + to * 7) as usize).map(|i| (i as u32 ^ from << 4 ^ to) as u8).collect()
}

/// Each rank's answer to the same exchange.
fn exchange(nets: &[TcpNet], bytes: usize) -> Vec<Result<Vec<Vec<u8>>, BootstrapError>> {
    std::thread::scope(|scope| {
        let ask = |net: &TcpNet| {
            net.bootstrap().exchange((0..net.world()).map(|to| row(net.rank(), to, bytes)).collect())
        };
        let all: Vec<_> = nets.iter().map(|net| scope.spawn(move || ask(net))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

/// Waits until the other side ends the connection, whatever it says before.
fn is_hung_up_on(mut stream: TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    let mut buffer = [0; 256];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return said,
            Ok(bytes) => said.extend(&buffer[..bytes]),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
                return said;
            }
        }
    }
}

/// The root, once it was joined by rank 1 while `stranger` did what it did.
fn joined_despite(stranger: impl FnOnce(&Job)) -> TcpNet {
    let job = Job::new(2);
    let root = job.start(0);
    stranger(&job);
    let other = job.start(1).join().unwrap().unwrap();
    let root = root.join().unwrap().unwrap();
    let nets = [root, other];
    assert!(gather(&nets, |rank| vec![rank as u8]).into_iter().all(|all| all.unwrap() == [[0], [1]]));
    nets.into_iter().next().unwrap()
}

fn reasons(net: &TcpNet) -> Vec<Refusal> {
    net.refusals().into_iter().map(|refused| refused.reason).collect()
}

#[test]
fn all_ranks_meet() {
    for world in [1, 2, 5, 16] {
        let nets = Job::new(world).all();
        for round in 0..3u8 {
            let want: Vec<Vec<u8>> = (0..world).map(|rank| vec![rank as u8, round]).collect();
            let all = gather(&nets, |rank| vec![rank as u8, round]);
            assert!(all.into_iter().all(|answer| answer.unwrap() == want));
        }
        for topic in Topic::ALL {
            for (net, to) in nets.iter().flat_map(|net| (0..world).map(move |to| (net, to))) {
                for number in 0..3 {
                    net.end(topic).send(to, vec![topic as u8, number]);
                }
            }
        }
        for (net, topic) in nets.iter().flat_map(|net| Topic::ALL.map(|topic| (net, topic))) {
            let end = net.end(topic);
            let mut next = vec![0; world as usize];
            for _ in 0..3 * world {
                let (from, bytes) = receive(&end);
                assert_eq!(bytes, [topic as u8, next[from as usize]], "in order per pair");
                next[from as usize] += 1;
            }
            assert_eq!(end.try_recv(), None);
            assert!((0..world).all(|peer| net.peer(peer).up));
            assert_eq!((net.refusals(), net.counters().dropped), (vec![], 0));
        }
    }
}

#[test]
fn a_wrong_secret_is_refused_at_both_ends() {
    let root = joined_despite(|job| {
        let mut options = job.options(1);
        options.secret = Secret::from_text("another secret than theirs").unwrap();
        let error = TcpNet::join(options).unwrap_err();
        assert!(matches!(error, JoinError::Refused { rank: 1, reason: Refusal::Secret, .. }), "{error}");
    });
    assert_eq!(reasons(&root), [Refusal::Secret]);
}

/// The root, too, says why a rank is missing: who looks at its output alone saw only that one did not come.
#[test]
fn a_rank_missing_for_its_secret_is_explained_by_the_root() {
    let job = Job::new(2);
    let mut options = job.options(0);
    options.patience_ns = 10 * SHORT_NS;
    let root = std::thread::spawn(move || TcpNet::join(options));
    let mut options = job.options(1);
    options.secret = Secret::from_text("another secret than theirs").unwrap();
    TcpNet::join(options).unwrap_err();
    let error = root.join().unwrap().unwrap_err().to_string();
    assert!(
        error.contains("rank(s) [1] of 2 did not join: the last connection refused came from 127.0.0.1:"),
        "{error}"
    );
    assert!(error.ends_with(": it does not have the same secret"), "{error}");
}

#[test]
fn an_impostor_in_the_roots_place_is_found_out() {
    let job = Job::new(2);
    let rank = job.start(1);
    let (mut stream, _) = job.listener.lock().unwrap().as_ref().unwrap().accept().unwrap();
    let mut preamble = [0; preamble::LENGTH];
    stream.read_exact(&mut preamble).unwrap();
    stream.write_all(&preamble).unwrap();
    // 32 bytes of a key and 16 of a tag, each way.
    let mut exchange = [0; 2 + 48];
    stream.read_exact(&mut exchange).unwrap();
    stream.write_all(&exchange).unwrap();
    let error = rank.join().unwrap().unwrap_err();
    assert_eq!(error, JoinError::Root { root: job.root.to_string(), reason: Refusal::Secret });
}

#[test]
fn garbage_is_refused() {
    let root = joined_despite(|job| {
        for garbage in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], b"\0", &[0xff; 5000]] {
            let mut stream = job.connect();
            // It may hang up while the rest is still on its way.
            let _ = stream.write_all(garbage);
            assert_eq!(is_hung_up_on(stream), b"", "strangers are told nothing");
        }
    });
    assert_eq!(reasons(&root), [Refusal::Garbage, Refusal::Garbage, Refusal::Garbage]);
}

#[test]
fn garbage_behind_a_good_preamble_is_refused() {
    let root = joined_despite(|job| {
        for garbage in [&[0, 4, 1, 2, 3, 4][..], &[0xff, 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9], &[0xf0; 70]] {
            let mut stream = job.connect();
            let versions = (preamble::PROTOCOL, shunt_layout::ABI_VERSION);
            let hello = preamble::Preamble {
                protocol: versions.0,
                abi: versions.1,
                purpose: preamble::Purpose::Join,
            };
            stream.write_all(&hello.encode()).unwrap();
            let mut theirs = [0; preamble::LENGTH];
            stream.read_exact(&mut theirs).unwrap();
            assert_eq!(preamble::Preamble::decode(&theirs, versions), Ok(Some(hello)));
            stream.write_all(garbage).unwrap();
            is_hung_up_on(stream);
        }
    });
    assert_eq!(root.counters().refused, 3);
    assert!(reasons(&root).contains(&Refusal::Secret));
}

#[test]
fn who_connects_and_says_nothing_is_hung_up_on() {
    let job = Job::new(2);
    let mut options = job.options(0);
    options.half_open_ns = 50_000_000;
    let root = std::thread::spawn(move || TcpNet::join(options));
    let mut half = job.connect();
    half.write_all(b"SHUNTNET").unwrap();
    for silent in [job.connect(), half] {
        assert_eq!(is_hung_up_on(silent), b"");
    }
    let _other = job.start(1).join().unwrap().unwrap();
    assert_eq!(reasons(&root.join().unwrap().unwrap()), [Refusal::Slow, Refusal::Slow]);
}

#[test]
fn a_crowd_of_silent_ones_keeps_nobody_out() {
    let mut crowd = Vec::new();
    let root = joined_despite(|job| crowd.extend((0..100).map(|_| job.connect())));
    let reasons = reasons(&root);
    assert!(!reasons.is_empty() && reasons.iter().all(|reason| *reason == Refusal::Crowded), "{reasons:?}");
}

#[test]
fn another_abi_version_is_refused_at_both_ends() {
    let ours = shunt_layout::ABI_VERSION;
    let root = joined_despite(|job| {
        let mut options = job.options(1);
        options.abi = ours + 1;
        let error = TcpNet::join(options).unwrap_err();
        let want = Refusal::Abi { theirs: ours, ours: ours + 1 };
        assert_eq!(error, JoinError::Root { root: job.root.to_string(), reason: want });
        assert!(error.to_string().contains("run one build in all processes"), "{error}");
    });
    assert_eq!(reasons(&root), [Refusal::Abi { theirs: ours + 1, ours }]);
}

#[test]
fn another_world_and_ranks_that_do_not_exist_are_refused_by_name() {
    let root = joined_despite(|job| {
        let other = Job { world: 4, root: job.root, listener: Mutex::new(None) };
        for (rank, want) in [(3, "world is 4 in one process and 2 in the other"), (1, "world is 4")] {
            let error = other.start(rank).join().unwrap().unwrap_err().to_string();
            assert!(error.contains(want) && error.contains(&format!("refuses rank {rank}")), "{error}");
        }
    });
    let reason = Refusal::World { theirs: 4, ours: 2 };
    assert_eq!(reasons(&root), [reason.clone(), reason]);
}

#[test]
fn a_rank_that_is_there_already_is_refused_and_the_first_stays() {
    let job = Job::new(3);
    let (root, first) = (job.start(0), job.start(1));
    // Whichever of the two came first is the one that stays.
    let second = job.start(1);
    until("an answer to one of both", || first.is_finished() || second.is_finished());
    let (refused, stays) = if first.is_finished() { (first, second) } else { (second, first) };
    let error = refused.join().unwrap().unwrap_err();
    assert!(
        matches!(error, JoinError::Refused { rank: 1, reason: Refusal::Duplicate { rank: 1 }, .. }),
        "{error}"
    );
    let last = job.start(2).join().unwrap().unwrap();
    let nets = [root.join().unwrap().unwrap(), stays.join().unwrap().unwrap(), last];
    assert!(gather(&nets, |_| vec![]).iter().all(Result::is_ok));
    assert_eq!(reasons(&nets[0]), [Refusal::Duplicate { rank: 1 }]);
}

#[test]
fn a_rank_that_left_before_all_were_there_may_come_again() {
    let job = Job::new(3);
    let root = job.start(0);
    let mut options = job.options(1);
    options.patience_ns = SHORT_NS;
    let error = TcpNet::join(options).unwrap_err();
    assert!(matches!(error, JoinError::Missing { ref missing, world: 3, .. } if *missing == [2]), "{error}");
    let (again, other) = (job.start(1), job.start(2));
    let nets = [root, again, other].map(|rank| rank.join().unwrap().unwrap());
    assert!(gather(&nets, |_| vec![]).iter().all(Result::is_ok));
}

#[test]
fn a_rank_that_comes_again_after_the_start_is_refused() {
    let job = Job::new(2);
    let mut nets = job.all();
    drop(nets.pop());
    let error = job.start(1).join().unwrap().unwrap_err();
    assert!(error.to_string().contains("the job has started; rank 1 is not let in again"), "{error}");
    assert_eq!(reasons(&nets[0]), [Refusal::Started { rank: 1 }]);
}

#[test]
fn a_missing_rank_is_named_by_all() {
    let job = Job::new(4);
    let ranks = [0, 2].map(|rank| {
        let mut options = job.options(rank);
        options.patience_ns = 3 * SHORT_NS;
        std::thread::spawn(move || TcpNet::join(options))
    });
    for rank in ranks {
        // Whose patience ends first leaves, and may then be missed by the other.
        match rank.join().unwrap().unwrap_err() {
            JoinError::Missing { missing, .. } | JoinError::RootLeft { missing, .. } => {
                assert!(missing.contains(&1) && missing.contains(&3), "{missing:?}");
            }
            error => panic!("{error}"),
        }
    }
}

#[test]
fn a_root_that_comes_later_is_waited_for_and_the_user_is_told() {
    // Bound, so that nobody else gets the port, and not listened at yet.
    let listener = {
        let (family, kind) = (AddressFamily::Inet, SockType::Stream);
        let bound = socket::socket(family, kind, SockFlag::SOCK_CLOEXEC, None).unwrap();
        socket::bind(bound.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
        TcpListener::from(bound)
    };
    let port = listener.local_addr().unwrap().port();
    let job = Job { world: 2, root: ([127, 0, 0, 1], port).into(), listener: Mutex::new(None) };
    let said = Arc::new(Mutex::new(Vec::new()));
    let mut options = job.options(1);
    let to = said.clone();
    options.notices = Notices::new(move |line| to.lock().unwrap().push(line.to_owned()));
    let early = std::thread::spawn(move || TcpNet::join(options));
    until("a line for the user", || !said.lock().unwrap().is_empty());
    let line = said.lock().unwrap()[0].clone();
    assert!(line.starts_with(&format!("rank 1 waits for the root at 127.0.0.1:{port}: ")), "{line}");
    socket::listen(&listener, Backlog::MAXCONN).unwrap();
    *job.listener.lock().unwrap() = Some(listener);
    let root = job.start(0);
    assert!(root.join().unwrap().is_ok() && early.join().unwrap().is_ok());
}

#[test]
fn what_cannot_be_joined_says_why() {
    let job = Job::new(2);
    let taken = job.root;
    let mut options = job.options(1);
    (options.root, options.patience_ns) = ("127.0.0.1:1".parse().unwrap(), SHORT_NS);
    let error = TcpNet::join(options).unwrap_err().to_string();
    assert!(error.contains("root 127.0.0.1:1 was not reached") && error.contains("refused"), "{error}");
    let mut options = job.options(0);
    let _held = options.listener.take();
    let error = TcpNet::join(options).unwrap_err().to_string();
    assert!(
        error.contains(&format!("rank 0 cannot listen at {taken}")) && error.contains("in use"),
        "{error}"
    );
    let mut options = job.options(1);
    (options.root, options.patience_ns) = ("no-such-host.invalid:7".parse().unwrap(), SHORT_NS);
    assert!(matches!(TcpNet::join(options).unwrap_err(), JoinError::Resolve { .. }));
    let mut options = job.options(1);
    options.interface = Some("=no-such-if".parse().unwrap());
    assert!(matches!(TcpNet::join(options).unwrap_err(), JoinError::NoInterface { .. }));
    let mut options = job.options(1);
    options.rank = 2;
    assert!(matches!(TcpNet::join(options).unwrap_err(), JoinError::Value { what: "rank", .. }));
}

#[test]
fn much_is_gathered_by_all() {
    let nets = Job::new(3).all();
    let part = |rank: u32| -> Vec<u8> {
        (0..5u32 << 20).map(|i| (i.wrapping_mul(31) >> 7) as u8 ^ rank as u8).collect()
    };
    let want: Vec<Vec<u8>> = (0..3).map(part).collect();
    for all in gather(&nets, part) {
        assert!(all.unwrap() == want);
    }
    let error = nets[1].bootstrap().all_gather(&vec![0; PART_MAX + 1]).unwrap_err();
    assert!(matches!(error, BootstrapError::TooLong { .. }), "{error}");
    assert!(gather(&nets, |_| vec![1]).iter().all(Result::is_ok), "a refused part counts for nothing");
}

#[test]
fn each_rank_gets_its_own_rows_and_no_others() {
    for world in [1u32, 2, 5, 16] {
        let nets = Job::new(world).all();
        // Far below what is given ahead, and far above.
        for bytes in [0, 70_000] {
            let before: Vec<u64> = nets.iter().map(|net| net.counters().gathered).collect();
            for (me, mine) in (0u32..).zip(exchange(&nets, bytes)) {
                let want: Vec<Vec<u8>> = (0..world).map(|from| row(from, me, bytes)).collect();
                assert!(mine.unwrap() == want, "rank {me} of {world}");
                let others =
                    want.iter().map(|row| row.len() as u64).sum::<u64>() - want[me as usize].len() as u64;
                let came = nets[me as usize].counters().gathered - before[me as usize];
                assert_eq!(came, others, "rank {me} of {world}: what came in is what is its own");
            }
            assert!(gather(&nets, |_| vec![1]).iter().all(Result::is_ok), "both kinds may follow each other");
        }
        let error = nets[0].bootstrap().exchange(vec![vec![]; world as usize + 1]).unwrap_err();
        assert!(matches!(error, BootstrapError::Rows { .. }), "{error}");
    }
}

#[test]
fn who_is_missing_from_an_exchange_is_named_and_finds_its_rows_later() {
    let mut nets = Job::new(4).all();
    let seldom = nets.remove(2);
    let rows = |from: u32| (0..4).map(|to| row(from, to, 100_000)).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        for net in &nets {
            scope.spawn(move || {
                let error = net.bootstrap().with_patience(SHORT_NS).exchange(rows(net.rank())).unwrap_err();
                assert!(
                    matches!(error, BootstrapError::Missing { ref missing, .. } if *missing == [2]),
                    "{error}"
                );
            });
        }
    });
    let late = seldom.bootstrap().exchange(rows(2)).unwrap();
    assert!(late == (0..4).map(|from| row(from, 2, 100_000)).collect::<Vec<_>>());
    nets.push(seldom);
    nets.sort_by_key(TcpNet::rank);
    assert!(exchange(&nets, 100_000).iter().all(Result::is_ok), "all are in step again");
    std::thread::scope(|scope| {
        for net in nets {
            // Who is done leaves at once, rank 0 among them: rows of others still go through it.
            scope.spawn(move || assert_eq!(net.bootstrap().exchange(rows(net.rank())).unwrap().len(), 4));
        }
    });
}

#[test]
fn a_rank_that_leaves_in_the_middle_of_an_exchange_is_named() {
    let mut nets = Job::new(4).all();
    let leaver = nets.remove(2);
    std::thread::scope(|scope| {
        scope.spawn(|| leaver.close());
        for answer in exchange(&nets, 100_000) {
            let error = answer.unwrap_err();
            assert!(matches!(error, BootstrapError::Lost { rank: 2, .. }), "{error}");
        }
    });
}

#[test]
fn another_protocol_version_is_refused_and_told_ours() {
    let root = joined_despite(|job| {
        let mut stream = job.connect();
        let (ours, abi) = (preamble::PROTOCOL, shunt_layout::ABI_VERSION);
        let older = preamble::Preamble { protocol: ours - 1, abi, purpose: preamble::Purpose::Join };
        stream.write_all(&older.encode()).unwrap();
        let said = is_hung_up_on(stream);
        let want = Err(Refusal::Protocol { theirs: ours, ours: ours - 1 });
        assert_eq!(preamble::Preamble::decode(&said, (ours - 1, abi)), want);
    });
    let (ours, theirs) = (preamble::PROTOCOL, preamble::PROTOCOL - 1);
    assert_eq!(reasons(&root), [Refusal::Protocol { theirs, ours }]);
}

#[test]
fn a_rank_that_leaves_in_the_middle_is_named_by_all() {
    let mut nets = Job::new(4).all();
    let leaver = nets.remove(2);
    std::thread::scope(|scope| {
        scope.spawn(|| leaver.close());
        for answer in gather(&nets, |_| vec![7; 100_000]) {
            let Err(BootstrapError::Lost { round: 0, rank: 2, reason }) = answer else {
                panic!("{answer:?}")
            };
            assert!(reason.contains("left in good order"), "{reason}");
        }
    });
    let error = leaver.bootstrap().all_gather(b"late").unwrap_err();
    assert!(matches!(error, BootstrapError::Closed { .. }), "{error}");
}

#[test]
fn a_rank_that_fails_says_why_and_all_others_are_told() {
    let mut nets = Job::new(4).all();
    let failed = nets.remove(2);
    failed.fail("rail 1 does not open");
    failed.fail("what follows from that");
    std::thread::scope(|scope| {
        scope.spawn(|| failed.close());
        for answer in gather(&nets, |_| Vec::new()) {
            let Err(BootstrapError::Lost { rank: 2, reason, .. }) = answer else { panic!("{answer:?}") };
            assert_eq!(reason, "it failed: rail 1 does not open");
        }
        assert!(nets.iter().all(|net| !net.end(Topic::Agent).has_left(2)), "a failure is a loss");
    });
}

/// Rank 0 ran out of patience and left; all others said no more than that it had left in good order.
#[test]
fn where_rank_0_leaves_the_others_are_told_whom_it_missed() {
    let nets = Job::new(4).all();
    let error = nets[0].bootstrap().with_patience(SHORT_NS).all_gather(&[]).unwrap_err();
    assert!(matches!(error, BootstrapError::Missing { .. }), "{error}");
    let mut nets = nets.into_iter();
    let root = nets.next().unwrap();
    let rest: Vec<_> = nets.collect();
    std::thread::scope(|scope| {
        scope.spawn(|| root.close());
        for net in [&rest[0], &rest[2]] {
            let answer = net.bootstrap().all_gather(&[]);
            let Err(BootstrapError::Lost { rank: 0, reason, .. }) = answer else { panic!("{answer:?}") };
            assert!(reason.contains("rank(s) [1, 2, 3] of 4 did not arrive"), "{reason}");
        }
    });
}

/// Who left because of another one is not named in its place.
#[test]
fn of_ranks_that_failed_the_first_is_named() {
    let mut nets = Job::new(4).all();
    let (first, second) = (nets.remove(3), nets.remove(1));
    first.fail("no rail");
    first.close();
    let lost = |net: &TcpNet| match net.bootstrap().all_gather(&[]) {
        Err(BootstrapError::Lost { rank, reason, .. }) => (rank, reason),
        answer => panic!("{answer:?}"),
    };
    assert_eq!(lost(&second), (3, "it failed: no rail".to_owned()));
    second.close();
    until("rank 1's end", || !nets[0].peer(1).up);
    // Its other connection may end a moment later.
    for _ in 0..30 {
        std::thread::sleep(Duration::from_millis(10));
        nets.iter().for_each(|net| assert_eq!(lost(net), (3, "it failed: no rail".to_owned())));
    }
}

/// What went wrong once and was made good is no reason.
#[test]
fn a_rank_whose_exchange_failed_and_then_succeeded_leaves_in_good_order() {
    let nets = Job::new(2).all();
    assert!(nets[1].bootstrap().with_patience(SHORT_NS).all_gather(&[]).is_err());
    assert!(nets[0].bootstrap().all_gather(&[]).is_ok(), "its part was given");
    assert!(gather(&nets, |_| Vec::new()).iter().all(Result::is_ok));
    nets[1].close();
    let error = nets[0].bootstrap().all_gather(&[]).unwrap_err().to_string();
    assert!(error.contains("left in good order"), "{error}");
}

#[test]
fn who_gathers_less_often_is_named_and_who_leaves_after_the_last_harms_nobody() {
    let mut nets = Job::new(3).all();
    assert!(gather(&nets, |_| vec![1]).iter().all(Result::is_ok));
    let seldom = nets.remove(1);
    std::thread::scope(|scope| {
        for net in &nets {
            scope.spawn(|| {
                let error = net.bootstrap().with_patience(SHORT_NS).all_gather(b"more").unwrap_err();
                assert!(
                    matches!(error, BootstrapError::Missing { round: 1, ref missing, size: 3, .. } if *missing == [1]),
                    "{error}"
                );
            });
        }
    });
    // It catches up with what the others gave long ago, and the next is in step again.
    nets.push(seldom);
    nets.sort_by_key(TcpNet::rank);
    assert_eq!(nets[1].bootstrap().all_gather(b"late").unwrap(), [&b"more"[..], b"late", b"more"]);
    std::thread::scope(|scope| {
        for net in nets {
            // Rank 0 leaves at once, and all parts went through it.
            scope.spawn(move || assert_eq!(net.bootstrap().all_gather(&[9; 1 << 20]).unwrap().len(), 3));
        }
    });
}

#[test]
fn a_killed_process_is_named_and_its_peers_see_why() {
    let job = Job::new(2);
    let root = job.start(0);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "rank_of_another_process", "--nocapture"])
        .env("SHUNT_TEST_ROOT", job.root.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let root = root.join().unwrap().unwrap();
    let end = root.end(Topic::App);
    assert_eq!(receive(&end), (1, b"here".to_vec()));
    assert!(root.peer(1).up);
    let asked = std::thread::spawn({
        let root = root.clone();
        move || root.bootstrap().all_gather(b"x")
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let error = asked.join().unwrap().unwrap_err();
    assert!(matches!(error, BootstrapError::Lost { rank: 1, .. }), "{error}");
    until("the peer's end", || !root.peer(1).up);
    assert_eq!(root.peer(1).reason, LinkReason::Closed);
}

/// Not a test by itself: the process that the one above kills.
#[test]
fn rank_of_another_process() {
    let Ok(root) = std::env::var("SHUNT_TEST_ROOT") else { return };
    let job = Job { world: 2, root: root.parse().unwrap(), listener: Mutex::new(None) };
    let net = job.start(1).join().unwrap().unwrap();
    net.end(Topic::App).send(0, b"here".to_vec());
    std::thread::sleep(PATIENCE);
}

#[test]
fn a_broken_mesh_connection_is_made_again_from_either_side() {
    let nets = Job::new(3).all();
    for breaker in [0, 2] {
        let (before, other) = (nets[breaker].peer(2 - breaker as u32).since, 2 - breaker);
        nets[breaker].break_link(other as u32);
        until("a new connection", || {
            let link = nets[breaker].peer(other as u32);
            link.up && link.since > before
        });
        nets[breaker].end(Topic::Agent).send(other as u32, vec![1]);
        assert_eq!(receive(&nets[other].end(Topic::Agent)), (breaker as u32, vec![1]));
    }
    assert_eq!(nets[2].counters().refused, 0);
}

#[test]
fn a_cut_drops_one_topic_both_ways_until_it_is_joined() {
    let nets = Job::new(3).all();
    let [agents, apps] = Topic::ALL.map(|topic| [0, 1, 2].map(|rank| nets[rank].end(topic)));
    nets[0].cut(Topic::Agent, Peers::One(1), true);
    agents[0].send(1, b"lost".to_vec());
    agents[1].send(0, b"lost, too".to_vec());
    // What comes after it on the same connection tells that it would be here by now.
    for (from, to) in [(0, 1), (1, 0)] {
        apps[from].send(to as u32, b"app".to_vec());
        assert_eq!(receive(&apps[to]), (from as u32, b"app".to_vec()));
        assert_eq!(agents[to].try_recv(), None);
    }
    agents[0].send(2, b"others hear us".to_vec());
    assert_eq!(receive(&agents[2]), (0, b"others hear us".to_vec()));
    assert_eq!(nets[0].counters().cut, 2);
    assert!(nets[0].peer(1).up, "a cut is silence, not a break");
    nets[0].cut(Topic::Agent, Peers::One(1), false);
    agents[0].send(1, b"again".to_vec());
    assert_eq!(receive(&agents[1]), (0, b"again".to_vec()));
    nets[0].cut(Topic::Agent, Peers::All, true);
    agents[0].send(1, vec![]);
    agents[0].send(2, vec![]);
    assert_eq!(nets[0].counters().cut, 4);
}

#[test]
fn peers_that_left_are_seen_as_such_and_silence_is_measured() {
    let mut nets = Job::new(3).all();
    until("signs of life", || {
        (0..2).all(|peer| nets[2].peer(peer).heard.is_some_and(|at| at > nets[2].peer(peer).since))
    });
    let root = nets[0].root();
    drop(nets.remove(0));
    for net in &nets {
        until("the end of rank 0", || !net.peer(0).up);
        assert_eq!(net.peer(0).reason, LinkReason::Left);
        let agent = net.end(Topic::Agent);
        assert!(agent.has_left(0) && !agent.has_left(3 - net.rank()));
        assert!(net.peer(3 - net.rank()).up && !net.peer(7).up);
        let silent = net.peer(0).silence();
        std::thread::sleep(Duration::from_millis(2));
        assert!(net.peer(0).silence() > silent);
        let error = net.bootstrap().all_gather(&[]).unwrap_err();
        assert!(matches!(error, BootstrapError::Lost { rank: 0, .. }), "{error}");
    }
    let error = TcpStream::connect(root).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused, "its sockets are closed");
}

#[test]
fn datagrams_for_one_who_is_away_do_not_pile_up() {
    let mut nets = Job::new(2).all();
    drop(nets.pop());
    until("the end of rank 1", || !nets[0].peer(1).up);
    let end = nets[0].end(Topic::App);
    for _ in 0..10_000 {
        end.send(1, vec![0; 100]);
    }
    end.send(2, vec![]);
    until("drops", || nets[0].counters().dropped == 10_001);
    assert_eq!(nets[0].counters().sent, 0);
}

#[test]
fn many_and_large_datagrams_arrive_whole_and_in_order() {
    let nets = Job::new(2).all();
    let (from, to) = (nets[1].end(Topic::App), nets[0].end(Topic::App));
    let size = |number: u32| if number.is_multiple_of(100) { 300_000 } else { number as usize % 200 };
    for number in 0..1000u32 {
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.resize(4 + size(number), number as u8);
        from.send(0, bytes);
    }
    for number in 0..1000u32 {
        let (_, bytes) = receive(&to);
        assert_eq!((&bytes[..4], bytes.len()), (&number.to_le_bytes()[..], 4 + size(number)));
        assert!(bytes[4..].iter().all(|byte| *byte == number as u8));
    }
}

#[test]
fn a_unique_id_is_all_it_takes() {
    let (id, listener) = UniqueId::create(None).unwrap();
    let text = id.to_text();
    let rank = |rank, listener| {
        let id: UniqueId = text.parse().unwrap();
        let mut options = JoinOptions::new(rank, 2, id.root(), id.secret());
        (options.listener, options.notices) = (listener, Notices::new(|_| {}));
        std::thread::spawn(move || TcpNet::join(options))
    };
    let nets = [rank(0, Some(listener)), rank(1, None)].map(|one| one.join().unwrap().unwrap());
    assert!(gather(&nets, |_| vec![]).iter().all(Result::is_ok));
}
