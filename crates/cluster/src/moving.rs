//! Queues on their way between shards: what whoever leads a shard does by what all logs say.
//!
//! Every node follows the logs of all shards, so it reads there how far each shard is; see
//! [`spindle_core::places`] for the parts of a move. Nothing is kept besides: a leader that ends leaves the
//! move where the logs have it, and the next one goes on.

use std::thread;
use std::time::{Duration, Instant};

use spindle_core::Command;
use spindle_core::places::{Known, Placed, Places, Stage};
use spindle_engine::{Engine, PlacesBoard};

use crate::node::Node;

/// How long a leader's own log may take to make durable what it says.
const DURABLE_TIME: Duration = Duration::from_secs(1);
/// Between two looks whether it is.
const DURABLE_LOOK: Duration = Duration::from_millis(2);

/// One process's part in all moves.
pub struct Moving {
    /// By shard: this process's node, and what the node shows while it follows.
    shards: Vec<(Node, PlacesBoard)>,
}

impl Moving {
    /// Between the shards that these nodes follow and lead.
    #[must_use]
    pub fn between(shards: Vec<(Node, PlacesBoard)>) -> Moving {
        Moving { shards }
    }

    /// Does what is to be done now where this process leads. Returns the map, as far as it is known here.
    pub fn go_on(&self) -> Option<Places> {
        let engines: Vec<Option<Engine>> =
            self.shards.iter().map(|(node, _)| node.state().engine.clone()).collect();
        let mut all = Vec::with_capacity(self.shards.len());
        for ((_, board), engine) in self.shards.iter().zip(&engines) {
            all.push(match engine {
                // Of a leader that cannot commit nothing is known.
                Some(engine) => durable_places(engine)?,
                None => board.places(),
            });
        }
        for (shard, engine) in (0_u8..).zip(&engines) {
            let Some(engine) = engine else { continue };
            for part in parts(shard, &all) {
                engine.moves().go_on(&part);
            }
        }
        all.into_iter().next()
    }
}

/// What an engine's log has of places, once that is durable: another shard acts on it.
fn durable_places(engine: &Engine) -> Option<Places> {
    let mut places = engine.moves().places();
    let deadline = Instant::now() + DURABLE_TIME;
    loop {
        places = match places.release(engine.durable()) {
            Ok(places) => return Some(places),
            Err(undurable) => undurable,
        };
        if Instant::now() > deadline || engine.failure().is_some() {
            return None;
        }
        thread::sleep(DURABLE_LOOK);
    }
}

/// What the leader of a shard is to do, by what the logs of all shards have.
fn parts(shard: u8, all: &[Places]) -> Vec<Command> {
    let Some(first) = all.first() else { return Vec::new() };
    first.map.iter().flat_map(|placed| parts_of(shard, placed, all)).collect()
}

fn parts_of(shard: u8, placed: &Placed, all: &[Places]) -> Vec<Command> {
    let (queue, version) = (placed.queue.clone(), placed.version);
    let known = |shard: u32| -> Option<&Known> {
        let known = all.get(shard as usize)?.known(&queue)?;
        (known.version >= version).then_some(known)
    };
    let (own, target) = (known(shard.into()), known(placed.shard));
    let Ok(to) = u8::try_from(placed.shard) else { return Vec::new() };
    let know = |settings| Command::KnowPlace { queue: queue.clone(), version, shard: to, settings };
    let mut parts = Vec::new();
    if placed.drains.contains(&shard.into()) {
        parts.extend(match own.map(Known::stage) {
            None => Some(know(None)),
            // Before another shard takes its jobs, this one does.
            Some(Stage::Offered) if target.is_some() => {
                Some(Command::SealQueue { queue: queue.clone(), version })
            }
            Some(Stage::Sealed) => Some(Command::LeaveQueue { queue: queue.clone(), version }),
            Some(_) => None,
        });
    } else if to == shard && own.is_none() {
        let drains: Option<Vec<&Known>> = placed.drains.iter().map(|it| known(*it)).collect();
        // Whoever has the settings is among them.
        if let Some(drains) = drains {
            let settings = drains.iter().find_map(|known| known.settings.clone());
            parts.push(know(settings.map(Box::new)));
        }
    }
    if shard == 0 {
        let left = |drained: &&u32| known(**drained).is_some_and(|it| it.stage() == Stage::Left);
        let left = placed.drains.iter().filter(left).filter_map(|it| u8::try_from(*it).ok());
        parts.extend(left.map(|shard| Command::EndDrain { queue: queue.clone(), version, shard }));
    }
    parts
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use spindle_core::command::Submit;
    use spindle_core::job::{Cause, JOB_ID_SEQUENCE_END, Origin};
    use spindle_core::seat::Seat;
    use spindle_core::{
        BytesRef, Decision, Defaults, JobId, Place, Rejection, State, Type, decide,
    };

    use super::*;

    const SHARDS: u8 = 3;
    const QUEUE: Bytes = Bytes::from_static(b"mail");

    /// A shard's log, folded.
    struct Log {
        state: State,
        position: u64,
        next_id: u64,
    }

    impl Log {
        fn of(shard: u8) -> Log {
            let state = State::new(1, Defaults::default());
            let first_id = u64::from(shard) * JOB_ID_SEQUENCE_END + 1;
            let mut log = Log { state, position: 1, next_id: first_id };
            let seat = Seat { shard, shards: SHARDS };
            log.run(&Command::Start { epoch: 1, seat }).unwrap();
            log.run(&Command::ReserveIds { until: first_id + 100_000 }).unwrap();
            log
        }

        fn run(&mut self, command: &Command) -> Result<(), Rejection> {
            let mut decision = Decision::default();
            decide(&self.state, command, 1, &mut decision)?;
            for (offset, (event, _)) in (0..).zip(&decision.events) {
                self.state.evolve(event, Place { position: self.position, offset });
            }
            self.position += 1;
            Ok(())
        }

        fn submit(&mut self) -> Result<(), Rejection> {
            let (id, payload) = (JobId(self.next_id), BytesRef::empty(Type::Bytes));
            let mut job = Submit::new(id, QUEUE, Origin::Api, payload);
            job.constraints_revision = self.state.server().constraints_revision;
            self.next_id += 1;
            self.run(&Command::Submit(Box::new(job)))
        }

        fn delete_all(&mut self) {
            let ids: Vec<JobId> = self.state.jobs_from(JobId(0)).map(|job| job.id()).collect();
            for id in ids {
                self.run(&Command::Delete { id, cause: Cause::Deleted }).unwrap();
            }
        }

        fn places(&self) -> Places {
            self.state.server().places.clone()
        }
    }

    /// Each leader acts by what it has read of the others, which may be old.
    #[test]
    fn one_shard_takes_the_jobs_of_a_queue_at_any_time_however_often_and_late_it_moves() {
        for seed in 0..300 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut logs: Vec<Log> = (0..SHARDS).map(Log::of).collect();
            // What the leader of each shard has read of all.
            let mut read = vec![vec![Places::default(); SHARDS.into()]; SHARDS.into()];
            let mut moves = 4;
            for step in 0..400 {
                let at = random.random_range(0..usize::from(SHARDS));
                match random.random_range(0..8) {
                    0 if moves > 0 => {
                        moves -= 1;
                        let shard = random.random_range(0..SHARDS);
                        logs[0].run(&Command::PlaceQueue { queue: QUEUE, shard }).unwrap();
                    }
                    1 => {
                        let taken = logs.iter_mut().map(Log::submit).filter(Result::is_ok).count();
                        assert!(taken > 0, "seed {seed}, step {step}: nobody takes a job");
                    }
                    2 => logs[at].delete_all(),
                    3..5 => {
                        let of = random.random_range(0..usize::from(SHARDS));
                        read[at][of] = logs[of].places();
                    }
                    _ => {
                        read[at][at] = logs[at].places();
                        for part in parts(at as u8, &read[at]) {
                            // Some of it was done before.
                            logs[at].run(&part).ok();
                        }
                    }
                }
            }
            settle(&mut logs, seed);
            let map = logs[0].places().map;
            let home = Seat { shard: 0, shards: SHARDS }.shard_of(&QUEUE);
            let on = map.first().map_or(u32::from(home), |placed| placed.shard);
            assert!(map.iter().all(|placed| placed.drains.is_empty()), "seed {seed}: {map:?}");
            for (shard, log) in (0..).zip(&mut logs) {
                assert_eq!(log.submit().is_ok(), shard == on, "seed {seed}, shard {shard}");
            }
        }
    }

    /// All jobs end, and everybody reads everything.
    fn settle(logs: &mut [Log], seed: u64) {
        for _ in 0..20 {
            let all: Vec<Places> = logs.iter().map(Log::places).collect();
            let mut is_settled = true;
            for (shard, log) in (0..).zip(logs.iter_mut()) {
                log.delete_all();
                for part in parts(shard, &all) {
                    is_settled &= log.run(&part).is_err();
                }
            }
            if is_settled {
                return;
            }
        }
        panic!("seed {seed}: there is no end of it");
    }

    #[test]
    fn a_queue_has_its_settings_where_it_comes_to() {
        let mut logs: Vec<Log> = (0..SHARDS).map(Log::of).collect();
        let home = Seat { shard: 0, shards: SHARDS }.shard_of(&QUEUE);
        let settings = spindle_core::queue::QueueSettings { paused: true, ..Default::default() };
        let set = Command::SetQueue { name: QUEUE, settings: settings.clone() };
        logs[usize::from(home)].run(&set).unwrap();
        let to = (home + 1) % SHARDS;
        logs[0].run(&Command::PlaceQueue { queue: QUEUE, shard: to }).unwrap();
        settle(&mut logs, 0);
        let of = |log: &Log| log.state.queue(&QUEUE).map(|queue| queue.settings().clone());
        assert_eq!(of(&logs[usize::from(to)]), Some(settings));
        assert_eq!(of(&logs[usize::from(home)]), None);
    }
}
