//! Each family of commands by example: given events, when command, then events.

mod carry;
mod finish;
mod hold;
mod lease;
mod limits;
mod submit;
mod tick;
