//! Words that kernels write, and that an engine's thread looks at.

use crate::error::CallError;
use crate::node::Node;
use shunt_transfer_engine::ids::WatcherId;
use shunt_transfer_engine::watch::{OnChange, ReadWord};

impl Node {
    /// Has the engine's thread look at a word, in each of its steps. `each` is called on that thread with the value
    /// before and the value now. It must return soon, and not wait for the engine. Values between two looks are passed
    /// over; the last one never is. A thread that has nothing else to do looks every half a millisecond.
    ///
    /// # Errors
    /// The engine is closed.
    pub fn watch(&self, read: ReadWord, each: OnChange) -> Result<WatcherId, CallError> {
        self.asker.ask(move |engine, _| engine.watch(read, each))
    }

    /// Ends a watcher: once this returns neither of its functions is called. False if it has ended already.
    ///
    /// # Errors
    /// The engine is closed.
    pub fn unwatch(&self, watcher: WatcherId) -> Result<bool, CallError> {
        self.asker.ask(move |engine, _| engine.unwatch(watcher))
    }
}
