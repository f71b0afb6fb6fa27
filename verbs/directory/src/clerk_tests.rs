//! A clerk at a shelf of memory that fails when it is told to, in time that is handed over.

use super::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Memory {
    kept: BTreeMap<String, Vec<u8>>,
    down: bool,
    /// A name that cannot be touched.
    locked: Option<String>,
    connects: u32,
    puts: u32,
}

#[derive(Clone, Default)]
struct Place(Arc<Mutex<Memory>>);

impl Place {
    fn answer<T>(&self, act: impl FnOnce(&mut Memory) -> T) -> io::Result<T> {
        let mut memory = self.0.lock().unwrap();
        if memory.down { Err(io::Error::other("expected an answer, got none")) } else { Ok(act(&mut memory)) }
    }

    fn touch(&self, key: &str) -> io::Result<()> {
        let is_locked = self.0.lock().unwrap().locked.as_deref() == Some(key);
        if is_locked { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
    }

    fn set_down(&self, down: bool) {
        self.0.lock().unwrap().down = down;
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().kept.keys().cloned().collect()
    }

    fn count(&self, of: impl Fn(&Memory) -> u32) -> u32 {
        of(&self.0.lock().unwrap())
    }

    fn clerk(&self, secret: &str, name: &str) -> Clerk {
        Clerk::new(Box::new(self.clone()), &Secret::from_text(secret).unwrap(), name)
    }
}

impl Shelf for Place {
    fn place(&self) -> String {
        "memory".into()
    }

    fn connect(&mut self) -> io::Result<()> {
        self.answer(|memory| memory.connects += 1)
    }

    fn put(&mut self, key: &str, value: &[u8]) -> io::Result<()> {
        self.touch(key)?;
        self.answer(|memory| {
            memory.puts += 1;
            memory.kept.insert(key.to_owned(), value.to_owned());
        })
    }

    fn get(&mut self, key: &str) -> io::Result<Option<Vec<u8>>> {
        self.touch(key)?;
        self.answer(|memory| memory.kept.get(key).cloned())
    }

    fn remove(&mut self, key: &str) -> io::Result<()> {
        self.answer(|memory| _ = memory.kept.remove(key))
    }

    fn renewal(&self) -> Duration {
        Duration::from_secs(20)
    }
}

const SECRET: &str = "sixteen letters!";
const END: End = ([5; 16], 0x99);

fn after(start: Instant, milliseconds: u64) -> Instant {
    start + Duration::from_millis(milliseconds)
}

#[test]
fn entries_are_found_by_others_and_go_with_their_queue_pair() {
    let (place, start) = (Place::default(), Instant::now());
    let (mut one, mut other) = (place.clerk(SECRET, "one"), place.clerk(SECRET, "other"));
    assert_eq!(one.step(start, vec![Order::Put(END)]), [Answer::Open]);
    assert_eq!(
        other.step(start, vec![Order::Ask(END), Order::Ask(([5; 16], 0x98))]),
        [Answer::Open, Answer::Is(END, "one".into())]
    );
    // Another process has the number by now: its entry stays.
    assert_eq!(other.step(start, vec![Order::Put(END)]), []);
    assert_eq!(one.step(start, vec![Order::Remove(END)]), []);
    assert_eq!(one.step(start, vec![Order::Ask(END)]), [Answer::Is(END, "other".into())]);
    assert_eq!(other.step(start, vec![Order::Remove(END)]), []);
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn what_another_secret_sealed_is_refused_and_so_is_what_nobody_did() {
    let (place, start) = (Place::default(), Instant::now());
    let (mut one, mut stranger) = (place.clerk(SECRET, "one"), place.clerk("seventeen letters", "x"));
    stranger.step(start, vec![Order::Put(END)]);
    let key = entry::key(&END);
    let told = |got: &str| format!("memory, {key}: expected {got}; it is not used", got = got);
    let foreign = told("an entry sealed by this secret for this queue pair, got another");
    assert_eq!(one.step(start, vec![Order::Ask(END)]), [Answer::Open, Answer::Refused(foreign)]);
    // A real entry, under the name of another queue pair.
    one.step(start, vec![Order::Put(([6; 16], 1))]);
    let real = place.0.lock().unwrap().kept[&entry::key(&([6; 16], 1))].clone();
    place.0.lock().unwrap().kept.insert(key.clone(), real);
    let foreign = told("an entry sealed by this secret for this queue pair, got another");
    assert_eq!(one.step(start, vec![Order::Ask(END)]), [Answer::Refused(foreign)]);
    place.0.lock().unwrap().kept.insert(key.clone(), b"10.0.0.1:7700".to_vec());
    let forged = told("an entry of this library, got something else");
    assert_eq!(one.step(start, vec![Order::Ask(END)]), [Answer::Refused(forged)]);
}

/// One name that could not be written closed the whole place for a process, and nothing was looked up there any more.
#[test]
fn a_name_that_cannot_be_touched_is_told_and_others_are_found() {
    let (place, start) = (Place::default(), Instant::now());
    let (mut one, mut other) = (place.clerk(SECRET, "one"), place.clerk(SECRET, "other"));
    other.step(start, vec![Order::Put(([6; 16], 1))]);
    let key = entry::key(&END);
    place.0.lock().unwrap().locked = Some(key.clone());
    let got = one.step(start, vec![Order::Put(END), Order::Ask(([6; 16], 1))]);
    let told = format!(
        "memory, {key}: expected a name that this process may write, got: permission denied; it is not there"
    );
    assert_eq!(got, [Answer::Open, Answer::Refused(told), Answer::Is(([6; 16], 1), "other".into())]);
    let told =
        format!("memory, {key}: expected an entry of this library, got something else; it is not used");
    assert_eq!(one.step(start, vec![Order::Ask(END)]), [Answer::Refused(told)]);
}

#[test]
fn a_place_that_is_gone_is_tried_once_a_second_and_told_of_everything_when_it_is_back() {
    let (place, start) = (Place::default(), Instant::now());
    let mut one = place.clerk(SECRET, "one");
    place.set_down(true);
    let closed = Answer::Closed(
        "the store at memory: expected an answer, got none; new connections are unprotected".into(),
    );
    assert_eq!(one.step(start, vec![Order::Put(END), Order::Ask(END)]), vec![closed.clone()]);
    assert_eq!(one.step(after(start, 999), vec![Order::Ask(END)]), [], "not so soon");
    place.set_down(false);
    assert_eq!(one.step(after(start, 1000), vec![]), [Answer::Open]);
    assert_eq!(place.names(), [entry::key(&END)]);
    // It loses what it had, and an entry that has gone meanwhile is taken off.
    let gone = ([6; 16], 1);
    one.step(after(start, 1000), vec![Order::Put(gone)]);
    place.set_down(true);
    assert_eq!(one.step(after(start, 2000), vec![Order::Ask(END)]), vec![closed.clone()]);
    // Its last attempt is a second ago, so that it tries at once.
    assert_eq!(one.step(after(start, 2100), vec![Order::Remove(gone)]), [closed]);
    assert_eq!(one.step(after(start, 2200), vec![]), []);
    place.0.lock().unwrap().kept.remove(&entry::key(&END));
    place.set_down(false);
    assert_eq!(one.step(after(start, 3100), vec![]), [Answer::Open]);
    assert_eq!(place.names(), [entry::key(&END)]);
    assert_eq!(place.count(|memory| memory.connects), 2);
}

#[test]
fn what_is_asked_twice_at_once_is_looked_up_once() {
    let (place, start) = (Place::default(), Instant::now());
    let mut one = place.clerk(SECRET, "one");
    one.step(start, vec![Order::Put(END)]);
    assert_eq!(one.step(start, vec![Order::Ask(END); 3]), [Answer::Is(END, "one".into())]);
}

#[test]
fn entries_are_renewed_in_time_and_not_before() {
    let (place, start) = (Place::default(), Instant::now());
    let mut one = place.clerk(SECRET, "one");
    one.step(start, vec![Order::Put(END)]);
    one.step(after(start, 19_999), vec![]);
    assert_eq!(place.count(|memory| memory.puts), 1);
    one.step(after(start, 20_000), vec![]);
    assert_eq!(place.count(|memory| memory.puts), 2);
    one.step(after(start, 20_001), vec![]);
    assert_eq!(place.count(|memory| memory.puts), 2);
}

#[test]
fn the_thread_answers_and_ends_with_its_desk() {
    let place = Place::default();
    let mut desk = Desk::open(place.clerk(SECRET, "one")).unwrap();
    let remarks = Remarks::default();
    desk.put(END);
    let until = Instant::now() + Duration::from_secs(20);
    let mut found = Vec::new();
    while found.is_empty() {
        assert!(Instant::now() < until, "no answer");
        assert!(desk.ask(END));
        std::thread::sleep(Duration::from_millis(1));
        found = desk.carry_on(&remarks);
    }
    assert_eq!((&found[0], desk.is_open()), (&(END, "one".to_owned()), Some(true)));
    drop(desk);
    // The thread lets its shelf go.
    while Arc::strong_count(&place.0) > 1 {
        assert!(Instant::now() < until, "the thread stays");
        std::thread::sleep(Duration::from_millis(1));
    }
}
