//! Each family of commands by example: given events, when command, then events.

mod carry;
mod constraints;
mod finish;
mod hold;
mod lease;
mod limits;
mod seek;
mod submit;
mod tick;
mod touch;
mod unmatched;
