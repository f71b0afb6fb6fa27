//! The main program's tests, as one program: what they share is compiled and linked once.

mod bad_input;
mod cli;
mod common;
mod default_run;
mod options;
mod placement;
mod processes;
mod put_bw;
mod report;
mod schemas;
mod stream;
