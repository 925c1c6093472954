//! What became of each job of a route.

/// One job.
#[derive(Debug, Clone, Default)]
struct Entry {
    /// The name that the server gave it when it accepted it.
    name: Option<String>,
    /// How often a worker of the route got it.
    handed_out: u32,
    /// A worker has reported its end.
    is_worked: bool,
    /// The server shows it as done.
    is_done: bool,
}

/// The jobs of one route, by their numbers.
#[derive(Debug)]
pub struct Account {
    /// The number of the first job.
    first: usize,
    /// How many jobs have been given to the submitter.
    begun: usize,
    entries: Vec<Entry>,
}

/// What an account comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// Jobs that the server accepted.
    pub jobs: usize,
    /// Of these, those that were handed out again after the crash.
    pub again: usize,
    /// Of these, those that no worker of the route got, or that the server does not show as done.
    pub lost: usize,
}

impl Sums {
    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        let Self { jobs, again, lost } = other;
        Self { jobs: self.jobs + jobs, again: self.again + again, lost: self.lost + lost }
    }
}

impl Account {
    /// Of so many jobs with numbers from `first` on, none of them submitted.
    pub fn new(first: usize, jobs: usize) -> Self {
        Self { first, begun: 0, entries: vec![Entry::default(); jobs] }
    }

    /// How many jobs there are to be.
    pub fn jobs(&self) -> usize {
        self.entries.len()
    }

    /// The number of the job to submit next, if there is one.
    pub fn next(&mut self) -> Option<usize> {
        let number = self.first + self.begun;
        (self.begun < self.entries.len()).then(|| {
            self.begun += 1;
            number
        })
    }

    /// The server has answered that it has the job, under this name.
    pub fn accepted(&mut self, number: usize, name: String) {
        self.change(number, |entry| entry.name = Some(name));
    }

    /// A worker got it.
    pub fn handed_out(&mut self, number: usize) {
        self.change(number, |entry| entry.handed_out += 1);
    }

    /// A worker has reported its end.
    pub fn worked(&mut self, number: usize) {
        self.change(number, |entry| entry.is_worked = true);
    }

    /// The server shows it as done.
    pub fn done(&mut self, number: usize) {
        self.change(number, |entry| entry.is_done = true);
    }

    /// All that the server has accepted: number and name.
    pub fn names(&self) -> Vec<(usize, String)> {
        let named = (self.first..).zip(&self.entries);
        named.filter_map(|(number, entry)| Some((number, entry.name.clone()?))).collect()
    }

    /// How many are accepted, and of how many a worker has reported the end.
    pub fn progress(&self) -> (usize, usize) {
        let count =
            |is_so: fn(&Entry) -> bool| self.entries.iter().filter(|entry| is_so(entry)).count();
        (count(|entry| entry.name.is_some()), count(|entry| entry.is_worked))
    }

    /// What it comes to, once the server was asked for each.
    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for entry in self.entries.iter().filter(|entry| entry.name.is_some()) {
            sums.jobs += 1;
            sums.again += usize::from(entry.handed_out > 1);
            sums.lost += usize::from(entry.handed_out == 0 || !entry.is_done);
        }
        sums
    }

    /// Ignores unknown numbers: a job that comes back from a server may be from another run.
    fn change(&mut self, number: usize, change: impl FnOnce(&mut Entry)) {
        let place = number.checked_sub(self.first);
        if let Some(entry) = place.and_then(|place| self.entries.get_mut(place)) {
            change(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four jobs that came to their end.
    fn sound() -> Account {
        let mut account = Account::new(10, 4);
        while let Some(number) = account.next() {
            account.accepted(number, format!("{number}"));
            account.handed_out(number);
            account.worked(number);
            account.done(number);
        }
        account
    }

    #[test]
    fn jobs_that_came_to_their_end_are_not_lost() {
        assert_eq!(sound().sums(), Sums { jobs: 4, again: 0, lost: 0 });
        assert_eq!(sound().progress(), (4, 4));
    }

    #[test]
    fn a_job_that_the_server_does_not_have_as_done_is_lost() {
        let mut account = sound();
        account.entries[2].is_done = false;
        assert_eq!(account.sums(), Sums { jobs: 4, again: 0, lost: 1 });
    }

    #[test]
    fn a_job_that_no_worker_got_is_lost_whatever_the_server_says() {
        let mut account = sound();
        account.entries[1].handed_out = 0;
        account.entries[3] = Entry { name: Some("13".to_owned()), ..Entry::default() };
        assert_eq!(account.sums(), Sums { jobs: 4, again: 0, lost: 2 });
    }

    #[test]
    fn a_job_that_was_never_accepted_is_not_lost_and_one_worked_twice_is_counted_once() {
        let mut account = sound();
        account.entries[0] = Entry { handed_out: 1, ..Entry::default() };
        account.handed_out(11);
        account.handed_out(11);
        for number in [0, 9, 14] {
            account.handed_out(number);
            account.done(number);
        }
        assert_eq!(account.sums(), Sums { jobs: 3, again: 1, lost: 0 });
        assert_eq!(account.names().len(), 3);
    }
}
