//! UAR pages: the doorbell registers.

use crate::devx::{Devx, UarPage};
use crate::error::NicError;
use std::sync::Arc;

/// A mapped UAR page of its own.
pub struct Uar {
    devx: Arc<dyn Devx>,
    page: UarPage,
}

impl Uar {
    /// Maps a fresh page.
    pub fn map(devx: &Arc<dyn Devx>) -> Result<Self, NicError> {
        Ok(Self { devx: devx.clone(), page: devx.map_uar()? })
    }

    /// Number that contexts carry.
    pub fn id(&self) -> u32 {
        self.page.id
    }

    /// Address of the page.
    pub fn page(&self) -> u64 {
        self.page.address
    }

    /// Address of the send doorbell register.
    pub fn register(&self) -> u64 {
        self.page.register
    }
}

impl Drop for Uar {
    fn drop(&mut self) {
        self.devx.free_uar(self.page.id);
    }
}
