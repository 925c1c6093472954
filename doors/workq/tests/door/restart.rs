//! The server stops or crashes and comes back on the same log.

use std::sync::Arc;

use spindle_log::{FileLog, FileLogOptions, Log, SyncPolicy};
use tempfile::TempDir;

use crate::harness::{Client, Job, START_MS, TestServer, job};

fn log(folder: &TempDir) -> Arc<dyn Log> {
    let options = FileLogOptions {
        // What is tested here is what is written, not how it is synced.
        sync: SyncPolicy::Os,
        segment_bytes: 1 << 20,
        ..FileLogOptions::default()
    };
    Arc::new(FileLog::open_dir(folder.path(), options).expect("the folder is free and sound"))
}

/// Jobs in each state, by the number of their id.
fn fill(client: &mut Client) {
    client.talk(
        "> add #1 q 1000 600000 1 -priority=4 -max-attempts=7 -max-fails=2
         > a
         < +OK
         > add #2 done 1000 600000 1
         > a
         < +OK
         > complete #2 4
         > good
         < +OK
         > add #3 dead 1000 600000 1
         > a
         < +OK
         > fail #3 3
         > bad
         < +OK
         > add #4 leased 100000 600000 1 -max-fails=3
         > a
         < +OK
         > fail #4 0
         >
         < +OK
         > lease leased 0
         < +OK 1
         < #4 leased 100000 1
         < a
         > schedule #5 later 1000 60000 2016-08-22T01:52:51Z 1
         > a
         < +OK
         > add #6 gone 1000 600000 1
         > a
         < +OK
         > delete #6
         < +OK",
    );
    client.begin(
        "> run #7 r 1000 60000 1
         > a",
    );
}

/// The jobs of [`fill`] after the restart.
fn expect_all(client: &mut Client) {
    let long = |number, name| Job { ttl: 600_000, ..job(number, name) };
    client.inspect(&Job { priority: 4, max_attempts: 7, max_fails: 2, ..long(1, "q") });
    client.talk(
        "> result #2 0
         < +OK 1
         < #2 1 4
         < good
         > result #3 0
         < +OK 1
         < #3 0 3
         < bad",
    );
    let leased =
        Job { ttr: 100_000, max_fails: 3, fails: 1, attempts: 1, state: 4, ..long(4, "leased") };
    client.inspect(&leased);
    let time = Some("2016-08-22T01:52:51Z");
    client.inspect(&Job { time, ..job(5, "later") });
    client.talk(
        "> inspect job #6
         < -NOT-FOUND
         > inspect job #7
         < -NOT-FOUND
         > add #2 done 1000 60000 0
         >
         < -CLIENT-ERROR Duplicate job
         > lease q 0
         < +OK 1
         < #1 q 1000 1
         < a
         > lease later 0
         < -TIMEOUT",
    );
}

#[test]
fn jobs_leases_and_results_are_there_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = TestServer::on(log(&folder), START_MS);
    let mut client = server.client();
    fill(&mut client);
    server.stop();
    let server = TestServer::on(log(&folder), START_MS + 60_000);
    let mut client = server.client();
    expect_all(&mut client);
    // The scheduled job's time comes.
    server.pass(60_000);
    client.talk(
        "> lease later 0
         < +OK 1
         < #5 later 1000 1
         < a
         > complete #4 2
         > ok
         < +OK
         > result #4 0
         < +OK 1
         < #4 1 2
         < ok",
    );
    client.finish();
}

#[test]
fn a_lease_outlives_the_restart_by_a_grace_of_at_most_its_ttr() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = TestServer::on(log(&folder), START_MS);
    let mut client = server.client();
    client.talk(
        "> add #1 long 100000 600000 1
         > a
         < +OK
         > add #2 longer 400000 600000 1
         > a
         < +OK
         > add #3 short 1000 600000 1
         > a
         < +OK
         > lease long 0
         < +OK 1
         < #1 long 100000 1
         < a
         > lease longer 0
         < +OK 1
         < #2 longer 400000 1
         < a
         > lease short 0
         < +OK 1
         < #3 short 1000 1
         < a",
    );
    server.stop();
    // All the time of two of them has passed meanwhile, one has 200 s left.
    let server = TestServer::on(log(&folder), START_MS + 200_000);
    let mut client = server.client();
    let state = |number, name, ttr, state| Job {
        ttr,
        ttl: 600_000,
        attempts: 1,
        state,
        ..job(number, name)
    };
    server.pass(999);
    client.inspect(&state(3, "short", 1000, 4));
    server.pass(1);
    client.inspect(&state(3, "short", 1000, 3));
    server.pass(28_999);
    client.inspect(&state(1, "long", 100_000, 4));
    server.pass(1);
    client.inspect(&state(1, "long", 100_000, 3));
    server.pass(169_999);
    client.inspect(&state(2, "longer", 400_000, 4));
    server.pass(1);
    client.inspect(&state(2, "longer", 400_000, 3));
    client.finish();
}

#[test]
fn a_ttl_goes_on_while_the_server_is_down_and_evictions_are_counted_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = TestServer::on(log(&folder), START_MS);
    let mut client = server.client();
    client.talk(
        "> add #1 q 1000 1000 1
         > a
         < +OK
         > add #2 q 1000 5000 1
         > a
         < +OK
         > add #3 q 1000 50000 1
         > a
         < +OK",
    );
    server.pass(1000);
    client.talk(
        "> inspect server
         < +OK 1
         < server 3
         < active-clients 1
         < evicted-jobs 1
         < started 2016-08-22T01:50:51Z",
    );
    server.stop();
    let server = TestServer::on(log(&folder), START_MS + 9_000);
    let mut client = server.client();
    client.talk(
        "> inspect job #2
         < -NOT-FOUND
         > inspect server
         < +OK 1
         < server 3
         < active-clients 1
         < evicted-jobs 1
         < started 2016-08-22T01:51:00Z
         > inspect queue q
         < +OK 1
         < q 2
         < ready-len 1
         < scheduled-len 0",
    );
    server.stop();
    let server = TestServer::on(log(&folder), START_MS + 10_000);
    let mut client = server.client();
    client.talk(
        "> inspect server
         < +OK 1
         < server 3
         < active-clients 1
         < evicted-jobs 0
         < started 2016-08-22T01:51:01Z",
    );
}

#[test]
fn attempts_and_order_go_on_where_they_were() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut at_ms = START_MS;
    for number in 1..=3 {
        let server = TestServer::on(log(&folder), at_ms);
        let mut client = server.client();
        client.talk(&format!(
            "> add #{number} q 1000 600000 1 -max-attempts=3
             > a
             < +OK
             > lease q 0
             < +OK 1
             < #1 q 1000 1
             < a"
        ));
        server.pass(1000);
        let state = if number < 3 { 3 } else { 2 };
        let shown = Job { ttl: 600_000, max_attempts: 3, attempts: number, state, ..job(1, "q") };
        client.inspect(&shown);
        at_ms += 1000;
        server.stop();
    }
    let server = TestServer::on(log(&folder), at_ms);
    let mut client = server.client();
    for number in [2, 3] {
        client.talk(&format!(
            "> lease q 0
             < +OK 1
             < #{number} q 1000 1
             < a"
        ));
    }
    client.finish();
}
