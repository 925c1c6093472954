//! Workq clients of shards.

#![expect(clippy::unwrap_used, reason = "only tests use this")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use bytes::Bytes;
use spindle_core::address::foreign_uuid;
use spindle_core::command::Submit;
use spindle_core::job::Origin;
use spindle_core::{BytesRef, JobId, Type};
use spindle_engine::{Engine, JobRef, NewJob as EngineJob, Payload};
use spindle_router::workq::WorkqRouter;
use spindle_testkit::{PATIENCE, TokensFile, opened, wait_until};
use spindle_workq::WorkqDoor;
use spindle_workq::client::{Client, ClientError};
use spindle_workq::wire::{JobState, Limits, NewJob, Uuid};

use crate::shards::Sharded;

const SHARDS: u8 = 3;

fn sharded() -> Sharded {
    behind_router(|engine| WorkqDoor::new(engine, Limits::default()))
}

fn behind_router(door: impl Fn(Engine) -> WorkqDoor) -> Sharded {
    Sharded::start(SHARDS, door, |network, placement| {
        WorkqRouter::new(network, placement, Limits::default())
    })
}

fn client(sharded: &Sharded) -> Client {
    Client::connect(sharded.address(), PATIENCE).unwrap()
}

fn id(number: u64) -> Uuid {
    Uuid::from_bytes((u128::from(number) | 1 << 100).to_be_bytes())
}

fn job(number: u64, queue: &str) -> NewJob {
    NewJob::new(id(number), Bytes::copy_from_slice(queue.as_bytes()), 60_000, 600_000, "x".into())
}

/// A queue on each shard.
fn queues(sharded: &Sharded) -> Vec<String> {
    (0..SHARDS).map(|shard| sharded.queue_on(shard, 0)).collect()
}

fn add(number: u64, queue: &str) -> String {
    format!("add {} {queue} 60000 600000 1\r\nx\r\n", id(number))
}

fn leased(number: u64, queue: &str) -> String {
    format!("+OK 1\r\n{} {queue} 60000 1\r\nx\r\n", id(number))
}

/// How many clients wait at each shard.
fn waits(sharded: &Sharded) -> [usize; 3] {
    [0, 1, 2].map(|shard| sharded.engines[shard].observe().gauges().waits)
}

fn jobs(sharded: &Sharded) -> [usize; 3] {
    [0, 1, 2].map(|shard| sharded.engines[shard].observe().gauges().jobs)
}

/// The very next bytes must be these.
#[track_caller]
fn expect(stream: &mut TcpStream, text: &str) {
    let mut heard = vec![0; text.len()];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(String::from_utf8_lossy(&heard), text);
}

#[track_caller]
fn ask(stream: &mut TcpStream, request: &str, answer: &str) {
    stream.write_all(request.as_bytes()).unwrap();
    expect(stream, answer);
}

/// All answers that a connection gets that sends this and no more.
fn answers(sharded: &Sharded, said: &str) -> String {
    let mut stream = sharded.connect();
    stream.write_all(said.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut heard = String::new();
    stream.read_to_string(&mut heard).unwrap();
    heard
}

#[test]
fn jobs_of_several_queues_pass_through_one_connection() {
    let sharded = sharded();
    let mut client = client(&sharded);
    for (number, queue) in (1..).zip(queues(&sharded)) {
        client.add(&job(number, &queue)).unwrap();
        assert!(matches!(client.add(&job(number, &queue)), Err(ClientError::Client(_))));
        assert_eq!(client.inspect_queue(&queue).unwrap().ready, 1);
        assert_eq!(client.inspect_jobs(&queue, 0, 10).unwrap()[0].id, id(number));
        let leased = client.lease(&[&queue], 0).unwrap();
        assert_eq!((leased.id, &leased.payload[..]), (id(number), &b"x"[..]));
        client.extend(id(number), 1000).unwrap();
        client.complete(id(number), "done").unwrap();
        assert_eq!(&client.result(id(number), 1000).unwrap().result[..], b"done");
    }
    assert_eq!(jobs(&sharded), [1, 1, 1]);
}

#[test]
fn what_is_sent_ahead_is_answered_in_its_order() {
    let sharded = sharded();
    let queues = queues(&sharded);
    let (mut said, mut expected) = (String::new(), String::new());
    for number in 1..=2000_u64 {
        let queue = &queues[(number * 7 % 3) as usize];
        said += &add(number, queue);
        expected += "+OK\r\n";
        if number % 5 == 0 {
            said += &add(number, queue);
            expected += "-CLIENT-ERROR Duplicate job\r\n";
        }
        if number % 11 == 0 {
            said += "add x\r\nwhat\r\n";
            expected += "-CLIENT-ERROR Invalid command args\r\n-CLIENT-ERROR Unknown command\r\n";
        }
        if number % 97 == 0 {
            said += &format!("result {} 0\r\n", id(number));
            expected += "-TIMEOUT\r\n";
        }
    }
    assert_eq!(answers(&sharded, &said), expected);
    assert_eq!(jobs(&sharded).iter().sum::<usize>(), 2000);
}

#[test]
fn a_lease_of_queues_on_several_shards_is_woken_by_each() {
    let sharded = sharded();
    let queues = queues(&sharded);
    let (mut worker, mut client) = (sharded.connect(), client(&sharded));
    for (number, queue) in (1..).zip(queues.iter().chain(&queues)) {
        let lease = format!("lease {} 60000\r\n", queues.join(" "));
        worker.write_all(lease.as_bytes()).unwrap();
        wait_until("it waits everywhere", || waits(&sharded) == [1, 1, 1]);
        client.add(&job(number, queue)).unwrap();
        expect(&mut worker, &leased(number, queue));
        wait_until("it waits nowhere", || waits(&sharded) == [0, 0, 0]);
        ask(&mut worker, &format!("complete {} 0\r\n\r\n", id(number)), "+OK\r\n");
    }
    // A job that is ready is found without a wait.
    client.add(&job(99, &queues[1])).unwrap();
    ask(&mut worker, &format!("lease {} 0\r\n", queues.join(" ")), &leased(99, &queues[1]));
    ask(&mut worker, &format!("lease {} 20\r\n", queues.join(" ")), "-TIMEOUT\r\n");
}

/// Jobs that may be tried once: an attempt that is counted would end them.
#[test]
fn what_is_offered_and_not_taken_is_untried_and_ready() {
    let sharded = sharded();
    let queues = queues(&sharded);
    let (mut worker, mut asking) = (sharded.connect(), client(&sharded));
    for round in 0..30_u64 {
        let lease = format!("lease {} 60000\r\n", queues.join(" "));
        worker.write_all(lease.as_bytes()).unwrap();
        wait_until("it waits everywhere", || waits(&sharded) == [1, 1, 1]);
        let ids = [0, 1, 2].map(|at| id(round * 3 + at));
        for (at, queue) in queues.iter().enumerate() {
            submit(&sharded.engines[at], ids[at], queue);
        }
        // The worker gets one of them; the others are there for the next.
        let mut heard = vec![0; leased(0, &queues[0]).len()];
        worker.read_exact(&mut heard).unwrap();
        let first = Uuid::parse(&heard[7..43]).unwrap();
        let mut left = ids.to_vec();
        left.retain(|id| *id != first);
        assert_eq!(left.len(), 2);
        for id in &left {
            wait_until("it is ready and untried", || {
                let shown = asking.inspect_job(*id).unwrap();
                (shown.state, shown.attempts) == (JobState::New, 0)
            });
        }
        let mut again = [(); 2].map(|()| asking.lease(&queues, 0).unwrap().id);
        again.sort();
        assert_eq!(again[..], left);
        ids.into_iter().for_each(|id| asking.complete(id, "").unwrap());
    }
}

fn submit(engine: &Engine, id: Uuid, queue: &str) {
    let queue = Bytes::copy_from_slice(queue.as_bytes());
    let mut submit = Submit::new(JobId(0), queue, Origin::Workq, BytesRef::empty(Type::Bytes));
    submit.uuid = Some(*id.as_bytes());
    submit.ttr_ms = Some(60_000);
    submit.attempts_max = Some(1);
    let payload = Payload::new(Bytes::from_static(b"x"), Type::Bytes);
    opened(engine.jobs().submit(EngineJob { submit, payload })).unwrap();
    drop(engine.turn());
}

#[test]
fn a_job_is_found_wherever_it_is() {
    let sharded = sharded();
    let (mut adding, mut other) = (client(&sharded), sharded.connect());
    for (number, queue) in (1..).zip(queues(&sharded)) {
        // That connection has neither added nor leased it.
        adding.add(&job(number, &queue)).unwrap();
        let id = id(number);
        ask(&mut other, &format!("result {id} 0\r\n"), "-TIMEOUT\r\n");
        ask(&mut other, &format!("extend {id} 5\r\n"), "-CLIENT-ERROR Not leased\r\n");
        ask(&mut other, &format!("complete {id} 4\r\ndone\r\n"), "+OK\r\n");
        ask(&mut other, &format!("fail {id} 0\r\n\r\n"), "-CLIENT-ERROR Duplicate result\r\n");
        let done = format!("+OK 1\r\n{id} 1 4\r\ndone\r\n");
        ask(&mut other, &format!("result {id} 9\r\n"), &done);
        adding.delete(id).unwrap();
        for gone in ["inspect job ID", "inspect job ID", "delete ID", "result ID 60000"] {
            ask(&mut other, &(gone.replace("ID", &id.to_string()) + "\r\n"), "-NOT-FOUND\r\n");
        }
    }
}

#[test]
fn a_result_that_is_waited_for_comes_from_whichever_shard_has_the_job() {
    let sharded = sharded();
    let (mut adding, mut waiting) = (client(&sharded), sharded.connect());
    for (shard, queue) in queues(&sharded).iter().enumerate() {
        let number = shard as u64 + 1;
        adding.add(&job(number, queue)).unwrap();
        let ask = format!("result {} 60000\r\ninspect queue {queue}\r\n", id(number));
        waiting.write_all(ask.as_bytes()).unwrap();
        wait_until("it waits", || waits(&sharded)[shard] == 1);
        adding.complete(id(number), "yes").unwrap();
        expect(&mut waiting, &format!("+OK 1\r\n{} 1 3\r\nyes\r\n", id(number)));
        expect(&mut waiting, &format!("+OK 1\r\n{queue} 2\r\nready-len 0\r\nscheduled-len 0\r\n"));
    }
}

#[test]
fn a_job_of_another_door_is_known_by_its_number() {
    let sharded = sharded();
    let mut client = client(&sharded);
    for (shard, queue) in queues(&sharded).iter().enumerate() {
        let queue = Bytes::copy_from_slice(queue.as_bytes());
        let submit = Submit::new(JobId(0), queue, Origin::Jobq, BytesRef::empty(Type::Json));
        let new = EngineJob { submit, payload: Payload::new("{}", Type::Json) };
        let engine = &sharded.engines[shard];
        let number = opened(engine.jobs().submit(new)).unwrap();
        drop(engine.turn());
        let foreign = Uuid::from_bytes(foreign_uuid(number));
        assert_eq!(client.inspect_job(foreign).unwrap().id, foreign);
        client.complete(foreign, "ok").unwrap();
        assert_eq!(&client.result(foreign, 0).unwrap().result[..], b"ok");
        assert!(opened(engine.jobs().find(JobRef::Id(number))).is_some());
    }
    let nowhere = Uuid::from_bytes(foreign_uuid(JobId((1 << 53) - 1)));
    assert!(matches!(client.inspect_job(nowhere), Err(ClientError::NotFound)));
}

/// The names of the queues of a page, each of which has one job.
fn page(client: &mut Client, from: usize, limit: u32) -> Vec<String> {
    let queues = client.inspect_queues(u32::try_from(from).unwrap(), limit).unwrap();
    assert!(queues.iter().all(|queue| queue.ready == 1));
    queues.iter().map(|queue| String::from_utf8(queue.name.to_vec()).unwrap()).collect()
}

#[test]
fn queues_of_all_shards_are_one_list() {
    let sharded = sharded();
    let mut adding = client(&sharded);
    let mut names: Vec<String> = (0..120).map(|number| format!("list-{number}")).collect();
    for (number, name) in (1..).zip(&names) {
        adding.add(&job(number, name)).unwrap();
    }
    names.sort();
    let part = |from: usize, limit: usize| &names[from.min(120)..(from + limit).min(120)];
    for from in 0..125 {
        // From anywhere, and on from there.
        let mut client = client(&sharded);
        assert_eq!(page(&mut client, from, 7), part(from, 7), "from {from}");
        assert_eq!(page(&mut client, from + 7, 100), part(from + 7, 100), "on from {from}");
    }
    for beyond in [1000, u32::MAX as usize] {
        assert_eq!(page(&mut adding, beyond, 100), part(120, 0));
    }
    // Back again, and on from elsewhere than where the last one ended.
    for from in [50, 0, 20, 19, 90] {
        assert_eq!(page(&mut adding, from, 10), part(from, 10));
    }
    let pages = (0..13).flat_map(|number| page(&mut adding, number * 10, 10));
    assert_eq!(pages.collect::<Vec<_>>(), names);
}

#[test]
fn queues_that_are_spread_unevenly_are_one_list_too() {
    let sharded = sharded();
    let mut adding = client(&sharded);
    // All on one shard but the last.
    let mut names: Vec<String> = (0..60).map(|number| sharded.queue_on(1, number)).collect();
    names.push(sharded.queue_on(2, 7));
    for (number, name) in (1..).zip(&names) {
        adding.add(&job(number, name)).unwrap();
    }
    names.sort();
    for from in 0..=names.len() {
        let mut client = client(&sharded);
        let expected = &names[from..(from + 5).min(names.len())];
        assert_eq!(page(&mut client, from, 5), expected, "from {from}");
    }
}

#[test]
fn the_server_is_all_shards_together() {
    let sharded = sharded();
    let mut client = client(&sharded);
    let info = client.inspect_server().unwrap();
    assert_eq!((info.active_clients, info.evicted_jobs), (1, 0));
    for (number, shard) in [(1, 0), (2, 2)] {
        let job = job(number, &sharded.queue_on(shard, 0));
        client.add(&NewJob { ttl_ms: 1, ..job }).unwrap();
    }
    wait_until("both are evicted", || client.inspect_server().unwrap().evicted_jobs == 2);
}

#[test]
fn what_is_malformed_is_answered_as_by_a_server() {
    let sharded = sharded();
    for (said, heard) in [
        ("\r\n", "-CLIENT-ERROR Unknown command\r\n"),
        ("lease q\r\n", "-CLIENT-ERROR Invalid command args\r\n"),
        ("lease q -1\r\n", "-CLIENT-ERROR Invalid wait timeout\r\n"),
        ("complete x 1\r\nx\r\n", "-CLIENT-ERROR Invalid ID\r\n"),
        ("offer q 0\r\n", "-CLIENT-ERROR Unknown command\r\n"),
        ("inspect nothing\r\n", "-CLIENT-ERROR Unknown command\r\n"),
        ("inspect queues 0 101\r\n", "-CLIENT-ERROR Invalid limit\r\n"),
        (&format!("fail {} 5\r\nab", id(1)), "-CLIENT-ERROR Invalid result size\r\n"),
        ("inspect server", ""),
        ("what\n", ""),
        ("GET / HTTP/1.1\r\n\r\n", ""),
    ] {
        assert_eq!(answers(&sharded, said), heard, "{said:?}");
    }
    let mut stream = sharded.connect();
    // It closes in the middle of this.
    stream.write_all("x".repeat(300_000).as_bytes()).ok();
    assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn a_client_that_closes_its_side_is_answered_and_waits_for_nothing() {
    let sharded = sharded();
    let queues = queues(&sharded);
    let all = queues.join(" ");
    let waits_in_vain = [
        format!("lease {all} 60000\r\n"),
        format!("lease {} 60000\r\n", queues[2]),
        format!("result {} 60000\r\n", id(1)),
        format!("run {} {} 1000 60000 0\r\n\r\n", id(3), queues[2]),
    ];
    let lease = format!("lease {all} 60000\r\n");
    let said = add(1, &queues[0]) + &add(2, &queues[1]) + &lease.repeat(2);
    let heard = answers(&sharded, &(said + &waits_in_vain.concat() + &add(4, &queues[2])));
    let (one, two) = (leased(1, &queues[0]), leased(2, &queues[1]));
    let timeouts = "-TIMEOUT\r\n".repeat(4);
    let expected = [(&one, &two), (&two, &one)]
        .map(|(first, second)| format!("+OK\r\n+OK\r\n{first}{second}{timeouts}+OK\r\n"));
    assert!(expected.contains(&heard), "{heard}");
    // And one that waits already.
    for asked in waits_in_vain {
        assert_eq!(answers(&sharded, &format!("delete {}\r\n", id(4))), "+OK\r\n");
        let mut stream = sharded.connect();
        stream.write_all((asked.clone() + &add(4, &queues[2])).as_bytes()).unwrap();
        wait_until("it waits", || waits(&sharded) != [0, 0, 0]);
        stream.shutdown(Shutdown::Write).unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "-TIMEOUT\r\n+OK\r\n", "{asked}");
        wait_until("nobody waits", || waits(&sharded) == [0, 0, 0]);
    }
}

#[test]
fn nothing_is_sent_while_a_job_is_run() {
    let sharded = sharded();
    let queues = queues(&sharded);
    let mut stream = sharded.connect();
    let run = format!("run {} {} 60000 60000 1\r\nx\r\n", id(1), queues[0]);
    stream.write_all((run + &add(2, &queues[1])).as_bytes()).unwrap();
    let mut worker = client(&sharded);
    assert_eq!(worker.lease(&[&queues[0]], 60_000).unwrap().id, id(1));
    assert_eq!(jobs(&sharded), [1, 0, 0]);
    worker.complete(id(1), "ran").unwrap();
    expect(&mut stream, &format!("+OK 1\r\n{} 1 3\r\nran\r\n+OK\r\n", id(1)));
    assert_eq!(jobs(&sharded), [0, 1, 0]);
}

#[test]
fn a_shard_that_is_lost_ends_those_whom_it_owes_something() {
    let sharded = sharded();
    let queues = queues(&sharded);
    let mut owed = sharded.connect();
    let lease = format!("lease {} 60000\r\n", queues[1]);
    owed.write_all((add(1, &queues[0]) + &lease).as_bytes()).unwrap();
    expect(&mut owed, "+OK\r\n");
    let mut anywhere = sharded.connect();
    anywhere.write_all(format!("lease {} 60000\r\n", queues[1..].join(" ")).as_bytes()).unwrap();
    wait_until("both wait", || waits(&sharded) == [0, 2, 1]);
    let mut not_owed = sharded.connect();
    ask(&mut not_owed, &format!("inspect queue {}\r\n", sharded.queue_on(1, 5)), "-NOT-FOUND\r\n");
    sharded.lose(1);
    for mut stream in [owed, anywhere] {
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
    }
    wait_until("nobody waits at the others", || waits(&sharded)[2] == 0);
    ask(&mut not_owed, &add(3, &queues[0]), "+OK\r\n");
    not_owed.write_all(add(4, &queues[1]).as_bytes()).unwrap();
    assert_eq!(not_owed.read_to_end(&mut Vec::new()).unwrap(), 0);
}

#[test]
fn a_token_counts_at_all_shards() {
    let tokens = TokensFile::of_all_roles();
    let access = tokens.access(true);
    let sharded = behind_router(|engine| {
        WorkqDoor::new(engine, Limits::default()).with_access(access.clone())
    });
    let queues = queues(&sharded);
    let mut stream = sharded.connect();
    let none = "-CLIENT-ERROR this needs a token, and none was presented\r\n";
    let unknown = "-CLIENT-ERROR the token is not known\r\n";
    ask(&mut stream, &add(1, &queues[0]), none);
    ask(&mut stream, "auth admin\r\n", "+OK\r\n");
    // The token holds at shards that the connection has used before, and at those it uses only now.
    let adds: String = (1..).zip(&queues).map(|(number, queue)| add(number, queue)).collect();
    ask(&mut stream, &adds, "+OK\r\n+OK\r\n+OK\r\n");
    ask(&mut stream, "auth wrong\r\n", unknown);
    ask(&mut stream, &adds, &unknown.repeat(3));
    ask(&mut stream, &format!("lease {} 1000\r\n", queues.join(" ")), unknown);
    ask(&mut stream, "auth read\r\ninspect queues 9 1\r\n", "+OK\r\n+OK 0\r\n");
    // A wrong token is also refused at shards that get it later.
    assert_eq!(answers(&sharded, &("auth wrong\r\n".to_owned() + &adds)), unknown.repeat(4));
    let foreign = "-CLIENT-ERROR the token is not for this queue\r\n";
    let mine = format!("auth mine.work\r\nlease {} 0\r\n", queues.join(" "));
    assert_eq!(answers(&sharded, &mine), "+OK\r\n".to_owned() + foreign);
}
