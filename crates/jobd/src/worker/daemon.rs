//! The one task that owns everything a worker changes while it runs.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use serde_json::value::RawValue;
use spindle_jobd_master::{
    link::Responder,
    wire::{Concurrency, Request},
};
use tokio::sync::{mpsc, watch};
use tracing::{debug, error, info, warn};

use super::{
    begun::Begun,
    claims::{Claim, Claimer, Done, InHand, Judged, Turn, refusal},
    leasing::Leasing,
    manual::Tickets,
    queues::Queues,
    stop::{StopStep, Stopping},
    writer::{Report, Write, now_s},
};
use crate::{
    job_result::result_of,
    launcher::{Ending, Launcher, ProcessId, SignalRequest},
    table::{Claimed, Finish, Input, JobTable, Leased, Mark, Owned, RowId, TableError, Verdict},
};

/// How long a row waits to begin if its begin cannot be noted in the state file.
const BEGIN_AGAIN: Duration = Duration::from_secs(1);

/// What happens to a worker.
#[derive(Debug)]
pub(super) enum Event {
    /// An admitted client or the master sent a request.
    Request(Request, Responder),
    /// A claim is done.
    Claimed(Done),
    /// A claim failed. It may have been committed all the same; then these rows are ours.
    ClaimFailed(Claim, TableError, HashSet<RowId>),
    /// The pause after a failed claim is over.
    ClaimAgain,
    /// A lease request ended: with a row, without one, or with an error.
    Leased(String, Result<Option<Leased>, TableError>),
    /// The pause after a failed lease request is over.
    LeaseAgain,
    /// The lease of a row was lost.
    Lost(RowId),
    /// A row that a client waits for has ended, here or elsewhere, or is gone.
    EndedSomewhere(RowId, Option<Finish>),
    /// The writer has written something.
    Written(Report),
    /// The writer cannot write now.
    TableTrouble(String),
    /// A late commit of an earlier process may have left rows: look once more.
    LookAgain,
    /// A row that could not begin may try again.
    BeginAgain(RowId),
    /// A process has begun.
    Began(RowId, ProcessId),
    /// A process has ended.
    Ended(RowId, Ending),
    /// A status can be answered; with the rows that carry the mark, if they were looked up.
    Status(Responder, Option<Vec<Owned>>),
    /// The configuration was read again.
    Retarget(Vec<(String, Concurrency)>),
    /// The worker is to end, step by step.
    Stop(StopStep),
}

#[derive(Debug)]
pub(super) enum Stage {
    /// In its target's queue.
    Queued,
    /// Its start is being written, or a note that its process begins.
    Starting,
    /// Its process runs and can be sent signals.
    Running(mpsc::Sender<SignalRequest>),
    /// Its end is being written; the result is for a client that waits.
    Ended(Option<Box<RawValue>>),
}

#[derive(Debug)]
pub(super) struct Job {
    pub(super) target: String,
    pub(super) stage: Stage,
    /// What its process gets, until it has it.
    pub(super) input: Input,
}

/// What a daemon is made from.
pub(super) struct Parts {
    pub(super) table: Arc<dyn JobTable>,
    pub(super) mark: Mark,
    pub(super) begun: Begun,
    pub(super) launcher: Launcher,
    pub(super) fetch_limit: u32,
    pub(super) shutdown_timeout: Duration,
    pub(super) second_look: Duration,
    pub(super) targets: Vec<(String, Concurrency)>,
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) writer: mpsc::UnboundedSender<Write>,
    /// The names of the targets; changes go to the master.
    pub(super) names: watch::Sender<Vec<String>>,
}

pub(super) struct Daemon {
    pub(super) parts: Parts,
    launcher: Arc<Launcher>,
    pub(super) queues: Queues,
    pub(super) jobs: HashMap<RowId, Job>,
    pub(super) in_hand: InHand,
    pub(super) tickets: Tickets,
    pub(super) turn: Turn,
    pub(super) leasing: Leasing,
    /// Rows that say `running` with our mark, had begun, and do not run here: a person decides.
    pub(super) unfinished: Vec<Owned>,
    pub(super) trouble: Option<String>,
    pub(super) stopping: Option<Stopping>,
}

impl Daemon {
    pub(super) fn new(parts: Parts) -> Self {
        let mut queues = Queues::new(&parts.targets);
        // Rows may have come in while no worker ran.
        queues.poll(None).expect("all targets are known");
        Self {
            launcher: Arc::new(parts.launcher.clone()),
            parts,
            queues,
            jobs: HashMap::new(),
            in_hand: InHand::default(),
            tickets: Tickets::default(),
            turn: Turn::new(),
            leasing: Leasing::new(),
            unfinished: Vec::new(),
            trouble: None,
            stopping: None,
        }
    }

    /// Rows whose ends an earlier process spooled; they are being written now.
    pub(super) fn hold(&mut self, ids: impl IntoIterator<Item = RowId>) {
        for id in ids {
            self.in_hand.lock().insert(id);
            if self.notes_begins() && self.parts.begun.begin(id).is_err() {
                error!(%id, "cannot write the state file");
            }
            let stage = Stage::Ended(None);
            let job = Job { target: String::new(), stage, input: Input::default() };
            self.jobs.insert(id, job);
        }
    }

    /// Runs until a stop is done.
    pub(super) async fn run(mut self, mut events: mpsc::UnboundedReceiver<Event>) {
        self.watch_for_losses();
        loop {
            self.start_what_can_start();
            if self.is_stopped() {
                return;
            }
            let Some(event) = events.recv().await else { return };
            self.take(event);
            while let Ok(event) = events.try_recv() {
                self.take(event);
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Request(request, responder) => self.answer(&request, responder),
            Event::Claimed(done) => {
                self.turn.is_taken = false;
                self.turn.must_check = false;
                self.turn.pause.reset();
                self.trouble = None;
                self.claimed(done);
            }
            Event::ClaimFailed(claim, error, taken) => self.claim_failed(claim, &error, taken),
            Event::ClaimAgain => self.turn.is_taken = false,
            Event::Leased(target, outcome) => self.leased(&target, outcome),
            Event::LeaseAgain => self.leasing.is_pausing = false,
            Event::Lost(id) => self.lost(id),
            Event::EndedSomewhere(id, finish) => self.ended_somewhere(id, finish.as_ref()),
            Event::Written(report) => self.written(report),
            Event::TableTrouble(trouble) => self.trouble = Some(trouble),
            Event::LookAgain => self.turn.must_recover |= self.stopping.is_none(),
            Event::BeginAgain(id) => self.begin_again(id),
            Event::Began(id, process) => self.parts.begun.is_process(id, process),
            Event::Ended(id, ending) => self.ended(id, ending),
            Event::Status(responder, owned) => self.answer_status(responder, owned),
            Event::Retarget(targets) => {
                self.queues.retarget(&targets);
                self.names_changed();
                // A target that came back may have rows.
                self.queues.poll(None).expect("all targets are known");
            }
            Event::Stop(step) => self.stop(step),
        }
    }

    pub(super) fn names_changed(&self) {
        let names = self.queues.names();
        self.parts.names.send_if_modified(|known| {
            let is_new = *known != names;
            *known = names;
            is_new
        });
    }

    /// Sends the daemon an event after a pause.
    pub(super) fn send_after(&self, pause: Duration, event: Event) {
        let events = self.parts.events.clone();
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            // Fails when the daemon has ended meanwhile.
            let _ = events.send(event);
        });
    }

    /// Starts everything that can start: queued rows, lease requests, the next claim.
    fn start_what_can_start(&mut self) {
        if self.stopping.is_none() {
            while let Some(id) = self.queues.next_start() {
                let Some(job) = self.jobs.get_mut(&id) else { continue };
                job.stage = Stage::Starting;
                // The writer lives as long as the daemon.
                let _ = self.parts.writer.send(Write::Start(id));
            }
        }
        self.ask_for_leases();
        if self.turn.is_taken {
            return;
        }
        let Some(claim) = self.next_claim() else { return };
        debug!(?claim, "claim");
        self.turn.is_taken = true;
        // A row that is leased is started when its lease comes.
        let is_leasing = self.parts.table.leases().is_some();
        let free_slots = if is_leasing { HashMap::new() } else { self.queues.free_slots() };
        let is_recovery = matches!(claim, Claim::Recover);
        let claimer = Claimer {
            table: Arc::clone(&self.parts.table),
            mark: self.parts.mark.clone(),
            in_hand: Arc::clone(&self.in_hand),
            served: self.queues.names().into_iter().collect(),
            fetch_limit: self.parts.fetch_limit,
            must_check: self.turn.must_check,
            unstarted: self.turn.unstarted.iter().copied().collect(),
            begun: if is_recovery { self.parts.begun.known() } else { None },
            judged: Judged::new(free_slots),
        };
        let events = self.parts.events.clone();
        tokio::spawn(async move {
            let _ = events.send(claimer.perform(claim).await);
        });
    }

    fn next_claim(&mut self) -> Option<Claim> {
        // A recovery that is wanted while one is under way gets a run of its own.
        if std::mem::take(&mut self.turn.must_recover) {
            return Some(Claim::Recover);
        }
        if !self.turn.manual.is_empty() {
            return Some(Claim::Manual(std::mem::take(&mut self.turn.manual)));
        }
        if self.stopping.is_some() || self.parts.table.leases().is_some() {
            return None;
        }
        self.queues.next_fetch().map(Claim::Fetch)
    }

    fn claimed(&mut self, done: Done) {
        match done {
            Done::Recovered { given_back, unfinished, resolved, gone } => {
                self.turn.unstarted.retain(|id| !resolved.contains(id));
                for id in gone.iter().filter(|id| !self.jobs.contains_key(id)) {
                    self.parts.begun.end(*id);
                }
                self.recovered(&given_back, unfinished);
            }
            Done::Manual { asked, rows } => self.manual_claimed(asked, rows),
            Done::Fetched { targets, rows } => {
                let more = rows.len() >= self.parts.fetch_limit as usize;
                self.queues.fetched(&targets, more);
                for claimed in rows {
                    match claimed.verdict {
                        Verdict::Accept(_) | Verdict::Start { .. } => self.accept_claimed(claimed),
                        Verdict::Ignore => {
                            warn!(id = %claimed.row.id, target = claimed.row.target,
                                "ignored: no such target here");
                        }
                        Verdict::Leave => {}
                    }
                }
            }
        }
    }

    fn recovered(&mut self, given_back: &[RowId], unfinished: Vec<Owned>) {
        if !given_back.is_empty() {
            info!(rows = given_back.len(), "rows that had not begun were given back");
            self.queues.poll(None).expect("all targets are known");
        }
        if self.notes_begins() && self.parts.begun.known().is_none() {
            let ids = unfinished.iter().map(|row| row.id).chain(self.jobs.keys().copied());
            self.parts.begun.complete_with(ids);
        }
        for row in &unfinished {
            if !self.unfinished.contains(row) {
                let pid = self.parts.begun.process(row.id).map(|process| process.pid);
                warn!(id = %row.id, target = row.target, pid,
                    "is running by the table and not here: look how far it came, set its status");
            }
        }
        self.unfinished = unfinished;
        if self.notes_begins() && !std::mem::replace(&mut self.turn.has_looked, true) {
            self.send_after(self.parts.second_look, Event::LookAgain);
        }
    }

    /// Whether it matters after a kill which rows have begun. A lease ends by itself, and its job
    /// is given out again.
    fn notes_begins(&self) -> bool {
        self.parts.table.leases().is_none()
    }

    fn manual_claimed(&mut self, mut missing: Vec<RowId>, rows: Vec<Claimed>) {
        let found: HashSet<RowId> = rows.iter().map(|claimed| claimed.row.id).collect();
        missing.retain(|id| !found.contains(id));
        let mut let_go = Vec::new();
        for claimed in rows {
            if matches!(claimed.verdict, Verdict::Ignore | Verdict::Leave) {
                self.tickets.failed(claimed.row.id, refusal(&claimed));
            } else if self.parts.table.leases().is_some() {
                let_go.push(claimed.row.id);
            } else {
                self.accept_claimed(claimed);
            }
        }
        self.watch_for_ends(let_go);
        for id in missing {
            self.tickets.failed(id, format!("job {id} not found"));
        }
    }

    fn accept_claimed(&mut self, claimed: Claimed) {
        let (id, target, input) = (claimed.row.id, claimed.row.target, Input::default());
        // A person has decided that it is to be run again.
        self.unfinished.retain(|row| row.id != id);
        self.parts.begun.end(id);
        if matches!(claimed.verdict, Verdict::Start { .. }) {
            self.turn.unstarted.insert(id);
            // Meanwhile the target may have been paused or removed, or its concurrency lowered.
            if self.stopping.is_none() && self.queues.take_slot(&target) {
                self.in_hand.lock().insert(id);
                self.jobs.insert(id, Job { target, stage: Stage::Starting, input });
                return self.launch(id);
            }
        }
        self.accept(Leased { id, target, input });
    }

    /// Takes a row of ours into its target's queue, or gives it back if the target is gone.
    pub(super) fn accept(&mut self, row: Leased) {
        let is_queued = self.stopping.is_none() && self.queues.push(&row.target, row.id);
        if !is_queued {
            self.turn.must_recover = true;
            self.tickets.failed(row.id, self.why_not_queued(&row.target, row.id));
            return;
        }
        self.in_hand.lock().insert(row.id);
        let job = Job { target: row.target, stage: Stage::Queued, input: row.input };
        self.jobs.insert(row.id, job);
    }

    fn why_not_queued(&self, target: &str, id: RowId) -> String {
        if self.stopping.is_some() {
            return super::stop::SHUTTING_DOWN.to_owned();
        }
        format!("target '{target}' not found (job id={id})")
    }

    fn claim_failed(&mut self, claim: Claim, error: &TableError, taken: HashSet<RowId>) {
        self.turn.unstarted.extend(taken);
        self.turn.must_recover = true;
        match claim {
            Claim::Recover => {}
            Claim::Manual(ids) => self.tickets.fail_whole(&ids, &error.to_string()),
            Claim::Fetch(targets) => self.queues.fetched(&targets, true),
        }
        let pause = self.turn.pause.next();
        warn!(%error, retry_in_ms = pause.as_millis(), "cannot take jobs from the table");
        self.trouble = Some(error.to_string());
        self.send_after(pause, Event::ClaimAgain);
    }

    fn written(&mut self, report: Report) {
        if !report.started.is_empty() || !report.finished.is_empty() {
            self.trouble = None;
        }
        for id in report.started {
            self.launch(id);
        }
        for id in report.refused {
            warn!(%id, "not started: somebody else changed or deleted the row");
            self.turn.unstarted.remove(&id);
            let reason = format!("job {id} was changed before it started");
            self.drop_unstarted(id, reason);
        }
        for id in report.called_off {
            self.turn.must_recover = true;
            self.drop_unstarted(id, super::stop::SHUTTING_DOWN.to_owned());
        }
        for id in report.finished {
            self.in_hand.lock().remove(&id);
            if !report.unwritten.contains(&id) {
                self.parts.begun.end(id);
            }
            // If its end was not written, its row may say `running` for ever.
            self.turn.must_recover |= self.parts.begun.contains(id);
            if let Some(Job { stage: Stage::Ended(Some(result)), .. }) = self.jobs.remove(&id) {
                self.tickets.done(id, result);
            }
        }
    }

    fn drop_unstarted(&mut self, id: RowId, reason: String) {
        if let Some(job) = self.jobs.remove(&id) {
            self.queues.ended(&job.target);
        }
        self.in_hand.lock().remove(&id);
        self.tickets.failed(id, reason);
    }

    fn launch(&mut self, id: RowId) {
        if !self.jobs.contains_key(&id) {
            return;
        }
        if self.notes_begins()
            && let Err(error) = self.parts.begun.begin(id)
        {
            error!(%id, %error, "cannot write the state file; the job does not begin before that");
            return self.send_after(BEGIN_AGAIN, Event::BeginAgain(id));
        }
        let Some(job) = self.jobs.get_mut(&id) else { return };
        self.turn.unstarted.remove(&id);
        let (send, signals) = mpsc::channel(8);
        job.stage = Stage::Running(send);
        let input = std::mem::take(&mut job.input);
        let launcher = Arc::clone(&self.launcher);
        let events = self.parts.events.clone();
        debug!(%id, target = job.target, "starts");
        tokio::spawn(async move {
            let began = |pid| {
                if let Some(process) = ProcessId::of(pid) {
                    let _ = events.send(Event::Began(id, process));
                }
            };
            let ending = launcher.run(id, input, signals, began).await;
            let _ = events.send(Event::Ended(id, ending));
        });
    }

    fn begin_again(&mut self, id: RowId) {
        if self.stopping.is_none() {
            return self.launch(id);
        }
        self.turn.unstarted.insert(id);
        self.turn.must_recover = true;
        self.drop_unstarted(id, super::stop::SHUTTING_DOWN.to_owned());
    }

    fn ended(&mut self, id: RowId, ending: Ending) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        debug!(%id, target = job.target, code = ending.code, signal = ending.signal, "ended");
        for (name, output) in [("stdout", &ending.stdout), ("stderr", &ending.stderr)] {
            if output.is_cut {
                warn!(%id, output = name, kept_bytes = output.text.len(),
                    "output was cut at max_output_buffer");
            }
        }
        let result = self.tickets.is_awaited(id).then(|| result_of(&ending));
        job.stage = Stage::Ended(result);
        self.queues.ended(&job.target);
        let finish = Finish {
            id,
            finished_s: now_s(),
            success: ending.is_success(),
            code: ending.code,
            signal: ending.signal,
            stdout: ending.stdout.text,
            stderr: ending.stderr.text,
        };
        let _ = self.parts.writer.send(Write::Finish(finish));
    }
}
