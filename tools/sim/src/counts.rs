//! Counts of what seeds did, so that a loss of coverage is noticed.

macro_rules! counts {
    ($($(#[$doc:meta])* $field:ident = $name:literal,)*) => {
        /// What one seed did, or several.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Counts {
            /// Each count with what it is called.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$(($name, self.$field),)*]
            }

            /// Adds another seed's.
            pub fn add(&mut self, other: Counts) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

counts! {
    /// Commands asked of the engine.
    commands = "commands",
    /// Crashes of every kind, those while starting included.
    crashes = "crashes",
    /// Orderly stops that came to their end.
    stops = "orderly stops",
    /// Trims of the log.
    trims = "trims",
    /// Deletions undone.
    undone = "deletions undone",
    /// Submits that joined an existing job.
    joins = "joins",
    /// Background submits that joined a job in memory, which was logged for them.
    persists = "joins that logged a job",
    /// Such joins that were acknowledged, whose jobs a crash left.
    persists_kept = "of those kept by a crash",
    /// Such joins that were not acknowledged yet, whose jobs a crash took.
    persists_cut = "taken by a crash before the answer",
    /// Existing jobs that got other labels after a constraint was set.
    relabelled = "relabelled",
    /// Leases that a crash may not forget once they are answered.
    durable_leases = "durable leases",
    /// Jobs refused because their queue held as much as it may.
    queue_full = "refused by a full queue",
    /// Jobs refused because the server held as many as it may.
    server_full = "refused by a full server",
    /// Jobs that had to wait for others: new ones, and retried ones.
    blocked = "jobs blocked",
    /// Such jobs that went on.
    unblocked = "that went on",
    /// Batches opened.
    batches = "batches",
    /// Batches sealed, or cancelled while they were open.
    batches_sealed = "batches sealed",
    /// Queues that took no more jobs, on their way to another shard.
    queues_sealed = "queues sealed",
    /// Queues that a shard had nothing of any more.
    queues_left = "queues left",
    /// Ends of batches, also of those that a retried job had made unfinished again.
    batches_ended = "ends of batches",
    /// Such ends that somebody waited for.
    batch_ends = "ends of batches awaited",
    /// Leases of a fair queue in which several keys had ready jobs.
    fair_turns = "turns of keys",
    /// Such leases of a job that would not have been the first without turns.
    fair_turns_ahead = "that changed the order",
    /// Times of schedules at which a job came.
    firings = "schedules fired",
    /// Of missed times.
    firings_made_up = "missed times made up",
    /// Missed times that were not made up.
    firings_missed = "missed times",
    /// Times that came while the last job was unfinished.
    firings_overlapped = "times passed over",
    /// Times whose job was refused.
    firings_refused = "times whose job was refused",
    /// Times that waited for room on the disk, or for the clock.
    firings_held = "times that waited",
    /// Reports that watchers received.
    news = "news",
    /// Ends that watchers received.
    ends = "ends watched",
    /// Payloads in several records.
    chunked = "chunked payloads",
    /// Payloads over one MiB among them.
    huge = "over 1 MiB",
    /// Crashes that left chunks without the event that names them.
    torn = "cut off before their event",
    /// Times that such a payload was found in another place, where compaction copied it.
    compacted = "compacted",
    /// Such payloads read whole in a later life of the server.
    read_back = "read back after a restart",
    /// Payloads that rotted on the disk while no server ran.
    rotten = "rotten payloads",
    /// Oldest segments lost from a copy of the folder, without which it was refused.
    lost_oldest = "lost oldest segments",
    /// Newest segments lost after an orderly stop.
    lost_newest = "lost newest segments after a stop",
    /// Newest segments lost after a crash.
    lost_newest_crashed = "after a crash",
    /// Last records damaged after an orderly stop.
    lost_last = "lost last records after a stop",
    /// Last records damaged after a crash, which then were taken for torn.
    lost_last_cut = "cut after a crash",
    /// Records damaged in the middle of a copy of the log, which was refused.
    damaged_inside = "records damaged in the middle",
    /// Of which the frame's header was hit, not the record.
    damaged_frame_headers = "in their frame's header",
    /// Records in the middle of which nothing but a payload was hit: the copy opened.
    damaged_payloads = "in a payload alone",
    /// Headers of segments damaged in a copy of the folder, which was refused.
    damaged_headers = "segment headers damaged",
    /// Files `bounds` lost from a copy of the folder.
    lost_bounds = "lost bounds",
    /// Refused copies that were repaired.
    repairs = "repairs",
    /// Repairs that a power cut interrupted, and that were run again.
    repairs_cut = "cut off by the power",
    /// Repairs whose log ends where the model still knows what was there.
    repairs_compared = "compared with the model of that time",
    /// Starts that failed because a change of the disk did.
    start_errors = "starts that failed with an error",
    /// Starts that failed because something could not be read.
    start_reads = "with one while reading",
    /// Starts with a clock that is further ahead of the log than is believed.
    clocks_ahead = "clocks far ahead at a start",
    /// Starts with a clock that is further behind the log than is believed.
    clocks_behind = "far behind",
    /// Such clocks that somebody set right while the server ran.
    clocks_set_right = "set right",
    /// Such clocks that a person accepted.
    clocks_accepted = "accepted",
    /// Commands of callers with roles, which they may ask for.
    allowed = "commands by role",
    /// Commands refused to who has no token, an unknown one or an expired one.
    unauthenticated = "refused without a good token",
    /// Commands refused for want of a role.
    without_role = "without the role",
    /// Commands refused because the queue, the job's queue, or that all queues were meant.
    without_queue = "without the queue",
    /// Submits refused because the disk was full.
    full_refusals = "submits refused by a full disk",
    /// Ends of jobs and deletes accepted while it was.
    full_changes = "ends and deletes on it",
    /// Those of them that became durable while it was.
    full_commits = "commits of them",
    /// Steps of compaction that requests waited for while it was.
    full_waits = "steps waited for on it",
    /// Requests refused because nothing the server does could make room any more.
    full_exhausted = "refused at its end",
    /// Looks at what was due and had to wait for room on it.
    timers_held = "times that timers waited for room",
    /// Trims while it was.
    full_trims = "trims on it",
    /// Crashes while it was.
    full_crashes = "crashes on it",
    /// Starts on a full disk that came through.
    full_starts = "starts on it",
    /// Writes that failed and ended the server.
    failed_writes = "failed writes",
    /// Syncs that failed and ended the server.
    failed_syncs = "failed syncs",
    /// Restarts after one of them on a machine that stayed up.
    failed_kills = "restarts of the process after one",
    /// Answers of a log at the other end of a network that were lost.
    lost_answers = "lost answers",
    /// Crashes with several records on their way there.
    flying_crashes = "crashes with several records on their way",
    /// Of which some arrived after the crash, and others did not.
    flying_parts = "that left a part of them",
    /// Times that a node won the lead of a shared log.
    takeovers = "takeovers",
    /// Leaders that learned that another one leads.
    deposed = "leaders deposed",
    /// Records that a deposed leader had behind its successor's first one, when a node took over.
    fenced = "fenced records met",
    /// Answers of leaders that left.
    answers = "answers of leaders",
}
