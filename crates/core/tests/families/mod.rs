//! Each family of commands by example: given events, when command, then events.

mod aging;
mod audit;
mod batches;
mod compaction;
mod constraints;
mod consumers;
mod fair;
mod finish;
mod flows;
mod hold;
mod lease;
mod limits;
mod limits_page;
mod places;
mod room;
mod scan;
mod schedules;
mod submit;
mod tick;
mod undo;
mod unmatched;
mod update;
