//! Finds workers that are gone, and jobs that workers no longer have.

use spindle_core::JobId;
use tokio::select;
use tokio::time::sleep;

use crate::door::LightJq;
use crate::registry::RemovedWorker;
use crate::worker_id::WorkerId;

/// Jobs looked at in one hold of the engine's lock.
const SLICE_JOBS: usize = 64;

impl LightJq {
    /// Starts the sweeping when the first worker comes, because then there is a runtime to do it
    /// in.
    pub(crate) fn begin_sweeping(&self) {
        self.shared().is_swept.call_once(|| drop(tokio::spawn(self.clone().sweep())));
    }

    /// Looks for lost workers at intervals until the server stops. Begins with the leases that an
    /// earlier run of the server has left.
    pub(crate) async fn sweep(self) {
        let mut stopping = self.stopping();
        self.shared().names.find(self.engine()).await;
        loop {
            select! {
                () = sleep(self.options().sweep_every) => {}
                _ = stopping.changed() => return,
            }
            self.forget_ended().await;
            let now_ms = self.engine().steady_ms();
            let silent = self.registry().silent(now_ms, self.options().lost_after_ms);
            for id in silent {
                self.lose(id, "it has not asked for jobs").await;
            }
        }
    }

    /// Removes jobs whose lease ended without the worker: by time, by a person, or with the job.
    async fn forget_ended(&self) {
        let holders = self.registry().holders();
        for (id, jobs) in holders {
            for jobs in jobs.chunks(SLICE_JOBS) {
                self.forget_ended_of(id, jobs);
                tokio::task::yield_now().await;
            }
        }
    }

    fn forget_ended_of(&self, id: WorkerId, jobs: &[JobId]) {
        let _turn = self.bridge().turn();
        let live = self.engine().leases().still_held(jobs, &id.worker_ref());
        let live = live.without_waiting("the registry forgets with a crash as well");
        for job in jobs.iter().filter(|job| !live.contains(job)) {
            self.let_go(id, *job);
        }
    }

    /// Removes a lost worker, and gives its jobs back.
    pub(crate) async fn lose(&self, id: WorkerId, why: &str) {
        let lost = self.registry().remove(id);
        if let Some(lost) = lost {
            tracing::warn!("lightjq: worker {} ({id}) is lost: {why}", lost.name);
            self.give_up_all(lost).await;
        }
    }

    /// Gives back what a worker that is gone leaves behind.
    pub(crate) async fn give_up_all(&self, lost: RemovedWorker) {
        for jobs in lost.jobs.chunks(SLICE_JOBS) {
            self.give_up_leases(lost.id, jobs).await;
        }
    }

    /// Ends a worker's leases of some jobs. The attempts count, as always when it is unknown how
    /// far they got.
    pub(crate) async fn give_up_leases(&self, id: WorkerId, jobs: &[JobId]) {
        let lost =
            self.bridge().change(|engine| engine.leases().worker_lost(jobs, &id.worker_ref()));
        if let Err(refused) = lost.await {
            // These leases will end by time.
            tracing::warn!("lightjq: leases of worker {id} are not ended: {refused}");
        }
    }
}
