//! Where things lie in the region of a decoder: pages by layer, then the contexts. Pure.

use crate::words::Shape;
use shunt_transfer_engine::shard::Pages;

/// A decoder's region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Its shape.
    pub shape: Shape,
    /// Pages of each layer.
    pub pages: u32,
    /// Contexts that may be wanted at once.
    pub contexts: u32,
}

impl Cache {
    fn layer_len(&self) -> u64 {
        u64::from(self.pages) * self.shape.page_len
    }

    /// Where a page of a layer begins.
    pub fn page_at(&self, layer: u32, page: u32) -> u64 {
        u64::from(layer) * self.layer_len() + u64::from(page) * self.shape.page_len
    }

    /// Where a context begins.
    pub fn context_at(&self, context: u32) -> u64 {
        u64::from(self.shape.layers) * self.layer_len() + u64::from(context) * self.shape.context_len
    }

    /// Bytes of the whole.
    pub fn bytes(&self) -> u64 {
        self.context_at(self.contexts)
    }

    /// These pages of a layer, as a paged write names them.
    pub fn pages_of(&self, layer: u32, pages: &[u32]) -> Pages {
        Pages { indices: pages.to_vec(), stride: self.shape.page_len, offset: self.page_at(layer, 0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_all_of_it_is_used() {
        let cache = Cache { shape: Shape { layers: 3, page_len: 16, context_len: 5 }, pages: 4, contexts: 2 };
        let pages = (0..3).flat_map(|layer| (0..4).map(move |page| (layer, page)));
        let mut all: Vec<_> = pages.map(|(layer, page)| (cache.page_at(layer, page), 16)).collect();
        all.extend((0..2).map(|context| (cache.context_at(context), 5)));
        all.sort_unstable();
        let mut next = 0;
        for (at, len) in all {
            assert_eq!(at, next);
            next += len;
        }
        assert_eq!(next, cache.bytes());
        let named = cache.pages_of(2, &[3, 1]);
        assert_eq!((named.at(0), named.at(1)), (Some(cache.page_at(2, 3)), Some(cache.page_at(2, 1))));
    }
}
