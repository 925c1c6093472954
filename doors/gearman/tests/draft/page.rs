//! The conversation on the protocol's page, byte by byte.

use crate::client::TestServer;

const PAGE: &str = include_str!("../../../../docs/gearman.md");

/// The bytes of a line of the conversation, without its remark.
fn bytes_of(line: &str) -> Vec<u8> {
    let hex = line.split(';').next().unwrap_or_default();
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("a byte")).collect()
}

#[test]
fn the_conversation_of_the_page_happens_as_it_is_told() {
    let (_, rest) = PAGE.split_once("```draft\n").expect("the page has a conversation");
    let (conversation, _) = rest.split_once("```").expect("it ends");
    let server = TestServer::new();
    let mut client = server.client();
    let mut lines = 0;
    for line in conversation.lines() {
        let (who, line) = line.split_at(1);
        let bytes = bytes_of(line);
        match who {
            ">" => client.raw(&bytes),
            "<" => assert_eq!(client.hear_bytes(bytes.len()), bytes, "{line}"),
            other => panic!("nobody is called {other}"),
        }
        lines += 1;
    }
    assert!(lines > 20);
    client.is_closed();
}
