//! The caller's memory: read and written here alone. Nothing is assumed of alignment.

use crate::failure::{Failure, Status};
use shunt_transfer_engine::shard::Pages;
use std::ffi::{CStr, c_char};

/// Bytes of the caller's.
///
/// # Errors
/// NULL, where there are to be some; more than there can be.
///
/// # Safety
/// Unless it is NULL, so many bytes can be read at the pointer, and nobody writes them while the result lives.
pub unsafe fn bytes<'a>(what: &str, pointer: *const u8, count: usize) -> Result<&'a [u8], Failure> {
    match (pointer.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::refused(what, "a pointer to bytes", "NULL")),
        (_, count) if isize::try_from(count).is_err() => {
            Err(Failure::refused(what, "bytes that fit in memory", count))
        }
        // SAFETY: the caller of this function vouches for the bytes; they are not NULL and fit, as was looked at.
        _ => Ok(unsafe { std::slice::from_raw_parts(pointer, count) }),
    }
}

/// Values of the caller's, copied.
///
/// # Errors
/// NULL, where there are to be some; more than there can be.
///
/// # Safety
/// Unless it is NULL, so many `T` lie at the pointer.
pub unsafe fn array<T: Copy>(what: &str, pointer: *const T, count: usize) -> Result<Vec<T>, Failure> {
    let size = count.checked_mul(size_of::<T>()).filter(|size| isize::try_from(*size).is_ok());
    size.ok_or_else(|| Failure::refused(what, "as many as fit in memory", count))?;
    if count > 0 {
        present(what, pointer)?;
    }
    // SAFETY: the caller of this function vouches for so many values; they are not NULL and fit, as was looked at.
    Ok((0..count).map(|at| unsafe { pointer.add(at).read_unaligned() }).collect())
}

/// A value of the caller's.
///
/// # Errors
/// NULL.
///
/// # Safety
/// Unless it is NULL, a `T` lies at the pointer.
pub unsafe fn read<T: Copy>(what: &str, pointer: *const T) -> Result<T, Failure> {
    present(what, pointer)?;
    // SAFETY: the caller of this function vouches for the value; it is not NULL.
    Ok(unsafe { pointer.read_unaligned() })
}

/// Gives the caller a value.
///
/// # Errors
/// NULL.
///
/// # Safety
/// Unless it is NULL, a `T` can be written at the pointer.
pub unsafe fn write<T>(what: &str, pointer: *mut T, value: T) -> Result<(), Failure> {
    present(what, pointer)?;
    // SAFETY: the caller of this function vouches for the room; it is not NULL.
    unsafe { pointer.write_unaligned(value) };
    Ok(())
}

/// Gives the caller values, and says how many there are. Where its array is NULL it says so alone.
///
/// # Errors
/// NULL for how many; an array with too few places, in which nothing was written.
///
/// # Safety
/// Unless it is NULL, `count` is how many `T` can be written at `places`, and can be written itself.
pub unsafe fn give<T: Copy>(
    what: &str,
    values: &[T],
    places: *mut T,
    count: *mut usize,
) -> Result<(), Failure> {
    // SAFETY: the caller of this function vouches for the word.
    let room = unsafe { read(&format!("places of {what}"), count) }?;
    // SAFETY: as above.
    unsafe { write(what, count, values.len()) }?;
    if places.is_null() {
        return Ok(());
    }
    if room < values.len() {
        let text = format!("{what}: expected room for {} or more, got {room}", values.len());
        return Err(Failure::new(Status::TooSmall, text));
    }
    for (at, value) in values.iter().enumerate() {
        // SAFETY: the caller's array has room for so many, by its own word.
        unsafe { places.add(at).write_unaligned(*value) };
    }
    Ok(())
}

/// Where a result goes, looked at before anything is done.
///
/// # Errors
/// NULL.
pub fn present<T>(what: &str, pointer: *const T) -> Result<(), Failure> {
    match pointer.is_null() {
        true => Err(Failure::refused(what, "a pointer", "NULL")),
        false => Ok(()),
    }
}

/// A text of the caller's.
///
/// # Errors
/// NULL.
///
/// # Safety
/// Unless it is NULL, it ends with a 0.
pub unsafe fn text(what: &str, pointer: *const c_char) -> Result<String, Failure> {
    present(what, pointer)?;
    // SAFETY: the caller of this function vouches for the 0; it is not NULL.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

/// `ste_pages`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawPages {
    /// Indices of pages.
    pub indices: *const u32,
    /// How many.
    pub count: usize,
    /// Bytes from one page to the next.
    pub stride: u64,
    /// First byte of page 0 in the region.
    pub offset: u64,
}

/// Pages of the caller's, copied.
///
/// # Errors
/// NULL, or more than there can be.
///
/// # Safety
/// Unless it is NULL, a [`RawPages`] lies at the pointer, and as many indices as it says at that of its own.
pub unsafe fn pages(what: &str, pointer: *const RawPages) -> Result<Pages, Failure> {
    // SAFETY: the caller of this function vouches for the structure.
    let RawPages { indices, count, stride, offset } = unsafe { read(what, pointer) }?;
    let size = count.checked_mul(size_of::<u32>());
    let size = size.ok_or_else(|| Failure::refused(what, "as many indices as fit in memory", count))?;
    // SAFETY: the caller of this function vouches for so many indices.
    let raw = unsafe { bytes(&format!("{what}.indices"), indices.cast(), size) }?;
    let index = |index: &[u8]| u32::from_ne_bytes([index[0], index[1], index[2], index[3]]);
    Ok(Pages { indices: raw.chunks_exact(size_of::<u32>()).map(index).collect(), stride, offset })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_memory_is_refused_before_it_is_touched() {
        let (one, mut other) = ([1u8, 2], 0u32);
        // SAFETY: NULL, and arrays of this function with their own lengths or lengths that are refused.
        unsafe {
            assert_eq!(bytes("a", std::ptr::null(), 0), Ok(&[][..]));
            assert_eq!(bytes("a", one.as_ptr(), 2), Ok(&[1, 2][..]));
            let refused = bytes("a", std::ptr::null(), 1).expect_err("NULL");
            assert_eq!(refused.text, "a: expected a pointer to bytes, got NULL");
            assert!(bytes("a", one.as_ptr(), usize::MAX).is_err());
            assert!(
                write("a", std::ptr::null_mut::<u32>(), 1).is_err() && text("a", std::ptr::null()).is_err()
            );
            assert_eq!((write("a", &raw mut other, 7), read("a", &raw const other)), (Ok(()), Ok(7)));
            let raw = |indices, count| RawPages { indices, count, stride: 8, offset: 1 };
            let indices = [5u32, 6];
            let read = pages("a", &raw(indices.as_ptr(), 2)).expect("two");
            assert_eq!((read.indices, read.stride, read.offset), (vec![5, 6], 8, 1));
            for (pointer, count) in
                [(std::ptr::null(), 1), (indices.as_ptr(), usize::MAX), (indices.as_ptr(), usize::MAX / 4)]
            {
                assert!(pages("a", &raw(pointer, count)).is_err(), "{count}");
            }
            assert!(pages("a", std::ptr::null()).is_err());
        }
    }
}
