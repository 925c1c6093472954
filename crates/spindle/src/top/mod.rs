//! `spindle top`: queues, workers and jobs, live in a terminal.
//!
//! ```text
//!   terminal ──keys──> keys ──> App ──Order──> feed, a thread ──requests──> native API
//!      ^                         │  ^             │
//!      └──────── draw <──────────┘  └───Update────┘   every two seconds, two requests
//! ```
//!
//! - `app`: what is shown and what is asked, no I/O; `keys`: what each key does to it
//! - `feed`: asks the server for what is shown now, and does what a person wants done
//! - `sheet`: the lists as columns and rows; `detail`: one job in words
//! - `draw`: puts the app on a screen of any size
//! - `screen`: the terminal, which is always given back as it was: at the end, at a signal, and
//!   when the program panics
//!
//! All text that comes from jobs goes through `output::escape` before it is drawn. The keys work even
//! if the server does not answer: only the feed's thread waits for it.

mod app;
mod detail;
mod draw;
mod feed;
mod keys;
mod screen;
mod sheet;
#[cfg(test)]
mod tests;

use std::{
    io::{self, IsTerminal},
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::Context;
use crossterm::event::{self, Event};

use self::{app::App, feed::Feed, screen::Screen};
use crate::{
    cli::TopArgs,
    client::{Native, web::ApiRequest},
    exit::{Code, Failure},
    signals::{self, Ending},
};

/// How long to wait for a key before checking whether the server has answered.
const LOOK: Duration = Duration::from_millis(250);

/// Shows a server until a person ends it, or a signal does.
pub fn top(args: &TopArgs) -> anyhow::Result<Code> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let message = "`spindle top` needs a terminal; `spindle status`, `queues`, `workers` and \
                       `jobs` print the same once, with --json for programs";
        return Err(Failure::with(Code::Usage, message));
    }
    let native = Native::at(&args.reach)?;
    // Errors of the address or the token are reported here, as by any other command.
    let server = native.ask(ApiRequest::get("/api/v1/server"), "server")?;
    let app = App::new(native.place(), server);
    let ending = Arc::<OnceLock<Ending>>::default();
    let seen = Arc::clone(&ending);
    let first = move |signal| {
        // Only the first signal gets here, so nothing is set yet.
        let _ = seen.set(signal);
    };
    signals::watch(first, |_| screen::restore()).context("cannot watch for signals")?;
    let feed = Feed::start(native).context("cannot start a thread")?;
    let screen = Screen::open().context("cannot use this terminal")?;
    let outcome = run(screen, app, &feed, &ending);
    match ending.get() {
        Some(signal) => std::process::exit(signal.code()),
        None => outcome.map(|()| Code::Ok),
    }
}

/// Runs until a person ends it, or a signal does. The terminal is given back then.
fn run(
    mut screen: Screen,
    mut app: App,
    feed: &Feed,
    ending: &OnceLock<Ending>,
) -> anyhow::Result<()> {
    feed.order(app.order());
    let mut is_stale = true;
    while ending.get().is_none() && !app.is_over() {
        if is_stale {
            screen.draw(|frame| draw::draw(frame, &mut app))?;
        }
        is_stale = false;
        if event::poll(LOOK)? {
            is_stale = true;
            if let Event::Key(key) = event::read()?
                && let Some(order) = keys::press(&mut app, key)
            {
                feed.order(order);
            }
        }
        while let Some(update) = feed.update() {
            app.update(update);
            is_stale = true;
        }
    }
    Ok(())
}
