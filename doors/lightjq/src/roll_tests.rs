use super::*;

fn profile(max_jobs: u32, url: Option<&str>) -> Profile {
    Profile {
        name: "w".to_owned(),
        max_jobs,
        target: url.map(|url| Target::read(url, None).unwrap()),
        names: None,
    }
}

fn entered(roll: &mut Roll, max_jobs: u32, url: Option<&str>) -> WorkerId {
    let id = WorkerId::random();
    roll.enter(id, profile(max_jobs, url), 0).unwrap();
    id
}

const NAME: Bytes = Bytes::from_static(b"mail");

#[test]
fn slots_and_jobs_together_never_exceed_max_jobs() {
    let mut roll = Roll::default();
    let id = entered(&mut roll, 2, None);
    assert!(roll.reserve(id).is_some() && roll.reserve(id).is_some());
    assert!(roll.reserve(id).is_none());
    assert!(roll.hold(id, JobId(1), &NAME));
    assert!(roll.reserve(id).is_none(), "one has its job, one still waits");
    roll.give_back(id, 0);
    assert!(roll.reserve(id).is_some());
    assert!(roll.hold(id, JobId(2), &NAME));
    assert!(roll.reserve(id).is_none());
    roll.let_go(id, JobId(7), 0);
    assert!(roll.reserve(id).is_none(), "a job it does not have frees nothing");
    roll.let_go(id, JobId(1), 0);
    assert!(roll.reserve(id).is_some());
}

#[test]
fn who_waits_for_a_slot_is_told_when_one_is_free_and_when_the_worker_goes() {
    let mut roll = Roll::default();
    let id = entered(&mut roll, 1, None);
    roll.reserve(id).unwrap();
    roll.hold(id, JobId(1), &NAME);
    let [changed, mut freed] = roll.watch(id).unwrap();
    assert!(!freed.has_changed().unwrap());
    roll.let_go(id, JobId(1), 0);
    assert!(freed.has_changed().unwrap());
    freed.borrow_and_update();
    // Who has a slot and waits for a job is not disturbed by one that is free.
    assert!(!changed.has_changed().unwrap());
    assert_eq!(roll.remove(id).unwrap().jobs, []);
    assert!(changed.has_changed().is_err() && freed.has_changed().is_err());
    assert!(roll.watch(id).is_none() && roll.reserve(id).is_none());
    assert!(!roll.hold(id, JobId(2), &NAME));
}

#[test]
fn a_name_a_worker_refused_is_not_held_until_it_registers_anew() {
    let mut roll = Roll::default();
    let id = entered(&mut roll, 2, None);
    roll.reserve(id).unwrap();
    roll.refuse(id, &NAME);
    assert!(!roll.hold(id, JobId(1), &NAME));
    roll.give_back(id, 0);
    assert!(roll.reserve(id).unwrap().refused.contains(&NAME));
    roll.give_back(id, 0);
    roll.enter(id, profile(2, None), 5).unwrap();
    assert!(roll.reserve(id).unwrap().refused.is_empty());
    assert!(roll.hold(id, JobId(1), &NAME));
}

#[test]
fn only_an_idle_worker_that_asks_for_jobs_is_lost_by_silence() {
    let mut roll = Roll::default();
    let idle = entered(&mut roll, 1, None);
    let asking = entered(&mut roll, 1, None);
    let busy = entered(&mut roll, 1, None);
    let _pushed = entered(&mut roll, 1, Some("http://127.0.0.1:1"));
    roll.reserve(asking).unwrap();
    roll.reserve(busy).unwrap();
    roll.hold(busy, JobId(1), &NAME);
    assert_eq!(roll.silent(59_999, 60_000), []);
    assert_eq!(roll.silent(60_000, 60_000), [idle]);
    roll.seen(idle, 30_000);
    assert_eq!(roll.silent(89_999, 60_000), []);
    // What it had counts as activity when it ends, and so does a request that ends.
    roll.let_go(busy, JobId(1), 80_000);
    roll.give_back(asking, 85_000);
    assert_eq!(roll.silent(139_999, 60_000), [idle]);
    let mut silent = roll.silent(145_000, 60_000);
    silent.sort();
    let mut all = [idle, asking, busy];
    all.sort();
    assert_eq!(silent, all);
}

#[test]
fn pushes_have_to_fail_for_a_while_without_an_answer_in_between() {
    let mut roll = Roll::default();
    let id = entered(&mut roll, 1, Some("http://127.0.0.1:1"));
    assert!(!roll.missed(id, 1_000, 30_000));
    assert!(!roll.missed(id, 30_999, 30_000));
    assert_eq!(roll.misses(id), 2);
    roll.reached(id, 31_000);
    assert_eq!(roll.misses(id), 0);
    assert!(!roll.missed(id, 32_000, 30_000));
    assert!(roll.missed(id, 62_000, 30_000));
}

#[test]
fn who_comes_to_an_address_takes_the_place_of_who_was_there() {
    let mut roll = Roll::default();
    let url = Some("http://127.0.0.1:1");
    let first = entered(&mut roll, 2, url);
    roll.reserve(first).unwrap();
    roll.hold(first, JobId(1), &NAME);
    // The same one again: it keeps its job, and whoever pushes to it goes on.
    let again = roll.enter(first, profile(3, url), 1).unwrap();
    assert!(again.replaced.is_none() && !again.to_serve);
    let second = WorkerId::random();
    let other = roll.enter(second, profile(1, url), 2).unwrap();
    let lost = Lost { id: first, name: "w".to_owned(), jobs: vec![JobId(1)] };
    assert_eq!((other.replaced, other.to_serve), (Some(lost), true));
    assert!(!roll.has(first));
}

#[test]
fn a_worker_that_gives_up_its_address_is_served_no_more_and_can_be_again() {
    let mut roll = Roll::default();
    let url = Some("http://127.0.0.1:1");
    let id = entered(&mut roll, 1, url);
    assert!(roll.target(id).is_some());
    roll.enter(id, profile(1, None), 1).unwrap();
    assert!(roll.target(id).is_none());
    assert!(roll.enter(id, profile(1, url), 2).unwrap().to_serve);
}

#[test]
fn there_are_only_so_many_workers() {
    let mut roll = Roll::default();
    let ids: Vec<WorkerId> = (0..WORKERS_MAX).map(|_| entered(&mut roll, 1, None)).collect();
    assert!(roll.enter(WorkerId::random(), profile(1, None), 0).is_none());
    assert!(roll.enter(ids[0], profile(1, None), 0).is_some());
    roll.remove(ids[1]).unwrap();
    assert!(roll.enter(WorkerId::random(), profile(1, None), 0).is_some());
}
