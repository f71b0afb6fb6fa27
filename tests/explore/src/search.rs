//! Breadth-first search over the states of a model: all of them within a bound, the shortest trace to a broken promise.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::time::{Duration, Instant};

use crate::fingerprint;

/// States between two looks at the clock.
const LOOK_EVERY: usize = 1 << 14;
/// Time between two lines of progress.
const SAY_EVERY: Duration = Duration::from_secs(5);

/// A system whose interleavings are explored. One action is one thing that somebody does at once.
pub trait Model {
    /// All of the system.
    type State: Copy + Hash;
    /// Something that can happen.
    type Action: Copy;

    /// Where it begins.
    fn initial(&self) -> Self::State;
    /// Everything that can happen in `state`, in a fixed order.
    fn actions(&self, state: &Self::State, out: &mut Vec<Self::Action>);
    /// The state after `action`.
    ///
    /// # Errors
    /// What promise the action itself breaks.
    fn apply(&self, state: &Self::State, action: Self::Action) -> Result<Self::State, String>;
    /// What must hold in every state.
    ///
    /// # Errors
    /// The promise that is broken.
    fn check(&self, state: &Self::State) -> Result<(), String>;
    /// What must hold where nothing but idle looks can happen any more.
    ///
    /// # Errors
    /// The promise that is broken.
    fn check_at_rest(&self, state: &Self::State) -> Result<(), String>;
    /// True if nothing would come of `action` here but another look: who can only do such things is stuck.
    fn is_idle(&self, _state: &Self::State, _action: Self::Action) -> bool {
        false
    }
    /// `action` in `state`, in words.
    fn describe(&self, state: &Self::State, action: Self::Action) -> String;
}

/// How a search ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Every reachable state was looked at and no promise was broken.
    Holds,
    /// The bound on states was reached first; nothing was found so far.
    Bounded,
    /// A promise is broken.
    Broken(Trace),
}

/// A shortest way to a broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The promise.
    pub what: String,
    /// What happened, in order.
    pub steps: Vec<String>,
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "  {:3}  {step}", number + 1)?;
        }
        write!(f, "  broken: {}", self.what)
    }
}

/// What came of a search.
#[derive(Clone, Debug)]
pub struct Found {
    /// States told apart.
    pub states: usize,
    /// Steps of the longest shortest way.
    pub depth: usize,
    /// How it ended.
    pub ending: Ending,
    /// How long it took.
    pub took: Duration,
}

/// The fingerprints are hashes already.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only fingerprints are kept");
    }
    fn write_u128(&mut self, print: u128) {
        self.0 = (print >> 64) as u64;
    }
}

/// How a state was reached: from which one, by its how manyeth action.
#[derive(Clone, Copy)]
struct Origin {
    from: u32,
    action: u8,
}

const ROOT: u32 = u32::MAX;

struct Search<'m, M: Model> {
    model: &'m M,
    seen: HashSet<u128, BuildHasherDefault<Identity>>,
    origins: Vec<Origin>,
    next: Vec<(M::State, u32)>,
    actions: Vec<M::Action>,
}

impl<M: Model> Search<'_, M> {
    /// Looks at one state; the broken promise, if there is one.
    fn expand(&mut self, state: &M::State, id: u32) -> Result<(), Trace> {
        self.actions.clear();
        self.model.actions(state, &mut self.actions);
        if self.actions.iter().all(|action| self.model.is_idle(state, *action)) {
            self.model.check_at_rest(state).map_err(|what| self.trace(id, None, what))?;
        }
        for number in 0..self.actions.len() {
            let action = u8::try_from(number).expect("fewer than 256 things can happen at once");
            let after = self
                .model
                .apply(state, self.actions[number])
                .map_err(|what| self.trace(id, Some(action), what))?;
            if self.seen.insert(fingerprint::of(&after)) {
                self.origins.push(Origin { from: id, action });
                let id = self.origins.len() as u32 - 1;
                self.model.check(&after).map_err(|what| self.trace(id, None, what))?;
                self.next.push((after, id));
            }
        }
        Ok(())
    }

    /// The way to state `id`, and one action more, in words: origins say the way back, the model says it again.
    fn trace(&self, mut id: u32, last: Option<u8>, what: String) -> Trace {
        let mut way: Vec<u8> = last.into_iter().collect();
        while self.origins[id as usize].from != ROOT {
            way.push(self.origins[id as usize].action);
            id = self.origins[id as usize].from;
        }
        let (mut state, mut steps) = (self.model.initial(), Vec::new());
        for number in way.into_iter().rev() {
            let mut actions = Vec::new();
            self.model.actions(&state, &mut actions);
            let action = actions[usize::from(number)];
            steps.push(self.model.describe(&state, action));
            match self.model.apply(&state, action) {
                Ok(after) => state = after,
                Err(_) => break,
            }
        }
        Trace { what, steps }
    }
}

/// Searches all states of `model`, at most about `bound` of them. `say` hears of the progress now and then: states so
/// far, steps from the start.
pub fn search<M: Model>(model: &M, bound: usize, say: impl Fn(usize, usize)) -> Found {
    let bound = bound.min(ROOT as usize - 1);
    let (start, mut said) = (Instant::now(), Instant::now());
    let mut search = Search {
        model,
        seen: HashSet::default(),
        origins: vec![Origin { from: ROOT, action: 0 }],
        next: Vec::new(),
        actions: Vec::new(),
    };
    let first = model.initial();
    search.seen.insert(fingerprint::of(&first));
    search.next.push((first, 0));
    let mut depth = 0;
    let found = |states: usize, depth, ending| Found { states, depth, ending, took: start.elapsed() };
    while !search.next.is_empty() {
        let layer = std::mem::take(&mut search.next);
        for (number, (state, id)) in layer.iter().enumerate() {
            if let Err(trace) = search.expand(state, *id) {
                return found(search.origins.len(), depth, Ending::Broken(trace));
            }
            if number % LOOK_EVERY == 0 && said.elapsed() > SAY_EVERY {
                said = Instant::now();
                say(search.origins.len(), depth);
            }
            if search.origins.len() > bound {
                return found(search.origins.len(), depth, Ending::Bounded);
            }
        }
        depth += 1;
    }
    found(search.origins.len(), depth.saturating_sub(1), Ending::Holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two counters up to `top`; `forbidden` must not be reached, `goal` is where it may end.
    struct Counters {
        top: u8,
        forbidden: (u8, u8),
        goal: (u8, u8),
    }

    impl Model for Counters {
        type State = (u8, u8);
        type Action = bool;

        fn initial(&self) -> (u8, u8) {
            (0, 0)
        }
        fn actions(&self, state: &(u8, u8), out: &mut Vec<bool>) {
            out.extend((state.0 < self.top).then_some(false));
            out.extend((state.1 < self.top).then_some(true));
        }
        fn apply(&self, state: &(u8, u8), second: bool) -> Result<(u8, u8), String> {
            Ok(if second { (state.0, state.1 + 1) } else { (state.0 + 1, state.1) })
        }
        fn check(&self, state: &(u8, u8)) -> Result<(), String> {
            if *state == self.forbidden { Err("forbidden".into()) } else { Ok(()) }
        }
        fn check_at_rest(&self, state: &(u8, u8)) -> Result<(), String> {
            if *state == self.goal { Ok(()) } else { Err(format!("ends in {state:?}")) }
        }
        fn describe(&self, _state: &(u8, u8), second: bool) -> String {
            (if second { "second" } else { "first" }).into()
        }
    }

    #[test]
    fn all_states_are_counted_once() {
        let model = Counters { top: 9, forbidden: (99, 99), goal: (9, 9) };
        let found = search(&model, usize::MAX, |_, _| ());
        assert_eq!((found.states, found.depth, found.ending), (100, 18, Ending::Holds));
    }

    #[test]
    fn the_shortest_trace_is_found() {
        let model = Counters { top: 9, forbidden: (2, 1), goal: (9, 9) };
        let Ending::Broken(trace) = search(&model, usize::MAX, |_, _| ()).ending else { panic!("not found") };
        assert_eq!((trace.steps.len(), trace.what.as_str()), (3, "forbidden"));
        let model = Counters { top: 2, forbidden: (9, 9), goal: (0, 0) };
        let Ending::Broken(trace) = search(&model, usize::MAX, |_, _| ()).ending else { panic!("not found") };
        assert_eq!((trace.steps.len(), trace.what.as_str()), (4, "ends in (2, 2)"));
    }

    #[test]
    fn a_bound_is_said_to_be_one() {
        let model = Counters { top: 200, forbidden: (199, 199), goal: (200, 200) };
        assert_eq!(search(&model, 1000, |_, _| ()).ending, Ending::Bounded);
    }
}
