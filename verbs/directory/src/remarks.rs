//! What a directory has met that it does not use: each is told once.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The texts.
#[derive(Default)]
pub struct Remarks(Mutex<(BTreeSet<String>, Vec<String>)>);

/// So many different texts are kept: who sends what it likes does not fill the memory.
const MAX: usize = 256;

impl Remarks {
    /// To be told, unless it was.
    pub fn add(&self, text: String) {
        let mut inside = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, new) = &mut *inside;
        if known.len() < MAX && known.insert(text.clone()) {
            new.push(text);
        }
    }

    /// Those that were not told yet.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once_and_there_is_an_end_of_them() {
        let remarks = Remarks::default();
        ["a", "b", "a"].into_iter().for_each(|text| remarks.add(text.into()));
        assert_eq!((remarks.take(), remarks.take()), (vec!["a".to_owned(), "b".to_owned()], vec![]));
        (0..2 * MAX).for_each(|n| remarks.add(n.to_string()));
        assert_eq!(remarks.take().len(), MAX - 2);
    }
}
