//! The client against a server that speaks a written part.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    thread::JoinHandle,
    time::Duration,
};

use bytes::Bytes;
use spindle_workq::{
    client::{Client, ClientError},
    wire::{JobState, NewJob, Reply, ReplyKind, Request, Run, Uuid},
};

const ID: &str = "00000001-0000-4000-8000-000000000001";
const TIMEOUT: Duration = Duration::from_secs(20);

fn id() -> Uuid {
    Uuid::parse(ID.as_bytes()).expect("it is an id")
}

/// A server that expects each question to the byte and gives the answer, then closes.
fn serve(script: Vec<(String, Vec<u8>)>) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let addr = listener.local_addr().expect("a bound socket has an address");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the client connects");
        for (question, answer) in script {
            let mut asked = vec![0; question.len()];
            stream.read_exact(&mut asked).expect("the client asks");
            assert_eq!(String::from_utf8_lossy(&asked), question);
            stream.write_all(&answer).expect("the client listens");
        }
    });
    (addr, server)
}

fn check(script: &[(&str, &str)], talk: impl FnOnce(&mut Client)) {
    let script = script
        .iter()
        .map(|(question, answer)| {
            (question.replace("$ID", ID), answer.replace("$ID", ID).into_bytes())
        })
        .collect();
    let (addr, server) = serve(script);
    talk(&mut Client::connect(addr, TIMEOUT).expect("the server listens"));
    server.join().expect("the client kept to the script");
}

#[test]
fn commands_that_change_something_are_answered_by_ok() {
    let script = [
        ("add $ID q 1000 60000 4 -max-fails=2\r\na\r\nb\r\n", "+OK\r\n"),
        ("schedule $ID q 1000 60000 2016-08-22T01:50:51.250Z 0\r\n\r\n", "+OK\r\n"),
        ("complete $ID 4\r\npong\r\n", "+OK\r\n"),
        ("fail $ID 0\r\n\r\n", "+OK\r\n"),
        ("delete $ID\r\n", "+OK\r\n"),
        ("extend $ID 5000\r\n", "+OK\r\n"),
    ];
    check(&script, |client| {
        let mut job = NewJob::new(id(), "q".into(), 1000, 60_000, "a\r\nb".into());
        job.fails_max = 2;
        client.add(&job).unwrap();
        let job = NewJob { fails_max: 0, payload: Bytes::new(), ..job };
        client.schedule(&job, 1_471_830_651_250).unwrap();
        client.complete(id(), "pong").unwrap();
        client.fail(id(), "").unwrap();
        client.delete(id()).unwrap();
        client.extend(id(), 5000).unwrap();
    });
}

#[test]
fn jobs_and_results_may_hold_line_ends() {
    let script = [
        ("lease a b 10\r\n", "+OK 1\r\n$ID b 1000 4\r\n\r\n\r\n\r\n"),
        ("result $ID 10\r\n", "+OK 1\r\n$ID 0 3\r\n+OK\r\n"),
        ("run $ID q 1000 10 1\r\nx\r\n", "+OK 1\r\n$ID 1 0\r\n\r\n"),
    ];
    check(&script, |client| {
        let job = client.lease(&["a", "b"], 10).unwrap();
        assert_eq!((job.id, job.ttr_ms), (id(), 1000));
        assert_eq!((&job.name[..], &job.payload[..]), (&b"b"[..], &b"\r\n\r\n"[..]));
        let result = client.result(id(), 10).unwrap();
        assert_eq!((result.success, &result.result[..]), (false, &b"+OK"[..]));
        let run = Run {
            id: id(),
            name: "q".into(),
            ttr_ms: 1000,
            wait_timeout_ms: 10,
            priority: 0,
            payload: "x".into(),
        };
        let result = client.run(&run).unwrap();
        assert_eq!((result.success, result.result.len()), (true, 0));
    });
}

#[test]
fn an_inspected_payload_ends_where_its_size_says() {
    let answer = "+OK 1\r\n$ID 14\r\nname ping\r\nttr 1000\r\nttl 60000\r\npayload-size 13\r\n\
                  payload a\r\nstate 4\r\nb\r\nmax-attempts 3\r\nattempts 1\r\nmax-fails 2\r\n\
                  fails 1\r\npriority -5\r\nstate 3\r\ncreated 2016-08-22T01:50:51Z\r\n\
                  time 2016-08-22T01:50:52Z\r\nkey-of-tomorrow some value\r\n";
    check(&[("inspect job $ID\r\n", answer)], |client| {
        let job = client.inspect_job(id()).unwrap();
        assert_eq!(job.payload, &b"a\r\nstate 4\r\nb"[..]);
        assert_eq!((job.attempts_max, job.attempts, job.fails_max, job.fails), (3, 1, 2, 1));
        assert_eq!((job.priority, job.state), (-5, JobState::Pending));
        assert_eq!(job.created_ms, 1_471_830_651_000);
        assert_eq!(job.time_ms, Some(1_471_830_652_000));
    });
}

#[test]
fn lists_and_the_server_are_read() {
    let queues = "+OK 2\r\na 2\r\nready-len 1\r\nscheduled-len 2\r\nb 2\r\nready-len 0\r\n\
                  scheduled-len 0\r\n";
    // The original server announces two keys.
    let server = "+OK 1\r\nserver 2\r\nactive-clients 1\r\nevicted-jobs 7\r\n\
                  started 2016-01-02T15:04:05Z\r\n";
    let script = [
        ("inspect queues 0 10\r\n", queues),
        ("inspect server\r\n", server),
        ("inspect jobs a 0 10\r\n", "+OK 0\r\n"),
        ("inspect scheduled-jobs a 0 10\r\n", "+OK 0\r\n"),
        ("inspect queue b\r\n", "+OK 1\r\nb 2\r\nready-len 5\r\nscheduled-len 0\r\n"),
    ];
    check(&script, |client| {
        let queues = client.inspect_queues(0, 10).unwrap();
        let rows: Vec<_> =
            queues.iter().map(|queue| (&queue.name[..], queue.ready, queue.scheduled)).collect();
        assert_eq!(rows, [(&b"a"[..], 1, 2), (b"b", 0, 0)]);
        let server = client.inspect_server().unwrap();
        assert_eq!((server.evicted_jobs, server.started_ms), (7, 1_451_747_045_000));
        assert_eq!(client.inspect_jobs("a", 0, 10).unwrap(), []);
        assert_eq!(client.inspect_scheduled_jobs("a", 0, 10).unwrap(), []);
        assert_eq!(client.inspect_queue("b").unwrap().ready, 5);
    });
}

#[test]
fn errors_of_the_server_leave_the_connection_usable() {
    let script = [
        ("delete $ID\r\n", "-NOT-FOUND\r\n"),
        ("lease a 0\r\n", "-TIMEOUT\r\n"),
        ("complete $ID 0\r\n\r\n", "-CLIENT-ERROR Duplicate result\r\n"),
        ("complete $ID 0\r\n\r\n", "-SERVER-ERROR disk full\r\n"),
        ("delete $ID\r\n", "+OK\r\n"),
    ];
    check(&script, |client| {
        assert!(matches!(client.delete(id()), Err(ClientError::NotFound)));
        assert!(matches!(client.lease(&["a"], 0), Err(ClientError::Timeout)));
        let Err(ClientError::Client(text)) = client.complete(id(), "") else { panic!("no error") };
        assert_eq!(text, "Duplicate result");
        let Err(ClientError::Server(text)) = client.complete(id(), "") else { panic!("no error") };
        assert_eq!(text, "disk full");
        client.delete(id()).unwrap();
    });
}

#[test]
fn what_would_break_the_connection_is_not_sent() {
    check(&[("delete $ID\r\n", "+OK\r\n")], |client| {
        let refusal = |outcome| match outcome {
            Err(ClientError::Client(text)) => text,
            other => panic!("{other:?}"),
        };
        let job = NewJob::new(id(), "a 1 1 0\r\n".into(), 1, 1, Bytes::new());
        assert_eq!(refusal(client.add(&job)), "Invalid Name");
        let too_long = Bytes::from(vec![0; 1024 * 1024 + 1]);
        let job = NewJob::new(id(), "a".into(), 1, 1, too_long.clone());
        assert_eq!(refusal(client.add(&job)), "Invalid payload size");
        assert_eq!(refusal(client.fail(id(), too_long)), "Invalid result size");
        let names: [&str; 0] = [];
        assert_eq!(refusal(client.lease(&names, 1).map(|_| ())), "Invalid command args");
        client.delete(id()).unwrap();
    });
}

#[test]
fn a_connection_is_given_up_after_nonsense_or_a_close() {
    for answer in ["HTTP/1.1 400 Bad Request\r\n", "+OK 1\r\n", "+OK"] {
        check(&[("delete $ID\r\n", answer)], |client| {
            let error = client.delete(id()).unwrap_err();
            assert!(!error.is_answer(), "{answer:?} gives {error:?}");
            assert!(matches!(client.delete(id()), Err(ClientError::Protocol(_))), "{answer:?}");
        });
    }
}

#[test]
fn questions_can_be_sent_ahead_of_their_answers() {
    let both = format!("delete {ID}\r\ninspect queue q\r\ndelete {ID}\r\n");
    let answers = "+OK\r\n+OK 1\r\nq 2\r\nready-len 1\r\nscheduled-len 0\r\n-NOT-FOUND\r\n";
    check(&[(&both, answers)], |client| {
        client.send(&Request::Delete { id: id() }).unwrap();
        let request = Request::InspectQueue { name: "q".into() };
        client.send(&request).unwrap();
        client.send_raw(format!("delete {ID}\r\n").as_bytes()).unwrap();
        let wait = Duration::ZERO;
        assert_eq!(client.read_reply(ReplyKind::Ok, wait).unwrap(), Reply::Ok);
        let reply = client.read_reply(ReplyKind::of(&request), wait).unwrap();
        assert!(matches!(reply, Reply::Queues(queues) if queues.len() == 1));
        let last = client.read_reply(ReplyKind::Ok, wait);
        assert!(matches!(last, Err(ClientError::NotFound)));
    });
}
