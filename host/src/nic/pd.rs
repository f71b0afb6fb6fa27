//! Protection domains.

use super::{create, destroy, short_in};
use crate::devx::Devx;
use crate::error::NicError;
use shunt_layout::mlx5::prm::cmd::Opcode;
use std::sync::Arc;

/// A protection domain: QPs reach only keys of their own.
pub struct Pd {
    devx: Arc<dyn Devx>,
    id: u32,
}

impl Pd {
    /// ALLOC_PD.
    pub fn alloc(devx: &Arc<dyn Devx>) -> Result<Self, NicError> {
        let id = create(&**devx, &short_in(Opcode::AllocPd, 0))?;
        Ok(Self { devx: devx.clone(), id })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        destroy(&*self.devx, Opcode::DeallocPd, self.id);
    }
}
