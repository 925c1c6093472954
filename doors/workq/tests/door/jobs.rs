//! What happens to a job, from `add` to `delete`, and what `inspect` says of it meanwhile.

use bytes::Bytes;
use spindle_core::audit::{Action, Actor};
use spindle_engine::Audit;
use spindle_testkit::opened;

use crate::harness::{Job, TestServer, job};

#[test]
fn a_fresh_server_has_nothing() {
    let server = TestServer::new();
    let mut client = server.client();
    client.talk(
        "> inspect server
         < +OK 1
         < server 3
         < active-clients 1
         < evicted-jobs 0
         < started 2016-08-22T01:50:51Z
         > inspect queues 0 10
         < +OK 0
         > inspect queue nope
         < -NOT-FOUND
         > inspect jobs nope 0 10
         < -NOT-FOUND
         > inspect scheduled-jobs nope 0 10
         < -NOT-FOUND
         > inspect job #9999
         < -NOT-FOUND",
    );
    client.finish();
}

#[test]
fn a_job_is_added_leased_completed_and_its_result_read_again_and_again() {
    let server = TestServer::new();
    let mut client = server.client();
    client.talk(
        "> add #1 ping 1000 60000 4
         > ping
         < +OK
         > add #2 ping 1000 60000 4 -priority=10 -max-attempts=3 -max-fails=1
         > pong
         < +OK
         > inspect queue ping
         < +OK 1
         < ping 2
         < ready-len 2
         < scheduled-len 0
         > inspect queues 0 10
         < +OK 1
         < ping 2
         < ready-len 2
         < scheduled-len 0",
    );
    let first = Job { payload: "ping", ..job(1, "ping") };
    let second =
        Job { payload: "pong", priority: 10, max_attempts: 3, max_fails: 1, ..job(2, "ping") };
    client.ask("inspect jobs ping 0 10\r\n", format!("+OK 2\r\n{second}{first}"));
    client.ask("inspect jobs ping 1 1\r\n", format!("+OK 1\r\n{first}"));
    client.ask("inspect jobs ping 2 1\r\n", "+OK 0\r\n");
    client.ask("inspect jobs ping 5 1\r\n", "+OK 0\r\n");
    client.ask("inspect scheduled-jobs ping 0 10\r\n", "+OK 0\r\n");
    client.inspect(&first);
    client.talk(
        "> lease ping 100
         < +OK 1
         < #2 ping 1000 4
         < pong",
    );
    client.inspect(&Job { attempts: 1, state: 4, ..second.clone() });
    client.talk(
        "> inspect queue ping
         < +OK 1
         < ping 2
         < ready-len 1
         < scheduled-len 0
         > complete #2 6
         > result
         < +OK",
    );
    client.inspect(&Job { attempts: 1, state: 1, ..second });
    client.talk(
        "> result #2 100
         < +OK 1
         < #2 1 6
         < result
         > result #2 0
         < +OK 1
         < #2 1 6
         < result
         > complete #2 6
         > result
         < -CLIENT-ERROR Duplicate result
         > fail #2 6
         > result
         < -CLIENT-ERROR Duplicate result",
    );
    client.finish();
}

#[test]
fn nobody_needs_a_lease_to_complete_or_fail() {
    let server = TestServer::new();
    let mut client = server.client();
    client.talk(
        "> add #1 ping 1000 60000 4
         > ping
         < +OK
         > complete #1 0
         >
         < +OK
         > result #1 0
         < +OK 1
         < #1 1 0
         <
         > add #3 ping 1000 60000 0
         >
         < +OK
         > fail #3 3
         > bad
         < +OK
         > result #3 0
         < +OK 1
         < #3 0 3
         < bad",
    );
    // A fail of a job that says nothing of max-fails is counted, and final.
    client.inspect(&Job { payload: "", fails: 1, state: 2, ..job(3, "ping") });
    client.finish();
}

#[test]
fn an_id_is_taken_until_its_job_is_deleted() {
    let server = TestServer::new();
    let mut client = server.client();
    client.talk(
        "> add #3 ping 1000 60000 0
         >
         < +OK
         > add #3 pong 1000 60000 0
         >
         < -CLIENT-ERROR Duplicate job
         > schedule #3 pong 1000 60000 2030-01-01T00:00:00Z 0
         >
         < -CLIENT-ERROR Duplicate job
         > run #3 pong 1000 60000 0
         >
         < -CLIENT-ERROR Duplicate job
         > fail #3 3
         > bad
         < +OK
         > add #3 ping 1000 60000 0
         >
         < -CLIENT-ERROR Duplicate job
         > delete #3
         < +OK
         > delete #3
         < -NOT-FOUND
         > result #3 0
         < -NOT-FOUND
         > add #3 ping 1000 60000 0
         >
         < +OK
         > lease ping 0
         < +OK 1
         < #3 ping 1000 0
         <
         > delete #3
         < +OK
         > complete #3 0
         >
         < -NOT-FOUND
         > inspect queues 0 10
         < +OK 0",
    );
    client.finish();
}

#[test]
fn higher_priorities_go_first_then_older_jobs() {
    let server = TestServer::new();
    let mut client = server.client();
    for (number, priority) in [(1, "0"), (2, "5"), (3, "-5"), (4, "5"), (5, "-2147483648")] {
        client.talk(&format!(
            "> add #{number} ord 1000 60000 1 -priority={priority}
             > a
             < +OK"
        ));
    }
    // `schedule` and `run` take priorities up to 2^32-1, and show what fits 32 bits.
    client.talk(
        "> schedule #6 ord 1000 60000 2016-08-22T01:50:50Z 1 -priority=4294967295
         > a
         < +OK",
    );
    let shown =
        Job { priority: 2_147_483_647, time: Some("2016-08-22T01:50:50Z"), ..job(6, "ord") };
    client.inspect(&shown);
    for number in [6, 2, 4, 1, 3, 5] {
        client.talk(&format!(
            "> lease ord 10
             < +OK 1
             < #{number} ord 1000 1
             < a"
        ));
    }
    client.talk(
        "> lease ord 0
         < -TIMEOUT",
    );
    client.finish();
}

#[test]
fn scheduled_jobs_are_listed_apart_and_can_be_completed_before_their_time() {
    let server = TestServer::new();
    let mut client = server.client();
    client.talk(
        "> schedule #1 s 1000 60000 2016-08-22T02:50:51Z 1 -priority=5
         > a
         < +OK
         > schedule #2 s 1000 60000 2016-08-22T02:00:00.5Z 1
         > a
         < +OK",
    );
    let first = Job { priority: 5, time: Some("2016-08-22T02:50:51Z"), ..job(1, "s") };
    let second = Job { time: Some("2016-08-22T02:00:00Z"), ..job(2, "s") };
    client.inspect(&first);
    client.ask("inspect scheduled-jobs s 0 10\r\n", format!("+OK 2\r\n{second}{first}"));
    client.ask("inspect scheduled-jobs s 1 10\r\n", format!("+OK 1\r\n{first}"));
    client.talk(
        "> inspect jobs s 0 10
         < +OK 0
         > inspect queue s
         < +OK 1
         < s 2
         < ready-len 0
         < scheduled-len 2
         > lease s 0
         < -TIMEOUT
         > complete #1 1
         > z
         < +OK
         > result #1 0
         < +OK 1
         < #1 1 1
         < z
         > inspect queue s
         < +OK 1
         < s 2
         < ready-len 0
         < scheduled-len 1",
    );
    client.finish();
}

#[test]
fn several_commands_in_one_packet_are_answered_in_order() {
    let server = TestServer::new();
    let mut client = server.client();
    client.talk(
        "> add #5 pipe 1000 60000 1
         > a
         > add #6 pipe 1000 60000 1
         > b
         > inspect queue pipe
         > lease pipe 10
         > nonsense
         > complete #5 4
         > done
         > result #5 10
         < +OK
         < +OK
         < +OK 1
         < pipe 2
         < ready-len 2
         < scheduled-len 0
         < +OK 1
         < #5 pipe 1000 1
         < a
         < -CLIENT-ERROR Unknown command
         < +OK
         < +OK 1
         < #5 1 4
         < done",
    );
    client.finish();
}

#[test]
fn commands_behind_one_that_waits_are_answered_after_it() {
    let server = TestServer::new();
    let (mut worker, mut client) = (server.client(), server.client());
    worker.begin(
        "> lease later 1000
         > inspect queue later
         > delete #1
         > delete #1",
    );
    client.talk(
        "> add #1 later 1000 60000 1
         > a
         < +OK",
    );
    worker.talk(
        "< +OK 1
         < #1 later 1000 1
         < a
         < +OK 1
         < later 2
         < ready-len 0
         < scheduled-len 0
         < +OK
         < -NOT-FOUND",
    );
    worker.finish();
    client.finish();
}

#[test]
fn thousands_of_pipelined_commands_are_all_answered() {
    const JOBS: u64 = 3000;
    let server = TestServer::new();
    let mut client = server.client();
    let (mut sending, mut expected) = (String::new(), String::new());
    for number in 1..=JOBS {
        sending += &crate::harness::with_ids(&format!("add #{number} many 1000 60000 1\r\nx\r\n"));
        expected += "+OK\r\n";
    }
    for number in 1..=JOBS {
        sending +=
            &crate::harness::with_ids(&format!("lease many 0\r\ncomplete #{number} 0\r\n\r\n"));
        expected +=
            &crate::harness::with_ids(&format!("+OK 1\r\n#{number} many 1000 1\r\nx\r\n+OK\r\n"));
    }
    client.ask(sending, expected);
    client.finish();
}

#[test]
fn the_clients_are_counted_while_they_are_there() {
    let server = TestServer::new();
    let mut client = server.client();
    let count = |clients: usize| {
        format!(
            "+OK 1\r\nserver 3\r\nactive-clients {clients}\r\nevicted-jobs 0\r\n\
             started 2016-08-22T01:50:51Z\r\n"
        )
    };
    client.ask("inspect server\r\n", count(1));
    let mut other = server.client();
    other.ask("inspect server\r\n", count(2));
    client.ask("inspect server\r\n", count(2));
    other.finish();
    server.until("one client left", |server| server.door.clients() == 1);
    client.ask("inspect server\r\n", count(1));
}

#[test]
fn a_queue_that_holds_as_much_as_it_may_is_the_servers_error() {
    let server = TestServer::new();
    let queue = Bytes::from_static(b"ping");
    let mut audit = Audit::new(Actor::default());
    let set = server.engine.people(&mut audit).change_queue(Action::SetQueue, &queue, |queue| {
        queue.jobs_max = Some(1);
    });
    opened(set).expect("set");
    let mut client = server.client();
    client.talk(
        "> add #1 ping 1000 60000 4
         > ping
         < +OK
         > add #2 ping 1000 60000 4
         > pong
         < -SERVER-ERROR the queue is full
         > complete #1 0
         >
         < +OK
         > add #2 ping 1000 60000 4
         > pong
         < +OK",
    );
    client.finish();
}
