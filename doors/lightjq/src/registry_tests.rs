use super::*;

fn profile(max_jobs: u32, url: Option<&str>) -> Profile {
    Profile {
        login: spindle_access::Access::open().login(None),
        name: "w".to_owned(),
        max_jobs,
        target: url.map(|url| Target::read(url, None).unwrap()),
        names: None,
    }
}

fn entered(registry: &mut Registry, max_jobs: u32, url: Option<&str>) -> WorkerId {
    let id = WorkerId::random();
    registry.enter(id, profile(max_jobs, url), 0).unwrap();
    id
}

const NAME: Bytes = Bytes::from_static(b"mail");

#[test]
fn slots_and_jobs_together_never_exceed_max_jobs() {
    let mut registry = Registry::default();
    let id = entered(&mut registry, 2, None);
    assert!(registry.reserve(id).is_some() && registry.reserve(id).is_some());
    assert!(registry.reserve(id).is_none());
    assert!(registry.hold(id, JobId(1), &NAME));
    assert!(registry.reserve(id).is_none(), "one has its job, one still waits");
    registry.give_back(id, 0);
    assert!(registry.reserve(id).is_some());
    assert!(registry.hold(id, JobId(2), &NAME));
    assert!(registry.reserve(id).is_none());
    registry.let_go(id, JobId(7), 0);
    assert!(registry.reserve(id).is_none(), "a job it does not have frees nothing");
    registry.let_go(id, JobId(1), 0);
    assert!(registry.reserve(id).is_some());
}

#[test]
fn who_waits_for_a_slot_is_told_when_one_is_free_and_when_the_worker_goes() {
    let mut registry = Registry::default();
    let id = entered(&mut registry, 1, None);
    registry.reserve(id).unwrap();
    registry.hold(id, JobId(1), &NAME);
    let [changed, mut freed] = registry.watch(id).unwrap();
    assert!(!freed.has_changed().unwrap());
    registry.let_go(id, JobId(1), 0);
    assert!(freed.has_changed().unwrap());
    freed.borrow_and_update();
    // A request that has a slot and waits for a job is not woken by a free slot.
    assert!(!changed.has_changed().unwrap());
    assert_eq!(registry.remove(id).unwrap().jobs, []);
    assert!(changed.has_changed().is_err() && freed.has_changed().is_err());
    assert!(registry.watch(id).is_none() && registry.reserve(id).is_none());
    assert!(!registry.hold(id, JobId(2), &NAME));
}

#[test]
fn a_name_a_worker_refused_is_not_held_until_it_registers_anew() {
    let mut registry = Registry::default();
    let id = entered(&mut registry, 2, None);
    registry.reserve(id).unwrap();
    registry.refuse(id, &NAME);
    assert!(!registry.hold(id, JobId(1), &NAME));
    registry.give_back(id, 0);
    assert!(registry.reserve(id).unwrap().refused.contains(&NAME));
    registry.give_back(id, 0);
    registry.enter(id, profile(2, None), 5).unwrap();
    assert!(registry.reserve(id).unwrap().refused.is_empty());
    assert!(registry.hold(id, JobId(1), &NAME));
}

#[test]
fn only_an_idle_worker_that_asks_for_jobs_is_lost_by_silence() {
    let mut registry = Registry::default();
    let idle = entered(&mut registry, 1, None);
    let asking = entered(&mut registry, 1, None);
    let busy = entered(&mut registry, 1, None);
    let _pushed = entered(&mut registry, 1, Some("http://127.0.0.1:1"));
    registry.reserve(asking).unwrap();
    registry.reserve(busy).unwrap();
    registry.hold(busy, JobId(1), &NAME);
    assert_eq!(registry.silent(59_999, 60_000), []);
    assert_eq!(registry.silent(60_000, 60_000), [idle]);
    registry.seen(idle, 30_000);
    assert_eq!(registry.silent(89_999, 60_000), []);
    // The end of a job counts as activity of the worker, and so does the end of a request.
    registry.let_go(busy, JobId(1), 80_000);
    registry.give_back(asking, 85_000);
    assert_eq!(registry.silent(139_999, 60_000), [idle]);
    let mut silent = registry.silent(145_000, 60_000);
    silent.sort();
    let mut all = [idle, asking, busy];
    all.sort();
    assert_eq!(silent, all);
}

#[test]
fn pushes_have_to_fail_for_a_while_without_an_answer_in_between() {
    let mut registry = Registry::default();
    let id = entered(&mut registry, 1, Some("http://127.0.0.1:1"));
    assert!(!registry.missed(id, 1_000, 30_000));
    assert!(!registry.missed(id, 30_999, 30_000));
    assert_eq!(registry.misses(id), 2);
    registry.reached(id, 31_000);
    assert_eq!(registry.misses(id), 0);
    assert!(!registry.missed(id, 32_000, 30_000));
    assert!(registry.missed(id, 62_000, 30_000));
}

#[test]
fn who_comes_to_an_address_takes_the_place_of_who_was_there() {
    let mut registry = Registry::default();
    let url = Some("http://127.0.0.1:1");
    let first = entered(&mut registry, 2, url);
    registry.reserve(first).unwrap();
    registry.hold(first, JobId(1), &NAME);
    // The same worker again: it keeps its job, and the task that pushes to it goes on.
    let again = registry.enter(first, profile(3, url), 1).unwrap();
    assert!(again.replaced.is_none() && !again.to_serve);
    let second = WorkerId::random();
    let other = registry.enter(second, profile(1, url), 2).unwrap();
    let lost = RemovedWorker { id: first, name: "w".to_owned(), jobs: vec![JobId(1)] };
    assert_eq!((other.replaced, other.to_serve), (Some(lost), true));
    assert!(!registry.has(first));
}

#[test]
fn a_client_takes_the_place_of_its_own_worker_alone() {
    let tokens = spindle_testkit::TokensFile::of_all_roles();
    let access = tokens.access(true);
    let of = |token: &str| {
        let mut login = access.login(None);
        login.present(token.as_bytes()).unwrap();
        Profile { login, ..profile(1, Some("http://127.0.0.1:1")) }
    };
    let mut registry = Registry::default();
    let ids = [WorkerId::random(), WorkerId::random(), WorkerId::random()];
    assert!(registry.enter(ids[0], of("work"), 0).unwrap().replaced.is_none());
    let neighbour = registry.enter(ids[1], of("mine.work"), 1).unwrap();
    assert!(neighbour.replaced.is_none() && neighbour.to_serve);
    assert!(registry.has(ids[0]));
    let replaced = registry.enter(ids[2], of("work"), 2).unwrap().replaced;
    assert_eq!(replaced.map(|worker| worker.id), Some(ids[0]));
    assert!(registry.has(ids[1]));
}

#[test]
fn a_worker_that_gives_up_its_address_is_served_no_more_and_can_be_again() {
    let mut registry = Registry::default();
    let url = Some("http://127.0.0.1:1");
    let id = entered(&mut registry, 1, url);
    assert!(registry.target(id).is_some());
    registry.enter(id, profile(1, None), 1).unwrap();
    assert!(registry.target(id).is_none());
    assert!(registry.enter(id, profile(1, url), 2).unwrap().to_serve);
}

#[test]
fn there_are_only_so_many_workers() {
    let mut registry = Registry::default();
    let ids: Vec<WorkerId> = (0..WORKERS_MAX).map(|_| entered(&mut registry, 1, None)).collect();
    assert!(registry.enter(WorkerId::random(), profile(1, None), 0).is_none());
    assert!(registry.enter(ids[0], profile(1, None), 0).is_some());
    registry.remove(ids[1]).unwrap();
    assert!(registry.enter(WorkerId::random(), profile(1, None), 0).is_some());
}
