//! Sessions at shards whose words and timing the test decides.

mod moves;
mod script;

use std::sync::Arc;

use bytes::Bytes;
use spindle_engine::door::{Flow, Session};
use spindle_gearman::client::Encode;
use spindle_gearman::wire::{AdminCommand, Request, Response};
use spindle_testkit::check_identity_is_required;

use super::{GearmanOptions, GearmanRouter};
use crate::Placement;
use script::*;

// ---- order ----

#[test]
fn answers_leave_in_the_order_of_the_requests_and_news_not_before_their_job() {
    let mut client = Client::new();
    client.send(&background(1));
    client.send(&foreground(2));
    client.send(&background(0));
    let expected = [background(1), foreground(2), background(0)];
    let sent = client.sent();
    assert_eq!(sent.iter().map(|(shard, _)| *shard).collect::<Vec<_>>(), [1, 2, 0]);
    assert!(sent.iter().zip(&expected).all(|((_, bytes), request)| *bytes == encoded(request)));
    client.hear(2, &[job_created(2), complete(2)].concat());
    client.hear(0, &job_created(0));
    assert_eq!(client.got(), b"");
    client.hear(1, &job_created(1));
    let expected = [job_created(1), job_created(2), complete(2), job_created(0)].concat();
    assert_eq!(client.got(), expected);
}

#[test]
fn news_of_one_shard_do_not_wait_for_answers_of_another() {
    let mut client = Client::new();
    client.send(&foreground(1));
    client.hear(1, &job_created(1));
    client.send(&background(0));
    client.got();
    client.hear(1, &complete(1));
    assert_eq!(client.got(), complete(1));
}

#[test]
fn an_error_of_a_request_without_an_answer_is_not_taken_for_the_next_answer() {
    let mut client = Client::new();
    client.send(&can_do(1));
    client.send(&background(1));
    client.send(&background(2));
    client.hear(2, &job_created(2));
    // CAN_DO was refused; the submit was not, and neither are answers before it.
    client.hear(1, &error());
    assert_eq!(client.got(), error());
    client.hear(1, &[fence_back(), job_created(1)].concat());
    assert_eq!(client.got(), [job_created(1), job_created(2)].concat());
    let to_1 = client.sent().into_iter().filter(|(shard, _)| *shard == 1);
    let expected = [encoded(&can_do(1)), fence(), encoded(&background(1))].concat();
    assert_eq!(to_1.flat_map(|(_, bytes)| bytes).collect::<Vec<_>>(), expected);
}

#[test]
fn an_echo_says_that_all_shards_have_done_what_was_sent_before() {
    let mut client = Client::new();
    client.send(&can_do(1));
    client.send(&can_do(2));
    client.send(&Request::Echo { data: Bytes::from_static(b"there?") });
    client.hear(2, &fence_back());
    assert_eq!(client.got(), b"");
    client.hear(1, &[error(), fence_back()].concat());
    let echo = bytes_of(&Response::Echo { data: b"there?" });
    assert_eq!(client.got(), [error(), echo.clone()].concat());
    // With nothing to wait for it is answered at once.
    client.send(&Request::Echo { data: Bytes::from_static(b"there?") });
    assert_eq!(client.got(), echo);
}

#[test]
fn malformed_packets_and_lines_are_answered_in_their_place() {
    let mut client = Client::new();
    client.send(&background(1));
    client.send_raw(b"nonsense\n");
    // CAN_DO without a name, then a type that there is not.
    client.send_raw(b"\0REQ\0\0\0\x01\0\0\0\0");
    client.send_raw(b"\0REQ\0\0\0\x63\0\0\0\0");
    assert_eq!((client.got(), client.flow), (Vec::new(), Flow::Wait));
    client.hear(1, &job_created(1));
    let got = client.got();
    assert!(got.starts_with(&job_created(1)));
    let rest = String::from_utf8_lossy(&got[job_created(1).len()..]).into_owned();
    let [line, name, kind] = ["ERR UNKNOWN_COMMAND", "INVALID_FUNCTION_NAME", "INVALID_COMMAND"]
        .map(|code| rest.find(code).unwrap());
    assert!(line < name && name < kind, "{rest}");
    assert_eq!(client.flow, Flow::Close);
}

// ---- grabs and sleep ----

#[test]
fn a_grab_goes_from_shard_to_shard_when_all_before_is_answered() {
    let mut client = Client::new();
    client.send(&can_do(0));
    client.send(&can_do(2));
    client.send(&background(1));
    client.hear(0, &fence_back());
    client.hear(2, &fence_back());
    client.sent();
    client.send(&GRAB);
    client.send(&background(0));
    assert_eq!((client.sent_to(0), client.flow), (Vec::new(), Flow::Wait));
    client.hear(1, &job_created(1));
    assert_eq!(client.sent_to(0), encoded(&GRAB));
    client.hear(0, &bytes_of(&Response::NoJob));
    assert_eq!(client.sent_to(2), encoded(&GRAB));
    client.got();
    client.hear(2, &assigned(2));
    assert_eq!(client.got(), assigned(2));
    // Only now what came behind the grab.
    assert_eq!(client.sent_to(0), encoded(&background(0)));
}

#[test]
fn the_shard_behind_the_one_that_had_the_last_job_is_asked_first() {
    let mut client = Client::new();
    for shard in 0..3 {
        client.send(&can_do(shard));
    }
    client.send(&Request::Echo { data: Bytes::new() });
    (0..3).for_each(|shard| client.hear(shard, &fence_back()));
    client.sent();
    for shard in [0, 1, 2, 0, 1] {
        client.send(&GRAB);
        assert_eq!(client.sent_to(shard), encoded(&GRAB));
        client.hear(shard, &assigned(shard));
    }
}

#[test]
fn a_worker_that_can_do_nothing_hears_what_the_first_shard_says() {
    let mut client = Client::new();
    client.send(&GRAB);
    assert_eq!(client.sent_to(0), encoded(&GRAB));
    client.hear(0, &error());
    assert_eq!(client.got(), error());
}

#[test]
fn a_sleeper_is_called_once_and_again_in_its_next_sleep() {
    let mut client = Client::new();
    client.send(&can_do(0));
    client.send(&can_do(1));
    client.send(&Request::PreSleep);
    client.hear(1, &noop());
    client.hear(0, &noop());
    assert_eq!(client.got(), noop());
    client.sent();
    client.send(&Request::PreSleep);
    let sleep = encoded(&Request::PreSleep);
    assert_eq!(client.sent(), [(0, sleep.clone()), (1, sleep)]);
    client.hear(0, &noop());
    assert_eq!(client.got(), noop());
    // A grab ends a sleep, be there a job or not.
    client.send(&Request::PreSleep);
    client.send(&GRAB);
    client.hear(0, &[fence_back(), assigned(0)].concat());
    client.got();
    client.hear(1, &noop());
    assert_eq!(client.got(), b"");
}

#[test]
fn a_function_more_may_wake_a_sleeper() {
    let mut client = Client::new();
    client.send(&can_do(0));
    client.send(&Request::PreSleep);
    client.sent();
    client.send(&can_do(2));
    let expected = [encoded(&can_do(2)), encoded(&Request::PreSleep)].concat();
    assert_eq!(client.sent_to(2), expected);
    // Where it sleeps already, the shard knows.
    client.send(&can_do(0));
    assert_eq!(client.sent_to(0), encoded(&can_do(0)));
}

// ---- lost ways ----

#[test]
fn a_lost_way_that_owes_an_answer_ends_the_client_behind_the_answers_before() {
    let mut client = Client::new();
    client.send(&background(1));
    client.send(&background(0));
    client.send(&background(2));
    client.hear(2, &job_created(2));
    client.lose(0);
    assert_eq!(client.flow, Flow::Wait);
    client.send(&background(1));
    client.hear(1, &job_created(1));
    assert_eq!((client.got(), client.flow), (job_created(1), Flow::Close));
    assert!(!client.input.is_empty(), "no more is taken");
}

#[test]
fn an_answer_that_came_before_its_way_was_lost_leaves() {
    let mut client = Client::new();
    client.send(&background(1));
    client.send(&foreground(0));
    client.hear(0, &job_created(0));
    client.lose(0);
    client.hear(1, &job_created(1));
    let expected = [job_created(1), job_created(0)].concat();
    assert_eq!((client.got(), client.flow), (expected, Flow::Close));
}

#[test]
fn a_lost_way_with_nothing_on_it_is_forgotten_and_opened_as_it_was() {
    let mut client = Client::new();
    client.send_raw(b"auth secret\n");
    client.hear(0, b"OK\r\n");
    client.send(&Request::SetClientId { id: Bytes::from_static(b"me") });
    client.send(&Request::Option { name: Bytes::from_static(b"exceptions") });
    client.hear(0, &bytes_of(&Response::Option { name: b"exceptions" }));
    client.send(&can_do(1));
    client.got();
    client.lose(1);
    client.sent();
    assert_eq!(client.flow, Flow::Continue);
    client.send(&background(1));
    let option = Request::Option { name: Bytes::from_static(b"exceptions") };
    let id = Request::SetClientId { id: Bytes::from_static(b"me") };
    let expected = [
        b"auth secret\n".to_vec(),
        encoded(&id),
        encoded(&option),
        encoded(&can_do(1)),
        fence(),
        encoded(&background(1)),
    ];
    assert_eq!(client.sent_to(1), expected.concat());
    let option = bytes_of(&Response::Option { name: b"exceptions" });
    let answers = [b"OK\r\n".to_vec(), option, fence_back(), job_created(1)];
    client.hear(1, &answers.concat());
    assert_eq!(client.got(), job_created(1));
}

#[test]
fn a_way_does_not_begin_with_what_was_taken_back() {
    let mut client = Client::new();
    for request in [can_do(1), Request::CantDo { function: function_on(1) }] {
        client.send(&request);
    }
    client.lose(1);
    client.sent();
    client.send(&background(1));
    assert_eq!(client.sent_to(1), encoded(&background(1)));
    client.send(&can_do(2));
    client.send(&Request::ResetAbilities);
    client.lose(2);
    client.sent();
    client.send(&background(2));
    assert_eq!(client.sent_to(2), encoded(&background(2)));
}

#[test]
fn an_echo_is_not_answered_when_what_was_sent_before_may_be_lost() {
    let mut client = Client::new();
    client.send(&can_do(0));
    client.send(&can_do(1));
    client.send(&Request::Echo { data: Bytes::new() });
    client.lose(1);
    assert_eq!((client.got(), client.flow), (Vec::new(), Flow::Close));
}

#[test]
fn a_list_says_what_was_done_before() {
    let mut client = Client::new();
    client.send(&can_do(2));
    client.sent();
    client.send(&AdminCommand::Status);
    assert_eq!(client.sent_to(2), fence());
    client.hear(2, &[error(), fence_back()].concat());
    assert_eq!(client.sent_to(0), encoded(&AdminCommand::Status));
}

#[test]
fn a_sleeper_is_called_when_a_way_is_lost_under_it() {
    let mut client = Client::new();
    client.send(&can_do(0));
    client.send(&can_do(1));
    client.send(&Request::PreSleep);
    client.lose(1);
    assert_eq!((client.got(), client.flow), (noop(), Flow::Continue));
    client.lose(0);
    assert_eq!((client.got(), client.flow), (Vec::new(), Flow::Continue));
}

#[test]
fn a_lost_way_with_a_job_on_it_ends_the_client() {
    let mut waits = Client::new();
    waits.send(&foreground(1));
    waits.hear(1, &job_created(1));
    let mut works = Client::new();
    works.send(&can_do(1));
    works.send(&GRAB);
    works.hear(1, &[fence_back(), assigned(1)].concat());
    let mut client = Client::new();
    client.send(&foreground(1));
    client.hear(1, &[job_created(1), complete(1)].concat());
    for (client, expected) in
        [(&mut waits, Flow::Close), (&mut works, Flow::Close), (&mut client, Flow::Continue)]
    {
        assert_eq!(client.session.is_engaged(), expected == Flow::Close);
        client.lose(1);
        assert_eq!(client.flow, expected);
    }
}

#[test]
fn a_result_that_may_be_lost_ends_the_client_and_one_that_was_read_does_not() {
    for (is_read, expected) in [(false, Flow::Close), (true, Flow::Continue)] {
        let mut client = Client::new();
        client.send(&can_do(1));
        client.send(&GRAB);
        client.hear(1, &[fence_back(), assigned(1)].concat());
        client.send(&Request::WorkComplete { handle: handle(1), result: Bytes::new() });
        if is_read {
            client.hear(1, &fence_back());
        }
        client.lose(1);
        assert_eq!(client.flow, expected, "{is_read}");
    }
}

// ---- bounds ----

#[test]
fn no_more_is_taken_while_too_many_answers_are_owed() {
    let mut client = Client::new();
    for _ in 0..1025 {
        background(1).encode(&mut client.input);
    }
    client.go_on();
    let submit = encoded(&background(1));
    assert_eq!((client.flow, client.sent_to(1)), (Flow::Wait, submit.repeat(1024)));
    client.hear(1, &job_created(1));
    assert_eq!((client.flow, client.sent_to(1)), (Flow::Wait, submit));
    assert!(client.input.is_empty());
}

#[test]
fn no_more_is_taken_while_too_much_is_unsent() {
    let mut client = Client::new();
    client.script.lock().unsent_bytes = 1024 * 1024 + 1;
    client.send(&background(1));
    assert_eq!((client.flow, client.sent().len()), (Flow::Wait, 0));
    client.script.lock().unsent_bytes = 0;
    client.wake();
    assert_eq!((client.flow, client.sent().len()), (Flow::Continue, 1));
}

#[test]
fn the_routers_own_answers_behind_one_that_is_owed_are_bounded() {
    let mut client = Client::new();
    client.send(&background(1));
    for _ in 0..3 {
        client.send(&Request::Echo { data: vec![7; 50_000].into() });
    }
    assert_eq!((client.flow, client.input.len()), (Flow::Wait, 50_012));
    client.hear(1, &job_created(1));
    client.got();
    client.go_on();
    assert_eq!((client.got().len(), client.input.len()), (50_012, 0));
}

#[test]
fn a_client_that_does_not_read_holds_up_what_comes() {
    let mut client = Client::new();
    client.send(&AdminCommand::Status);
    let line = [&[b'x'; 1000][..], b"\t1\t0\t0\n"].concat();
    client.hear(0, &line.repeat(100));
    let first = client.out.pending_bytes();
    assert!((64 * 1024..66 * 1024).contains(&first), "{first}");
    assert!(client.script.lock().wakes_later > 0);
    client.hear(0, &[line.clone(), b".\n".to_vec()].concat());
    assert_eq!((client.out.pending_bytes(), client.script.lock().coming.len()), (first, 1));
    // It has read.
    let mut got = client.got();
    client.wake();
    got.extend(client.got());
    assert_eq!(got, line.repeat(101));
    client.hear(1, b".\n");
    client.hear(2, b".\n");
    assert_eq!((client.got(), client.flow), (b".\n".to_vec(), Flow::Continue));
}

#[test]
fn what_was_left_for_a_client_to_read_goes_on_although_nothing_more_comes() {
    let mut client = Client::new();
    client.send(&AdminCommand::Workers);
    let line = [&[b'x'; 1000][..], b"\n"].concat();
    client.hear(0, &[line.repeat(200), b".\n".to_vec()].concat());
    client.sent();
    let mut got = Vec::new();
    for _ in 0..4 {
        got.extend(client.got());
        client.wake();
    }
    assert_eq!((got, client.sent_to(1)), (line.repeat(200), encoded(&AdminCommand::Workers)));
}

#[test]
fn a_shard_that_speaks_something_else_ends_the_client() {
    for nonsense in [&b"\0REQ\0\0\0\x07\0\0\0\0"[..], b"hello\n", &job_created(1)] {
        let mut client = Client::new();
        client.send(&can_do(1));
        client.hear(1, nonsense);
        assert_eq!(client.flow, Flow::Abort);
    }
}

// ---- beginnings and ends ----

#[test]
fn what_came_before_the_end_is_still_sent() {
    for (end, flow) in [(&b"\0NOT"[..], Flow::Abort), (&[b'x'; 1024], Flow::Close)] {
        let mut client = Client::new();
        Request::WorkFail { handle: handle(1) }.encode(&mut client.input);
        client.send_raw(end);
        let expected = encoded(&Request::WorkFail { handle: handle(1) });
        assert_eq!((client.flow, client.sent_to(1)), (flow, expected));
    }
}

#[test]
fn what_stands_behind_a_packet_without_arguments_goes_to_no_shard() {
    let mut client = Client::new();
    client.send(&can_do(1));
    client.sent();
    client.send_raw(b"\0REQ\0\0\0\x04\0\0\0\x04much");
    assert_eq!(client.sent_to(1), encoded(&Request::PreSleep));
}

#[test]
fn strangers_are_closed_and_the_draft_is_refused_in_its_own_words() {
    let mut client = Client::new();
    client.send_raw(b"GET / HTTP/1.1\r\n");
    assert_eq!((client.flow, client.got()), (Flow::Abort, Vec::new()));
    let mut client = Client::new();
    client.send_raw(b"AUTH secret\n\x01SPD\x06\0\0\0\0");
    assert_eq!(client.flow, Flow::Wait);
    client.hear(0, b"OK\r\n");
    assert_eq!(client.flow, Flow::Close);
    let got = client.got();
    assert!(got.starts_with(b"OK\r\n\x01SPD\x7f"), "{}", got.escape_ascii());
}

#[test]
fn a_token_is_presented_at_all_shards_and_answered_once() {
    let mut client = Client::new();
    client.send(&background(1));
    client.send(&background(2));
    client.hear(1, &job_created(1));
    client.hear(2, &job_created(2));
    client.got();
    client.sent();
    client.send_raw(b"auth secret\r\n");
    let line = b"auth secret\r\n".to_vec();
    assert_eq!(client.sent(), [(1, line.clone()), (2, line)]);
    client.hear(2, b"ERR NO\r\n");
    assert_eq!(client.got(), b"");
    client.hear(1, b"OK\r\n");
    assert_eq!(client.got(), b"OK\r\n");
    client.send(&background(2));
    client.hear(2, &job_created(2));
    assert_eq!(client.got(), job_created(2));
}

#[test]
fn who_sends_no_more_still_gets_its_answers() {
    let mut client = Client::new();
    background(1).encode(&mut client.input);
    client.input.extend_from_slice(b"\0REQ");
    let flow = client.session.on_end_of_input(&mut client.input, &mut client.out);
    assert_eq!((flow, client.sent().len()), (Flow::Wait, 1));
    client.hear(1, &job_created(1));
    assert_eq!(client.got(), job_created(1));
    let flow = client.session.on_end_of_input(&mut client.input, &mut client.out);
    assert_eq!(flow, Flow::Continue);
}

#[test]
fn a_server_that_stops_answers_what_is_owed_and_no_more() {
    let mut client = Client::new();
    client.send(&background(1));
    assert_eq!(client.session.on_shutdown(false, &mut client.out), Flow::Wait);
    client.flow = Flow::Wait;
    client.send(&background(1));
    client.hear(1, &job_created(1));
    assert_eq!((client.got(), client.flow), (job_created(1), Flow::Close));
    assert_eq!(client.sent().len(), 1);
    let mut client = Client::new();
    assert_eq!(client.session.on_shutdown(false, &mut client.out), Flow::Close);
    let mut client = Client::new();
    client.send(&background(1));
    assert_eq!(client.session.on_shutdown(true, &mut client.out), Flow::Close);
}

#[test]
fn a_client_lacks_an_identity_until_it_presents_a_token_or_a_certificate_that_is_known() {
    let access = check_identity_is_required(|access| {
        let options = GearmanOptions { access, ..GearmanOptions::default() };
        GearmanRouter::new(Arc::new(ScriptedNetwork), Placement::over(SHARDS), options)
    });
    for (token, lacks) in [("wrong", true), ("known", false)] {
        let mut client = Client::of(access.login(None));
        assert!(client.session.lacks_identity());
        client.send_raw(format!("auth {token}\n").as_bytes());
        assert_eq!(client.session.lacks_identity(), lacks, "{token}");
    }
}
