//! Paths by key. A key is a small number that stays while its path does; a path that is given up frees it.

use super::endpoint::{Half, Prober};
use super::path::{PathMachine, Polled};
use shunt_device::platform::host::World;

/// A path and what is open for it.
pub(super) struct Entry {
    pub peer: u32,
    /// Posts probes while the path is being probed, and the half that it posts on: dropped in this order.
    pub prober: Option<(Box<dyn Prober>, Half)>,
    pub path: PathMachine<Half>,
}

impl Entry {
    /// What became of its probes since the last look.
    pub fn poll_probes(&mut self, world: &dyn World) -> Polled {
        let mut polled = Polled::default();
        let Some((prober, _)) = &mut self.prober else { return polled };
        while let Some(result) = prober.poll(world) {
            match result {
                Ok(()) => polled.answered += 1,
                Err(error) => polled.failed = Some(error.to_string()),
            }
        }
        polled.has_room = prober.has_room();
        polled
    }
}

/// All paths of an engine.
#[derive(Default)]
pub struct Paths {
    entries: Vec<Option<Entry>>,
    freed: Vec<usize>,
}

impl Paths {
    /// A place for a path to a peer, by the next key; `None`: nothing ever has that key.
    pub fn add(&mut self, peer: u32, path: Option<PathMachine<Half>>) -> usize {
        self.entries.push(path.map(|path| Entry { peer, path, prober: None }));
        self.entries.len() - 1
    }

    /// A path to a peer, by a key that was freed and is `usable`, or else the next one.
    pub(super) fn insert(
        &mut self,
        peer: u32,
        path: PathMachine<Half>,
        usable: impl Fn(usize) -> bool,
    ) -> usize {
        let at = self.freed.iter().position(|key| usable(*key));
        match at.map(|at| self.freed.swap_remove(at)) {
            Some(key) => {
                self.entries[key] = Some(Entry { peer, path, prober: None });
                key
            }
            None => self.add(peer, Some(path)),
        }
    }

    /// Takes a path away, and frees its key.
    pub(super) fn remove(&mut self, key: usize) -> Option<PathMachine<Half>> {
        // What posts on the half goes before it.
        let Entry { path, prober, .. } = self.entries.get_mut(key)?.take()?;
        drop(prober);
        self.freed.push(key);
        Some(path)
    }

    /// Every key, of paths and of none.
    pub fn keys(&self) -> std::ops::Range<usize> {
        0..self.entries.len()
    }

    /// Keys of paths to a peer.
    pub fn keys_to(&self, peer: u32) -> impl Iterator<Item = usize> + '_ {
        self.keys().filter(move |key| self.peer(*key) == Some(peer))
    }

    /// The paths.
    pub fn iter(&self) -> impl Iterator<Item = &PathMachine<Half>> {
        self.entries.iter().flatten().map(|entry| &entry.path)
    }

    /// A path.
    pub fn get(&self, key: usize) -> Option<&PathMachine<Half>> {
        self.entries.get(key)?.as_ref().map(|entry| &entry.path)
    }

    /// A path, to be changed without any output.
    pub fn get_mut(&mut self, key: usize) -> Option<&mut PathMachine<Half>> {
        self.entry(key).map(|entry| &mut entry.path)
    }

    /// Where a path leads.
    pub fn peer(&self, key: usize) -> Option<u32> {
        self.entries.get(key)?.as_ref().map(|entry| entry.peer)
    }

    pub(super) fn entry(&mut self, key: usize) -> Option<&mut Entry> {
        self.entries.get_mut(key)?.as_mut()
    }

    /// Every path, to be left to another engine.
    pub fn take_all(&mut self) -> Vec<Option<PathMachine<Half>>> {
        self.freed.clear();
        self.entries.drain(..).map(|entry| entry.map(|entry| entry.path)).collect()
    }
}
