//! What must become of a path once nothing more goes wrong: bounds end a search, so from where they do, it goes on in
//! one fair order.

use super::happen::Action;
use super::promises::name;
use super::setup::Setup;
use super::state::{Budget, System};
use crate::search::Model;
use shunt_recovery::health::Health;

/// Ticks that a path may take.
const TICKS: usize = 48;
/// Things that may happen between two of them.
const BETWEEN: usize = 64;

impl Setup {
    /// From here on there is no fault: no request stays unanswered, and both ends come back, or are retired.
    pub(super) fn comes_back(&self, before: &System) -> Result<(), String> {
        let mut way = Vec::new();
        self.goes_on(before, &mut way).map_err(|what| {
            let way: Vec<String> = way.iter().map(|(s, action)| self.describe(s, *action)).collect();
            format!("{what}\n      {}", way.join("\n      "))
        })
    }

    fn goes_on(&self, before: &System, way: &mut Vec<(System, Action)>) -> Result<(), String> {
        let mut s = *before;
        s.budget = Budget::default();
        let mut actions = Vec::new();
        for _ in 0..TICKS {
            for turn in 0..BETWEEN {
                actions.clear();
                self.all_actions(&s, &mut actions);
                actions.extend([0, 1].map(|at| Action::Look { at }).into_iter().filter(|_| self.prompt));
                let Some(after) = self.next(&s, &actions, turn, way)? else { break };
                s = after;
            }
            if is_well(&s) {
                return Ok(());
            }
            let tick = Action::Tick { seen: [true; 2] };
            way.push((s, tick));
            self.happens(&mut s, tick)?;
        }
        if let Some(at) = s.ends.iter().position(|end| end.owner.waits) {
            return Err(format!("bounded waits: {} is never answered", name(at)));
        }
        let [a, b] = s.ends.map(|end| (end.path.health(), end.path.incarnation()));
        Err(format!("comes back: A stays {} {}, B stays {} {}", word(a.0), a.1, word(b.0), b.1))
    }

    /// What happens next, of all that would change something: each has its turn.
    fn next(
        &self,
        s: &System,
        actions: &[Action],
        turn: usize,
        way: &mut Vec<(System, Action)>,
    ) -> Result<Option<System>, String> {
        for step in 0..actions.len() {
            let action = actions[(turn + step) % actions.len()];
            let mut after = *s;
            way.push((*s, action));
            self.happens(&mut after, action)?;
            if after != *s {
                return Ok(Some(after));
            }
            way.pop();
        }
        Ok(None)
    }
}

fn word(health: Health) -> String {
    format!("{health:?}")
}

/// True if no owner waits and the path works again, or is out. A NIC that is dead brings nothing back.
fn is_well(s: &System) -> bool {
    if s.ends.iter().any(|end| end.owner.waits || end.owner.answered) {
        return false;
    }
    let [leads, follows] = s.ends.map(|end| (end.path.health(), end.path.standing().out));
    let same = s.ends[0].path.incarnation() == s.ends[1].path.incarnation();
    let out = leads == (Health::Retired, true);
    match follows {
        _ if s.ends.iter().any(|end| end.nic.dead) => true,
        // Who follows and has not heard of the order waits for an offer that does not come.
        (Health::Retired, true) | (Health::Released, false) if out => true,
        (Health::Ready, false) => leads == (Health::Ready, false) && same,
        _ => false,
    }
}
