//! Protection domains.

use super::short_in;
use crate::devx::Devx;
use crate::error::NicError;
use shunt_layout::mlx5::prm::cmd::Opcode;
use std::sync::Arc;

/// ALLOC_PD.
pub fn alloc_in() -> [u8; 16] {
    short_in(Opcode::AllocPd, 0)
}

/// A protection domain: QPs reach only keys of their own.
pub struct Pd {
    devx: Arc<dyn Devx>,
    id: u32,
}

impl Pd {
    /// Makes one.
    pub fn alloc(devx: &Arc<dyn Devx>) -> Result<Self, NicError> {
        let id = devx.alloc_pd()?;
        Ok(Self { devx: devx.clone(), id })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        if self.devx.responsive() {
            let _ = self.devx.dealloc_pd(self.id);
        }
    }
}
