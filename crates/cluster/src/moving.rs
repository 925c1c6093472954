//! Moves of queues between shards: what the leader of a shard does, given what the logs of all shards say.
//!
//! Every node follows the logs of all shards, so it reads there how far each shard is; see
//! [`spindle_core::places`] for the parts of a move. No other state is kept: when a leader ends, the move stays
//! where the logs have it, and the next leader goes on from there.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use spindle_core::Command;
use spindle_core::places::{Known, Placed, Places, Stage};
use spindle_engine::Engine;

use crate::node::Node;

/// How long a leader's own log may take to make its newest state of moves durable.
const DURABLE_TIME: Duration = Duration::from_secs(1);
/// The pause between two looks whether it is durable.
const DURABLE_LOOK: Duration = Duration::from_millis(2);

/// For so long, a shard goes on taking a queue's new jobs after another shard has begun to take them, too. By
/// then every node knows where the queue is, so none sends a job only to a shard that refuses it.
const KNOWN_TIME: Duration = Duration::from_secs(1);

/// One process's part in all moves.
pub struct Moving {
    /// This process's nodes, by shard.
    nodes: Vec<Node>,
    /// Since when queues can be sealed, by shard and version of the move.
    sealable: HashMap<(u8, u64), Instant>,
}

impl Moving {
    /// Between the shards that these nodes follow and lead.
    #[must_use]
    pub fn between(nodes: Vec<Node>) -> Moving {
        Moving { nodes, sealable: HashMap::new() }
    }

    /// Takes the next steps of all moves, on the shards that this process leads. Returns where moved queues are,
    /// as far as it is known here; none while that is not certain.
    pub fn go_on(&mut self) -> Option<Vec<Whereabouts>> {
        let engines: Vec<Option<Engine>> = self.nodes.iter().map(Node::engine).collect();
        let mut all = Vec::with_capacity(self.nodes.len());
        for (node, engine) in self.nodes.iter().zip(&engines) {
            all.push(match engine {
                // If a leader cannot commit, nothing is known of its shard.
                Some(engine) => durable_places(engine)?,
                None => node.board().places(),
            });
        }
        let mut sealable = HashMap::new();
        for (shard, engine) in (0_u8..).zip(&engines) {
            let Some(engine) = engine else { continue };
            for part in parts(shard, &all) {
                if let Command::SealQueue { version, .. } = &part {
                    let since = self.sealable.get(&(shard, *version)).copied();
                    let since = since.unwrap_or_else(Instant::now);
                    sealable.insert((shard, *version), since);
                    if since.elapsed() < KNOWN_TIME {
                        continue;
                    }
                }
                engine.moves().go_on(&part);
            }
        }
        self.sealable = sealable;
        Some(whereabouts(&all))
    }
}

/// Where a moved queue is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Whereabouts {
    /// Which queue.
    pub queue: Bytes,
    /// The shard that it was on, which may still have jobs of it.
    pub drains: Option<u8>,
    /// The shard that it moves or has moved to.
    pub to: u8,
    /// Whether that shard is known to take its jobs.
    pub is_open: bool,
}

fn whereabouts(all: &[Places]) -> Vec<Whereabouts> {
    let map = all.first().map(|first| &first.map[..]).unwrap_or_default();
    map.iter().filter_map(|placed| whereabouts_of(placed, all)).collect()
}

fn whereabouts_of(placed: &Placed, all: &[Places]) -> Option<Whereabouts> {
    let queue = placed.queue.clone();
    let target = all.get(placed.shard as usize).and_then(|places| places.known(&queue));
    let is_open = target.is_some_and(|known| known.version >= placed.version);
    let drains = placed.drains.map(u8::try_from).transpose().ok()?;
    Some(Whereabouts { to: u8::try_from(placed.shard).ok()?, drains, is_open, queue })
}

/// What an engine's log says of places, once it is durable, because another shard acts on it.
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

/// What the leader of a shard is to do, given what the logs of all shards say.
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
    let (Some(drains), Ok(to)) = (placed.drains, u8::try_from(placed.shard)) else {
        return Vec::new();
    };
    let (drained, target) = (known(drains), known(placed.shard));
    let know = |settings| Command::KnowPlace { queue: queue.clone(), version, shard: to, settings };
    let mut parts = Vec::new();
    if drains == u32::from(shard) {
        parts.extend(match drained.map(Known::stage) {
            None => Some(know(None)),
            // Until another shard takes its jobs, this one does.
            Some(Stage::Offered) if target.is_some() => {
                Some(Command::SealQueue { queue: queue.clone(), version })
            }
            Some(Stage::Sealed) => Some(Command::LeaveQueue { queue: queue.clone(), version }),
            Some(_) => None,
        });
    } else if to == shard
        && target.is_none()
        && let Some(drained) = drained
    {
        parts.push(know(drained.settings.clone().map(Box::new)));
    }
    if shard == 0 && drained.is_some_and(|drained| drained.stage() == Stage::Left) {
        parts.push(Command::EndDrain { queue, version });
    }
    parts
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use spindle_core::command::Submit;
    use spindle_core::job::{Cause, JOB_ID_SEQUENCE_END, Key, Origin, Scope};
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

        /// Submits a job of this name; a name that is taken is refused.
        fn submit(&mut self, name: u64) -> Result<(), Rejection> {
            let job = self.job(name);
            self.next_id += 1;
            self.run(&job)
        }

        fn job(&self, name: u64) -> Command {
            let (id, payload) = (JobId(self.next_id), BytesRef::empty(Type::Bytes));
            let mut job = Submit::new(id, QUEUE, Origin::Api, payload);
            job.constraints_revision = self.state.server().constraints_revision;
            job.keys = vec![name_of(name)];
            Command::Submit(Box::new(job))
        }

        /// Whether it would take a new job.
        fn takes(&self) -> bool {
            decide(&self.state, &self.job(0), 1, &mut Decision::default()).is_ok()
        }

        fn has(&self, name: u64) -> bool {
            self.state.job_by_key(&name_of(name)).is_some()
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

    fn name_of(number: u64) -> Key {
        let name = number.to_be_bytes().to_vec().into();
        Key { namespace: Origin::Api as i32, name, scope: Scope::WhileUnfinished as i32 }
    }

    /// Offers a job as a router would that has read this state of all shards. Returns whether it was taken.
    fn offer(logs: &mut [Log], read: &[Places], name: u64) -> bool {
        let home = Seat { shard: 0, shards: SHARDS }.shard_of(&QUEUE);
        let order = match &whereabouts(read)[..] {
            [] => vec![home],
            [it] => it.drains.into_iter().chain([it.to]).collect(),
            more => panic!("{more:?}"),
        };
        for shard in order {
            match logs[usize::from(shard)].submit(name) {
                Ok(()) => return true,
                Err(Rejection::KeyTaken(_)) => return false,
                Err(_) => {}
            }
        }
        false
    }

    /// Each leader acts on what it has read of the others, which may be outdated.
    #[test]
    fn one_shard_takes_the_jobs_of_a_queue_at_any_time_however_often_and_late_it_moves() {
        for seed in 0..300 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut logs: Vec<Log> = (0..SHARDS).map(Log::of).collect();
            // What the leader of each shard has read of all.
            let mut read = vec![vec![Places::default(); SHARDS.into()]; SHARDS.into()];
            let (mut moves, mut names) = (12, 0);
            for step in 0..400 {
                let at = random.random_range(0..usize::from(SHARDS));
                match random.random_range(0..9) {
                    0 if moves > 0 => {
                        moves -= 1;
                        let shard = random.random_range(0..SHARDS);
                        // Refused while it moves.
                        logs[0].run(&Command::PlaceQueue { queue: QUEUE, shard }).ok();
                    }
                    1 => {
                        let takes = logs.iter().any(Log::takes);
                        assert!(takes, "seed {seed}, step {step}: nobody takes a job");
                    }
                    2 => logs[at].delete_all(),
                    3..5 => {
                        let of = random.random_range(0..usize::from(SHARDS));
                        read[at][of] = logs[of].places();
                    }
                    5 => {
                        // Through a node that has read everything: no name that exists is given again.
                        names += 1;
                        let all: Vec<Places> = logs.iter().map(Log::places).collect();
                        assert!(offer(&mut logs, &all, names), "seed {seed}, step {step}");
                        let name = random.random_range(1..=names);
                        let is_there = logs.iter().any(|log| log.has(name));
                        let taken = offer(&mut logs, &all, name);
                        assert_eq!(taken, !is_there, "seed {seed}, step {step}");
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
            assert!(map.iter().all(|placed| placed.drains.is_none()), "seed {seed}: {map:?}");
            for (shard, log) in (0..).zip(&logs) {
                assert_eq!(log.takes(), shard == on, "seed {seed}, shard {shard}");
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
