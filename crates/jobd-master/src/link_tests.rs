//! Limits on a peer, with the runtime's paused clock, which advances when nothing else is left to do.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{net::TcpListener, time::Instant};

use super::*;

/// A connection with limits on its peer, which seems to be on another machine, and the peer's side.
async fn pair(peer_limits: PeerLimits) -> (Connection, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (near, _) = listener.accept().await.unwrap();
    let (_, connection) = Link::open(MaybeTls::Plain(near), usize::MAX).unwrap();
    (Connection { peer: "192.0.2.1".parse().unwrap(), ..connection.with(peer_limits) }, far)
}

fn poke(no: i64) -> Bytes {
    encode_request(no, "poke", None, None)
}

/// Two requests a second, and a clock that stands still: the third waits for half a second, and each one after it for
/// half a second more.
#[tokio::test(start_paused = true)]
async fn an_address_that_asks_too_fast_waits_its_turn() {
    let rates = RequestRates::with_clock(None, Some(2), || Duration::ZERO).map(Arc::new);
    let (connection, mut far) = pair(PeerLimits { rates, ..PeerLimits::default() }).await;
    let begun = Instant::now();
    let requests: Vec<u8> = (1..=4).flat_map(poke).collect();
    far.write_all(&requests).await.unwrap();
    far.shutdown().await.unwrap();
    let mut served = Vec::new();
    connection
        .run(|request, responder| {
            served.push((request.no, begun.elapsed().as_millis() / 500));
            responder.ok();
        })
        .await;
    assert_eq!(served, [(1, 0), (2, 0), (3, 1), (4, 3)]);
}

/// Messages that are not requests count like requests, except answers that were asked for. Three a
/// second, and a clock that stands still: of six messages that count, the last three wait, for a
/// second in all.
#[tokio::test(start_paused = true)]
async fn pings_and_junk_count_and_answers_that_were_asked_for_do_not() {
    let rates = RequestRates::with_clock(None, Some(3), || Duration::ZERO).map(Arc::new);
    let (connection, mut far) = pair(PeerLimits { rates, ..PeerLimits::default() }).await;
    let asked: Vec<_> = (0..9).map(|_| connection.link().request("status", None, None)).collect();
    let first = connection.link().0.pending.lock().next_no - 9;
    let answers = (first..).take(9).flat_map(|no| encode_response(no, Ok(RawValue::NULL)));
    let begun = Instant::now();
    far.write_all(&answers.collect::<Vec<_>>()).await.unwrap();
    far.write_all(b"junk\x04{}\x04[2]\x04[3]\x04[1,{\"no\":0}]\x04").await.unwrap();
    far.write_all(&poke(7)).await.unwrap();
    far.shutdown().await.unwrap();
    let mut served = Vec::new();
    connection
        .run(|request, responder| {
            served.push((request.no, begun.elapsed().as_millis()));
            responder.ok();
        })
        .await;
    // A third of a second, two thirds, and a whole one, one after the other.
    assert_eq!(served, [(7, 2001)]);
    for answer in asked {
        answer.await.unwrap();
    }
}

/// A peer that is owed an answer is not idle, however long that takes; then it is.
#[tokio::test(start_paused = true)]
async fn a_peer_that_waits_for_its_answer_is_not_idle() {
    let idle_time = Some(Duration::from_secs(10));
    let (connection, mut far) = pair(PeerLimits { idle_time, ..PeerLimits::default() }).await;
    far.write_all(&poke(7)).await.unwrap();
    tokio::spawn(connection.run(|_, responder| {
        tokio::spawn(async move {
            sleep(Duration::from_secs(100)).await;
            responder.ok();
        });
    }));
    let begun = Instant::now();
    let mut said = Vec::new();
    far.read_to_end(&mut said).await.unwrap();
    assert!(String::from_utf8_lossy(&said).contains("\"no\":7"), "{}", said.escape_ascii());
    assert!(begun.elapsed() >= Duration::from_secs(100), "{:?}", begun.elapsed());
}

/// A message that has begun has to go on, whether idle peers are closed or not.
#[tokio::test(start_paused = true)]
async fn a_peer_that_stops_in_the_middle_of_a_message_is_closed() {
    let (connection, mut far) = pair(PeerLimits::default()).await;
    let request = poke(7);
    far.write_all(&request[..request.len() - 1]).await.unwrap();
    let begun = Instant::now();
    let served = tokio::spawn(connection.run(|_, _| panic!("half a message was served")));
    let mut said = Vec::new();
    timeout(2 * STALL, far.read_to_end(&mut said)).await.expect("still open").unwrap();
    served.await.unwrap();
    assert!(said.is_empty() && begun.elapsed() >= STALL, "{:?}", begun.elapsed());
}

/// What a connection has served, and the right to answer it.
type Served = Arc<Mutex<Vec<Responder>>>;

fn serve(connection: Connection) -> Served {
    let served = Served::default();
    let all = Arc::clone(&served);
    tokio::spawn(connection.run(move |_, responder| all.lock().push(responder)));
    served
}

async fn until_served(served: &Served, count: usize) {
    while served.lock().len() < count {
        sleep(Duration::from_millis(1)).await;
    }
}

/// Lets the connection do all it can.
async fn settle() {
    for _ in 0..200 {
        sleep(Duration::from_millis(1)).await;
    }
}

/// A thousand and twenty-four may be without an answer; the next one is not read.
#[tokio::test]
async fn so_many_requests_may_be_without_an_answer_and_one_more_waits() {
    let (connection, mut far) = pair(PeerLimits::default()).await;
    let served = serve(connection);
    let requests: Vec<u8> = (1..=i64::from(REQUESTS_MAX) + 1).flat_map(poke).collect();
    far.write_all(&requests).await.unwrap();
    until_served(&served, REQUESTS_MAX as usize).await;
    settle().await;
    assert_eq!(served.lock().len(), REQUESTS_MAX as usize);
    let first = served.lock().swap_remove(0);
    first.ok();
    until_served(&served, REQUESTS_MAX as usize).await;
}

/// A peer that has not taken a mebibyte is read on, and one that owes a byte more is not.
#[tokio::test]
async fn a_peer_that_has_not_taken_its_answers_is_not_read_on() {
    let (connection, mut far) = pair(PeerLimits::default()).await;
    let link = connection.link().clone();
    let served = serve(connection);
    let unsent = &link.0.unsent_bytes;
    unsent.store(UNSENT_BYTES_MAX, Ordering::Relaxed);
    far.write_all(&[poke(1), poke(2)].concat()).await.unwrap();
    until_served(&served, 2).await;
    unsent.store(UNSENT_BYTES_MAX + 1, Ordering::Relaxed);
    far.write_all(&[poke(3), poke(4)].concat()).await.unwrap();
    until_served(&served, 3).await;
    settle().await;
    assert_eq!(served.lock().len(), 3, "the third was read before anybody looked");
    unsent.store(UNSENT_BYTES_MAX, Ordering::Relaxed);
    link.0.sent.notify_one();
    until_served(&served, 4).await;
}

/// A long answer may take as long as it likes, as long as the peer takes something of it.
#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_of_its_answer_is_given_up_and_a_slow_one_is_not() {
    let (mut near, mut far) = tokio::io::duplex(10);
    let begun = Instant::now();
    let writing = tokio::spawn(async move { write_message(&mut near, &[b'x'; 100]).await });
    let mut piece = [0; 10];
    for _ in 0..9 {
        sleep(STALL - Duration::from_secs(1)).await;
        far.read_exact(&mut piece).await.unwrap();
    }
    writing.await.unwrap().unwrap();
    assert!(begun.elapsed() > 5 * STALL);

    let (mut near, _far) = tokio::io::duplex(10);
    let begun = Instant::now();
    let error = write_message(&mut near, &[b'x'; 100]).await.unwrap_err();
    assert_eq!((error.kind(), begun.elapsed()), (io::ErrorKind::TimedOut, STALL));
}

/// TLS ends with bytes of its own.
#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_no_end_is_given_up() {
    let (near, mut far) = tokio::io::duplex(10);
    let mut near = Goodbye(near);
    let begun = Instant::now();
    near.write_all(&[b'x'; 10]).await.unwrap();
    end(&mut near).await;
    assert_eq!(begun.elapsed(), STALL);
    far.read_exact(&mut [0; 10]).await.unwrap();
    end(&mut near).await;
    assert_eq!(begun.elapsed(), STALL);
}

/// A stream that has something to say at its end.
struct Goodbye(tokio::io::DuplexStream);

impl AsyncWrite for Goodbye {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.0).poll_write(cx, b"bye"))?;
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
