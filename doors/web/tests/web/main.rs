//! The web pages, over a live API on a test bench.

mod access;
mod actions;
mod forms;
mod harness;
mod hostile;
mod pages;
mod reading;
