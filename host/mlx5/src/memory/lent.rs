//! Memory of the program's own: registered here, neither made nor freed here.

use super::heap::{copy_in, copy_out};
use super::{GpuMemory, OwnedSpan, Placement, Span};
use crate::error::GpuError;
use std::sync::Arc;

/// Memory that somebody lends.
struct Lent {
    span: Span,
    /// Keeps the memory. Dropped when no NIC uses it any more.
    _owner: Box<dyn Send + Sync>,
}

/// Lends memory to NICs. `owner` is kept until all of them let go of it.
///
/// # Errors
/// It has no bytes, or an end beyond the last address.
///
/// # Safety
/// All of these bytes can be read and written until `owner` is dropped. The program does not touch what a transfer
/// reads or writes before that transfer has ended.
pub unsafe fn lend(span: Span, owner: Box<dyn Send + Sync>) -> Result<Arc<OwnedSpan>, GpuError> {
    if span.bytes == 0 || span.address == 0 || span.address.checked_add(span.bytes).is_none() {
        return Err(GpuError::OutOfBounds { address: span.address, bytes: span.bytes });
    }
    let memory: Arc<dyn GpuMemory> = Arc::new(Lent { span, _owner: owner });
    OwnedSpan::alloc(&memory, span.bytes, Placement::Heap)
}

impl Lent {
    fn check(&self, address: u64, bytes: usize) -> Result<(), GpuError> {
        let bytes = bytes as u64;
        let offset = address.checked_sub(self.span.address);
        match offset.and_then(|offset| offset.checked_add(bytes)) {
            Some(end) if end <= self.span.bytes => Ok(()),
            _ => Err(GpuError::OutOfBounds { address, bytes }),
        }
    }
}

impl GpuMemory for Lent {
    fn alloc(&self, _bytes: u64, _placement: Placement) -> Result<Span, GpuError> {
        Ok(self.span)
    }

    unsafe fn free(&self, _span: Span) {}

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.check(address, bytes.len())?;
        // SAFETY: inside the memory that was lent (checked), for which the caller of `lend` vouches.
        unsafe { copy_in(address, bytes) }
        Ok(())
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.check(address, bytes.len())?;
        // SAFETY: as above.
        unsafe { copy_out(address, bytes) }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_kept_until_it_is_let_go_of_and_no_byte_beside_it_is_touched() {
        let owner = Arc::new(());
        let mut bytes = vec![7u8; 64];
        let address = bytes.as_mut_ptr().expose_provenance() as u64 + 3;
        let lent = |bytes| {
            // SAFETY: the vector lives to the end of this test, which touches it by this memory alone.
            unsafe { lend(Span { address, bytes }, Box::new(owner.clone())) }
        };
        let span = lent(8).expect("it can be lent");
        assert_eq!((span.span(), Arc::strong_count(&owner)), (Span { address, bytes: 8 }, 2));
        span.memory().write(address, &[1; 8]).expect("inside");
        assert!(
            span.memory().write(address, &[1; 9]).is_err()
                && span.memory().read(address - 1, &mut [0]).is_err()
        );
        let mut read = [0; 8];
        span.memory().read(address, &mut read).expect("inside");
        assert_eq!(read, [1; 8]);
        drop(span);
        assert_eq!(Arc::strong_count(&owner), 1);
        assert!(lent(0).is_err() && lent(u64::MAX).is_err());
        assert_eq!((bytes[2], bytes[3], bytes[10], bytes[11]), (7, 1, 1, 7));
    }
}
