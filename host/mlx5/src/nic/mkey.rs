//! Memory keys over a part of a umem. PRM: "CREATE_MKEY", "Mkey Context".

pub use crate::devx::{Access, MkeyShape};

use super::umem::Umem;
use crate::devx::Devx;
use crate::error::{DevxError, GpuError, NicError};
use crate::memory::OwnedSpan;
use shunt_layout::mlx5::prm::cmd::{self, Opcode, Status};
use shunt_layout::mlx5::prm::mkey::{
    ACCESS_MODE_MTT, CREATE_IN_BYTES, MKC_OFFSET, create as fields, key, mkc, translation_octwords,
};
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// Low byte of every key: chosen by software, of no meaning to the NIC.
const LOW_BYTE: u8 = 0;
const ANY_QPN: u32 = 0xff_ffff;
const LOG_PAGE_4K: u32 = 12;

/// CREATE_MKEY. Ordering is strict for reads and writes alike, so that signals may travel under the same key as data;
/// relaxed for writes under a key made for data alone.
pub fn create_in(shape: &MkeyShape) -> [u8; CREATE_IN_BYTES] {
    let mut mailbox = [0; CREATE_IN_BYTES];
    cmd::input::OPCODE.set(&mut mailbox, Opcode::CreateMkey as u32);
    fields::MKEY_UMEM_VALID.set(&mut mailbox, 1);
    fields::MKEY_UMEM_ID.set(&mut mailbox, shape.umem);
    fields::MKEY_UMEM_OFFSET.set(&mut mailbox, shape.offset);
    let context = &mut mailbox[MKC_OFFSET..MKC_OFFSET + mkc::BYTES];
    let all = (shape.access == Access::Remote) as u32;
    mkc::A.set(context, all);
    mkc::RW.set(context, (shape.access != Access::Local) as u32);
    mkc::RR.set(context, all);
    mkc::RELAXED_ORDERING_WRITE.set(context, (shape.access == Access::Relaxed) as u32);
    mkc::LW.set(context, 1);
    mkc::LR.set(context, 1);
    mkc::ACCESS_MODE_1_0.set(context, ACCESS_MODE_MTT);
    mkc::QPN.set(context, ANY_QPN);
    mkc::MKEY_7_0.set(context, LOW_BYTE as u32);
    mkc::PD.set(context, shape.pd);
    mkc::START_ADDR.set(context, shape.address);
    mkc::LEN.set(context, shape.bytes);
    mkc::LOG_PAGE_SIZE.set(context, LOG_PAGE_4K);
    let octwords = translation_octwords(shape.address, shape.bytes, LOG_PAGE_4K);
    mkc::TRANSLATIONS_OCTWORD_SIZE.set(context, octwords);
    fields::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.set(&mut mailbox, octwords);
    mailbox
}

/// The key of an mkey index as this crate makes it.
pub fn key_of(index: u32) -> u32 {
    key(index, LOW_BYTE)
}

/// The mkey index of a key.
pub fn index_of(key: u32) -> u32 {
    key >> 8
}

/// Registers memory through its dma-buf if it has one. Where that fails the address itself is tried: with the kernel
/// module nvidia_peermem the kernel can pin a GPU's memory by it.
///
/// # Errors
/// Both refusals. A NIC that does not answer is not asked again.
fn either_way<B>(
    nic: &str,
    dmabuf: Result<Option<B>, GpuError>,
    mut register: impl FnMut(Option<B>) -> Result<u32, DevxError>,
) -> Result<u32, NicError> {
    let first = match dmabuf {
        Ok(None) => return Ok(register(None)?),
        Ok(Some(buf)) => match register(Some(buf)) {
            Ok(key) => return Ok(key),
            Err(error) if error.is_timeout() => return Err(error.into()),
            Err(error) => error.to_string(),
        },
        Err(error @ GpuError::OutOfBounds { .. }) => return Err(error.into()),
        Err(error) => error.to_string(),
    };
    register(None).map_err(|second| NicError::GpuMemory {
        nic: nic.into(),
        dmabuf: first,
        peermem: second.to_string(),
    })
}

/// A memory key. lkey and rkey are the same number.
pub struct Mkey {
    devx: Arc<dyn Devx>,
    key: u32,
    /// Held where no umem does.
    memory: ManuallyDrop<Option<Arc<OwnedSpan>>>,
    /// The NIC was asked to take it back, and did not say so.
    asked: bool,
    /// The NIC has taken it back.
    taken_back: bool,
}

impl Mkey {
    /// Makes a key over a part of the memory of `umem`.
    pub fn create(
        devx: &Arc<dyn Devx>,
        pd: u32,
        umem: &Umem,
        part: std::ops::Range<u64>,
        access: Access,
    ) -> Result<Self, NicError> {
        let span = umem.memory().span().part(part.start, part.end - part.start);
        let shape = MkeyShape {
            pd,
            umem: umem.id(),
            offset: part.start,
            address: span.address,
            bytes: span.bytes,
            access,
        };
        let alone = !devx.keys_need_umem();
        let dmabuf = if alone { umem.memory().memory().dmabuf(span) } else { Ok(None) };
        // SAFETY: the umem, or this object, holds the allocation until the NIC let go of it, and everybody in this
        // crate and in device code touches such memory atomically.
        let key = either_way(&devx.name(), dmabuf, |dmabuf| unsafe { devx.create_key(&shape, dmabuf) })?;
        let memory = ManuallyDrop::new(alone.then(|| umem.memory().clone()));
        Ok(Self { devx: devx.clone(), key, memory, asked: false, taken_back: false })
    }

    /// Has the NIC take the key back (`DESTROY_MKEY`): once it says so, nothing reads or writes by it any more. It may
    /// be asked again.
    ///
    /// # Errors
    /// As the NIC answers.
    pub fn take_back(&mut self) -> Result<(), NicError> {
        if self.taken_back {
            return Ok(());
        }
        match self.devx.destroy_key(self.key) {
            // A command that was not answered in time may have been carried out since.
            Err(DevxError::Refused { status, .. }) if self.asked && status == Status::BadRes as u8 => {}
            result => {
                self.asked = true;
                result?;
            }
        }
        self.taken_back = true;
        Ok(())
    }

    /// The key as a number.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// The key as key tables and segments hold it.
    pub fn key_be(&self) -> u32 {
        self.key().to_be()
    }
}

impl Drop for Mkey {
    fn drop(&mut self) {
        if self.taken_back || self.devx.responsive() && self.take_back().is_ok() {
            // SAFETY: dropped here only. If the NIC did not let go, the memory is leaked on purpose: it may still
            // write there.
            unsafe { ManuallyDrop::drop(&mut self.memory) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(what: &str) -> DevxError {
        let (nic, what, detail) = ("mlx5_0".into(), "memory registration", what.into());
        DevxError::Resource { nic, what, detail }
    }

    /// Registers `given`; each registration, of the dma-buf or of the address, is answered in turn.
    fn tried(
        given: Result<Option<()>, GpuError>,
        answers: &[Result<u32, DevxError>],
    ) -> (Vec<bool>, Result<u32, NicError>) {
        let (mut by_dmabuf, mut answers) = (Vec::new(), answers.iter());
        let key = either_way("mlx5_0", given, |buf| {
            by_dmabuf.push(buf.is_some());
            answers.next().unwrap().clone()
        });
        (by_dmabuf, key)
    }

    #[test]
    fn memory_without_a_dma_buf_is_tried_by_its_address() {
        let no_dmabuf = GpuError::NoMemory { bytes: 1 };
        assert_eq!(tried(Ok(None), &[Ok(7)]), (vec![false], Ok(7)));
        assert_eq!(tried(Ok(Some(())), &[Ok(7)]), (vec![true], Ok(7)));
        assert_eq!(tried(Ok(Some(())), &[Err(refused("EOPNOTSUPP")), Ok(8)]), (vec![true, false], Ok(8)));
        assert_eq!(tried(Err(no_dmabuf), &[Ok(9)]), (vec![false], Ok(9)));
    }

    #[test]
    fn both_refusals_of_a_gpus_memory_are_told() {
        let error = tried(Ok(Some(())), &[Err(refused("EOPNOTSUPP")), Err(refused("EFAULT"))]).1;
        assert_eq!(
            error.unwrap_err().to_string(),
            "mlx5_0: expected the GPU's memory to be registered, got by dma-buf: mlx5_0: memory registration failed: \
             EOPNOTSUPP; by nvidia_peermem: mlx5_0: memory registration failed: EFAULT; use the open GPU kernel \
             modules with Linux 5.12 or later, or load nvidia_peermem, or put the heap in the host's memory \
             (SHUNT_HEAP=host)"
        );
    }

    #[test]
    fn a_nic_that_does_not_answer_is_not_asked_again() {
        let dead = DevxError::Timeout { nic: "mlx5_0".into(), command: "MR".into(), waited_ns: 1 };
        let (tries, key) = tried(Ok(Some(())), &[Err(dead.clone())]);
        assert_eq!((tries, key), (vec![true], Err(dead.into())));
    }
}
