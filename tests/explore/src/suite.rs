//! What is explored, by name: small bounds for every run of the tests, larger ones for CI and for a night, and designs
//! that must be found wrong.

use crate::failover::{self, Kind};
use crate::fetches;
use crate::mirror;
use crate::paths;
use crate::search::{Ending, Found, search};
use crate::words;

/// States after which a search gives up: a bound on memory, about 60 bytes each.
pub const STATES_MAX: usize = 120_000_000;

/// When a case is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scale {
    /// On every run of the tests.
    Small,
    /// On every run of CI.
    Ci,
    /// When somebody asks for it.
    Night,
}

/// A model with its bounds.
#[derive(Clone, Debug)]
pub enum Model {
    /// Failover.
    F(failover::Setup),
    /// Words.
    W(words::Setup),
    /// Both ends of one path.
    P(paths::Setup),
    /// Exact fetching atomics.
    X(fetches::Setup),
    /// What the agent is shown of a switch.
    M(mirror::Setup),
}

/// What a case is to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No promise is broken.
    Holds,
    /// A promise is broken.
    Broken,
}

/// One named exploration.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// What is explored.
    pub model: Model,
    /// What is to come of it.
    pub expect: Expect,
    /// When it is run.
    pub scale: Scale,
}

impl Case {
    /// Searches it.
    pub fn run(&self, say: impl Fn(usize, usize)) -> Found {
        match &self.model {
            Model::F(setup) => search(setup, STATES_MAX, say),
            Model::W(setup) => search(setup, STATES_MAX, say),
            Model::P(setup) => search(setup, STATES_MAX, say),
            Model::X(setup) => search(setup, STATES_MAX, say),
            Model::M(setup) => search(setup, STATES_MAX, say),
        }
    }

    /// True if it came out as expected. A bound that was reached shows nothing.
    pub fn passed(&self, found: &Found) -> bool {
        match (&found.ending, self.expect) {
            (Ending::Holds, Expect::Holds) | (Ending::Broken(_), Expect::Broken) => true,
            (Ending::Holds | Ending::Broken(_) | Ending::Bounded, _) => false,
        }
    }
}

/// Every case up to `scale`, the larger ones first, so that two threads end together.
pub fn cases(scale: Scale) -> Vec<Case> {
    let mut cases = failover_cases();
    cases.extend(words_cases());
    cases.extend(path_cases());
    cases.extend(fetch_cases());
    cases.extend(mirror_cases());
    cases.extend(broken_failover());
    cases.extend(broken_words());
    cases.extend(broken_paths());
    cases.extend(broken_fetches());
    cases.extend(broken_mirror());
    cases.retain(|case| case.scale <= scale);
    cases
}

fn failover_cases() -> Vec<Case> {
    use Scale::{Ci, Night, Small};
    let case = |name, scale, setup| Case { name, model: Model::F(setup), expect: Expect::Holds, scale };
    let new = failover::Setup::new;
    let (one, two, three) = (Kind::Monotone, Kind::Cleared, Kind::Shared);
    vec![
        case("kind 1", Ci, new(one, "PSPS", "").paths(3).faults(2, 1)),
        case("kind 2", Small, new(two, "PSPS", "").paths(3).faults(2, 1)),
        case("kind 2, bracket", Ci, new(two, "PSPS", "").paths(3).faults(2, 1).bracket()),
        case("kind 3", Small, new(three, "PSPS", "").paths(3).faults(2, 1)),
        case("gets", Ci, new(two, "PGSG", "").paths(3).faults(2, 1)),
        case("gets first", Small, new(one, "GPGS", "").paths(3).faults(2, 0)),
        case("both ways, kind 1", Small, new(one, "PS", "PS").faults(1, 0)),
        case("both ways, kind 2", Night, new(two, "PS", "PS").faults(1, 1)),
        case("both ways, kind 1, two faults", Night, new(one, "PS", "PS").faults(2, 0)),
        case("both ways, get, revival", Ci, new(two, "GS", "PS").faults(1, 0).revival()),
        case("both ways, three paths", Night, new(two, "PS", "PS").paths(3).faults(2, 1)),
        case("revival, kind 1", Ci, new(one, "PSPS", "").faults(2, 1).revival()),
        case("revival, kind 2", Small, new(two, "PSPS", "").faults(2, 1).revival()),
        case("revival, both ways", Night, new(two, "PS", "PS").faults(2, 0).revival()),
        case("revival, three paths", Night, new(two, "PSPS", "").paths(3).faults(3, 1).revival()),
        case("two writers, kind 3", Small, new(three, "PSPS", "").faults(1, 1).other_adds(2)),
        case("two writers, revival", Small, new(three, "PS", "").faults(1, 0).other_adds(2).revival()),
        case("agent dies, kind 1", Small, new(one, "PSPS", "").faults(2, 0).agent_death()),
        case("agent dies, bracket", Ci, new(two, "PSPS", "").faults(2, 0).agent_death().bracket()),
        case("agent dies, no bracket", Small, new(two, "PSPS", "").faults(2, 0).agent_death()),
        case("agent dies, both ways", Night, new(one, "PS", "PS").faults(1, 0).agent_death()),
        case("agent dies, gets", Small, new(one, "GSG", "").faults(2, 0).agent_death()),
        case("NIC mute, kind 1", Ci, new(one, "PSPS", "").faults(1, 1).mute()),
        case("NIC mute, bracket", Ci, new(two, "PSPS", "").faults(1, 1).mute().bracket()),
        case("NIC mute, gets", Ci, new(one, "PGSG", "").faults(1, 1).mute()),
        case("NIC mute, both ways", Night, new(one, "PS", "PS").faults(1, 1).mute()),
        case("a NIC of each end mute", Small, new(one, "PS", "").faults(2, 0).a_nic_of_each_end()),
        case(
            "a NIC of each end mute, bracket",
            Ci,
            new(two, "PSPS", "").faults(2, 0).a_nic_of_each_end().bracket(),
        ),
        case("time fence, kind 1", Ci, new(one, "PSPS", "").faults(1, 1).timed()),
        case("time fence, bracket", Ci, new(two, "PSPS", "").faults(1, 1).timed().bracket()),
        case("time fence, kind 1, three paths", Night, new(one, "PSP", "").paths(3).faults(2, 1).timed()),
        case(
            "time fence, bracket, three paths",
            Night,
            new(two, "PSPS", "").paths(3).faults(2, 1).timed().bracket(),
        ),
        case("time fence, both ways", Night, new(one, "PS", "PS").faults(1, 1).timed()),
        case("time fence, gets", Small, new(one, "GSG", "").faults(1, 1).timed()),
        case("time fence, gets, three paths", Night, new(one, "GSG", "").paths(3).faults(2, 1).timed()),
        case("three faults, kind 1", Night, new(one, "PSPS", "").paths(3).faults(3, 2)),
        case("three faults, kind 2", Night, new(two, "PSPS", "").paths(3).faults(3, 2).revival()),
        case("three faults, gets", Night, new(two, "PGSG", "").paths(3).faults(3, 2).revival()),
    ]
}

fn words_cases() -> Vec<Case> {
    use Scale::{Ci, Night, Small};
    let case = |name, scale, setup| Case { name, model: Model::W(setup), expect: Expect::Holds, scale };
    let new = words::Setup::new;
    vec![
        case("words, one fault", Ci, new(2, 1, [1, 1, 1], [2, 1, 1])),
        case("words, two faults", Ci, new(2, 2, [1, 1, 1], [1, 1, 1])),
        case("words, a group of two", Small, new(2, 1, [2, 1, 1], [1, 1, 1])),
        case("words, two faults, four tickets", Night, new(2, 2, [1, 1, 1], [2, 1, 1])),
        case("words, three faults", Night, new(2, 3, [1, 1, 1], [1, 1, 1])),
        case("words, groups, two faults", Night, new(2, 2, [2, 1, 2], [1, 1, 1])),
        case("words, groups, depth 3", Night, new(3, 1, [2, 1, 1], [1, 2, 2])),
    ]
}

fn broken_failover() -> Vec<Case> {
    use failover::Break;
    let case =
        |name, setup| Case { name, model: Model::F(setup), expect: Expect::Broken, scale: Scale::Small };
    let new = failover::Setup::new;
    let (one, two, three) = (Kind::Monotone, Kind::Cleared, Kind::Shared);
    vec![
        case("no fence", new(two, "PSPS", "").without(Break::NoFence)),
        case("cut from the last CQE", new(two, "PSPS", "").without(Break::CutFromCompletions)),
        case("query before ERR", new(two, "PSPS", "").without(Break::QueryBeforeError)),
        case(
            "deadline as fence",
            new(one, "PSPS", "")
                .faults(0, 1)
                .timed()
                .without(Break::DeadlineAsFence)
                .without(Break::NoLifetime),
        ),
        case("one-sided fence, gets", new(two, "PGSP", "").faults(0, 1).without(Break::OneSided)),
        case("no flush, kind 1", new(one, "PSPS", "").without(Break::NoFlush)),
        case("no flush, kind 2", new(two, "PSPS", "").without(Break::NoFlush)),
        case("no flush after drain", new(two, "PSPS", "").revival().without(Break::NoDrainFlush)),
        case("no drain", new(two, "PSPS", "").revival().without(Break::NoDrain).without(Break::NoDrainFlush)),
        case("X forgotten", new(two, "GPS", "").paths(3).faults(2, 0).without(Break::ForgetExecuted)),
        case("gets not issued again", new(two, "PGSP", "").without(Break::NoReget)),
        case("revival without handshake", new(two, "PSPS", "").revival().without(Break::ReviveAlone)),
        case("revival, other direction in use", new(two, "PS", "PS").revival().without(Break::ReviveAlone)),
        case("PSNs used again", new(two, "PSPS", "").revival().without(Break::ReusePsn)),
        case("no lifetime, kind 1", new(one, "PSPS", "").timed().without(Break::NoLifetime)),
        case("no lifetime, bracket", new(two, "PSPS", "").timed().bracket().without(Break::NoLifetime)),
        case(
            "mute NIC entered",
            new(one, "PS", "").faults(2, 0).a_nic_of_each_end().without(Break::MuteEntered),
        ),
        case("no atomic home", new(three, "PSPS", "").other_adds(2).without(Break::NoAtomicHome)),
    ]
}

fn broken_words() -> Vec<Case> {
    use words::Break;
    let case =
        |name, setup| Case { name, model: Model::W(setup), expect: Expect::Broken, scale: Scale::Small };
    let new = words::Setup::new;
    let four = || new(2, 1, [1, 1, 1], [2, 1, 1]);
    let twice = || new(2, 2, [1, 1, 1], [1, 1, 1]);
    vec![
        case("no BLOCKED", four().without(Break::NoBlocked)),
        case("limit by depth", new(3, 1, [2, 1, 2], [1, 1, 1]).without(Break::LimitByDepth)),
        case(
            "room without generation",
            new(1, 1, [1, 1, 1], [2, 1, 0]).without(Break::RoomWithoutGeneration),
        ),
        case("done without generation", twice().without(Break::DoneWithoutGeneration)),
        case("late doorbell", twice().without(Break::LateDoorbell)),
        case("open by a plain store", four().without(Break::OpenByStore)),
    ]
}

fn path_cases() -> Vec<Case> {
    use Scale::{Ci, Night, Small};
    let case = |name, scale, setup| Case { name, model: Model::P(setup), expect: Expect::Holds, scale };
    let new = paths::Setup::new;
    vec![
        case("path, fence, prompt", Small, new(1, 1).one_way().prompt()),
        case("path, first making, prompt", Small, new(0, 2).fresh().prompt()),
        case("path, fence", Ci, new(1, 1).one_way()),
        case("path, both ways, prompt", Ci, new(1, 1).prompt()),
        case("path, first making", Ci, new(0, 2).fresh()),
        case("path, in use again, prompt", Ci, new(1, 1).one_way().returns(1).prompt()),
        case("path, order, prompt", Ci, new(0, 1).orders(1).prompt()),
        case("path, loss, prompt", Ci, new(1, 1).one_way().words(1, 0).prompt()),
        case("path, NIC fails, prompt", Ci, new(1, 1).one_way().nics(1, 0).prompt()),
        case("path, port, prompt", Ci, new(0, 1).one_way().ports(1).prompt()),
        case("path, making, loss, prompt", Ci, new(0, 1).fresh().words(1, 0).prompt()),
        case("path, making, NIC, prompt", Ci, new(0, 1).fresh().nics(1, 0).prompt()),
        case("path, making, order, prompt", Ci, new(0, 1).fresh().orders(1).prompt()),
        // The rest of the end that leads counted from the fence of its own half, and the other's may be later.
        case("path, rest below a lifetime", Ci, new(1, 1).prompt().no_backoff()),
        case("path, NICs silent, prompt", Ci, new(1, 1).one_way().nics(0, 2).prompt()),
        case("path, one end lags, prompt", Ci, new(1, 2).one_way().lags(1).prompt()),
        case("path, both ways", Night, new(1, 1)),
        case("path, both ways, two ticks, prompt", Night, new(1, 2).prompt()),
        case("path, loss, both ways, prompt", Night, new(1, 1).words(1, 1).prompt()),
        case("path, NIC fails, silent, prompt", Night, new(1, 1).one_way().nics(1, 1).prompt()),
        case("path, NIC dies, prompt", Night, new(1, 2).one_way().death().prompt()),
        case("path, port, asked, prompt", Night, new(1, 1).one_way().ports(1).prompt()),
        case("path, two orders, prompt", Night, new(0, 1).one_way().orders(2).prompt()),
        case("path, making, loss", Night, new(0, 1).fresh().words(1, 1)),
        case("path, making, NIC, two ticks, prompt", Night, new(0, 2).fresh().nics(1, 1).prompt()),
        case("path, making, orders, prompt", Night, new(0, 1).fresh().orders(2).prompt()),
    ]
}

fn broken_paths() -> Vec<Case> {
    use paths::Break;
    let case =
        |name, setup| Case { name, model: Model::P(setup), expect: Expect::Broken, scale: Scale::Small };
    let new = || paths::Setup::new(1, 2).prompt();
    vec![
        case("path, 2ERR is a lie", new().but(Break::LyingError)),
        case("path, flush before ERR", new().but(Break::EarlyFlush)),
        case("path, left too soon", new().but(Break::LeftTooSoon)),
        case("path, clock runs ahead", new().but(Break::FastClock)),
        case("path, count too high", new().but(Break::WrongCount)),
        case(
            "path, destroyed is a lie",
            paths::Setup::new(1, 1).prompt().one_way().nics(1, 1).but(Break::LyingDestroy),
        ),
        case(
            "path, used counts as unused",
            paths::Setup::new(1, 1).prompt().one_way().nics(0, 1).but(Break::UsedCountsAsUnused),
        ),
        case("path, probes not answered", new().fresh().but(Break::LyingProbes)),
    ]
}

fn fetch_cases() -> Vec<Case> {
    use Scale::{Ci, Small};
    let case = |name, scale, setup| Case { name, model: Model::X(setup), expect: Expect::Holds, scale };
    let new = fetches::Setup::new;
    vec![
        case("exact fetch", Small, new([2, 1])),
        case("exact fetch, agents follow", Ci, new([2, 1]).troubles(2, 0, 1)),
        case("exact fetch, home moves", Ci, new([2, 1]).adds(2).troubles(0, 1, 1)),
        case("exact fetch, all of it", Ci, new([2, 2]).adds(2).troubles(2, 2, 1)),
    ]
}

fn broken_fetches() -> Vec<Case> {
    use fetches::Break;
    let case =
        |name, setup| Case { name, model: Model::X(setup), expect: Expect::Broken, scale: Scale::Small };
    let new = || fetches::Setup::new([2, 1]);
    vec![
        case("exact fetch, executed twice", new().troubles(1, 0, 0).without(Break::ExecutedTwice)),
        case("exact fetch, any reply", new().without(Break::OtherReply)),
        case("exact fetch, home not awaited", new().adds(2).troubles(0, 1, 0).without(Break::HomeNotAwaited)),
    ]
}

fn mirror_cases() -> Vec<Case> {
    use Scale::{Ci, Small};
    let case = |name, scale, setup| Case { name, model: Model::M(setup), expect: Expect::Holds, scale };
    let new = mirror::Setup::new;
    vec![
        case("mirror, one switch", Small, new(1, 1, 1).posts(1).gone()),
        case("mirror, two switches", Ci, new(2, 1, 3).posts(1)),
        case("mirror, two leases end", Ci, new(2, 2, 2)),
        case("mirror, one path, an owner gone", Small, new(1, 1, 1).posts(1).gone().alone()),
        case("mirror, an owner gone", Ci, new(2, 1, 2).posts(1).gone()),
        case("mirror, the channel ends", Ci, new(1, 1, 2).posts(2).death().gone()),
    ]
}

fn broken_mirror() -> Vec<Case> {
    use mirror::Break;
    let case =
        |name, setup| Case { name, model: Model::M(setup), expect: Expect::Broken, scale: Scale::Small };
    let new = || mirror::Setup::new(2, 1, 2);
    vec![
        case("mirror, stored late", new().without(Break::StoredLate)),
        case("mirror, read early", new().without(Break::ReadEarly)),
        case("mirror, by a plain store", new().without(Break::MirrorByStore)),
        case("mirror, the word by a plain store", new().without(Break::WordByStore)),
        case(
            "mirror, not shown by the heir",
            mirror::Setup::new(1, 0, 1).gone().alone().without(Break::NotShownByHeir),
        ),
        case("mirror, not looked at again", new().posts(1).without(Break::NotLookedAgain)),
        case("mirror, no reminder", mirror::Setup::new(1, 0, 0).gone().without(Break::NobodyReminds)),
        case("hot line, kept", new().posts(2).without(Break::LineKept)),
        case("hot line, copied early", new().posts(1).without(Break::LineCopiedEarly)),
        case("hot line, its incarnation first", new().posts(1).gone().without(Break::IncarnationFirst)),
        case("mirror, dead has left", new().posts(1).death().without(Break::DeadHasLeft)),
    ]
}
