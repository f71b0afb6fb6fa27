//! What the programs on the transfer engine share.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`options`] | rails, NICs, faults and the file of the verdict, as they are typed |
//! | [`alike`] | options that all ends of a run must have alike |
//! | [`place`] | what carries the packets, and the ends of this process |
//! | [`faults`] | faults that were planned, and how often each struck |
//! | [`lost`] | an end whose process is gone, and who speaks for the others |
//! | [`start`] | `main`: from the command line to the exit status |
//! | [`why`] | why a verdict is not clean, in a sentence |
//! | [`trial`] | runs of a program by its own tests |

pub mod alike;
pub mod faults;
pub mod lost;
pub mod options;
pub mod place;
pub mod start;
pub mod trial;
pub mod why;

pub use options::NicOptions;
