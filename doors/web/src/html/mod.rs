//! HTML that pages share. maud escapes everything that is inserted.

mod chart;
mod layout;
mod parts;
mod words;

pub(crate) use chart::{Chart, Line, Values, sparkline};
pub(crate) use layout::{Tab, shell};
pub(crate) use parts::{
    Time, age_of, batch_link, batch_path, button, cut, duration_whole, empty, fact, facts,
    first_line, hidden_form, job_link, number, pager, queue_link, queue_path, since, span_of,
    status_badge, time, unseen, visible,
};
pub(crate) use words::{bytes, duration_ms, duration_us, grouped, plural, short_count, short_us};
