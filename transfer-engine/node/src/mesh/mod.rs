//! Nodes that find each other one by one, at any time: a connection over TCP to each, which brings what their agents
//! say.
//!
//! | module | what it is |
//! | --- | --- |
//! | `words` | what they say; pure |
//! | `book` | who is known, by which connection, and what is to be done; pure |
//! | `link` | the engine's end of it |
//! | `order` | what that thread is asked for |
//! | `thread` | the connections, and the thread that drives them |

mod book;
mod link;
mod order;
mod thread;
mod words;

pub(crate) use order::Order;
pub(crate) use thread::{Host as MeshHost, Mesh, MeshParts};
pub(crate) use words::{Hello, Id};
