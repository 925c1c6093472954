//! `spindle jobs`: a list of jobs, once or again and again.

use std::{
    io::{self, IsTerminal, Write},
    thread,
    time::Duration,
};

use console::{Term, truncate_str};
use jiff::Timestamp;

use super::{
    server::Server,
    session::{JobQuery, Listed, More},
    times::{distance_of, plain},
    view::Job,
};
use crate::{
    cli::{JobStatus, JobsArgs, Sort, SortKey},
    exit::{Code, Failure, whole},
    output::{Rows, grouped, preview, write_json},
};

/// How much of a payload a list shows.
const PREVIEW_LETTERS: usize = 40;
/// As many bytes as that many letters may have, and one letter more, to see whether more follows.
const PREVIEW_BYTES: u32 = 4 * (PREVIEW_LETTERS as u32 + 1);

/// Lists jobs.
pub fn jobs(args: &JobsArgs) -> anyhow::Result<Code> {
    let server = Server::of(&args.common)?;
    if let Some(every_ms) = args.watch {
        return watch(args, &server, Duration::from_millis(every_ms.into()));
    }
    let listed = ask(args, &server)?;
    check_queue(args, &server, &listed)?;
    let note = note(args, &server, &listed);
    let mut out = io::stdout().lock();
    if args.common.json {
        listed.jobs.into_iter().try_for_each(|job| write_json(&mut out, &job.with_texts()))?;
    } else {
        rows(&listed.jobs, io::stdout().is_terminal())?.print(&mut out)?;
    }
    out.flush()?;
    if let Some(note) = note {
        eprintln!("{note}");
    }
    Ok(Code::Ok)
}

fn ask(args: &JobsArgs, server: &Server) -> anyhow::Result<Listed> {
    let scheduled = args.scheduled.then_some(JobStatus::Scheduled);
    let wanted = JobQuery {
        queue: args.queue.clone(),
        statuses: args.filter.status.iter().copied().chain(scheduled).collect(),
        filters: args.filter.fields(),
        offset: args.offset,
        limit: args.limit,
        newest_first: is_newest_first(args),
        preview_bytes: (!args.common.json).then_some(PREVIEW_BYTES),
    };
    let asked = server.open()?.jobs(&wanted);
    let mut listed = asked.map_err(|error| server.explain(error, &about(args)))?;
    if let Some(sort) = args.sort.filter(|sort| sort.key != SortKey::Id) {
        sort_by(&mut listed.jobs, sort);
    }
    Ok(listed)
}

fn about(args: &JobsArgs) -> String {
    args.queue.as_ref().map_or("jobs".to_owned(), |queue| format!("queue {queue}"))
}

fn is_newest_first(args: &JobsArgs) -> bool {
    args.sort.is_some_and(|sort| sort.key == SortKey::Id && sort.is_descending)
}

/// Checks that the queue exists if the list is empty, because its name may be mistyped.
fn check_queue(args: &JobsArgs, server: &Server, listed: &Listed) -> anyhow::Result<()> {
    let Some(queue) = args.queue.as_ref().filter(|_| listed.jobs.is_empty()) else {
        return Ok(());
    };
    let found = server.open()?.queue(queue);
    found.map_err(|error| server.explain(error, &about(args)))?;
    Ok(())
}

/// What the list does not show: how many more there are, and that they were not sorted.
fn note(args: &JobsArgs, server: &Server, listed: &Listed) -> Option<String> {
    let how_many = match listed.more? {
        More { count: 0, is_at_least: false } => return None,
        More { count: 0, is_at_least: true } => "maybe more".to_owned(),
        More { count, is_at_least: false } => format!("{} more", grouped(count)),
        More { count, is_at_least: true } => format!("at least {} more", grouped(count)),
    };
    let by_server = matches!(server, Server::Web(_));
    let sorted = match args.sort {
        Some(sort) if sort.key != SortKey::Id || !by_server => {
            format!("; only the {} listed are sorted by {sort}", grouped(listed.jobs.len() as u64))
        }
        _ => String::new(),
    };
    Some(format!("and {how_many} (--limit, --offset){sorted}"))
}

fn sort_by(jobs: &mut [Job], sort: Sort) {
    let status = |job: &Job| JobStatus::WORDS.iter().position(|status| *status == job.status);
    let time = |job: &Job| {
        let text = job.run_at.as_ref().unwrap_or(&job.created_at);
        text.parse::<Timestamp>().ok()
    };
    jobs.sort_by(|a, b| {
        let order = match sort.key {
            SortKey::Id => a.id.as_u64().cmp(&b.id.as_u64()),
            SortKey::Queue => a.queue_name().cmp(&b.queue_name()),
            SortKey::Status => status(a).cmp(&status(b)),
            SortKey::Priority => a.priority.cmp(&b.priority),
            SortKey::Attempts => a.attempts.cmp(&b.attempts),
            SortKey::Fails => a.fails.cmp(&b.fails),
            SortKey::Time => time(a).cmp(&time(b)),
        };
        // Equal ones stay in the order of their ids.
        if sort.is_descending { order.reverse() } else { order }
    });
}

/// The list as a table. `for_eyes`: with times as distances from now, for people.
fn rows(jobs: &[Job], for_eyes: bool) -> anyhow::Result<Rows> {
    let columns = ["id", "queue", "status", "priority", "attempts", "fails", "time", "payload"];
    let mut rows = Rows::new(&columns);
    let now = spindle_client::now();
    for job in jobs {
        let time = job.run_at.as_ref().unwrap_or(&job.created_at);
        rows.add([
            job.id_text(),
            job.queue_name().to_string(),
            job.status.clone(),
            job.priority.to_string(),
            job.attempts.to_string(),
            job.fails.to_string(),
            if for_eyes { distance_of(time, now) } else { time.clone() },
            payload(job)?,
        ]);
    }
    Ok(rows)
}

/// How the payload begins, in one line.
fn payload(job: &Job) -> anyhow::Result<String> {
    if let Some(payload) = job.payload_bytes()? {
        return Ok(preview(&payload, PREVIEW_LETTERS));
    }
    Ok(match job.payload_beginning() {
        Some(beginning) if str::from_utf8(&beginning).is_ok() => {
            preview(&beginning, PREVIEW_LETTERS)
        }
        // No text, or a server that tells no beginnings.
        _ => format!("({} bytes)", job.payload_bytes),
    })
}

/// Shows the list anew again and again, on one screen, until the program is ended.
fn watch(args: &JobsArgs, server: &Server, every: Duration) -> anyhow::Result<Code> {
    let terminal = Term::stdout();
    if !terminal.is_term() {
        let message = "--watch needs a terminal; without one, `spindle events --follow` tells what \
                    happens";
        return Err(Failure::with(Code::Usage, message));
    }
    // A wrong address or a wrong name is an error at once; later the server may go and come back.
    let first = ask(args, server)?;
    check_queue(args, server, &first)?;
    let mut listed = Ok(first);
    terminal.clear_screen()?;
    loop {
        let (height, width) = terminal.size();
        let screen = screen(args, server, &listed, (height.into(), width.into()))?;
        terminal.move_cursor_to(0, 0)?;
        for line in screen {
            // The text that was there before may have been longer.
            terminal.write_str(&truncate_str(&line, width.into(), "…"))?;
            terminal.write_str("\x1b[K\n")?;
        }
        terminal.clear_to_end_of_screen()?;
        terminal.flush()?;
        thread::sleep(every);
        listed = ask(args, server);
    }
}

/// A text in lines of so many letters at most, broken between words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// What is on the screen: one line less than it has, so that nothing scrolls.
fn screen(
    args: &JobsArgs,
    server: &Server,
    listed: &anyhow::Result<Listed>,
    (height, width): (usize, usize),
) -> anyhow::Result<Vec<String>> {
    let every = super::times::lasting(args.watch.unwrap_or_default().into());
    let title = format!("{}, every {every}; Ctrl-C ends", plain(spindle_client::now()));
    let mut lines = vec![title, String::new()];
    match listed {
        Err(error) => lines.extend(wrapped(&format!("error: {}", whole(error)), width)),
        Ok(listed) => {
            let table = rows(&listed.jobs, true)?.table();
            let room = height.saturating_sub(lines.len() + 3);
            let hidden = listed.jobs.len().saturating_sub(room);
            lines.extend(table.lines().take(room + 1).map(str::to_owned));
            if hidden > 0 {
                lines.push(format!("{hidden} listed ones have no room on this screen"));
            } else {
                lines.extend(note(args, server, listed));
            }
        }
    }
    lines.truncate(height.saturating_sub(1).max(1));
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_broken_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("one two three", 6), ["one", "two", "three"]);
        assert_eq!(wrapped("unbreakable x", 5), ["unbreakable", "x"]);
    }
}
