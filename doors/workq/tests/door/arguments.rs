//! What is said to wrong arguments, and what of the input is gone by then.

use crate::harness::{Job, TestServer, job, with_ids};

const ARGS: &str = "-CLIENT-ERROR Invalid command args";
const FLAGS: &str = "-CLIENT-ERROR Invalid command flags";
const UNKNOWN: &str = "-CLIENT-ERROR Unknown command";
const ID: &str = "-CLIENT-ERROR Invalid ID";
const NAME: &str = "-CLIENT-ERROR Invalid Name";
const TTR: &str = "-CLIENT-ERROR Invalid TTR";
const TTL: &str = "-CLIENT-ERROR Invalid TTL";
const TIME: &str = "-CLIENT-ERROR Invalid Time";
const PRIORITY: &str = "-CLIENT-ERROR Invalid Priority";
const SIZE: &str = "-CLIENT-ERROR Invalid payload size";
const RESULT_SIZE: &str = "-CLIENT-ERROR Invalid result size";
const WAIT: &str = "-CLIENT-ERROR Invalid wait timeout";
const OFFSET: &str = "-CLIENT-ERROR Invalid cursor offset";
const LIMIT: &str = "-CLIENT-ERROR Invalid limit";
const NOT_FOUND: &str = "-NOT-FOUND";
const TIMEOUT: &str = "-TIMEOUT";
const OK: &str = "+OK";

/// Each line gets its answer, and nothing of it is left for the next one. `|` stands for a CR LF,
/// `@` for a name of 255 letters.
#[track_caller]
fn check(cases: &[(&str, &str)]) {
    let server = TestServer::new();
    let mut client = server.client();
    for (request, answer) in cases {
        let request = with_ids(request).replace('|', "\r\n").replace('@', &"n".repeat(255));
        println!("{request}");
        client.ask(request + "\r\n", format!("{answer}\r\n"));
    }
    client.finish();
}

#[test]
fn lines_that_are_no_command_are_refused_one_by_one() {
    check(&[
        ("", UNKNOWN),
        ("foo", UNKNOWN),
        ("ADD", UNKNOWN),
        (" add", UNKNOWN),
        ("-x=1 add", UNKNOWN),
        ("inspect\tserver", UNKNOWN),
        ("\0\u{1}\u{7f}", UNKNOWN),
        ("add", ARGS),
        ("add -=1", FLAGS),
        ("add -x=", FLAGS),
        ("add -x=1 -x=2", FLAGS),
        ("add -x", ARGS),
    ]);
}

#[test]
fn inspect_takes_exactly_its_arguments() {
    check(&[
        ("inspect", ARGS),
        ("inspect foo", UNKNOWN),
        ("inspect server x", ARGS),
        ("inspect server -x=1", ARGS),
        ("inspect queues", ARGS),
        ("inspect queues 0", ARGS),
        ("inspect queues a 1", OFFSET),
        ("inspect queues -1 1", OFFSET),
        ("inspect queues 4294967296 1", OFFSET),
        ("inspect queues 4294967295 1", "+OK 0"),
        ("inspect queues 0 0", LIMIT),
        ("inspect queues 0 100", "+OK 0"),
        ("inspect queues 0 101", LIMIT),
        ("inspect queue", ARGS),
        ("inspect queue a b", ARGS),
        ("inspect queue a*b", NAME),
        ("inspect jobs a*b 0 1", NAME),
        ("inspect jobs ids", ARGS),
        ("inspect jobs ids 0 0", LIMIT),
        ("inspect jobs ids x 1", OFFSET),
        ("inspect scheduled-jobs ids x 1", OFFSET),
        ("inspect job x", ID),
        ("inspect job", ARGS),
    ]);
}

#[test]
fn lease_result_and_delete_take_exactly_their_arguments() {
    check(&[
        ("lease", ARGS),
        ("lease x", ARGS),
        ("lease x y", WAIT),
        ("lease a*b 10", NAME),
        ("lease a*b y", WAIT),
        ("lease x -1", WAIT),
        ("lease x 86400001", WAIT),
        ("lease x 99999999999", WAIT),
        ("lease x 10 -p=1", ARGS),
        ("lease n@ 10", NAME),
        ("lease @ 0", TIMEOUT),
        ("result", ARGS),
        ("result x", ARGS),
        ("result x 10", ID),
        ("result #1 x", WAIT),
        ("result #1 86400001", WAIT),
        ("result #1 10 -x=1", ARGS),
        ("result #1 10", NOT_FOUND),
        ("result 00000000-0000-0000-0000-000000000000 10", ID),
        ("delete", ARGS),
        ("delete x", ID),
        ("delete #1", NOT_FOUND),
        ("delete #1 -x=1", ARGS),
        ("extend", ARGS),
        ("extend x 10", ID),
        ("extend #1 0", TTR),
        ("extend #1 10", NOT_FOUND),
    ]);
}

#[test]
fn complete_and_fail_take_exactly_their_arguments() {
    check(&[
        ("complete", ARGS),
        ("complete x", ARGS),
        ("complete x 0|", ID),
        ("complete #1 0|", NOT_FOUND),
        ("complete #1 x", SIZE),
        ("complete #1 -1", SIZE),
        ("complete #1 1048577", SIZE),
        ("complete #1 1 -x=1|a", ARGS),
        ("fail", ARGS),
        ("fail x", ARGS),
        ("fail x 0|", ID),
        ("fail #1 0|", NOT_FOUND),
        ("fail #1 x", RESULT_SIZE),
        ("fail #1 -1", RESULT_SIZE),
        ("fail #1 1048577", RESULT_SIZE),
    ]);
}

#[test]
fn add_checks_its_arguments_and_takes_the_block_with_most_mistakes() {
    check(&[
        ("add #4 ping 1000 60000", ARGS),
        ("add #4 ping 1000 60000 1 extra", ARGS),
        ("add #4 ping 1000 60000 x", SIZE),
        ("add #4 ping 1000 60000 -1", SIZE),
        ("add #4 ping 1000 60000 1048577", SIZE),
        ("add x ping 1000 60000 1|a", ID),
        ("add #4 a*b 1000 60000 1|a", NAME),
        ("add #4 n@ 1000 60000 1|a", NAME),
        ("add #4 ping 0 60000 1|a", TTR),
        ("add #4 ping -5 60000 1|a", TTR),
        ("add #4 ping x 60000 1|a", TTR),
        ("add #4 ping +1000 60000 +1|a", TTR),
        ("add #4 ping 86400001 60000 1|a", TTR),
        ("add #4 ping 4294967296 60000 1|a", TTR),
        ("add #4 ping 1000 0 1|a", TTL),
        ("add #4 ping 1000 x 1|a", TTL),
        ("add #4 ping 1000 18446744073709551616 1|a", TTL),
        ("add #4 ping 1000 60000 1 -priority=x|a", PRIORITY),
        ("add #4 ping 1000 60000 1 -priority=2147483648|a", PRIORITY),
        ("add #4 ping 1000 60000 1 -max-attempts=256|a", "-CLIENT-ERROR Invalid Max Attempts"),
        ("add #4 ping 1000 60000 1 -max-attempts=-1|a", "-CLIENT-ERROR Invalid Max Attempts"),
        ("add #4 ping 1000 60000 1 -max-fails=256|a", "-CLIENT-ERROR Invalid Max Fails"),
        ("add #4 ping 1000 60000 1 -a=1 -b=2 -c=3 -d=4|a", ARGS),
        ("add #4 ping 1000 60000 1 -priority=", FLAGS),
        ("add #4 ping 1000 60000 1 -priority=1 -priority=2", FLAGS),
        ("add #4 ping 1000 60000 1 -priority", ARGS),
        // None of these has left a job behind.
        ("inspect job #4", NOT_FOUND),
        ("inspect queues 0 10", "+OK 0"),
    ]);
}

#[test]
fn of_several_mistakes_the_form_of_the_first_is_told_then_the_ranges() {
    check(&[
        ("add x a*b 0 0 1 -priority=x|a", ID),
        ("add #4 a*b 0 x 1 -priority=x|a", TTL),
        ("add #4 a*b 0 0 1 -priority=x|a", PRIORITY),
        ("add #4 a*b 0 0 1|a", NAME),
        ("add #4 ping 0 0 1|a", TTR),
        ("add #4 ping 1 0 1|a", TTL),
        ("add 00000000-0000-0000-0000-000000000000 a*b 0 0 1|a", ID),
    ]);
}

#[test]
fn add_takes_what_is_odd_but_allowed() {
    check(&[
        ("add #4 ping 1000 60000 1 -nonsense=1 -priority=-2147483648=9|a", OK),
        ("delete #4", OK),
        ("add  #4   ping 1000 60000 1 |a", OK),
        ("delete #4", OK),
        ("add #4 ping 01000 060000 01|a", OK),
        ("delete #4", OK),
        ("add #4 ping 1000 60000 +1|a", OK),
        ("delete #4", OK),
        ("add #4 ping 1000 2592000001 1|a", OK),
        ("delete #4", OK),
        ("add #4 @ 1000 60000 1|a", OK),
        ("delete #4", OK),
        ("add #4 ping 1000 18446744073709551615 1|a", OK),
        ("lease ping 0", &with_ids("+OK 1\r\n#4 ping 1000 1\r\na")),
    ]);
}

#[test]
fn flags_may_stand_anywhere_and_the_largest_values_are_shown_as_given() {
    let server = TestServer::new();
    let mut client = server.client();
    client.talk(
        "> add -priority=3 #4 ping 1000 60000 1
         > a
         < +OK",
    );
    client.inspect(&Job { priority: 3, ..job(4, "ping") });
    let flags = "-priority=-2147483648 -max-attempts=255 -max-fails=255";
    client.talk(&format!(
        "> add #5 ping 86400000 18446744073709551615 1 {flags}
         > a
         < +OK"
    ));
    client.inspect(&Job {
        ttr: 86_400_000,
        ttl: u64::MAX,
        priority: -2_147_483_648,
        max_attempts: 255,
        max_fails: 255,
        ..job(5, "ping")
    });
    client.finish();
}

#[test]
fn run_and_schedule_check_their_arguments() {
    check(&[
        ("run #7 r 1000 10", ARGS),
        ("run #7 r 1000 x 1|a", WAIT),
        ("run #7 r 1000 86400001 1|a", WAIT),
        ("run #7 r 0 10 1|a", TTR),
        ("run #7 r 1000 10 1 -a=1 -b=1|a", ARGS),
        ("run #7 r 1000 10 1 -priority=x|a", PRIORITY),
        ("run #7 r 1000 10 1 -priority=4294967296|a", PRIORITY),
        ("run x r 1000 10 1|a", ID),
        ("run #7 a*b 1000 10 1|a", NAME),
        ("inspect queues 0 10", "+OK 0"),
        ("schedule #7 s 1000 60000 2030-01-01T00:00:00Z", ARGS),
        ("schedule #7 s 1000 60000 2016-06-14T06:46:46Z 1|a", TIME),
        ("schedule #7 s 1000 60000 notatime 1|a", TIME),
        ("schedule #7 s 1000 60000 2030-01-01T00:00:00+01:00 1|a", TIME),
        ("schedule #7 s 1000 60000 2030-02-30T00:00:00Z 1|a", TIME),
        ("schedule #7 s 1000 60000 2030-01-01T00:00:00Z x", SIZE),
        ("schedule #7 s 1000 0 2030-01-01T00:00:00Z 1|a", TTL),
        ("schedule x s 1000 60000 2030-01-01T00:00:00Z 1|a", ID),
        ("inspect queues 0 10", "+OK 0"),
    ]);
}

#[test]
fn all_forms_of_an_id_are_taken_and_echoed_in_the_canonical_one() {
    let server = TestServer::new();
    let mut client = server.client();
    let canonical = "61a444a0-6128-41c0-8078-cc757d3bd2d9";
    for form in [
        "61a444a0-6128-41c0-8078-cc757d3bd2d9",
        "61A444A0-6128-41C0-8078-CC757D3BD2D9",
        "61a444a0612841c08078cc757d3bd2d9",
        "{61a444a0-6128-41c0-8078-cc757d3bd2d9}",
        "{61a444a0-6128-41c0-8078-cc757d3bd2d9",
        "urn:uuid:61a444a0-6128-41c0-8078-cc757d3bd2d9",
        "61a444a0-612841c0-8078cc757d3bd2d9",
    ] {
        client.talk(&format!(
            "> add {form} ids 1000 60000 1
             > x
             < +OK
             > add {canonical} ids 1000 60000 1
             > x
             < -CLIENT-ERROR Duplicate job
             > lease ids 0
             < +OK 1
             < {canonical} ids 1000 1
             < x
             > result {form} 0
             < -TIMEOUT
             > complete {form} 1
             > y
             < +OK
             > result {form} 0
             < +OK 1
             < {canonical} 1 1
             < y
             > delete {form}
             < +OK"
        ));
    }
    client.finish();
}

#[test]
fn a_uuid_of_any_version_is_an_id_and_anything_else_is_none() {
    for good in [
        "6ba7b810-9dad-11d1-80b4-00c04fd430c4",
        "61a444a0-6128-41c0-c078-cc757d3bd2e0",
        "61a444a0-6128-51c0-8078-cc757d3bd2e1",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
    ] {
        check(&[
            (&format!("add {good} ids 1000 60000 1|x"), OK),
            ("lease ids 0", &format!("+OK 1\r\n{good} ids 1000 1\r\nx")),
            (&format!("complete {good} 1|x"), OK),
            (&format!("fail {good} 1|x"), "-CLIENT-ERROR Duplicate result"),
            (&format!("delete {good}"), OK),
        ]);
    }
    for bad in [
        "00000000-0000-0000-0000-000000000000",
        "61a444a0-6128-41c0-8078-cc757d3bd2deTRAILING",
        "61a444a0-6128-41c0-8078-cc757d3bd2",
        "61a444a0-6128-41c0-8078-cc757d3bd2zz",
        "urn:uuid:11111111-1111-1111-1111",
        "short",
        // Names of other doors' jobs: nobody may take one.
        "7370696e-646c-8000-8000-000000001234",
        "7370696e-646c-8000-8000-000000000000",
        "7370696e-646c-8000-8fff-ffffffffffff",
    ] {
        check(&[
            (&format!("add {bad} ids 1000 60000 1|x"), ID),
            (&format!("schedule {bad} ids 1000 60000 2030-01-01T00:00:00Z 1|x"), ID),
            (&format!("run {bad} ids 1000 0 1|x"), ID),
        ]);
    }
}
