//! The history, fed by hand and by an engine.

mod book;
mod engine;
