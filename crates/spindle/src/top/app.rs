//! The state of the screen, and the question that a person has been asked. No I/O.

use super::{
    detail,
    feed::{Body, Change, Order, Server, Update, Wanted},
    sheet::{Row, Sheet},
};
use crate::{output::escape, queue_name::QueueName};

/// What is on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// All queues.
    Queues,
    /// All workers.
    Workers,
    /// Jobs of a queue, or of all.
    Jobs,
    /// One job.
    Job,
}

/// The statuses that jobs can be listed by; none is all.
pub const STATUSES: [Option<&str>; 8] = [
    None,
    Some("ready"),
    Some("leased"),
    Some("scheduled"),
    Some("dead"),
    Some("parked"),
    Some("blocked"),
    Some("done"),
];

/// The whole state of the screen.
#[derive(Debug)]
pub struct App {
    /// Where the server is.
    pub place: String,
    /// The server, as it was last heard of.
    pub server: Server,
    /// What is shown.
    pub view: View,
    /// The queue whose jobs are listed; `None`: those of all queues.
    pub queue: Option<QueueName>,
    /// Which of [`STATUSES`].
    pub status: usize,
    /// The list, when a list is shown.
    pub sheet: Sheet,
    /// The row that keys are about, and the first one on the screen.
    pub selected: usize,
    /// The first row, or line of a job, on the screen. Drawing corrects it.
    pub first: usize,
    /// The job, in lines.
    pub job: Vec<String>,
    /// Which job that is.
    pub job_id: String,
    /// The view that a job was opened from.
    pub came_from: View,
    /// Whether the keys are explained.
    pub shows_help: bool,
    /// What was done last.
    pub notice: Option<String>,
    /// Why there is no answer, if there is none.
    pub failure: Option<String>,
    /// What a person is asked.
    pub question: Option<Change>,
    /// Whether an answer for what is wanted has come.
    pub has_answer: bool,
    /// The cursors of this page and of those before it; the first page has none.
    pages: Vec<String>,
    /// The cursor of the page behind this one.
    pub next_page: Option<String>,
    is_over: bool,
}

impl App {
    /// Shows the queues.
    pub fn new(place: String, server: Server) -> Self {
        Self {
            place,
            server,
            view: View::Queues,
            queue: None,
            status: 0,
            sheet: Sheet::default(),
            selected: 0,
            first: 0,
            job: Vec::new(),
            job_id: String::new(),
            came_from: View::Jobs,
            shows_help: false,
            notice: None,
            failure: None,
            question: None,
            has_answer: false,
            pages: Vec::new(),
            next_page: None,
            is_over: false,
        }
    }

    /// Whether a person has ended it.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// It ends.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// What is to be asked for.
    pub fn wanted(&self) -> Wanted {
        let cursor = self.pages.last().cloned();
        match self.view {
            View::Queues => Wanted::Queues(cursor),
            View::Workers => Wanted::Workers(cursor),
            View::Jobs => Wanted::Jobs {
                queue: self.queue.clone(),
                status: STATUSES.get(self.status).copied().flatten(),
                cursor,
            },
            View::Job => Wanted::Job(self.job_id.clone()),
        }
    }

    /// The same as an order.
    pub fn order(&self) -> Order {
        Order::Show(self.wanted())
    }

    /// Shows something else, from its beginning.
    pub fn show(&mut self, view: View) -> Order {
        self.view = view;
        self.pages.clear();
        self.turn()
    }

    /// The page behind this one, if there is one.
    pub fn next(&mut self) -> Option<Order> {
        let next = self.next_page.take()?;
        self.pages.push(next);
        Some(self.turn())
    }

    /// The page before this one, if there is one.
    pub fn previous(&mut self) -> Option<Order> {
        self.pages.pop()?;
        Some(self.turn())
    }

    /// Which page is shown, from 1.
    pub fn page(&self) -> usize {
        self.pages.len() + 1
    }

    fn turn(&mut self) -> Order {
        self.sheet = Sheet::default();
        self.job.clear();
        (self.selected, self.first, self.next_page, self.has_answer) = (0, 0, None, false);
        self.order()
    }

    /// The row that keys are about.
    pub fn row(&self) -> Option<&Row> {
        self.sheet.rows.get(self.selected)
    }

    /// Goes so many rows, or lines of a job, down or up.
    pub fn go(&mut self, by: isize) {
        let (at, count) = match self.view {
            View::Job => (&mut self.first, self.job.len()),
            _ => (&mut self.selected, self.sheet.rows.len()),
        };
        *at = at.saturating_add_signed(by).min(count.saturating_sub(1));
    }

    /// Takes in what the feed says.
    pub fn update(&mut self, update: Update) {
        match update {
            Update::Done(text) => self.notice = Some(escape(&text)),
            Update::Failed(text) => self.failure = Some(escape(&text)),
            // An answer to what was wanted before.
            Update::Page(wanted, ..) if wanted != self.wanted() => {}
            Update::Page(_, server, body, next) => {
                (self.failure, self.has_answer, self.next_page) = (None, true, next);
                match body {
                    Body::Job(job, reasons) => self.job = detail::lines(&job, &reasons),
                    Body::Queues(queues) => self.list(server, Sheet::of_queues(&queues)),
                    Body::Workers(workers) => self.list(server, Sheet::of_workers(&workers)),
                    Body::Jobs(jobs) => self.list(server, Sheet::of_jobs(&jobs)),
                }
            }
        }
    }

    /// The row that was selected stays selected, wherever it is now.
    fn list(&mut self, server: Server, sheet: Sheet) {
        self.server = server;
        let before = self.row().map(|row| row.name.clone());
        let found = before.and_then(|name| sheet.rows.iter().position(|row| row.name == name));
        self.selected = found.unwrap_or(self.selected).min(sheet.rows.len().saturating_sub(1));
        self.sheet = sheet;
    }
}
