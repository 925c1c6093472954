//! HTML that pages share. maud escapes whatever is put into it.

mod chart;
mod layout;
mod parts;
mod words;

pub(crate) use chart::{Chart, Line, Values, sparkline};
pub(crate) use layout::{Tab, shell};
pub(crate) use parts::{
    Time, age_of, button, cut, empty, fact, facts, hidden_form, job_link, number, pager,
    queue_link, queue_path, span_of, status_badge, time, unseen, visible,
};
pub(crate) use words::{bytes, duration_ms, duration_us, grouped, plural, short_count, short_us};
