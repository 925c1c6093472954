//! The examples of the protocol's page, typed in page order on a fresh server.

use crate::harness::TestServer;

const PAGE: &str = include_str!("../../../../docs/workq.md");

/// The bodies of the page's conversations.
fn conversations() -> Vec<String> {
    let mut blocks = PAGE.split("```workq\n");
    blocks.next();
    blocks.map(|block| block.split("```").next().unwrap_or_default().to_owned()).collect()
}

/// Lines that tell a time of the server's own.
const TIMES: [&str; 2] = ["created ", "started "];

#[test]
fn the_examples_of_the_page_work_when_typed() {
    let server = TestServer::with_real_time();
    let mut client = server.client();
    let conversations = conversations();
    assert!(conversations.len() >= 10, "the page has {} conversations", conversations.len());
    for conversation in &conversations {
        println!("{conversation}");
        let mut sent = String::new();
        for line in conversation.lines() {
            let (side, text) = line.split_at(1);
            let text = text.strip_prefix(' ').unwrap_or(text);
            match side {
                ">" => sent += &format!("{text}\r\n"),
                "<" => {
                    client.send(std::mem::take(&mut sent));
                    match TIMES.iter().find(|key| text.starts_with(**key)) {
                        None => client.expect(format!("{text}\r\n")),
                        Some(key) => {
                            client.expect(key);
                            let time = client.line();
                            let parsed = spindle_workq::wire::parse_time(time.as_bytes());
                            assert!(parsed.is_some_and(|at| at > 1_700_000_000_000), "{time}");
                        }
                    }
                }
                _ => panic!("a line of a conversation begins with > or <: {line}"),
            }
        }
        client.send(sent);
    }
    client.finish();
}
