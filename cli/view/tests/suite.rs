//! Tests of the page and the trace.
mod view;
