//! Soft EFAs as their programs see them, in virtual time.

mod garbage;
mod reads;
mod rig;
mod sends;
