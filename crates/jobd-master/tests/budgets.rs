//! The memory that all clients of a master together make it hold.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use spindle_budget::Budgets;
use spindle_jobd_master::{
    link::Responder,
    server::{ListenSettings, Listener, Service},
    wire::Request,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

/// Answers pokes, and keeps all other requests.
#[derive(Default)]
struct Keeper(Mutex<Vec<Responder>>);

impl Service for Keeper {
    fn request(&self, request: Request, responder: Responder) {
        match request.kind.as_str() {
            "poke" => responder.ok(),
            _ => self.0.lock().push(responder),
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(120);

async fn until(what: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(timeout(PATIENCE, wait).await.is_ok(), "waited in vain for: {what}");
}

#[tokio::test]
async fn unfinished_messages_and_unanswered_requests_count_and_the_largest_goes() {
    let budgets = Budgets::new(300_000, usize::MAX);
    let settings = ListenSettings {
        host: "127.0.0.1".to_owned(),
        budgets: budgets.clone(),
        ..ListenSettings::default()
    };
    let listener = Listener::bind(&settings).await.unwrap();
    let address = listener.address();
    let _server = listener.serve(Arc::new(Keeper::default()));
    let held = || budgets.input.readings().held_bytes;

    let mut asking = TcpStream::connect(address).await.unwrap();
    let data = "x".repeat(150_000);
    let request = format!("[0,{{\"no\":1,\"type\":\"keep\",\"data\":\"{data}\"}}]\x04");
    asking.write_all(request.as_bytes()).await.unwrap();
    // The byte that ends a message is no part of it.
    until("the request", || held() == request.len() as u64 - 1).await;

    let mut sending = TcpStream::connect(address).await.unwrap();
    sending.write_all("x".repeat(200_000).as_bytes()).await.unwrap();
    until("the end of one", || budgets.input.readings().closed == 1).await;
    let mut why = Vec::new();
    // A reset is as good as an end.
    let _ = timeout(PATIENCE, sending.read_to_end(&mut why)).await;
    let why = String::from_utf8_lossy(&why);
    assert!(why.contains("too many unfinished requests"), "{why}");

    asking.write_all(b"[0,{\"no\":2,\"type\":\"poke\"}]\x04").await.unwrap();
    let mut answer = [0; 64];
    let count = timeout(PATIENCE, asking.read(&mut answer)).await.unwrap().unwrap();
    let answer = String::from_utf8_lossy(&answer[..count]);
    assert!(answer.contains("\"no\":2"), "{answer}");
    assert_eq!(held(), request.len() as u64 - 1);
}

#[tokio::test]
async fn answers_that_nobody_takes_count_together_and_who_has_the_most_goes() {
    // More than sockets take by themselves: an answer counts until its last byte has left.
    let (large, small) = (40_000_000, 20_000_000);
    let budgets = Budgets::new(usize::MAX, large + small + 200);
    let settings = ListenSettings {
        host: "127.0.0.1".to_owned(),
        budgets: budgets.clone(),
        ..ListenSettings::default()
    };
    let listener = Listener::bind(&settings).await.unwrap();
    let address = listener.address();
    let keeper = Arc::new(Keeper::default());
    let _server = listener.serve(Arc::clone(&keeper) as Arc<dyn Service>);
    let held = || budgets.output.readings().held_bytes as usize;
    let ask = async |length: usize| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"[0,{\"no\":1,\"type\":\"keep\"}]\x04").await.unwrap();
        until("the request", || !keeper.0.lock().is_empty()).await;
        let responder = keeper.0.lock().remove(0);
        responder.data(&"x".repeat(length));
        stream
    };
    let mut first = ask(large).await;
    let mut second = ask(small).await;
    assert!((large + small..=large + small + 200).contains(&held()), "{}", held());
    assert_eq!(budgets.output.readings().closed, 0);
    let mut third = ask(100_000).await;
    until("the end of one", || budgets.output.readings().closed == 1).await;
    let length = async |stream: &mut TcpStream| {
        let mut length = 0;
        let mut part = vec![0; 1 << 20];
        loop {
            let count = timeout(PATIENCE, stream.read(&mut part)).await.unwrap().unwrap_or(0);
            if count == 0 {
                return (length, false);
            }
            length += count;
            if part[count - 1] == 4 {
                return (length, true);
            }
        }
    };
    let (taken, is_whole) = length(&mut first).await;
    assert!(taken < large && !is_whole, "{taken}");
    assert!(length(&mut second).await.1, "the others get all of theirs");
    assert!(length(&mut third).await.1);
    until("the memory", || held() == 0).await;
}
