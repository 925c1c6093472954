//! Jobs that a library keeps in a Redis.
//!
//! Jobs wait in lists and sorted sets, which every client may take from. So a batch is taken by moving
//! its entries, in one step, to a key beside theirs whose name ends in `:spindle-import`, where no
//! worker looks. The next run takes up what a run that was killed has left there.

mod bullmq;
mod link;
mod sidekiq;

use std::{
    collections::{BTreeMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use redis::Cmd;

use self::link::Link;
pub use self::{bullmq::BullMq, sidekiq::Sidekiq};
use super::{Other, Rest, Route, Taken, Waiting, job::Job, left_there};
use crate::{
    cli::FromArgs,
    client::progress::Progress,
    output::{escape, preview},
};

/// Entries that are taken at once.
const BATCH_MAX: usize = 500;
/// How much of an entry that is no job is shown.
const SHOWN_LETTERS_MAX: usize = 60;
const HELD: &[u8] = b":spindle-import";

/// How a library keeps its jobs.
pub trait Layout: Sized {
    /// Looks for its queues.
    fn find(link: &mut Link, options: &FromArgs) -> anyhow::Result<(Self, Vec<Place>)>;

    /// What entries of a place are, whichever queues are wanted.
    fn read(&self, link: &mut Link, place: &Place, entries: &[Entry])
    -> anyhow::Result<Vec<Found>>;

    /// Whether jobs of a queue are wanted.
    fn wants(&self, queue: &[u8]) -> bool;

    /// Deletes jobs whose entries are held. Returns how many of them were there.
    fn remove(&self, link: &mut Link, place: &Place, entries: &[Vec<u8>]) -> anyhow::Result<u64>;

    /// How many jobs workers have.
    fn at_work(&self, link: &mut Link) -> anyhow::Result<u64>;

    /// Waiting jobs outside of all places, and why they stay.
    fn aside(&self, link: &mut Link) -> anyhow::Result<Vec<(&'static str, u64)>>;
}

/// A key under which jobs wait.
#[derive(Clone)]
pub struct Place {
    pub key: Vec<u8>,
    pub shape: Shape,
    /// None: jobs of all queues.
    pub queue: Option<String>,
    /// The library's word for it.
    pub state: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Workers take from its end.
    List,
    /// The lowest score goes first.
    Sorted,
}

impl Place {
    /// Where entries are while they go over.
    pub fn held(&self) -> Vec<u8> {
        [&self.key, HELD].concat()
    }
}

/// A member of a list or a sorted set.
#[derive(Clone)]
pub struct Entry {
    pub bytes: Vec<u8>,
    /// In a sorted set.
    pub score: f64,
}

/// What an entry is.
pub enum Found {
    /// A job, and what people call it.
    Job(Box<Job>, String),
    /// No job of that library, and why not.
    Unreadable(String),
    /// A job that is to stay there.
    Stays(&'static str),
    /// An entry that stands for nothing.
    Nothing,
}

const OTHER_QUEUES: &str = "of other queues";

/// A library's jobs in a Redis.
pub struct Redis<L> {
    link: Link,
    layout: L,
    places: Vec<Place>,
    /// The place that is being emptied.
    at: usize,
    /// How many entries of it are passed over.
    skip: usize,
    /// Whether this round through all places has found something.
    has_found: bool,
    /// Hashes of the entries that were looked at and stay.
    passed: HashSet<u64>,
    unreadable: u64,
    /// Entries that stand for nothing.
    others: u64,
    stays: BTreeMap<&'static str, u64>,
}

/// Which entry of which place a job is.
pub struct Handle {
    place: usize,
    entry: Vec<u8>,
}

/// What held entries are.
struct Described {
    jobs: Vec<Taken<Handle>>,
    /// Those that are no jobs, the first of them last.
    others: Vec<Vec<u8>>,
}

impl<L: Layout> Redis<L> {
    /// Connects, and looks for the queues that are wanted.
    pub fn connect(address: &str, options: &FromArgs) -> anyhow::Result<Self> {
        let mut link = Link::open(address, options)?;
        let (layout, places) = L::find(&mut link, options)?;
        Ok(Self {
            link,
            layout,
            places,
            at: 0,
            skip: 0,
            has_found: false,
            passed: HashSet::new(),
            unreadable: 0,
            others: 0,
            stays: BTreeMap::new(),
        })
    }

    /// What an earlier run has taken from a place and perhaps brought over, whichever queues it was
    /// to take from.
    fn take_held(&mut self, place: &Place) -> anyhow::Result<Vec<Taken<Handle>>> {
        let entries = self.link.window(&place.held(), place.shape, 0)?;
        let Described { jobs, others } = self.described(place, entries)?;
        self.link.give_back(place, &others)?;
        Ok(jobs)
    }

    /// Takes the next jobs of a place. None: there are no more.
    fn take_of(
        &mut self,
        place: &Place,
        progress: &Progress,
    ) -> anyhow::Result<Option<Vec<Taken<Handle>>>> {
        let held = self.take_held(place)?;
        if !held.is_empty() {
            return Ok(Some(held));
        }
        let mut entries = self.link.window(&place.key, place.shape, self.skip)?;
        if entries.is_empty() {
            return Ok(None);
        }
        let count = entries.len();
        entries.retain(|entry| !self.passed.contains(&hash(&place.key, &entry.bytes)));
        let found = self.layout.read(&mut self.link, place, &entries)?;
        let mut jobs = vec![];
        for (entry, found) in entries.into_iter().zip(found) {
            match found {
                Found::Job(job, _) if !self.layout.wants(&job.queue) => {
                    self.pass(place, &entry, Found::Stays(OTHER_QUEUES), progress);
                }
                Found::Job(..) => jobs.push(entry),
                other => self.pass(place, &entry, other, progress),
            }
        }
        self.skip += count - jobs.len();
        let taken = self.link.claim(place, jobs)?;
        // Read again now, because from here on no other program can change the entries.
        let Described { jobs, others } = self.described(place, taken)?;
        self.link.give_back(place, &others)?;
        Ok(Some(jobs))
    }

    /// Reads held entries.
    fn described(&mut self, place: &Place, entries: Vec<Entry>) -> anyhow::Result<Described> {
        let found = self.layout.read(&mut self.link, place, &entries)?;
        let (mut jobs, mut others) = (vec![], vec![]);
        for (entry, found) in entries.into_iter().zip(found) {
            match found {
                Found::Job(job, shown) => {
                    let handle = Handle { place: self.at, entry: entry.bytes };
                    jobs.push(Taken { handle, shown, job: *job });
                }
                _ => others.push(entry.bytes),
            }
        }
        others.reverse();
        Ok(Described { jobs, others })
    }

    /// Passes over an entry from now on.
    fn pass(&mut self, place: &Place, entry: &Entry, found: Found, progress: &Progress) {
        self.passed.insert(hash(&place.key, &entry.bytes));
        match found {
            Found::Unreadable(why) => {
                let key = escape(&String::from_utf8_lossy(&place.key));
                let shown = preview(&entry.bytes, SHOWN_LETTERS_MAX);
                progress.print(format!("{key}: {why}, and stays there: `{shown}`"));
                self.unreadable += 1;
            }
            Found::Stays(why) => *self.stays.entry(why).or_default() += 1,
            Found::Nothing | Found::Job(..) => self.others += 1,
        }
    }
}

impl<L: Layout> Other for Redis<L> {
    type Handle = Handle;

    const ROUTE: Route = Route::Submit;

    fn waiting(&mut self) -> anyhow::Result<Vec<Waiting>> {
        let mut waiting = vec![];
        for place in &self.places {
            let jobs = self.link.count(&place.key, place.shape)?
                + self.link.count(&place.held(), place.shape)?;
            if jobs > 0 {
                let queue = place.queue.clone().unwrap_or_default();
                waiting.push(Waiting { queue, state: place.state, jobs });
            }
        }
        Ok(waiting)
    }

    fn take(&mut self, progress: &Progress) -> anyhow::Result<Vec<Taken<Handle>>> {
        loop {
            let Some(place) = self.places.get(self.at).cloned() else {
                if !self.has_found {
                    return Ok(vec![]);
                }
                // Jobs may have come meanwhile, or gone from one place to another.
                (self.at, self.skip, self.has_found) = (0, 0, false);
                continue;
            };
            match self.take_of(&place, progress)? {
                None => (self.at, self.skip) = (self.at + 1, 0),
                Some(taken) if taken.is_empty() => {}
                Some(taken) => {
                    self.has_found = true;
                    return Ok(taken);
                }
            }
        }
    }

    fn remove(&mut self, jobs: &[Taken<Handle>]) -> anyhow::Result<u64> {
        // All of them come from one place.
        let Some(first) = jobs.first() else { return Ok(0) };
        let entries: Vec<_> = jobs.iter().map(|job| job.handle.entry.clone()).collect();
        let place = &self.places[first.handle.place];
        let removed = self.layout.remove(&mut self.link, place, &entries)?;
        Ok((jobs.len() as u64).saturating_sub(removed))
    }

    fn leave(&mut self, jobs: Vec<Taken<Handle>>) -> anyhow::Result<()> {
        let Some(first) = jobs.first() else { return Ok(()) };
        let place = self.places[first.handle.place].clone();
        self.skip += jobs.len();
        let entries: Vec<_> = jobs.into_iter().rev().map(|job| job.handle.entry).collect();
        self.passed.extend(entries.iter().map(|entry| hash(&place.key, entry)));
        self.link.give_back(&place, &entries)
    }

    fn rest(&mut self) -> anyhow::Result<Rest> {
        let mut left = self.waiting()?.iter().map(|waiting| waiting.jobs).sum::<u64>();
        for (why, jobs) in self.layout.aside(&mut self.link)? {
            left += jobs;
            *self.stays.entry(why).or_default() += jobs;
        }
        let stays = std::mem::take(&mut self.stays).into_iter().filter(|(_, jobs)| *jobs > 0);
        Ok(Rest {
            at_work: self.layout.at_work(&mut self.link)?,
            left: left.saturating_sub(self.unreadable + self.others),
            unreadable: self.unreadable,
            notes: stays.map(|(why, jobs)| left_there(why, jobs)).collect(),
        })
    }
}

/// The queues of a library that are wanted, in the order of their names. Says which of the wanted
/// ones there are not.
fn wanted(mut queues: Vec<String>, options: &FromArgs, library: &str, link: &Link) -> Vec<String> {
    for missing in options.queue.iter().filter(|queue| !queues.contains(queue)) {
        eprintln!("there is no queue {missing} of {library} in the Redis at {}", link.place());
    }
    queues.retain(|queue| options.queue.is_empty() || options.queue.contains(queue));
    queues.sort_unstable();
    queues.dedup();
    queues
}

fn hash(key: &[u8], entry: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, entry).hash(&mut hasher);
    hasher.finish()
}

/// Moves entries from the first key to the second, as long as they are there: 1 for each that was.
const CLAIM_OF_LIST: &str = "\
local taken = {}
for i, entry in ipairs(ARGV) do
  taken[i] = redis.call('LREM', KEYS[1], -1, entry)
  if taken[i] == 1 then redis.call('LPUSH', KEYS[2], entry) end
end
return taken";

/// The same of a sorted set.
const CLAIM_OF_SORTED: &str = "\
local taken = {}
for i, entry in ipairs(ARGV) do
  local score = redis.call('ZSCORE', KEYS[1], entry)
  taken[i] = redis.call('ZREM', KEYS[1], entry)
  if taken[i] == 1 then redis.call('ZADD', KEYS[2], score, entry) end
end
return taken";

/// Moves entries from the first key to the second: the last one is worked first there.
const GIVE_BACK_TO_LIST: &str = "\
for _, entry in ipairs(ARGV) do
  if redis.call('LREM', KEYS[1], 1, entry) == 1 then redis.call('RPUSH', KEYS[2], entry) end
end
return 1";

/// A script with its keys and arguments.
pub fn script(text: &str, keys: &[&[u8]], arguments: &[Vec<u8>]) -> Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(text).arg(keys.len()).arg(keys).arg(arguments);
    command
}

impl Link {
    /// How many entries there are under a key.
    fn count(&mut self, key: &[u8], shape: Shape) -> anyhow::Result<u64> {
        let command = if shape == Shape::List { "LLEN" } else { "ZCARD" };
        self.ask(redis::cmd(command).arg(key))
    }

    /// The next entries, those first that are worked first, behind some.
    fn window(&mut self, key: &[u8], shape: Shape, skip: usize) -> anyhow::Result<Vec<Entry>> {
        let (from, to) = (skip as i64, (skip + BATCH_MAX) as i64);
        if shape == Shape::Sorted {
            let mut command = redis::cmd("ZRANGE");
            command.arg(key).arg(from).arg(to - 1).arg("WITHSCORES");
            let members: Vec<(Vec<u8>, f64)> = self.ask(&command)?;
            return Ok(members.into_iter().map(|(bytes, score)| Entry { bytes, score }).collect());
        }
        let mut command = redis::cmd("LRANGE");
        command.arg(key).arg(-to).arg(-from - 1);
        let members: Vec<Vec<u8>> = self.ask(&command)?;
        Ok(members.into_iter().rev().map(|bytes| Entry { bytes, score: 0.0 }).collect())
    }

    /// Takes entries, so that no worker gets them. Returns those that were still there.
    fn claim(&mut self, place: &Place, entries: Vec<Entry>) -> anyhow::Result<Vec<Entry>> {
        if entries.is_empty() {
            return Ok(entries);
        }
        let text = if place.shape == Shape::List { CLAIM_OF_LIST } else { CLAIM_OF_SORTED };
        let arguments: Vec<_> = entries.iter().map(|entry| entry.bytes.clone()).collect();
        let taken: Vec<u8> = self.ask(&script(text, &[&place.key, &place.held()], &arguments))?;
        let kept = entries.into_iter().zip(taken).filter(|(_, taken)| *taken == 1);
        Ok(kept.map(|(entry, _)| entry).collect())
    }

    /// Puts entries back to where they were, the last one in front.
    fn give_back(&mut self, place: &Place, entries: &[Vec<u8>]) -> anyhow::Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let text = if place.shape == Shape::List { GIVE_BACK_TO_LIST } else { CLAIM_OF_SORTED };
        let _: redis::Value = self.ask(&script(text, &[&place.held(), &place.key], entries))?;
        Ok(())
    }
}
