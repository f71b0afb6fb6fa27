//! One ioctl: its header and attributes, parsed, and typed access to what they carry.
//!
//! Everything here is what a program wrote and may be anything. Shapes are refused as the kernel refuses them; memory
//! is copied with checks.

use crate::abi::ids::{ATTRIBUTE_MANDATORY, ATTRIBUTE_VALID_OUTPUT};
use crate::abi::uverbs::{Attribute, Header};
use crate::abi::{Plain, structure};
use crate::user;
use rustix::io::Errno;
use std::os::fd::RawFd;

/// Longest header with attributes, as in the kernel.
const MAX_BYTES: usize = 4096;
/// Data up to this length lies in the attribute itself.
const INLINE_BYTES: usize = 8;

structure! {
    /// A handle as INVOKE_WRITE commands carry it.
    Handle: 4 {
        /// Number in the file's table.
        number: u32 = 0,
    }
}

/// A parsed call.
#[derive(Debug)]
pub struct Call {
    /// Where the header lies.
    address: u64,
    header: Header,
    attributes: Vec<Attribute>,
}

impl Call {
    /// Reads header and attributes from the program's memory.
    pub fn read(address: u64) -> Result<Self, Errno> {
        let header: Header = user::read_value(address)?;
        let bytes = size_of::<Header>() + header.attributes as usize * size_of::<Attribute>();
        if header.length as usize != bytes || bytes > MAX_BYTES {
            return Err(Errno::INVAL);
        }
        if header.reserved_1 != 0 || header.reserved_2 != 0 {
            return Err(Errno::PROTONOSUPPORT);
        }
        let mut raw = vec![0; bytes - size_of::<Header>()];
        user::read(address.wrapping_add(size_of::<Header>() as u64), &mut raw)?;
        let attributes: Vec<_> =
            raw.chunks_exact(size_of::<Attribute>()).map(Attribute::from_bytes).collect();
        let call = Self { address, header, attributes };
        call.check_flags()?;
        Ok(call)
    }

    fn check_flags(&self) -> Result<(), Errno> {
        for (n, attribute) in self.attributes.iter().enumerate() {
            if attribute.flags & !(ATTRIBUTE_MANDATORY | ATTRIBUTE_VALID_OUTPUT) != 0 {
                return Err(Errno::INVAL);
            }
            if self.attributes[..n].iter().any(|earlier| earlier.id == attribute.id) {
                return Err(Errno::INVAL);
            }
        }
        Ok(())
    }

    /// Refuses mandatory attributes that a method does not know.
    pub fn check_known(&self, known: &[u16]) -> Result<(), Errno> {
        let strange = |attribute: &&Attribute| {
            attribute.flags & ATTRIBUTE_MANDATORY != 0 && !known.contains(&attribute.id)
        };
        if self.attributes.iter().any(|attribute| strange(&attribute)) {
            return Err(Errno::PROTONOSUPPORT);
        }
        Ok(())
    }

    /// Object type.
    pub fn object(&self) -> u16 {
        self.header.object
    }

    /// Method of the object type.
    pub fn method(&self) -> u16 {
        self.header.method
    }

    fn find(&self, id: u16) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.id == id)
    }

    fn need(&self, id: u16) -> Result<&Attribute, Errno> {
        self.find(id).ok_or(Errno::INVAL)
    }

    /// True if the attribute is there.
    pub fn has(&self, id: u16) -> bool {
        self.find(id).is_some()
    }

    /// Room or data the attribute names, in bytes; 0 if it is not there.
    pub fn len(&self, id: u16) -> usize {
        self.find(id).map_or(0, |attribute| attribute.length as usize)
    }

    /// True if the call has no attributes.
    pub fn is_empty(&self) -> bool {
        self.attributes.is_empty()
    }

    /// Data in: all of it.
    pub fn input_bytes(&self, id: u16) -> Result<Vec<u8>, Errno> {
        let attribute = self.need(id)?;
        let mut bytes = vec![0; attribute.length as usize];
        if bytes.len() <= INLINE_BYTES {
            let inline = attribute.data.to_ne_bytes();
            bytes.copy_from_slice(&inline[..attribute.length as usize]);
        } else {
            user::read(attribute.data, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// A value in. Shorter data is refused; longer data must go on with zeros.
    pub fn input<T: Plain>(&self, id: u16) -> Result<T, Errno> {
        let bytes = self.input_bytes(id)?;
        if bytes.len() < size_of::<T>() {
            return Err(Errno::INVAL);
        }
        if bytes[size_of::<T>()..].iter().any(|byte| *byte != 0) {
            return Err(Errno::OPNOTSUPP);
        }
        Ok(T::from_bytes(&bytes))
    }

    /// A value in, or what stands for its absence.
    pub fn input_or<T: Plain>(&self, id: u16, absent: T) -> Result<T, Errno> {
        if self.has(id) { self.input(id) } else { Ok(absent) }
    }

    /// A value in that older programs give a shorter form of: what is missing is zero.
    pub fn input_grown<T: Plain>(&self, id: u16) -> Result<T, Errno> {
        Ok(T::from_bytes(&self.input_bytes(id)?))
    }

    /// The handle of an object.
    pub fn handle(&self, id: u16) -> Result<u32, Errno> {
        let attribute = self.need(id)?;
        if attribute.length != 0 {
            return Err(Errno::INVAL);
        }
        u32::try_from(attribute.data).map_err(|_| Errno::NOENT)
    }

    /// A file descriptor.
    pub fn fd(&self, id: u16) -> Result<RawFd, Errno> {
        let attribute = self.need(id)?;
        match i32::try_from(attribute.data as i64) {
            Ok(fd) if fd >= 0 && attribute.length == 0 => Ok(fd),
            _ => Err(Errno::BADF),
        }
    }

    /// Tells the handle of a new object.
    pub fn set_handle(&mut self, id: u16, handle: u32) -> Result<(), Errno> {
        self.set_data(id, handle as u64)
    }

    /// Tells the number of a new file descriptor.
    pub fn set_fd(&mut self, id: u16, fd: RawFd) -> Result<(), Errno> {
        self.set_data(id, fd as i64 as u64)
    }

    fn set_data(&mut self, id: u16, data: u64) -> Result<(), Errno> {
        let at = self.place(id)? + std::mem::offset_of!(Attribute, data) as u64;
        user::write(at, &data.to_ne_bytes())
    }

    /// Where the attribute lies in the program's memory.
    fn place(&self, id: u16) -> Result<u64, Errno> {
        let n = self.attributes.iter().position(|attribute| attribute.id == id).ok_or(Errno::INVAL)?;
        Ok(self.address + (size_of::<Header>() + n * size_of::<Attribute>()) as u64)
    }

    /// Data out: as much as there is room for, and zeros to the end of the room. ENOSPC if there is no room at all.
    pub fn output(&mut self, id: u16, bytes: &[u8]) -> Result<(), Errno> {
        let attribute = *self.need(id)?;
        let room = attribute.length as usize;
        if room == 0 && !bytes.is_empty() {
            return Err(Errno::NOSPC);
        }
        let mut whole = bytes[..bytes.len().min(room)].to_vec();
        whole.resize(room, 0);
        user::write(attribute.data, &whole)?;
        let flags = self.place(id)? + std::mem::offset_of!(Attribute, flags) as u64;
        user::write(flags, &(attribute.flags | ATTRIBUTE_VALID_OUTPUT).to_ne_bytes())
    }

    /// A value out; ENOSPC if it does not fit.
    pub fn output_value<T: Plain>(&mut self, id: u16, value: &T) -> Result<(), Errno> {
        if self.len(id) < size_of::<T>() {
            return Err(Errno::NOSPC);
        }
        self.output(id, value.bytes())
    }

    /// A value out, if the program asked for it.
    pub fn output_if<T: Plain>(&mut self, id: u16, value: &T) -> Result<(), Errno> {
        if self.has(id) { self.output(id, value.bytes()) } else { Ok(()) }
    }
}
