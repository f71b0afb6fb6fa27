//! What a verbs program has posted and does not know to be complete. Pure: nothing here posts, or knows a NIC.
//!
//! * [`send_queue`]: requests, which the other end's count cuts; [`receive_queue`]: buffers.
//! * [`record`] and [`shapes`]: how requests are kept, in few words; [`request`]: what they say.
//! * [`policy`]: what is posted again.

pub mod policy;
pub mod receive_queue;
pub mod record;
pub mod request;
pub mod send_queue;
pub mod shapes;
