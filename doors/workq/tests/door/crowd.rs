//! Many clients, most of them with nothing sensible to say.

use crate::harness::{Client, TestServer, with_ids};

/// The same numbers in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end
    }
}

const WORDS: [&str; 24] = [
    "add",
    "lease",
    "run",
    "inspect",
    "job",
    "complete",
    "fail",
    "result",
    "delete",
    "schedule",
    "#1",
    "#2",
    "q",
    "0",
    "1",
    "-1",
    "1000",
    "60000",
    "18446744073709551615",
    "-priority=1",
    "-x=",
    "\r\n",
    "2030-01-01T00:00:00Z",
    "\0\u{7f}",
];

fn junk(draw: &mut Draw) -> Vec<u8> {
    match draw.below(6) {
        0 => (0..draw.below(400)).map(|_| draw.below(256) as u8).collect(),
        1 => b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        2 => with_ids("add #77 junk 1000 1 1048576\r\nfar less than that").into_bytes(),
        3 => b"lease nothing 86400000\r\n".repeat(1 + draw.below(50)),
        4 => vec![b'x'; draw.below(5000)],
        _ => {
            let mut text = String::new();
            for _ in 0..draw.below(60) {
                text.push_str(WORDS[draw.below(WORDS.len())]);
                text.push_str([" ", "  ", "\r\n", ""][draw.below(4)]);
            }
            with_ids(&text).into_bytes()
        }
    }
}

#[test]
fn thousands_of_connections_with_junk_harm_nobody() {
    const WAVES: u64 = 30;
    const PER_WAVE: usize = 100;
    let server = TestServer::new();
    let mut good = server.client();
    let mut draw = Draw(7);
    for wave in 1..=WAVES {
        let mut crowd: Vec<Client> = (0..PER_WAVE).map(|_| server.client()).collect();
        for client in &mut crowd {
            client.send_in_vain(junk(&mut draw));
        }
        let number = 1000 + wave;
        good.talk(&format!(
            "> add #{number} good 1000 60000 4
             > work
             < +OK
             > lease good 1000
             < +OK 1
             < #{number} good 1000 4
             < work
             > complete #{number} 4
             > done
             < +OK
             > result #{number} 0
             < +OK 1
             < #{number} 1 4
             < done"
        ));
        for client in crowd {
            match draw.below(3) {
                0 => client.reset(),
                _ => drop(client),
            }
        }
    }
    server.until("all of them are gone", |server| server.door.clients() == 1);
    good.talk(
        "> inspect queue nothing
         < -NOT-FOUND",
    );
    good.finish();
}

#[test]
fn hundreds_of_workers_and_clients_get_every_job_once() {
    const PAIRS: u64 = 200;
    let server = TestServer::new();
    let mut workers: Vec<Client> = (0..PAIRS).map(|_| server.client()).collect();
    for worker in &mut workers {
        worker.begin("> lease crowd 60000");
    }
    let mut clients: Vec<Client> = (0..PAIRS).map(|_| server.client()).collect();
    for (number, client) in (1..).zip(&mut clients) {
        client.begin(&format!("> run #{number} crowd 60000 60000 1\n> a"));
    }
    // The workers waited in the order in which they came, so each knows whom it gets.
    for (number, worker) in (1..).zip(&mut workers) {
        worker.talk(&format!(
            "< +OK 1
             < #{number} crowd 60000 1
             < a
             > complete #{number} 1
             > b
             < +OK"
        ));
    }
    for (number, client) in (1..).zip(&mut clients) {
        client.talk(&format!(
            "< +OK 1
             < #{number} 1 1
             < b"
        ));
    }
}
